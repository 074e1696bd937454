/* meta/index/index_blob.c - hash to size and stamp */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "meta/index/index_i.h"

#define BLOB_HAS_STAMP 0x01

struct blob_value {
	uint64_t size;
	uint64_t ino;
	int64_t mtime_ns;
	int64_t ctime_ns;
	uint32_t flags;
	uint32_t zero;
} __attribute__((packed));
static_assert(sizeof(struct blob_value) == 40, "on-disk format");

static MDB_val hash_key(const uint8_t hash[CAS_HASH_SZ])
{
	return (MDB_val){.mv_size = CAS_HASH_SZ, .mv_data = (void *)(uintptr_t)hash};
}

int meta_index_blob_get(struct meta_index *ix, const uint8_t hash[CAS_HASH_SZ], bool *has_stamp,
			struct cas_stamp *stamp)
{
	MDB_val key = hash_key(hash);
	struct blob_value row;

	if (!ix || !meta_index_row_get(ix, ix->blob, &key, &row, sizeof(row)))
		return 0;
	*has_stamp = (le32toh(row.flags) & BLOB_HAS_STAMP) != 0;
	*stamp = (struct cas_stamp){
		.ino = le64toh(row.ino),
		.size = le64toh(row.size),
		.mtime_ns = (int64_t)le64toh((uint64_t)row.mtime_ns),
		.ctime_ns = (int64_t)le64toh((uint64_t)row.ctime_ns),
	};
	return 1;
}

int meta_index_blob_put(struct meta_index *ix, const struct cas_digest *digest,
			const struct cas_stamp *stamp)
{
	struct blob_value row = {.size = htole64(digest->size)};
	MDB_val key = hash_key(digest->hash);
	MDB_val val = {.mv_size = sizeof(row), .mv_data = &row};
	int rc;

	if (stamp) {
		row.ino = htole64(stamp->ino);
		row.mtime_ns = (int64_t)htole64((uint64_t)stamp->mtime_ns);
		row.ctime_ns = (int64_t)htole64((uint64_t)stamp->ctime_ns);
		row.flags = htole32(BLOB_HAS_STAMP);
	}
	rc = mdb_put(ix->wtxn, ix->blob, &key, &val, stamp ? 0 : MDB_NOOVERWRITE);
	return rc == MDB_KEYEXIST ? 0 : meta_index_errno(ix, rc);
}

int meta_index_blob_del(struct meta_index *ix, const uint8_t hash[CAS_HASH_SZ])
{
	MDB_val key = hash_key(hash);
	int rc = mdb_del(ix->wtxn, ix->blob, &key, NULL);

	return rc == MDB_NOTFOUND ? 0 : meta_index_errno(ix, rc);
}

struct sweep {
	int (*keep)(void *ctx, const struct cas_digest *digest);
	void *ctx;
};

static int sweep_row(void *ctx, const MDB_val *key, const MDB_val *val)
{
	const struct sweep *sweep = ctx;
	struct blob_value row;
	struct cas_digest digest;

	if (key->mv_size != CAS_HASH_SZ || val->mv_size != sizeof(row))
		return 0;
	memcpy(&row, val->mv_data, sizeof(row));
	memcpy(digest.hash, key->mv_data, CAS_HASH_SZ);
	digest.size = le64toh(row.size);
	return sweep->keep(sweep->ctx, &digest);
}

int meta_index_blob_sweep(struct meta_index *ix, unsigned shard,
			  int (*keep)(void *ctx, const struct cas_digest *digest), void *ctx,
			  uint64_t *dropped)
{
	struct sweep sweep = {.keep = keep, .ctx = ctx};

	return meta_index_sweep(ix, ix->blob, shard, sweep_row, &sweep, dropped);
}
