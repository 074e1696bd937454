/* tests/unit/test_meta_index.c - the LMDB index on its own */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/hash.h"
#include "meta/index/index.h"
#include "meta/index/index_i.h"

static void sink_nothing(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	(void)line;
}

static struct cas_digest digest_nr(int nr)
{
	struct cas_digest d;

	assert_int_equal(cas_hash_bytes(&nr, sizeof(nr), &d), 0);
	return d;
}

static struct meta_index *open_as(const char *store, bool writer, bool *fresh)
{
	auto_close int fd = open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct meta_index_options opts = {
		.store_fd = fd, .store_path = store, .writer = writer, .nr_readers = 2};
	struct meta_index *ix;
	struct err err = {0};
	bool made;

	assert_true(fd >= 0);
	if (meta_index_open(&opts, &ix, &made, &err) != 0)
		fail_msg("%s", err_text(&err, err.code));
	if (fresh)
		*fresh = made;
	return ix;
}

static void put_blobs(struct meta_index *ix, int from, int to)
{
	assert_int_equal(meta_index_begin(ix, NULL), 0);
	for (int i = from; i < to; i++) {
		struct cas_digest d = digest_nr(i);
		struct cas_stamp stamp = {(uint64_t)i, d.size, i * 10, i * 100};

		assert_int_equal(meta_index_blob_put(ix, &d, &stamp), 0);
	}
	assert_int_equal(meta_index_commit(ix, NULL), 0);
}

static int has_blob(struct meta_index *ix, int nr)
{
	struct cas_digest d = digest_nr(nr);
	struct cas_stamp stamp;
	bool has_stamp;

	return meta_index_blob_get(ix, d.hash, &has_stamp, &stamp);
}

static void test_values_come_back_after_reopening(void **state)
{
	struct cas_file_id id = {.dev = 7, .ino = 8, .size = 4, .mtime_ns = -1, .ctime_ns = 3}, bad;
	struct cas_digest file = digest_nr(5), got, sized = digest_nr(77);
	struct cas_stamp stamp;
	bool fresh, has_stamp;
	struct meta_index *ix = open_as(*state, true, &fresh);

	assert_true(fresh);
	put_blobs(ix, 0, 3);
	assert_int_equal(meta_index_begin(ix, NULL), 0);
	assert_int_equal(meta_index_file_put(ix, &id, &file), 0);
	assert_int_equal(meta_index_blob_put(ix, &sized, NULL), 0);
	file = digest_nr(1);
	assert_int_equal(meta_index_blob_put(ix, &file, NULL), 0);
	assert_int_equal(meta_index_commit(ix, NULL), 0);
	assert_int_equal(meta_index_close(ix, NULL), 0);

	ix = open_as(*state, true, &fresh);
	assert_false(fresh);
	assert_int_equal(meta_index_blob_get(ix, file.hash, &has_stamp, &stamp), 1);
	assert_true(has_stamp); /* a row without a stamp took nothing away */
	assert_int_equal(stamp.ino, 1);
	assert_int_equal(stamp.size, sizeof(int));
	assert_int_equal(stamp.mtime_ns, 10);
	assert_int_equal(stamp.ctime_ns, 100);
	assert_int_equal(meta_index_blob_get(ix, sized.hash, &has_stamp, &stamp), 1);
	assert_false(has_stamp);
	assert_int_equal(has_blob(ix, 3), 0);
	assert_int_equal(meta_index_file_get(ix, &id, &got), 1);
	file = digest_nr(5);
	assert_true(cas_digest_equal(&got, &file));
	for (int i = 0; i < 4; i++) {
		bad = id;
		*(i == 0 ? &bad.dev : i == 1 ? &bad.ino : &bad.size) += i < 3;
		bad.ctime_ns += i == 3;
		assert_int_equal(meta_index_file_get(ix, &bad, &got), 0);
	}
	assert_int_equal(meta_index_close(ix, NULL), 0);
}

static void test_abort_and_delete_leave_nothing(void **state)
{
	struct cas_digest d = digest_nr(1);
	struct meta_index *ix = open_as(*state, true, NULL);

	assert_int_equal(meta_index_begin(ix, NULL), 0);
	assert_int_equal(meta_index_blob_put(ix, &d, NULL), 0);
	meta_index_abort(ix);
	assert_int_equal(has_blob(ix, 1), 0);
	put_blobs(ix, 1, 2);
	assert_int_equal(has_blob(ix, 1), 1);
	assert_int_equal(meta_index_begin(ix, NULL), 0);
	assert_int_equal(meta_index_blob_del(ix, d.hash), 0);
	assert_int_equal(meta_index_blob_del(ix, d.hash), 0);
	assert_int_equal(meta_index_dir_del(ix, &d), 0);
	assert_int_equal(meta_index_commit(ix, NULL), 0);
	assert_int_equal(has_blob(ix, 1), 0);
	assert_int_equal(meta_index_close(ix, NULL), 0);
}

static int keep_even(void *ctx, const struct cas_digest *digest)
{
	int *seen = ctx;

	(*seen)++;
	return digest->hash[0] % 2 == 0;
}

static void test_sweep_drops_what_is_not_kept(void **state)
{
	struct meta_index *ix = open_as(*state, true, NULL);
	uint64_t dropped = 0;
	int seen = 0, odd = 0;

	put_blobs(ix, 0, 3000);
	for (int i = 0; i < 3000; i++)
		odd += digest_nr(i).hash[0] % 2;
	assert_int_equal(meta_index_begin(ix, NULL), 0);
	for (unsigned shard = 0; shard < 256; shard++)
		assert_int_equal(meta_index_blob_sweep(ix, shard, keep_even, &seen, &dropped), 0);
	assert_int_equal(meta_index_commit(ix, NULL), 0);
	assert_int_equal(seen, 3000);
	assert_int_equal(dropped, odd);
	for (int i = 0; i < 3000; i++)
		assert_int_equal(has_blob(ix, i), digest_nr(i).hash[0] % 2 == 0);
	assert_int_equal(meta_index_close(ix, NULL), 0);
}

static void write_state(const char *store, const char *line)
{
	tests_write_file(tests_path(store, "meta/index/state"), line, strlen(line), 0644);
}

static void expect_remade(const char *store, bool set_aside)
{
	struct stat st;
	bool fresh;
	struct meta_index *ix = open_as(store, true, &fresh);

	assert_true(fresh);
	assert_int_equal(has_blob(ix, 1), 0);
	put_blobs(ix, 1, 2);
	assert_int_equal(has_blob(ix, 1), 1);
	assert_int_equal(meta_index_close(ix, NULL), 0);
	assert_int_equal(stat(tests_path(store, "meta/index.bad-1"), &st), set_aside ? 0 : -1);
}

static void make_index(const char *store)
{
	struct meta_index *ix = open_as(store, true, NULL);

	put_blobs(ix, 0, 100);
	assert_int_equal(meta_index_close(ix, NULL), 0);
}

static void test_unknown_version_is_set_aside(void **state)
{
	make_index(*state);
	write_state(*state, "casbox-index 99 some-boot clean\n");
	assert_null(open_as(*state, false, NULL));
	expect_remade(*state, true);
}

static void test_lost_power_is_noticed(void **state)
{
	make_index(*state);
	write_state(*state, "casbox-index 1 another-boot dirty\n");
	assert_null(open_as(*state, false, NULL));
	expect_remade(*state, false);
}

static void test_clean_index_outlives_a_boot(void **state)
{
	struct meta_index *ix;
	bool fresh;

	make_index(*state);
	write_state(*state, "casbox-index 1 another-boot clean\n");
	ix = open_as(*state, true, &fresh);
	assert_false(fresh);
	assert_int_equal(has_blob(ix, 1), 1);
	assert_int_equal(meta_index_close(ix, NULL), 0);
}

static void test_garbage_is_set_aside(void **state)
{
	char garbage[20000];

	memset(garbage, 0x5a, sizeof(garbage));
	make_index(*state);
	tests_write_file(tests_path(*state, "meta/index/data.mdb"), garbage, sizeof(garbage), 0644);
	assert_null(open_as(*state, false, NULL));
	expect_remade(*state, true);
}

static void test_cut_file_is_set_aside_and_not_read(void **state)
{
	struct stat st;

	make_index(*state);
	assert_int_equal(stat(tests_path(*state, "meta/index/data.mdb"), &st), 0);
	assert_int_equal(truncate(tests_path(*state, "meta/index/data.mdb"), st.st_size - 4096), 0);
	assert_null(open_as(*state, false, NULL));
	expect_remade(*state, true);
	assert_int_equal(truncate(tests_path(*state, "meta/index/data.mdb"), 100), 0);
	assert_null(open_as(*state, false, NULL));
	expect_remade(*state, true);
	assert_int_equal(stat(tests_path(*state, "meta/index.bad-2"), &st), 0);
}

static void test_file_in_place_of_the_directory_is_set_aside(void **state)
{
	tests_write_file(tests_path(*state, "meta/index"), "x", 1, 0644);
	assert_null(open_as(*state, false, NULL));
	expect_remade(*state, true);
}

static void test_missing_index_is_fine_for_readers(void **state)
{
	assert_null(open_as(*state, false, NULL));
	assert_int_equal(tests_count_names(*state), 0);
	assert_int_equal(has_blob(NULL, 1), 0);
}

/* Sanitizers take more address space than the test allows. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static void test_small_address_space_gets_a_smaller_map(void **state)
{
	struct rlimit limit = {.rlim_cur = (rlim_t)16 << 30, .rlim_max = (rlim_t)16 << 30};
	pid_t pid;
	int status;

	if (SANITIZED)
		skip();
	pid = fork();
	if (pid == 0) {
		struct meta_index *ix;

		if (setrlimit(RLIMIT_AS, &limit) < 0)
			_exit(2);
		ix = open_as(*state, true, NULL);
		put_blobs(ix, 0, 10);
		_exit(has_blob(ix, 5) == 1 && meta_index_close(ix, NULL) == 0 ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* Fork a reader that says so once it stands inside a read transaction, and hangs there. */
static pid_t fork_reader(const char *store)
{
	int pipe_fd[2];
	pid_t pid;
	char c;

	assert_int_equal(pipe2(pipe_fd, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		struct meta_index *ix = open_as(store, false, NULL);
		MDB_txn *txn = ix ? meta_index_read_begin(ix) : NULL;

		if (!txn || write(pipe_fd[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			(void)pause();
	}
	(void)close(pipe_fd[1]);
	assert_int_equal(read(pipe_fd[0], &c, 1), 1);
	(void)close(pipe_fd[0]);
	return pid;
}

static void test_stopped_reader_stops_nobody(void **state)
{
	struct meta_index *ix;
	pid_t pid;
	int status;

	make_index(*state);
	pid = fork_reader(*state);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	ix = open_as(*state, true, NULL);
	for (int i = 0; i < 20; i++)
		put_blobs(ix, 1000 + i * 100, 1100 + i * 100);
	assert_int_equal(has_blob(ix, 2999), 1);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(meta_index_clear_stale_readers(ix), 0);
	assert_int_equal(meta_index_close(ix, NULL), 0);
}

static void test_killed_writer_loses_nothing_committed(void **state)
{
	struct meta_index *ix;
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		ix = open_as(*state, true, NULL);
		put_blobs(ix, 0, 500);
		(void)meta_index_begin(ix, NULL);
		(void)raise(SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	ix = open_as(*state, true, NULL);
	for (int i = 0; i < 500; i++)
		assert_int_equal(has_blob(ix, i), 1);
	put_blobs(ix, 500, 501);
	assert_int_equal(meta_index_close(ix, NULL), 0);
}

struct racer {
	struct meta_index *ix;
	_Atomic bool stop;
	_Atomic int nr_right;
};

static void *race(void *arg)
{
	struct racer *r = arg;

	while (!atomic_load(&r->stop)) {
		if (has_blob(r->ix, 5) == 1)
			atomic_fetch_add(&r->nr_right, 1);
	}
	return NULL;
}

static void test_more_threads_than_slots_read_while_one_writes(void **state)
{
	struct racer r = {.ix = open_as(*state, true, NULL)};
	pthread_t threads[4];

	put_blobs(r.ix, 0, 10);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, race, &r), 0);
	for (int i = 0; i < 50; i++)
		put_blobs(r.ix, i * 50, i * 50 + 50);
	while (atomic_load(&r.nr_right) < 1000)
		(void)usleep(1000);
	atomic_store(&r.stop, true);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(meta_index_close(r.ix, NULL), 0);
}

static void test_children_inherit_no_descriptor(void **state)
{
	auto_buf struct buf seen = {0};
	struct meta_index *ix = open_as(*state, true, NULL);
	char command[256];
	FILE *ls;

	put_blobs(ix, 0, 1);
	(void)snprintf(command, sizeof(command), "ls -l /proc/self/fd | grep -c '%s'",
		       (const char *)*state);
	ls = popen(command, "re");
	assert_non_null(ls);
	assert_int_equal(buf_reserve(&seen, 64), 0);
	assert_non_null(fgets(seen.data, 64, ls));
	assert_string_equal(seen.data, "0\n");
	(void)pclose(ls);
	assert_int_equal(meta_index_close(ix, NULL), 0);
}

#define TEST_CASE(fn) cmocka_unit_test_setup_teardown(fn, tests_dir_setup, tests_dir_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST_CASE(test_values_come_back_after_reopening),
		TEST_CASE(test_abort_and_delete_leave_nothing),
		TEST_CASE(test_sweep_drops_what_is_not_kept),
		TEST_CASE(test_unknown_version_is_set_aside),
		TEST_CASE(test_lost_power_is_noticed),
		TEST_CASE(test_clean_index_outlives_a_boot),
		TEST_CASE(test_garbage_is_set_aside),
		TEST_CASE(test_cut_file_is_set_aside_and_not_read),
		TEST_CASE(test_file_in_place_of_the_directory_is_set_aside),
		TEST_CASE(test_missing_index_is_fine_for_readers),
		TEST_CASE(test_small_address_space_gets_a_smaller_map),
		TEST_CASE(test_stopped_reader_stops_nobody),
		TEST_CASE(test_killed_writer_loses_nothing_committed),
		TEST_CASE(test_more_threads_than_slots_read_while_one_writes),
		TEST_CASE(test_children_inherit_no_descriptor),
	};

	log_set_sink(sink_nothing, NULL);
	return cmocka_run_group_tests_name("meta_index", tests, NULL, NULL);
}
