/* tests/crash/crash_spool.c - die at each step of a spooled put and of its move */
#include "tests/lib/tests.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/fsck/fsck.h"
#include "cas/hash.h"
#include "cas/put/put.h"
#include "cas/spool/spool.h"
#include "cas/store/store.h"
#include "tests/lib/fault.h"
#include "tests/lib/store.h"

/*
 * A child puts through the spool and exits at the nth call that changes something,
 * before or after it; n grows until it ends by itself. What it acknowledged must be
 * there afterwards, moved by the next process, and nothing else may be left anywhere.
 */

#define SMALL 5000
#define LARGE ((1u << 20) + 777)

static const size_t sizes[] = {SMALL, LARGE, SMALL + 1};
#define NR (sizeof(sizes) / sizeof(sizes[0]))

/* An ActionResult with exit code 7. */
static const char result[] = {0x20, 0x07};

struct way {
	const char *name;
	bool named; /* no unnamed files there */
	enum cas_durability durability;
};

static const struct way *now;

static struct cas_store *open_store(const char *dir)
{
	struct cas_store_options opts = {.path = tests_path(dir, "store"),
					 .blobs = tests_path(dir, "blobs"),
					 .create = true,
					 .durability = now->durability};
	struct cas_store *store = NULL;

	return cas_store_open(&opts, &store, NULL) < 0 ? NULL : store;
}

static int start(struct cas_store *store)
{
	const struct cas_spool_options opts = {.nr_movers = 1, .retry_ms = 5};

	return cas_spool_start(store, &opts, NULL);
}

static int put(struct cas_store *store, unsigned i, struct cas_digest *d)
{
	unsigned char *data = tests_noise(sizes[i], i);
	struct cas_put *p = NULL;
	int ret = cas_put_new(store, &p, NULL);

	if (ret == 0)
		ret = cas_put_write(p, data, sizes[i], NULL);
	if (ret == 0)
		ret = cas_put_publish(p, NULL, d, NULL);
	cas_put_free(p);
	free(data);
	return ret;
}

static int put_result(struct cas_store *store)
{
	struct cas_digest action;
	int ret = cas_hash_bytes(result, sizeof(result), &action);

	return ret < 0 ? ret : cas_store_action_put(store, &action, result, sizeof(result), NULL);
}

/* Is it the result? */
static bool has_result(struct cas_store *store)
{
	auto_buf struct buf b = {0};
	struct cas_digest action;

	assert_int_equal(cas_hash_bytes(result, sizeof(result), &action), 0);
	return cas_store_action_get(store, &action, &b, NULL) == 0 && b.len == sizeof(result) &&
	       memcmp(b.data, result, b.len) == 0;
}

/* A byte for each put that was acknowledged; the last is that of a result. */
static int run(const char *dir, int told_fd)
{
	struct cas_store *store = open_store(dir);
	struct cas_digest d;
	int ret = store ? start(store) : -EIO;

	for (unsigned i = 0; i <= NR && ret == 0; i++) {
		ret = i < NR ? put(store, i, &d) : put_result(store);
		if (ret == 0)
			ret = cas_store_sync(store, NULL);
		/* Not write: that would be one of the steps. */
		if (ret == 0 && dprintf(told_fd, "x") != 1)
			ret = -EIO;
	}
	if (ret == 0)
		ret = cas_spool_drain(store, CAS_SPOOL_OWN, NULL, NULL);
	cas_store_close(store);
	return ret;
}

struct told_run {
	const char *dir;
	int fd;
};

static int run_told(void *ctx)
{
	const struct told_run *told_run = ctx;

	return run(told_run->dir, told_run->fd);
}

static int count_files(const char *path)
{
	auto_closedir DIR *dir = opendir(path);
	struct dirent *de;
	int nr = 0;

	while (dir && (de = readdir(dir)) != NULL) {
		char below[4096];
		struct stat st;

		if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
			continue;
		(void)snprintf(below, sizeof(below), "%s/%s", path, de->d_name);
		if (lstat(below, &st) == 0 && S_ISDIR(st.st_mode))
			nr += count_files(below);
		else
			nr++;
	}
	return nr;
}

static void on_fault(void *ctx, const char *line)
{
	fail_msg("fsck after %s: %s", (const char *)ctx, line);
}

static void assert_clean(struct cas_store *store)
{
	struct cas_fsck_options opts = {
		.nr_threads = 1, .fault = on_fault, .ctx = (void *)(uintptr_t)now->name};
	struct cas_fsck_result found;

	assert_int_equal(cas_fsck(store, &opts, &found, NULL), 0);
	assert_int_equal(found.faults, 0);
	assert_int_equal(found.foreign, 0);
}

static void assert_put(struct cas_store *store, unsigned i)
{
	unsigned char *data = tests_noise(sizes[i], i);
	struct cas_digest d;

	/* What an earlier one left is found, or put again. */
	assert_int_equal(cas_put_bytes(store, data, sizes[i], &d, NULL), 0);
	tests_assert_blob(store, &d, data, sizes[i]);
	free(data);
}

static void check_after(const char *dir, size_t nr_told)
{
	struct cas_store *store = open_store(dir);

	assert_non_null(store);
	assert_true(nr_told <= NR || has_result(store));
	for (unsigned i = 0; i < nr_told && i < NR; i++) {
		unsigned char *data = tests_noise(sizes[i], i);
		struct cas_digest d;

		assert_int_equal(cas_hash_bytes(data, sizes[i], &d), 0);
		tests_assert_blob(store, &d, data, sizes[i]);
		free(data);
	}
	assert_int_equal(start(store), 0);
	assert_int_equal(cas_spool_drain(store, CAS_SPOOL_ALL, NULL, NULL), 0);
	assert_clean(store);
	for (unsigned i = 0; i < NR; i++)
		assert_put(store, i);
	assert_int_equal(cas_spool_drain(store, CAS_SPOOL_ALL, NULL, NULL), 0);
	assert_clean(store);
	assert_true(nr_told <= NR || has_result(store));
	assert_int_equal(put_result(store), 0);
	assert_int_equal(cas_spool_drain(store, CAS_SPOOL_ALL, NULL, NULL), 0);
	assert_true(has_result(store));
	/* Temporaries of movers, too: each went with its blob. */
	assert_int_equal(count_files(tests_path(dir, "blobs/cas")), NR);
	cas_store_close(store);
}

/* False once the child ended by itself. */
static bool crash_at(const char *dir, unsigned nth, bool after)
{
	struct told_run told_run = {.dir = dir};
	char told[16];
	int pipe_fd[2];
	ssize_t nr;
	int ended;

	assert_int_equal(io_remove_tree(AT_FDCWD, tests_path(dir, "store"), NULL), 0);
	assert_int_equal(io_remove_tree(AT_FDCWD, tests_path(dir, "blobs"), NULL), 0);
	assert_int_equal(pipe(pipe_fd), 0);
	told_run.fd = pipe_fd[1];
	ended = fault_exit_child(nth, after, now->named, run_told, &told_run);
	(void)close(pipe_fd[1]);
	nr = io_read_full(pipe_fd[0], told, sizeof(told));
	(void)close(pipe_fd[0]);
	assert_in_range(nr, 0, NR + 1);
	assert_in_range(ended, 0, 1);
	check_after(dir, (size_t)nr);
	return ended == 1;
}

static const struct way ways[] = {
	{"none", false, CAS_DURABILITY_NONE},
	{"batch, named", true, CAS_DURABILITY_BATCH},
	{"full", false, CAS_DURABILITY_FULL},
	{"full, named", true, CAS_DURABILITY_FULL},
};

static void test_every_step_may_be_the_last(void **state)
{
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		now = &ways[i];
		for (int after = 0; after < 2; after++) {
			unsigned nth = 1;

			while (crash_at(*state, nth, after))
				nth++;
			/* Prove that it was put to the test. */
			assert_true(nth > 20);
			(void)printf("%s: %u steps\n", now->name, nth - 1);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {TESTS_IN_DIR(test_every_step_may_be_the_last)};

	/* Hundreds of new stores: not on a disk. */
	if (access("/dev/shm", W_OK) == 0)
		(void)setenv("TMPDIR", "/dev/shm", 0);
	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("crash_spool", tests, NULL, NULL);
}
