/* fs/backing/iobuf.h - buffers that bytes of blobs pass through */
#ifndef FS_BACKING_IOBUF_H
#define FS_BACKING_IOBUF_H

#include <stddef.h>

/* What one request reads at most. */
#define FS_IOBUF_SZ (1U << 20)

/* Any thread. */
struct fs_iobufs;

/* @keep: buffers kept for the next request; there may be more for a while. */
int fs_iobufs_new(size_t keep, struct fs_iobufs **out);
/* When all were given back. */
void fs_iobufs_free(struct fs_iobufs *pool);

/* FS_IOBUF_SZ bytes with anything in them; NULL without memory. */
void *fs_iobuf_take(struct fs_iobufs *pool);
void fs_iobuf_give(struct fs_iobufs *pool, void *buf); /* NULL is fine */

#endif
