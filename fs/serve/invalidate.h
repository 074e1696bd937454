/* fs/serve/invalidate.h - tell the kernel what changed, from a thread that serves nothing */
#ifndef FS_SERVE_INVALIDATE_H
#define FS_SERVE_INVALIDATE_H

#include <stdbool.h>

struct fuse_session;

/*
 * A notification waits for locks that the kernel holds while it waits for an answer of
 * ours. So it is never sent by a thread that serves, nor with a lock held, but queued.
 */
struct fs_invalidate;

int fs_invalidate_new(struct fuse_session *session, struct fs_invalidate **out);
/* Drops what is queued. The connection must be gone, or nothing may be stuck in it. */
void fs_invalidate_free(struct fs_invalidate *inv);

/* The listing of the root changed; with @name, that name does not mean what it did. */
void fs_invalidate_root(struct fs_invalidate *inv, const char *name);

/* Wait until all that was queued before is done; false when @timeout_ms passed. */
bool fs_invalidate_settle(struct fs_invalidate *inv, int timeout_ms);

#endif
