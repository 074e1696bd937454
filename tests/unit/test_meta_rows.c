/* tests/unit/test_meta_rows.c - rows as text */
#include "tests/lib/tests.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/hash.h"
#include "meta/ledger/queue.h"
#include "meta/ledger/rows.h"

static struct cas_digest digest_of(const char *text)
{
	struct cas_digest d;

	assert_int_equal(cas_hash_bytes(text, strlen(text), &d), 0);
	return d;
}

/* Format @row, free it, parse the text, check that one row came back. */
static struct meta_row *round_trip(struct meta_row *row, char *text, size_t text_sz)
{
	auto_buf struct buf b = {0};
	struct meta_row *out;
	bool sync;

	assert_int_equal(meta_rows_format(&b, row), 0);
	meta_row_free(row);
	assert_true(b.len > 0 && b.len < text_sz);
	memcpy(text, buf_str(&b), b.len + 1);
	assert_int_equal(strspn(text, "0123456789abcdeforst/,;-!"), strlen(text));
	assert_int_equal(meta_rows_parse(text, b.len, &out, &sync, NULL), 0);
	assert_false(sync);
	assert_non_null(out);
	assert_null(out->next);
	return out;
}

static void test_blob_rows_round_trip(void **state)
{
	struct cas_digest digest = digest_of("blob");
	struct meta_row *row = meta_row_new(META_ROW_BLOB, &digest);
	char text[512];

	row->has_stamp = true;
	row->stamp = (struct cas_stamp){UINT64_MAX, digest.size, -1, INT64_MAX, 77};
	row = round_trip(row, text, sizeof(text));
	assert_int_equal(row->kind, META_ROW_BLOB);
	assert_true(cas_digest_equal(&row->digest, &digest));
	assert_true(row->has_stamp);
	assert_true(row->stamp.ino == UINT64_MAX);
	assert_int_equal(row->stamp.size, digest.size);
	assert_int_equal(row->stamp.mtime_ns, -1);
	assert_true(row->stamp.ctime_ns == INT64_MAX);
	assert_int_equal(row->stamp.blocks, 77);
	meta_row_free(row);

	row = round_trip(meta_row_new(META_ROW_BLOB, &digest), text, sizeof(text));
	assert_int_equal(row->kind, META_ROW_BLOB);
	assert_false(row->has_stamp);
	meta_row_free(row);
}

static void test_file_rows_round_trip(void **state)
{
	struct cas_digest digest = digest_of("file");
	struct meta_row *row = meta_row_new(META_ROW_FILE, &digest);
	char text[512];

	row->file = (struct cas_file_id){.dev = 1, .ino = 2, .size = 4, .mtime_ns = 3};
	row = round_trip(row, text, sizeof(text));
	assert_int_equal(row->kind, META_ROW_FILE);
	assert_int_equal(row->file.dev, 1);
	assert_int_equal(row->file.ino, 2);
	assert_int_equal(row->file.size, 4);
	assert_int_equal(row->file.mtime_ns, 3);
	assert_int_equal(row->file.ctime_ns, 0);
	assert_true(cas_digest_equal(&row->digest, &digest));
	meta_row_free(row);
}

static void test_sandbox_rows_carry_any_name(void **state)
{
	struct meta_row *row = meta_row_new(META_ROW_SANDBOX, NULL);
	char text[512];

	row->sandbox = (struct meta_row_sandbox){
		.id = strdup("o'd\";$(x)\n\xff"),
		.root = strdup(""),
		.state = strdup("live"),
		.created_ns = 1,
		.exit_code = -9,
	};
	row = round_trip(row, text, sizeof(text));
	assert_string_equal(row->sandbox.id, "o'd\";$(x)\n\xff");
	assert_string_equal(row->sandbox.root, "");
	assert_string_equal(row->sandbox.state, "live");
	assert_int_equal(row->sandbox.created_ns, 1);
	assert_int_equal(row->sandbox.finished_ns, 0);
	assert_int_equal(row->sandbox.exit_code, -9);
	meta_row_free(row);
}

static void test_origin_rows_carry_any_name(void **state)
{
	struct cas_digest digest = digest_of("brought");
	struct meta_row *row = meta_row_new(META_ROW_CAME, &digest);
	char text[512];

	row->came.source = strdup("s3://b/k?x=1;y,z'");
	row->came.when_ns = INT64_MAX;
	row = round_trip(row, text, sizeof(text));
	assert_int_equal(row->kind, META_ROW_CAME);
	assert_true(cas_digest_equal(&row->digest, &digest));
	assert_string_equal(row->came.source, "s3://b/k?x=1;y,z'");
	assert_true(row->came.when_ns == INT64_MAX);
	meta_row_free(row);
}

static void test_several_rows_keep_their_order(void **state)
{
	static const enum meta_row_kind kinds[] = {META_ROW_TOUCH, META_ROW_DROP, META_ROW_TREE,
						   META_ROW_TOUCH};
	struct cas_digest digest = digest_of("x");
	auto_buf struct buf b = {0};
	struct meta_row *rows, *next;
	bool sync;

	for (int i = 0; i < 4; i++) {
		struct meta_row *row = meta_row_new(kinds[i], &digest);

		assert_int_equal(meta_rows_format(&b, row), 0);
		meta_row_free(row);
	}
	assert_int_equal(buf_append_str(&b, "!"), 0);
	assert_int_equal(meta_rows_parse(b.data, b.len, &rows, &sync, NULL), 0);
	assert_true(sync);
	for (int i = 0; i < 4; i++, rows = next) {
		assert_int_equal(rows->kind, kinds[i]);
		next = rows->next;
		meta_row_free(rows);
	}
	assert_null(rows);
}

#define HASH "11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437"

static void test_malformed_rows_are_refused_as_a_whole(void **state)
{
	static const char *const bad[] = {
		"",
		";",
		"b",
		"b,",
		"x," HASH "/3",
		"t," HASH,
		"t," HASH "/",
		"t," HASH "/03",
		"t," HASH "/-3",
		"t," HASH ":3",
		"t," HASH "/3,",
		"t, " HASH "/3",
		"t," HASH "/0",
		"t," HASH "/9223372036854775808",
		"t,11507A0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437/3",
		"t," HASH "/3;;",
		"t," HASH "/3;t",
		"t," HASH "/3\n",
		"b," HASH "/3,1",
		"b," HASH "/3,1,2",
		"b," HASH "/3,1,2,3",
		"b," HASH "/3,1,2,3,4,5",
		"b," HASH "/3,1,2,3,-4",
		"b," HASH "/3,-1,2,3,4",
		"b," HASH "/3,18446744073709551616,2,3,4",
		"b," HASH "/3,1,9223372036854775808,3,4",
		"b," HASH "/3,1,-0,3,4",
		"b," HASH "/3,1,+2,3,4",
		"b," HASH "/3,1,,3,4",
		"f,1,2,3,4",
		"f,1,2,3,4," HASH "/3,5",
		"s,6g,,,1,2,3",
		"s,616,,,1,2,3",
		"s,00,,,1,2,3",
		"s,61,,,1,2,99999999999",
		"!!",
	};
	struct meta_row *untouched = (struct meta_row *)(uintptr_t)16, *rows = untouched;
	bool sync = false;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct err err = {0};
		int ret = meta_rows_parse(bad[i], strlen(bad[i]), &rows, &sync, &err);

		if (ret != -EINVAL)
			print_error("accepted: %s\n", bad[i]);
		assert_int_equal(ret, -EINVAL);
		assert_true(err.msg[0] != '\0');
		assert_ptr_equal(rows, untouched);
	}
	assert_int_equal(meta_rows_parse("t," HASH "/3\0", 69, &rows, &sync, NULL), -EINVAL);
}

static void test_too_long_a_text_is_refused(void **state)
{
	size_t len = META_ROWS_MAX + 1;
	char *text = malloc(len);
	struct meta_row *rows;
	bool sync;

	assert_non_null(text);
	memset(text, '!', len);
	for (size_t i = 1; i < len; i += 2)
		text[i] = ';';
	assert_int_equal(meta_rows_parse(text, len, &rows, &sync, NULL), -EINVAL);
	assert_int_equal(meta_rows_parse(text, len - 1, &rows, &sync, NULL), 0);
	assert_null(rows);
	assert_true(sync);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blob_rows_round_trip),
		cmocka_unit_test(test_file_rows_round_trip),
		cmocka_unit_test(test_sandbox_rows_carry_any_name),
		cmocka_unit_test(test_origin_rows_carry_any_name),
		cmocka_unit_test(test_several_rows_keep_their_order),
		cmocka_unit_test(test_malformed_rows_are_refused_as_a_whole),
		cmocka_unit_test(test_too_long_a_text_is_refused),
	};

	return cmocka_run_group_tests_name("meta_rows", tests, NULL, NULL);
}
