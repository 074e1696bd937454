/* tests/unit/test_fs_hints.c - what is known of files that were hashed ahead */
#include "tests/lib/tests.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/capture/hints.h"

static void never(void *ctx)
{
	(void)ctx;
	fail();
}

/* A file of sandbox @id with inode number @ino and a digest that tells it. */
static struct stat hashed(struct fs_hints *hints, const char *id, unsigned ino)
{
	struct stat st = {.st_dev = 1, .st_ino = ino, .st_size = 10};
	struct fs_early_hint hint = {.known.st = st};

	hint.known.digest.size = ino;
	assert_true(fs_hints_begin(hints, id, -1, &st));
	fs_hints_end(hints, &st, &hint);
	return st;
}

static uint64_t nr_known(struct fs_hints *hints)
{
	struct fs_early_counts counts;

	fs_hints_count(hints, &counts);
	return counts.nr_known;
}

static void test_files_are_forgotten_with_their_sandbox(void **state)
{
	struct fs_hints *hints;
	struct fs_early_hint got;
	struct stat one, other;

	(void)state;
	assert_int_equal(fs_hints_new(&hints), 0);
	fs_hints_forget(hints, "never heard of");
	for (unsigned i = 1; i < 1000; i++)
		one = hashed(hints, "one", i);
	other = hashed(hints, "other", 5000);
	assert_int_equal(nr_known(hints), 1000);
	assert_int_equal(fs_hints_find(hints, &one, never, NULL, &got), 1);
	assert_int_equal(got.known.digest.size, 999);
	fs_hints_forget(hints, "one");
	assert_int_equal(nr_known(hints), 1);
	assert_int_equal(fs_hints_find(hints, &one, never, NULL, &got), 0);
	assert_int_equal(fs_hints_find(hints, &other, never, NULL, &got), 1);
	assert_int_equal(got.known.digest.size, 5000);
	fs_hints_forget(hints, "other");
	assert_int_equal(nr_known(hints), 0);
	fs_hints_free(hints);
}

/* The inode number of a file that is gone serves another sandbox. */
static void test_a_file_belongs_to_who_wrote_it_last(void **state)
{
	struct fs_hints *hints;
	struct fs_early_hint got;
	struct stat st;

	(void)state;
	assert_int_equal(fs_hints_new(&hints), 0);
	st = hashed(hints, "one", 7);
	st.st_size = 11;
	assert_true(fs_hints_begin(hints, "other", -1, &st));
	fs_hints_end(hints, &st, &(struct fs_early_hint){.known.st = st});
	fs_hints_forget(hints, "one");
	assert_int_equal(fs_hints_find(hints, &st, never, NULL, &got), 1);
	fs_hints_forget(hints, "other");
	assert_int_equal(nr_known(hints), 0);
	fs_hints_free(hints);
}

static void test_one_that_is_being_hashed_stays_until_then(void **state)
{
	struct stat st = {.st_dev = 1, .st_ino = 7, .st_size = 10};
	struct fs_hints *hints;

	(void)state;
	assert_int_equal(fs_hints_new(&hints), 0);
	(void)hashed(hints, "one", 1);
	assert_true(fs_hints_begin(hints, "one", -1, &st));
	fs_hints_forget(hints, "one");
	assert_int_equal(nr_known(hints), 1);
	fs_hints_end(hints, &st, NULL);
	fs_hints_forget(hints, "one");
	assert_int_equal(nr_known(hints), 0);
	fs_hints_free(hints);
}

/* Past 32,768 the oldest go, and sandboxes of which nothing is known with them. */
static void test_the_oldest_go_first(void **state)
{
	struct fs_hints *hints;
	struct fs_early_hint got;
	struct stat first, last;

	(void)state;
	assert_int_equal(fs_hints_new(&hints), 0);
	first = hashed(hints, "first", 1);
	for (unsigned i = 2; i <= 32769; i++)
		last = hashed(hints, "second", i);
	assert_int_equal(nr_known(hints), 32768);
	assert_int_equal(fs_hints_find(hints, &first, never, NULL, &got), 0);
	assert_int_equal(fs_hints_find(hints, &last, never, NULL, &got), 1);
	fs_hints_forget(hints, "first");
	fs_hints_forget(hints, "second");
	assert_int_equal(nr_known(hints), 0);
	fs_hints_free(hints);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files_are_forgotten_with_their_sandbox),
		cmocka_unit_test(test_a_file_belongs_to_who_wrote_it_last),
		cmocka_unit_test(test_one_that_is_being_hashed_stays_until_then),
		cmocka_unit_test(test_the_oldest_go_first),
	};

	return cmocka_run_group_tests_name("fs_hints", tests, NULL, NULL);
}
