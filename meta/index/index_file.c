/* meta/index/index_file.c - identity of a source file to its digest */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "meta/index/index_i.h"

/* Big-endian, so that the inodes of one tree lie side by side. */
struct file_key {
	uint64_t dev;
	uint64_t ino;
} __attribute__((packed));
static_assert(sizeof(struct file_key) == 16, "on-disk format");

struct file_value {
	uint64_t size; /* of the file and of the digest */
	int64_t mtime_ns;
	int64_t ctime_ns;
	uint8_t hash[CAS_HASH_SZ];
} __attribute__((packed));
static_assert(sizeof(struct file_value) == 56, "on-disk format");

static struct file_key file_key(const struct cas_file_id *id)
{
	return (struct file_key){.dev = htobe64(id->dev), .ino = htobe64(id->ino)};
}

int meta_index_file_get(struct meta_index *ix, const struct cas_file_id *id,
			struct cas_digest *digest)
{
	struct file_key k = file_key(id);
	MDB_val key = {.mv_size = sizeof(k), .mv_data = &k};
	struct file_value row;

	if (!ix || !meta_index_row_get(ix, ix->file, &key, &row, sizeof(row)))
		return 0;
	if (le64toh(row.size) != id->size ||
	    (int64_t)le64toh((uint64_t)row.mtime_ns) != id->mtime_ns ||
	    (int64_t)le64toh((uint64_t)row.ctime_ns) != id->ctime_ns)
		return 0;
	memcpy(digest->hash, row.hash, CAS_HASH_SZ);
	digest->size = id->size;
	return 1;
}

int meta_index_file_put(struct meta_index *ix, const struct cas_file_id *id,
			const struct cas_digest *digest)
{
	struct file_key k = file_key(id);
	struct file_value row = {
		.size = htole64(id->size),
		.mtime_ns = (int64_t)htole64((uint64_t)id->mtime_ns),
		.ctime_ns = (int64_t)htole64((uint64_t)id->ctime_ns),
	};
	MDB_val key = {.mv_size = sizeof(k), .mv_data = &k};
	MDB_val val = {.mv_size = sizeof(row), .mv_data = &row};

	memcpy(row.hash, digest->hash, CAS_HASH_SZ);
	return meta_index_errno(ix, mdb_put(ix->wtxn, ix->file, &key, &val, 0));
}
