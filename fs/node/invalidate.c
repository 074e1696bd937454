/* fs/node/invalidate.c - tell the kernel what changed */
#define FUSE_USE_VERSION 312
#include "fs/node/invalidate.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <string.h>

/* Not cached is as good. */
static int forgive(int ret)
{
	return ret == -ENOENT ? 0 : ret;
}

int fs_invalidate_name(struct fuse_session *se, uint64_t dir, const char *name)
{
	return forgive(fuse_lowlevel_notify_inval_entry(se, dir, name, strlen(name)));
}

/* The kernel takes the directory's lock before it looks for a name, and caches no ".". */
int fs_invalidate_barrier(struct fuse_session *se, uint64_t dir)
{
	return fs_invalidate_name(se, dir, ".");
}

int fs_invalidate_node(struct fuse_session *se, uint64_t id)
{
	return forgive(fuse_lowlevel_notify_inval_inode(se, id, 0, 0));
}

int fs_invalidate_attr(struct fuse_session *se, uint64_t id)
{
	return forgive(fuse_lowlevel_notify_inval_inode(se, id, -1, 0));
}
