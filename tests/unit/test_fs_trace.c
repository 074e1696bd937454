/* tests/unit/test_fs_trace.c - the recorder of one sandbox, and its file */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/trace/trace.h"
#include "tests/lib/tests.h"

/* Paths and their bits as they come, each with a space behind. */
static int join_path(void *ctx, const char *path, unsigned bits)
{
	return buf_printf(ctx, "%s=%u ", path, bits);
}

static int join_remark(void *ctx, const char *text)
{
	return buf_printf(ctx, "%s;", text);
}

static void assert_paths(struct fs_trace *trace, unsigned what, const char *want)
{
	auto_buf struct buf got = {0};

	assert_int_equal(fs_trace_each(trace, what, join_path, &got), 0);
	assert_string_equal(buf_str(&got), want);
}

static struct fs_trace *trace_new(enum fs_trace_kind kind)
{
	struct fs_trace *trace = NULL;

	assert_int_equal(fs_trace_new(kind, &trace), 0);
	return trace;
}

static void test_kinds_have_their_names_and_no_others(void **state)
{
	enum fs_trace_kind kind = FS_TRACE_OFF;

	(void)state;
	for (int i = FS_TRACE_OFF; i <= FS_TRACE_EXACT; i++) {
		assert_int_equal(
			fs_trace_kind_parse(fs_trace_kind_name((enum fs_trace_kind)i), &kind), 0);
		assert_int_equal((int)kind, i);
	}
	assert_int_equal(fs_trace_kind_parse("all", &kind), -EINVAL);
	assert_int_equal((int)kind, FS_TRACE_EXACT);
}

static void test_a_path_is_kept_once_and_bits_add_up(void **state)
{
	struct fs_trace *trace = trace_new(FS_TRACE_EXACT);

	(void)state;
	fs_trace_note(trace, FS_TRACE_LOOKED, "b", "c");
	fs_trace_note(trace, FS_TRACE_LISTED, "", "");
	fs_trace_note(trace, FS_TRACE_LOOKED, "", "a");
	fs_trace_note(trace, FS_TRACE_READ, "b", "c");
	fs_trace_note(trace, FS_TRACE_MISSED, "", "z");
	assert_paths(trace, ~0u, "=8 a=1 b/c=5 z=2 ");
	assert_paths(trace, FS_TRACE_READ, "b/c=5 ");
	assert_int_equal(fs_trace_bits(trace, "b/c"), 5);
	assert_int_equal(fs_trace_bits(trace, "b"), 0);
	assert_int_equal(fs_trace_count(trace, FS_TRACE_LOOKED), 2);
	fs_trace_unref(trace);
}

static void test_what_does_not_fit_is_told(void **state)
{
	struct fs_trace *trace = trace_new(FS_TRACE_NAMES);
	auto_buf struct buf remarks = {0};
	char dir[4001];
	char name[32];

	(void)state;
	memset(dir, 'd', sizeof(dir) - 1);
	dir[sizeof(dir) - 1] = '\0';
	for (int i = 0; i < 20000; i++) {
		(void)snprintf(name, sizeof(name), "%d", i);
		fs_trace_note(trace, FS_TRACE_LOOKED, dir, name);
	}
	assert_true(fs_trace_count(trace, FS_TRACE_LOOKED) < 20000);
	assert_true(fs_trace_count(trace, FS_TRACE_LOOKED) > 10000);
	assert_int_equal(fs_trace_each_remark(trace, join_remark, &remarks), 0);
	assert_string_equal(buf_str(&remarks), "more names than are kept: this is not all;");
	assert_true(fs_trace_is_lossy(trace));
	fs_trace_unref(trace);
}

static void test_a_file_brings_all_of_it_back(void **state)
{
	const char *dir = *state;
	auto_close int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct fs_trace *trace = trace_new(FS_TRACE_READS);
	struct fs_trace *back = NULL;
	auto_buf struct buf remarks = {0};
	struct err err = {0};

	assert_int_equal(fs_trace_load(fd, &back, &err), -ENOENT);
	fs_trace_lower(trace);
	fs_trace_remark(trace, "one");
	fs_trace_remark(trace, "one");
	fs_trace_note(trace, FS_TRACE_READ, "a", "with space\nand newline");
	fs_trace_note(trace, FS_TRACE_MADE | FS_TRACE_DIR, "", "# x");
	assert_int_equal(fs_trace_save(trace, fd, &err), 0);
	fs_trace_unref(trace);
	assert_int_equal(fs_trace_load(fd, &back, &err), 0);
	assert_int_equal(fs_trace_kind_of(back), FS_TRACE_NAMES);
	assert_paths(back, ~0u, "# x=144 a/with space\nand newline=4 ");
	assert_int_equal(fs_trace_each_remark(back, join_remark, &remarks), 0);
	assert_string_equal(buf_str(&remarks),
			    "reads was asked for, but we are not told of opens here;one;");
	assert_false(fs_trace_is_lossy(back));
	/* What was lost before stays lost. */
	fs_trace_lose(back, "two");
	assert_int_equal(fs_trace_save(back, fd, &err), 0);
	fs_trace_unref(back);
	assert_int_equal(fs_trace_load(fd, &back, &err), 0);
	assert_true(fs_trace_is_lossy(back));
	assert_paths(back, ~0u, "# x=144 a/with space\nand newline=4 ");
	fs_trace_unref(back);
}

static void test_a_damaged_file_is_no_trace(void **state)
{
	static const char *const damaged[] = {
		"",
		"casbox-trace 1",
		"casbox-trace 2\0exact",
		"casbox-trace 1\0some",
		"casbox-trace 1\0exact\0nonsense",
		("casbox-trace 1\0exact\0"
		 "999 a"),
	};
	static const size_t len[] = {0, 15, 21, 20, 30, 27};
	const char *dir = *state;
	auto_close int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (size_t i = 0; i < sizeof(damaged) / sizeof(damaged[0]); i++) {
		struct fs_trace *trace = NULL;
		struct err err = {0};

		assert_int_equal(
			io_overwrite_file(fd, FS_TRACE_NAME, damaged[i], len[i], 0600, false), 0);
		assert_int_equal(fs_trace_load(fd, &trace, &err), -EUCLEAN);
		assert_null(trace);
	}
}

#define TEST_CASE(fn) cmocka_unit_test_setup_teardown(fn, tests_dir_setup, tests_dir_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kinds_have_their_names_and_no_others),
		cmocka_unit_test(test_a_path_is_kept_once_and_bits_add_up),
		cmocka_unit_test(test_what_does_not_fit_is_told),
		TEST_CASE(test_a_file_brings_all_of_it_back),
		TEST_CASE(test_a_damaged_file_is_no_trace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
