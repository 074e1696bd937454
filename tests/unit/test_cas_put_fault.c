/* tests/unit/test_cas_put_fault.c - puts where the filesystem lacks something or is full */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/lock.h"
#include "cas/base/log.h"
#include "cas/put/put.h"
#include "cas/store/store.h"
#include "tests/lib/fault.h"
#include "tests/lib/store.h"

#define LARGE ((1u << 20) + 4321)

/* Bytes, a stream and a file, small and large, each put where it is not yet known. */
static void check_all_puts(const char *dir, struct cas_store *store, const unsigned char *data)
{
	static const size_t sizes[] = {5, 70000, LARGE};

	for (size_t i = 0; i < 3; i++) {
		for (int how = 0; how < 4; how++) {
			auto_close int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
			auto_close int fd = -1;
			struct cas_put *put;
			struct cas_digest d;
			struct stat st;
			bool moved;

			tests_write_file(tests_path(dir, "src"), data, sizes[i], 0644);
			fd = open(tests_path(dir, "src"), O_RDONLY | O_CLOEXEC);
			if (how == 0) {
				assert_int_equal(cas_put_bytes(store, data, sizes[i], &d, NULL), 0);
			} else if (how == 1) {
				assert_int_equal(cas_put_new(store, &put, NULL), 0);
				assert_int_equal(cas_put_write(put, data, 3, NULL), 0);
				assert_int_equal(cas_put_write(put, data + 3, sizes[i] - 3, NULL),
						 0);
				assert_int_equal(cas_put_publish(put, NULL, &d, NULL), 0);
				cas_put_free(put);
			} else if (how == 2) {
				assert_int_equal(cas_put_fd(store, fd, &d, NULL), 0);
			} else {
				assert_int_equal(
					cas_put_take(store, dir_fd, "src", true, &d, &moved, NULL),
					0);
			}
			tests_assert_blob(store, &d, data, sizes[i]);
			assert_int_equal(tests_count_blobs(dir), 1);
			assert_int_equal(stat(tests_blob_path(dir, &d), &st), 0);
			assert_int_equal(st.st_mode, S_IFREG | 0444);
			assert_int_equal(st.st_nlink, 1);
			assert_int_equal(unlink(tests_blob_path(dir, &d)), 0);
		}
	}
}

static void test_puts_work_without_unnamed_files(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	unsigned char *data = tests_noise(LARGE, 1);

	fault_reset();
	fault_fail(FAULT_TMPFILE, 0, EOPNOTSUPP);
	check_all_puts(*state, store, data);
	assert_true(fault_seen(FAULT_RENAMEAT2) > 0);
	/* NFS: neither unnamed files nor a rename that does not replace. */
	fault_fail(FAULT_RENAMEAT2, 0, EINVAL);
	check_all_puts(*state, store, data);
	/* And no hard links: what is left is a plain rename. */
	fault_fail(FAULT_LINKAT, 0, EPERM);
	check_all_puts(*state, store, data);
	assert_int_equal(tests_count_names(tests_path(*state, "store/run")), 0);
	fault_reset();
	free(data);
	cas_store_close(store);
}

/* C43: the shard is on another filesystem than cas/, or /proc is not there. */
static void test_puts_work_when_unnamed_files_cannot_be_linked(void **state)
{
	static const int codes[] = {EXDEV, ENOENT};
	struct cas_store *store = tests_store_open(*state, NULL);
	unsigned char *data = tests_noise(LARGE, 2);

	for (int i = 0; i < 2; i++) {
		fault_reset();
		fault_fail(FAULT_LINKAT, 0, codes[i]);
		check_all_puts(*state, store, data);
		assert_true(fault_seen(FAULT_LINKAT) > 0);
	}
	fault_reset();
	free(data);
	cas_store_close(store);
}

/* C03: whichever call says that the disk is full, nothing stays and a retry works. */
static void test_every_failing_call_leaves_nothing(void **state)
{
	static const enum fault_call calls[] = {FAULT_TMPFILE, FAULT_WRITE,	FAULT_PWRITE,
						FAULT_FCHMOD,  FAULT_LINKAT,	FAULT_MKDIRAT,
						FAULT_OPENAT,  FAULT_RENAMEAT2, FAULT_FTRUNCATE};
	struct cas_store *store = tests_store_open(*state, NULL);
	unsigned char *data = tests_noise(LARGE, 3);
	int failures = 0;

	for (size_t i = 0; i < 2 * sizeof(calls) / sizeof(calls[0]); i++) {
		bool named = i % 2;

		for (unsigned nth = 1; nth < 4; nth++) {
			struct cas_digest d = {.size = 77};
			struct err err = {0};
			int ret;

			fault_reset();
			fault_fail(FAULT_IOCTL, 0, EOPNOTSUPP);
			if (named)
				fault_fail(FAULT_TMPFILE, 0, EOPNOTSUPP);
			if (!named || calls[i / 2] != FAULT_TMPFILE)
				fault_fail(calls[i / 2], nth, ENOSPC);
			data[0]++;
			ret = cas_put_bytes(store, data, LARGE, &d, &err);
			fault_reset();
			if (ret < 0) {
				failures++;
				assert_int_equal(ret, -ENOSPC);
				assert_true(err.msg[0] != '\0');
				assert_int_equal(d.size, 77);
				assert_int_equal(tests_count_blobs(*state), 0);
				assert_int_equal(cas_put_bytes(store, data, LARGE, &d, NULL), 0);
			}
			tests_assert_blob(store, &d, data, LARGE);
			assert_int_equal(tests_count_blobs(*state), 1);
			assert_int_equal(unlink(tests_blob_path(*state, &d)), 0);
		}
	}
	assert_true(failures >= 6);
	free(data);
	cas_store_close(store);
}

static struct cas_store *open_with(const char *dir, enum cas_durability durability,
				   const struct cas_catalog *catalog)
{
	struct cas_store_options opts = {
		.path = tests_path(dir, "store"), .create = true, .durability = durability};
	struct cas_store *store;

	assert_int_equal(cas_store_open(&opts, &store, NULL), 0);
	cas_store_set_catalog(store, catalog);
	return store;
}

static void test_durability_decides_what_is_synced_and_when_rows_follow(void **state)
{
	struct tests_catalog *c = tests_catalog_new();
	struct cas_store *store = open_with(*state, CAS_DURABILITY_NONE, tests_catalog_ops(c));
	struct cas_digest d;

	fault_reset();
	assert_int_equal(cas_put_bytes(store, "1", 1, &d, NULL), 0);
	assert_int_equal(tests_catalog_count(c), 1);
	cas_store_close(store);
	assert_int_equal(fault_seen(FAULT_SYNCFS) + fault_seen(FAULT_FDATASYNC), 0);

	store = open_with(*state, CAS_DURABILITY_BATCH, tests_catalog_ops(c));
	assert_int_equal(cas_put_bytes(store, "2", 1, &d, NULL), 0);
	assert_int_equal(cas_put_bytes(store, "3", 1, &d, NULL), 0);
	assert_int_equal(tests_catalog_count(c), 1);
	/* The waiting row counts already: the same bytes again are not hashed again. */
	assert_int_equal(cas_put_bytes(store, "3", 1, &d, NULL), 0);
	tests_assert_blob(store, &d, "3", 1);
	assert_int_equal(tests_catalog_adds(c), 1);
	fault_fail(FAULT_SYNCFS, 1, EIO);
	assert_int_equal(cas_store_sync(store, NULL), -EIO);
	assert_int_equal(tests_catalog_count(c), 1);
	assert_int_equal(cas_put_bytes(store, "4", 1, &d, NULL), 0);
	assert_int_equal(cas_store_sync(store, NULL), 0);
	assert_int_equal(fault_seen(FAULT_SYNCFS), 2);
	assert_int_equal(tests_catalog_count(c), 2);
	assert_int_equal(cas_store_sync(store, NULL), 0);
	assert_int_equal(fault_seen(FAULT_SYNCFS), 2);
	cas_store_close(store);

	store = open_with(*state, CAS_DURABILITY_FULL, tests_catalog_ops(c));
	fault_reset();
	assert_int_equal(cas_put_bytes(store, "5", 1, &d, NULL), 0);
	assert_int_equal(fault_seen(FAULT_FDATASYNC), 1);
	assert_int_equal(fault_seen(FAULT_FSYNC), 1);
	assert_int_equal(tests_catalog_count(c), 3);
	cas_store_close(store);
	tests_catalog_free(c);
}

static void *sync_thread(void *store)
{
	(void)cas_store_sync(store, NULL);
	return NULL;
}

static void test_a_second_sync_waits_for_the_first(void **state)
{
	struct cas_store *store = open_with(*state, CAS_DURABILITY_BATCH, NULL);
	unsigned long long began;
	struct cas_digest d;
	pthread_t thread;

	fault_reset();
	assert_int_equal(cas_put_bytes(store, "1", 1, &d, NULL), 0);
	fault_slow(FAULT_SYNCFS, 300);
	assert_int_equal(pthread_create(&thread, NULL, sync_thread, store), 0);
	while (fault_seen(FAULT_SYNCFS) == 0)
		(void)usleep(1000);
	began = lock_now_ns();
	assert_int_equal(cas_store_sync(store, NULL), 0);
	assert_true(lock_now_ns() - began > 100000000ULL);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(fault_seen(FAULT_SYNCFS), 1);
	fault_reset();
	cas_store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_puts_work_without_unnamed_files),
		TESTS_IN_DIR(test_puts_work_when_unnamed_files_cannot_be_linked),
		TESTS_IN_DIR(test_every_failing_call_leaves_nothing),
		TESTS_IN_DIR(test_durability_decides_what_is_synced_and_when_rows_follow),
		TESTS_IN_DIR(test_a_second_sync_waits_for_the_first),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("cas_put_fault", tests, NULL, NULL);
}
