/* fs/mount/mountfd.h - make FUSE mounts by descriptor, and break their connections */
#ifndef FS_MOUNT_MOUNTFD_H
#define FS_MOUNT_MOUNTFD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct err;

#define FS_MOUNT_TYPE "fuse.casbox"

struct fs_mount {
	int dev_fd;   /* /dev/fuse */
	int mount_fd; /* detached until attached; closing it before unmounts */
	dev_t dev;    /* st_dev of everything in it */
};

/*
 * A connection to the kernel that is none yet. -ENODEV: no /dev/fuse. -EACCES, -EPERM: it
 * cannot be opened.
 */
int fs_mount_open_dev(struct err *err);

/*
 * A new FUSE mount, nosuid and nodev, attached nowhere; read-only when asked, as
 * superblock and as mount.
 * -ENODEV: no /dev/fuse. -EACCES: it cannot be opened. -EPERM: no right to mount.
 */
int fs_mount_new(bool read_only, bool allow_other, struct fs_mount *out, struct err *err);

/* Attach it; @path is resolved by the calling thread. */
int fs_mount_attach(const struct fs_mount *mount, const char *path, struct err *err);

/* Let the kernel read ahead @kib, after INIT. Negative where that is not allowed. */
int fs_mount_set_readahead(dev_t dev, unsigned kib);

/* Break the connection: every request in it, and all later ones, fail with ENOTCONN. */
int fs_mount_abort(dev_t dev, struct err *err);

#endif
