/* tests/unit/test_cas_hash.c - streaming SHA-256 */
#include "tests/lib/tests.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/io.h"
#include "cas/digest.h"
#include "cas/hash.h"

#define ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad/3"
/* A million times "a": the long vector of FIPS 180-2. */
#define MILLION "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0/1000000"

static void test_known_vectors(void **state)
{
	struct cas_digest d;
	char *a = malloc(1000000);

	(void)state;
	assert_int_equal(cas_hash_bytes("abc", 3, &d), 0);
	assert_string_equal(CAS_DIGEST_TEXT(&d), ABC);
	assert_int_equal(cas_hash_bytes("", 0, &d), 0);
	assert_true(cas_digest_is_empty(&d));
	memset(a, 'a', 1000000);
	assert_int_equal(cas_hash_bytes(a, 1000000, &d), 0);
	assert_string_equal(CAS_DIGEST_TEXT(&d), MILLION);
	free(a);
}

static void test_final_starts_over(void **state)
{
	struct cas_hash *h;
	struct cas_digest d;

	(void)state;
	assert_int_equal(cas_hash_new(&h), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(cas_hash_update(h, "a", 1), 0);
		assert_int_equal(cas_hash_update(h, "bc", 2), 0);
		assert_int_equal(cas_hash_final(h, &d), 0);
		assert_string_equal(CAS_DIGEST_TEXT(&d), ABC);
	}
	cas_hash_free(h);
	cas_hash_free(NULL);
}

/* A file of @size bytes with 5 bytes at each of @nr offsets, holes elsewhere. */
static void check_sparse(off_t size, const off_t *at, int nr)
{
	auto_close int fd = memfd_create("sparse", MFD_CLOEXEC);
	unsigned char *flat = calloc(1, (size_t)size);
	struct cas_digest want;
	struct cas_digest got;

	assert_int_equal(ftruncate(fd, size), 0);
	for (int i = 0; i < nr; i++) {
		assert_int_equal(io_pwrite_full(fd, "data!", 5, at[i]), 0);
		memcpy(flat + at[i], "data!", 5);
	}
	assert_int_equal(lseek(fd, 7, SEEK_SET), 7);
	assert_int_equal(cas_hash_bytes(flat, (size_t)size, &want), 0);
	assert_int_equal(cas_hash_fd(fd, &got), 0);
	assert_string_equal(CAS_DIGEST_TEXT(&got), CAS_DIGEST_TEXT(&want));
	assert_int_equal(lseek(fd, 0, SEEK_CUR), 7);
	free(flat);
}

static void test_holes_hash_as_zeros(void **state)
{
	(void)state;
	check_sparse(3 << 20, NULL, 0);
	check_sparse((3 << 20) + 1, (const off_t[]){0}, 1);
	check_sparse(3 << 20, (const off_t[]){1 << 20}, 1);
	check_sparse(3 << 20, (const off_t[]){4096, 65535, (3 << 20) - 5}, 3);
	check_sparse(5, (const off_t[]){0}, 1);
}

static void test_update_zeros_equals_zero_bytes(void **state)
{
	struct cas_hash *h;
	struct cas_digest d;
	struct cas_digest want;
	char *zeros = calloc(1, 200001);

	(void)state;
	assert_int_equal(cas_hash_new(&h), 0);
	assert_int_equal(cas_hash_update_zeros(h, 200001), 0);
	assert_int_equal(cas_hash_final(h, &d), 0);
	assert_int_equal(cas_hash_bytes(zeros, 200001, &want), 0);
	assert_true(cas_digest_equal(&d, &want));
	cas_hash_free(h);
	free(zeros);
}

static void test_file_sizes_around_the_buffer(void **state)
{
	static const size_t sizes[] = {0, 1, 4095, 4096, 262143, 262144, 262145, 600000};
	unsigned char *data = malloc(600000);

	(void)state;
	for (size_t i = 0; i < 600000; i++)
		data[i] = (unsigned char)(i * 31 + i / 251);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		auto_close int fd = memfd_create("file", MFD_CLOEXEC);
		struct cas_digest want;
		struct cas_digest got;

		assert_int_equal(io_write_full(fd, data, sizes[i]), 0);
		assert_int_equal(cas_hash_bytes(data, sizes[i], &want), 0);
		assert_int_equal(cas_hash_fd(fd, &got), 0);
		assert_true(cas_digest_equal(&got, &want));
	}
	free(data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known_vectors),
		cmocka_unit_test(test_final_starts_over),
		cmocka_unit_test(test_holes_hash_as_zeros),
		cmocka_unit_test(test_update_zeros_equals_zero_bytes),
		cmocka_unit_test(test_file_sizes_around_the_buffer),
	};

	return cmocka_run_group_tests_name("cas_hash", tests, NULL, NULL);
}
