/* meta/meta.c - open, close and the small questions */
#include "meta/meta.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/log.h"
#include "cas/store/store.h"
#include "meta/index/index.h"
#include "meta/ledger/ledger.h"
#include "meta/ledger/queue.h"
#include "meta/ledger/rows.h"
#include "meta/meta_i.h"

int meta_ledger_open_locked(struct meta *meta, struct err *err)
{
	struct meta_ledger_options opts = {
		.store_fd = cas_store_dir_fd(meta->store),
		.store_path = cas_store_path(meta->store),
		.writer = meta->opts.mode == META_WRITER,
	};
	bool fresh;
	int ret = meta_ledger_open(&opts, &meta->ledger, &fresh, err);

	meta->ledger_tried = true;
	if (ret == 0 && fresh)
		atomic_store(&meta->needs_reconcile, true);
	return ret;
}

struct meta_ledger *meta_ledger_get_locked(struct meta *meta)
{
	struct err err = {0};

	if (!meta->ledger && !meta->ledger_tried) {
		int ret = meta_ledger_open_locked(meta, &err);

		if (ret < 0)
			log_warn("going without the ledger: %s", err_text(&err, ret));
	}
	return meta->ledger;
}

static int index_open(struct meta *meta, struct err *err)
{
	struct meta_index_options opts = {
		.store_fd = cas_store_dir_fd(meta->store),
		.store_path = cas_store_path(meta->store),
		.writer = meta->opts.mode == META_WRITER,
		.nr_readers = meta->opts.nr_readers,
	};
	bool fresh;
	int ret = meta_index_open(&opts, &meta->index, &fresh, err);

	atomic_store_explicit(&meta->index_tried, true, memory_order_release);
	if (ret == 0 && fresh)
		atomic_store(&meta->needs_reconcile, true);
	return ret;
}

/* Many a command that uses the store asks nothing of the index. */
struct meta_index *meta_index_of(struct meta *meta)
{
	struct err err = {0};

	if (atomic_load_explicit(&meta->index_tried, memory_order_acquire))
		return meta->index;
	lock_take(&meta->index_lock);
	if (!atomic_load_explicit(&meta->index_tried, memory_order_relaxed)) {
		int ret = index_open(meta, &err);

		if (ret < 0)
			log_warn("going without the index: %s", err_text(&err, ret));
	}
	lock_drop(&meta->index_lock);
	return meta->index;
}

static void rows_lost(void *ctx)
{
	struct meta *meta = ctx;

	atomic_store(&meta->needs_reconcile, true);
}

static int queue_open(struct meta *meta, struct err *err)
{
	struct meta_queue_ops ops = {
		.write = meta->opts.mode == META_WRITER ? meta_record_write : meta_record_send,
		.lost = rows_lost,
		.ctx = meta,
		.late = meta->opts.mode == META_CLIENT,
	};

	if (meta->opts.mode == META_READER)
		return 0;
	return meta_queue_new(&ops, &meta->queue, err);
}

static int walk_any(void *ctx, const struct cas_store_blob *blob)
{
	(void)ctx;
	(void)blob;
	return 1;
}

/* New databases of a new store lack nothing. */
static void reconcile_if_empty(struct meta *meta)
{
	if (atomic_load(&meta->needs_reconcile) &&
	    cas_store_walk(meta->store, walk_any, NULL, NULL, NULL) == 0)
		(void)meta_reconcile(meta, NULL, NULL);
}

static int ledger_open(struct meta *meta, struct err *err)
{
	int ret;

	if (meta->opts.mode != META_WRITER)
		return 0;
	lock_take(&meta->ledger_lock);
	ret = meta_ledger_open_locked(meta, err);
	lock_drop(&meta->ledger_lock);
	return ret;
}

static int release(struct meta *meta, struct err *err)
{
	struct meta_ledger *ledger;
	int ret, index_ret;

	meta_queue_free(meta->queue);
	lock_take(&meta->ledger_lock);
	ledger = steal_ptr(&meta->ledger);
	lock_drop(&meta->ledger_lock);
	ret = meta_ledger_close(ledger, !atomic_load(&meta->needs_reconcile), err);
	index_ret = meta_index_close(meta->index, err);
	meta_dirs_free(meta->dirs);
	lock_fini(&meta->ledger_lock);
	lock_fini(&meta->index_lock);
	free(meta);
	return ret < 0 ? ret : index_ret;
}

int meta_open(struct cas_store *store, const struct meta_options *opts, struct meta **out,
	      struct err *err)
{
	struct meta *meta;
	int ret;

	if (opts->mode == META_CLIENT && !opts->send)
		return err_set(err, -EINVAL, "a client of the daemon needs a way to send");
	meta = calloc(1, sizeof(*meta));
	if (!meta)
		return -ENOMEM;
	meta->store = store;
	meta->opts = *opts;
	meta->catalog = (struct cas_catalog){.ops = &meta_catalog_ops, .ctx = meta};
	lock_init(&meta->index_lock, LOCK_RANK_INDEX, "meta.index_lock");
	lock_init(&meta->ledger_lock, LOCK_RANK_LEDGER, "meta.ledger_lock");
	ret = meta_dirs_new(&meta->dirs);
	if (ret == 0 && opts->mode == META_WRITER)
		ret = index_open(meta, err);
	if (ret == 0)
		ret = ledger_open(meta, err);
	if (ret == 0)
		ret = queue_open(meta, err);
	if (ret < 0) {
		(void)release(meta, NULL);
		return ret;
	}
	if (opts->mode == META_WRITER) {
		reconcile_if_empty(meta);
		meta_uses_take(meta);
	}
	*out = meta;
	return 0;
}

int meta_close(struct meta *meta, struct err *err)
{
	int ret, flushed = 0;

	if (!meta)
		return 0;
	if (meta->queue)
		flushed = meta_queue_flush(meta->queue, err);
	ret = release(meta, err);
	return flushed < 0 ? flushed : ret;
}

const struct cas_catalog *meta_catalog(struct meta *meta)
{
	return &meta->catalog;
}

bool meta_needs_reconcile(struct meta *meta)
{
	return meta->opts.mode == META_WRITER && atomic_load(&meta->needs_reconcile);
}

int meta_rows_apply(struct meta *meta, const char *rows, size_t len, struct err *err)
{
	struct meta_row *row;
	bool sync;
	int ret;

	if (meta->opts.mode != META_WRITER)
		return err_set(err, -EPERM, "rows are for the writer of a store");
	ret = meta_rows_parse(rows, len, &row, &sync, err);
	if (ret < 0)
		return ret;
	while (row) {
		struct meta_row *next = row->next;

		meta_queue_push(meta->queue, row);
		row = next;
	}
	return sync ? meta_queue_flush(meta->queue, err) : 0;
}

static int walk_count(void *ctx, const struct cas_store_blob *blob)
{
	struct meta_stat *stat = ctx;

	stat->blobs++;
	stat->bytes += blob->digest.size;
	stat->disk += blob->blocks * 512;
	return 0;
}

static int stat_ledger(struct meta *meta, struct meta_stat *out, struct err *err)
{
	struct meta_ledger *ledger;
	struct cas_usage usage;
	int ret = -ENOENT;

	lock_take(&meta->ledger_lock);
	ledger = meta_ledger_get_locked(meta);
	if (ledger)
		ret = meta_ledger_totals(ledger, &usage, err);
	lock_drop(&meta->ledger_lock);
	if (ret < 0)
		return ret;
	out->blobs = usage.blobs;
	out->bytes = usage.bytes;
	out->disk = usage.disk;
	return 0;
}

int meta_stat(struct meta *meta, struct meta_stat *out, struct err *err)
{
	struct meta_stat stat = {.directories = meta_index_dir_count(meta_index_of(meta))};
	int ret = stat_ledger(meta, &stat, NULL);

	if (ret < 0) {
		stat.from_walk = true;
		stat.blobs = 0;
		stat.bytes = 0;
		stat.disk = 0;
		ret = cas_store_walk(meta->store, walk_count, NULL, &stat, err);
		if (ret < 0)
			return ret;
	}
	*out = stat;
	return 0;
}

void meta_sandbox_record(struct meta *meta, const struct meta_sandbox_row *row)
{
	struct meta_row *copy;

	if (!meta->queue)
		return;
	copy = meta_row_new(META_ROW_SANDBOX, NULL);
	if (copy) {
		copy->sandbox = (struct meta_row_sandbox){
			.id = strdup(row->id),
			.root = strdup(row->root),
			.state = strdup(row->state),
			.created_ns = row->created_ns,
			.finished_ns = row->finished_ns,
			.exit_code = row->exit_code,
		};
		if (!copy->sandbox.id || !copy->sandbox.root || !copy->sandbox.state) {
			meta_row_free(copy);
			copy = NULL;
		}
	}
	meta_queue_push(meta->queue, copy);
}

int meta_clear_stale_readers(struct meta *meta)
{
	return meta_index_clear_stale_readers(meta_index_of(meta));
}
