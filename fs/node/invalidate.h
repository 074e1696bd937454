/* fs/node/invalidate.h - tell the kernel what changed */
#ifndef FS_NODE_INVALIDATE_H
#define FS_NODE_INVALIDATE_H

#include <stdint.h>

struct fuse_session;

/*
 * All of these wait for locks that the kernel holds while it waits for an answer of
 * ours. So they are never called by a thread that serves, nor with a lock held. 0 when
 * the kernel has nothing of the kind cached any more, or never had; negative when it may.
 */

/*
 * @name in the directory @dir does not mean what it did. What is mounted below is
 * detached. Requests of the kernel in @dir that were under way before are over.
 */
int fs_invalidate_name(struct fuse_session *se, uint64_t dir, const char *name);

/*
 * Nothing but the wait: lookups and listings in @dir that the kernel waited for are over
 * and what they answered is where it belongs.
 */
int fs_invalidate_barrier(struct fuse_session *se, uint64_t dir);

/* Attributes and, of a directory, what was listed. */
int fs_invalidate_node(struct fuse_session *se, uint64_t id);
int fs_invalidate_attr(struct fuse_session *se, uint64_t id);

#endif
