/* tests/unit/test_cas_digest.c - parsing and printing digests, names on disk */
#include "tests/lib/tests.h"

#include <errno.h>
#include <string.h>

#include "cas/digest.h"
#include "cas/store/layout.h"

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define ABC   "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static void test_digest_parses_with_each_separator(void **state)
{
	static const char *const texts[] = {ABC "/3", ABC "-3", ABC ":3"};
	char out[CAS_DIGEST_STR_SZ];

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct cas_digest d;

		assert_int_equal(cas_digest_parse(texts[i], &d), 0);
		assert_int_equal(d.size, 3);
		assert_string_equal(cas_digest_format(&d, '/', out), ABC "/3");
		assert_string_equal(CAS_DIGEST_TEXT(&d), ABC "/3");
	}
}

static void test_digest_refuses_what_is_not_one(void **state)
{
	static const char *const texts[] = {
		"",
		"/3",
		ABC,
		ABC "/",
		ABC "/-3",
		ABC "/+3",
		ABC "/03",
		ABC "/3 ",
		ABC "/3x",
		" " ABC "/3",
		ABC "/9223372036854775808",
		ABC "/99999999999999999999999",
		ABC "//3",
		ABC "0/3",
		"BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad/3",
		"ga7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad/3",
		"a7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad/3",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct cas_digest d = {.size = 77};

		assert_int_equal(cas_digest_parse(texts[i], &d), -EINVAL);
		assert_int_equal(d.size, 77);
	}
}

/* C29: the empty hash goes with size 0 and nothing else. */
static void test_empty_hash_and_size_must_agree(void **state)
{
	struct cas_digest d;

	(void)state;
	assert_int_equal(cas_digest_parse(EMPTY "/103", &d), -EINVAL);
	assert_int_equal(cas_digest_parse(ABC "/0", &d), -EINVAL);
	assert_int_equal(cas_digest_parse(EMPTY "/0", &d), 0);
	assert_true(cas_digest_is_empty(&d));
	assert_true(cas_digest_equal(&d, &cas_digest_empty));
	assert_int_equal(cas_digest_parse(ABC "/9223372036854775807", &d), 0);
	assert_string_equal(CAS_DIGEST_TEXT(&d), ABC "/9223372036854775807");
	assert_false(cas_digest_is_empty(&d));
}

static void test_compare_orders_by_hash_then_size(void **state)
{
	struct cas_digest a = {.hash = {1}, .size = 9};
	struct cas_digest b = {.hash = {2}, .size = 1};
	struct cas_digest c = {.hash = {1}, .size = 10};

	(void)state;
	assert_true(cas_digest_compare(&a, &b) < 0);
	assert_true(cas_digest_compare(&b, &a) > 0);
	assert_true(cas_digest_compare(&a, &c) < 0);
	assert_int_equal(cas_digest_compare(&a, &a), 0);
}

static void test_layout_shards_by_the_first_byte(void **state)
{
	char path[CAS_LAYOUT_PATH_SZ];
	struct cas_digest d;

	(void)state;
	assert_int_equal(cas_digest_parse(ABC "/3", &d), 0);
	cas_layout_path(d.hash, path);
	assert_string_equal(path, "ba/" ABC);
	assert_int_equal(cas_layout_shard(d.hash), 0xba);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_digest_parses_with_each_separator),
		cmocka_unit_test(test_digest_refuses_what_is_not_one),
		cmocka_unit_test(test_empty_hash_and_size_must_agree),
		cmocka_unit_test(test_compare_orders_by_hash_then_size),
		cmocka_unit_test(test_layout_shards_by_the_first_byte),
	};

	return cmocka_run_group_tests_name("cas_digest", tests, NULL, NULL);
}
