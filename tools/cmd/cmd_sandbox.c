/* tools/cmd/cmd_sandbox.c - `casbox sandbox`: the life of a sandbox on a running mount */
#include "tools/cmd/cmd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "tools/cli.h"
#include "tools/cmd/client.h"
#include "tools/cmd/local.h"
#include "tools/cmd/progress.h"
#include "tools/cmd/sandbox.h"

struct sandbox_args {
	const char *mount;
	bool json;
	const char *root;
	const char *id;
	struct cli_list outputs;
	const char *writable;
	const char *trace;
	const char *max_output;
	bool under_quota;
	const char *exit_code;
	const char *stdout_digest;
	const char *stderr_digest;
	bool remove;
	bool alone;
};

#define ARG(field) offsetof(struct sandbox_args, field)
#define COMMON_ROWS                                                                                \
	{                                                                                          \
		"mount",    'm',   CLI_TEXT,                                                       \
		ARG(mount), "MNT", "that mount, not the one that serves the store",                \
		true,	    NULL},                                                                 \
		{"json", 0, CLI_FLAG, ARG(json), NULL, "JSON instead of text", false, NULL},       \
	{                                                                                          \
		NULL, 0, CLI_FLAG, 0, NULL, NULL, false, NULL                                      \
	}

static const struct cli_option create_options[] = {
	{"root", 'r', CLI_TEXT, ARG(root), "DIGEST", "the input tree", false, NULL},
	{"output", 'o', CLI_LIST, ARG(outputs), "PATH",
	 "may be made by the action; PATH/ is made for it", false, NULL},
	{"writable", 'w', CLI_TEXT, ARG(writable), "WHAT", "outputs (default), dirs or all", true,
	 "outputs|dirs|all"},
	{"trace", 0, CLI_TEXT, ARG(trace), "KIND", "off (default), names, reads or exact", false,
	 "off|names|reads|exact"},
	{"max-output", 0, CLI_TEXT, ARG(max_output), "SIZE[,N]",
	 "how much the action may write, in how many files", true, NULL},
	{"under-quota", 0, CLI_FLAG, ARG(under_quota), NULL,
	 "a quota may keep that: it has no CAP_SYS_RESOURCE", false, NULL},
	{"id", 0, CLI_TEXT, ARG(id), "ID", "its name (default: random)", false, NULL},
	COMMON_ROWS,
};

static const struct cli_option finish_options[] = {
	{"exit-code", 0, CLI_TEXT, ARG(exit_code), "N", "for the result (default: 0)", false, NULL},
	{"stdout", 0, CLI_TEXT, ARG(stdout_digest), "DIGEST", "for the result", false, NULL},
	{"stderr", 0, CLI_TEXT, ARG(stderr_digest), "DIGEST", "for the result", false, NULL},
	{"remove", 0, CLI_FLAG, ARG(remove), NULL, "and forget it when that went well", false,
	 NULL},
	{"alone", 0, CLI_FLAG, ARG(alone), NULL, "nobody is inside: its root may be reused", false,
	 NULL},
	COMMON_ROWS,
};

static const struct cli_option remove_options[] = {
	{"alone", 0, CLI_FLAG, ARG(alone), NULL, "nobody is inside: its root may be reused", false,
	 NULL},
	COMMON_ROWS,
};

static const struct cli_option other_options[] = {COMMON_ROWS};

/* The words of a control command, none owned. */
struct command {
	const char **words;
	size_t nr;
};

static int command_init(struct command *c, size_t max)
{
	*c = (struct command){calloc(max, sizeof(*c->words)), 0};
	return c->words ? 0 : -ENOMEM;
}

static void command_add(struct command *c, const char *word)
{
	c->words[c->nr++] = word;
}

static void command_option(struct command *c, const char *name, const char *value)
{
	if (value) {
		command_add(c, name);
		command_add(c, value);
	}
}

int sandbox_digest(struct cli *cli, const char *text, char out[CAS_DIGEST_STR_SZ], struct err *err)
{
	struct local *local = NULL;
	struct cas_digest digest;
	int ret = 0;

	if (cas_digest_parse(text, &digest)) {
		ret = local_open(cli, LOCAL_READ, &local, err);
		if (ret == 0)
			ret = cli_digest(cli, local_store(local), text, &digest, err);
		local_close(local);
	}
	if (ret == 0)
		(void)cas_digest_format(&digest, '/', out);
	return ret;
}

int sandbox_max_output(struct cli *cli, const char *text, char out[48], struct err *err)
{
	const char *comma = text ? strchr(text, ',') : NULL;
	auto_free char *size = text ? strndup(text, strcspn(text, ",")) : NULL;
	char *end = NULL;
	uint64_t bytes = 0;
	unsigned long files = 0;

	out[0] = '\0';
	if (!text)
		return 0;
	if (comma)
		files = strtoul(comma + 1, &end, 10);
	if (!size || cli_parse_size(size, &bytes) || bytes == 0 || bytes > INT64_MAX / 2 ||
	    (comma && (comma[1] < '1' || comma[1] > '9' || *end || files > INT32_MAX)))
		return cli_usage(cli, err, "--max-output wants SIZE or SIZE,FILES, not '%s'", text);
	(void)snprintf(out, 48, comma ? "%llu,%lu" : "%llu", (unsigned long long)bytes, files);
	return 0;
}

static int create(struct cli *cli, struct client *client, const struct sandbox_args *args,
		  struct err *err)
{
	char root[CAS_DIGEST_STR_SZ];
	char max_output[48];
	struct command c;
	json_t *answer = NULL;
	int ret;

	if (!args->root)
		return cli_usage(cli, err, "--root DIGEST is missing");
	ret = sandbox_max_output(cli, args->max_output, max_output, err);
	if (ret == 0)
		ret = sandbox_digest(cli, args->root, root, err);
	if (ret == 0 && command_init(&c, 14 + 2 * args->outputs.nr))
		ret = err_set(err, -ENOMEM, "out of memory");
	if (ret)
		return ret;
	command_add(&c, "create");
	command_option(&c, "--root", root);
	command_option(&c, "--id", args->id);
	command_option(&c, "--writable", args->writable);
	command_option(&c, "--trace", args->trace);
	command_option(&c, "--max-output", max_output[0] ? max_output : NULL);
	if (args->under_quota)
		command_add(&c, "--under-quota");
	for (size_t i = 0; i < args->outputs.nr; i++)
		command_option(&c, "--output", args->outputs.items[i]);
	ret = client_ask(client, c.words, c.nr, 0, &answer, err);
	free(c.words);
	if (ret)
		return ret;
	if (args->json)
		return cli_print_json(answer);
	if (client_hidden_in(client))
		(void)printf("/proc/%d/root", (int)client_hidden_in(client));
	(void)printf("%s\n", client_text(answer, "path"));
	json_decref(answer);
	return 0;
}

/* Writes that did not fit were cut or refused, so that it may never have been quite full. */
static void print_limit(const struct cli *cli, const json_t *limit)
{
	uint64_t value = (uint64_t)json_integer_value(json_object_get(limit, "value"));
	uint64_t peak = (uint64_t)json_integer_value(json_object_get(limit, "peak"));
	char of[24], used[24];

	if (!json_is_true(json_object_get(limit, "reached")))
		return;
	if (strcmp(client_text(limit, "limit"), "output-files") == 0)
		cli_warn(cli, "the command came to --max-output: %" PRIu64 " of %" PRIu64 " files",
			 peak, value);
	else
		cli_warn(cli, "the command came to --max-output: %s of %s",
			 progress_size(peak, used), progress_size(value, of));
}

/* A build that leaves thousands of objects beside its outputs is no news after some. */
#define STRAY_MAX 8

void sandbox_print_notes(const struct cli *cli, const json_t *answer)
{
	const json_t *stray = json_object_get(answer, "stray");
	const json_t *item;
	size_t i;

	json_array_foreach(stray, i, item)
	{
		if (i == STRAY_MAX && json_array_size(stray) > STRAY_MAX + 1) {
			cli_warn(cli, "dropped as well: %zu more names",
				 json_array_size(stray) - STRAY_MAX);
			break;
		}
		cli_warn(cli, "dropped, since no output covers it: %s", json_string_value(item));
	}
	json_array_foreach(json_object_get(answer, "failed"), i, item)
	{
		cli_warn(cli, "cannot capture %s: %s", client_text(item, "path"),
			 client_text(item, "error"));
	}
	json_array_foreach(json_object_get(answer, "limits"), i, item) print_limit(cli, item);
	json_array_foreach(json_object_get(answer, "missing"), i, item)
	{
		cli_warn(cli, "an input was not to be had: %s %s", client_text(item, "type"),
			 client_text(item, "subject"));
	}
}

static void print_outputs(const json_t *answer)
{
	const json_t *item;
	size_t i;

	json_array_foreach(json_object_get(answer, "outputs"), i, item)
	{
		bool link = strcmp(client_text(item, "kind"), "symlink") == 0;

		cli_print_name(stdout, client_text(item, "path"));
		(void)fputs(link ? "\t-> " : "\t", stdout);
		cli_print_name(stdout, client_text(item, link ? "target" : "digest"));
		(void)fputc('\n', stdout);
	}
}

static int finish(struct cli *cli, struct client *client, const struct sandbox_args *args,
		  const char *id, struct err *err)
{
	char out[CAS_DIGEST_STR_SZ], error[CAS_DIGEST_STR_SZ];
	struct command c;
	json_t *answer = NULL;
	int ret = 0;

	if (args->stdout_digest)
		ret = sandbox_digest(cli, args->stdout_digest, out, err);
	if (ret == 0 && args->stderr_digest)
		ret = sandbox_digest(cli, args->stderr_digest, error, err);
	if (ret == 0 && command_init(&c, 10))
		ret = err_set(err, -ENOMEM, "out of memory");
	if (ret)
		return ret;
	command_add(&c, "finish");
	command_add(&c, id);
	command_option(&c, "--exit-code", args->exit_code);
	command_option(&c, "--stdout", args->stdout_digest ? out : NULL);
	command_option(&c, "--stderr", args->stderr_digest ? error : NULL);
	if (args->remove)
		command_add(&c, "--remove");
	if (args->alone)
		command_add(&c, "--alone");
	ret = client_call(client, c.words, c.nr, 0, &answer, err);
	free(c.words);
	if (ret)
		return ret;
	sandbox_print_notes(cli, answer);
	/* What was captured is told even when an input was changed. */
	if (args->json && json_object_get(answer, "result"))
		(void)cli_print_json(json_incref(json_object_get(answer, "result")));
	else if (!args->json)
		print_outputs(answer);
	ret = client_check(answer, err);
	json_decref(answer);
	return ret;
}

static void print_scalars(const json_t *object)
{
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)object, key, value)
	{
		auto_free char *text = NULL;

		if (json_is_string(value)) {
			(void)printf("%s\t", key);
			cli_print_name(stdout, json_string_value(value));
			(void)fputc('\n', stdout);
			continue;
		}
		text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
		(void)printf("%s\t%s\n", key, text ? text : "");
	}
}

static int show(struct client *client, const struct sandbox_args *args, const char *id,
		struct err *err)
{
	const char *const words[] = {"show", id};
	json_t *answer = NULL;
	int ret = client_ask(client, words, 2, CLIENT_QUICK_MS, &answer, err);

	if (ret)
		return ret;
	if (args->json)
		(void)cli_print_json(json_incref(json_object_get(answer, "sandbox")));
	else
		print_scalars(json_object_get(answer, "sandbox"));
	json_decref(answer);
	return 0;
}

static int list(struct client *client, const struct sandbox_args *args, struct err *err)
{
	const char *const words[] = {"list"};
	json_t *answer = NULL;
	json_t *item;
	size_t i;
	int ret = client_ask(client, words, 1, CLIENT_QUICK_MS, &answer, err);

	if (ret)
		return ret;
	json_array_foreach(json_object_get(answer, "sandboxes"), i, item)
	{
		if (args->json)
			(void)cli_print_json(json_incref(item));
		else
			(void)printf("%s\t%s\t%s\n", client_text(item, "id"),
				     client_text(item, "state"), client_text(item, "root"));
	}
	json_decref(answer);
	return 0;
}

static int remove_all(struct client *client, const struct cli_words *ids, bool alone,
		      struct err *err)
{
	int ret = 0;

	for (int i = 0; i < ids->argc && ret == 0; i++) {
		const char *const words[] = {"remove", ids->argv[i], "--alone"};

		ret = client_ask(client, words, alone ? 3 : 2, 0, NULL, err);
	}
	return ret;
}

enum sub { SUB_CREATE, SUB_FINISH, SUB_SHOW, SUB_LIST, SUB_REMOVE, NR_SUBS };

static const struct {
	const char *name;
	const struct cli_option *options;
	int min_words, max_words; /* max -1: none at all */
} subs[NR_SUBS] = {
	[SUB_CREATE] = {"create", create_options, 0, -1},
	[SUB_FINISH] = {"finish", finish_options, 1, 1},
	[SUB_SHOW] = {"show", other_options, 1, 1},
	[SUB_LIST] = {"list", other_options, 0, -1},
	[SUB_REMOVE] = {"remove", remove_options, 1, 0},
};

static int act(struct cli *cli, enum sub sub, const struct sandbox_args *args,
	       const struct cli_words *words, struct err *err)
{
	struct client *client = NULL;
	int ret = client_find(cli, args->mount, &client, err);

	if (ret)
		return ret;
	switch (sub) {
	case SUB_CREATE:
		ret = create(cli, client, args, err);
		break;
	case SUB_FINISH:
		ret = finish(cli, client, args, words->argv[0], err);
		break;
	case SUB_SHOW:
		ret = show(client, args, words->argv[0], err);
		break;
	case SUB_LIST:
		ret = list(client, args, err);
		break;
	case SUB_REMOVE:
	case NR_SUBS:
		ret = remove_all(client, words, args->alone, err);
		break;
	}
	client_close(client);
	return ret;
}

static int find_sub(struct cli *cli, const char *name, enum sub *out, struct err *err)
{
	for (int i = 0; i < NR_SUBS; i++) {
		if (strcmp(subs[i].name, name) == 0) {
			*out = (enum sub)i;
			return 0;
		}
	}
	return cli_usage(cli, err, "'%s' is none of create, finish, show, list, remove", name);
}

static int run_sub(struct cli *cli, enum sub sub, const struct cli_words *rest, struct err *err)
{
	struct sandbox_args args = {0};
	struct cli_words words = {0};
	int ret = cli_parse(cli, subs[sub].options, &args, CLI_ANYWHERE, rest->argc, rest->argv,
			    &words, err);

	if (ret == 0 && subs[sub].max_words < 0 && words.argc > 0)
		ret = cli_usage(cli, err, "unexpected argument '%s'", words.argv[0]);
	if (ret == 0)
		ret = cli_want_words(cli, &words, subs[sub].min_words,
				     subs[sub].max_words < 0 ? 0 : subs[sub].max_words, err);
	if (ret == 0)
		ret = act(cli, sub, &args, &words, err);
	cli_list_fini(&args.outputs);
	return ret < 0 ? ret : 0;
}

int cmd_sandbox(struct cli *cli, int argc, char **argv, struct err *err)
{
	struct cli_words words = {0};
	enum sub sub = NR_SUBS;
	int ret = cli_parse_common(cli, argc, argv, &words, err);

	if (ret)
		return ret;
	if (cli->help) {
		cli_help_command(cli->command, create_options, stdout);
		return 0;
	}
	ret = cli_want_words(cli, &words, 1, 0, err);
	if (ret == 0)
		ret = find_sub(cli, words.argv[0], &sub, err);
	return ret ? ret : run_sub(cli, sub, &words, err);
}
