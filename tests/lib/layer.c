/* tests/lib/layer.c - served layers without a mount: their files are really there */
#include "tests/lib/layer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/backing/backing.h"
#include "fs/engine/engine.h"
#include "meta/meta.h"
#include "tests/lib/store.h"
#include "tests/lib/tests.h"

#define TEXT_MAX 4096

static void run_script(const char *dir, const char *script)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (chdir(dir) == 0)
			(void)execl("/bin/sh", "sh", "-ec", script, (char *)NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void begin(struct tests_layer *l, bool again)
{
	const struct fs_uppers_options opts = {.meta = l->meta, .backing = l->backing};
	struct fs_upper_spec spec = {
		.serial = 7,
		.root = l->root,
		.writable = l->writable,
		.outputs = &l->outputs,
		.layer_fd = l->layer_fd,
		.again = again,
		.limit = l->limit,
	};
	struct err err = {0};

	assert_int_equal(fs_uppers_new(&opts, &l->all), 0);
	if (fs_upper_begin(l->all, &spec, &l->upper, &err) < 0)
		fail_msg("the layer: %s", err.msg);
}

static void end(struct tests_layer *l)
{
	tests_layer_forget(l);
	fs_upper_end(l->upper);
	fs_upper_unref(l->upper);
	fs_uppers_free(l->all);
}

static void attach_store(struct tests_layer *l)
{
	const struct meta_options meta = {.mode = META_READER};
	struct err err = {0};

	l->store = tests_store_open(l->dir, NULL);
	if (meta_open(l->store, &meta, &l->meta, &err) < 0)
		fail_msg("meta: %s", err.msg);
	assert_int_equal(fs_backing_table_new(l->store, 10, &l->backing), 0);
}

void tests_layer_attach(struct tests_layer *l, bool again)
{
	const char *path = tests_path(l->dir, "layer");

	attach_store(l);
	if (!again) {
		assert_int_equal(io_remove_tree(AT_FDCWD, path, NULL), 0);
		assert_int_equal(mkdir(path, 0755), 0);
	}
	l->layer_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(l->layer_fd >= 0);
	if (!again)
		assert_int_equal(fs_engine_fuse.prepare(l->layer_fd, NULL), 0);
	begin(l, again);
}

static void detach_store(struct tests_layer *l)
{
	fs_backing_table_free(l->backing);
	assert_int_equal(meta_close(l->meta, NULL), 0);
	cas_store_close(l->store);
}

void tests_layer_detach(struct tests_layer *l)
{
	end(l);
	(void)close(l->layer_fd);
	detach_store(l);
}

void tests_layer_open(struct tests_layer *l, const char *dir, const char *script,
		      enum fs_writable writable, const char *const *outputs)
{
	struct cas_ingest_options ingest = {.nr_threads = 1};
	struct cas_ingest_result got;
	struct err err = {0};
	size_t nr = 0;

	*l = (struct tests_layer){.dir = dir, .writable = writable};
	assert_int_equal(mkdir(tests_path(dir, "tree"), 0755), 0);
	run_script(tests_path(dir, "tree"), script);
	attach_store(l);
	if (cas_ingest(l->store, tests_path(dir, "tree"), &ingest, &got, &err) < 0)
		fail_msg("ingest: %s", err.msg);
	detach_store(l);
	l->root = got.digest;
	while (outputs[nr])
		nr++;
	assert_int_equal(fs_outputs_parse(outputs, nr, &l->outputs, NULL), 0);
	tests_layer_attach(l, false);
}

void tests_layer_close(struct tests_layer *l)
{
	tests_layer_detach(l);
	fs_outputs_fini(&l->outputs);
}

static void let_go(const struct fs_entry *entry)
{
	if (entry->kind == FS_KIND_UPPER)
		entry->view->ops->let_go(entry->view, entry);
	else if (entry->kind == FS_KIND_SYMLINK)
		free((char *)entry->target);
}

void tests_layer_forget(struct tests_layer *l)
{
	while (l->nr_held > 0)
		let_go(&l->held[--l->nr_held]);
	fs_uppers_reap(l->all);
}

void tests_layer_again(struct tests_layer *l)
{
	end(l);
	begin(l, true);
}

static void hold(struct tests_layer *l, const struct fs_entry *entry)
{
	assert_true(l->nr_held < TESTS_LAYER_HELD);
	l->held[l->nr_held++] = *entry;
}

static struct fs_unode *unode(const struct fs_entry *entry)
{
	return (struct fs_unode *)(uintptr_t)entry->tag;
}

/* 1, and *out is held; 0: no such name. */
static int look(struct tests_layer *l, const char *path, struct fs_entry *out)
{
	struct err err = {0};
	int ret = fs_uppers_root(l->all, 7, out, &err);

	assert_int_equal(ret, 1);
	hold(l, out);
	while (ret > 0 && *path) {
		char name[CAS_NAME_MAX + 1];
		size_t len = strcspn(path, "/");
		struct fs_entry next = {0};

		memcpy(name, path, len);
		name[len] = '\0';
		path += len + (path[len] == '/');
		ret = out->view->ops->lookup(out->view, out, name, &next, &err);
		if (ret < 0)
			fail_msg("lookup of %s: %s", name, err_text(&err, ret));
		if (ret > 0) {
			hold(l, &next);
			*out = next;
		}
	}
	return ret;
}

struct fs_unode *tests_layer_node(struct tests_layer *l, const char *path)
{
	struct fs_entry entry = {0};

	if (look(l, path, &entry) == 0)
		return NULL;
	assert_int_equal(entry.kind, FS_KIND_UPPER);
	return unode(&entry);
}

struct fs_unode *tests_layer_parent(struct tests_layer *l, const char *path, const char **name)
{
	const char *slash = strrchr(path, '/');
	auto_free char *above = strndup(path, slash ? (size_t)(slash - path) : 0);
	struct fs_unode *dir = tests_layer_node(l, above);

	*name = slash ? slash + 1 : path;
	assert_non_null(dir);
	return dir;
}

int tests_layer_make(struct tests_layer *l, const char *path, mode_t type)
{
	struct fs_making what = {
		.mode = type | (S_ISDIR(type) ? 0755 : 0644),
		.target = "target",
		.by = {geteuid(), getegid()},
	};
	struct fs_unode *dir = tests_layer_parent(l, path, &what.name);
	struct fs_entry entry;
	int ret = fs_upper_make(dir, &what, &entry, NULL);

	if (ret == 0)
		hold(l, &entry);
	return ret;
}

int tests_layer_write(struct tests_layer *l, const char *path, const char *text)
{
	struct fs_unode *node = tests_layer_node(l, path);
	int ret = node ? 0 : tests_layer_make(l, path, S_IFREG);

	if (ret < 0)
		return ret;
	return fs_upper_write(node ? node : tests_layer_node(l, path), text, strlen(text), 0, NULL);
}

int tests_layer_remove(struct tests_layer *l, const char *path)
{
	struct fs_entry entry;
	const char *name;
	struct fs_unode *dir = tests_layer_parent(l, path, &name);
	int ret = look(l, path, &entry);
	bool is_dir = ret > 0 && entry.kind == FS_KIND_UPPER && S_ISDIR(entry.mode);

	return fs_upper_remove(dir, name, is_dir, NULL);
}

int tests_layer_rename(struct tests_layer *l, const char *from, const char *to, unsigned flags)
{
	const char *name;
	const char *name2;
	struct fs_unode *dir = tests_layer_parent(l, from, &name);
	struct fs_unode *dir2 = tests_layer_parent(l, to, &name2);

	return fs_upper_rename(dir, name, dir2, name2, flags, NULL);
}

int tests_layer_link(struct tests_layer *l, const char *from, const char *to)
{
	struct fs_unode *node = tests_layer_node(l, from);
	struct fs_entry entry;
	const char *name;
	struct fs_unode *dir = tests_layer_parent(l, to, &name);
	int ret = fs_upper_link(node, dir, name, &entry, NULL);

	if (ret == 0)
		hold(l, &entry);
	return ret;
}

/* --- what is shown --- */

struct showing {
	struct tests_layer *l;
	FILE *out;
	const char *path; /* of the directory */
	size_t nr;
	char *names[TESTS_LAYER_HELD];
};

static int take_name(void *ctx, uint64_t pos, const char *name, const struct fs_entry *entry)
{
	struct showing *s = ctx;

	(void)pos;
	(void)entry;
	assert_true(s->nr < TESTS_LAYER_HELD);
	s->names[s->nr++] = strdup(name);
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void show_file(struct showing *s, const char *path, struct fs_unode *node)
{
	char text[TEXT_MAX];
	struct fs_entry lower;
	struct fs_backing *backing;
	ssize_t got;

	if (fs_upper_is_lower(node, &lower) == 1) {
		assert_int_equal(fs_backing_ref(s->l->backing, &lower.digest, &backing, NULL), 0);
		got = fs_backing_read(backing, text, sizeof(text), 0);
		fs_backing_unref(s->l->backing, backing);
	} else {
		got = fs_upper_read(node, text, sizeof(text), 0);
	}
	assert_true(got >= 0);
	(void)fprintf(s->out, "%s: %.*s\n", path,
		      (int)strcspn(text, "\n") < (int)got ? (int)strcspn(text, "\n") : (int)got,
		      text);
}

static void show_dir(struct tests_layer *l, FILE *out, const char *path);

static void show_one(struct showing *s, const char *path)
{
	auto_free char *target = NULL;
	struct fs_entry entry;

	/* What is listed is there. */
	assert_int_equal(look(s->l, path, &entry), 1);
	assert_int_equal(entry.kind, FS_KIND_UPPER);
	if (S_ISDIR(entry.mode)) {
		(void)fprintf(s->out, "%s/\n", path);
		show_dir(s->l, s->out, path);
	} else if (S_ISLNK(entry.mode)) {
		assert_int_equal(fs_upper_readlink(unode(&entry), &target), 0);
		(void)fprintf(s->out, "%s -> %s\n", path, target);
	} else {
		show_file(s, path, unode(&entry));
	}
}

static void show_dir(struct tests_layer *l, FILE *out, const char *path)
{
	struct showing s = {.l = l, .out = out, .path = path};
	struct fs_entry dir;

	assert_int_equal(look(l, path, &dir), 1);
	assert_int_equal(dir.view->ops->list(dir.view, &dir, 0, take_name, &s, NULL), 0);
	qsort(s.names, s.nr, sizeof(s.names[0]), by_name);
	for (size_t i = 0; i < s.nr; i++) {
		auto_free char *below = NULL;

		assert_true(asprintf(&below, "%s%s%s", path, *path ? "/" : "", s.names[i]) > 0);
		show_one(&s, below);
		free(s.names[i]);
	}
}

char *tests_layer_shown(struct tests_layer *l)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	show_dir(l, out, "");
	assert_int_equal(fclose(out), 0);
	tests_layer_forget(l);
	return text;
}
