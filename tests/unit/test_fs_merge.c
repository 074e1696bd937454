/* tests/unit/test_fs_merge.c - what capture sees against what the kernel's overlay showed */
#include "tests/lib/tests.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cas/cas.h"
#include "tests/lib/box.h"
#include "tests/lib/store.h"

#define TREE                                                                                       \
	"mkdir -p a/b/c d/e empty; echo 1 >a/1; echo 2 >a/b/2; echo 3 >a/b/c/3; echo 4 >d/4;"      \
	"echo 5 >d/e/5; echo x >x; chmod +x x; ln -s a/1 l; ln -s a dl; : >zero"

/* Whatever is done to a root overlay: capturing "" gives the tree that was shown. */
static void check(void **state, const char *action)
{
	static const char *const outputs[] = {"", NULL};
	char want[CAS_DIGEST_STR_SZ];
	struct cas_digest root;
	struct cas_digest shown;
	struct tests_box box;
	const char *path;
	json_t *answer;

	tests_box_open(&box, *state);
	root = tests_box_tree(&box, TREE);
	path = tests_box_create(&box, "m", &root, FS_WRITABLE_ALL, outputs);
	assert_int_equal(tests_sh(path, action), 0);
	shown = tests_box_ingest(&box, path);
	assert_int_equal(tests_box_finish(&box, "m", &answer), 0);
	assert_string_equal(tests_answer_output(answer, ""), cas_digest_format(&shown, '/', want));
	json_decref(answer);
	tests_box_close(&box);
}

static void test_nothing_done_gives_the_root(void **state)
{
	check(state, "true");
}

static void test_new_and_changed_files(void **state)
{
	check(state, "echo n >n; echo more >>a/1; echo m >a/b/n; chmod +x d/4; mkdir q; echo >q/r");
}

static void test_removals_are_whiteouts(void **state)
{
	check(state, "rm x l; rm -r d/e; rm a/b/c/3; rmdir empty; rm zero");
}

static void test_directory_made_again_is_opaque(void **state)
{
	check(state, "rm -r a; mkdir -p a/b; echo n >a/b/n");
}

static void test_directory_replaced_by_file_and_back(void **state)
{
	check(state, "rm -r d; echo f >d; rm x; mkdir x; echo >x/y; rm l; mkdir l; ln -s q dl2");
}

static void test_kinds_swapped(void **state)
{
	check(state, "rm dl; mv a dl; ln -s dl a; mv d/4 x; mv l d/l");
}

static void test_renamed_directories(void **state)
{
	check(state, "mv a r; mv r/b d/b2; echo n >d/b2/n; rm d/b2/c/3; mv d z; mkdir a; mv z a/z");
}

static void test_renamed_then_old_name_taken(void **state)
{
	check(state, "mv a old; mkdir a; echo n >a/1; mv old/b a/b; mv a/b/c old/c; rmdir empty;"
		     "mv d empty; mkdir d; mv empty/e d/e");
}

static void test_renames_swap_directories(void **state)
{
	check(state, "mv a t; mv d a; mv t d; mv d/b/c a/c2; mv a/e d/b/e; rm -r d/b/e");
}

static void test_hardlinks_and_touched_inputs(void **state)
{
	check(state, "ln x x2; ln a/1 d/one; touch d/4; chmod 600 a/b/2; exec 3<>zero; exec 3>&-");
}

static void test_deep_new_tree(void **state)
{
	check(state, "i=0; while [ $i -lt 300 ]; do mkdir p; cd p; i=$((i+1)); done; echo deep >f");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_nothing_done_gives_the_root),
		TESTS_IN_DIR(test_new_and_changed_files),
		TESTS_IN_DIR(test_removals_are_whiteouts),
		TESTS_IN_DIR(test_directory_made_again_is_opaque),
		TESTS_IN_DIR(test_directory_replaced_by_file_and_back),
		TESTS_IN_DIR(test_kinds_swapped),
		TESTS_IN_DIR(test_renamed_directories),
		TESTS_IN_DIR(test_renamed_then_old_name_taken),
		TESTS_IN_DIR(test_renames_swap_directories),
		TESTS_IN_DIR(test_hardlinks_and_touched_inputs),
		TESTS_IN_DIR(test_deep_new_tree),
	};
	int status;

	if (tests_box_main(argc, argv, &status))
		return status;
	return tests_box_again(cmocka_run_group_tests_name("fs_merge", tests, NULL, NULL));
}
