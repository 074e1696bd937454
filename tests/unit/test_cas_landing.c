/* tests/unit/test_cas_landing.c - outputs that are in the store before they are in its shards */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/evict/evict.h"
#include "cas/fsck/fsck.h"
#include "cas/hash.h"
#include "cas/landing/landing.h"
#include "cas/landing/landing_i.h"
#include "cas/put/put.h"
#include "cas/store/store.h"
#include "tests/lib/store.h"

#define NR   40
#define SIZE 3000

/* DIR/box/upper/0/u with files f0 to f39, of seeds from @seed on. */
static void make_box(const char *dir, unsigned seed)
{
	for (unsigned i = 0; i < NR; i++) {
		unsigned char *data = tests_noise(SIZE, seed + i);
		char name[64];

		(void)snprintf(name, sizeof(name), "box/upper/0/u/d%u/f%u", i % 3, i);
		tests_write_file(tests_path(dir, name), data, SIZE, i == 1 ? 0700 : 0600);
		free(data);
	}
}

/* All of it listed, with what each file is. */
static struct cas_landing_list *list_box(struct cas_store *store, const char *dir,
					 struct cas_digest digests[NR])
{
	auto_close int upper = open(tests_path(dir, "box/upper"), O_RDONLY | O_DIRECTORY);
	struct cas_landing_list *list = NULL;

	assert_true(upper >= 0);
	assert_int_equal(cas_landing_list_new(store, upper, &list), 0);
	for (unsigned i = 0; i < NR; i++) {
		char path[64];
		char name[16];
		auto_close int fd = -1;
		auto_free char *at = NULL;

		(void)snprintf(path, sizeof(path), "0/u/d%u", i % 3);
		(void)snprintf(name, sizeof(name), "f%u", i);
		fd = openat(upper, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(fd >= 0);
		at = cas_landing_list_path(list, fd);
		assert_non_null(at);
		assert_string_equal(at, path);
		assert_int_equal(cas_landing_offer(list, fd, at, name, NULL, &digests[i], NULL), 1);
	}
	return list;
}

/* It has landed in a store that is served. */
static void land_box(struct cas_store *store, const char *dir, unsigned seed,
		     struct cas_digest digests[NR])
{
	struct cas_landing_list *list;
	auto_close int box = -1;
	auto_close int landing = -1;
	struct err err = {0};

	make_box(dir, seed);
	list = list_box(store, dir, digests);
	assert_int_equal(cas_landing_list_count(list), NR);
	box = open(tests_path(dir, "box"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(mkdirat(box, "landing", 0700), 0);
	landing = openat(box, "landing", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(cas_landing_list_write(list, landing, NULL), 0);
	cas_landing_list_free(list);
	assert_int_equal(renameat(box, "upper", landing, "upper"), 0);
	if (cas_landing_take(store, box, "landing", &err) < 0)
		fail_msg("did not land: %s", err.msg);
	assert_int_equal(access(tests_path(dir, "box/landing"), F_OK), -1);
}

static void assert_all(struct cas_store *store, const struct cas_digest digests[NR], unsigned seed)
{
	for (unsigned i = 0; i < NR; i++) {
		unsigned char *data = tests_noise(SIZE, seed + i);

		tests_assert_blob(store, &digests[i], data, SIZE);
		free(data);
	}
}

static void start(struct cas_store *store)
{
	struct err err = {0};

	if (cas_landing_start(store, &err) < 0)
		fail_msg("cannot serve: %s", err.msg);
}

static int leave_landed(const char *dir, unsigned seed, struct cas_digest digests[NR])
{
	struct cas_store *store = tests_store_open(dir, NULL);
	auto_close int box = -1;
	auto_close int landing = -1;

	make_box(dir, seed);
	box = open(tests_path(dir, "box"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (mkdirat(box, "landing", 0700) < 0)
		return -errno;
	landing = openat(box, "landing", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (cas_landing_list_write(list_box(store, dir, digests), landing, NULL) < 0 ||
	    renameat(box, "upper", landing, "upper") < 0 ||
	    mkdir(tests_path(dir, "store/landing"), 0700) < 0 ||
	    renameat(box, "landing", AT_FDCWD, tests_path(dir, "store/landing/0123")) < 0)
		return -errno;
	return 0;
}

/* A process that served the store in @dir has died before it moved anything of a box. */
static void land_and_die(const char *dir, unsigned seed, struct cas_digest digests[NR])
{
	int ends[2];
	int status;
	pid_t pid;

	assert_int_equal(pipe(ends), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int ret = leave_landed(dir, seed, digests);

		_exit(ret < 0 || write(ends[1], digests, NR * sizeof(*digests)) < 0);
	}
	(void)close(ends[1]);
	assert_int_equal(io_read_full(ends[0], digests, NR * sizeof(*digests)),
			 NR * sizeof(*digests));
	(void)close(ends[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void assert_nothing_left(const char *dir)
{
	assert_int_equal(access(tests_path(dir, "store/landing"), F_OK), -1);
}

static void test_what_has_landed_is_there_at_once_and_moved_soon(void **state)
{
	const char *dir = *state;
	struct cas_store *store = tests_store_open(dir, NULL);
	struct cas_landing_backlog backlog;
	struct cas_digest digests[NR];
	struct stat st;

	assert_false(cas_landing_is_on(store));
	start(store);
	assert_true(cas_landing_is_on(store));
	land_box(store, dir, 1, digests);
	assert_int_equal(cas_store_has(store, &digests[NR - 1]), 1);
	assert_all(store, digests, 1);
	assert_int_equal(cas_landing_settle(store, NULL), 0);
	assert_nothing_left(dir);
	cas_landing_backlog(store, &backlog);
	assert_int_equal(backlog.blobs, 0);
	assert_int_equal(backlog.bytes, 0);
	assert_int_equal(backlog.failing, 0);
	assert_int_equal(backlog.landed, NR);
	assert_int_equal(tests_count_blobs(dir), NR);
	/* As any blob. */
	assert_int_equal(stat(tests_blob_path(dir, &digests[1]), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0444);
	assert_int_equal(st.st_nlink, 1);
	cas_landing_stop(store);
	cas_store_close(store);
}

static void test_what_cannot_move_is_not_listed(void **state)
{
	const char *dir = *state;
	struct tests_catalog *catalog = tests_catalog_new();
	struct cas_store *store = tests_store_open(dir, tests_catalog_ops(catalog));
	struct cas_landing_list *list = NULL;
	struct cas_digest d;
	unsigned char *data = tests_noise(SIZE, 7);
	auto_close int upper = -1;
	auto_close int writer = -1;
	int ret;

	start(store);
	tests_write_file(tests_path(dir, "upper/known"), data, SIZE, 0600);
	tests_write_file(tests_path(dir, "upper/empty"), "", 0, 0600);
	tests_write_file(tests_path(dir, "upper/two"), "two", 3, 0600);
	assert_int_equal(link(tests_path(dir, "upper/two"), tests_path(dir, "upper/names")), 0);
	tests_write_file(tests_path(dir, "upper/written"), "w", 1, 0600);
	writer = open(tests_path(dir, "upper/written"), O_WRONLY);
	tests_write_file(tests_path(dir, "upper/zeros"), "", 0, 0600);
	assert_int_equal(truncate(tests_path(dir, "upper/zeros"), 4 << 20), 0);
	assert_int_equal(cas_put_bytes(store, data, SIZE, &d, NULL), 0);
	upper = open(tests_path(dir, "upper"), O_RDONLY | O_DIRECTORY);
	assert_int_equal(cas_landing_list_new(store, upper, &list), 0);
	assert_null(cas_landing_list_path(list, upper)); /* it is not below itself */
	memset(&d, 0, sizeof(d));
	assert_int_equal(cas_landing_offer(list, upper, "", "known", NULL, &d, NULL), 1);
	assert_int_equal(d.size, SIZE);
	assert_int_equal(cas_landing_offer(list, upper, "", "empty", NULL, &d, NULL), 0);
	assert_int_equal(cas_landing_offer(list, upper, "", "two", NULL, &d, NULL), 0);
	assert_int_equal(cas_landing_offer(list, upper, "", "written", NULL, &d, NULL), 0);
	/* Holes that are there already take no space away. */
	ret = cas_landing_offer(list, upper, "", "zeros", NULL, &d, NULL);
	assert_true(ret == 0 || ret == 1);
	assert_int_equal(cas_landing_offer(list, upper, "", "none", NULL, &d, NULL), -ENOENT);
	assert_int_equal(cas_landing_list_count(list), (size_t)ret);
	cas_landing_list_free(list);
	free(data);
	cas_landing_stop(store);
	cas_store_close(store);
	tests_catalog_free(catalog);
}

/* Whoever opens the store next needs only to look for one. */
static void test_what_a_crash_left_is_moved_by_who_looks(void **state)
{
	const char *dir = *state;
	struct cas_digest digests[NR];
	struct cas_store *store;

	land_and_die(dir, 100, digests);
	assert_int_equal(tests_count_blobs(dir), 0);
	store = tests_store_open(dir, NULL);
	assert_int_equal(cas_store_has(store, &digests[3]), 1);
	assert_nothing_left(dir);
	assert_int_equal(tests_count_blobs(dir), NR);
	assert_all(store, digests, 100);
	cas_store_close(store);

	land_and_die(dir, 200, digests);
	store = tests_store_open(dir, NULL);
	start(store);
	assert_nothing_left(dir);
	assert_all(store, digests, 200);
	cas_landing_stop(store);
	cas_store_close(store);
}

static void fill_digest(const void *data, size_t len, struct cas_digest *out)
{
	assert_int_equal(cas_hash_bytes(data, len, out), 0);
}

/* Never under another's name, and no other file suffers. */
static void test_changed_and_missing_files_are_found_out(void **state)
{
	const char *dir = *state;
	struct cas_digest digests[NR];
	struct cas_digest other;
	struct cas_store *store;
	int fd;

	land_and_die(dir, 300, digests);
	fd = open(tests_path(dir, "store/landing/0123/upper/0/u/d2/f5"), O_WRONLY | O_TRUNC);
	assert_int_equal(write(fd, "changed", 7), 7);
	(void)close(fd);
	assert_int_equal(unlink(tests_path(dir, "store/landing/0123/upper/0/u/d0/f6")), 0);
	/* A whole directory, and a symlink that leads elsewhere in its place. */
	assert_int_equal(
		rename(tests_path(dir, "store/landing/0123/upper/0/u/d1"), tests_path(dir, "d1")),
		0);
	assert_int_equal(
		symlink(tests_path(dir, "d1"), tests_path(dir, "store/landing/0123/upper/0/u/d1")),
		0);
	store = tests_store_open(dir, NULL);
	assert_int_equal(cas_landing_settle(store, NULL), 0);
	assert_nothing_left(dir);
	fill_digest("changed", 7, &other);
	tests_assert_blob(store, &other, "changed", 7);
	for (unsigned i = 0; i < NR; i++)
		assert_int_equal(cas_store_has(store, &digests[i]), i != 5 && i != 6 && i % 3 != 1);
	assert_int_equal(access(tests_path(dir, "d1/f1"), F_OK), 0);
	cas_store_close(store);
}

/* The rest of an earlier move is no obstacle, nor is a landing whose removal was cut. */
static void test_what_was_moved_by_half_is_settled(void **state)
{
	const char *dir = *state;
	struct cas_digest digests[NR];
	struct cas_landing_place place = {.fd = -1};
	struct cas_manifest manifest;
	struct cas_store *store;
	auto_close int landing = -1;
	auto_close int fd = -1;

	land_and_die(dir, 400, digests);
	store = tests_store_open(dir, NULL);
	landing = open(tests_path(dir, "store/landing/0123"), O_RDONLY | O_DIRECTORY);
	fd = openat(landing, "manifest", O_RDONLY);
	assert_int_equal(cas_manifest_read(fd, &manifest), 0);
	assert_true(manifest.same_boot);
	for (unsigned i = 0; i < NR; i += 2)
		assert_int_equal(
			cas_landing_move(store, landing, &manifest.rows[i], true, &place, NULL), 0);
	/* Once more each. */
	assert_int_equal(cas_landing_move(store, landing, &manifest.rows[0], true, &place, NULL),
			 0);
	assert_int_equal(tests_count_blobs(dir), NR / 2);
	(void)close(place.fd);
	cas_manifest_fini(&manifest);
	assert_int_equal(mkdir(tests_path(dir, "store/landing/cut"), 0700), 0);
	tests_write_file(tests_path(dir, "store/landing/cut/upper/x"), "x", 1, 0600);
	assert_int_equal(cas_landing_settle(store, NULL), 0);
	assert_nothing_left(dir);
	assert_all(store, digests, 400);
	cas_store_close(store);
}

/* A damaged manifest may be all that tells of the only copy of something: it stays. */
static void test_damaged_manifest_is_told_and_kept(void **state)
{
	const char *dir = *state;
	struct cas_digest digests[NR];
	struct cas_store *store;
	struct err err = {0};
	int fd;

	land_and_die(dir, 500, digests);
	fd = open(tests_path(dir, "store/landing/0123/manifest"), O_RDWR);
	assert_int_equal(pwrite(fd, "x", 1, 200), 1);
	(void)close(fd);
	store = tests_store_open(dir, NULL);
	assert_int_equal(cas_landing_settle(store, &err), -EUCLEAN);
	assert_non_null(strstr(err.msg, "landing/0123/manifest"));
	assert_int_equal(access(tests_path(dir, "store/landing/0123/upper/0/u/d0/f0"), F_OK), 0);
	cas_store_close(store);
}

static void test_manifest_of_another_boot_is_hashed_anew(void **state)
{
	struct cas_landing_row rows[2] = {
		{.digest.size = 5, .ino = 7, .mtime_ns = -1, .path = "0/u/a"},
		{.digest.size = 6, .dev = 9, .ctime_ns = 1, .path = "0/u/b/\xc3\xa4"},
	};
	auto_buf struct buf text = {0};
	struct cas_manifest m;
	struct cas_digest sum;

	(void)state;
	rows[0].digest.hash[31] = 3;
	assert_int_equal(cas_manifest_format(rows, 2, &text), 0);
	memset(text.data + 17, 'x', 8);
	fill_digest(text.data, text.len - CAS_HASH_SZ, &sum);
	memcpy(text.data + text.len - CAS_HASH_SZ, sum.hash, CAS_HASH_SZ);
	assert_int_equal(cas_manifest_parse(&text, &m), 0);
	assert_false(m.same_boot);
	assert_int_equal(m.nr, 2);
	assert_int_equal(m.rows[0].digest.hash[31], 3);
	assert_int_equal(m.rows[0].ino, 7);
	assert_int_equal(m.rows[0].mtime_ns, -1);
	assert_string_equal(m.rows[1].path, "0/u/b/\xc3\xa4");
	assert_int_equal(m.rows[1].dev, 9);
	cas_manifest_fini(&m);
}

static int parse_copy(const char *data, size_t len)
{
	struct buf copy = {0};
	struct cas_manifest m;
	int ret;

	assert_int_equal(buf_append(&copy, data, len), 0);
	ret = cas_manifest_parse(&copy, &m);
	if (ret == 0)
		cas_manifest_fini(&m);
	return ret;
}

static void test_cut_and_changed_manifests_are_refused(void **state)
{
	static const char *const bad[] = {"../x", "a/../b", "/a", "a//b", "a/", ".", ""};
	struct cas_landing_row row = {.digest.size = 5, .path = "0/u/some name"};
	auto_buf struct buf text = {0};

	(void)state;
	assert_int_equal(cas_manifest_format(&row, 1, &text), 0);
	assert_int_equal(parse_copy(text.data, text.len), 0);
	for (size_t i = 0; i < text.len; i++) {
		assert_int_equal(parse_copy(text.data, i), -EUCLEAN);
		text.data[i] ^= 1;
		assert_int_equal(parse_copy(text.data, text.len), -EUCLEAN);
		text.data[i] ^= 1;
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		row.path = bad[i];
		buf_reset(&text);
		assert_int_equal(cas_manifest_format(&row, 1, &text), 0);
		assert_int_equal(parse_copy(text.data, text.len), -EUCLEAN);
	}
}

struct looker {
	struct cas_store *store;
	const struct cas_digest *digests;
	unsigned seed;
	bool backwards;
};

static void *look(void *arg)
{
	const struct looker *l = arg;

	for (unsigned i = 0; i < NR; i++) {
		unsigned at = l->backwards ? NR - 1 - i : i;
		unsigned char *data = tests_noise(SIZE, l->seed + at);

		tests_assert_blob(l->store, &l->digests[at], data, SIZE);
		free(data);
	}
	return NULL;
}

/* Readers from both ends, the thread, and who waits for all. */
static void test_many_at_once_each_find_every_blob(void **state)
{
	const char *dir = *state;
	struct cas_store *store = tests_store_open(dir, NULL);

	start(store);
	for (unsigned round = 0; round < 30; round++) {
		struct cas_digest digests[NR];
		unsigned seed = 1000 * (round + 1);
		struct looker lookers[] = {{store, digests, seed, false},
					   {store, digests, seed, true}};
		pthread_t threads[2];

		land_box(store, dir, seed, digests);
		for (int i = 0; i < 2; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, look, &lookers[i]), 0);
		assert_int_equal(cas_landing_settle(store, NULL), 0);
		for (int i = 0; i < 2; i++)
			assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_nothing_left(dir);
	}
	assert_int_equal(tests_count_blobs(dir), 30 * NR);
	cas_landing_stop(store);
	cas_store_close(store);
}

/* Who evicts, or checks, sees them as blobs. */
static void test_eviction_and_fsck_count_what_has_landed(void **state)
{
	const char *dir = *state;
	struct cas_digest digests[NR];
	struct cas_evict_options plenty = {.max_bytes = UINT64_MAX};
	struct cas_evict_result evicted;
	struct cas_fsck_result checked;
	struct cas_fsck_options opts = {0};
	struct cas_store *store;

	land_and_die(dir, 600, digests);
	store = tests_store_open(dir, NULL);
	assert_int_equal(cas_fsck(store, &opts, &checked, NULL), 0);
	assert_int_equal(checked.blobs, NR);
	assert_int_equal(checked.faults, 0);
	assert_int_equal(checked.foreign, 0);
	cas_store_close(store);

	land_and_die(dir, 700, digests);
	store = tests_store_open(dir, NULL);
	assert_int_equal(cas_evict(store, &plenty, NULL, &evicted, NULL), 0);
	assert_int_equal(evicted.after_blobs, 2 * NR);
	assert_nothing_left(dir);
	cas_store_close(store);
}

/* What is found out is told: here it is what the tests are about. */
static void drop_line(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	(void)line;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_what_has_landed_is_there_at_once_and_moved_soon),
		TESTS_IN_DIR(test_what_cannot_move_is_not_listed),
		TESTS_IN_DIR(test_what_a_crash_left_is_moved_by_who_looks),
		TESTS_IN_DIR(test_changed_and_missing_files_are_found_out),
		TESTS_IN_DIR(test_what_was_moved_by_half_is_settled),
		TESTS_IN_DIR(test_damaged_manifest_is_told_and_kept),
		TESTS_IN_DIR(test_manifest_of_another_boot_is_hashed_anew),
		TESTS_IN_DIR(test_cut_and_changed_manifests_are_refused),
		TESTS_IN_DIR(test_many_at_once_each_find_every_blob),
		TESTS_IN_DIR(test_eviction_and_fsck_count_what_has_landed),
	};

	log_set_sink(drop_line, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
