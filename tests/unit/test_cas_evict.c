/* tests/unit/test_cas_evict.c - what goes, in which order, and what never goes */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/log.h"
#include "cas/evict/evict.h"
#include "cas/put/put.h"
#include "cas/reapi.pb-c.h"
#include "cas/reapi/directory.h"
#include "cas/store/store.h"
#include "tests/lib/store.h"

#define SIZE 8192

static void put_number(struct cas_store *store, unsigned i, struct cas_digest *d)
{
	unsigned char *data = tests_noise(SIZE, i);

	assert_int_equal(cas_put_bytes(store, data, SIZE, d, NULL), 0);
	free(data);
}

static struct cas_evict_result evict(struct cas_store *store, uint64_t max, bool dry_run,
				     const struct cas_evict_roots *roots)
{
	struct cas_evict_options opts = {.max_bytes = max, .dry_run = dry_run};
	struct cas_evict_result result;
	struct err err = {0};

	if (cas_evict(store, &opts, roots, &result, &err) < 0)
		fail_msg("cannot evict: %s", err.msg);
	return result;
}

static int sum_blocks(void *ctx, const struct cas_store_blob *blob)
{
	*(uint64_t *)ctx += blob->blocks * 512;
	return 0;
}

static uint64_t on_disk(struct cas_store *store)
{
	uint64_t sum = 0;

	assert_int_equal(cas_store_walk(store, sum_blocks, NULL, &sum, NULL), 0);
	return sum;
}

static void test_least_recently_used_goes_first(void **state)
{
	struct tests_catalog *c = tests_catalog_new();
	struct cas_store *store = tests_store_open(*state, tests_catalog_ops(c));
	struct cas_digest d[10];
	struct cas_evict_result result;

	for (unsigned i = 0; i < 10; i++)
		put_number(store, i, &d[i]);
	put_number(store, 0, &d[0]);
	put_number(store, 3, &d[3]);
	result = evict(store, (uint64_t)5 * SIZE, true, NULL);
	assert_int_equal(result.freed_blobs, 5);
	assert_int_equal(tests_count_blobs(*state), 10);
	result = evict(store, (uint64_t)5 * SIZE, false, NULL);
	assert_int_equal(result.before_bytes, 10 * SIZE);
	assert_int_equal(result.after_bytes, 5 * SIZE);
	assert_int_equal(result.freed_bytes, 5 * SIZE);
	assert_int_equal(result.freed_blobs, 5);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(cas_store_has(store, &d[i]), i == 0 || i == 3 || i >= 7);
	assert_int_equal(tests_catalog_count(c), 5);
	assert_int_equal(on_disk(store), result.after_bytes);
	cas_store_close(store);
	tests_catalog_free(c);
}

/* C24: files that the ledger does not know, and rows without files. */
/* As with a ledger: its counts and its order are believed, and no file is looked for. */
static void test_believed_catalog_is_asked_instead_of_the_files(void **state)
{
	struct tests_catalog *catalog = tests_catalog_new();
	struct cas_store *store = tests_store_open(*state, tests_catalog_ops(catalog));
	struct cas_evict_result result;
	struct cas_digest d[6];
	int fd;

	for (unsigned i = 0; i < 6; i++)
		put_number(store, i, &d[i]);
	assert_int_equal(cas_store_sync(store, NULL), 0);
	tests_catalog_believe(catalog);
	assert_int_equal(cas_store_open_blob(store, &d[0], &fd, NULL), 0);
	(void)close(fd);
	/* Gone by hand: it is forgotten when its turn comes. */
	assert_int_equal(unlink(tests_blob_path(*state, &d[1])), 0);
	result = evict(store, 4 * SIZE, true, NULL);
	assert_int_equal(result.freed_blobs, 2);
	assert_int_equal(tests_catalog_count(catalog), 6);
	result = evict(store, 4 * SIZE, false, NULL);
	assert_int_equal(result.before_bytes, 6 * SIZE);
	assert_int_equal(result.freed_blobs, 1);
	assert_int_equal(result.freed_bytes, SIZE);
	assert_int_equal(result.after_bytes, 4 * SIZE);
	assert_int_equal(result.after_blobs, 4);
	assert_int_equal(tests_catalog_count(catalog), 4);
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(cas_store_has(store, &d[i]), i != 1 && i != 2);
	/* One that nobody has told of stays: it is for a recount to find. */
	tests_catalog_forget(catalog);
	result = evict(store, 0, false, NULL);
	assert_int_equal(result.freed_blobs, 0);
	assert_int_equal(tests_count_blobs(*state), 4);
	cas_store_close(store);
	tests_catalog_free(catalog);
}

/* Of this program, however libc is called: @clock_shift seconds from the real one. */
static _Atomic long clock_shift;

int clock_gettime(clockid_t id, struct timespec *ts)
{
	long ret = syscall(SYS_clock_gettime, id, ts);

	if (ret == 0 && id == CLOCK_REALTIME)
		ts->tv_sec += clock_shift;
	return (int)ret;
}

time_t time(time_t *out)
{
	struct timespec ts = {0};

	(void)clock_gettime(CLOCK_REALTIME, &ts);
	if (out)
		*out = ts.tv_sec;
	return ts.tv_sec;
}

/* Then all that there is came "later" than the eviction begins. */
static void test_a_clock_that_was_set_back_keeps_nothing(void **state)
{
	struct tests_catalog *catalog = tests_catalog_new();
	struct cas_store *store = tests_store_open(*state, tests_catalog_ops(catalog));
	struct cas_evict_result result;
	struct cas_digest d[3];

	for (unsigned i = 0; i < 3; i++)
		put_number(store, i, &d[i]);
	assert_int_equal(cas_store_sync(store, NULL), 0);
	tests_catalog_believe(catalog);
	clock_shift = -86400;
	result = evict(store, SIZE, false, NULL);
	clock_shift = 0;
	assert_int_equal(result.freed_blobs, 2);
	assert_int_equal(result.after_bytes, SIZE);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(cas_store_has(store, &d[i]), i == 2);
	assert_int_equal(tests_catalog_count(catalog), 1);
	cas_store_close(store);
	tests_catalog_free(catalog);
}

static void test_number_of_blobs_can_be_the_limit(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_evict_options opts = {.max_bytes = UINT64_MAX, .max_blobs = 2};
	struct cas_evict_result result;
	struct cas_digest d;

	for (unsigned i = 0; i < 5; i++)
		put_number(store, i, &d);
	assert_int_equal(cas_evict(store, &opts, NULL, &result, NULL), 0);
	assert_int_equal(result.freed_blobs, 3);
	assert_int_equal(result.after_blobs, 2);
	assert_int_equal(tests_count_blobs(*state), 2);
	opts.max_blobs = 0;
	assert_int_equal(cas_evict(store, &opts, NULL, &result, NULL), 0);
	assert_int_equal(result.freed_blobs, 0);
	cas_store_close(store);
}

static void test_unknown_files_are_adopted_by_their_time(void **state)
{
	struct tests_catalog *c = tests_catalog_new();
	struct cas_store *store = tests_store_open(*state, tests_catalog_ops(c));
	struct cas_digest d[4];
	const struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
	struct cas_evict_result result;

	for (unsigned i = 0; i < 4; i++)
		put_number(store, i, &d[i]);
	tests_catalog_forget(c);
	assert_int_equal(utimensat(AT_FDCWD, tests_blob_path(*state, &d[2]), old, 0), 0);
	assert_int_equal(unlink(tests_blob_path(*state, &d[0])), 0);
	result = evict(store, (uint64_t)2 * SIZE, false, NULL);
	assert_int_equal(result.before_bytes, 3 * SIZE);
	assert_int_equal(result.freed_blobs, 1);
	assert_int_equal(cas_store_has(store, &d[2]), 0);
	assert_int_equal(cas_store_has(store, &d[1]), 1);
	assert_int_equal(cas_store_has(store, &d[3]), 1);
	cas_store_close(store);
	tests_catalog_free(c);
}

struct roots {
	const struct cas_digest *digest;
	bool is_directory;
};

static int each_root(void *ctx, int (*root)(void *arg, const struct cas_digest *d, bool dir),
		     void *arg, struct err *err)
{
	struct roots *r = ctx;

	(void)err;
	return root(arg, r->digest, r->is_directory);
}

/* A directory with one file, as child "sub" of another. */
static void put_tree(struct cas_store *store, const struct cas_digest *file,
		     struct cas_digest *root, struct cas_digest *sub)
{
	struct cas_node node = {.kind = CAS_NODE_FILE, .name = "f", .digest = *file};
	struct cas_directory *dir;

	assert_int_equal(cas_directory_new(&dir), 0);
	assert_int_equal(cas_directory_add(dir, &node), 0);
	assert_int_equal(cas_directory_put(store, dir, sub, NULL), 0);
	cas_directory_free(dir);
	node = (struct cas_node){.kind = CAS_NODE_DIRECTORY, .name = "sub", .digest = *sub};
	assert_int_equal(cas_directory_new(&dir), 0);
	assert_int_equal(cas_directory_add(dir, &node), 0);
	assert_int_equal(cas_directory_put(store, dir, root, NULL), 0);
	cas_directory_free(dir);
}

static void test_live_roots_keep_their_closure(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest file;
	struct cas_digest other;
	struct cas_digest root;
	struct cas_digest sub;
	struct roots r = {.digest = &root, .is_directory = true};
	struct cas_evict_roots roots = {.each = each_root, .ctx = &r};
	struct cas_evict_result result;

	put_number(store, 1, &file);
	put_number(store, 2, &other);
	put_tree(store, &file, &root, &sub);
	result = evict(store, 0, false, &roots);
	assert_int_equal(result.freed_blobs, 1);
	assert_true(result.kept_live_bytes >= SIZE);
	assert_int_equal(result.after_bytes, result.kept_live_bytes);
	assert_int_equal(cas_store_has(store, &file), 1);
	assert_int_equal(cas_store_has(store, &sub), 1);
	assert_int_equal(cas_store_has(store, &root), 1);
	assert_int_equal(cas_store_has(store, &other), 0);
	r.is_directory = false;
	result = evict(store, 0, false, &roots);
	assert_int_equal(cas_store_has(store, &root), 1);
	assert_int_equal(cas_store_has(store, &file), 0);
	/* What is missing below a root is no reason to stop. */
	r.is_directory = true;
	result = evict(store, 0, false, &roots);
	assert_int_equal(result.freed_blobs, 0);
	cas_store_close(store);
}

/* A root that is added once the victims have been chosen, just before they go. */
struct late_root {
	const struct cas_digest *digest;
	bool added;
	int nr_frozen;
	int nr_busy;
};

static int each_late(void *ctx, int (*root)(void *arg, const struct cas_digest *d, bool dir),
		     void *arg, struct err *err)
{
	const struct late_root *r = ctx;

	(void)err;
	return r->added ? root(arg, r->digest, true) : 0;
}

static int freeze_late(void *ctx, bool *changed)
{
	struct late_root *r = ctx;

	/* At first somebody is just adding it. */
	if (r->nr_busy > 0) {
		r->nr_busy--;
		return -EBUSY;
	}
	*changed = !r->added;
	r->added = true;
	r->nr_frozen++;
	return 0;
}

static void thaw_late(void *ctx)
{
	struct late_root *r = ctx;

	r->nr_frozen--;
}

static void test_a_root_added_meanwhile_keeps_its_closure(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest file;
	struct cas_digest other;
	struct cas_digest root;
	struct cas_digest sub;
	struct late_root r = {.digest = &root, .nr_busy = 3};
	struct cas_evict_roots roots = {each_late, freeze_late, thaw_late, &r};
	struct cas_evict_result result;

	put_number(store, 1, &file);
	put_number(store, 2, &other);
	put_tree(store, &file, &root, &sub);
	result = evict(store, 0, false, &roots);
	assert_true(r.added);
	assert_int_equal(r.nr_frozen, 0);
	assert_int_equal(r.nr_busy, 0);
	assert_int_equal(result.freed_blobs, 1);
	assert_int_equal(result.after_bytes, result.kept_live_bytes);
	assert_int_equal(cas_store_has(store, &other), 0);
	assert_int_equal(cas_store_has(store, &file), 1);
	assert_int_equal(cas_store_has(store, &sub), 1);
	assert_int_equal(cas_store_has(store, &root), 1);
	cas_store_close(store);
}

static void trees_use_counts(void **state, bool believed)
{
	struct tests_catalog *c = tests_catalog_new();
	const struct cas_catalog *ops = tests_catalog_ops(c);
	struct cas_store *store = tests_store_open(*state, ops);
	struct cas_digest file;
	struct cas_digest root;
	struct cas_digest sub;
	struct cas_digest d[4];

	if (believed)
		tests_catalog_believe(c);
	put_number(store, 9, &file);
	put_tree(store, &file, &root, &sub);
	for (unsigned i = 0; i < 4; i++)
		put_number(store, i, &d[i]);
	ops->ops->tree_touch(ops->ctx, &root, false);
	assert_int_equal(evict(store, on_disk(store) - 3 * SIZE, false, NULL).freed_blobs, 3);
	assert_int_equal(cas_store_has(store, &file), 1);
	assert_int_equal(cas_store_has(store, &sub), 1);
	assert_int_equal(cas_store_has(store, &root), 1);
	assert_int_equal(cas_store_has(store, &d[2]), 0);
	assert_int_equal(cas_store_has(store, &d[3]), 1);
	/* It keeps nothing that is not older. */
	(void)evict(store, 0, false, NULL);
	assert_int_equal(tests_count_blobs(*state), 0);
	cas_store_close(store);
	tests_catalog_free(c);
}

static void test_a_trees_use_counts_for_all_in_it(void **state)
{
	trees_use_counts(state, false);
}

static void test_a_trees_use_counts_for_all_in_it_in_a_ledger(void **state)
{
	trees_use_counts(state, true);
}

/* Uses that are recorded once the victims have been chosen, just before they go. */
struct late_use {
	const struct cas_catalog *catalog;
	const struct cas_digest *root;
	const struct cas_digest *blob;
};

static int use_late(void *ctx, bool *changed)
{
	struct late_use *u = ctx;

	*changed = false;
	u->catalog->ops->tree_touch(u->catalog->ctx, u->root, false);
	u->catalog->ops->blob_touch(u->catalog->ctx, u->blob);
	return 0;
}

static void thaw_nothing(void *ctx)
{
	(void)ctx;
}

static void used_meanwhile_stays(void **state, bool believed)
{
	struct tests_catalog *c = tests_catalog_new();
	struct cas_store *store = tests_store_open(*state, tests_catalog_ops(c));
	struct cas_digest file;
	struct cas_digest blob;
	struct cas_digest other[100];
	struct cas_digest root;
	struct cas_digest sub;
	struct late_use u = {tests_catalog_ops(c), &root, &blob};
	struct cas_evict_roots roots = {.freeze = use_late, .thaw = thaw_nothing, .ctx = &u};

	if (believed)
		tests_catalog_believe(c);
	/* More than go in one batch, the oldest first. */
	for (unsigned i = 0; i < 100; i++)
		put_number(store, i, &other[i]);
	put_number(store, 1000, &file);
	put_number(store, 1001, &blob);
	put_tree(store, &file, &root, &sub);
	assert_int_equal(evict(store, 0, false, &roots).freed_blobs, 100);
	assert_int_equal(cas_store_has(store, &blob), 1);
	assert_int_equal(cas_store_has(store, &file), 1);
	assert_int_equal(cas_store_has(store, &sub), 1);
	assert_int_equal(cas_store_has(store, &root), 1);
	cas_store_close(store);
	tests_catalog_free(c);
}

static void test_what_is_used_meanwhile_stays(void **state)
{
	used_meanwhile_stays(state, false);
}

static void test_what_is_used_meanwhile_stays_in_a_ledger(void **state)
{
	used_meanwhile_stays(state, true);
}

static void put_action(struct cas_store *store, const struct cas_digest *action,
		       const struct cas_digest *file, const struct cas_digest *root)
{
	Reapi__ActionResult result = REAPI__ACTION_RESULT__INIT;
	Reapi__OutputFile out_file = REAPI__OUTPUT_FILE__INIT;
	Reapi__OutputFile *out_files[] = {&out_file};
	Reapi__OutputDirectory out_dir = REAPI__OUTPUT_DIRECTORY__INIT;
	Reapi__OutputDirectory *out_dirs[] = {&out_dir};
	Reapi__Digest digest = REAPI__DIGEST__INIT;
	Reapi__Digest tree_digest = REAPI__DIGEST__INIT;
	char hash[CAS_HASH_HEX_SZ + 1];
	char tree_hash[CAS_HASH_HEX_SZ + 1];
	uint8_t packed[1000];
	auto_buf struct buf tree = {0};
	struct cas_digest t;

	if (file) {
		cas_hash_format(file->hash, hash);
		digest.hash = hash;
		digest.size_bytes = (int64_t)file->size;
		out_file.path = (char *)"out";
		out_file.digest = &digest;
		result.n_output_files = 1;
		result.output_files = out_files;
	}
	if (root) {
		assert_int_equal(cas_tree_encode(store, root, &tree, NULL), 0);
		assert_int_equal(cas_put_bytes(store, tree.data, tree.len, &t, NULL), 0);
		cas_hash_format(t.hash, tree_hash);
		tree_digest.hash = tree_hash;
		tree_digest.size_bytes = (int64_t)t.size;
		out_dir.path = (char *)"dir";
		out_dir.tree_digest = &tree_digest;
		result.n_output_directories = 1;
		result.output_directories = out_dirs;
	}
	assert_true(reapi__action_result__get_packed_size(&result) <= sizeof(packed));
	assert_int_equal(cas_store_action_put(store, action, packed,
					      reapi__action_result__pack(&result, packed), NULL),
			 0);
}

static int has_action(struct cas_store *store, const struct cas_digest *action)
{
	auto_buf struct buf b = {0};

	return cas_store_action_get(store, action, &b, NULL) == 0;
}

static void test_results_go_with_their_blobs(void **state)
{
	struct tests_catalog *c = tests_catalog_new();
	struct cas_store *store = tests_store_open(*state, tests_catalog_ops(c));
	struct cas_digest old;
	struct cas_digest young;
	struct cas_digest deep;
	struct cas_digest root;
	struct cas_digest sub;
	const struct cas_digest names[3] = {{.hash = {1}}, {.hash = {2}}, {.hash = {3}}};
	struct cas_evict_result result;

	put_number(store, 1, &old);
	put_number(store, 2, &deep);
	put_number(store, 3, &young);
	put_tree(store, &deep, &root, &sub);
	put_action(store, &names[0], &old, NULL);
	put_action(store, &names[1], &young, NULL);
	put_action(store, &names[2], NULL, &root);
	result = evict(store, on_disk(store) - SIZE, true, NULL);
	assert_int_equal(result.freed_blobs, 1);
	assert_true(has_action(store, &names[0]));
	(void)evict(store, on_disk(store) - SIZE, false, NULL);
	assert_int_equal(cas_store_has(store, &old), 0);
	assert_false(has_action(store, &names[0]));
	assert_true(has_action(store, &names[1]));
	assert_true(has_action(store, &names[2]));
	/* The file inside the Tree is next: its result must not outlive it. */
	(void)evict(store, on_disk(store) - SIZE, false, NULL);
	assert_int_equal(cas_store_has(store, &deep), 0);
	assert_false(has_action(store, &names[2]));
	assert_true(has_action(store, &names[1]));
	cas_store_close(store);
	tests_catalog_free(c);
}

struct replacer {
	struct cas_store *store;
	const struct cas_digest *action;
	const struct cas_digest *file;
	unsigned pause;
};

static void *replace_result(void *arg)
{
	const struct replacer *r = arg;

	for (volatile unsigned i = 0; i < r->pause; i++)
		;
	put_action(r->store, r->action, r->file, NULL);
	return NULL;
}

/* Whenever it is stored, before the old one is judged, removed, or after: it stays. */
static void test_a_result_that_replaces_a_doomed_one_stays(void **state)
{
	const struct cas_digest action = {.hash = {0x10}};
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_store *other = tests_store_open(*state, NULL);
	struct cas_digest keep;
	struct roots roots_of = {.digest = &keep, .is_directory = false};
	struct cas_evict_roots roots = {.each = each_root, .ctx = &roots_of};

	put_number(store, 1, &keep);
	for (unsigned i = 0; i < 50; i++) {
		struct replacer r = {other, &action, &keep, 45000 * i};
		struct cas_digest old;
		pthread_t thread;

		put_number(store, 2, &old);
		put_action(store, &action, &old, NULL);
		assert_int_equal(pthread_create(&thread, NULL, replace_result, &r), 0);
		(void)evict(store, 0, false, &roots);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_int_equal(cas_store_has(store, &old), 0);
		assert_true(has_action(store, &action));
	}
	cas_store_close(other);
	cas_store_close(store);
}

static void test_variants_go_before_blobs_unless_linked(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest d[2];
	char name[72];
	char linked[72];
	struct stat st;
	int dir_fd;
	struct cas_evict_result result;

	for (unsigned i = 0; i < 2; i++)
		put_number(store, i, &d[i]);
	assert_int_equal(cas_store_link_variant(store, &d[0], false, &dir_fd, name, NULL), 0);
	assert_int_equal(cas_store_link_variant(store, &d[1], false, &dir_fd, linked, NULL), 0);
	assert_int_equal(linkat(dir_fd, linked, AT_FDCWD, tests_path(*state, "mine"), 0), 0);
	result = evict(store, (uint64_t)2 * SIZE, false, NULL);
	assert_int_equal(result.before_bytes, 3 * SIZE);
	assert_int_equal(result.freed_blobs, 0);
	assert_int_equal(result.freed_temporaries, 1);
	assert_int_equal(result.after_bytes, 2 * SIZE);
	assert_int_equal(fstatat(dir_fd, name, &st, 0), -1);
	assert_int_equal(fstatat(dir_fd, linked, &st, 0), 0);
	cas_store_close(store);
}

/* C42: temporaries go by age, and only when nobody has them locked. */
static void test_stale_temporaries_go(void **state)
{
	const time_t now = time(NULL);
	const struct timespec old[2] = {{.tv_sec = now - 2 * 86400}, {.tv_sec = now - 2 * 86400}};
	struct flock fl = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
	struct cas_store *store = tests_store_open(*state, NULL);
	const char *fresh = tests_path(*state, "store/cas/ab/.tmp-fresh");
	const char *stale = tests_path(*state, "store/cas/ab/.tmp-stale");
	const char *busy = tests_path(*state, "store/cas/ab/.tmp-busy");
	const char *theirs = tests_path(*state, "store/cas/ab/.tmp");
	auto_close int fd = -1;
	struct stat st;
	struct cas_evict_result result;

	tests_write_file(fresh, "x", 1, 0600);
	tests_write_file(stale, "x", 1, 0600);
	tests_write_file(busy, "x", 1, 0600);
	tests_write_file(theirs, "x", 1, 0600);
	assert_int_equal(utimensat(AT_FDCWD, stale, old, 0), 0);
	assert_int_equal(utimensat(AT_FDCWD, busy, old, 0), 0);
	assert_int_equal(utimensat(AT_FDCWD, theirs, old, 0), 0);
	fd = open(busy, O_RDWR | O_CLOEXEC);
	assert_int_equal(fcntl(fd, F_OFD_SETLK, &fl), 0);
	result = evict(store, 1 << 30, false, NULL);
	assert_int_equal(result.freed_temporaries, 1);
	assert_int_equal(stat(stale, &st), -1);
	assert_int_equal(stat(fresh, &st), 0);
	assert_int_equal(stat(busy, &st), 0);
	assert_int_equal(stat(theirs, &st), 0);
	cas_store_close(store);
}

static void test_busy_shard_is_skipped(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_store *publisher = tests_store_open(*state, NULL);
	struct cas_digest d[2];
	unsigned shard;

	for (unsigned i = 0; i < 2; i++)
		put_number(store, i, &d[i]);
	assert_int_not_equal(d[0].hash[0], d[1].hash[0]);
	shard = d[0].hash[0];
	assert_int_equal(cas_store_shard_lock(publisher, shard, false, true), 0);
	assert_int_equal(evict(store, 0, false, NULL).freed_blobs, 1);
	assert_int_equal(cas_store_has(store, &d[0]), 1);
	cas_store_shard_unlock(publisher, shard, false);
	assert_int_equal(evict(store, 0, false, NULL).freed_blobs, 1);
	assert_int_equal(tests_count_blobs(*state), 0);
	cas_store_close(publisher);
	cas_store_close(store);
}

/* C29: the empty blob is always there, evicted or not; C42: foreign names stay. */
static void test_gc_to_zero_keeps_the_empty_blob_and_foreign_names(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest d;
	struct stat st;

	tests_write_file(tests_path(*state, "store/cas/ab/notahash"), "x", 1, 0600);
	assert_int_equal(cas_put_bytes(store, "", 0, &d, NULL), 0);
	put_number(store, 1, &d);
	(void)evict(store, 0, false, NULL);
	assert_int_equal(tests_count_blobs(*state), 1);
	assert_int_equal(stat(tests_path(*state, "store/cas/ab/notahash"), &st), 0);
	tests_assert_blob(store, &cas_digest_empty, "", 0);
	cas_store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_least_recently_used_goes_first),
		TESTS_IN_DIR(test_believed_catalog_is_asked_instead_of_the_files),
		TESTS_IN_DIR(test_a_clock_that_was_set_back_keeps_nothing),
		TESTS_IN_DIR(test_number_of_blobs_can_be_the_limit),
		TESTS_IN_DIR(test_unknown_files_are_adopted_by_their_time),
		TESTS_IN_DIR(test_live_roots_keep_their_closure),
		TESTS_IN_DIR(test_a_root_added_meanwhile_keeps_its_closure),
		TESTS_IN_DIR(test_a_trees_use_counts_for_all_in_it_in_a_ledger),
		TESTS_IN_DIR(test_a_trees_use_counts_for_all_in_it),
		TESTS_IN_DIR(test_what_is_used_meanwhile_stays_in_a_ledger),
		TESTS_IN_DIR(test_what_is_used_meanwhile_stays),
		TESTS_IN_DIR(test_results_go_with_their_blobs),
		TESTS_IN_DIR(test_a_result_that_replaces_a_doomed_one_stays),
		TESTS_IN_DIR(test_variants_go_before_blobs_unless_linked),
		TESTS_IN_DIR(test_stale_temporaries_go),
		TESTS_IN_DIR(test_busy_shard_is_skipped),
		TESTS_IN_DIR(test_gc_to_zero_keeps_the_empty_blob_and_foreign_names),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("cas_evict", tests, NULL, NULL);
}
