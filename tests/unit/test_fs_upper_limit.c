/* tests/unit/test_fs_upper_limit.c - what a served layer with a limit counts, and until when */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/layer.h"
#include "tests/lib/store.h"

#define TREE "mkdir -p d/e x; echo one > a; echo two > d/b; echo three > d/e/c; echo four > x/y"

static const char *const none[] = {NULL};

static void open_limited(struct tests_layer *l, void **state, struct fs_usage limit)
{
	tests_layer_open(l, *state, TREE, FS_WRITABLE_ALL, none);
	l->limit = limit;
	tests_layer_detach(l);
	tests_layer_attach(l, false);
}

/* So many more files fit, and no other. */
static void check_room(struct tests_layer *l, unsigned nr)
{
	static const char *const names[] = {"r1", "r2", "r3", "r4"};

	for (unsigned i = 0; i < nr; i++)
		assert_int_equal(tests_layer_make(l, names[i], S_IFREG), 0);
	assert_int_equal(tests_layer_make(l, names[nr], S_IFREG), -EDQUOT);
}

static void test_zeros_asked_for_beforehand_take_their_room(void **state)
{
	struct tests_layer l;
	struct fs_unode *node;

	open_limited(&l, state, (struct fs_usage){.bytes = 8192});
	assert_int_equal(tests_layer_make(&l, "f", S_IFREG), 0);
	node = tests_layer_node(&l, "f");
	assert_int_equal(fs_upper_fallocate(node, FALLOC_FL_ZERO_RANGE, 0, 16384, NULL), -EDQUOT);
	assert_int_equal(fs_upper_fallocate(node, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 4096,
					    12288, NULL),
			 -EDQUOT);
	tests_layer_close(&l);
}

static void test_an_input_written_when_removed_is_gone_when_forgotten(void **state)
{
	struct tests_layer l;
	struct fs_unode *node;

	open_limited(&l, state, (struct fs_usage){.files = 1});
	node = tests_layer_node(&l, "d/b");
	assert_int_equal(tests_layer_remove(&l, "d/b"), 0);
	assert_int_equal(fs_upper_write(node, "TWO", 3, 0, NULL), 0);
	assert_int_equal(tests_layer_make(&l, "f", S_IFREG), -EDQUOT);
	tests_layer_forget(&l);
	check_room(&l, 1);
	tests_layer_close(&l);
}

/* The first is removed while nobody has asked for the second since the restart. */
static void test_a_file_of_two_names_is_gone_with_the_second(void **state)
{
	struct tests_layer l;

	open_limited(&l, state, (struct fs_usage){.files = 1});
	assert_int_equal(tests_layer_write(&l, "f", "text"), 0);
	assert_int_equal(tests_layer_link(&l, "f", "x/g"), 0);
	tests_layer_again(&l);
	assert_non_null(tests_layer_node(&l, "f"));
	assert_int_equal(tests_layer_remove(&l, "f"), 0);
	assert_int_equal(tests_layer_make(&l, "r1", S_IFREG), -EDQUOT);
	assert_int_equal(tests_layer_remove(&l, "x/g"), 0);
	tests_layer_forget(&l);
	check_room(&l, 1);
	tests_layer_close(&l);
}

static void test_a_directory_in_place_of_a_removed_one_counts_after_a_restart(void **state)
{
	struct tests_layer l;

	open_limited(&l, state, (struct fs_usage){.files = 2});
	assert_int_equal(tests_layer_remove(&l, "x/y"), 0);
	assert_int_equal(tests_layer_remove(&l, "x"), 0);
	assert_int_equal(tests_layer_make(&l, "x", S_IFDIR), 0);
	tests_layer_again(&l);
	check_room(&l, 1);
	assert_int_equal(tests_layer_remove(&l, "r1"), 0);
	assert_int_equal(tests_layer_remove(&l, "x"), 0);
	tests_layer_forget(&l);
	check_room(&l, 2);
	tests_layer_close(&l);
}

static void test_moved_directories_of_the_tree_count_neither_before_nor_after(void **state)
{
	struct tests_layer l;

	open_limited(&l, state, (struct fs_usage){.files = 2});
	assert_int_equal(tests_layer_rename(&l, "d", "x/d", 0), 0);
	/* A directory of the tree within one that moved has a place in the layer, too. */
	assert_int_equal(tests_layer_write(&l, "x/d/e/new", "new"), 0);
	tests_layer_again(&l);
	check_room(&l, 1);
	tests_layer_close(&l);
}

/* A short one lies in its inode. */
static void test_long_links_take_a_block_each(void **state)
{
	struct tests_layer l;
	struct fs_making what = {.mode = S_IFLNK | 0777, .by = {geteuid(), getegid()}};
	char target[1000] = {0};
	struct fs_entry entry;

	memset(target, 't', sizeof(target) - 1);
	open_limited(&l, state, (struct fs_usage){.bytes = 8192});
	what.target = target;
	for (unsigned i = 0; i < 3; i++) {
		static const char *const names[] = {"l1", "l2", "l3"};
		int want = i < 2 ? 0 : -EDQUOT;

		what.name = names[i];
		assert_int_equal(fs_upper_make(tests_layer_node(&l, ""), &what, &entry, NULL),
				 want);
		if (want == 0)
			l.held[l.nr_held++] = entry;
	}
	assert_int_equal(tests_layer_make(&l, "short", S_IFLNK), 0);
	assert_int_equal(tests_layer_write(&l, "f", "text"), -EDQUOT);
	tests_layer_again(&l);
	assert_int_equal(tests_layer_write(&l, "f", "text"), -EDQUOT);
	assert_int_equal(tests_layer_remove(&l, "l1"), 0);
	tests_layer_forget(&l);
	assert_int_equal(tests_layer_write(&l, "f", "text"), 0);
	assert_int_equal(fs_upper_make(tests_layer_node(&l, ""), &what, &entry, NULL), -EDQUOT);
	tests_layer_close(&l);
}

static void *write_one(void *arg)
{
	return (void *)(intptr_t)fs_upper_write(arg, "x", 1, 0, NULL);
}

/* Each is copied without the layer's lock, and all at once. */
static void test_inputs_copied_at_once_are_no_more_than_the_limit(void **state)
{
	struct tests_layer l;
	pthread_t threads[8];
	unsigned nr = 0;

	tests_layer_open(&l, *state,
			 "for i in 1 2 3 4 5 6 7 8; do head -c 1M /dev/zero > f$i; done",
			 FS_WRITABLE_ALL, none);
	l.limit = (struct fs_usage){.files = 2};
	tests_layer_detach(&l);
	tests_layer_attach(&l, false);
	for (unsigned i = 0; i < 8; i++) {
		const char name[] = {'f', (char)('1' + i), '\0'};

		assert_int_equal(
			pthread_create(&threads[i], NULL, write_one, tests_layer_node(&l, name)),
			0);
	}
	for (unsigned i = 0; i < 8; i++) {
		void *got;

		assert_int_equal(pthread_join(threads[i], &got), 0);
		assert_true((intptr_t)got == 0 || (intptr_t)got == -EDQUOT);
		nr += (intptr_t)got == 0;
	}
	assert_int_equal(nr, 2);
	tests_layer_close(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_zeros_asked_for_beforehand_take_their_room),
		TESTS_IN_DIR(test_an_input_written_when_removed_is_gone_when_forgotten),
		TESTS_IN_DIR(test_a_file_of_two_names_is_gone_with_the_second),
		TESTS_IN_DIR(test_a_directory_in_place_of_a_removed_one_counts_after_a_restart),
		TESTS_IN_DIR(test_moved_directories_of_the_tree_count_neither_before_nor_after),
		TESTS_IN_DIR(test_long_links_take_a_block_each),
		TESTS_IN_DIR(test_inputs_copied_at_once_are_no_more_than_the_limit),
	};

	return cmocka_run_group_tests_name("fs_upper_limit", tests, NULL, NULL);
}
