/* fs/capture/blobs.h - small blobs that are put together */
#ifndef FS_CAPTURE_BLOBS_H
#define FS_CAPTURE_BLOBS_H

#include <stdbool.h>
#include <stddef.h>

#include "cas/base/buf.h"
#include "cas/digest.h"

struct cas_store;
struct err;
struct fs_crew;

#define FS_BLOBS_MAX   64
#define FS_BLOBS_BYTES (256 << 10)

/*
 * Directories and Trees of a capture until they are put, several at a time: one after the
 * other they would take longer than the small outputs that they are about. Zero-initialized;
 * one thread.
 */
struct fs_blobs {
	size_t nr;
	size_t bytes;
	struct fs_blob {
		struct cas_digest digest;
		struct buf raw;
		int ret;   /* while they are put */
		char *why; /* the same */
	} blobs[FS_BLOBS_MAX];
};

/* Takes @raw over, whose digest is @digest. -ENOSPC: it is full. The empty blob needs no place. */
int fs_blobs_add(struct fs_blobs *b, const struct cas_digest *digest, struct buf *raw);
bool fs_blobs_are_full(const struct fs_blobs *b);
/* NULL: it is not, or no more, among them. Borrowed until something is put. */
const struct buf *fs_blobs_find(const struct fs_blobs *b, const struct cas_digest *digest);
/* Put all; none is left, whatever this returns. */
int fs_blobs_put(struct fs_blobs *b, struct cas_store *store, struct fs_crew *crew,
		 struct err *err);
void fs_blobs_fini(struct fs_blobs *b);

#endif
