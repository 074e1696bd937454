/* tests/unit/test_cas_copy.c - the copy ladder under every refusal (C30) */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/watch.h"
#include "cas/digest.h"
#include "cas/hash.h"
#include "cas/put/copy.h"
#include "tests/lib/fault.h"
#include "tests/lib/store.h"

static const size_t sizes[] = {0,      1, 4095, 4096, 4097, (1 << 20) - 1, 1 << 20, (1 << 20) + 1,
			       2500000};
#define NR_SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define MAX_SIZE 2500000

static int open_new(const char *dir, const char *name)
{
	int fd;

	tests_write_file(tests_path(dir, name), "", 0, 0600);
	fd = open(tests_path(dir, name), O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void assert_content(int fd, const unsigned char *data, size_t len)
{
	unsigned char *got = malloc(len + 1);

	assert_int_equal(io_pread_full(fd, got, len + 1, 0), (int)len);
	assert_memory_equal(got, data, len);
	free(got);
}

/* Every size, by cas_copy_fd and by cas_copy_hash_fd. */
static void check_all_sizes(const char *dir, unsigned allow)
{
	unsigned char *data = tests_noise(MAX_SIZE, 1);

	for (size_t i = 0; i < NR_SIZES; i++) {
		auto_close int src = open_new(dir, "src");
		auto_close int dst = open_new(dir, "dst");
		auto_close int dst2 = open_new(dir, "dst2");
		struct cas_digest want;
		struct cas_digest got;

		assert_int_equal(io_pwrite_full(src, data, sizes[i], 0), 0);
		assert_int_equal(cas_copy_fd(src, dst, sizes[i], allow, NULL), 0);
		assert_content(dst, data, sizes[i]);
		assert_int_equal(cas_copy_hash_fd(src, dst2, NULL, &got, NULL), 0);
		assert_content(dst2, data, sizes[i]);
		assert_int_equal(cas_hash_bytes(data, sizes[i], &want), 0);
		assert_true(cas_digest_equal(&got, &want));
	}
	free(data);
}

static void test_plain_copies_are_equal(void **state)
{
	fault_reset();
	check_all_sizes(*state, CAS_COPY_ANY);
	check_all_sizes(*state, CAS_COPY_LOOP);
	check_all_sizes(*state, CAS_COPY_KERNEL | CAS_COPY_LOOP);
}

static void test_each_refusal_falls_through(void **state)
{
	static const int codes[] = {EOPNOTSUPP, EXDEV, EINVAL, EAGAIN, ENOSYS, ENOTTY, EPERM, EIO};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		for (unsigned nth = 0; nth < 3; nth++) {
			fault_reset();
			fault_fail(FAULT_IOCTL, 0, codes[i]);
			fault_fail(FAULT_COPY_FILE_RANGE, nth, codes[i]);
			fault_short(FAULT_COPY_FILE_RANGE, 300000);
			check_all_sizes(*state, CAS_COPY_ANY);
			assert_true(fault_seen(FAULT_IOCTL) > 0);
			assert_true(fault_seen(FAULT_COPY_FILE_RANGE) > 0);
		}
	}
	fault_reset();
}

static void test_short_counts_and_zero_are_not_the_end(void **state)
{
	static const unsigned long shorts[] = {0, 1000, 4096, 1 << 20};

	for (size_t i = 0; i < sizeof(shorts) / sizeof(shorts[0]); i++) {
		fault_reset();
		fault_fail(FAULT_IOCTL, 0, EOPNOTSUPP);
		fault_short(FAULT_COPY_FILE_RANGE, shorts[i]);
		fault_short(FAULT_PWRITE, 70000);
		check_all_sizes(*state, CAS_COPY_ANY);
	}
	fault_reset();
}

static void test_interrupted_copies_go_on(void **state)
{
	fault_reset();
	fault_fail(FAULT_IOCTL, 0, EOPNOTSUPP);
	fault_fail(FAULT_COPY_FILE_RANGE, 2, EINTR);
	fault_short(FAULT_COPY_FILE_RANGE, 100000);
	check_all_sizes(*state, CAS_COPY_KERNEL);
	fault_reset();
}

static void test_forced_reflink_says_when_it_cannot(void **state)
{
	auto_close int src = open_new(*state, "src");
	auto_close int dst = open_new(*state, "dst");
	struct err err = {0};
	struct stat st;

	fault_reset();
	fault_fail(FAULT_IOCTL, 0, EXDEV);
	assert_int_equal(io_write_full(src, "abc", 3), 0);
	assert_int_equal(cas_copy_fd(src, dst, 3, CAS_COPY_REFLINK, &err), -EOPNOTSUPP);
	assert_true(err.msg[0] != '\0');
	assert_int_equal(fstat(dst, &st), 0);
	assert_int_equal(st.st_size, 0);
	fault_reset();
}

static void test_source_that_ends_early_is_an_error(void **state)
{
	auto_close int src = open_new(*state, "src");
	auto_close int dst = open_new(*state, "dst");
	struct stat st;

	fault_reset();
	assert_int_equal(io_write_full(src, "abc", 3), 0);
	assert_int_equal(cas_copy_fd(src, dst, 4, CAS_COPY_ANY, NULL), -EAGAIN);
	assert_int_equal(fstat(dst, &st), 0);
	assert_int_equal(st.st_size, 0);
	assert_int_equal(cas_copy_fd(src, dst, 2, CAS_COPY_ANY, NULL), 0);
	assert_content(dst, (const unsigned char *)"ab", 2);
}

static void test_full_disk_leaves_the_target_empty(void **state)
{
	static const enum fault_call calls[] = {FAULT_COPY_FILE_RANGE, FAULT_PWRITE};
	auto_close int src = open_new(*state, "src");
	auto_close int dst = open_new(*state, "dst");
	unsigned char *data = tests_noise(MAX_SIZE, 2);
	struct cas_digest d = {.size = 77};
	struct stat st;

	assert_int_equal(io_write_full(src, data, MAX_SIZE), 0);
	for (int i = 0; i < 2; i++) {
		fault_reset();
		fault_fail(FAULT_IOCTL, 0, EOPNOTSUPP);
		fault_fail(calls[i], 2, ENOSPC);
		fault_short(FAULT_COPY_FILE_RANGE, 1 << 20);
		assert_int_equal(
			cas_copy_fd(src, dst, MAX_SIZE, i ? CAS_COPY_LOOP : CAS_COPY_KERNEL, NULL),
			-ENOSPC);
		assert_int_equal(fstat(dst, &st), 0);
		assert_int_equal(st.st_size, 0);
	}
	fault_reset();
	fault_fail(FAULT_IOCTL, 0, EOPNOTSUPP);
	fault_fail(FAULT_PWRITE, 2, EDQUOT);
	assert_int_equal(cas_copy_hash_fd(src, dst, NULL, &d, NULL), -EDQUOT);
	assert_int_equal(d.size, 77);
	assert_int_equal(fstat(dst, &st), 0);
	assert_int_equal(st.st_size, 0);
	free(data);
	fault_reset();
}

/* Holes at the start, in the middle and at the end; and written zeros. */
static void test_holes_and_zero_blocks_stay_holes(void **state)
{
	static const unsigned allow[] = {CAS_COPY_LOOP, CAS_COPY_KERNEL | CAS_COPY_LOOP};
	unsigned char *want = calloc(1, 6 << 20);

	memset(want + (1 << 20) + 5000, 'x', 100);
	memset(want + (3 << 20), 'y', 4096);
	for (int i = 0; i < 5; i++) {
		auto_close int src = open_new(*state, "src");
		auto_close int dst = open_new(*state, "dst");
		struct cas_digest d;
		struct stat st;

		fault_reset();
		if (i < 2) {
			assert_int_equal(ftruncate(src, 6 << 20), 0);
			assert_int_equal(
				io_pwrite_full(src, want + (1 << 20) + 5000, 100, (1 << 20) + 5000),
				0);
			assert_int_equal(io_pwrite_full(src, want + (3 << 20), 4096, 3 << 20), 0);
			assert_int_equal(cas_copy_fd(src, dst, 6 << 20, allow[i], NULL), 0);
		} else {
			assert_int_equal(io_pwrite_full(src, want, 6 << 20, 0), 0);
			fault_fail(FAULT_IOCTL, 0, EOPNOTSUPP);
			assert_int_equal(i < 4 ? cas_copy_fd(src, dst, 6 << 20, allow[i - 2], NULL)
					       : cas_copy_hash_fd(src, dst, NULL, &d, NULL),
					 0);
		}
		assert_int_equal(fstat(dst, &st), 0);
		assert_int_equal(st.st_size, 6 << 20);
		assert_true(st.st_blocks <= (2 << 20) / 512 + 16);
		assert_content(dst, want, 6 << 20);
	}
	free(want);
	fault_reset();
}

static void test_bytes_that_are_zeros_become_a_hole(void **state)
{
	static const size_t lens[] = {1, 4095, 4096, 1 << 20};
	unsigned char *zeros = calloc(1, 1 << 20);

	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		auto_close int dst = open_new(*state, "dst");
		struct stat st;

		assert_int_equal(cas_copy_bytes(dst, zeros, lens[i]), 0);
		assert_content(dst, zeros, lens[i]);
		assert_int_equal(fstat(dst, &st), 0);
		assert_true(lens[i] < 4096 || st.st_blocks == 0);
	}
	free(zeros);
}

/* Half data, half hole; by every way; told to stop at once, by either flag, and not at all. */
static void test_a_watch_counts_and_cancels(void **state)
{
	unsigned char *data = tests_noise(3 << 20, 3);
	auto_close int src = open_new(*state, "src");
	_Atomic uint64_t bytes = 7;
	_Atomic bool yes = true;
	const struct watch watches[] = {{.bytes = &bytes},
					{.bytes = &bytes, .cancel = &yes},
					{.bytes = &bytes, .stop = &yes}};

	fault_reset();
	assert_int_equal(io_pwrite_full(src, data, 3 << 20, 0), 0);
	assert_int_equal(ftruncate(src, 6 << 20), 0);
	for (int way = 0; way < 4; way++) {
		for (int i = 0; i < 3; i++) {
			auto_close int dst = open_new(*state, "dst");
			struct cas_digest d = {.size = 77};
			struct stat st;
			int ret;

			atomic_store(&bytes, 7);
			if (way == 0)
				ret = cas_copy_hash_fd(src, dst, &watches[i], &d, NULL);
			else if (way == 1)
				ret = cas_hash_fd_watched(src, &watches[i], &d);
			else
				ret = cas_copy_fd_watched(src, dst, 6 << 20,
							  way == 2 ? CAS_COPY_LOOP
								   : CAS_COPY_KERNEL,
							  &watches[i], NULL);
			assert_int_equal(ret, i ? -ECANCELED : 0);
			assert_int_equal(atomic_load(&bytes), i ? 7 : 7 + (6 << 20));
			assert_int_equal(d.size, i || way > 1 ? 77 : 6 << 20);
			assert_int_equal(fstat(dst, &st), 0);
			assert_int_equal(st.st_size, i || way == 1 ? 0 : 6 << 20);
		}
	}
	free(data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_plain_copies_are_equal),
		TESTS_IN_DIR(test_each_refusal_falls_through),
		TESTS_IN_DIR(test_short_counts_and_zero_are_not_the_end),
		TESTS_IN_DIR(test_interrupted_copies_go_on),
		TESTS_IN_DIR(test_forced_reflink_says_when_it_cannot),
		TESTS_IN_DIR(test_source_that_ends_early_is_an_error),
		TESTS_IN_DIR(test_full_disk_leaves_the_target_empty),
		TESTS_IN_DIR(test_holes_and_zero_blocks_stay_holes),
		TESTS_IN_DIR(test_bytes_that_are_zeros_become_a_hole),
		TESTS_IN_DIR(test_a_watch_counts_and_cancels),
	};

	return cmocka_run_group_tests_name("cas_copy", tests, NULL, NULL);
}
