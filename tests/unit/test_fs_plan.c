/* tests/unit/test_fs_plan.c - spelling of outputs, and the layers they need */
#include "tests/lib/tests.h"

#include <errno.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/sandbox/plan.h"

/* A tree as words: "d/" holds something, "e/." is an empty directory, "f" a file, "l@" a link. */
static const char *const tree_words[] = {"/",	    "src/",   "src/a.c", "src/lib/", "src/lib/h",
					 "empty/.", "tools/", "tools/t", "link@",    "src/l@"};

static int look(void *ctx, const char *path, enum fs_plan_kind *out, struct err *err)
{
	size_t len = strlen(path);

	*out = FS_PLAN_ABSENT;
	for (size_t i = 0; i < sizeof(tree_words) / sizeof(tree_words[0]); i++) {
		const char *w = tree_words[i];

		if (strncmp(w, path, len) != 0)
			continue;
		if (strcmp(w + len, "") == 0)
			*out = FS_PLAN_FILE;
		else if (strcmp(w + len, "/") == 0)
			*out = FS_PLAN_DIR;
		else if (strcmp(w + len, "/.") == 0)
			*out = FS_PLAN_EMPTY_DIR;
		else if (strcmp(w + len, "@") == 0)
			*out = FS_PLAN_SYMLINK;
		else
			continue;
		break;
	}
	return 0;
}

static const struct fs_plan_tree tree = {.look = look};

/* "B:path O:path ... | dir dir" */
static void plan_text(const struct fs_plan *plan, struct buf *out)
{
	for (size_t i = 0; i < plan->nr_layers; i++)
		assert_int_equal(buf_printf(out, "%s%s:%s", i ? " " : "",
					    plan->layers[i].kind == FS_LAYER_BIND ? "B" : "O",
					    plan->layers[i].path),
				 0);
	assert_int_equal(buf_append_str(out, " |"), 0);
	for (size_t i = 0; i < plan->nr_dirs; i++)
		assert_int_equal(buf_printf(out, " %s", plan->dirs[i]), 0);
}

struct plan_case {
	enum fs_writable writable;
	const char *outputs[5];
	const char *want;
};

static void test_shapes(void **state)
{
	static const struct plan_case cases[] = {
		{FS_WRITABLE_OUTPUTS, {NULL}, " |"},
		{FS_WRITABLE_OUTPUTS, {"out/"}, "B:out | out"},
		{FS_WRITABLE_OUTPUTS, {"a/b/c"}, "B:a | a a/b"},
		{FS_WRITABLE_OUTPUTS, {"a/b/"}, "B:a/b | a a/b"},
		{FS_WRITABLE_OUTPUTS, {"a/b/", "a/c"}, "B:a B:a/b | a a/b"},
		{FS_WRITABLE_OUTPUTS, {"out/", "out/sub/"}, "B:out B:out/sub | out out/sub"},
		{FS_WRITABLE_OUTPUTS, {"a/b/c", "a/d/e", "a!/x"}, "B:a B:a! | a a/b a/d a!"},
		{FS_WRITABLE_OUTPUTS, {"src/a.o"}, "O:src |"},
		{FS_WRITABLE_OUTPUTS, {"src/a.o", "src/lib/x.o"}, "O:src |"},
		{FS_WRITABLE_OUTPUTS, {"src/lib/x.o", "tools/y"}, "O:src/lib O:tools |"},
		{FS_WRITABLE_OUTPUTS, {"src/gen/x"}, "B:src/gen | src/gen"},
		{FS_WRITABLE_OUTPUTS, {"src/gen/x", "src/a.o"}, "O:src | src/gen"},
		{FS_WRITABLE_OUTPUTS, {"src/gen/", "src/a.o"}, "O:src B:src/gen | src/gen"},
		{FS_WRITABLE_OUTPUTS, {"src/lib/"}, "O:src/lib |"},
		{FS_WRITABLE_OUTPUTS, {"empty/x"}, "B:empty |"},
		{FS_WRITABLE_OUTPUTS, {"empty/"}, "B:empty |"},
		{FS_WRITABLE_OUTPUTS, {"empty/d/x"}, "B:empty/d | empty/d"},
		{FS_WRITABLE_OUTPUTS, {"empty/d/x", "empty/y"}, "B:empty | empty/d"},
		{FS_WRITABLE_OUTPUTS, {"top"}, "O: |"},
		{FS_WRITABLE_OUTPUTS, {""}, "O: |"},
		{FS_WRITABLE_OUTPUTS, {"top", "out/", "src/x"}, "O: B:out | out"},
		{FS_WRITABLE_OUTPUTS, {"src/a.c"}, "O:src |"},
		{FS_WRITABLE_DIRS, {NULL}, "O: |"},
		{FS_WRITABLE_DIRS, {"a/b/c"}, "O: | a a/b"},
		{FS_WRITABLE_ALL, {"out/", "src/x"}, "O: B:out | out"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		auto_buf struct buf got = {0};
		struct fs_outputs outputs;
		struct fs_plan plan;
		size_t nr = 0;

		while (cases[i].outputs[nr])
			nr++;
		assert_int_equal(fs_outputs_parse(cases[i].outputs, nr, &outputs, NULL), 0);
		assert_int_equal(fs_plan_make(&outputs, cases[i].writable, &tree, &plan, NULL), 0);
		plan_text(&plan, &got);
		if (strcmp(buf_str(&got), cases[i].want) != 0)
			fail_msg("case %zu: \"%s\", not \"%s\"", i, buf_str(&got), cases[i].want);
		fs_plan_fini(&plan);
		fs_outputs_fini(&outputs);
	}
}

static void test_parent_that_is_no_directory_is_named(void **state)
{
	static const struct {
		const char *output;
		const char *named;
	} cases[] = {
		{"src/a.c/x", "src/a.c is a file"}, {"src/a.c/x/y/", "src/a.c is a file"},
		{"link/x", "link is a symlink"},    {"src/l/", "src/l is a symlink"},
		{"tools/t/", "tools/t is a file"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fs_outputs outputs;
		struct fs_plan plan;
		struct err err = {0};

		assert_int_equal(fs_outputs_parse(&cases[i].output, 1, &outputs, NULL), 0);
		for (int w = FS_WRITABLE_OUTPUTS; w <= FS_WRITABLE_ALL; w++)
			assert_int_equal(
				fs_plan_make(&outputs, (enum fs_writable)w, &tree, &plan, &err),
				-ENOTDIR);
		assert_non_null(strstr(err.msg, cases[i].named));
		fs_outputs_fini(&outputs);
	}
}

static void test_spellings_are_normalised(void **state)
{
	static const struct {
		const char *given;
		const char *path;
		bool premade;
	} cases[] = {
		{"a", "a", false},	  {"a/", "a", true},
		{"./a", "a", false},	  {"a//b///c/", "a/b/c", true},
		{"a/./b", "a/b", false},  {"a/../b", "b", false},
		{"a/b/../..", "", false}, {"a/b/../c", "a/c", false},
		{".", "", false},	  {"", "", false},
		{"./", "", true},	  {"..a/...", "..a/...", false},
		{"a/.", "a", false},	  {"a b/\n", "a b/\n", false},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fs_outputs outputs;

		assert_int_equal(fs_outputs_parse(&cases[i].given, 1, &outputs, NULL), 0);
		assert_int_equal(outputs.nr, 1);
		assert_string_equal(outputs.out[0].path, cases[i].path);
		assert_int_equal(outputs.out[0].premade, cases[i].premade);
		fs_outputs_fini(&outputs);
	}
}

static void test_outputs_that_lead_out_are_refused(void **state)
{
	char longest[300];
	const char *const bad[] = {"/",	      "/a",	   "..",   "../a",
				   "a/../..", "a/../../a", "\xff", longest};

	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const char *given[] = {"fine", bad[i]};
		struct fs_outputs outputs;
		struct err err = {0};

		assert_int_equal(fs_outputs_parse(given, 2, &outputs, &err), -EINVAL);
		assert_non_null(strstr(err.msg, "output "));
	}
}

static void test_outputs_are_sorted_and_unique(void **state)
{
	const char *const given[] = {"d", "d-", "d/f", "d/", "b", "d/f", "d.x"};
	const char *const want[] = {"b", "d", "d/f", "d-", "d.x"};
	struct fs_outputs o;

	assert_int_equal(fs_outputs_parse(given, 7, &o, NULL), 0);
	assert_int_equal(o.nr, 5);
	for (size_t i = 0; i < 5; i++)
		assert_string_equal(o.out[i].path, want[i]);
	assert_true(o.out[1].premade);
	assert_ptr_equal(fs_outputs_find(&o, "d/f"), &o.out[2]);
	assert_null(fs_outputs_find(&o, "d/g"));
	assert_true(fs_outputs_below(&o, "d"));
	assert_true(fs_outputs_below(&o, ""));
	assert_false(fs_outputs_below(&o, "d/f"));
	fs_outputs_fini(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_parent_that_is_no_directory_is_named),
		cmocka_unit_test(test_spellings_are_normalised),
		cmocka_unit_test(test_outputs_that_lead_out_are_refused),
		cmocka_unit_test(test_outputs_are_sorted_and_unique),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
