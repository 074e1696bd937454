/* fs/upper/limit.h - how much lies in a layer, and that it does not become too much */
#ifndef FS_UPPER_LIMIT_H
#define FS_UPPER_LIMIT_H

#include "fs/upper/upper_i.h"

/*
 * Called with the layer's lock held, unless it says otherwise. Without a limit none of it
 * does anything.
 */

/* When the root is there. Counts what lies there already. */
int fs_ulimit_begin(struct fs_upper *upper, const struct fs_upper_spec *spec);
/*
 * May one more file be made? @target of a symlink, else NULL. -EDQUOT; -EAGAIN: perhaps,
 * where one may wait.
 */
int fs_ulimit_may_make(struct fs_upper *upper, const char *target);
/* It was made; or was found on disk. */
void fs_ulimit_made(struct fs_unode *node, const char *target);
void fs_ulimit_met(struct fs_unode *node, const struct stat *st);
/*
 * Called without the lock, as settle: that range of a file is about to be written, open as
 * @fd, or new (-1). As may_make. What was promised is settled when it has been.
 */
int fs_ulimit_promise(struct fs_upper *upper, int fd, uint64_t off, uint64_t size,
		      uint64_t *promised);
void fs_ulimit_settle(struct fs_unode *node, int fd, uint64_t promised);
/* The file has another size, or was copied. */
void fs_ulimit_count(struct fs_unode *node, int fd);
/* Before and after a name goes: is it the last one on disk? Then it is gone. */
bool fs_ulimit_is_last(const struct fs_unode *node, int dir_fd, const char *name);
void fs_ulimit_gone(struct fs_unode *node);
/* The node is freed. */
void fs_ulimit_freed(struct fs_unode *node);

#endif
