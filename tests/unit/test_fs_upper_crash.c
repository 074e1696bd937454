/* tests/unit/test_fs_upper_crash.c - a served layer whose daemon died between any two steps of a
 * change */
#include "tests/lib/tests.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/upper/disk.h"
#include "tests/lib/fault.h"
#include "tests/lib/layer.h"
#include "tests/lib/store.h"

#define TREE	  "mkdir -p d/e x; echo one > a; echo two > d/b; echo three > d/e/c; echo four > x/y"
#define EXIT_DIED 99
#define STEPS_MAX 100

static const char *const none[] = {NULL};

/* What is done first, and what the daemon dies in. */
struct scenario {
	int (*before)(struct tests_layer *l); /* NULL: nothing */
	int (*change)(struct tests_layer *l);
};

/* In a process of its own, as far as step @nth, or to the end; what is shown then. */
static char *shown_after(struct tests_layer *l, const struct scenario *s, bool change, unsigned nth,
			 bool after, bool *died)
{
	char *shown;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		tests_layer_attach(l, false);
		if (s->before && s->before(l) < 0)
			_exit(3);
		/* Nothing is in use, as after a while. */
		tests_layer_forget(l);
		if (nth > 0)
			fault_exit(nth, after);
		if (change && s->change(l) < 0)
			_exit(4);
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	*died = WEXITSTATUS(status) == EXIT_DIED;
	assert_true(*died || WEXITSTATUS(status) == 0);
	tests_layer_attach(l, true);
	shown = tests_layer_shown(l);
	assert_int_equal(tests_count_names(tests_path(l->dir, "layer/w")), 0);
	tests_layer_detach(l);
	return shown;
}

/* Wherever it dies the layer shows what was, or what was to be. */
static void check(void **state, const struct scenario *s)
{
	struct tests_layer l;
	auto_free char *old = NULL;
	auto_free char *new = NULL;
	unsigned nth = 0;
	bool died = false;

	tests_layer_open(&l, *state, TREE, FS_WRITABLE_ALL, none);
	tests_layer_detach(&l);
	old = shown_after(&l, s, false, 0, false, &died);
	new = shown_after(&l, s, true, 0, false, &died);
	assert_string_not_equal(old, new);
	do {
		nth++;
		for (int after = 0; after < 2; after++) {
			auto_free char *shown = shown_after(&l, s, true, nth, after, &died);

			if (strcmp(shown, old) != 0 && strcmp(shown, new) != 0)
				fail_msg("died %s step %u: shown is\n%s",
					 after ? "after" : "before", nth, shown);
			if (!died)
				assert_string_equal(shown, new);
		}
	} while (died && nth < STEPS_MAX);
	assert_true(nth > 1 && nth < STEPS_MAX);
	fs_outputs_fini(&l.outputs);
}

static int write_input(struct tests_layer *l)
{
	return tests_layer_write(l, "d/e/c", "THREE");
}

static int remove_input(struct tests_layer *l)
{
	return tests_layer_remove(l, "d/e/c");
}

static int remove_a(struct tests_layer *l)
{
	return tests_layer_remove(l, "a");
}

static int make_file_a(struct tests_layer *l)
{
	return tests_layer_make(l, "a", S_IFREG);
}

static int make_dir_a(struct tests_layer *l)
{
	return tests_layer_make(l, "a", S_IFDIR);
}

static int remove_e(struct tests_layer *l)
{
	int ret = tests_layer_remove(l, "d/e/c");

	return ret < 0 ? ret : tests_layer_remove(l, "d/e");
}

static int make_dir_e(struct tests_layer *l)
{
	return tests_layer_make(l, "d/e", S_IFDIR);
}

static int move_file(struct tests_layer *l)
{
	return tests_layer_rename(l, "a", "x/a", 0);
}

static int replace_file(struct tests_layer *l)
{
	return tests_layer_rename(l, "a", "d/e/c", 0);
}

static int swap_files(struct tests_layer *l)
{
	return tests_layer_rename(l, "a", "d/e/c", RENAME_EXCHANGE);
}

static int move_dir(struct tests_layer *l)
{
	return tests_layer_rename(l, "d", "x/d", 0);
}

static int swap_dirs(struct tests_layer *l)
{
	return tests_layer_rename(l, "d", "x", RENAME_EXCHANGE);
}

static int replace_dir(struct tests_layer *l)
{
	return tests_layer_rename(l, "d", "x", 0);
}

static int empty_x(struct tests_layer *l)
{
	return tests_layer_remove(l, "x/y");
}

static int remove_x(struct tests_layer *l)
{
	int ret = empty_x(l);

	return ret < 0 ? ret : tests_layer_remove(l, "x");
}

static int make_dir(struct tests_layer *l)
{
	int ret = empty_x(l);

	if (ret == 0)
		ret = tests_layer_make(l, "n", S_IFDIR);
	return ret < 0 ? ret : tests_layer_write(l, "n/f", "f");
}

static int replace_by_new_dir(struct tests_layer *l)
{
	return tests_layer_rename(l, "n", "x", 0);
}

static int link_input(struct tests_layer *l)
{
	return tests_layer_link(l, "a", "x/a");
}

#define CRASH_TEST(name, ...)                                                                      \
	static void name(void **state)                                                             \
	{                                                                                          \
		check(state, &(struct scenario){__VA_ARGS__});                                     \
	}

CRASH_TEST(test_death_in_a_first_write, NULL, write_input)
CRASH_TEST(test_death_in_the_removal_of_an_input, NULL, remove_input)
CRASH_TEST(test_death_in_the_removal_of_a_changed_input, write_input, remove_input)
CRASH_TEST(test_death_in_making_a_file_that_was_removed, remove_a, make_file_a)
CRASH_TEST(test_death_in_making_a_directory_in_place_of_a_file, remove_a, make_dir_a)
CRASH_TEST(test_death_in_making_a_directory_that_was_removed, remove_e, make_dir_e)
CRASH_TEST(test_death_in_moving_an_input, NULL, move_file)
CRASH_TEST(test_death_in_replacing_an_input, NULL, replace_file)
CRASH_TEST(test_death_in_swapping_inputs, NULL, swap_files)
CRASH_TEST(test_death_in_moving_a_directory, NULL, move_dir)
CRASH_TEST(test_death_in_swapping_directories, NULL, swap_dirs)
CRASH_TEST(test_death_in_replacing_an_emptied_directory, empty_x, replace_dir)
CRASH_TEST(test_death_in_replacing_a_removed_directory, remove_x, replace_dir)
CRASH_TEST(test_death_in_replacing_one_by_a_new_directory, make_dir, replace_by_new_dir)
CRASH_TEST(test_death_in_a_link_to_an_input, NULL, link_input)

/* A recovery that was killed itself leaves more in w, with the names of its own. */
static void test_death_in_a_recovery_stops_no_later_one(void **state)
{
	struct tests_layer l;
	auto_free char *shown = NULL;
	const char *left;

	tests_layer_open(&l, *state, TREE, FS_WRITABLE_ALL, none);
	tests_layer_detach(&l);
	assert_int_equal(symlink("/+1 a", tests_path(l.dir, "layer/w/" FS_WORK_RENAME)), 0);
	for (unsigned i = 0; i < 4; i++) {
		auto_free char *name = NULL;

		assert_true(asprintf(&name, "layer/w/t%" PRIu64, (uint64_t)UINT32_MAX + i) > 0);
		left = tests_path(l.dir, name);
		assert_int_equal(mkdir(left, 0755), 0);
	}
	tests_layer_attach(&l, true);
	shown = tests_layer_shown(&l);
	assert_string_equal(shown, "d/\nd/b: two\nd/e/\nd/e/c: three\nx/\nx/y: four\n");
	assert_int_equal(tests_count_names(tests_path(l.dir, "layer/w")), 0);
	tests_layer_close(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_death_in_a_first_write),
		TESTS_IN_DIR(test_death_in_the_removal_of_an_input),
		TESTS_IN_DIR(test_death_in_the_removal_of_a_changed_input),
		TESTS_IN_DIR(test_death_in_making_a_file_that_was_removed),
		TESTS_IN_DIR(test_death_in_making_a_directory_in_place_of_a_file),
		TESTS_IN_DIR(test_death_in_making_a_directory_that_was_removed),
		TESTS_IN_DIR(test_death_in_moving_an_input),
		TESTS_IN_DIR(test_death_in_replacing_an_input),
		TESTS_IN_DIR(test_death_in_swapping_inputs),
		TESTS_IN_DIR(test_death_in_moving_a_directory),
		TESTS_IN_DIR(test_death_in_swapping_directories),
		TESTS_IN_DIR(test_death_in_replacing_an_emptied_directory),
		TESTS_IN_DIR(test_death_in_replacing_a_removed_directory),
		TESTS_IN_DIR(test_death_in_replacing_one_by_a_new_directory),
		TESTS_IN_DIR(test_death_in_a_link_to_an_input),
		TESTS_IN_DIR(test_death_in_a_recovery_stops_no_later_one),
	};

	return cmocka_run_group_tests_name("fs_upper_crash", tests, NULL, NULL);
}
