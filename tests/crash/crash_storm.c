/* tests/crash/crash_storm.c - many put the same digests while others evict, check and die */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/log.h"
#include "cas/evict/evict.h"
#include "cas/fsck/fsck.h"
#include "cas/put/put.h"
#include "cas/store/store.h"
#include "tests/lib/store.h"

/* C25, C24: asserts do not work in children; they say what failed by their exit status. */

#define NR_PUTTERS 12
#define NR_ROUNDS  40
#define NR_BLOBS   3
#define MAX_SIZE   1200000

static const size_t sizes[NR_BLOBS] = {1000, 300000, MAX_SIZE};

/* A blob that is there has all its bytes; that it is gone again is gc's doing. */
static int read_back(struct cas_store *store, const struct cas_digest *d, const unsigned char *data)
{
	auto_buf struct buf b = {0};
	int ret = cas_store_read_blob(store, d, MAX_SIZE, &b, NULL);

	if (ret == -ENOENT)
		return 0;
	if (ret < 0)
		return 3;
	return b.len == d->size && memcmp(b.data, data, b.len) == 0 ? 0 : 4;
}

static int putter(const char *dir)
{
	struct cas_store *store = tests_store_open(dir, NULL);
	unsigned char *data = tests_noise(MAX_SIZE, 1);

	for (int i = 0; i < NR_ROUNDS * NR_BLOBS; i++) {
		struct cas_digest d;
		struct err err = {0};
		int ret = cas_put_bytes(store, data, sizes[i % NR_BLOBS], &d, &err);

		if (ret < 0) {
			(void)fprintf(stderr, "put: %s\n", err.msg);
			return 2;
		}
		ret = read_back(store, &d, data);
		if (ret != 0)
			return ret;
	}
	free(data);
	cas_store_close(store);
	return 0;
}

/* Two that move the same file in: each finds its own, or that the other was first. */
static int taker(const char *dir, int me)
{
	struct cas_store *store = tests_store_open(dir, NULL);
	unsigned char *data = tests_noise(MAX_SIZE, 1);
	auto_close int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char name[16];

	(void)snprintf(name, sizeof(name), "taken-%d", me);
	for (int i = 0; i < NR_ROUNDS; i++) {
		auto_close int fd =
			openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
		struct cas_digest d;
		struct err err = {0};
		bool moved;

		if (write(fd, data, sizes[1]) != (ssize_t)sizes[1])
			return 5;
		(void)close(fd);
		fd = -1;
		if (cas_put_take(store, dir_fd, name, true, &d, &moved, &err) < 0) {
			(void)fprintf(stderr, "take: %s\n", err.msg);
			return 6;
		}
		if (d.size != sizes[1] || read_back(store, &d, data) != 0)
			return 7;
	}
	free(data);
	cas_store_close(store);
	return 0;
}

static int evictor(const char *dir)
{
	struct cas_store *store = tests_store_open(dir, NULL);
	struct cas_evict_options all = {0};

	for (;;) {
		struct cas_evict_result result;
		struct err err = {0};

		if (cas_evict(store, &all, NULL, &result, &err) < 0) {
			(void)fprintf(stderr, "evict: %s\n", err.msg);
			return 8;
		}
	}
}

static void on_fault(void *ctx, const char *line)
{
	(void)ctx;
	(void)fprintf(stderr, "fsck: %s\n", line);
}

static int checker(const char *dir)
{
	struct cas_store *store = tests_store_open(dir, NULL);
	struct cas_fsck_options opts = {.nr_threads = 2, .fault = on_fault};

	for (;;) {
		struct cas_fsck_result result;

		if (cas_fsck(store, &opts, &result, NULL) < 0 || result.faults > 0)
			return 9;
	}
}

static pid_t start(const char *dir, int role, int me)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	if (role == 0)
		_exit(putter(dir));
	if (role == 1)
		_exit(taker(dir, me));
	_exit(role == 2 ? evictor(dir) : checker(dir));
}

static int reap(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

/* One more putter, killed at some point, again and again until the others are done. */
static void kill_putters(const char *dir, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		const struct timespec nap = {.tv_nsec = 1000000L * (1 + i * 7 % 40)};
		pid_t pid = start(dir, 0, 0);

		(void)nanosleep(&nap, NULL);
		(void)kill(pid, SIGKILL);
		(void)reap(pid);
	}
}

static void test_storm_of_puts_evictions_and_kills(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	pid_t workers[NR_PUTTERS + 2];
	pid_t evicts = start(*state, 2, 0);
	pid_t checks = start(*state, 3, 0);
	struct cas_evict_options all = {0};
	struct cas_evict_result result;

	for (int i = 0; i < NR_PUTTERS + 2; i++)
		workers[i] = start(*state, i < NR_PUTTERS ? 0 : 1, i);
	kill_putters(*state, 20);
	for (int i = 0; i < NR_PUTTERS + 2; i++)
		assert_int_equal(reap(workers[i]), 0);
	(void)kill(evicts, SIGKILL);
	(void)kill(checks, SIGKILL);
	assert_int_equal(WTERMSIG(reap(evicts)), SIGKILL);
	assert_int_equal(WTERMSIG(reap(checks)), SIGKILL);
	/* The count is that of one file for each digest, and no temporary is left. */
	assert_true(tests_count_blobs(*state) <= NR_BLOBS);
	assert_int_equal(cas_evict(store, &all, NULL, &result, NULL), 0);
	assert_int_equal(result.after_bytes, 0);
	assert_int_equal(tests_count_blobs(*state), 0);
	cas_store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {TESTS_IN_DIR(test_storm_of_puts_evictions_and_kills)};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("crash_storm", tests, NULL, NULL);
}
