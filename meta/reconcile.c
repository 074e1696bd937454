/* meta/reconcile.c - make index and ledger agree with the files on disk */
/*
 * One walk gives the files, sorted by hash; both databases are then read in the same
 * order and merged with it. Blobs may be published and evicted meanwhile, so whatever
 * the comparison wants to change is looked at once more on disk first. The rows of a put
 * that is under way arrive through the queue after this and correct what was missed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/log.h"
#include "cas/store.h"
#include "meta/index.h"
#include "meta/ledger.h"
#include "meta/meta_i.h"
#include "meta/queue.h"

struct found {
	struct cas_digest digest; /* size: the file's */
	int64_t mtime_ns;
	bool in_ledger;
};

struct change {
	struct cas_digest digest;
	bool resize; /* else the row goes */
};

struct reconcile {
	struct meta *meta;
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

static int walk_blob(void *ctx, const struct cas_store_blob *blob)
{
	struct reconcile *r = ctx;
	struct found found = {.digest = blob->digest, .mtime_ns = blob->stamp.mtime_ns};

	return buf_append(&r->files, &found, sizeof(found));
}

static int found_compare(const void *a, const void *b)
{
	return memcmp(((const struct found *)a)->digest.hash,
		      ((const struct found *)b)->digest.hash, CAS_HASH_SZ);
}

static struct found *found_search(struct reconcile *r, const struct cas_digest *digest)
{
	struct found key = {.digest = *digest};

	return nr_found(r) == 0
		       ? NULL
		       : bsearch(&key, r->files.data, nr_found(r), sizeof(key), found_compare);
}

/* The row of @digest, in order of hash: compare with the file of that hash. */
static int merge_row(void *ctx, const struct cas_digest *digest)
{
	struct reconcile *r = ctx;
	struct change change = {.digest = *digest};
	struct found *file = NULL;
	int order = 1;

	while (r->at < nr_found(r)) {
		file = found_at(r, r->at);
		order = memcmp(file->digest.hash, digest->hash, CAS_HASH_SZ);
		if (order >= 0)
			break;
		r->at++;
	}
	if (order != 0)
		return buf_append(&r->changes, &change, sizeof(change));
	file->in_ledger = true;
	if (file->digest.size == digest->size)
		return 0;
	change = (struct change){.digest = file->digest, .resize = true};
	return buf_append(&r->changes, &change, sizeof(change));
}

/* 1: there with that size; a failed look changes nothing. */
static int file_there(struct reconcile *r, const struct cas_digest *digest)
{
	int ret = cas_store_has(r->meta->store, digest);

	return ret < 0 ? 1 : ret;
}

static int apply_change(struct reconcile *r, struct meta_ledger *l, const struct change *change,
			struct err *err)
{
	int ret;

	if (change->resize) {
		ret = meta_ledger_blob_resize(l, &change->digest, err);
		r->result.resized += ret == 0;
		return ret;
	}
	if (file_there(r, &change->digest))
		return 0;
	ret = meta_ledger_blob_drop(l, &change->digest, err);
	r->result.dropped += ret == 0;
	return ret;
}

static int adopt_files(struct reconcile *r, struct meta_ledger *l, struct err *err)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < nr_found(r); i++) {
		const struct found *file = found_at(r, i);

		if (file->in_ledger || !file_there(r, &file->digest))
			continue;
		ret = meta_ledger_blob_adopt(l, &file->digest, file->mtime_ns, err);
		r->result.adopted += ret == 0;
	}
	return ret;
}

static int apply_changes(struct reconcile *r, struct meta_ledger *l, struct err *err)
{
	const struct change *changes = (const struct change *)(const void *)r->changes.data;
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < r->changes.len / sizeof(*changes); i++)
		ret = apply_change(r, l, &changes[i], err);
	return ret;
}

static int reconcile_ledger(struct reconcile *r, struct meta_ledger *l, struct err *err)
{
	int ret = meta_ledger_mark(l, err);

	if (ret == 0)
		ret = meta_ledger_begin(l, err);
	if (ret == 0)
		ret = meta_ledger_blob_each(l, merge_row, r, err);
	if (ret == 0)
		ret = apply_changes(r, l, err);
	if (ret == 0)
		ret = adopt_files(r, l, err);
	if (ret == 0)
		ret = meta_ledger_recount(l, err);
	if (ret == 0)
		ret = meta_ledger_commit(l, err);
	meta_ledger_abort(l);
	return ret;
}

/* An index row may stay while a file has its hash; the stamp tells about the rest. */
static int keep_row(void *ctx, const struct cas_digest *digest)
{
	struct reconcile *r = ctx;

	return found_search(r, digest) != NULL || file_there(r, digest);
}

static int reconcile_index(struct reconcile *r, struct err *err)
{
	struct meta_index *ix = r->meta->index;
	uint64_t dropped = 0;
	int ret = meta_index_begin(ix, err);

	if (ret < 0)
		return ret;
	ret = meta_index_blob_sweep(ix, keep_row, r, &dropped);
	if (ret == 0)
		ret = meta_index_dir_sweep(ix, keep_row, r, &dropped);
	for (size_t i = 0; ret == 0 && i < nr_found(r); i++)
		ret = meta_index_blob_put(ix, &found_at(r, i)->digest, NULL);
	if (ret == 0)
		return meta_index_commit(ix, err);
	meta_index_abort(ix);
	return err_set(err, ret, "cannot reconcile the index: %s", strerror(-ret));
}

static int reconcile_locked(struct meta *meta, struct reconcile *r, struct err *err)
	REQUIRES(meta->ledger_lock)
{
	int ret = reconcile_ledger(r, meta->ledger, err);

	return ret < 0 ? ret : reconcile_index(r, err);
}

static void reconcile_fini(struct reconcile *r)
{
	buf_fini(&r->files);
	buf_fini(&r->changes);
}

int meta_reconcile(struct meta *meta, struct meta_reconcile_result *out, struct err *err)
{
	auto_call(reconcile_fini) struct reconcile r = {.meta = meta};
	int ret;

	if (meta->opts.mode != META_WRITER)
		return err_set(err, -EPERM, "only the writer of a store may reconcile it");
	/* Rows lost before now are what the walk makes good. */
	(void)meta_queue_flush(meta->queue, NULL);
	ret = cas_store_walk(meta->store, walk_blob, NULL, &r, err);
	if (ret < 0)
		return ret;
	if (nr_found(&r) > 0)
		qsort(r.files.data, nr_found(&r), sizeof(struct found), found_compare);
	atomic_store(&meta->needs_reconcile, false);
	lock_take(&meta->ledger_lock);
	ret = reconcile_locked(meta, &r, err);
	lock_drop(&meta->ledger_lock);
	if (ret < 0) {
		atomic_store(&meta->needs_reconcile, true);
		return ret;
	}
	log_info("reconciled: %llu blobs adopted, %llu rows dropped, %llu resized",
		 (unsigned long long)r.result.adopted, (unsigned long long)r.result.dropped,
		 (unsigned long long)r.result.resized);
	if (out)
		*out = r.result;
	return 0;
}
