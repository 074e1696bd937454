/* tests/unit/test_fs_missed.c - names that were looked for in vain */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/slot/missed.h"

#define NR_KEPT 16384

static struct cas_store *open_store(const char *dir)
{
	struct cas_store_options opts = {.path = tests_path(dir, "store"), .create = true};
	struct cas_store *store = NULL;
	struct err err = {0};

	if (cas_store_open(&opts, &store, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(io_mkdir_parents(cas_store_dir_fd(store), "run", 0755), 0);
	return store;
}

static void expect(struct fs_missed *missed, size_t nth, const char *want)
{
	char *got = fs_missed_get(missed, nth);

	if (want)
		assert_string_equal(got, want);
	else
		assert_null(got);
	free(got);
}

static void test_each_name_is_kept_once_in_order(void **state)
{
	struct cas_store *store = open_store(*state);
	struct fs_missed *missed;
	char *names[3];

	assert_int_equal(fs_missed_new(store, &missed), 0);
	fs_missed_note(missed, "a/b/x.h");
	fs_missed_note(missed, "top");
	fs_missed_note(missed, "a/b/x.h");
	fs_missed_note(missed, "a/b/y.h");
	fs_missed_note(missed, "a/x.h");
	fs_missed_note(missed, "a/");
	fs_missed_note(missed, "");
	expect(missed, 0, "a/b/x.h");
	expect(missed, 1, "top");
	expect(missed, 2, "a/b/y.h");
	expect(missed, 3, "a/x.h");
	expect(missed, 4, NULL);
	assert_int_equal(fs_missed_in(missed, "a/b", names, 3), 2);
	assert_string_equal(names[0], "x.h");
	assert_string_equal(names[1], "y.h");
	free(names[0]);
	free(names[1]);
	assert_int_equal(fs_missed_in(missed, "", names, 3), 1);
	assert_string_equal(names[0], "top");
	free(names[0]);
	assert_int_equal(fs_missed_in(missed, "a/b", names, 1), 1);
	free(names[0]);
	assert_int_equal(fs_missed_in(missed, "b", names, 3), 0);
	fs_missed_free(missed);
	cas_store_close(store);
}

static void test_oldest_go_when_there_are_too_many(void **state)
{
	struct cas_store *store = open_store(*state);
	struct fs_missed *missed;
	char *names[2];
	char path[64];

	assert_int_equal(fs_missed_new(store, &missed), 0);
	for (int i = 0; i < NR_KEPT + 10; i++) {
		(void)snprintf(path, sizeof(path), "dir%d/name%d", i / 2, i);
		fs_missed_note(missed, path);
	}
	expect(missed, 0, "dir5/name10");
	expect(missed, NR_KEPT - 1, "dir8196/name16393");
	expect(missed, NR_KEPT, NULL);
	assert_int_equal(fs_missed_in(missed, "dir4", names, 2), 0);
	assert_int_equal(fs_missed_in(missed, "dir5", names, 2), 2);
	free(names[0]);
	free(names[1]);
	fs_missed_free(missed);
	cas_store_close(store);
}

static void test_kept_from_one_to_the_next(void **state)
{
	struct cas_store *store = open_store(*state);
	struct fs_missed *missed;
	struct stat st;

	assert_int_equal(fs_missed_new(store, &missed), 0);
	assert_int_equal(fs_missed_save(missed, store, NULL), 0);
	assert_int_equal(fstatat(cas_store_dir_fd(store), "run/missed", &st, 0), -1);
	fs_missed_note(missed, "a/x");
	fs_missed_note(missed, "new\nline");
	assert_int_equal(fs_missed_save(missed, store, NULL), 0);
	fs_missed_free(missed);
	assert_int_equal(fs_missed_new(store, &missed), 0);
	expect(missed, 0, "a/x");
	expect(missed, 1, "new\nline");
	expect(missed, 2, NULL);
	fs_missed_free(missed);
	/* Somebody cut it: what is whole is taken. */
	assert_int_equal(truncate(tests_path(*state, "store/run/missed"), 6), 0);
	assert_int_equal(fs_missed_new(store, &missed), 0);
	expect(missed, 0, "a/x");
	expect(missed, 1, NULL);
	fs_missed_free(missed);
	cas_store_close(store);
}

#define TEST_CASE(fn) cmocka_unit_test_setup_teardown(fn, tests_dir_setup, tests_dir_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST_CASE(test_each_name_is_kept_once_in_order),
		TEST_CASE(test_oldest_go_when_there_are_too_many),
		TEST_CASE(test_kept_from_one_to_the_next),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
