/* meta/reconcile.c - make index and ledger agree with the files on disk */
/*
 * One shard at a time: its names (and, for a full look, what a stat tells) are listed and
 * sorted, the ledger's rows are read in the same order and merged with them. So memory and
 * the time under the lock are those of a shard, and other writers come in between.
 *
 * Blobs may be published and evicted meanwhile: whatever the comparison wants to change is
 * looked at once more on disk, with the ledger's lock held. What is unlinked or published
 * after that look sends its row after it, and the queue writes that later.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/log.h"
#include "cas/store/layout.h"
#include "cas/store/store.h"
#include "meta/index/index.h"
#include "meta/ledger/ledger.h"
#include "meta/ledger/queue.h"
#include "meta/meta_i.h"

struct found {
	struct meta_ledger_blob blob; /* all but the hash is valid after a full look */
	bool in_ledger;
};

enum change_kind { CHANGE_DROP, CHANGE_CORRECT, CHANGE_ADOPT };

struct change {
	enum change_kind kind;
	struct meta_ledger_blob blob;
	bool resized; /* CHANGE_CORRECT */
	bool done;
};

struct reconcile {
	struct meta *meta;
	unsigned shard;
	bool full;
	struct buf files;   /* of struct found, sorted by hash */
	struct buf changes; /* of struct change */
	size_t at;	    /* merge position in files */
	struct meta_reconcile_result result;
};

static size_t nr_found(const struct reconcile *r)
{
	return r->files.len / sizeof(struct found);
}

static struct found *found_at(const struct reconcile *r, size_t i)
{
	return (struct found *)(void *)r->files.data + i;
}

static size_t nr_changes(const struct reconcile *r)
{
	return r->changes.len / sizeof(struct change);
}

static struct change *change_at(const struct reconcile *r, size_t i)
{
	return (struct change *)(void *)r->changes.data + i;
}

static int add_change(struct reconcile *r, enum change_kind kind,
		      const struct meta_ledger_blob *blob, bool resized)
{
	const struct change change = {.kind = kind, .blob = *blob, .resized = resized};

	return buf_append(&r->changes, &change, sizeof(change));
}

static struct meta_ledger_blob seen_as(const struct cas_store_blob *blob)
{
	return (struct meta_ledger_blob){blob->digest, blob->blocks * 512, blob->stamp.mtime_ns};
}

static int walk_blob(void *ctx, const struct cas_store_blob *blob)
{
	struct reconcile *r = ctx;
	const struct found found = {.blob = seen_as(blob)};

	return buf_append(&r->files, &found, sizeof(found));
}

static int list_name(void *ctx, const uint8_t hash[CAS_HASH_SZ])
{
	struct reconcile *r = ctx;
	struct found found = {0};

	memcpy(found.blob.digest.hash, hash, CAS_HASH_SZ);
	return buf_append(&r->files, &found, sizeof(found));
}

static int found_compare(const void *a, const void *b)
{
	return memcmp(((const struct found *)a)->blob.digest.hash,
		      ((const struct found *)b)->blob.digest.hash, CAS_HASH_SZ);
}

static const struct found *found_search(struct reconcile *r, const struct cas_digest *digest)
{
	struct found key = {.blob.digest = *digest};

	return nr_found(r) == 0
		       ? NULL
		       : bsearch(&key, r->files.data, nr_found(r), sizeof(key), found_compare);
}

static int list_files(struct reconcile *r, struct err *err)
{
	struct cas_store *store = r->meta->store;
	int ret = r->full ? cas_store_walk_shard(store, r->shard, walk_blob, r, err)
			  : cas_store_list_shard(store, r->shard, list_name, r, err);

	if (ret == 0 && nr_found(r) > 0)
		qsort(r->files.data, nr_found(r), sizeof(struct found), found_compare);
	return ret;
}

/* A row beside its file. Others' uses of a cache that is not ours alone are file times. */
static int compare(struct reconcile *r, const struct meta_ledger_blob *row,
		   const struct meta_ledger_blob *file)
{
	struct meta_ledger_blob now = *file;
	bool resized = file->digest.size != row->digest.size;

	if (!r->full)
		return 0;
	if (!cas_store_is_adopted(r->meta->store))
		now.last_use_ns = row->last_use_ns;
	if (!resized && file->disk == row->disk && now.last_use_ns <= row->last_use_ns)
		return 0;
	return add_change(r, CHANGE_CORRECT, &now, resized);
}

/* The next row in order of hash. */
static int merge_row(void *ctx, const struct meta_ledger_blob *row)
{
	struct reconcile *r = ctx;
	struct found *file = NULL;
	int order = 1;

	while (r->at < nr_found(r)) {
		file = found_at(r, r->at);
		order = memcmp(file->blob.digest.hash, row->digest.hash, CAS_HASH_SZ);
		if (order >= 0)
			break;
		r->at++;
	}
	if (order != 0)
		return add_change(r, CHANGE_DROP, row, false);
	file->in_ledger = true;
	return compare(r, row, &file->blob);
}

static int find_unrecorded(struct reconcile *r)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < nr_found(r); i++) {
		if (!found_at(r, i)->in_ledger)
			ret = add_change(r, CHANGE_ADOPT, &found_at(r, i)->blob, false);
	}
	return ret;
}

/* A failed look changes nothing. */
static int apply_drop(struct reconcile *r, struct meta_ledger *l, struct change *change,
		      struct err *err)
{
	int ret;

	if (cas_store_has(r->meta->store, &change->blob.digest) != 0)
		return 0;
	ret = meta_ledger_blob_drop(l, &change->blob.digest, err);
	change->done = ret == 0;
	r->result.dropped += ret == 0;
	return ret;
}

static int apply_adopt(struct reconcile *r, struct meta_ledger *l, struct change *change,
		       struct err *err)
{
	struct cas_store_blob now;
	int ret = cas_store_look(r->meta->store, change->blob.digest.hash, &now);

	if (ret != 1)
		return 0;
	change->blob = seen_as(&now);
	ret = meta_ledger_blob_adopt(l, &change->blob, err);
	change->done = ret == 0;
	r->result.adopted += ret == 0;
	return ret;
}

static int apply_change(struct reconcile *r, struct meta_ledger *l, struct change *change,
			struct err *err)
{
	int ret;

	switch (change->kind) {
	case CHANGE_DROP:
		return apply_drop(r, l, change, err);
	case CHANGE_ADOPT:
		return apply_adopt(r, l, change, err);
	case CHANGE_CORRECT:
		break;
	}
	ret = meta_ledger_blob_correct(l, &change->blob, err);
	r->result.resized += ret == 0 && change->resized;
	return ret;
}

static int reconcile_ledger(struct reconcile *r, struct meta_ledger *l, struct err *err)
{
	int ret = meta_ledger_blob_each(l, r->shard, merge_row, r, err);

	if (ret == 0)
		ret = find_unrecorded(r);
	if (ret < 0 || nr_changes(r) == 0)
		return ret;
	ret = meta_ledger_mark(l, err);
	if (ret == 0)
		ret = meta_ledger_begin(l, err);
	for (size_t i = 0; ret == 0 && i < nr_changes(r); i++)
		ret = apply_change(r, l, change_at(r, i), err);
	if (ret == 0)
		ret = meta_ledger_commit(l, err);
	meta_ledger_abort(l);
	return ret;
}

/* An index row may stay while a file has its hash; the stamp tells about the rest. */
static int keep_row(void *ctx, const struct cas_digest *digest)
{
	struct reconcile *r = ctx;

	return found_search(r, digest) != NULL || cas_store_has(r->meta->store, digest) != 0;
}

static int index_full(struct reconcile *r, struct meta_index *ix)
{
	uint64_t dropped = 0;
	int ret = meta_index_blob_sweep(ix, r->shard, keep_row, r, &dropped);

	if (ret == 0)
		ret = meta_index_dir_sweep(ix, r->shard, keep_row, r, &dropped);
	for (size_t i = 0; ret == 0 && i < nr_found(r); i++)
		ret = meta_index_blob_put(ix, &found_at(r, i)->blob.digest, NULL);
	return ret;
}

static int index_changes(struct reconcile *r, struct meta_index *ix)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < nr_changes(r); i++) {
		const struct change *change = change_at(r, i);

		if (change->done && change->kind == CHANGE_ADOPT)
			ret = meta_index_blob_put(ix, &change->blob.digest, NULL);
		if (change->done && change->kind == CHANGE_DROP)
			ret = meta_index_blob_del(ix, change->blob.digest.hash);
	}
	return ret;
}

static int reconcile_index(struct reconcile *r, struct err *err)
{
	struct meta_index *ix = r->meta->index;
	int ret;

	if (!r->full && nr_changes(r) == 0)
		return 0;
	ret = meta_index_begin(ix, err);
	if (ret < 0)
		return ret;
	ret = r->full ? index_full(r, ix) : index_changes(r, ix);
	if (ret == 0)
		return meta_index_commit(ix, err);
	meta_index_abort(ix);
	return err_set(err, ret, "cannot reconcile the index: %s", strerror(-ret));
}

static int reconcile_locked(struct meta *meta, struct reconcile *r, struct err *err)
	REQUIRES(meta->ledger_lock)
{
	int ret = meta->ledger ? reconcile_ledger(r, meta->ledger, err)
			       : err_set(err, -EUCLEAN, "there is no ledger to be reconciled");

	return ret < 0 ? ret : reconcile_index(r, err);
}

static void reconcile_fini(struct reconcile *r)
{
	buf_fini(&r->files);
	buf_fini(&r->changes);
}

static int reconcile_shard(struct meta *meta, unsigned shard, bool full,
			   struct meta_reconcile_result *sum, struct err *err)
{
	auto_call(reconcile_fini) struct reconcile r = {.meta = meta, .shard = shard, .full = full};
	int ret = list_files(&r, err);

	if (ret < 0)
		return ret;
	lock_take(&meta->ledger_lock);
	ret = reconcile_locked(meta, &r, err);
	lock_drop(&meta->ledger_lock);
	sum->adopted += r.result.adopted;
	sum->dropped += r.result.dropped;
	sum->resized += r.result.resized;
	return ret;
}

static int recount(struct meta *meta, struct err *err)
{
	int ret = 0;

	lock_take(&meta->ledger_lock);
	if (meta->ledger)
		ret = meta_ledger_recount(meta->ledger, err);
	lock_drop(&meta->ledger_lock);
	return ret;
}

static int all_shards(struct meta *meta, bool full, struct meta_reconcile_result *out,
		      struct err *err)
{
	struct meta_reconcile_result sum = {0};
	int ret = 0;

	if (meta->opts.mode != META_WRITER)
		return err_set(err, -EPERM, "only the writer of a store may reconcile it");
	/* Rows lost before now are what the walk makes good. */
	(void)meta_queue_flush(meta->queue, NULL);
	for (unsigned shard = 0; ret == 0 && shard < CAS_LAYOUT_NR_SHARDS; shard++)
		ret = reconcile_shard(meta, shard, full, &sum, err);
	if (ret == 0 && full)
		ret = recount(meta, err);
	if (ret < 0)
		return ret;
	if (full || sum.adopted + sum.dropped > 0)
		log_info("reconciled: %llu blobs adopted, %llu rows dropped, %llu resized",
			 (unsigned long long)sum.adopted, (unsigned long long)sum.dropped,
			 (unsigned long long)sum.resized);
	if (out)
		*out = sum;
	return 0;
}

int meta_reconcile(struct meta *meta, struct meta_reconcile_result *out, struct err *err)
{
	bool needed = atomic_exchange(&meta->needs_reconcile, false);
	int ret = all_shards(meta, true, out, err);

	if (ret < 0 && (needed || ret != -EPERM))
		atomic_store(&meta->needs_reconcile, true);
	return ret;
}

int meta_recount(struct meta *meta, struct meta_reconcile_result *out, struct err *err)
{
	int ret;

	/* Where others put and use blobs, too, sizes and times have to be looked at. */
	if (meta_needs_reconcile(meta) || cas_store_is_adopted(meta->store))
		return meta_reconcile(meta, out, err);
	ret = all_shards(meta, false, out, err);
	if (ret < 0 && ret != -EPERM)
		atomic_store(&meta->needs_reconcile, true);
	return ret;
}

int meta_recount_shard(struct meta *meta, unsigned shard, struct err *err)
{
	struct meta_reconcile_result sum = {0};
	int ret;

	if (meta->opts.mode != META_WRITER)
		return err_set(err, -EPERM, "only the writer of a store may reconcile it");
	ret = reconcile_shard(meta, shard, cas_store_is_adopted(meta->store), &sum, err);
	if (ret == 0 && sum.adopted + sum.dropped > 0)
		log_info("shard %02x: %llu blobs were not recorded, %llu recorded ones are gone",
			 shard, (unsigned long long)sum.adopted, (unsigned long long)sum.dropped);
	return ret;
}
