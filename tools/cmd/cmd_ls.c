/* tools/cmd/cmd_ls.c - `casbox ls`: what a stored tree holds */
#include "tools/cmd/cmd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "tools/cli.h"
#include "tools/cmd/local.h"

struct ls_args {
	bool long_form;
	bool recursive;
	bool json;
};

#define ARG(field) offsetof(struct ls_args, field)
static const struct cli_option options[] = {
	{"long", 'l', CLI_FLAG, ARG(long_form), NULL, "mode, size and digest before the name",
	 false, NULL},
	{"recursive", 'R', CLI_FLAG, ARG(recursive), NULL, "everything below, with its path", false,
	 NULL},
	{"json", 0, CLI_FLAG, ARG(json), NULL, "one JSON object an entry", false, NULL},
	{NULL, 0, CLI_FLAG, 0, NULL, NULL, false, NULL},
};

struct ls {
	struct cas_store *store;
	struct ls_args args;
};

static const char *kind_name(const struct cas_node *node)
{
	switch (node->kind) {
	case CAS_NODE_DIRECTORY:
		return "directory";
	case CAS_NODE_SYMLINK:
		return "symlink";
	case CAS_NODE_FILE:
		break;
	}
	return "file";
}

/* The mode that the mount shows (design, section 4). */
static unsigned mode_of(const struct cas_node *node)
{
	if (node->kind == CAS_NODE_SYMLINK)
		return 0777;
	if (node->kind == CAS_NODE_DIRECTORY)
		return 0755;
	if (node->props.has_mode)
		return node->props.mode & 0777;
	return node->executable ? 0555 : 0444;
}

static void print_mode(const struct cas_node *node)
{
	static const char bits[] = "rwxrwxrwx";
	unsigned mode = mode_of(node);
	char text[11] = "-";

	if (node->kind != CAS_NODE_FILE)
		text[0] = node->kind == CAS_NODE_DIRECTORY ? 'd' : 'l';
	for (int i = 0; i < 9; i++)
		text[i + 1] = mode & (0400U >> i) ? bits[i] : '-';
	(void)fputs(text, stdout);
}

static void print_text(const struct ls *ls, const char *path, const struct cas_node *node)
{
	bool link = node->kind == CAS_NODE_SYMLINK;

	if (ls->args.long_form) {
		print_mode(node);
		(void)printf(" %12llu %s ",
			     (unsigned long long)(link ? strlen(node->target) : node->digest.size),
			     link ? "-" : CAS_DIGEST_TEXT(&node->digest));
	}
	cli_print_name(stdout, path);
	if (!ls->args.long_form) {
		(void)fputs(node->kind == CAS_NODE_DIRECTORY ? "/\n" : "\n", stdout);
		return;
	}
	if (link) {
		(void)fputs(" -> ", stdout);
		cli_print_name(stdout, node->target);
	}
	(void)fputc('\n', stdout);
}

static int print_object(const char *path, const struct cas_node *node)
{
	json_t *object = json_pack("{s:s}", "kind", kind_name(node));
	int ret = object ? cli_json_set_bytes(object, "path", path) : -ENOMEM;

	if (ret == 0 && node->kind == CAS_NODE_SYMLINK)
		ret = cli_json_set_bytes(object, "target", node->target);
	if (ret == 0 && node->kind != CAS_NODE_SYMLINK)
		ret = json_object_set_new(object, "digest",
					  json_string(CAS_DIGEST_TEXT(&node->digest)));
	if (ret == 0 && node->kind == CAS_NODE_FILE) {
		(void)json_object_set_new(object, "size",
					  json_integer((json_int_t)node->digest.size));
		(void)json_object_set_new(object, "executable", json_boolean(node->executable));
	}
	if (ret == 0 && node->props.has_mode)
		(void)json_object_set_new(object, "mode", json_integer(node->props.mode));
	if (ret == 0 && node->props.has_mtime) {
		(void)json_object_set_new(object, "mtime_s", json_integer(node->props.mtime_sec));
		(void)json_object_set_new(object, "mtime_ns", json_integer(node->props.mtime_nsec));
	}
	if (ret) {
		json_decref(object);
		return -ENOMEM;
	}
	return cli_print_json(object);
}

static int print_entry(const struct ls *ls, const char *path, const struct cas_node *node,
		       struct err *err)
{
	if (!ls->args.json) {
		print_text(ls, path, node);
		return 0;
	}
	return print_object(path, node) ? err_set(err, -ENOMEM, "out of memory") : 0;
}

/* A directory that waits to be listed. A stack of our own: trees may be 10,000 deep. */
struct todo {
	struct todo *next;
	struct cas_digest digest;
	char path[];
};

static int push(struct todo **stack, const struct cas_digest *digest, const char *path)
{
	struct todo *todo = malloc(sizeof(*todo) + strlen(path) + 1);

	if (!todo)
		return -ENOMEM;
	todo->next = *stack;
	todo->digest = *digest;
	memcpy(todo->path, path, strlen(path) + 1);
	*stack = todo;
	return 0;
}

static int child_path(const char *dir, const char *name, char **out)
{
	if (asprintf(out, "%s%s%s", dir, *dir ? "/" : "", name) < 0) {
		*out = NULL;
		return -ENOMEM;
	}
	return 0;
}

/* Print one directory's entries, and stack its children so that the first comes next. */
static int list_one(struct ls *ls, const struct todo *at, struct todo **stack, struct err *err)
{
	struct cas_directory *dir = NULL;
	int ret = cas_directory_load(ls->store, &at->digest, &dir, err);

	for (size_t i = 0; ret == 0 && i < dir->nr_nodes; i++) {
		auto_free char *path = NULL;

		ret = child_path(at->path, dir->nodes[i].name, &path);
		if (ret == 0)
			ret = print_entry(ls, path, &dir->nodes[i], err);
	}
	for (size_t i = dir ? dir->nr_nodes : 0; ret == 0 && ls->args.recursive && i > 0; i--) {
		const struct cas_node *node = &dir->nodes[i - 1];
		auto_free char *path = NULL;

		if (node->kind != CAS_NODE_DIRECTORY)
			continue;
		ret = child_path(at->path, node->name, &path);
		if (ret == 0)
			ret = push(stack, &node->digest, path);
	}
	cas_directory_free(dir);
	return ret == -ENOMEM ? err_set(err, ret, "out of memory") : ret;
}

static int list_tree(struct ls *ls, const struct cas_digest *root, struct err *err)
{
	struct todo *stack = NULL;
	int ret = push(&stack, root, "");

	while (ret == 0 && stack) {
		struct todo *at = stack;

		stack = at->next;
		ret = list_one(ls, at, &stack, err);
		free(at);
	}
	while (stack) {
		struct todo *next = stack->next;

		free(stack);
		stack = next;
	}
	return ret;
}

/* One step down from *digest, which is a Directory so far. 1: @name is its last word. */
static int step_down(struct ls *ls, struct cas_digest *digest, const char *name, bool last,
		     const char *path, struct err *err)
{
	struct cas_directory *dir = NULL;
	const struct cas_node *node;
	int ret = cas_directory_load(ls->store, digest, &dir, err);

	if (ret)
		return ret;
	node = cas_directory_find(dir, name);
	if (!node)
		ret = err_set(err, -ENOENT, "no %s in the tree (at '%s')", path, name);
	else if (node->kind == CAS_NODE_DIRECTORY)
		*digest = node->digest;
	else if (last)
		ret = print_entry(ls, path, node, err) ? -ENOMEM : 1;
	else
		ret = err_set(err, -ENOTDIR, "%s: '%s' is a %s", path, name, kind_name(node));
	cas_directory_free(dir);
	return ret;
}

/* List what is at @path; symlinks are data, and not followed. */
static int list_path(struct ls *ls, struct cas_digest root, const char *path, struct err *err)
{
	auto_free char *words = strdup(path);
	char *save = NULL, *word, *next;

	if (!words)
		return err_set(err, -ENOMEM, "out of memory");
	for (word = strtok_r(words, "/", &save); word; word = next) {
		int ret = 0;

		next = strtok_r(NULL, "/", &save);
		if (strcmp(word, ".") != 0)
			ret = step_down(ls, &root, word, next == NULL, path, err);
		if (ret)
			return ret < 0 ? ret : 0;
	}
	return list_tree(ls, &root, err);
}

int cmd_ls(struct cli *cli, int argc, char **argv, struct err *err)
{
	struct ls ls = {0};
	struct cli_words words = {0};
	struct local *local = NULL;
	struct cas_digest root;
	int ret = cli_parse(cli, options, &ls.args, CLI_ANYWHERE, argc, argv, &words, err);

	if (ret)
		return ret < 0 ? ret : 0;
	ret = cli_want_words(cli, &words, 1, 2, err);
	if (ret == 0)
		ret = local_open(cli, cli->tiers.nr > 0 ? LOCAL_RECORD : LOCAL_READ, &local, err);
	if (ret == 0) {
		ls.store = local_store(local);
		ret = cli_digest(cli, ls.store, words.argv[0], &root, err);
	}
	if (ret == 0 && ls.args.recursive && local_fetch(local))
		cas_fetch_foresee_tree(local_fetch(local), &root);
	if (ret == 0)
		ret = list_path(&ls, root, words.argc > 1 ? words.argv[1] : "", err);
	local_close(local);
	return ret;
}
