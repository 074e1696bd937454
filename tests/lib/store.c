/* tests/lib/store.c - a store inside a test's directory */
#include "tests/lib/store.h"

#include <dirent.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/catalog.h"
#include "cas/store/layout.h"
#include "cas/store/store.h"
#include "tests/lib/tests.h"

struct cas_store *tests_store_open(const char *dir, const struct cas_catalog *catalog)
{
	struct cas_store_options opts = {.path = tests_path(dir, "store"), .create = true};
	struct cas_store *store = NULL;
	struct err err = {0};

	if (cas_store_open(&opts, &store, &err) < 0)
		fail_msg("cannot open the store: %s", err.msg);
	if (catalog)
		cas_store_set_catalog(store, catalog);
	return store;
}

const char *tests_blob_path(const char *dir, const struct cas_digest *digest)
{
	char path[CAS_LAYOUT_PATH_SZ];
	char full[32 + CAS_LAYOUT_PATH_SZ];

	cas_layout_path(digest->hash, path);
	(void)snprintf(full, sizeof(full), "store/cas/%s", path);
	return tests_path(dir, full);
}

static int count_shard(const char *path)
{
	auto_closedir DIR *dir = opendir(path);
	struct dirent *de;
	int nr = 0;

	while (dir && (de = readdir(dir)) != NULL)
		nr += strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0 &&
		      strncmp(de->d_name, ".bad-", 5) != 0;
	return nr;
}

int tests_count_blobs(const char *dir)
{
	int nr = 0;

	for (unsigned i = 0; i < CAS_LAYOUT_NR_SHARDS; i++) {
		char shard[32];

		(void)snprintf(shard, sizeof(shard), "store/cas/%02x", i);
		nr += count_shard(tests_path(dir, shard));
	}
	return nr;
}

void tests_assert_blob(struct cas_store *store, const struct cas_digest *digest, const void *data,
		       size_t len)
{
	auto_buf struct buf b = {0};
	struct err err = {0};

	if (cas_store_read_blob(store, digest, len, &b, &err) < 0)
		fail_msg("cannot read the blob: %s", err.msg);
	assert_int_equal(digest->size, len);
	assert_int_equal(b.len, len);
	if (len > 0)
		assert_memory_equal(b.data, data, len);
}

unsigned char *tests_noise(size_t len, unsigned seed)
{
	unsigned char *data = malloc(len ? len : 1);
	uint64_t x = 0x9e3779b97f4a7c15u * (seed + 1);

	assert_non_null(data);
	for (size_t i = 0; i < len; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		data[i] = (unsigned char)(x >> 32);
	}
	return data;
}

#define ROWS_MAX  20000
#define TREES_MAX 100

/* A plain array: tests have few rows. @use counts up with each use. */
struct row {
	struct cas_digest digest;
	struct cas_stamp stamp;
	int64_t use;
};

struct tests_catalog {
	pthread_mutex_t lock;
	struct cas_catalog catalog;
	int nr;
	int adds;
	int64_t clock;
	bool believed;
	struct row rows[ROWS_MAX];
	int nr_trees;
	struct cas_victim trees[TREES_MAX]; /* in order of use */
};

static struct row *find_row(struct tests_catalog *c, const uint8_t hash[CAS_HASH_SZ])
{
	for (int i = 0; i < c->nr; i++) {
		if (memcmp(c->rows[i].digest.hash, hash, CAS_HASH_SZ) == 0)
			return &c->rows[i];
	}
	return NULL;
}

static int mem_blob_find(void *ctx, const struct cas_digest *digest, struct cas_stamp *stamp)
{
	struct tests_catalog *c = ctx;
	struct row *row;
	int found;

	(void)pthread_mutex_lock(&c->lock);
	row = find_row(c, digest->hash);
	found = row && row->digest.size == digest->size;
	if (found)
		*stamp = row->stamp;
	(void)pthread_mutex_unlock(&c->lock);
	return found;
}

static int mem_size_find(void *ctx, const uint8_t hash[CAS_HASH_SZ], uint64_t *size)
{
	struct tests_catalog *c = ctx;
	struct row *row;

	(void)pthread_mutex_lock(&c->lock);
	row = find_row(c, hash);
	if (row)
		*size = row->digest.size;
	(void)pthread_mutex_unlock(&c->lock);
	return row != NULL;
}

static void mem_blob_add(void *ctx, const struct cas_digest *digest, const struct cas_stamp *stamp)
{
	struct tests_catalog *c = ctx;
	struct row *row;

	(void)pthread_mutex_lock(&c->lock);
	row = find_row(c, digest->hash);
	if (row == NULL) {
		assert_true(c->nr < ROWS_MAX);
		row = &c->rows[c->nr++];
	}
	*row = (struct row){.digest = *digest, .stamp = *stamp, .use = ++c->clock};
	c->adds++;
	(void)pthread_mutex_unlock(&c->lock);
}

static void mem_blob_touch(void *ctx, const struct cas_digest *digest)
{
	struct tests_catalog *c = ctx;
	struct row *row;

	(void)pthread_mutex_lock(&c->lock);
	row = find_row(c, digest->hash);
	if (row)
		row->use = ++c->clock;
	(void)pthread_mutex_unlock(&c->lock);
}

static void mem_blob_drop(void *ctx, const struct cas_digest *digest)
{
	struct tests_catalog *c = ctx;
	struct row *row;

	(void)pthread_mutex_lock(&c->lock);
	row = find_row(c, digest->hash);
	if (row)
		*row = c->rows[--c->nr];
	(void)pthread_mutex_unlock(&c->lock);
}

static int mem_flush(void *ctx, struct err *err)
{
	(void)ctx;
	(void)err;
	return 0;
}

static int by_use(const void *a, const void *b)
{
	const struct row *x = a;
	const struct row *y = b;

	return (x->use > y->use) - (x->use < y->use);
}

static int mem_usage(void *ctx, struct cas_usage *out)
{
	struct tests_catalog *c = ctx;

	if (!c->believed)
		return 0;
	*out = (struct cas_usage){.blobs = (uint64_t)c->nr, .latest_ns = c->clock};
	for (int i = 0; i < c->nr; i++) {
		out->bytes += c->rows[i].digest.size;
		out->disk += c->rows[i].stamp.blocks * 512;
	}
	return 1;
}

static int mem_victims(void *ctx, const struct cas_victim *after, struct cas_victim *out, int max,
		       struct err *err)
{
	struct tests_catalog *c = ctx;
	int nr = 0;

	(void)err;
	(void)pthread_mutex_lock(&c->lock);
	qsort(c->rows, (size_t)c->nr, sizeof(c->rows[0]), by_use);
	for (int i = 0; i < c->nr && nr < max; i++) {
		if (after && c->rows[i].use <= after->last_use_ns)
			continue;
		out[nr++] = (struct cas_victim){.digest = c->rows[i].digest,
						.last_use_ns = c->rows[i].use,
						.disk = c->rows[i].stamp.blocks * 512};
	}
	(void)pthread_mutex_unlock(&c->lock);
	return nr;
}

static void mem_tree_touch(void *ctx, const struct cas_digest *root, bool over)
{
	struct tests_catalog *c = ctx;

	(void)pthread_mutex_lock(&c->lock);
	assert_true(c->nr_trees < TREES_MAX);
	c->trees[c->nr_trees++] = (struct cas_victim){.digest = *root, .last_use_ns = ++c->clock};
	(void)pthread_mutex_unlock(&c->lock);
}

static int mem_trees(void *ctx, int64_t after_ns, struct cas_victim *out, int max, struct err *err)
{
	struct tests_catalog *c = ctx;
	int nr = 0;

	(void)err;
	(void)pthread_mutex_lock(&c->lock);
	for (int i = c->nr_trees - 1; i >= 0 && nr < max; i--) {
		if (c->trees[i].last_use_ns > after_ns)
			out[nr++] = c->trees[i];
	}
	(void)pthread_mutex_unlock(&c->lock);
	return nr;
}

static int mem_file_find(void *ctx, const struct cas_file_id *id, struct cas_digest *digest)
{
	(void)ctx;
	(void)id;
	(void)digest;
	return 0;
}

static void mem_file_add(void *ctx, const struct cas_file_id *id, const struct cas_digest *digest)
{
	(void)ctx;
	(void)id;
	(void)digest;
}

static int mem_spread(void *ctx, const struct cas_victim *list, int nr, struct err *err)
{
	struct tests_catalog *c = ctx;

	(void)err;
	(void)pthread_mutex_lock(&c->lock);
	for (int i = 0; i < nr; i++) {
		struct row *row = find_row(c, list[i].digest.hash);

		if (row && row->use < list[i].last_use_ns)
			row->use = list[i].last_use_ns;
	}
	(void)pthread_mutex_unlock(&c->lock);
	return 0;
}

static int mem_trees_done(void *ctx, int64_t until_ns, struct err *err)
{
	struct tests_catalog *c = ctx;
	int nr = 0;

	(void)err;
	(void)pthread_mutex_lock(&c->lock);
	for (int i = 0; i < c->nr_trees; i++) {
		if (c->trees[i].last_use_ns > until_ns)
			c->trees[nr++] = c->trees[i];
	}
	c->nr_trees = nr;
	(void)pthread_mutex_unlock(&c->lock);
	return 0;
}

static const struct cas_catalog_ops mem_ops = {
	.blob_find = mem_blob_find,
	.size_find = mem_size_find,
	.blob_add = mem_blob_add,
	.blob_touch = mem_blob_touch,
	.tree_touch = mem_tree_touch,
	.blob_drop = mem_blob_drop,
	.file_find = mem_file_find,
	.file_add = mem_file_add,
	.flush = mem_flush,
	.usage = mem_usage,
	.victims = mem_victims,
	.trees = mem_trees,
	.spread = mem_spread,
	.trees_done = mem_trees_done,
};

struct tests_catalog *tests_catalog_new(void)
{
	struct tests_catalog *c = calloc(1, sizeof(*c));

	assert_non_null(c);
	(void)pthread_mutex_init(&c->lock, NULL);
	c->catalog = (struct cas_catalog){.ops = &mem_ops, .ctx = c};
	return c;
}

void tests_catalog_free(struct tests_catalog *c)
{
	(void)pthread_mutex_destroy(&c->lock);
	free(c);
}

const struct cas_catalog *tests_catalog_ops(struct tests_catalog *c)
{
	return &c->catalog;
}

int tests_catalog_count(struct tests_catalog *c)
{
	return c->nr;
}

int tests_catalog_adds(struct tests_catalog *c)
{
	return c->adds;
}

void tests_catalog_believe(struct tests_catalog *c)
{
	c->believed = true;
}

void tests_catalog_forget(struct tests_catalog *c)
{
	c->nr = 0;
}
