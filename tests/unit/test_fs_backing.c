/* tests/unit/test_fs_backing.c - shared descriptors of blobs */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cas/cas.h"
#include "fs/backing/backing.h"
#include "tests/lib/store.h"

static struct cas_digest put(struct cas_store *store, const char *text)
{
	struct cas_digest d;

	assert_int_equal(cas_put_bytes(store, text, strlen(text), &d, NULL), 0);
	return d;
}

static void test_same_digest_shares_one_descriptor(void **state)
{
	struct cas_store *store = tests_store_open(*state, &cas_catalog_null);
	struct cas_digest d = put(store, "content");
	struct fs_backing_table *table;
	struct fs_backing *a, *b;
	char buf[16] = {0};

	assert_int_equal(fs_backing_table_new(store, 10, &table), 0);
	assert_int_equal(fs_backing_ref(table, &d, &a, NULL), 0);
	assert_int_equal(fs_backing_ref(table, &d, &b, NULL), 0);
	assert_ptr_equal(a, b);
	assert_int_equal(fs_backing_count(table), 1);
	assert_int_equal(fs_backing_read(a, buf, sizeof(buf), 3), 4);
	assert_string_equal(buf, "tent");
	assert_int_equal(fs_backing_read(a, buf, sizeof(buf), 7), 0);
	assert_int_equal(fs_backing_read(a, buf, sizeof(buf), -1), 0);
	fs_backing_unref(table, a);
	fs_backing_unref(table, b);
	assert_int_equal(fs_backing_count(table), 1);
	fs_backing_table_free(table);
	cas_store_close(store);
}

static void test_idle_descriptors_are_bounded_and_used_ones_stay(void **state)
{
	struct cas_store *store = tests_store_open(*state, &cas_catalog_null);
	struct fs_backing_table *table;
	struct fs_backing *held, *b;
	struct cas_digest d = put(store, "held");
	char text[16];

	assert_int_equal(fs_backing_table_new(store, 3, &table), 0);
	assert_int_equal(fs_backing_ref(table, &d, &held, NULL), 0);
	for (int i = 0; i < 20; i++) {
		(void)snprintf(text, sizeof(text), "blob %d", i);
		d = put(store, text);
		assert_int_equal(fs_backing_ref(table, &d, &b, NULL), 0);
		fs_backing_unref(table, b);
		assert_true(fs_backing_count(table) <= 3);
	}
	assert_int_equal(fs_backing_read(held, text, 4, 0), 4);
	assert_memory_equal(text, "held", 4);
	fs_backing_unref(table, held);
	fs_backing_table_free(table);
	cas_store_close(store);
}

static void test_missing_blob_is_an_error_each_time_and_leaves_nothing(void **state)
{
	struct cas_store *store = tests_store_open(*state, &cas_catalog_null);
	struct cas_digest d = {.hash = {1, 2, 3}, .size = 5};
	struct fs_backing_table *table;
	struct fs_backing *b = NULL;
	struct err err = {0};

	assert_int_equal(fs_backing_table_new(store, 10, &table), 0);
	assert_int_equal(fs_backing_ref(table, &d, &b, &err), -ENOENT);
	assert_non_null(strstr(err.msg, CAS_DIGEST_TEXT(&d)));
	assert_null(b);
	assert_int_equal(fs_backing_ref(table, &d, &b, &err), -ENOENT);
	assert_int_equal(fs_backing_count(table), 0);
	fs_backing_table_free(table);
	cas_store_close(store);
}

static void test_blob_removed_after_open_stays_readable(void **state)
{
	struct cas_store *store = tests_store_open(*state, &cas_catalog_null);
	struct cas_digest d = put(store, "content");
	struct fs_backing_table *table;
	struct fs_backing *a, *b;
	char buf[8] = {0};

	assert_int_equal(fs_backing_table_new(store, 10, &table), 0);
	assert_int_equal(fs_backing_ref(table, &d, &a, NULL), 0);
	assert_int_equal(unlink(tests_blob_path(*state, &d)), 0);
	assert_int_equal(fs_backing_ref(table, &d, &b, NULL), 0);
	assert_int_equal(fs_backing_read(b, buf, 7, 0), 7);
	assert_string_equal(buf, "content");
	fs_backing_unref(table, a);
	fs_backing_unref(table, b);
	fs_backing_table_free(table);
	cas_store_close(store);
}

static void test_blob_changed_while_open_is_not_served(void **state)
{
	struct cas_store *store = tests_store_open(*state, &cas_catalog_null);
	struct cas_digest d = put(store, "content");
	struct fs_backing_table *table;
	struct fs_backing *a, *b = NULL;
	int fd;

	assert_int_equal(fs_backing_table_new(store, 10, &table), 0);
	assert_int_equal(fs_backing_ref(table, &d, &a, NULL), 0);
	fs_backing_unref(table, a);
	assert_int_equal(chmod(tests_blob_path(*state, &d), 0644), 0);
	fd = open(tests_blob_path(*state, &d), O_WRONLY | O_CLOEXEC);
	assert_int_equal(io_pwrite_full(fd, "CONTENT", 7, 0), 0);
	(void)close(fd);
	assert_int_equal(fs_backing_ref(table, &d, &b, NULL), -EBADMSG);
	assert_null(b);
	assert_int_equal(fs_backing_count(table), 0);
	fs_backing_table_free(table);
	cas_store_close(store);
}

static void test_file_cut_short_under_a_reader_is_an_error(void **state)
{
	struct cas_store *store = tests_store_open(*state, &cas_catalog_null);
	struct cas_digest d = put(store, "content");
	struct fs_backing_table *table;
	struct fs_backing *a;
	char buf[8];

	assert_int_equal(fs_backing_table_new(store, 10, &table), 0);
	assert_int_equal(fs_backing_ref(table, &d, &a, NULL), 0);
	assert_int_equal(chmod(tests_blob_path(*state, &d), 0644), 0);
	assert_int_equal(truncate(tests_blob_path(*state, &d), 3), 0);
	assert_int_equal(fs_backing_read(a, buf, 7, 0), -EIO);
	assert_int_equal(fs_backing_read(a, buf, 3, 0), 3);
	fs_backing_unref(table, a);
	fs_backing_table_free(table);
	cas_store_close(store);
}

struct many {
	struct fs_backing_table *table;
	struct cas_digest digests[8];
	_Atomic int failures;
};

static void *many_thread(void *arg)
{
	struct many *m = arg;

	for (int i = 0; i < 2000; i++) {
		struct fs_backing *b;
		char buf[8] = {0};
		char want[24];

		(void)snprintf(want, sizeof(want), "blob %d", i % 8);
		if (fs_backing_ref(m->table, &m->digests[i % 8], &b, NULL) < 0) {
			m->failures++;
			continue;
		}
		if (fs_backing_read(b, buf, 6, 0) != 6 || strcmp(buf, want) != 0)
			m->failures++;
		fs_backing_unref(m->table, b);
	}
	return NULL;
}

static void test_many_threads_with_few_descriptors_read_right_bytes(void **state)
{
	struct cas_store *store = tests_store_open(*state, &cas_catalog_null);
	struct many m = {0};
	pthread_t threads[4];
	char text[24];

	for (int i = 0; i < 8; i++) {
		(void)snprintf(text, sizeof(text), "blob %d", i);
		m.digests[i] = put(store, text);
	}
	assert_int_equal(fs_backing_table_new(store, 2, &m.table), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, many_thread, &m), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(m.failures, 0);
	assert_true(fs_backing_count(m.table) <= 2);
	fs_backing_table_free(m.table);
	cas_store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_same_digest_shares_one_descriptor),
		TESTS_IN_DIR(test_idle_descriptors_are_bounded_and_used_ones_stay),
		TESTS_IN_DIR(test_missing_blob_is_an_error_each_time_and_leaves_nothing),
		TESTS_IN_DIR(test_blob_removed_after_open_stays_readable),
		TESTS_IN_DIR(test_blob_changed_while_open_is_not_served),
		TESTS_IN_DIR(test_file_cut_short_under_a_reader_is_an_error),
		TESTS_IN_DIR(test_many_threads_with_few_descriptors_read_right_bytes),
	};

	return cmocka_run_group_tests_name("fs_backing", tests, NULL, NULL);
}
