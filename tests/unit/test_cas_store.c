/* tests/unit/test_cas_store.c - opening stores, stamps, damage, variants, locks */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/lock.h"
#include "cas/base/log.h"
#include "cas/put/put.h"
#include "cas/store/lease.h"
#include "cas/store/store.h"
#include "tests/lib/store.h"

static int open_path(const char *path, bool create, struct cas_store **store, struct err *err)
{
	struct cas_store_options opts = {.path = path, .create = create};

	return cas_store_open(&opts, store, err);
}

static unsigned mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st.st_mode & 07777;
}

static void test_new_store_has_its_layout_whatever_the_umask(void **state)
{
	static const struct {
		const char *name;
		unsigned mode;
	} parts[] = {
		{"", 0755},	 {"/VERSION", 0444}, {"/lock", 0644},	    {"/cas", 0755},
		{"/ac", 0755},	 {"/links", 0755},   {"/links/0444", 0755}, {"/links/0555", 0755},
		{"/pins", 0700}, {"/run", 0700},     {"/spool", 0700},	    {"/sandboxes", 0700},
		{"/meta", 0700},
	};
	mode_t was = umask(0077);
	struct cas_store *store;
	auto_buf struct buf b = {0};

	assert_int_equal(open_path(tests_path(*state, "store"), true, &store, NULL), 0);
	cas_store_close(store);
	(void)umask(was);
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		char path[64];

		(void)snprintf(path, sizeof(path), "store%s", parts[i].name);
		assert_int_equal(mode_of(tests_path(*state, path)), parts[i].mode);
	}
	assert_int_equal(io_read_file(AT_FDCWD, tests_path(*state, "store/VERSION"), 100, &b), 0);
	assert_string_equal(buf_str(&b), "casbox-store 1 sha256\n");
	assert_int_equal(open_path(tests_path(*state, "store"), false, &store, NULL), 0);
	cas_store_close(store);
}

static void test_what_is_no_store_is_refused(void **state)
{
	struct cas_store *store = NULL;
	struct err err = {0};

	assert_int_equal(open_path(tests_path(*state, "gone"), false, &store, &err), -ENOENT);
	assert_int_equal(mkdir(tests_path(*state, "empty"), 0755), 0);
	assert_int_equal(open_path(tests_path(*state, "empty"), false, &store, &err), -ENOENT);
	assert_int_equal(tests_count_names(tests_path(*state, "empty")), 0);
	tests_write_file(tests_path(*state, "home/letter"), "x", 1, 0644);
	assert_int_equal(open_path(tests_path(*state, "home"), true, &store, &err), -ENOTEMPTY);
	assert_int_equal(tests_count_names(tests_path(*state, "home")), 1);
	assert_non_null(strstr(err.msg, "home"));
	assert_int_equal(open_path(tests_path(*state, "home/letter"), true, &store, &err),
			 -ENOTDIR);
	tests_write_file(tests_path(*state, "new/VERSION"), "casbox-store 2 sha256\n", 22, 0644);
	assert_int_equal(open_path(tests_path(*state, "new"), true, &store, &err),
			 -EPROTONOSUPPORT);
	assert_non_null(strstr(err.msg, "casbox-store 2 sha256"));
	assert_int_equal(tests_count_names(tests_path(*state, "new")), 1);
	tests_write_file(tests_path(*state, "old/VERSION"), "casbox-store 1 sha256", 21, 0644);
	assert_int_equal(open_path(tests_path(*state, "old"), true, &store, &err),
			 -EPROTONOSUPPORT);
	assert_null(store);
	/* A fresh filesystem is as good as an empty directory. */
	assert_int_equal(mkdir(tests_path(*state, "fs"), 0755), 0);
	assert_int_equal(mkdir(tests_path(*state, "fs/lost+found"), 0700), 0);
	assert_int_equal(open_path(tests_path(*state, "fs"), true, &store, &err), 0);
	cas_store_close(store);
}

/* C43: relative and chdir, trailing slash, spaces, symlink. */
static void test_path_is_resolved_once(void **state)
{
	struct cas_store *store;
	struct cas_digest d;
	auto_close int cwd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_free char *real = realpath(*state, NULL);

	assert_int_equal(mkdir(tests_path(*state, "a b"), 0755), 0);
	assert_int_equal(symlink("a b", tests_path(*state, "link")), 0);
	assert_int_equal(chdir(*state), 0);
	assert_int_equal(open_path("./link/new store//", true, &store, NULL), 0);
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(unlink(tests_path(*state, "link")), 0);
	assert_string_equal(cas_store_path(store), tests_path(real, "a b/new store"));
	assert_int_equal(cas_put_bytes(store, "abc", 3, &d, NULL), 0);
	tests_assert_blob(store, &d, "abc", 3);
	cas_store_close(store);
	assert_int_equal(fchdir(cwd), 0);
}

static int open_blob(struct cas_store *store, const struct cas_digest *d)
{
	struct err err = {0};
	int fd = -1;
	int ret = cas_store_open_blob(store, d, &fd, &err);

	if (ret < 0)
		assert_int_equal(fd, -1);
	else
		(void)close(fd);
	if (ret == -EBADMSG)
		assert_non_null(strstr(err.msg, CAS_DIGEST_TEXT(d)));
	return ret;
}

static void test_stamp_decides_whether_a_blob_is_hashed(void **state)
{
	struct tests_catalog *c = tests_catalog_new();
	struct cas_store *store = tests_store_open(*state, tests_catalog_ops(c));
	struct cas_digest d;

	assert_int_equal(cas_put_bytes(store, "abc", 3, &d, NULL), 0);
	assert_int_equal(tests_catalog_adds(c), 1);
	assert_int_equal(open_blob(store, &d), 0);
	assert_int_equal(cas_put_bytes(store, "abc", 3, &d, NULL), 0);
	assert_int_equal(tests_catalog_adds(c), 1);
	/* A foreign touch, or a change of mode and back, costs one hash. */
	assert_int_equal(utimensat(AT_FDCWD, tests_blob_path(*state, &d), NULL, 0), 0);
	assert_int_equal(open_blob(store, &d), 0);
	assert_int_equal(open_blob(store, &d), 0);
	assert_int_equal(tests_catalog_adds(c), 2);
	/* Without a row (index lost) the file is adopted. */
	tests_catalog_forget(c);
	assert_int_equal(open_blob(store, &d), 0);
	assert_int_equal(tests_catalog_count(c), 1);
	cas_store_close(store);
	tests_catalog_free(c);
}

static void damage(const char *path, int how)
{
	assert_int_equal(chmod(path, 0644), 0);
	if (how == 0)
		assert_int_equal(truncate(path, 0), 0);
	else if (how == 1)
		assert_int_equal(truncate(path, 5), 0);
	else if (how == 2)
		assert_int_equal(truncate(path, 11), 0);
	else if (how == 3)
		tests_write_file(path, "0123X56789", 10, 0444);
	else
		assert_int_equal(unlink(path), 0);
	if (how == 4)
		assert_int_equal(mkdir(path, 0755), 0);
	else if (how == 5)
		assert_int_equal(symlink("/etc/passwd", path), 0);
	else if (how == 6)
		assert_int_equal(mkfifo(path, 0644), 0);
	else if (how == 7)
		assert_int_equal(mknod(path, S_IFSOCK | 0644, 0), 0);
}

/* C04: short, long, changed, and every wrong type; never wrong bytes, never a hang. */
static void test_damaged_blob_is_reported_then_absent(void **state)
{
	for (int how = 0; how < 9; how++) {
		struct tests_catalog *c = tests_catalog_new();
		struct cas_store *store = tests_store_open(*state, tests_catalog_ops(c));
		auto_buf struct buf b = {0};
		struct cas_digest d;

		assert_int_equal(cas_put_bytes(store, "0123456789", 10, &d, NULL), 0);
		damage(tests_blob_path(*state, &d), how);
		assert_int_equal(cas_store_has(store, &d), how == 3);
		assert_int_equal(open_blob(store, &d), how == 8 ? -ENOENT : -EBADMSG);
		assert_int_equal(open_blob(store, &d), -ENOENT);
		assert_int_equal(cas_store_has(store, &d), 0);
		assert_int_equal(cas_store_read_blob(store, &d, 10, &b, NULL), -ENOENT);
		assert_int_equal(b.len, 0);
		assert_int_equal(tests_catalog_count(c), how == 8);
		assert_int_equal(tests_count_blobs(*state), 0);
		cas_store_close(store);
		tests_catalog_free(c);
	}
}

static void test_asking_with_a_wrong_size_is_a_miss_and_harms_nothing(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest d;
	struct cas_digest wrong;

	assert_int_equal(cas_put_bytes(store, "abc", 3, &d, NULL), 0);
	wrong = d;
	wrong.size = 4;
	assert_int_equal(cas_store_has(store, &wrong), 0);
	assert_int_equal(open_blob(store, &wrong), -ENOENT);
	tests_assert_blob(store, &d, "abc", 3);
	cas_store_close(store);
}

static void test_resolve_fills_in_the_size(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	const uint8_t none[CAS_HASH_SZ] = {1};
	struct cas_digest d;
	struct cas_digest got = {.size = 77};

	assert_int_equal(cas_put_bytes(store, "abc", 3, &d, NULL), 0);
	assert_int_equal(cas_store_resolve(store, none, &got), 0);
	assert_int_equal(got.size, 77);
	assert_int_equal(cas_store_resolve(store, d.hash, &got), 1);
	assert_true(cas_digest_equal(&got, &d));
	assert_int_equal(cas_store_resolve(store, cas_digest_empty.hash, &got), 1);
	assert_true(cas_digest_is_empty(&got));
	cas_store_close(store);
}

/* C29 */
static void test_empty_blob_is_always_there_and_never_a_file(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest d;
	struct stat st;
	int fd;

	assert_int_equal(cas_store_has(store, &cas_digest_empty), 1);
	assert_int_equal(cas_store_open_blob(store, &cas_digest_empty, &fd, NULL), 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(st.st_size, 0);
	assert_int_equal(write(fd, "x", 1), -1);
	(void)close(fd);
	assert_int_equal(cas_put_bytes(store, NULL, 0, &d, NULL), 0);
	assert_true(cas_digest_is_empty(&d));
	assert_int_equal(tests_count_names(tests_path(*state, "store/cas")), 0);
	cas_store_close(store);
}

static void test_read_blob_respects_the_limit(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	auto_buf struct buf b = {0};
	struct cas_digest d;

	assert_int_equal(cas_put_bytes(store, "abc", 3, &d, NULL), 0);
	assert_int_equal(cas_store_read_blob(store, &d, 2, &b, NULL), -EFBIG);
	assert_int_equal(cas_store_read_blob(store, &d, 3, &b, NULL), 0);
	assert_int_equal(cas_store_read_blob(store, &d, 3, &b, NULL), 0);
	assert_string_equal(buf_str(&b), "abcabc");
	cas_store_close(store);
}

/* C01, C02, C11: both variants apart from the blob and from each other. */
static void test_variants_are_separate_files_made_once(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	/* Kept to the end: a number that is free may be the next one's. */
	const char *const co[2] = {"co-0444", "co-0555"};
	struct cas_digest d;
	struct stat blob;
	struct stat st[2];
	struct stat again;
	char name[72];
	int dir_fd;

	assert_int_equal(cas_put_bytes(store, "abc", 3, &d, NULL), 0);
	for (int x = 0; x < 2; x++) {
		assert_int_equal(cas_store_link_variant(store, &d, x, &dir_fd, name, NULL), 0);
		assert_int_equal(fstatat(dir_fd, name, &st[x], 0), 0);
		assert_int_equal(st[x].st_mode, S_IFREG | (x ? 0555 : 0444));
		assert_int_equal(st[x].st_size, 3);
		assert_int_equal(st[x].st_nlink, 1);
		assert_int_equal(st[x].st_mtim.tv_sec, 946684800);
		assert_int_equal(linkat(dir_fd, name, AT_FDCWD, tests_path(*state, co[x]), 0), 0);
		assert_int_equal(cas_store_link_variant(store, &d, x, &dir_fd, name, NULL), 0);
		assert_int_equal(fstatat(dir_fd, name, &again, 0), 0);
		assert_int_equal(again.st_ino, st[x].st_ino);
		/* Nothing stops the owner from a write through the link; the next one is right. */
		assert_int_equal(chmod(tests_path(*state, co[x]), 0755), 0);
		tests_write_file(tests_path(*state, co[x]), "abX", 3, x ? 0555 : 0444);
		assert_int_equal(cas_store_link_variant(store, &d, x, &dir_fd, name, NULL), 0);
		assert_int_equal(fstatat(dir_fd, name, &again, 0), 0);
		assert_int_not_equal(again.st_ino, st[x].st_ino);
	}
	assert_int_equal(stat(tests_blob_path(*state, &d), &blob), 0);
	assert_int_not_equal(st[0].st_ino, st[1].st_ino);
	assert_int_not_equal(st[0].st_ino, blob.st_ino);
	assert_int_equal(blob.st_mode & 07777, 0444);
	tests_assert_blob(store, &d, "abc", 3);
	cas_store_close(store);
}

static void test_variants_of_another_boot_are_not_believed(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest d;
	struct stat before;
	struct stat after;
	char name[72];
	int dir_fd;

	assert_int_equal(cas_put_bytes(store, "abc", 3, &d, NULL), 0);
	assert_int_equal(cas_store_link_variant(store, &d, true, &dir_fd, name, NULL), 0);
	assert_int_equal(fstatat(dir_fd, name, &before, 0), 0);
	cas_store_close(store);
	tests_write_file(tests_path(*state, "store/links/boot"), "another\n", 8, 0644);
	store = tests_store_open(*state, NULL);
	assert_int_equal(cas_store_link_variant(store, &d, true, &dir_fd, name, NULL), 0);
	assert_int_equal(fstatat(dir_fd, name, &after, 0), 0);
	assert_true(after.st_ino != before.st_ino ||
		    after.st_ctim.tv_nsec != before.st_ctim.tv_nsec);
	cas_store_close(store);
}

static void *fork_constantly(void *arg)
{
	_Atomic bool *stop = arg;

	while (!*stop) {
		pid_t pid = fork();

		if (pid == 0) {
			const struct timespec nap = {.tv_nsec = 3000000};

			(void)nanosleep(&nap, NULL);
			_exit(0);
		}
		(void)waitpid(pid, NULL, 0);
	}
	return NULL;
}

/* C19: while another thread forks all the time, what was just made can be executed. */
static void test_variant_can_be_executed_at_once(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	_Atomic bool stop = false;
	pthread_t forker;
	char script[64];

	assert_int_equal(pthread_create(&forker, NULL, fork_constantly, (void *)&stop), 0);
	for (int i = 0; i < 60; i++) {
		char *argv[] = {(char *)"x", NULL};
		char path[128];
		struct cas_digest d;
		char name[72];
		int dir_fd;
		pid_t pid;
		int status;

		(void)snprintf(script, sizeof(script), "#!/bin/sh\nexit %d\n", i);
		assert_int_equal(cas_put_bytes(store, script, strlen(script), &d, NULL), 0);
		assert_int_equal(cas_store_link_variant(store, &d, true, &dir_fd, name, NULL), 0);
		(void)snprintf(path, sizeof(path), "store/links/0555/%s", name);
		assert_int_equal(
			posix_spawn(&pid, tests_path(*state, path), NULL, NULL, argv, NULL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(WEXITSTATUS(status), i);
	}
	stop = true;
	assert_int_equal(pthread_join(forker, NULL), 0);
	cas_store_close(store);
}

/* A writer that comes while a lease is held must not kill us: SIGIO would. */
static void test_broken_lease_is_noticed_and_harmless(void **state)
{
	auto_close int fd = -1;
	auto_close int writer = -1;

	tests_write_file(tests_path(*state, "f"), "x", 1, 0644);
	fd = open(tests_path(*state, "f"), O_RDONLY | O_CLOEXEC);
	assert_int_equal(cas_lease_take(fd), 0);
	assert_int_equal(cas_lease_held(fd), 1);
	writer = open(tests_path(*state, "f"), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	assert_int_equal(writer, -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(cas_lease_held(fd), 0);
	cas_lease_drop(fd);
	writer = open(tests_path(*state, "f"), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	assert_true(writer >= 0);
	assert_int_equal(cas_lease_take(fd), -EAGAIN);
}

static void test_action_results_replace_each_other(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest action = {.hash = {0xab}, .size = 5};
	auto_buf struct buf b = {0};

	assert_int_equal(cas_store_action_get(store, &action, &b, NULL), -ENOENT);
	assert_int_equal(cas_store_action_put(store, &action, "one", 3, NULL), 0);
	assert_int_equal(cas_store_action_put(store, &action, "three", 5, NULL), 0);
	assert_int_equal(cas_store_action_get(store, &action, &b, NULL), 0);
	assert_string_equal(buf_str(&b), "three");
	assert_int_equal(cas_store_action_put(store, &action, "", 0, NULL), -EINVAL);
	assert_int_equal(tests_count_names(tests_path(*state, "store/ac/ab")), 1);
	cas_store_close(store);
}

static void test_writer_lock_is_one_at_a_time(void **state)
{
	struct cas_store *one = tests_store_open(*state, NULL);
	struct cas_store *two = tests_store_open(*state, NULL);
	struct err err = {0};

	assert_int_equal(cas_store_writer_lock(one, 0, NULL), 0);
	assert_int_equal(cas_store_writer_lock(one, 0, &err), -EBUSY);
	assert_int_equal(cas_store_writer_lock(two, 0, &err), -EBUSY);
	assert_int_equal(cas_store_writer_lock(two, 30, &err), -EBUSY);
	assert_true(err.msg[0] != '\0');
	cas_store_writer_unlock(one);
	assert_int_equal(cas_store_writer_lock(two, 1000, NULL), 0);
	cas_store_close(two);
	assert_int_equal(cas_store_writer_lock(one, -1, NULL), 0);
	cas_store_writer_unlock(one);
	cas_store_close(one);
}

/* A publisher that was stopped holds its shard shared: others publish, nobody evicts. */
static void test_stopped_publisher_blocks_no_publisher(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest d;
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		struct cas_store *own = tests_store_open(*state, NULL);

		for (unsigned i = 0; i < 256; i++)
			(void)cas_store_shard_lock(own, i, false, true);
		(void)!write(ready[1], "x", 1);
		(void)raise(SIGSTOP);
		_exit(0);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_int_equal(cas_put_bytes(store, "abc", 3, &d, NULL), 0);
	assert_int_equal(cas_store_shard_lock(store, d.hash[0], true, false), -EBUSY);
	assert_int_equal(cas_store_shard_lock(store, d.hash[0], false, false), 0);
	cas_store_shard_unlock(store, d.hash[0], false);
	(void)kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(cas_store_shard_lock(store, d.hash[0], true, false), 0);
	cas_store_shard_unlock(store, d.hash[0], true);
	(void)close(ready[0]);
	(void)close(ready[1]);
	cas_store_close(store);
}

/* Nor does an evictor that was stopped while it held a shard: it costs some seconds. */
static void test_stopped_evictor_delays_a_publisher_at_most(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_store *evictor = tests_store_open(*state, NULL);
	unsigned long long start = lock_now_ns();
	struct cas_digest d;

	/* SHA-256 of "abc" begins with ba. */
	assert_int_equal(cas_store_shard_lock(evictor, 0xba, true, false), 0);
	assert_int_equal(cas_put_bytes(store, "abc", 3, &d, NULL), 0);
	assert_true(lock_now_ns() - start < 20000000000ULL);
	assert_int_equal(cas_store_has(store, &d), 1);
	cas_store_shard_unlock(evictor, 0xba, true);
	cas_store_close(evictor);
	cas_store_close(store);
}

struct counts {
	int blobs;
	int foreign;
};

static int count_blob(void *ctx, const struct cas_store_blob *blob)
{
	struct counts *c = ctx;

	assert_int_equal(blob->mode, 0444);
	assert_int_equal(blob->digest.size, 3);
	return ++c->blobs == 3 ? 42 : 0;
}

static int count_foreign(void *ctx, const char *path)
{
	struct counts *c = ctx;

	assert_string_equal(path, "cas/ab/notahash");
	c->foreign++;
	return 0;
}

static void test_walk_tells_blobs_and_foreign_names(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct counts c = {0};
	struct cas_digest d;

	tests_write_file(tests_path(*state, "store/cas/ab/notahash"), "x", 1, 0644);
	tests_write_file(tests_path(*state, "store/cas/ab/.tmp-x"), "x", 1, 0644);
	assert_int_equal(cas_put_bytes(store, "abc", 3, &d, NULL), 0);
	assert_int_equal(cas_put_bytes(store, "def", 3, &d, NULL), 0);
	assert_int_equal(cas_store_walk(store, count_blob, count_foreign, &c, NULL), 0);
	assert_int_equal(c.blobs, 2);
	assert_int_equal(c.foreign, 1);
	assert_int_equal(cas_store_walk(store, count_blob, NULL, &c, NULL), 42);
	cas_store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_new_store_has_its_layout_whatever_the_umask),
		TESTS_IN_DIR(test_what_is_no_store_is_refused),
		TESTS_IN_DIR(test_path_is_resolved_once),
		TESTS_IN_DIR(test_stamp_decides_whether_a_blob_is_hashed),
		TESTS_IN_DIR(test_damaged_blob_is_reported_then_absent),
		TESTS_IN_DIR(test_asking_with_a_wrong_size_is_a_miss_and_harms_nothing),
		TESTS_IN_DIR(test_resolve_fills_in_the_size),
		TESTS_IN_DIR(test_empty_blob_is_always_there_and_never_a_file),
		TESTS_IN_DIR(test_read_blob_respects_the_limit),
		TESTS_IN_DIR(test_variants_are_separate_files_made_once),
		TESTS_IN_DIR(test_variants_of_another_boot_are_not_believed),
		TESTS_IN_DIR(test_variant_can_be_executed_at_once),
		TESTS_IN_DIR(test_broken_lease_is_noticed_and_harmless),
		TESTS_IN_DIR(test_action_results_replace_each_other),
		TESTS_IN_DIR(test_writer_lock_is_one_at_a_time),
		TESTS_IN_DIR(test_stopped_publisher_blocks_no_publisher),
		TESTS_IN_DIR(test_stopped_evictor_delays_a_publisher_at_most),
		TESTS_IN_DIR(test_walk_tells_blobs_and_foreign_names),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("cas_store", tests, NULL, NULL);
}
