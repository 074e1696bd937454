/* cas/catalog.h - what the store needs from whoever keeps index and ledger */
#ifndef CAS_CATALOG_H
#define CAS_CATALOG_H

#include <stdbool.h>
#include <stdint.h>

#include "cas/digest.h"

struct err;

/*
 * What a blob's file looked like when its bytes were last hashed (design: stamps).
 * Times are nanoseconds since the epoch. Any difference means: hash before serving;
 * @blocks is for accounting alone, and zero where nobody counts.
 */
struct cas_stamp {
	uint64_t ino;
	uint64_t size;
	int64_t mtime_ns;
	int64_t ctime_ns;
	uint64_t blocks; /* of 512 bytes */
};

/* A source file's identity, under which ingest remembers its digest. */
struct cas_file_id {
	uint64_t dev;
	uint64_t ino;
	uint64_t size;
	int64_t mtime_ns;
	int64_t ctime_ns;
};

#define CAS_TREES_MAX 1024

/* A blob in order of use, or the root of a tree. */
struct cas_victim {
	struct cas_digest digest;
	int64_t last_use_ns;
	uint64_t disk; /* bytes of blocks */
};

/* What all blobs together are. */
struct cas_usage {
	uint64_t blobs;
	uint64_t bytes;	   /* of their contents */
	uint64_t disk;	   /* of their blocks */
	int64_t latest_ns; /* last use of all */
};

/*
 * Everything here is a hint: the file in cas/ is the truth, and any answer may be
 * missing. All functions are called from any thread, with no lock of the store held
 * except where stated, and may take locks of ranks LEDGER to LEAF only.
 */
struct cas_catalog_ops {
	/*
	 * 1 and *stamp when the blob was hashed as such a file, 0 when unknown,
	 * negative errno. Called by threads that answer the kernel: must not wait for
	 * a writer, in this process or another.
	 */
	int (*blob_find)(void *ctx, const struct cas_digest *digest, struct cas_stamp *stamp);
	/* The hash alone: 1 and *size, 0 unknown. Same rule as blob_find. */
	int (*size_find)(void *ctx, const uint8_t hash[CAS_HASH_SZ], uint64_t *size);

	/*
	 * Queue a row; never block. The blob was published, or hashed and found right. May
	 * be called with a shard lock held, so that adding and dropping keep their order.
	 */
	void (*blob_add)(void *ctx, const struct cas_digest *digest, const struct cas_stamp *stamp);
	/* Queue a last use. May be called with a shard lock held. */
	void (*blob_touch)(void *ctx, const struct cas_digest *digest);
	/*
	 * Queue a use of @root, a Directory, and of all that is below it: one row however
	 * much that is, which eviction spreads over the tree. @over: nothing of it is going
	 * to be read on account of this use, so that it need not be told of soon.
	 */
	void (*tree_touch)(void *ctx, const struct cas_digest *root, bool over);
	/* Queue the end of a row: the file is gone. May be called with a shard lock held. */
	void (*blob_drop)(void *ctx, const struct cas_digest *digest);

	/* Queue where a blob was brought from, after blob_add. NULL: nobody wants to know. */
	void (*blob_came)(void *ctx, const struct cas_digest *digest, const char *source);

	/* 1 and *digest, 0 unknown. */
	int (*file_find)(void *ctx, const struct cas_file_id *id, struct cas_digest *digest);
	/* Queue an identity; ingest has made sure that it is not racy. */
	void (*file_add)(void *ctx, const struct cas_file_id *id, const struct cas_digest *digest);

	/* Everything queued before is recorded when this returns. May block. */
	int (*flush)(void *ctx, struct err *err);

	/*
	 * 1 and *out when victims and this can be trusted to name every blob, as far as
	 * anybody has told of it; 0 when the files themselves have to be looked at. May block.
	 */
	int (*usage)(void *ctx, struct cas_usage *out);
	/*
	 * Up to @max blobs in order of last use, oldest first, after @after (NULL: from
	 * the start). Returns the count. May block. Only evict calls it.
	 */
	int (*victims)(void *ctx, const struct cas_victim *after, struct cas_victim *out, int max,
		       struct err *err);
	/*
	 * Up to @max trees whose use was recorded with a time after @after_ns, the latest
	 * first; an older one may be forgotten when there are CAS_TREES_MAX younger ones.
	 * Returns the count. May block. Only evict calls it.
	 */
	int (*trees)(void *ctx, int64_t after_ns, struct cas_victim *out, int max, struct err *err);
	/*
	 * What is in a tree was used as the tree was, if not later. @list: hashes and times.
	 * May block. Only evict calls it, and then trees_done, which forgets the trees whose
	 * use was recorded with a time up to @until_ns.
	 */
	int (*spread)(void *ctx, const struct cas_victim *list, int nr, struct err *err);
	int (*trees_done)(void *ctx, int64_t until_ns, struct err *err);
};

struct cas_catalog {
	const struct cas_catalog_ops *ops;
	void *ctx;
};

/* A catalog that knows nothing and forgets everything: for tests and for reading alone. */
extern const struct cas_catalog cas_catalog_null;

#endif
