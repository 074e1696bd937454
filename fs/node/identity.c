/* fs/node/identity.c - keys of nodes and the inode numbers made of them */
#include "fs/node/identity.h"

#include <errno.h>
#include <string.h>

#include "cas/cas.h"

#define INO_BITS 60

const struct fs_key fs_key_zero = {{0}};

static int key_of_bytes(const struct buf *b, struct fs_key *out)
{
	struct cas_digest d;
	int ret = cas_hash_bytes(b->data, b->len, &d);

	if (ret < 0)
		return ret;
	memcpy(out->bytes, d.hash, sizeof(out->bytes));
	return 0;
}

int fs_key_of_path(const struct fs_key *parent, const char *name, struct fs_key *out)
{
	auto_buf struct buf b = {0};

	if (buf_append(&b, parent->bytes, sizeof(parent->bytes)) < 0 ||
	    buf_append_str(&b, name) < 0)
		return -ENOMEM;
	return key_of_bytes(&b, out);
}

static int append_content(struct buf *b, const struct fs_entry *entry)
{
	if (entry->kind == FS_KIND_SYMLINK)
		return buf_append(b, entry->target, strlen(entry->target) + 1);
	if (buf_append(b, entry->digest.hash, sizeof(entry->digest.hash)) < 0)
		return -ENOMEM;
	return buf_append(b, &entry->digest.size, sizeof(entry->digest.size));
}

int fs_key_of_leaf(const struct fs_key *parent, const char *name, const struct fs_entry *entry,
		   struct fs_key *out)
{
	auto_buf struct buf b = {0};
	int64_t mtime_sec = entry->has_mtime ? entry->mtime_sec : 0;
	int32_t mtime_nsec = entry->has_mtime ? entry->mtime_nsec : 0;
	uint16_t mode = entry->has_mode ? entry->mode : 0;
	uint8_t traits[] = {entry->kind, entry->executable, entry->has_mtime, entry->has_mode};

	if (buf_reserve(&b, 512) < 0)
		return -ENOMEM;
	/* The NUL after the name keeps this apart from every path of a directory. */
	if (buf_append(&b, parent->bytes, sizeof(parent->bytes)) < 0 ||
	    buf_append(&b, name, strlen(name) + 1) < 0 || append_content(&b, entry) < 0 ||
	    buf_append(&b, traits, sizeof(traits)) < 0 ||
	    buf_append(&b, &mtime_sec, sizeof(mtime_sec)) < 0 ||
	    buf_append(&b, &mtime_nsec, sizeof(mtime_nsec)) < 0 ||
	    buf_append(&b, &mode, sizeof(mode)) < 0)
		return -ENOMEM;
	return key_of_bytes(&b, out);
}

int fs_key_of_label(const char *label, const struct cas_digest *digest, struct fs_key *out)
{
	auto_buf struct buf b = {0};

	if (buf_append_str(&b, "fixed/") < 0 || buf_append(&b, label, strlen(label) + 1) < 0)
		return -ENOMEM;
	if (digest && (buf_append(&b, digest->hash, sizeof(digest->hash)) < 0 ||
		       buf_append(&b, &digest->size, sizeof(digest->size)) < 0))
		return -ENOMEM;
	return key_of_bytes(&b, out);
}

bool fs_key_equal(const struct fs_key *a, const struct fs_key *b)
{
	return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

uint64_t fs_key_ino(const struct fs_key *key)
{
	uint64_t v;

	memcpy(&v, key->bytes, sizeof(v));
	v &= (UINT64_C(1) << INO_BITS) - 1;
	return v < 2 ? v + 2 : v;
}
