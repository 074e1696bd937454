/* tests/unit/test_cas_spool.c - puts that end in the spool, and their way on */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/evict/evict.h"
#include "cas/fsck/fsck.h"
#include "cas/hash.h"
#include "cas/put/put.h"
#include "cas/spool/spool.h"
#include "cas/store/layout.h"
#include "cas/store/store.h"
#include "tests/lib/fault.h"
#include "tests/lib/store.h"

#define SIZE 5000

/* DIR/@name with blobs in DIR/blobs, which several stores of a test may share. */
static struct cas_store *open_store(const char *dir, const char *name)
{
	struct cas_store_options opts = {
		.path = tests_path(dir, name), .blobs = tests_path(dir, "blobs"), .create = true};
	struct cas_store *store = NULL;
	struct err err = {0};

	if (cas_store_open(&opts, &store, &err) < 0)
		fail_msg("cannot open the store: %s", err.msg);
	return store;
}

static void start(struct cas_store *store, const struct cas_spool_options *opts)
{
	struct err err = {0};

	if (cas_spool_start(store, opts, &err) < 0)
		fail_msg("cannot start the spool: %s", err.msg);
}

static void start_plain(struct cas_store *store)
{
	start(store, &(struct cas_spool_options){.retry_ms = 20, .hold_ms = 500});
}

static struct cas_digest put(struct cas_store *store, unsigned seed)
{
	unsigned char *data = tests_noise(SIZE, seed);
	struct cas_digest d;
	struct err err = {0};

	if (cas_put_bytes(store, data, SIZE, &d, &err) < 0)
		fail_msg("cannot put: %s", err.msg);
	free(data);
	return d;
}

static void assert_holds(struct cas_store *store, const struct cas_digest *d, unsigned seed)
{
	unsigned char *data = tests_noise(SIZE, seed);

	tests_assert_blob(store, d, data, SIZE);
	free(data);
}

static void drain(struct cas_store *store, enum cas_spool_whose whose)
{
	struct err err = {0};

	if (cas_spool_drain(store, whose, NULL, &err) < 0)
		fail_msg("cannot drain: %s", err.msg);
}

static uint64_t spooled(struct cas_store *store)
{
	struct cas_spool_usage usage;

	assert_int_equal(cas_spool_usage(store, &usage, NULL), 0);
	assert_int_equal(usage.bytes, usage.blobs * SIZE);
	assert_int_equal(usage.results, 0);
	assert_int_equal(usage.oldest_ns > 0, usage.blobs > 0);
	return usage.blobs;
}

/* DIR/blobs/cas/HH/HASH, or the shard alone. */
static const char *blob_at(const char *dir, const struct cas_digest *d, bool shard)
{
	char path[CAS_LAYOUT_PATH_SZ];
	char full[32 + CAS_LAYOUT_PATH_SZ];

	cas_layout_path(d->hash, path);
	(void)snprintf(full, sizeof(full), "blobs/cas/%.*s", shard ? 2 : 99, path);
	return tests_path(dir, full);
}

static bool is_moved(const char *dir, const struct cas_digest *d)
{
	return access(blob_at(dir, d, false), F_OK) == 0;
}

static int64_t shard_change(const char *dir, const struct cas_digest *d)
{
	struct stat st;

	assert_int_equal(stat(blob_at(dir, d, true), &st), 0);
	return (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec;
}

/* Away, so that every move fails; bring_back makes it again, as a new mount would. */
static void take_away(const char *dir)
{
	assert_int_equal(io_remove_tree(AT_FDCWD, tests_path(dir, "blobs/cas"), NULL), 0);
}

static void bring_back(const char *dir)
{
	assert_int_equal(mkdir(tests_path(dir, "blobs/cas"), 0755), 0);
}

static void test_put_is_moved_and_leaves_nothing_in_the_spool(void **state)
{
	struct cas_store *store = open_store(*state, "store");
	struct cas_digest d;
	struct stat st;

	start_plain(store);
	d = put(store, 1);
	assert_holds(store, &d, 1);
	drain(store, CAS_SPOOL_OWN);
	assert_int_equal(spooled(store), 0);
	assert_int_equal(stat(blob_at(*state, &d, false), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0444);
	assert_int_equal(st.st_nlink, 1);
	assert_int_equal(tests_count_names(blob_at(*state, &d, true)), 1);
	assert_holds(store, &d, 1);
	cas_store_close(store);
}

static void test_put_and_read_go_on_while_the_directory_is_away(void **state)
{
	struct cas_store *store = open_store(*state, "store");
	struct cas_digest d;
	struct cas_digest again;

	start_plain(store);
	take_away(*state);
	d = put(store, 1);
	assert_int_equal(cas_store_sync(store, NULL), 0);
	assert_int_equal(spooled(store), 1);
	assert_int_equal(cas_store_has(store, &d), 1);
	assert_int_equal(cas_store_resolve(store, d.hash, &again), 1);
	assert_true(cas_digest_equal(&d, &again));
	assert_holds(store, &d, 1);
	bring_back(*state);
	drain(store, CAS_SPOOL_ALL);
	assert_true(is_moved(*state, &d));
	assert_int_equal(spooled(store), 0);
	cas_store_close(store);
}

static void test_known_blob_costs_no_mutation(void **state)
{
	struct tests_catalog *catalog = tests_catalog_new();
	struct cas_digest d;
	int64_t before;

	/* Known by the index, then by nobody but the directory itself. */
	for (int known = 1; known >= 0; known--) {
		struct cas_store *store = open_store(*state, "store");

		if (known)
			cas_store_set_catalog(store, tests_catalog_ops(catalog));
		start_plain(store);
		if (known) {
			d = put(store, 1);
			drain(store, CAS_SPOOL_OWN);
		}
		before = shard_change(*state, &d);
		fault_reset();
		d = put(store, 1);
		assert_int_equal(fault_seen(FAULT_LINKAT), known ? 0 : 1); /* the spool's own */
		drain(store, CAS_SPOOL_OWN);
		assert_int_equal(fault_seen(FAULT_LINKAT), known ? 0 : 1);
		assert_int_equal(fault_seen(FAULT_TMPFILE), known ? 0 : 1);
		assert_int_equal(fault_seen(FAULT_RENAMEAT2), 0);
		assert_int_equal(shard_change(*state, &d), before);
		assert_int_equal(spooled(store), 0);
		cas_spool_stop(store);
		cas_store_close(store);
	}
	tests_catalog_free(catalog);
}

/* One link where files may be unnamed; a creation and a rename otherwise. */
static void test_new_blob_costs_at_most_two_mutations(void **state)
{
	static const enum fault_call names[] = {FAULT_LINKAT, FAULT_RENAMEAT, FAULT_RENAMEAT2,
						FAULT_UNLINKAT};

	for (int named = 0; named < 2; named++) {
		struct cas_store *store = open_store(*state, "store");
		unsigned char *data = tests_noise(SIZE, 7);
		unsigned seen = 0;

		/* The shard is there: making it is not the blob's. */
		assert_int_equal(cas_put_bytes(store, data, SIZE, &(struct cas_digest){0}, NULL),
				 0);
		free(data);
		fault_reset();
		start_plain(store);
		if (named)
			fault_fail(FAULT_TMPFILE, 0, EOPNOTSUPP);
		for (unsigned i = 0; i < 200; i++)
			(void)put(store, 1000 + 1000 * (unsigned)named + i);
		drain(store, CAS_SPOOL_OWN);
		for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
			seen += fault_seen(names[i]);
		/* Each blob: named in the spool, named in its shard, unlinked in the spool. */
		assert_int_equal(seen, 3 * 200);
		assert_int_equal(fault_seen(FAULT_RENAMEAT2), named ? 2 * 200 : 0);
		fault_reset();
		cas_store_close(store);
	}
}

static void test_next_start_moves_what_was_left(void **state)
{
	struct cas_store *store = open_store(*state, "store");
	struct cas_digest d[20];

	start_plain(store);
	take_away(*state);
	for (unsigned i = 0; i < 20; i++)
		d[i] = put(store, i);
	cas_store_close(store);
	bring_back(*state);
	store = open_store(*state, "store");
	assert_int_equal(spooled(store), 20);
	assert_holds(store, &d[3], 3);
	start_plain(store);
	(void)put(store, 99);
	drain(store, CAS_SPOOL_ALL);
	assert_int_equal(spooled(store), 0);
	for (unsigned i = 0; i < 20; i++)
		assert_holds(store, &d[i], i);
	cas_store_close(store);
}

static void test_wrong_spool_file_is_not_moved(void **state)
{
	struct cas_store *store = open_store(*state, "store");
	char path[CAS_LAYOUT_PATH_SZ];
	char full[32 + CAS_LAYOUT_PATH_SZ];
	struct cas_spool_usage usage;
	struct cas_digest d;

	start_plain(store);
	take_away(*state);
	d = put(store, 1);
	cas_store_close(store);
	bring_back(*state);
	cas_layout_path(d.hash, path);
	(void)snprintf(full, sizeof(full), "store/spool/%s", path);
	assert_int_equal(truncate(tests_path(*state, full), SIZE - 1), 0);
	store = open_store(*state, "store");
	start_plain(store);
	drain(store, CAS_SPOOL_ALL);
	assert_false(is_moved(*state, &d));
	assert_int_equal(spooled(store), 0);
	assert_int_equal(cas_store_has(store, &d), 0);
	d = put(store, 1);
	drain(store, CAS_SPOOL_OWN);
	assert_holds(store, &d, 1);
	assert_int_equal(cas_spool_usage(store, &usage, NULL), 0);
	assert_int_equal(usage.damaged_bytes, SIZE - 1);
	fault_clock(3 * 86400);
	drain(store, CAS_SPOOL_ALL);
	fault_reset();
	assert_int_equal(cas_spool_usage(store, &usage, NULL), 0);
	assert_int_equal(usage.damaged, 0);
	cas_store_close(store);
}

static void test_name_that_is_no_file_is_moved_aside(void **state)
{
	struct cas_store *store = open_store(*state, "store");
	struct cas_digest d;
	char path[CAS_LAYOUT_PATH_SZ];
	char name[16 + CAS_LAYOUT_PATH_SZ];
	unsigned char *data = tests_noise(SIZE, 7);

	assert_int_equal(cas_hash_bytes(data, SIZE, &d), 0);
	free(data);
	cas_layout_path(d.hash, path);
	(void)snprintf(name, sizeof(name), "store/spool/%.2s", path);
	assert_int_equal(mkdir(tests_path(*state, name), 0755), 0);
	(void)snprintf(name, sizeof(name), "store/spool/%s", path);
	assert_int_equal(symlink("/etc/passwd", tests_path(*state, name)), 0);
	start_plain(store);
	d = put(store, 7);
	drain(store, CAS_SPOOL_ALL);
	assert_true(is_moved(*state, &d));
	assert_holds(store, &d, 7);
	assert_int_equal(access(tests_path(*state, name), F_OK), -1);
	cas_spool_stop(store);
	cas_store_close(store);
}

static void test_bounds_hold_puts_back(void **state)
{
	const struct cas_spool_options few = {.nr_movers = 2, .max_blobs = 4};
	const struct cas_spool_options small = {.nr_movers = 2, .max_bytes = 3 * SIZE};
	struct cas_store *store = open_store(*state, "store");

	for (int bytes = 0; bytes < 2; bytes++) {
		start(store, bytes ? &small : &few);
		for (unsigned i = 0; i < 60; i++) {
			(void)put(store, 100 * (unsigned)bytes + i);
			assert_true(spooled(store) <= (bytes ? 3 : 4));
		}
		drain(store, CAS_SPOOL_OWN);
		cas_spool_stop(store);
	}
	cas_store_close(store);
}

static void test_drain_and_full_spool_tell_why_they_cannot(void **state)
{
	const struct cas_spool_options few = {.nr_movers = 2, .max_blobs = 1, .retry_ms = 2};
	struct cas_store *store = open_store(*state, "store");
	struct cas_digest d;
	struct err err = {0};
	unsigned char *data = tests_noise(SIZE, 2);

	start(store, &few);
	take_away(*state);
	d = put(store, 1);
	assert_int_equal(cas_spool_drain(store, CAS_SPOOL_OWN, NULL, &err), -EAGAIN);
	assert_non_null(strstr(err.msg, "blobs"));
	assert_non_null(strstr(err.msg, "No such file"));
	err = (struct err){0};
	assert_int_equal(cas_put_bytes(store, data, SIZE, NULL, &err), -EAGAIN);
	assert_non_null(strstr(err.msg, "is full"));
	free(data);
	assert_holds(store, &d, 1);
	bring_back(*state);
	cas_spool_stop(store);
	start_plain(store);
	drain(store, CAS_SPOOL_ALL);
	assert_true(is_moved(*state, &d));
	cas_store_close(store);
}

static void count_failures(void *ctx, enum log_level level, const char *line)
{
	if (level == LOG_LEVEL_WARN && strstr(line, "stays in the spool"))
		atomic_fetch_add((_Atomic unsigned *)ctx, 1);
}

static void test_failure_of_many_is_told_once(void **state)
{
	const struct cas_spool_options many = {.nr_movers = 4, .retry_ms = 2};
	struct cas_store *store = open_store(*state, "store");
	_Atomic unsigned nr = 0;
	struct err err = {0};

	start(store, &many);
	take_away(*state);
	log_set_sink(count_failures, &nr);
	log_set_level(LOG_LEVEL_WARN);
	for (unsigned i = 0; i < 20; i++)
		(void)put(store, i);
	assert_int_equal(cas_spool_drain(store, CAS_SPOOL_OWN, NULL, &err), -EAGAIN);
	assert_int_equal(spooled(store), 20);
	cas_spool_stop(store);
	log_set_level(LOG_LEVEL_ERROR);
	log_set_sink(NULL, NULL);
	assert_int_equal(nr, 1);
	cas_store_close(store);
}

static void test_read_only_directory_delays_only(void **state)
{
	const char *blobs = tests_path(*state, "blobs");
	struct cas_store *store;
	struct cas_digest d;

	assert_int_equal(mkdir(blobs, 0755), 0);
	if (mount("tmpfs", blobs, "tmpfs", 0, NULL) < 0)
		skip();
	store = open_store(*state, "store");
	start_plain(store);
	assert_int_equal(mount(NULL, blobs, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	d = put(store, 1);
	(void)usleep(300000);
	assert_int_equal(spooled(store), 1);
	assert_holds(store, &d, 1);
	assert_int_equal(mount(NULL, blobs, NULL, MS_REMOUNT, NULL), 0);
	drain(store, CAS_SPOOL_OWN);
	assert_true(is_moved(*state, &d));
	cas_store_close(store);
	assert_int_equal(umount(tests_path(*state, "blobs")), 0);
}

static void test_stale_handles_delay_only(void **state)
{
	struct cas_store *store = open_store(*state, "store");
	struct cas_digest d;

	start_plain(store);
	fault_reset();
	fault_fail(FAULT_OPENAT, 0, ESTALE);
	d = put(store, 1);
	(void)usleep(200000);
	/* Faults are set while no other thread runs. */
	cas_spool_stop(store);
	fault_reset();
	assert_int_equal(spooled(store), 1);
	start_plain(store);
	drain(store, CAS_SPOOL_ALL);
	assert_true(is_moved(*state, &d));
	cas_store_close(store);
}

/* In pieces, as from a stream; or from a file, in one go. */
static struct cas_digest put_large(struct cas_store *store, const unsigned char *data, size_t size,
				   bool pieces)
{
	auto_close int fd = memfd_create("large", MFD_CLOEXEC);
	struct cas_put *put = NULL;
	struct cas_digest d = {0};
	struct err err = {0};
	int ret = cas_put_new(store, &put, &err);

	for (size_t at = 0; ret == 0 && pieces && at < size; at += 100000)
		ret = cas_put_write(put, data + at, size - at < 100000 ? size - at : 100000, &err);
	if (ret == 0 && !pieces) {
		assert_int_equal(io_write_full(fd, data, size), 0);
		ret = cas_put_copy_fd(put, fd, &err);
	}
	if (ret == 0)
		ret = cas_put_publish(put, NULL, &d, &err);
	cas_put_free(put);
	if (ret < 0)
		fail_msg("%s", err.msg);
	return d;
}

static void fill(const char *place)
{
	static const char page[4096];
	auto_close int fd = open(place, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	while (write(fd, page, sizeof(page)) > 0)
		;
	assert_int_equal(errno, ENOSPC);
}

static void test_full_spool_disk_puts_into_the_directory(void **state)
{
	static const size_t sizes[] = {900000, 3000000, 2500001};
	const char *place = tests_path(*state, "store");
	struct cas_store *store;

	assert_int_equal(mkdir(place, 0755), 0);
	if (mount("tmpfs", place, "tmpfs", 0, "size=1200k") < 0)
		skip();
	store = open_store(*state, "store");
	start_plain(store);
	for (unsigned i = 0; i < 4; i++) {
		size_t size = sizes[i % 3] + i;
		unsigned char *data = tests_noise(size, i + 5);
		struct cas_digest d;

		if (i == 3) /* not even the first block fits */
			fill(tests_path(*state, "store/fill"));
		d = put_large(store, data, size, i == 1);
		assert_true(is_moved(*state, &d) || i == 0);
		tests_assert_blob(store, &d, data, size);
		free(data);
		drain(store, CAS_SPOOL_ALL);
	}
	assert_int_equal(spooled(store), 0);
	cas_store_close(store);
	assert_int_equal(umount(tests_path(*state, "store")), 0);
}

struct putter {
	struct cas_store *store;
	unsigned from;
};

static void *put_many(void *arg)
{
	struct putter *p = arg;

	for (unsigned i = 0; i < 60; i++) {
		unsigned char *data = tests_noise(SIZE, p->from + i);
		int ret = cas_put_bytes(p->store, data, SIZE, NULL, NULL);

		free(data);
		if (ret < 0)
			return (void *)-1;
	}
	return NULL;
}

static void test_two_stores_on_one_directory_end_equal(void **state)
{
	struct putter p[4];
	pthread_t threads[4];
	struct cas_store *store[2] = {open_store(*state, "one"), open_store(*state, "two")};
	struct cas_fsck_options opts = {.nr_threads = 1};
	struct cas_fsck_result result;
	void *ret;

	for (int i = 0; i < 4; i++) {
		if (i < 2)
			start_plain(store[i]);
		p[i] = (struct putter){store[i % 2], i < 2 ? 0 : 40};
	}
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, put_many, &p[i]), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(threads[i], &ret), 0);
		assert_null(ret);
	}
	for (int i = 0; i < 2; i++) {
		drain(store[i], CAS_SPOOL_OWN);
		assert_int_equal(cas_fsck(store[i], &opts, &result, NULL), 0);
		assert_int_equal(result.blobs, 100);
		assert_int_equal(result.faults, 0);
	}
	cas_store_close(store[0]);
	cas_store_close(store[1]);
}

/* The file says who; the other keeps its copy until the blob has been safe for a while. */
/* Others go by it: who finds DIR/cas and no owner takes DIR for somebody's cache. */
static void test_directory_has_an_owner_before_it_has_blobs(void **state)
{
	int status = 99;
	unsigned nr_claimed = 0;

	for (unsigned n = 1; n < 100 && status == 99; n++) {
		pid_t pid;
		bool claimed;

		assert_int_equal(io_remove_tree(AT_FDCWD, tests_path(*state, "blobs"), NULL), 0);
		assert_int_equal(io_remove_tree(AT_FDCWD, tests_path(*state, "store"), NULL), 0);
		pid = fork();
		if (pid == 0) {
			fault_exit(n, true);
			(void)open_store(*state, "store");
			_exit(0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status));
		status = WEXITSTATUS(status);
		claimed = access(tests_path(*state, "blobs/owner"), F_OK) == 0;
		nr_claimed += claimed;
		assert_true(claimed || access(tests_path(*state, "blobs/cas"), F_OK) < 0);
	}
	assert_int_equal(status, 0);
	assert_true(nr_claimed > 1);
}

static void test_owner_alone_unlinks_and_the_young_stay(void **state)
{
	struct cas_store *owner = open_store(*state, "one");
	struct cas_store *other = open_store(*state, "two");
	const struct cas_evict_options nothing = {.max_bytes = 0};
	const struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
	struct cas_evict_result result;
	struct cas_digest d;

	start_plain(other);
	d = put(other, 1);
	drain(other, CAS_SPOOL_OWN);
	assert_true(is_moved(*state, &d));
	assert_int_equal(spooled(other), 1); /* held */
	assert_int_equal(cas_evict(owner, &nothing, NULL, &result, NULL), 0);
	assert_int_equal(result.freed_blobs, 0);
	assert_int_equal(utimensat(AT_FDCWD, blob_at(*state, &d, false), old, 0), 0);
	assert_int_equal(cas_evict(other, &nothing, NULL, &result, NULL), 0);
	assert_int_equal(result.freed_blobs, 0);
	assert_int_equal(cas_evict(owner, &nothing, NULL, &result, NULL), 0);
	assert_int_equal(result.freed_blobs, 1);
	assert_false(is_moved(*state, &d));
	/* Gone before the other let go of it: it moves it once more. */
	assert_holds(other, &d, 1);
	drain(other, CAS_SPOOL_ALL);
	assert_true(is_moved(*state, &d));
	assert_int_equal(spooled(other), 0);
	assert_holds(owner, &d, 1);
	/* A put of one that is there and old makes it young before it counts on it. */
	assert_int_equal(utimensat(AT_FDCWD, blob_at(*state, &d, false), old, 0), 0);
	d = put(other, 1);
	drain(other, CAS_SPOOL_OWN);
	assert_int_equal(cas_evict(owner, &nothing, NULL, &result, NULL), 0);
	assert_int_equal(result.freed_blobs, 0);
	cas_store_close(owner);
	cas_store_close(other);
}

static pid_t start_service(const char *dir)
{
	int ready[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		struct cas_store *store = open_store(dir, "store");

		start(store, &(struct cas_spool_options){.serve = true});
		(void)!write(ready[1], "r", 1);
		for (;;)
			(void)pause();
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	(void)close(ready[0]);
	(void)close(ready[1]);
	return pid;
}

static void test_service_moves_for_others_until_it_is_killed(void **state)
{
	pid_t pid = start_service(*state);
	struct cas_store *store = open_store(*state, "store");
	struct cas_store *second = open_store(*state, "store");
	struct cas_digest d;
	struct cas_digest later;

	start_plain(store);
	assert_int_equal(cas_spool_start(second, &(struct cas_spool_options){.serve = true}, NULL),
			 -EBUSY);
	cas_store_close(second);
	d = put(store, 1);
	assert_int_equal(cas_store_sync(store, NULL), 0);
	drain(store, CAS_SPOOL_OWN);
	drain(store, CAS_SPOOL_ALL);
	assert_true(is_moved(*state, &d));
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	later = put(store, 2);
	drain(store, CAS_SPOOL_ALL);
	assert_true(is_moved(*state, &later));
	assert_int_equal(spooled(store), 0);
	cas_store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_put_is_moved_and_leaves_nothing_in_the_spool),
		TESTS_IN_DIR(test_put_and_read_go_on_while_the_directory_is_away),
		TESTS_IN_DIR(test_known_blob_costs_no_mutation),
		TESTS_IN_DIR(test_new_blob_costs_at_most_two_mutations),
		TESTS_IN_DIR(test_next_start_moves_what_was_left),
		TESTS_IN_DIR(test_wrong_spool_file_is_not_moved),
		TESTS_IN_DIR(test_name_that_is_no_file_is_moved_aside),
		TESTS_IN_DIR(test_bounds_hold_puts_back),
		TESTS_IN_DIR(test_drain_and_full_spool_tell_why_they_cannot),
		TESTS_IN_DIR(test_failure_of_many_is_told_once),
		TESTS_IN_DIR(test_read_only_directory_delays_only),
		TESTS_IN_DIR(test_stale_handles_delay_only),
		TESTS_IN_DIR(test_full_spool_disk_puts_into_the_directory),
		TESTS_IN_DIR(test_two_stores_on_one_directory_end_equal),
		TESTS_IN_DIR(test_directory_has_an_owner_before_it_has_blobs),
		TESTS_IN_DIR(test_owner_alone_unlinks_and_the_young_stay),
		TESTS_IN_DIR(test_service_moves_for_others_until_it_is_killed),
	};

	/* Mounts of ours go with this namespace. */
	if (unshare(CLONE_NEWNS) == 0)
		(void)mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("cas_spool", tests, NULL, NULL);
}
