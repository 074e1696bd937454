/* tests/crash/crash_store.c - die at each step of a put, take, landing, result, eviction */
#include "tests/lib/tests.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/evict/evict.h"
#include "cas/fsck/fsck.h"
#include "cas/hash.h"
#include "cas/landing/landing.h"
#include "cas/put/put.h"
#include "cas/reapi.pb-c.h"
#include "cas/store/store.h"
#include "tests/lib/fault.h"
#include "tests/lib/store.h"

/*
 * A child runs one scenario and exits at the nth call that changes something, before or
 * after it; n grows until the scenario ends by itself. After each death: the store opens,
 * fsck finds no fault, blobs are absent or right, a retry works, and once time has passed
 * gc leaves nothing but blobs.
 */

#define SMALL 5000
#define LARGE ((1u << 20) + 777)

struct scenario {
	const char *name;
	void (*prepare)(const char *dir);
	int (*run)(const char *dir);
	void (*check)(const char *dir, struct cas_store *store);
	bool named; /* no unnamed files there */
	enum cas_durability durability;
};

static const struct scenario *now; /* the one that runs */

static struct cas_store *open_store(const char *dir)
{
	struct cas_store_options opts = {
		.path = tests_path(dir, "store"), .create = true, .durability = now->durability};
	struct cas_store *store = NULL;

	return cas_store_open(&opts, &store, NULL) < 0 ? NULL : store;
}

static void prepare_nothing(const char *dir)
{
	(void)dir;
}

static void prepare_file(const char *dir)
{
	unsigned char *data = tests_noise(SMALL, 1);

	tests_write_file(tests_path(dir, "out"), data, SMALL, 0644);
	free(data);
}

static int put_noise(struct cas_store *store, size_t size, struct cas_digest *d)
{
	unsigned char *data = tests_noise(size, 1);
	int ret = cas_put_bytes(store, data, size, d, NULL);

	free(data);
	return ret;
}

static int run_put(const char *dir)
{
	struct cas_store *store = open_store(dir);
	unsigned char *data = tests_noise(LARGE, 1);
	struct cas_digest d;
	struct cas_put *put;
	int ret = store ? 0 : -EIO;

	if (ret == 0)
		ret = put_noise(store, SMALL, &d);
	if (ret == 0)
		ret = cas_put_new(store, &put, NULL);
	if (ret == 0)
		ret = cas_put_write(put, data, LARGE, NULL);
	if (ret == 0)
		ret = cas_put_publish(put, NULL, &d, NULL);
	if (ret == 0)
		ret = cas_store_sync(store, NULL);
	return ret;
}

static int run_take(const char *dir)
{
	struct cas_store *store = open_store(dir);
	auto_close int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct cas_digest d;
	bool moved = false;
	int ret = store ? cas_put_take(store, dir_fd, "out", true, &d, &moved, NULL) : -EIO;

	return ret == 0 && !moved ? -EBUSY : ret;
}

static int run_repair(const char *dir)
{
	struct cas_store *store = open_store(dir);
	struct cas_digest d;

	return store ? put_noise(store, SMALL, &d) : -EIO;
}

/* A blob of the right size with one wrong byte. */
static void prepare_wrong_blob(const char *dir)
{
	struct cas_store *store = open_store(dir);
	struct cas_digest d;
	auto_close int fd = -1;

	assert_int_equal(put_noise(store, SMALL, &d), 0);
	cas_store_close(store);
	assert_int_equal(chmod(tests_blob_path(dir, &d), 0644), 0);
	fd = open(tests_blob_path(dir, &d), O_WRONLY | O_CLOEXEC);
	assert_int_equal(io_pwrite_full(fd, "wrong", 5, 100), 0);
}

static const struct cas_digest action = {.hash = {0xac}, .size = 9};

/* Two results that name the same blob, and one blob that nobody names. */
static void prepare_results(const char *dir)
{
	Reapi__ActionResult result = REAPI__ACTION_RESULT__INIT;
	Reapi__Digest digest = REAPI__DIGEST__INIT;
	struct cas_store *store = open_store(dir);
	char hash[CAS_HASH_HEX_SZ + 1];
	uint8_t packed[200];
	size_t len;
	struct cas_digest d;

	assert_int_equal(cas_put_bytes(store, "nobody's", 8, &d, NULL), 0);
	assert_int_equal(put_noise(store, SMALL, &d), 0);
	cas_hash_format(d.hash, hash);
	digest.hash = hash;
	digest.size_bytes = (int64_t)d.size;
	result.stdout_digest = &digest;
	len = reapi__action_result__pack(&result, packed);
	for (uint8_t i = 0; i < 2; i++) {
		struct cas_digest a = action;

		a.hash[0] = (uint8_t)(a.hash[0] + i);
		assert_int_equal(cas_store_action_put(store, &a, packed, len, NULL), 0);
	}
	cas_store_close(store);
}

static int run_evict(const char *dir)
{
	struct cas_store *store = open_store(dir);
	struct cas_evict_options all = {0};
	struct cas_evict_result result;
	int ret = store ? cas_evict(store, &all, NULL, &result, NULL) : -EIO;

	cas_store_close(store);
	return ret;
}

static int tell(void *ctx, const struct cas_store_blob *blob)
{
	const struct cas_catalog *c = ctx;

	c->ops->blob_add(c->ctx, &blob->digest, &blob->stamp);
	return 0;
}

/* The same when a ledger that knows all of it says what is oldest. */
static int run_evict_by_ledger(const char *dir)
{
	struct tests_catalog *catalog = tests_catalog_new();
	struct cas_store *store = open_store(dir);
	struct cas_evict_options all = {0};
	struct cas_evict_result result;
	int ret = store ? cas_store_walk(store, tell, NULL,
					 (void *)(uintptr_t)tests_catalog_ops(catalog), NULL)
			: -EIO;

	tests_catalog_believe(catalog);
	if (ret == 0) {
		cas_store_set_catalog(store, tests_catalog_ops(catalog));
		ret = cas_evict(store, &all, NULL, &result, NULL);
	}
	if (ret == 0 && tests_catalog_count(catalog) != 0)
		ret = -EUCLEAN;
	cas_store_close(store);
	tests_catalog_free(catalog);
	return ret;
}

static int run_action(const char *dir)
{
	struct cas_store *store = open_store(dir);
	int ret = store ? cas_store_action_put(store, &action, "\x20\x07", 2, NULL) : -EIO;

	return ret < 0 ? ret : cas_store_action_put(store, &action, "\x20\x08", 2, NULL);
}

static int run_variant(const char *dir)
{
	struct cas_store *store = open_store(dir);
	struct cas_digest d;
	char name[72];
	int dir_fd;
	int ret = store ? put_noise(store, SMALL, &d) : -EIO;

	return ret < 0 ? ret : cas_store_link_variant(store, &d, true, &dir_fd, name, NULL);
}

/* Both blobs are absent or right, which fsck has seen; putting them again works. */
static void check_retry(const char *dir, struct cas_store *store)
{
	unsigned char *data = tests_noise(LARGE, 1);
	struct cas_digest d;

	(void)dir;
	assert_int_equal(cas_put_bytes(store, data, SMALL, &d, NULL), 0);
	tests_assert_blob(store, &d, data, SMALL);
	assert_int_equal(cas_put_bytes(store, data, LARGE, &d, NULL), 0);
	tests_assert_blob(store, &d, data, LARGE);
	free(data);
}

/* A blob named by a result is there as long as the result is. */
static void check_results(const char *dir, struct cas_store *store)
{
	for (uint8_t i = 0; i < 2; i++) {
		auto_buf struct buf b = {0};
		struct cas_digest a = action;
		struct cas_digest d;
		Reapi__ActionResult *r;

		a.hash[0] = (uint8_t)(a.hash[0] + i);
		if (cas_store_action_get(store, &a, &b, NULL) < 0)
			continue;
		r = reapi__action_result__unpack(NULL, b.len, (const uint8_t *)b.data);
		assert_non_null(r);
		assert_int_equal(cas_hash_parse(r->stdout_digest->hash, CAS_HASH_HEX_SZ, d.hash),
				 0);
		d.size = (uint64_t)r->stdout_digest->size_bytes;
		assert_int_equal(cas_store_has(store, &d), 1);
		reapi__action_result__free_unpacked(r, NULL);
	}
	assert_int_equal(run_evict(dir), 0);
	assert_int_equal(tests_count_blobs(dir), 0);
}

static void check_take(const char *dir, struct cas_store *store)
{
	struct stat st;
	int blobs = tests_count_blobs(dir);

	/* Under its old name, a temporary one, or its final one: the bytes are somewhere. */
	assert_true((stat(tests_path(dir, "out"), &st) == 0) + blobs >= 1);
	check_retry(dir, store);
}

static void check_action(const char *dir, struct cas_store *store)
{
	auto_buf struct buf b = {0};
	int ret = cas_store_action_get(store, &action, &b, NULL);

	(void)dir;
	assert_true(ret == -ENOENT || ret == 0);
	if (ret == 0) {
		assert_int_equal(b.len, 2);
		assert_true(b.data[1] == 7 || b.data[1] == 8);
	}
	assert_int_equal(cas_store_action_put(store, &action, "\x20\x09", 2, NULL), 0);
	buf_reset(&b);
	assert_int_equal(cas_store_action_get(store, &action, &b, NULL), 0);
	assert_int_equal(b.data[1], 9);
}

static void check_variant(const char *dir, struct cas_store *store)
{
	struct cas_digest d;
	struct stat st;
	char name[72];
	int dir_fd;

	(void)dir;
	assert_int_equal(put_noise(store, SMALL, &d), 0);
	assert_int_equal(cas_store_link_variant(store, &d, true, &dir_fd, name, NULL), 0);
	assert_int_equal(fstatat(dir_fd, name, &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0555);
	assert_int_equal(st.st_size, SMALL);
}

static void on_fault(void *ctx, const char *line)
{
	fail_msg("fsck after %s: %s", (const char *)ctx, line);
}

static void assert_clean(struct cas_store *store)
{
	struct cas_fsck_options opts = {
		.nr_threads = 1, .fault = on_fault, .ctx = (void *)(uintptr_t)now->name};
	struct cas_fsck_result result;

	assert_int_equal(cas_fsck(store, &opts, &result, NULL), 0);
	assert_int_equal(result.faults, 0);
	assert_int_equal(result.foreign, 0);
}

/* Visit each temporary below @path: make it two days old, or (@age false) count it. */
static int temporaries(const char *path, bool age)
{
	const time_t then = time(NULL) - 2 * 86400;
	const struct timespec old[2] = {{.tv_sec = then}, {.tv_sec = then}};
	auto_closedir DIR *dir = opendir(path);
	struct dirent *de;
	int nr = 0;

	while (dir && (de = readdir(dir)) != NULL) {
		char below[4096];
		struct stat st;

		if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
			continue;
		(void)snprintf(below, sizeof(below), "%s/%s", path, de->d_name);
		if (lstat(below, &st) == 0 && S_ISDIR(st.st_mode)) {
			nr += temporaries(below, age);
		} else if (strncmp(de->d_name, ".tmp-", 5) == 0) {
			nr++;
			if (age)
				assert_int_equal(utimensat(AT_FDCWD, below, old, 0), 0);
		}
	}
	return nr;
}

static void check_after(const char *dir)
{
	struct cas_store *store;
	struct cas_evict_options plenty = {.max_bytes = UINT64_MAX};
	struct cas_evict_result result;

	store = open_store(dir);
	assert_non_null(store);
	if (now->run != run_repair)
		assert_clean(store);
	now->check(dir, store);
	assert_clean(store);
	(void)temporaries(tests_path(dir, "store"), true);
	assert_int_equal(cas_evict(store, &plenty, NULL, &result, NULL), 0);
	assert_int_equal(temporaries(tests_path(dir, "store"), false), 0);
	cas_store_close(store);
}

static int run_now(void *dir)
{
	return now->run(dir);
}

/* False once the scenario ended by itself. */
static bool crash_at(const char *dir, unsigned nth, bool after)
{
	int ended;

	assert_int_equal(io_remove_tree(AT_FDCWD, tests_path(dir, "store"), NULL), 0);
	now->prepare(dir);
	ended = fault_exit_child(nth, after, now->named, run_now, (void *)dir);
	assert_in_range(ended, 0, 1);
	check_after(dir);
	return ended == 1;
}

/* --- files that land --- */

#define NR_LANDING 3

static void prepare_box(const char *dir)
{
	struct cas_store *store = open_store(dir);

	assert_non_null(store);
	cas_store_close(store);
	assert_int_equal(io_remove_tree(AT_FDCWD, tests_path(dir, "box"), NULL), 0);
	for (unsigned i = 0; i < NR_LANDING; i++) {
		unsigned char *data = tests_noise(SMALL, 10 + i);
		char name[32];

		(void)snprintf(name, sizeof(name), "box/upper/0/u/f%u", i);
		tests_write_file(tests_path(dir, name), data, SMALL, 0644);
		free(data);
	}
}

static int list_box(struct cas_store *store, int box_fd)
{
	auto_close int upper_fd = openat(box_fd, "upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_close int dir_fd = openat(box_fd, "upper/0/u", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_close int landing_fd = -1;
	struct cas_landing_list *list = NULL;
	struct cas_digest d;
	int ret = cas_landing_list_new(store, upper_fd, &list);

	for (unsigned i = 0; ret == 0 && i < NR_LANDING; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "f%u", i);
		ret = cas_landing_offer(list, dir_fd, "0/u", name, NULL, &d, NULL) == 1 ? 0 : -EIO;
	}
	if (ret == 0)
		ret = mkdirat(box_fd, "landing", 0700);
	landing_fd = openat(box_fd, "landing", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (ret == 0)
		ret = cas_landing_list_write(list, landing_fd, NULL);
	cas_landing_list_free(list);
	return ret;
}

static int run_landing(const char *dir)
{
	struct cas_store *store = open_store(dir);
	auto_close int box_fd = open(tests_path(dir, "box"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int ret = store ? cas_landing_start(store, NULL) : -EIO;

	if (ret == 0)
		ret = list_box(store, box_fd);
	if (ret == 0)
		ret = renameat(box_fd, "upper", box_fd, "landing/upper");
	if (ret == 0)
		ret = cas_landing_take(store, box_fd, "landing", NULL);
	if (ret == 0)
		ret = cas_landing_settle(store, NULL);
	return ret;
}

/* In the box, all of them, or in the store. */
static void check_landing(const char *dir, struct cas_store *store)
{
	bool in_box = access(tests_path(dir, "box/upper"), F_OK) == 0 ||
		      access(tests_path(dir, "box/landing/upper"), F_OK) == 0;

	for (unsigned i = 0; i < NR_LANDING; i++) {
		unsigned char *data = tests_noise(SMALL, 10 + i);
		struct cas_digest d;

		assert_int_equal(cas_hash_bytes(data, SMALL, &d), 0);
		if (in_box)
			assert_int_equal(cas_store_has(store, &d), 0);
		else
			tests_assert_blob(store, &d, data, SMALL);
		free(data);
	}
	assert_int_equal(access(tests_path(dir, "store/landing"), F_OK), -1);
	check_retry(dir, store);
}

static const struct scenario scenarios[] = {
	{"put", prepare_nothing, run_put, check_retry, false, CAS_DURABILITY_BATCH},
	{"put, full", prepare_nothing, run_put, check_retry, false, CAS_DURABILITY_FULL},
	{"put, named", prepare_nothing, run_put, check_retry, true, CAS_DURABILITY_BATCH},
	{"take", prepare_file, run_take, check_take, false, CAS_DURABILITY_NONE},
	{"landing", prepare_box, run_landing, check_landing, false, CAS_DURABILITY_NONE},
	{"repair", prepare_wrong_blob, run_repair, check_retry, false, CAS_DURABILITY_NONE},
	{"action", prepare_nothing, run_action, check_action, false, CAS_DURABILITY_NONE},
	{"variant", prepare_nothing, run_variant, check_variant, false, CAS_DURABILITY_NONE},
	{"variant, named", prepare_nothing, run_variant, check_variant, true, CAS_DURABILITY_NONE},
	{"evict", prepare_results, run_evict, check_results, false, CAS_DURABILITY_NONE},
	{"evict, ledger", prepare_results, run_evict_by_ledger, check_results, false,
	 CAS_DURABILITY_NONE},
};

static void test_every_step_may_be_the_last(void **state)
{
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
		now = &scenarios[i];
		for (int after = 0; after < 2; after++) {
			unsigned nth = 1;

			while (crash_at(*state, nth, after))
				nth++;
			/* Prove that it was put to the test. */
			assert_true(nth > 4);
			(void)printf("%s: %u steps\n", now->name, nth - 1);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {TESTS_IN_DIR(test_every_step_may_be_the_last)};

	/* Hundreds of new stores, each with an fsync: not on a disk. */
	if (access("/dev/shm", W_OK) == 0)
		(void)setenv("TMPDIR", "/dev/shm", 0);
	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("crash_store", tests, NULL, NULL);
}
