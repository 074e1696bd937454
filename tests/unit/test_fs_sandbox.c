/* tests/unit/test_fs_sandbox.c - the life of sandboxes, also across daemons */
#include "tests/lib/tests.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cas/cas.h"
#include "cas/store/store_i.h"
#include "fs/sandbox/journal.h"
#include "fs/sandbox/sandbox_i.h"
#include "fs/slot/pool.h"
#include "tests/lib/box.h"
#include "tests/lib/store.h"

#define OTHER_UID    4711
#define TREE	     "mkdir src; echo c >src/a.c; echo t >t; ln -s t l"
#define OUTPUTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static int create(struct tests_box *box, const char *id, const struct cas_digest *root,
		  const char *output, struct err *err)
{
	struct fs_sandbox_spec spec = {.id = id, .root = *root, .nr_outputs = output != NULL};
	auto_free char *got = NULL;
	auto_free char *path = NULL;

	spec.outputs = &output;
	return fs_sandbox_create(box->all, &spec, &got, &path, err);
}

/* Names of sandboxes, and of what is to be removed; not of what is ready for new ones. */
static int count_dirs(struct tests_box *box)
{
	DIR *dir = opendir(tests_path(box->dir, "store/sandboxes"));
	struct dirent *de;
	int nr = 0;

	assert_non_null(dir);
	while ((de = readdir(dir)) != NULL)
		nr += strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0 &&
		      strncmp(de->d_name, FS_POOL_PREFIX, strlen(FS_POOL_PREFIX)) != 0;
	(void)closedir(dir);
	return nr;
}

/* Wait for the thread that removes files. */
static void assert_no_files(struct tests_box *box, int want)
{
	for (int i = 0; i < 200 && count_dirs(box) != want; i++)
		(void)usleep(10000);
	assert_int_equal(count_dirs(box), want);
}

static void test_bad_requests_leave_nothing(void **state)
{
	struct tests_box box;
	struct cas_digest root;
	struct cas_digest none = cas_digest_empty;
	struct cas_digest file;
	struct err err = {0};

	tests_box_open(&box, *state);
	root = tests_box_tree(&box, TREE);
	none.hash[0] ^= 1;
	none.size = 7;
	assert_int_equal(cas_put_bytes(box.store, "no directory", 12, &file, NULL), 0);
	assert_int_equal(create(&box, "a/b", &root, NULL, &err), -EINVAL);
	assert_int_equal(create(&box, "x", &root, "../up", &err), -EINVAL);
	assert_int_equal(create(&box, "x", &root, "/abs", &err), -EINVAL);
	assert_int_equal(create(&box, "x", &none, NULL, &err), -ENOENT);
	assert_int_equal(create(&box, "x", &file, NULL, &err), -ENOTDIR);
	assert_non_null(strstr(err.msg, "is not a Directory"));
	assert_int_equal(create(&box, "x", &root, "t/x", &err), -ENOTDIR);
	assert_int_equal(create(&box, "x", &root, "l/x", &err), -ENOTDIR);
	assert_non_null(strstr(err.msg, "l is a symlink"));
	assert_int_equal(fs_sandboxes_count(box.all), 0);
	assert_int_equal(tests_count_names(box.base), 0);
	assert_no_files(&box, 0);
	assert_int_equal(create(&box, "x", &root, "src/o", &err), 0);
	assert_int_equal(create(&box, "x", &root, NULL, &err), -EEXIST);
	assert_int_equal(fs_sandbox_set_cgroup(box.all, "x", "/sys/fs/cgroup/system.slice", &err),
			 -EINVAL);
	assert_int_equal(fs_sandbox_set_cgroup(box.all, "x", "/tmp/casbox-1", &err), -EINVAL);
	assert_int_equal(fs_sandbox_set_cgroup(box.all, "none", "/sys/fs/cgroup/casbox-1", &err),
			 -ENOENT);
	assert_int_equal(fs_sandbox_remove(box.all, "none", &err), -ENOENT);
	tests_box_close(&box);
}

static void test_remove_takes_everything_away(void **state)
{
	struct tests_box box;
	struct cas_digest root;
	struct cas_digest got;
	uint64_t first;
	uint64_t second;
	struct stat st;

	tests_box_open(&box, *state);
	root = tests_box_tree(&box, TREE);
	for (int i = 0; i < 2; i++) {
		const char *path = tests_box_create(&box, "r", &root, FS_WRITABLE_OUTPUTS,
						    OUTPUTS("src/o", "out/"));

		assert_int_equal(fs_sandboxes_lookup(box.all, "r", &got, i ? &second : &first), 1);
		assert_int_equal(tests_sh(path, "! test -e out/1; echo 1 >out/1; echo o >src/o"),
				 0);
		assert_int_equal(fs_sandbox_remove(box.all, "r", NULL), 0);
		assert_int_equal(fs_sandboxes_lookup(box.all, "r", &got, &first), 0);
		assert_int_equal(stat(path, &st), -1);
		assert_no_files(&box, 0);
	}
	assert_true(second > first);
	tests_box_close(&box);
}

/* What is ready for the next is as new, whatever the last did; and nothing stays for ever. */
static void test_prepared_directories_are_as_new(void **state)
{
	static const char look[] = "n=0; for d in .pool-*; do n=$((n+1));"
				   "test \"$(find $d/upper | sort | tr '\\n' ' ')\" = "
				   "\"$d/upper $d/upper/0 $d/upper/0/u $d/upper/0/w \";"
				   "test \"$(find $d/upper/0 ! -perm 755)\" = \"\";"
				   "for f in moved result; do ! test -s $d/$f; done; done;"
				   "test $n -ge 4; test $n -le 32; ! ls -d .gone-* 2>/dev/null";
	static const char *const outputs[] = {"out/", "src/o", "a/b/c", "t2", NULL};
	struct tests_box box;
	struct cas_digest root;
	char top[256];
	bool seen = false;

	tests_box_open(&box, *state);
	root = tests_box_tree(&box, TREE);
	(void)snprintf(top, sizeof(top), "%s", tests_path(*state, "store/sandboxes"));
	for (int i = 0; i < 12; i++) {
		const char *path;
		struct stat st;

		path = tests_box_create(&box, "p", &root, FS_WRITABLE_OUTPUTS, outputs);
		assert_int_equal(tests_sh(path,
					  "test -z \"$(ls -A out)$(ls -A a/b)\";"
					  "mkdir -p out/d/e; echo $$ >out/d/e/f; echo o >src/o;"
					  "echo c >a/b/c; ln -s x t2; chmod 700 out"),
				 0);
		/* Every other one is removed with its outputs, the rest without. */
		if (i % 2)
			assert_int_equal(tests_box_finish(&box, "p", NULL), 0);
		assert_int_equal(stat(tests_path(top, "p"), &st), 0);
		assert_int_equal(fs_sandbox_remove(box.all, "p", NULL), 0);
		assert_no_files(&box, 0);
	}
	for (int i = 0; i < 200 && !seen; i++) {
		seen = tests_sh(top, look) == 0;
		if (!seen)
			(void)usleep(10000);
	}
	assert_true(seen);
	tests_box_close(&box);
	assert_int_equal(tests_count_names(top), 0);
}

/* What somebody watches in one is not what the next one writes to. */
static void test_a_watch_left_behind_sees_nothing_of_the_next(void **state)
{
	struct tests_box box;
	struct cas_digest root;
	char bytes[4096];
	const char *path;
	int fd;

	tests_box_open(&box, *state);
	root = tests_box_tree(&box, TREE);
	fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	assert_true(fd >= 0);
	for (int i = 0; i < 12; i++) {
		path = tests_box_create(&box, "w", &root, FS_WRITABLE_OUTPUTS, OUTPUTS("out/"));
		/* Of the life before: only that its directory is gone. */
		while (read(fd, bytes, sizeof(bytes)) > 0)
			;
		assert_int_equal(tests_sh(path, "echo 1 >out/secret"), 0);
		assert_true(read(fd, bytes, sizeof(bytes)) < 0);
		assert_int_equal(errno, EAGAIN);
		assert_true(inotify_add_watch(fd, tests_path(path, "out"), IN_CREATE | IN_OPEN) >=
			    0);
		assert_int_equal(fs_sandbox_remove(box.all, "w", NULL), 0);
		assert_no_files(&box, 0);
	}
	(void)close(fd);
	tests_box_close(&box);
}

static int collect(void *ctx, uint64_t pos, const char *id)
{
	struct buf *b = ctx;

	return buf_printf(b, "%s%s", b->len ? " " : "", id);
}

static void test_list_is_in_order_and_without_unlisted(void **state)
{
	struct tests_box box;
	struct cas_digest root;
	struct fs_sandbox_spec spec = {.id = "hidden", .unlisted = true};
	auto_free char *id = NULL;
	auto_free char *path = NULL;
	auto_buf struct buf names = {0};
	json_t *all;

	tests_box_open(&box, *state);
	root = tests_box_tree(&box, TREE);
	spec.root = root;
	(void)tests_box_create(&box, "z", &root, FS_WRITABLE_OUTPUTS, OUTPUTS(NULL));
	assert_int_equal(fs_sandbox_create(box.all, &spec, &id, &path, NULL), 0);
	(void)tests_box_create(&box, "a", &root, FS_WRITABLE_OUTPUTS, OUTPUTS(NULL));
	fs_sandboxes_list(box.all, FS_SANDBOXES_ONE, 0, collect, &names);
	assert_string_equal(buf_str(&names), "z a");
	assert_int_equal(fs_sandboxes_count(box.all), 3);
	assert_int_equal(fs_sandboxes_describe(box.all, &all, NULL), 0);
	assert_int_equal(json_array_size(all), 3);
	json_decref(all);
	assert_int_equal(box.nr_added, 3);
	/* The same order for the next daemon. */
	tests_box_restart(&box);
	buf_reset(&names);
	fs_sandboxes_list(box.all, FS_SANDBOXES_ONE, 0, collect, &names);
	assert_string_equal(buf_str(&names), "z a");
	tests_box_close(&box);
}

struct late {
	struct tests_box *box;
	const struct cas_digest *root;
	int ret;
};

static void *create_late(void *arg)
{
	struct late *late = arg;

	late->ret = create(late->box, "late", late->root, NULL, NULL);
	return NULL;
}

/* What an eviction counts on between freeze and thaw. */
static void test_none_enters_while_frozen(void **state)
{
	struct tests_box box;
	struct cas_digest root;
	struct late late = {.box = &box, .root = &root, .ret = 1};
	pthread_t thread;
	uint64_t before = 0;
	uint64_t after = 0;

	tests_box_open(&box, *state);
	root = tests_box_tree(&box, TREE);
	assert_int_equal(create(&box, "early", &root, NULL, NULL), 0);
	assert_int_equal(fs_sandboxes_freeze(box.all, &before), 0);
	assert_int_equal(pthread_create(&thread, NULL, create_late, &late), 0);
	(void)usleep(100000);
	assert_int_equal(fs_sandboxes_count(box.all), 1);
	fs_sandboxes_thaw(box.all);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(late.ret, 0);
	assert_int_equal(fs_sandboxes_freeze(box.all, &after), 0);
	assert_int_equal(after, before + 1);
	fs_sandboxes_thaw(box.all);
	tests_box_close(&box);
}

/* One that takes as long as it likes: an eviction comes back, and others are created. */
static void test_a_long_capture_holds_back_neither_gc_nor_create(void **state)
{
	struct tests_box box;
	struct cas_digest root;
	uint64_t nr = 7;

	tests_box_open(&box, *state);
	root = tests_box_tree(&box, TREE);
	fs_sandboxes_capture_begin(box.all);
	assert_int_equal(fs_sandboxes_freeze(box.all, &nr), -EBUSY);
	assert_int_equal(nr, 7);
	assert_int_equal(create(&box, "other", &root, "out/", NULL), 0);
	assert_int_equal(tests_box_finish(&box, "other", NULL), 0);
	assert_int_equal(fs_sandboxes_freeze(box.all, &nr), -EBUSY);
	fs_sandboxes_capture_end(box.all);
	assert_int_equal(fs_sandboxes_freeze(box.all, &nr), 0);
	assert_int_equal(nr, 3); /* it entered, and was captured, and so was the long one */
	fs_sandboxes_thaw(box.all);
	tests_box_close(&box);
}

static void test_random_ids_differ(void **state)
{
	struct tests_box box;
	struct fs_sandbox_spec spec = {.id = NULL};
	char *id[2];
	char *path[2];

	tests_box_open(&box, *state);
	spec.root = tests_box_tree(&box, TREE);
	for (int i = 0; i < 2; i++)
		assert_int_equal(fs_sandbox_create(box.all, &spec, &id[i], &path[i], NULL), 0);
	assert_int_equal(strlen(id[0]), 32);
	assert_string_not_equal(id[0], id[1]);
	for (int i = 0; i < 2; i++) {
		free(id[i]);
		free(path[i]);
	}
	tests_box_close(&box);
}

/* A daemon that dies: no unmount, no farewell. Its mounts are detached by the next. */
static void create_and_die(const char *dir)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct tests_box box;
		struct cas_digest root;
		const char *path;

		tests_box_open(&box, dir);
		root = tests_box_tree(&box, TREE);
		path = tests_box_create(&box, "k", &root, FS_WRITABLE_OUTPUTS,
					OUTPUTS("src/o", "out/", "deep/er/f", "gone"));
		(void)tests_sh(path,
			       "echo o >src/o; echo 1 >out/1; echo f >deep/er/f; rm -f src/x");
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	while (umount2(tests_path(dir, "base/k/out"), MNT_DETACH) == 0)
		;
	while (umount2(tests_path(dir, "base/k"), MNT_DETACH) == 0)
		;
	assert_int_equal(rmdir(tests_path(dir, "base/k/none")), -1);
	assert_int_equal(tests_sh(dir, "rm -r base"), 0);
}

static void assert_finishes_whole(struct tests_box *box)
{
	json_t *answer;

	assert_int_equal(tests_sh(tests_path(box->base, "k"), "test $(cat src/a.c) = c"), 0);
	assert_int_equal(tests_box_finish(box, "k", &answer), 0);
	assert_int_equal(json_array_size(json_object_get(answer, "outputs")), 3);
	assert_int_equal(json_array_size(json_object_get(answer, "stray")), 0);
	assert_string_not_equal(tests_answer_output(answer, "deep/er/f"), "");
	json_decref(answer);
}

static void test_live_sandbox_survives_its_daemon(void **state)
{
	struct tests_box box;

	create_and_die(*state);
	tests_box_open(&box, *state);
	assert_int_equal(fs_sandboxes_restore(box.all, NULL), 0);
	assert_int_equal(tests_sh(tests_path(box.base, "k"),
				  "test $(cat src/o) = o; test $(cat out/1) = 1; ! rmdir out"),
			 0);
	assert_finishes_whole(&box);
	tests_box_close(&box);
}

static void test_capture_cut_short_is_undone(void **state)
{
	struct tests_box box;
	struct fs_journal *j;
	struct cas_digest d;
	struct stat st;
	struct stat other;
	struct fs_moving noted[] = {{"o", &st}, {"p", &other}};
	struct err err = {0};
	uid_t owner;
	bool moved;
	int sb_fd;
	int up_fd;

	create_and_die(*state);
	/* As finish does it, up to the crash: frozen, one file moved, the next noted. */
	assert_int_equal(tests_sh(*state, "sed -i s/live/finishing/ store/sandboxes/k/record"), 0);
	tests_box_open(&box, *state);
	sb_fd = open(tests_path(*state, "store/sandboxes/k"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(sb_fd >= 0);
	up_fd = openat(sb_fd, "upper/0/u/src", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(up_fd >= 0);
	assert_int_equal(fs_journal_open(sb_fd, &j, NULL), 0);
	/* Somebody else's, where we may: the move makes it the store's. */
	owner = fchownat(up_fd, "o", OTHER_UID, OTHER_UID + 1, 0) == 0 ? OTHER_UID : getuid();
	assert_int_equal(fchmodat(up_fd, "o", 0751, 0), 0);
	assert_int_equal(fstatat(up_fd, "o", &st, 0), 0);
	assert_int_equal(io_overwrite_file(up_fd, "p", "p", 1, 0640, false), 0);
	assert_int_equal(fstatat(up_fd, "p", &other, 0), 0);
	assert_int_equal(fs_journal_moving(j, up_fd, noted, 2, NULL), 0);
	assert_int_equal(cas_put_take(box.store, up_fd, "o", true, &d, &moved, NULL), 0);
	assert_true(moved);
	assert_int_equal(fstatat(sb_fd, "upper/1/u/1", &st, 0), 0);
	fs_journal_close(j);
	(void)close(up_fd);
	if (fs_sandboxes_restore(box.all, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(stat(tests_path(box.base, "k/src/o"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0751);
	assert_int_equal(st.st_uid, owner);
	assert_int_equal(st.st_gid, owner == OTHER_UID ? OTHER_UID + 1 : getgid());
	/* What was noted and had not moved is as it was. */
	assert_int_equal(fstatat(sb_fd, "upper/0/u/src/p", &st, 0), 0);
	assert_int_equal(st.st_ino, other.st_ino);
	assert_int_equal(st.st_mode & 07777, 0640);
	assert_int_equal(st.st_mtim.tv_nsec, other.st_mtim.tv_nsec);
	assert_int_equal(unlinkat(sb_fd, "upper/0/u/src/p", 0), 0);
	assert_int_equal(faccessat(sb_fd, FS_JOURNAL_NAME, F_OK, 0), -1);
	(void)close(sb_fd);
	assert_finishes_whole(&box);
	tests_box_close(&box);
}

/* The same in the middle of a move: dressed as a blob, with its name or without. */
static void check_half_moved(const char *dir, bool named)
{
	struct tests_box box;
	struct fs_journal *j;
	struct stat st;
	struct stat before;
	struct err err = {0};
	int sb_fd;
	int up_fd;

	create_and_die(dir);
	tests_box_open(&box, dir);
	sb_fd = open(tests_path(dir, "store/sandboxes/k"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	up_fd = openat(sb_fd, "upper/0/u/src", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(up_fd >= 0);
	assert_int_equal(fs_journal_open(sb_fd, &j, NULL), 0);
	assert_int_equal(fchmodat(up_fd, "o", 0751, 0), 0);
	assert_int_equal(fstatat(up_fd, "o", &before, 0), 0);
	assert_int_equal(fs_journal_moving(j, up_fd, &(struct fs_moving){"o", &before}, 1, NULL),
			 0);
	fs_journal_close(j);
	assert_int_equal(fchmodat(up_fd, "o", 0444, 0), 0);
	assert_int_equal(utimensat(up_fd, "o", NULL, 0), 0);
	assert_int_equal(tests_sh(dir, "mkdir -p store/cas/ab"), 0);
	if (!named)
		assert_int_equal(renameat(up_fd, "o", AT_FDCWD,
					  tests_path(dir, "store/cas/ab/.tmp-12345678")),
				 0);
	(void)close(up_fd);
	if (fs_sandboxes_restore(box.all, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(stat(tests_path(box.base, "k/src/o"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0751);
	assert_int_equal(st.st_mtim.tv_sec, before.st_mtim.tv_sec);
	assert_int_equal(st.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
	assert_int_equal(faccessat(sb_fd, FS_JOURNAL_NAME, F_OK, 0), -1);
	(void)close(sb_fd);
	assert_finishes_whole(&box);
	tests_box_close(&box);
}

static void test_move_cut_before_the_rename_is_undone(void **state)
{
	check_half_moved(*state, true);
}

static void test_move_cut_after_the_rename_is_undone(void **state)
{
	check_half_moved(*state, false);
}

static const char *state_of(struct tests_box *box, const char *id)
{
	static char text[32];
	json_t *obj;

	assert_int_equal(fs_sandbox_show(box->all, id, &obj, NULL), 0);
	(void)snprintf(text, sizeof(text), "%s", json_string_value(json_object_get(obj, "state")));
	json_decref(obj);
	return text;
}

static void test_another_boot_loses_what_was_written(void **state)
{
	struct tests_box box;
	struct cas_digest root;
	struct fs_finish_spec spec = {0};
	uint64_t serial;
	json_t *answer;

	create_and_die(*state);
	assert_int_equal(
		tests_sh(*state,
			 "sed -i 's/\"boot_id\":\"./\"boot_id\":\"_/' store/sandboxes/k/record"),
		0);
	tests_box_open(&box, *state);
	assert_int_equal(fs_sandboxes_restore(box.all, NULL), 0);
	assert_string_equal(state_of(&box, "k"), "lost");
	assert_int_equal(fs_sandboxes_lookup(box.all, "k", &root, &serial), 0);
	assert_int_equal(fs_sandbox_finish(box.all, "k", &spec, &answer, NULL), -ESTALE);
	assert_int_equal(fs_sandbox_remove(box.all, "k", NULL), 0);
	assert_no_files(&box, 0);
	tests_box_close(&box);
}

static void test_finished_sandbox_is_back_with_its_result(void **state)
{
	struct tests_box box;
	struct cas_digest root;
	json_t *first;
	json_t *second;
	const char *path;

	tests_box_open(&box, *state);
	root = tests_box_tree(&box, TREE);
	path = tests_box_create(&box, "f", &root, FS_WRITABLE_OUTPUTS, OUTPUTS("src/o", "out/"));
	assert_int_equal(tests_sh(path, "echo o >src/o; echo 1 >out/1"), 0);
	assert_int_equal(tests_box_finish(&box, "f", &first), 0);
	assert_int_equal(tests_sh(path, "test $(cat src/o) = o; test $(cat out/1) = 1; test -e t"),
			 0);
	tests_box_restart(&box);
	assert_string_equal(state_of(&box, "f"), "finished");
	assert_int_equal(tests_box_finish(&box, "f", &second), 0);
	assert_true(json_equal(first, second));
	assert_int_equal(tests_sh(path, "test $(cat src/o) = o; test $(cat out/1) = 1; test -e t"),
			 0);
	json_decref(first);
	json_decref(second);
	tests_box_close(&box);
}

static void test_leftovers_and_broken_records(void **state)
{
	struct tests_box box;
	struct cas_digest root;

	assert_int_equal(tests_sh(*state, "mkdir base"), 0);
	assert_int_equal(rmdir(tests_path(*state, "base")), 0);
	tests_box_open(&box, *state);
	root = tests_box_tree(&box, TREE);
	assert_int_equal(tests_sh(*state,
				  "cd store/sandboxes; mkdir -p half/upper .gone-1/x broken;"
				  "echo '{' >broken/record"),
			 0);
	tests_box_restart(&box);
	assert_int_equal(fs_sandboxes_count(box.all), 0);
	assert_no_files(&box, 1);
	assert_int_equal(create(&box, "broken", &root, NULL, NULL), -EEXIST);
	assert_no_files(&box, 1);
	assert_int_equal(create(&box, "half", &root, NULL, NULL), 0);
	tests_box_close(&box);
}

struct finisher {
	struct tests_box *box;
	json_t *answer;
	int ret;
};

static void *finish_main(void *arg)
{
	struct finisher *f = arg;
	struct fs_finish_spec spec = {0};

	f->ret = fs_sandbox_finish(f->box->all, "c", &spec, &f->answer, NULL);
	return NULL;
}

static void test_concurrent_finishes_agree(void **state)
{
	struct finisher f[4];
	pthread_t t[4];
	struct tests_box box;
	struct cas_digest root;

	tests_box_open(&box, *state);
	root = tests_box_tree(&box, TREE);
	assert_int_equal(
		tests_sh(tests_box_create(&box, "c", &root, FS_WRITABLE_OUTPUTS, OUTPUTS("out/")),
			 "for i in 1 2 3 4 5 6 7 8 9; do echo $i >out/$i; done"),
		0);
	for (int i = 0; i < 4; i++) {
		f[i] = (struct finisher){.box = &box};
		assert_int_equal(pthread_create(&t[i], NULL, finish_main, &f[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(t[i], NULL), 0);
		assert_int_equal(f[i].ret, 0);
		assert_true(json_equal(f[0].answer, f[i].answer));
	}
	for (int i = 0; i < 4; i++)
		json_decref(f[i].answer);
	tests_box_close(&box);
}

static size_t nr_pending(struct cas_store *store)
{
	size_t nr;

	lock_take(&store->pending_lock);
	nr = store->nr_pending;
	lock_drop(&store->pending_lock);
	return nr;
}

/* The answer does not wait for a sync; a sync, and the rows after it, follow by themselves. */
static void test_captures_are_synced_in_the_background(void **state)
{
	struct tests_box box;
	struct cas_digest root;

	tests_box_open(&box, *state);
	box.store->durability = CAS_DURABILITY_BATCH;
	root = tests_box_tree(&box, TREE);
	assert_int_equal(cas_store_sync(box.store, NULL), 0);
	assert_int_equal(
		tests_sh(tests_box_create(&box, "s", &root, FS_WRITABLE_OUTPUTS, OUTPUTS("out/")),
			 "echo 1 >out/1; echo 2 >out/2"),
		0);
	assert_int_equal(nr_pending(box.store), 0);
	assert_int_equal(tests_box_finish(&box, "s", NULL), 0);
	assert_true(nr_pending(box.store) >= 4);
	for (int i = 0; i < 500 && nr_pending(box.store) > 0; i++)
		(void)usleep(10000);
	assert_int_equal(nr_pending(box.store), 0);
	tests_box_close(&box);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_bad_requests_leave_nothing),
		TESTS_IN_DIR(test_remove_takes_everything_away),
		TESTS_IN_DIR(test_prepared_directories_are_as_new),
		TESTS_IN_DIR(test_a_watch_left_behind_sees_nothing_of_the_next),
		TESTS_IN_DIR(test_list_is_in_order_and_without_unlisted),
		TESTS_IN_DIR(test_none_enters_while_frozen),
		TESTS_IN_DIR(test_a_long_capture_holds_back_neither_gc_nor_create),
		TESTS_IN_DIR(test_random_ids_differ),
		TESTS_IN_DIR(test_live_sandbox_survives_its_daemon),
		TESTS_IN_DIR(test_capture_cut_short_is_undone),
		TESTS_IN_DIR(test_move_cut_before_the_rename_is_undone),
		TESTS_IN_DIR(test_move_cut_after_the_rename_is_undone),
		TESTS_IN_DIR(test_another_boot_loses_what_was_written),
		TESTS_IN_DIR(test_finished_sandbox_is_back_with_its_result),
		TESTS_IN_DIR(test_leftovers_and_broken_records),
		TESTS_IN_DIR(test_concurrent_finishes_agree),
		TESTS_IN_DIR(test_captures_are_synced_in_the_background),
	};
	int status;

	if (tests_box_main(argc, argv, &status))
		return status;
	return tests_box_again(cmocka_run_group_tests_name("fs_sandbox", tests, NULL, NULL));
}
