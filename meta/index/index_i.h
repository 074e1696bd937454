/* meta/index/index_i.h - the index as its own files see it */
#ifndef META_INDEX_INDEX_I_H
#define META_INDEX_INDEX_I_H

#include <lmdb.h>
#include <pthread.h>
#include <stdatomic.h>

#include "cas/base/lock.h"
#include "meta/index/index.h"

/*
 * Read transactions are made once at open and then only renewed and reset: renewing
 * takes no lock of LMDB's, so that a process stopped in its reader table cannot stop
 * ours. They live inside one function.
 */
struct meta_index {
	MDB_env *env;
	MDB_dbi blob;
	MDB_dbi dir;
	MDB_dbi file;
	bool writer;
	bool dirty; /* the state file says so; writer only, one thread at a time */
	int dir_fd; /* meta/index */
	unsigned page_sz;
	int data_fd; /* data.mdb, LMDB's own: never closed here */
	MDB_txn *wtxn;
	_Atomic bool broken; /* set once; readers then find nothing */
	struct lock pool_lock;
	pthread_cond_t pool_cond;
	int nr_readers;
	int nr_idle GUARDED_BY(pool_lock);
	MDB_txn **idle GUARDED_BY(pool_lock);
};

/* A read transaction, or NULL: answer "unknown". */
MDB_txn *meta_index_read_begin(struct meta_index *ix);
void meta_index_read_end(struct meta_index *ix, MDB_txn *txn);

/* The row of @size bytes under @key: 1, or 0: none of that size is there, or it is not known. */
int meta_index_row_get(struct meta_index *ix, MDB_dbi dbi, MDB_val *key, void *row, size_t size);

/* An LMDB code as a negative errno; damage marks the index as broken. */
int meta_index_errno(struct meta_index *ix, int rc);

/* Visit the keys of a table that begin with @shard; see meta_index_blob_sweep. */
int meta_index_sweep(struct meta_index *ix, MDB_dbi dbi, unsigned shard,
		     int (*keep)(void *ctx, const MDB_val *key, const MDB_val *val), void *ctx,
		     uint64_t *dropped);

#endif
