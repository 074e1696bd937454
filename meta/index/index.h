/* meta/index/index.h - the LMDB index: what the hot paths ask */
#ifndef META_INDEX_INDEX_H
#define META_INDEX_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cas/catalog.h"

struct err;

/*
 * Three tables: blob (hash to size and stamp), dir (digest to packed directory), file
 * (device and inode to digest). Reading functions may be called by any thread, wait for
 * no writer, and answer 0 ("unknown") rather than fail when the index is unusable.
 *
 * Writing is for the one process that holds the store's writer lock, and there for one
 * thread at a time (the ledger's lock is held around it): begin, any number of changes,
 * commit or abort.
 */
struct meta_index;

struct meta_index_options {
	int store_fd; /* STORE; borrowed for the call */
	const char *store_path;
	bool writer;
	int nr_readers;
};

/*
 * WRITER: open or create; *fresh tells that it was created, also in place of one that
 * was damaged. Reader: *out is NULL and 0 returned when there is none that can be used.
 */
int meta_index_open(const struct meta_index_options *opts, struct meta_index **out, bool *fresh,
		    struct err *err);
/* A writer makes everything durable first and says so in the index. NULL is fine. */
int meta_index_close(struct meta_index *ix, struct err *err);

/* Forget readers that died. */
int meta_index_clear_stale_readers(struct meta_index *ix);

/* 1, 0 unknown; *has_stamp false: the blob was seen but not hashed. */
int meta_index_blob_get(struct meta_index *ix, const uint8_t hash[CAS_HASH_SZ], bool *has_stamp,
			struct cas_stamp *stamp);
/* 1, 0 unknown, also when the file now differs from what was recorded. */
int meta_index_file_get(struct meta_index *ix, const struct cas_file_id *id,
			struct cas_digest *digest);
/*
 * Call @use on the packed bytes in place; its value is returned through *result. 1, or 0
 * when unknown. @use must not call into the index, the store or a callback of others.
 */
int meta_index_dir_use(struct meta_index *ix, const struct cas_digest *digest,
		       int (*use)(void *ctx, const void *data, size_t len), void *ctx, int *result);
uint64_t meta_index_dir_count(struct meta_index *ix);

/* -ENOSPC: full disk or map; -EUCLEAN: damaged, unusable from now on and remade next time. */
int meta_index_begin(struct meta_index *ix, struct err *err);
int meta_index_commit(struct meta_index *ix, struct err *err);
void meta_index_abort(struct meta_index *ix);

/*
 * Inside begin and commit. After a failure only abort makes sense. Deleting what is not
 * there succeeds.
 */
/* @stamp NULL: record the size only, and keep what a row already says. */
int meta_index_blob_put(struct meta_index *ix, const struct cas_digest *digest,
			const struct cas_stamp *stamp);
int meta_index_blob_del(struct meta_index *ix, const uint8_t hash[CAS_HASH_SZ]);
int meta_index_file_put(struct meta_index *ix, const struct cas_file_id *id,
			const struct cas_digest *digest);
int meta_index_dir_put(struct meta_index *ix, const struct cas_digest *digest, const void *data,
		       size_t len);
int meta_index_dir_del(struct meta_index *ix, const struct cas_digest *digest);

/*
 * Visit every blob row of a shard, or every directory row, in order of hash; a row for
 * which @keep returns 0 is deleted. Negative stops.
 */
int meta_index_blob_sweep(struct meta_index *ix, unsigned shard,
			  int (*keep)(void *ctx, const struct cas_digest *digest), void *ctx,
			  uint64_t *dropped);
int meta_index_dir_sweep(struct meta_index *ix, unsigned shard,
			 int (*keep)(void *ctx, const struct cas_digest *digest), void *ctx,
			 uint64_t *dropped);

/* Empty the tables that grow without a blob's file growing: when the map is full. */
int meta_index_shrink(struct meta_index *ix, struct err *err);

#endif
