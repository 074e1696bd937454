/* tests/unit/test_cas_put.c - from bytes to published blobs */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/put/put.h"
#include "cas/put/tmp_pool.h"
#include "cas/store/store.h"
#include "tests/lib/store.h"

static void test_put_bytes_makes_one_read_only_file(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest d;
	struct stat st;
	mode_t was = umask(0777);

	assert_int_equal(cas_put_bytes(store, "abc", 3, &d, NULL), 0);
	(void)umask(was);
	assert_int_equal(d.size, 3);
	assert_int_equal(stat(tests_blob_path(*state, &d), &st), 0);
	assert_int_equal(st.st_mode, S_IFREG | 0444);
	assert_int_equal(st.st_nlink, 1);
	assert_int_equal(st.st_size, 3);
	assert_int_equal(tests_count_blobs(*state), 1);
	tests_assert_blob(store, &d, "abc", 3);
	cas_store_close(store);
}

static void test_put_same_blob_twice_keeps_the_file(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest d;
	struct stat before;
	struct stat after;

	assert_int_equal(cas_put_bytes(store, "abc", 3, &d, NULL), 0);
	assert_int_equal(stat(tests_blob_path(*state, &d), &before), 0);
	assert_int_equal(cas_put_bytes(store, "abc", 3, &d, NULL), 0);
	assert_int_equal(stat(tests_blob_path(*state, &d), &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_int_equal(before.st_ctim.tv_nsec, after.st_ctim.tv_nsec);
	assert_int_equal(tests_count_blobs(*state), 1);
	cas_store_close(store);
}

/* Beyond as many as are kept. */
static void test_put_from_a_pool_leaves_blobs_alone(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	mode_t was = umask(0777);

	assert_int_equal(cas_tmp_pool_new(store), 0);
	cas_tmp_pool_fill(store);
	cas_tmp_pool_fill(store);
	for (int i = 0; i < 100; i++) {
		struct cas_digest d;
		struct stat st;
		char text[16];
		int len = snprintf(text, sizeof(text), "blob %d", i);

		assert_int_equal(cas_put_bytes(store, text, (size_t)len, &d, NULL), 0);
		assert_int_equal(stat(tests_blob_path(*state, &d), &st), 0);
		assert_int_equal(st.st_mode, S_IFREG | 0444);
		assert_int_equal(st.st_nlink, 1);
		tests_assert_blob(store, &d, text, (size_t)len);
	}
	(void)umask(was);
	assert_int_equal(tests_count_blobs(*state), 100);
	cas_tmp_pool_fill(store);
	cas_store_close(store);
}

/* Small, around what stays in memory, and larger. */
static void test_streams_and_files_of_all_sizes(void **state)
{
	static const size_t sizes[] = {0, 1, 4096, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20};
	struct cas_store *store = tests_store_open(*state, NULL);
	unsigned char *data = tests_noise(3 << 20, 1);

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct cas_put *put;
		struct cas_digest want;
		struct cas_digest d;
		auto_close int fd = -1;

		assert_int_equal(cas_put_new(store, &put, NULL), 0);
		for (size_t at = 0; at < sizes[i]; at += 100000) {
			size_t part = sizes[i] - at < 100000 ? sizes[i] - at : 100000;

			assert_int_equal(cas_put_write(put, data + at, part, NULL), 0);
		}
		assert_int_equal(cas_put_publish(put, NULL, &want, NULL), 0);
		cas_put_free(put);
		tests_assert_blob(store, &want, data, sizes[i]);
		if (sizes[i] > 0)
			assert_int_equal(unlink(tests_blob_path(*state, &want)), 0);
		tests_write_file(tests_path(*state, "src"), data, sizes[i], 0600);
		fd = open(tests_path(*state, "src"), O_RDONLY | O_CLOEXEC);
		assert_int_equal(cas_put_fd(store, fd, &d, NULL), 0);
		assert_true(cas_digest_equal(&d, &want));
		tests_assert_blob(store, &want, data, sizes[i]);
		if (sizes[i] > 0)
			assert_int_equal(unlink(tests_blob_path(*state, &want)), 0);
		assert_int_equal(tests_count_blobs(*state), 0);
	}
	free(data);
	cas_store_close(store);
}

static void test_publish_compares_with_what_was_expected(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest other = {.hash = {1}, .size = 3};
	struct cas_digest out = {.size = 77};
	struct err err = {0};
	struct cas_put *put;

	assert_int_equal(cas_put_new(store, &put, NULL), 0);
	assert_int_equal(cas_put_write(put, "abc", 3, NULL), 0);
	assert_int_equal(cas_put_publish(put, &other, &out, &err), -EBADMSG);
	assert_int_equal(out.size, 77);
	assert_non_null(strstr(err.msg, CAS_DIGEST_TEXT(&other)));
	cas_put_free(put);
	assert_int_equal(tests_count_blobs(*state), 0);
	cas_store_close(store);
}

static void test_abandoned_put_leaves_nothing(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	unsigned char *data = tests_noise(2 << 20, 2);
	struct cas_put *put;

	assert_int_equal(cas_put_new(store, &put, NULL), 0);
	assert_int_equal(cas_put_write(put, data, 2 << 20, NULL), 0);
	cas_put_free(put);
	cas_put_free(NULL);
	assert_int_equal(tests_count_blobs(*state), 0);
	free(data);
	cas_store_close(store);
}

static void test_zero_blocks_stay_holes(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest d;
	struct stat st;
	auto_close int fd = -1;

	tests_write_file(tests_path(*state, "src"), "", 0, 0600);
	fd = open(tests_path(*state, "src"), O_RDWR | O_CLOEXEC);
	assert_int_equal(ftruncate(fd, 8 << 20), 0);
	assert_int_equal(io_pwrite_full(fd, "x", 1, 5 << 20), 0);
	assert_int_equal(cas_put_fd(store, fd, &d, NULL), 0);
	assert_int_equal(d.size, 8 << 20);
	assert_int_equal(stat(tests_blob_path(*state, &d), &st), 0);
	assert_int_equal(st.st_size, 8 << 20);
	assert_true(st.st_blocks <= (1 << 20) / 512 + 16);
	cas_store_close(store);
}

/* C02 (1): the store never shares an inode with what was put. */
static void test_overwriting_the_source_does_not_change_the_blob(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest d;
	struct cas_digest taken;
	bool moved = true;
	auto_close int fd = -1;
	auto_close int dir_fd = open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	tests_write_file(tests_path(*state, "src"), "old", 3, 0644);
	fd = open(tests_path(*state, "src"), O_RDWR | O_CLOEXEC);
	assert_int_equal(cas_put_fd(store, fd, &d, NULL), 0);
	assert_int_equal(cas_put_take(store, dir_fd, "src", false, &taken, &moved, NULL), 0);
	assert_false(moved);
	assert_true(cas_digest_equal(&d, &taken));
	assert_int_equal(io_pwrite_full(fd, "new", 3, 0), 0);
	tests_assert_blob(store, &d, "old", 3);
	cas_store_close(store);
}

/* C04: whatever is under the name of a blob, putting the right bytes again mends it. */
static void damage(const char *path, int how)
{
	char half[1000];

	assert_int_equal(chmod(path, 0644), 0);
	switch (how) {
	case 0:
		assert_int_equal(truncate(path, 0), 0);
		return;
	case 1:
		assert_int_equal(truncate(path, 1000), 0);
		return;
	case 2:
		assert_int_equal(truncate(path, 2001), 0);
		return;
	case 3: {
		auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);

		assert_int_equal(io_pwrite_full(fd, "!", 1, 700), 0);
		return;
	}
	default:
		break;
	}
	assert_int_equal(unlink(path), 0);
	memset(half, 'h', sizeof(half));
	if (how == 4)
		assert_int_equal(mkdir(path, 0755), 0);
	else if (how == 5)
		assert_int_equal(symlink("/etc/passwd", path), 0);
	else if (how == 6)
		assert_int_equal(mkfifo(path, 0644), 0);
	else
		tests_write_file(path, half, sizeof(half), 0000);
}

static void test_put_again_repairs_any_damage(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	unsigned char *data = tests_noise(2000, 3);

	for (int how = 0; how < 8; how++) {
		struct cas_digest d;
		struct stat st;

		assert_int_equal(cas_put_bytes(store, data, 2000, &d, NULL), 0);
		damage(tests_blob_path(*state, &d), how);
		assert_int_equal(cas_put_bytes(store, data, 2000, &d, NULL), 0);
		assert_int_equal(lstat(tests_blob_path(*state, &d), &st), 0);
		assert_int_equal(st.st_mode, S_IFREG | 0444);
		tests_assert_blob(store, &d, data, 2000);
	}
	free(data);
	cas_store_close(store);
}

static int take(struct cas_store *store, const char *dir, const char *name, struct cas_digest *out,
		bool *moved)
{
	auto_close int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return cas_put_take(store, dir_fd, name, true, out, moved, NULL);
}

static void test_take_moves_a_file_that_nobody_can_change(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest d;
	struct stat before;
	struct stat after;
	bool moved = false;

	tests_write_file(tests_path(*state, "out"), "result", 6, 0755);
	assert_int_equal(stat(tests_path(*state, "out"), &before), 0);
	assert_int_equal(take(store, *state, "out", &d, &moved), 0);
	assert_true(moved);
	assert_int_equal(stat(tests_path(*state, "out"), &after), -1);
	assert_int_equal(stat(tests_blob_path(*state, &d), &after), 0);
	assert_int_equal(after.st_ino, before.st_ino);
	assert_int_equal(after.st_mode, S_IFREG | 0444);
	assert_int_equal(after.st_nlink, 1);
	assert_int_equal(tests_count_blobs(*state), 1);
	tests_assert_blob(store, &d, "result", 6);
	cas_store_close(store);
}

/* Its bytes are in the store: the file stays, unchanged, and is not read again. */
static void test_take_of_a_known_blob_leaves_the_file(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest first;
	struct cas_digest second;
	struct stat before;
	struct stat after;
	bool moved = true;

	tests_write_file(tests_path(*state, "one"), "same", 4, 0644);
	tests_write_file(tests_path(*state, "two"), "same", 4, 0644);
	assert_int_equal(take(store, *state, "one", &first, &moved), 0);
	assert_true(moved);
	assert_int_equal(stat(tests_path(*state, "two"), &before), 0);
	assert_int_equal(take(store, *state, "two", &second, &moved), 0);
	assert_false(moved);
	assert_true(cas_digest_equal(&first, &second));
	assert_int_equal(stat(tests_path(*state, "two"), &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_int_equal(before.st_mode, after.st_mode);
	assert_int_equal(before.st_ctim.tv_nsec, after.st_ctim.tv_nsec);
	cas_store_close(store);
}

/* A catalog through which another put comes in between: it sees a wrong file go. */
struct rival {
	const char *path;
};

static void rival_puts(void *ctx, const struct cas_digest *digest)
{
	const struct rival *r = ctx;

	(void)digest;
	tests_write_file(r->path, "result", 6, 0444);
}

static void test_take_leaves_the_file_when_another_put_is_first(void **state)
{
	struct rival rival;
	struct cas_catalog_ops ops = *cas_catalog_null.ops;
	const struct cas_catalog catalog = {.ops = &ops, .ctx = &rival};
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest d;
	struct stat before;
	struct stat after;
	bool moved = true;

	assert_int_equal(cas_put_bytes(store, "result", 6, &d, NULL), 0);
	rival.path = tests_blob_path(*state, &d);
	ops.blob_drop = rival_puts;
	cas_store_set_catalog(store, &catalog);
	assert_int_equal(unlink(rival.path), 0);
	tests_write_file(rival.path, "wrong!", 6, 0444);
	tests_write_file(tests_path(*state, "out"), "result", 6, 0755);
	assert_int_equal(stat(tests_path(*state, "out"), &before), 0);
	assert_int_equal(take(store, *state, "out", &d, &moved), 0);
	assert_false(moved);
	assert_int_equal(stat(tests_path(*state, "out"), &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_int_equal(before.st_mode, after.st_mode);
	assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
	tests_assert_blob(store, &d, "result", 6);
	assert_int_equal(tests_count_blobs(*state), 1);
	cas_store_close(store);
}

static void test_a_file_taken_halfway_is_given_back(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	auto_close int dir_fd = open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct cas_digest d;
	struct stat st;

	assert_int_equal(cas_put_bytes(store, "x", 1, &d, NULL), 0);
	tests_write_file(tests_path(*state, "store/cas/2d/.tmp-other"), "no", 2, 0600);
	tests_write_file(tests_path(*state, "store/cas/2d/.tmp-cut"), "yes", 3, 0444);
	assert_int_equal(stat(tests_path(*state, "store/cas/2d/.tmp-cut"), &st), 0);
	assert_int_equal(cas_put_untake(store, st.st_ino, dir_fd, "back", NULL), 1);
	assert_int_equal(cas_put_untake(store, st.st_ino, dir_fd, "more", NULL), 0);
	assert_int_equal(stat(tests_path(*state, "back"), &st), 0);
	assert_int_equal(st.st_size, 3);
	assert_int_equal(stat(tests_path(*state, "store/cas/2d/.tmp-other"), &st), 0);
	/* A blob is not a file on its way. */
	assert_int_equal(stat(tests_blob_path(*state, &d), &st), 0);
	assert_int_equal(cas_put_untake(store, st.st_ino, dir_fd, "more", NULL), 0);
	cas_store_close(store);
}

/* What must not be moved is copied, and neither its mode nor its time changes. */
static void check_copied(const char *dir, const char *name)
{
	struct cas_store *store = tests_store_open(dir, NULL);
	struct cas_digest d;
	struct stat before;
	struct stat after;
	bool moved = true;

	assert_int_equal(stat(tests_path(dir, name), &before), 0);
	assert_int_equal(take(store, dir, name, &d, &moved), 0);
	assert_false(moved);
	assert_int_equal(stat(tests_path(dir, name), &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_int_equal(before.st_mode, after.st_mode);
	assert_int_equal(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
	assert_int_equal(before.st_mtim.tv_sec, after.st_mtim.tv_sec);
	assert_int_equal(stat(tests_blob_path(dir, &d), &after), 0);
	assert_int_not_equal(before.st_ino, after.st_ino);
	assert_int_equal(tests_count_blobs(dir), 1);
	tests_assert_blob(store, &d, "result", 6);
	cas_store_close(store);
}

static void test_take_copies_a_file_with_two_names(void **state)
{
	tests_write_file(tests_path(*state, "out"), "result", 6, 0640);
	assert_int_equal(link(tests_path(*state, "out"), tests_path(*state, "out2")), 0);
	check_copied(*state, "out");
}

static void test_take_copies_a_file_that_is_open_for_writing(void **state)
{
	auto_close int fd = -1;

	tests_write_file(tests_path(*state, "out"), "result", 6, 0640);
	fd = open(tests_path(*state, "out"), O_RDWR | O_CLOEXEC);
	check_copied(*state, "out");
}

static void test_take_copies_a_file_that_is_mapped_for_writing(void **state)
{
	int fd;
	void *map;

	tests_write_file(tests_path(*state, "out"), "result", 6, 0640);
	fd = open(tests_path(*state, "out"), O_RDWR | O_CLOEXEC);
	map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	(void)close(fd);
	check_copied(*state, "out");
	(void)munmap(map, 4096);
}

static void test_take_refuses_what_is_no_file(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest d;
	bool moved;

	assert_int_equal(mkfifo(tests_path(*state, "fifo"), 0644), 0);
	assert_int_equal(symlink("/etc/passwd", tests_path(*state, "link")), 0);
	assert_int_equal(take(store, *state, "fifo", &d, &moved), -EINVAL);
	assert_int_equal(take(store, *state, "link", &d, &moved), -ELOOP);
	assert_int_equal(take(store, *state, "gone", &d, &moved), -ENOENT);
	assert_int_equal(tests_count_blobs(*state), 0);
	cas_store_close(store);
}

/* C03: the file size limit stands in for a full disk; there is a real one in test_cas_full. */
static void test_write_failure_leaves_nothing_and_can_be_retried(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	unsigned char *data = tests_noise(3 << 20, 4);
	struct rlimit old;
	struct rlimit small;
	struct cas_digest d;
	struct err err = {0};

	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = (struct rlimit){.rlim_cur = 100000, .rlim_max = old.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_int_equal(cas_put_bytes(store, data, 3 << 20, &d, &err), -EFBIG);
	assert_int_equal(cas_put_bytes(store, data, 200000, &d, &err), -EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(tests_count_blobs(*state), 0);
	assert_int_equal(cas_put_bytes(store, data, 3 << 20, &d, &err), 0);
	tests_assert_blob(store, &d, data, 3 << 20);
	free(data);
	cas_store_close(store);
}

struct racer {
	struct cas_store *store;
	const unsigned char *data;
	size_t len;
};

static void *race(void *arg)
{
	struct racer *r = arg;
	struct cas_digest d;

	for (int i = 0; i < 50; i++) {
		size_t len = r->len - (size_t)(i % 10);

		if (cas_put_bytes(r->store, r->data, len, &d, NULL) < 0)
			return "put failed";
		if (cas_store_has(r->store, &d) != 1)
			return "blob is not there";
	}
	return NULL;
}

/* C25 within one process and across processes. */
static void test_concurrent_puts_of_one_digest_all_succeed(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	unsigned char *data = tests_noise(100000, 5);
	struct racer r = {.store = store, .data = data, .len = 100000};
	pthread_t threads[4];
	pid_t pids[4];

	for (int i = 0; i < 4; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			struct cas_store *own = tests_store_open(*state, NULL);
			struct racer mine = {.store = own, .data = data, .len = 100000};

			_exit(race(&mine) != NULL);
		}
	}
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, race, &r), 0);
	for (int i = 0; i < 4; i++) {
		void *failed = NULL;
		int status;

		assert_int_equal(pthread_join(threads[i], &failed), 0);
		assert_null(failed);
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_int_equal(status, 0);
	}
	assert_int_equal(tests_count_blobs(*state), 10);
	free(data);
	cas_store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_put_bytes_makes_one_read_only_file),
		TESTS_IN_DIR(test_put_same_blob_twice_keeps_the_file),
		TESTS_IN_DIR(test_put_from_a_pool_leaves_blobs_alone),
		TESTS_IN_DIR(test_streams_and_files_of_all_sizes),
		TESTS_IN_DIR(test_publish_compares_with_what_was_expected),
		TESTS_IN_DIR(test_abandoned_put_leaves_nothing),
		TESTS_IN_DIR(test_zero_blocks_stay_holes),
		TESTS_IN_DIR(test_overwriting_the_source_does_not_change_the_blob),
		TESTS_IN_DIR(test_put_again_repairs_any_damage),
		TESTS_IN_DIR(test_take_moves_a_file_that_nobody_can_change),
		TESTS_IN_DIR(test_take_of_a_known_blob_leaves_the_file),
		TESTS_IN_DIR(test_take_leaves_the_file_when_another_put_is_first),
		TESTS_IN_DIR(test_a_file_taken_halfway_is_given_back),
		TESTS_IN_DIR(test_take_copies_a_file_with_two_names),
		TESTS_IN_DIR(test_take_copies_a_file_that_is_open_for_writing),
		TESTS_IN_DIR(test_take_copies_a_file_that_is_mapped_for_writing),
		TESTS_IN_DIR(test_take_refuses_what_is_no_file),
		TESTS_IN_DIR(test_write_failure_leaves_nothing_and_can_be_retried),
		TESTS_IN_DIR(test_concurrent_puts_of_one_digest_all_succeed),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("cas_put", tests, NULL, NULL);
}
