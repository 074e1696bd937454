/* tests/lib/box.c - sandboxes over a plain directory in place of session one */
#include "tests/lib/box.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/fs.h"
#include "fs/helper/helper.h"
#include "meta/meta.h"
#include "tests/lib/store.h"
#include "tests/lib/tests.h"

static bool inside;

bool tests_box_in_userns(void)
{
	return inside;
}

static int write_text(const char *path, const char *text)
{
	auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? -errno : io_write_full(fd, text, strlen(text));
}

static int enter_userns(void)
{
	char uid_map[64];
	char gid_map[64];

	(void)snprintf(uid_map, sizeof(uid_map), "0 %d 1", (int)geteuid());
	(void)snprintf(gid_map, sizeof(gid_map), "0 %d 1", (int)getegid());
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return -errno;
	(void)write_text("/proc/self/setgroups", "deny");
	if (write_text("/proc/self/uid_map", uid_map) < 0)
		return -EPERM;
	return write_text("/proc/self/gid_map", gid_map);
}

bool tests_box_main(int argc, char **argv, int *status)
{
	if (argc > 1 && strcmp(argv[1], "internal-helper") == 0) {
		*status = fs_helper_main();
		return true;
	}
	inside = argc > 1 && strcmp(argv[1], "userns") == 0;
	if (!inside && geteuid() != 0) {
		*status = 77;
		return true;
	}
	if ((inside ? enter_userns() : unshare(CLONE_NEWNS)) < 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
		*status = 77;
		return true;
	}
	return false;
}

static int rerun_in_userns(void)
{
	char self[] = "self";
	char arg[] = "userns";
	char *argv[] = {self, arg, NULL};
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		(void)execv("/proc/self/exe", argv);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status))
		return 127;
	return WEXITSTATUS(status);
}

int tests_box_again(int status)
{
	if (status == 0 && !inside) {
		status = rerun_in_userns();
		if (status == 77)
			status = 0;
	}
	return status;
}

struct shown {
	struct tests_box *box;
	int dir_fd;
};

static void show_dir(struct tests_box *box, const struct cas_digest *digest, int dir_fd);

static int show_entry(void *ctx, uint64_t index, const struct meta_dirent *e)
{
	struct shown *s = ctx;
	auto_close int fd = -1;

	(void)index;
	switch (e->kind) {
	case CAS_NODE_FILE:
		assert_int_equal(cas_checkout_file(s->box->store, &e->digest, e->executable,
						   s->dir_fd, e->name, NULL, NULL),
				 0);
		break;
	case CAS_NODE_SYMLINK:
		assert_int_equal(symlinkat(e->target, s->dir_fd, e->name), 0);
		break;
	case CAS_NODE_DIRECTORY:
		assert_int_equal(mkdirat(s->dir_fd, e->name, 0755), 0);
		fd = openat(s->dir_fd, e->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(fd >= 0);
		show_dir(s->box, &e->digest, fd);
		break;
	}
	return 0;
}

static void show_dir(struct tests_box *box, const struct cas_digest *digest, int dir_fd)
{
	struct shown s = {.box = box, .dir_fd = dir_fd};
	struct err err = {0};

	if (meta_dir_list(box->meta, digest, 0, show_entry, &s, &err) < 0)
		fail_msg("cannot show a directory: %s", err.msg);
}

/* The new tree takes the name by a rename: a detached old one may be in use still. */
static void on_changed(void *ctx, const char *id)
{
	struct tests_box *box = ctx;
	auto_close int base = open(box->base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_close int fd = -1;
	struct cas_digest root;
	uint64_t serial;

	assert_true(base >= 0);
	assert_int_equal(io_remove_tree(base, id, NULL), 0);
	if (!fs_sandboxes_lookup(box->all, id, &root, &serial))
		return;
	assert_int_equal(mkdirat(base, id, 0755), 0);
	fd = openat(base, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	show_dir(box, &root, fd);
}

static void on_added(void *ctx, const char *id)
{
	struct tests_box *box = ctx;

	(void)id;
	box->nr_added++;
}

static void open_all(struct tests_box *box)
{
	struct meta_options meta = {.mode = META_READER};
	struct fs_sandboxes_options opts;
	struct err err = {0};

	box->store = tests_store_open(box->dir, NULL);
	if (meta_open(box->store, &meta, &box->meta, &err) < 0)
		fail_msg("meta: %s", err.msg);
	if (fs_helper_new(NULL, &box->helper, &err) < 0)
		fail_msg("helper: %s", err.msg);
	opts = (struct fs_sandboxes_options){
		.store = box->store,
		.meta = box->meta,
		.helper = box->helper,
		.base = box->base,
		.in_userns = box->in_userns,
		.events = {.added = on_added, .changed = on_changed, .ctx = box},
	};
	if (fs_sandboxes_open(&opts, &box->all, &err) < 0)
		fail_msg("sandboxes: %s", err.msg);
}

void tests_box_open(struct tests_box *box, const char *dir)
{
	memset(box, 0, sizeof(*box));
	box->dir = dir;
	box->in_userns = inside;
	(void)snprintf(box->base, sizeof(box->base), "%s/base", dir);
	assert_int_equal(mkdir(box->base, 0755), 0);
	open_all(box);
}

void tests_box_close(struct tests_box *box)
{
	fs_sandboxes_close(box->all);
	fs_helper_free(box->helper);
	assert_int_equal(meta_close(box->meta, NULL), 0);
	cas_store_close(box->store);
}

void tests_box_restart(struct tests_box *box)
{
	struct err err = {0};

	tests_box_close(box);
	open_all(box);
	if (fs_sandboxes_restore(box->all, &err) < 0)
		fail_msg("restore: %s", err.msg);
}

int tests_sh(const char *dir, const char *script)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (chdir(dir) < 0)
			_exit(126);
		(void)execl("/bin/sh", "sh", "-ec", script, (char *)NULL);
		_exit(127);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct cas_digest tests_box_ingest(struct tests_box *box, const char *path)
{
	struct cas_ingest_options opts = {.nr_threads = 1};
	struct cas_ingest_result got;
	struct err err = {0};

	if (cas_ingest(box->store, path, &opts, &got, &err) < 0)
		fail_msg("ingest of %s: %s", path, err.msg);
	return got.digest;
}

struct cas_digest tests_box_tree(struct tests_box *box, const char *script)
{
	const char *path = tests_path(box->dir, "tree");
	struct cas_digest got;

	assert_int_equal(io_remove_tree(AT_FDCWD, path, NULL), 0);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(tests_sh(path, script), 0);
	got = tests_box_ingest(box, path);
	assert_int_equal(io_remove_tree(AT_FDCWD, path, NULL), 0);
	return got;
}

const char *tests_box_create(struct tests_box *box, const char *id, const struct cas_digest *root,
			     enum fs_writable writable, const char *const *outputs)
{
	struct fs_sandbox_spec spec = {.id = id, .root = *root, .writable = writable};
	auto_free char *got = NULL;
	auto_free char *path = NULL;
	struct err err = {0};

	while (outputs[spec.nr_outputs])
		spec.nr_outputs++;
	spec.outputs = outputs;
	if (fs_sandbox_create(box->all, &spec, &got, &path, &err) < 0)
		fail_msg("create %s: %s", id, err.msg);
	assert_string_equal(got, id);
	return tests_path(box->base, id);
}

int tests_box_finish(struct tests_box *box, const char *id, json_t **answer)
{
	struct fs_finish_spec spec = {0};
	struct err err = {0};
	json_t *got = NULL;
	int ret = fs_sandbox_finish(box->all, id, &spec, &got, &err);

	if (ret < 0 && ret != -EROFS)
		fail_msg("finish %s: %s", id, err.msg);
	if (answer)
		*answer = got;
	else
		json_decref(got);
	return ret;
}

const char *tests_answer_output(json_t *answer, const char *path)
{
	static char text[4200];
	json_t *array = json_object_get(answer, "outputs");

	for (size_t i = 0; i < json_array_size(array); i++) {
		json_t *o = json_array_get(array, i);
		const char *digest = json_string_value(json_object_get(o, "digest"));
		const char *target = json_string_value(json_object_get(o, "target"));

		if (strcmp(json_string_value(json_object_get(o, "path")), path) != 0)
			continue;
		(void)snprintf(text, sizeof(text), "%s%s", digest ? "" : "-> ",
			       digest ? digest : target);
		return text;
	}
	return "";
}

bool tests_answer_has(json_t *answer, const char *key, const char *path)
{
	json_t *array = json_object_get(answer, key);

	for (size_t i = 0; i < json_array_size(array); i++) {
		json_t *o = json_array_get(array, i);
		const char *text =
			json_string_value(json_is_object(o) ? json_object_get(o, "path") : o);

		if (text && strcmp(text, path) == 0)
			return true;
	}
	return false;
}
