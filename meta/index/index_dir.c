/* meta/index/index_dir.c - digest to packed directory */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "meta/index/index_i.h"

/* Hash and size together: a right hash with a wrong size is another, unknown name. */
struct dir_key {
	uint8_t hash[CAS_HASH_SZ];
	uint64_t size;
} __attribute__((packed));
static_assert(sizeof(struct dir_key) == 40, "on-disk format");

static struct dir_key dir_key(const struct cas_digest *digest)
{
	struct dir_key k = {.size = htole64(digest->size)};

	memcpy(k.hash, digest->hash, CAS_HASH_SZ);
	return k;
}

int meta_index_dir_use(struct meta_index *ix, const struct cas_digest *digest,
		       int (*use)(void *ctx, const void *data, size_t len), void *ctx, int *result)
{
	MDB_txn *txn = meta_index_read_begin(ix);
	struct dir_key k = dir_key(digest);
	MDB_val key = {.mv_size = sizeof(k), .mv_data = &k}, val;
	int rc;

	if (!txn)
		return 0;
	rc = mdb_get(txn, ix->dir, &key, &val);
	if (rc == 0)
		*result = use(ctx, val.mv_data, val.mv_size);
	meta_index_read_end(ix, txn);
	if (rc != 0)
		(void)meta_index_errno(ix, rc);
	return rc == 0;
}

uint64_t meta_index_dir_count(struct meta_index *ix)
{
	MDB_txn *txn = meta_index_read_begin(ix);
	MDB_stat stat = {0};

	if (!txn)
		return 0;
	(void)mdb_stat(txn, ix->dir, &stat);
	meta_index_read_end(ix, txn);
	return stat.ms_entries;
}

int meta_index_dir_put(struct meta_index *ix, const struct cas_digest *digest, const void *data,
		       size_t len)
{
	struct dir_key k = dir_key(digest);
	MDB_val key = {.mv_size = sizeof(k), .mv_data = &k};
	MDB_val val = {.mv_size = len, .mv_data = (void *)(uintptr_t)data};

	return meta_index_errno(ix, mdb_put(ix->wtxn, ix->dir, &key, &val, 0));
}

int meta_index_dir_del(struct meta_index *ix, const struct cas_digest *digest)
{
	struct dir_key k = dir_key(digest);
	MDB_val key = {.mv_size = sizeof(k), .mv_data = &k};
	int rc = mdb_del(ix->wtxn, ix->dir, &key, NULL);

	return rc == MDB_NOTFOUND ? 0 : meta_index_errno(ix, rc);
}

struct sweep {
	int (*keep)(void *ctx, const struct cas_digest *digest);
	void *ctx;
};

static int sweep_row(void *ctx, const MDB_val *key, const MDB_val *val)
{
	const struct sweep *sweep = ctx;
	struct dir_key k;
	struct cas_digest digest;

	(void)val;
	if (key->mv_size != sizeof(k))
		return 0;
	memcpy(&k, key->mv_data, sizeof(k));
	memcpy(digest.hash, k.hash, CAS_HASH_SZ);
	digest.size = le64toh(k.size);
	return sweep->keep(sweep->ctx, &digest);
}

int meta_index_dir_sweep(struct meta_index *ix, unsigned shard,
			 int (*keep)(void *ctx, const struct cas_digest *digest), void *ctx,
			 uint64_t *dropped)
{
	struct sweep sweep = {.keep = keep, .ctx = ctx};

	return meta_index_sweep(ix, ix->dir, shard, sweep_row, &sweep, dropped);
}
