/* fs/mount/fusermount.h - mounting and unmounting where we may not: through fusermount3 */
#ifndef FS_MOUNT_FUSERMOUNT_H
#define FS_MOUNT_FUSERMOUNT_H

#include <stdbool.h>

struct err;
struct fs_mount;

/* May this process mount by itself: as root, or as root of a user namespace? */
bool fs_mount_is_allowed(void);

/*
 * Have fusermount3, which is found in PATH, mount a new connection at @path, nosuid and
 * nodev. It is attached when this returns, so out->mount_fd is -1: fs_mount_remove ends it.
 * Its own words are in the message when it fails.
 * -ENOENT: there is no fusermount3. -ENODEV, -EACCES: /dev/fuse, as fs_mount_new.
 * -EPERM: fusermount3 refused, or was refused.
 */
int fs_fusermount(const char *path, bool read_only, bool allow_other, struct fs_mount *out,
		  struct err *err);

/*
 * Unmount what is on top at @path, by ourselves where we may, else through fusermount3;
 * @lazy: also when it is in use. -EBUSY: it is in use.
 */
int fs_mount_remove(const char *path, bool lazy, struct err *err);

#endif
