/* tests/unit/test_fs_record.c - what is on disk about a sandbox */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/sandbox/record.h"
#include "tests/lib/store.h"

static void fill(struct fs_record *rec)
{
	memset(rec, 0, sizeof(*rec));
	rec->id = strdup("job-1");
	rec->boot_id = strdup("boot");
	rec->cgroup = strdup("/sys/fs/cgroup/casbox-1");
	rec->root = cas_digest_empty;
	rec->writable = FS_WRITABLE_DIRS;
	rec->state = FS_SANDBOX_LIVE;
	rec->unlisted = true;
	rec->attached = true;
	rec->created_ns = 1234567890123456789;
	rec->given = calloc(2, sizeof(*rec->given));
	rec->given[0] = strdup("out//");
	rec->given[1] = strdup("\xc3\xa4 \"x\"\n");
	rec->nr_given = 2;
	rec->plan.layers = calloc(2, sizeof(*rec->plan.layers));
	rec->plan.layers[0].kind = FS_LAYER_OVERLAY;
	rec->plan.layers[0].path = strdup("");
	rec->plan.layers[1].kind = FS_LAYER_BIND;
	rec->plan.layers[1].path = strdup("out/b");
	rec->plan.nr_layers = 2;
}

static int dir_open(void **state)
{
	return open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void test_round_trip(void **state)
{
	auto_close int fd = dir_open(state);
	struct fs_record a;
	struct fs_record b;

	fill(&a);
	assert_int_equal(fs_record_write(&a, fd, false, NULL), 0);
	assert_int_equal(tests_count_names(*state), 1);
	assert_int_equal(fs_record_read(fd, &b, NULL), 0);
	assert_string_equal(b.id, a.id);
	assert_string_equal(b.boot_id, a.boot_id);
	assert_string_equal(b.cgroup, a.cgroup);
	assert_true(cas_digest_equal(&b.root, &a.root));
	assert_int_equal(b.writable, a.writable);
	assert_int_equal(b.state, a.state);
	assert_true(b.unlisted);
	assert_true(b.attached);
	assert_int_equal(b.created_ns, a.created_ns);
	assert_int_equal(b.nr_given, 2);
	assert_string_equal(b.given[0], a.given[0]);
	assert_string_equal(b.given[1], a.given[1]);
	assert_int_equal(b.plan.nr_layers, 2);
	assert_int_equal(b.plan.layers[0].kind, FS_LAYER_OVERLAY);
	assert_string_equal(b.plan.layers[1].path, "out/b");
	fs_record_fini(&a);
	fs_record_fini(&b);
}

static void test_damaged_records_are_refused(void **state)
{
	static const char *const edits[][2] = {
		{"\"version\":1", "\"version\":2"},
		{"\"job-1\"", "\"../x\""},
		{"\"live\"", "\"alive\""},
		{"\"overlay\"", "\"fuse\""},
		{"\"out/b\"", "\"../b\""},
		{"\"out/b\"", "\"/b\""},
		{"\"dirs\"", "\"none\""},
		{"\"root\"", "\"toor\""},
		{"{", ""},
		{"}", ""},
	};
	auto_close int fd = dir_open(state);
	struct fs_record rec;

	fill(&rec);
	for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
		auto_buf struct buf text = {0};
		auto_buf struct buf bad = {0};
		struct fs_record got = {0};
		struct err err = {0};
		char *at;

		assert_int_equal(fs_record_write(&rec, fd, false, NULL), 0);
		assert_int_equal(io_read_file(fd, FS_RECORD_NAME, 1 << 20, &text), 0);
		at = strstr(text.data, edits[i][0]);
		assert_non_null(at);
		*at = '\0';
		assert_int_equal(buf_printf(&bad, "%s%s%s", text.data, edits[i][1],
					    at + strlen(edits[i][0])),
				 0);
		assert_int_equal(
			io_replace_file(fd, FS_RECORD_NAME, bad.data, bad.len, 0600, false), 0);
		assert_int_equal(fs_record_read(fd, &got, &err), -EUCLEAN);
		assert_null(got.id);
		assert_int_equal(err.code, -EUCLEAN);
	}
	fs_record_fini(&rec);
}

static void test_truncated_records_are_refused(void **state)
{
	auto_close int fd = dir_open(state);
	auto_buf struct buf text = {0};
	struct fs_record rec;

	fill(&rec);
	assert_int_equal(fs_record_read(fd, &rec, NULL), -ENOENT);
	assert_int_equal(fs_record_write(&rec, fd, true, NULL), 0);
	assert_int_equal(io_read_file(fd, FS_RECORD_NAME, 1 << 20, &text), 0);
	for (size_t len = 0; len < text.len - 1; len += 7) {
		struct fs_record got = {0};

		assert_int_equal(io_replace_file(fd, FS_RECORD_NAME, text.data, len, 0600, false),
				 0);
		assert_int_equal(fs_record_read(fd, &got, NULL), -EUCLEAN);
	}
	fs_record_fini(&rec);
}

static void test_ids(void **state)
{
	char longest[130];
	const char *const good[] = {"a", "A.b_c+d-9", "-x", "0"};
	const char *const bad[] = {"",	  ".",	      "..", ".x",  "a/b",  "a b",
				   "a\n", "\xc3\xa4", "--", "--x", longest};

	memset(longest, 'x', 129);
	longest[129] = '\0';
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_int_equal(fs_sandbox_id_check(good[i], NULL), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct err err = {0};

		assert_int_equal(fs_sandbox_id_check(bad[i], &err), -EINVAL);
		assert_non_null(strstr(err.msg, "sandbox id"));
	}
	longest[128] = '\0';
	assert_int_equal(fs_sandbox_id_check(longest, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_round_trip),
		TESTS_IN_DIR(test_damaged_records_are_refused),
		TESTS_IN_DIR(test_truncated_records_are_refused),
		TESTS_IN_DIR(test_ids),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
