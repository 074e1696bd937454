/* tests/unit/test_cas_store_place.c - stores on full, foreign, shared and read-only places */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/log.h"
#include "cas/evict/evict.h"
#include "cas/fsck/fsck.h"
#include "cas/put/put.h"
#include "cas/store/store.h"
#include "tests/lib/store.h"

/* The program has a mount namespace of its own, so whatever a test leaves goes with it. */

#define BLOB (1500u << 10)

static void mount_tmpfs(const char *path, const char *options)
{
	(void)mkdir(path, 0755);
	assert_int_equal(mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, options), 0);
}

static int count_clean(struct cas_store *store)
{
	struct cas_fsck_options opts = {.nr_threads = 1};
	struct cas_fsck_result result;

	assert_int_equal(cas_fsck(store, &opts, &result, NULL), 0);
	assert_int_equal(result.faults, 0);
	return (int)result.blobs;
}

/* Put blob after blob until one fails; the number of those that went in. */
static int fill(struct cas_store *store, size_t size, int *code)
{
	for (unsigned i = 0; i < 5000; i++) {
		unsigned char *data = tests_noise(size, i);
		struct cas_digest d = {.size = 77};
		struct err err = {0};

		*code = cas_put_bytes(store, data, size, &d, &err);
		free(data);
		if (*code < 0) {
			assert_int_equal(d.size, 77);
			assert_non_null(strstr(err.msg, "No space"));
			return (int)i;
		}
	}
	return -1;
}

/* C03: bytes run out, then inodes; nothing is left of what failed, a retry works. */
static void test_full_disk(void **state)
{
	static const struct {
		const char *options;
		size_t size;
	} disks[] = {{"size=16m", BLOB}, {"size=16m,nr_inodes=100", 10}, {"size=16m", 30000}};

	for (size_t i = 0; i < sizeof(disks) / sizeof(disks[0]); i++) {
		const char *place = tests_path(*state, "store");
		struct cas_store *store;
		unsigned char *data;
		struct cas_digest d;
		struct cas_digest first;
		int nr;
		int code;

		mount_tmpfs(place, disks[i].options);
		store = tests_store_open(*state, NULL);
		nr = fill(store, disks[i].size, &code);
		assert_true(nr > 5);
		assert_int_equal(code, -ENOSPC);
		assert_int_equal(tests_count_blobs(*state), nr);
		assert_int_equal(count_clean(store), nr);
		data = tests_noise(2 << 20, 9);
		assert_int_equal(cas_store_action_put(store, &(struct cas_digest){.hash = {7}},
						      data, 2 << 20, NULL),
				 -ENOSPC);
		free(data);
		assert_int_equal(tests_count_names(tests_path(*state, "store/ac")), i != 1);
		data = tests_noise(disks[i].size, 0);
		assert_int_equal(cas_put_bytes(store, data, disks[i].size, &first, NULL), 0);
		free(data);
		assert_int_equal(unlink(tests_blob_path(*state, &first)), 0);
		data = tests_noise(disks[i].size, 7000);
		code = cas_put_bytes(store, data, disks[i].size, &d, NULL);
		if (code == -ENOSPC) { /* its shard is the one that could not be made */
			data[0]++;
			code = cas_put_bytes(store, data, disks[i].size, &d, NULL);
		}
		if (i != 1)
			assert_int_equal(code, 0);
		if (code == 0)
			tests_assert_blob(store, &d, data, disks[i].size);
		free(data);
		(void)count_clean(store);
		cas_store_close(store);
		assert_int_equal(umount2(tests_path(*state, "store"), MNT_DETACH), 0);
	}
}

static void check_puts(const char *dir, struct cas_store *store, unsigned seed)
{
	unsigned char *data = tests_noise(BLOB, seed);
	auto_close int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct cas_put *put;
	struct cas_digest d;
	struct stat st;
	bool moved;

	for (size_t size = 10; size <= BLOB; size *= 153600) {
		assert_int_equal(cas_put_bytes(store, data, size, &d, NULL), 0);
		tests_assert_blob(store, &d, data, size);
		assert_int_equal(stat(tests_blob_path(dir, &d), &st), 0);
		assert_int_equal(st.st_mode, S_IFREG | 0444);
		assert_int_equal(unlink(tests_blob_path(dir, &d)), 0);
		assert_int_equal(cas_put_new(store, &put, NULL), 0);
		assert_int_equal(cas_put_write(put, data, size, NULL), 0);
		assert_int_equal(cas_put_publish(put, NULL, &d, NULL), 0);
		cas_put_free(put);
		tests_assert_blob(store, &d, data, size);
		assert_int_equal(unlink(tests_blob_path(dir, &d)), 0);
		tests_write_file(tests_path(dir, "src"), data, size, 0600);
		assert_int_equal(cas_put_take(store, dir_fd, "src", true, &d, &moved, NULL), 0);
		tests_assert_blob(store, &d, data, size);
		data[0]++;
	}
	assert_int_equal(cas_store_sync(store, NULL), 0);
	free(data);
}

/* C43: each shard is a symlink to another filesystem, or a mount of the same one. */
static void test_shards_elsewhere(void **state)
{
	for (int how = 0; how < 2; how++) {
		struct cas_store_options opts = {.path = tests_path(*state, "store"),
						 .create = true,
						 .durability = CAS_DURABILITY_BATCH};
		struct cas_evict_options all = {0};
		struct cas_evict_result result;
		struct cas_store *store;

		mount_tmpfs(tests_path(*state, "store"), "size=64m");
		mount_tmpfs(tests_path(*state, "other"), "size=64m");
		assert_int_equal(cas_store_open(&opts, &store, NULL), 0);
		for (unsigned i = 0; i < 256; i++) {
			char from[32];
			char to[32];

			(void)snprintf(from, sizeof(from), "store/cas/%02x", i);
			(void)snprintf(to, sizeof(to), "other/%02x", i);
			assert_int_equal(mkdir(tests_path(*state, to), 0755), 0);
			if (how == 0) {
				assert_int_equal(
					symlink(tests_path(*state, to), tests_path(*state, from)),
					0);
				continue;
			}
			assert_int_equal(mkdir(tests_path(*state, from), 0755), 0);
			assert_int_equal(mount(tests_path(*state, from), tests_path(*state, from),
					       NULL, MS_BIND, NULL),
					 0);
		}
		check_puts(*state, store, 1);
		assert_int_equal(count_clean(store), tests_count_blobs(*state));
		assert_int_equal(cas_evict(store, &all, NULL, &result, NULL), 0);
		assert_int_equal(tests_count_blobs(*state), 0);
		cas_store_close(store);
		for (unsigned i = 0; i < 256 && how == 1; i++) {
			char from[32];

			(void)snprintf(from, sizeof(from), "store/cas/%02x", i);
			assert_int_equal(umount2(tests_path(*state, from), MNT_DETACH), 0);
		}
		assert_int_equal(umount2(tests_path(*state, "store"), MNT_DETACH), 0);
		assert_int_equal(umount2(tests_path(*state, "other"), MNT_DETACH), 0);
	}
}

static void test_read_only_store_still_serves(void **state)
{
	struct cas_store_options opts = {.path = tests_path(*state, "store"), .create = true};
	struct cas_evict_options all = {0};
	struct cas_evict_result result;
	struct cas_store *store;
	struct cas_put *put;
	struct cas_digest d;
	struct err err = {0};
	char name[72];
	int dir_fd;

	mount_tmpfs(tests_path(*state, "store"), "size=1m");
	store = tests_store_open(*state, NULL);
	assert_int_equal(cas_put_bytes(store, "abc", 3, &d, NULL), 0);
	cas_store_close(store);
	assert_int_equal(
		mount(NULL, tests_path(*state, "store"), NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	assert_int_equal(cas_store_open(&opts, &store, NULL), 0);
	assert_true(cas_store_is_read_only(store));
	tests_assert_blob(store, &d, "abc", 3);
	assert_int_equal(cas_put_bytes(store, "def", 3, &d, &err), -EROFS);
	assert_non_null(strstr(err.msg, "read-only"));
	assert_int_equal(cas_put_new(store, &put, NULL), -EROFS);
	assert_int_equal(cas_store_action_put(store, &d, "x", 1, NULL), -EROFS);
	assert_int_equal(cas_store_link_variant(store, &d, true, &dir_fd, name, NULL), -EROFS);
	assert_int_equal(cas_evict(store, &all, NULL, &result, NULL), -EROFS);
	assert_int_equal(cas_store_writer_lock(store, 0, NULL), -EROFS);
	assert_int_equal(count_clean(store), 1);
	cas_store_close(store);
	assert_int_equal(umount2(tests_path(*state, "store"), MNT_DETACH), 0);
}

/* Run @check as another user; its exit status. cmocka's asserts do not work in there. */
static int as_user(uid_t uid, const char *dir, int (*check)(const char *dir))
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 ||
		    setresuid(uid, uid, uid) < 0)
			_exit(100);
		_exit(check(dir));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int use_store(const char *dir)
{
	struct cas_store_options opts = {.path = tests_path(dir, "store"), .create = true};
	struct cas_evict_options all = {0};
	struct cas_evict_result result;
	struct cas_store *store;
	struct cas_digest d;

	(void)umask(0077);
	if (cas_store_open(&opts, &store, NULL) < 0 || cas_store_is_read_only(store))
		return 1;
	if (cas_put_bytes(store, "mine", 4, &d, NULL) < 0 || cas_store_has(store, &d) != 1)
		return 2;
	if (cas_evict(store, &all, NULL, &result, NULL) < 0 || result.after_bytes != 0)
		return 3;
	cas_store_close(store);
	return 0;
}

static int read_roots_store(const char *dir)
{
	struct cas_store_options opts = {.path = tests_path(dir, "store"), .create = true};
	struct cas_store *store;
	struct cas_digest d;
	int fd;

	if (cas_store_open(&opts, &store, NULL) < 0 || !cas_store_is_read_only(store))
		return 1;
	if (cas_put_bytes(store, "other", 5, &d, NULL) != -EROFS)
		return 2;
	/* SHA-256 of "abc" */
	if (cas_digest_parse("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad/3",
			     &d) < 0 ||
	    cas_store_open_blob(store, &d, &fd, NULL) < 0)
		return 3;
	return 0;
}

static int is_refused(const char *dir)
{
	struct cas_store_options opts = {.path = tests_path(dir, "store"), .create = true};
	struct cas_store *store;
	struct err err = {0};

	if (cas_store_open(&opts, &store, &err) != -EPERM)
		return 1;
	return strstr(err.msg, "belongs to user 1234") == NULL;
}

static void test_users_share_what_they_may(void **state)
{
	struct cas_store *store;
	struct cas_digest d;
	struct stat st;
	mode_t was;

	assert_int_equal(chmod(*state, 0755), 0);
	was = umask(0077);
	store = tests_store_open(*state, NULL);
	assert_int_equal(cas_put_bytes(store, "abc", 3, &d, NULL), 0);
	cas_store_close(store);
	(void)umask(was);
	assert_int_equal(as_user(1234, *state, read_roots_store), 0);

	/* Root at work in a user's store leaves nothing that the user cannot handle. */
	assert_int_equal(rename(tests_path(*state, "store"), tests_path(*state, "roots")), 0);
	assert_int_equal(mkdir(tests_path(*state, "store"), 0755), 0);
	assert_int_equal(chown(tests_path(*state, "store"), 1234, 1234), 0);
	store = tests_store_open(*state, NULL);
	assert_int_equal(cas_put_bytes(store, "abc", 3, &d, NULL), 0);
	tests_write_file(tests_path(*state, "out"), "taken", 5, 0644);
	check_puts(*state, store, 2);
	cas_store_close(store);
	assert_int_equal(stat(tests_blob_path(*state, &d), &st), 0);
	assert_int_equal(st.st_uid, 1234);
	assert_int_equal(as_user(1234, *state, use_store), 0);
	assert_int_equal(tests_count_blobs(*state), 0);
	assert_int_equal(as_user(4321, *state, is_refused), 0);
}

/* "abc" in a cache that is another user's, who lets nobody read it. */
static int meet_closed_file(const char *dir)
{
	struct cas_store_options opts = {.path = tests_path(dir, "user/store"),
					 .blobs = tests_path(dir, "cache"),
					 .create = true};
	const struct cas_fsck_options repair = {.nr_threads = 1, .repair = true};
	struct cas_fsck_result result;
	struct cas_store *store;
	struct cas_digest d;
	int fd;

	if (cas_store_open(&opts, &store, NULL) < 0 || cas_store_is_read_only(store) ||
	    !cas_store_is_adopted(store))
		return 1;
	if (cas_digest_parse("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad/3",
			     &d) < 0 ||
	    cas_store_open_blob(store, &d, &fd, NULL) != -EACCES)
		return 2;
	if (cas_put_bytes(store, "abc", 3, &d, NULL) != -EACCES)
		return 3;
	if (cas_fsck(store, &repair, &result, NULL) < 0 || result.faults != 1 ||
	    result.repaired != 0)
		return 4;
	cas_store_close(store);
	return 0;
}

static void test_closed_files_of_others_in_their_cache_stay(void **state)
{
	static const char file[] =
		"cache/cas/ba/ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
	static const char *const dirs[] = {"user", "cache", "cache/cas", "cache/ac",
					   "cache/cas/ba"};
	struct stat before;
	struct stat after;

	assert_int_equal(chmod(*state, 0755), 0);
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		assert_int_equal(mkdir(tests_path(*state, dirs[i]), 0777), 0);
		assert_int_equal(chmod(tests_path(*state, dirs[i]), 0777), 0);
	}
	tests_write_file(tests_path(*state, file), "abc", 3, 0600);
	assert_int_equal(stat(tests_path(*state, file), &before), 0);
	assert_int_equal(as_user(1234, *state, meet_closed_file), 0);
	assert_int_equal(stat(tests_path(*state, file), &after), 0);
	assert_int_equal(after.st_ino, before.st_ino);
	assert_int_equal(after.st_mode & 07777, 0600);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_full_disk),
		TESTS_IN_DIR(test_shards_elsewhere),
		TESTS_IN_DIR(test_read_only_store_still_serves),
		TESTS_IN_DIR(test_users_share_what_they_may),
		TESTS_IN_DIR(test_closed_files_of_others_in_their_cache_stay),
	};

	if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
		(void)fprintf(stderr, "skipped: needs root and a mount namespace\n");
		return 77;
	}
	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("cas_store_place", tests, NULL, NULL);
}
