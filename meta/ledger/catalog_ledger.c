/* meta/ledger/catalog_ledger.c - index, ledger and queue behind cas/catalog.h */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "cas/base/err.h"
#include "meta/index/index.h"
#include "meta/ledger/ledger.h"
#include "meta/ledger/queue.h"
#include "meta/meta_i.h"

/* Queued rows are newer than the index. 1, 0, or -ENOENT: being dropped. */
static int queued_find(struct meta *meta, const uint8_t hash[CAS_HASH_SZ], bool *has_stamp,
		       struct cas_digest *digest, struct cas_stamp *stamp)
{
	if (!meta->queue)
		return 0;
	return meta_queue_blob_find(meta->queue, hash, has_stamp, digest, stamp);
}

/* What is known about a hash; *stamp's size is the blob's, with a stamp or without. */
static int known_find(struct meta *meta, const uint8_t hash[CAS_HASH_SZ], bool *has_stamp,
		      struct cas_stamp *stamp)
{
	struct cas_digest digest;
	int ret = queued_find(meta, hash, has_stamp, &digest, stamp);

	if (ret == -ENOENT)
		return 0;
	if (ret == 1) {
		stamp->size = digest.size;
		if (*has_stamp)
			return 1;
		/* A row without a stamp takes nothing away from what the index knows. */
	}
	return meta_index_blob_get(meta_index_of(meta), hash, has_stamp, stamp) == 1 ? 1 : ret;
}

static int op_blob_find(void *ctx, const struct cas_digest *digest, struct cas_stamp *stamp)
{
	struct cas_stamp got;
	bool has_stamp;
	int ret = known_find(ctx, digest->hash, &has_stamp, &got);

	if (ret != 1 || !has_stamp || got.size != digest->size)
		return 0;
	*stamp = got;
	return 1;
}

static int op_size_find(void *ctx, const uint8_t hash[CAS_HASH_SZ], uint64_t *size)
{
	struct cas_stamp got;
	bool has_stamp;
	int ret = known_find(ctx, hash, &has_stamp, &got);

	if (ret == 1)
		*size = got.size;
	return ret;
}

static void push(struct meta *meta, struct meta_row *row)
{
	meta_queue_push(meta->queue, row);
}

/* The empty blob has no file and no row. */
static bool unwanted(const struct meta *meta, const struct cas_digest *digest)
{
	return !meta->queue || cas_digest_is_empty(digest);
}

static void op_blob_add(void *ctx, const struct cas_digest *digest, const struct cas_stamp *stamp)
{
	struct meta *meta = ctx;
	struct meta_row *row;

	if (unwanted(meta, digest))
		return;
	row = meta_row_new(META_ROW_BLOB, digest);
	if (row && stamp && stamp->size == digest->size) {
		row->has_stamp = true;
		row->stamp = *stamp;
	}
	push(meta, row);
}

static void op_blob_touch(void *ctx, const struct cas_digest *digest)
{
	struct meta *meta = ctx;

	if (!unwanted(meta, digest))
		push(meta, meta_row_new(META_ROW_TOUCH, digest));
}

static void op_tree_touch(void *ctx, const struct cas_digest *root, bool over)
{
	struct meta *meta = ctx;

	if (unwanted(meta, root))
		return;
	if (over)
		meta_queue_keep(meta->queue, meta_row_new(META_ROW_TREE, root));
	else
		push(meta, meta_row_new(META_ROW_TREE, root));
}

static void op_blob_drop(void *ctx, const struct cas_digest *digest)
{
	struct meta *meta = ctx;

	if (!unwanted(meta, digest))
		push(meta, meta_row_new(META_ROW_DROP, digest));
}

static int64_t now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void op_blob_came(void *ctx, const struct cas_digest *digest, const char *source)
{
	struct meta *meta = ctx;
	struct meta_row *row;

	if (unwanted(meta, digest))
		return;
	row = meta_row_new(META_ROW_CAME, digest);
	if (row) {
		row->came.source = strdup(source);
		row->came.when_ns = now_ns();
	}
	if (row && !row->came.source) {
		meta_row_free(row);
		row = NULL;
	}
	push(meta, row);
}

static int op_file_find(void *ctx, const struct cas_file_id *id, struct cas_digest *digest)
{
	struct meta *meta = ctx;

	return meta_index_file_get(meta_index_of(meta), id, digest);
}

static void op_file_add(void *ctx, const struct cas_file_id *id, const struct cas_digest *digest)
{
	struct meta *meta = ctx;
	struct meta_row *row;

	if (!meta->queue || id->size != digest->size)
		return;
	row = meta_row_new(META_ROW_FILE, digest);
	if (row)
		row->file = *id;
	push(meta, row);
}

static int op_flush(void *ctx, struct err *err)
{
	struct meta *meta = ctx;

	return meta->queue ? meta_queue_flush(meta->queue, err) : 0;
}

static int op_usage(void *ctx, struct cas_usage *out)
{
	struct meta *meta = ctx;
	int ret = -ENOENT;

	/* Others' rows are on their way to the writer; what it has lost only the files know. */
	if (meta->opts.mode != META_WRITER || atomic_load(&meta->needs_reconcile))
		return 0;
	lock_take(&meta->ledger_lock);
	if (meta->ledger)
		ret = meta_ledger_totals(meta->ledger, out, NULL);
	lock_drop(&meta->ledger_lock);
	return ret == 0;
}

static int op_victims(void *ctx, const struct cas_victim *after, struct cas_victim *out, int max,
		      struct err *err)
{
	struct meta *meta = ctx;
	struct meta_ledger *ledger;
	int ret = 0;

	/* The order counts from here on, so the touches so far do. What was lost is logged. */
	if (!after)
		(void)op_flush(ctx, NULL);
	lock_take(&meta->ledger_lock);
	ledger = meta_ledger_get_locked(meta);
	if (ledger)
		ret = meta_ledger_victims(ledger, after, out, max, err);
	lock_drop(&meta->ledger_lock);
	return ret;
}

static int op_trees(void *ctx, int64_t after_ns, struct cas_victim *out, int max, struct err *err)
{
	struct meta *meta = ctx;
	struct meta_ledger *ledger;
	int ret = 0;

	lock_take(&meta->ledger_lock);
	ledger = meta_ledger_get_locked(meta);
	if (ledger)
		ret = meta_ledger_trees(ledger, after_ns, out, max, err);
	lock_drop(&meta->ledger_lock);
	return ret;
}

static int spread_locked(struct meta *meta, const struct cas_victim *list, int nr, struct err *err)
	REQUIRES(meta->ledger_lock)
{
	struct meta_ledger *l = meta->ledger;
	int ret = meta_ledger_mark(l, err);

	if (ret == 0)
		ret = meta_ledger_begin(l, err);
	for (int i = 0; ret == 0 && i < nr; i++)
		ret = meta_ledger_blob_used(l, &list[i], err);
	if (ret == 0)
		ret = meta_ledger_commit(l, err);
	meta_ledger_abort(l);
	return ret;
}

static int op_spread(void *ctx, const struct cas_victim *list, int nr, struct err *err)
{
	struct meta *meta = ctx;
	int ret = 0;

	if (meta->opts.mode != META_WRITER)
		return 0;
	lock_take(&meta->ledger_lock);
	if (meta->ledger)
		ret = spread_locked(meta, list, nr, err);
	lock_drop(&meta->ledger_lock);
	return ret;
}

static int op_trees_done(void *ctx, int64_t until_ns, struct err *err)
{
	struct meta *meta = ctx;
	int ret = 0;

	if (meta->opts.mode != META_WRITER)
		return 0;
	lock_take(&meta->ledger_lock);
	if (meta->ledger)
		ret = meta_ledger_trees_done(meta->ledger, until_ns, err);
	lock_drop(&meta->ledger_lock);
	return ret;
}

const struct cas_catalog_ops meta_catalog_ops = {
	.blob_find = op_blob_find,
	.size_find = op_size_find,
	.blob_add = op_blob_add,
	.blob_touch = op_blob_touch,
	.tree_touch = op_tree_touch,
	.blob_drop = op_blob_drop,
	.blob_came = op_blob_came,
	.file_find = op_file_find,
	.file_add = op_file_add,
	.flush = op_flush,
	.usage = op_usage,
	.victims = op_victims,
	.trees = op_trees,
	.spread = op_spread,
	.trees_done = op_trees_done,
};
