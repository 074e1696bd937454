/* fs/mount/way.h - who mounts for us, and where session one goes then */
#ifndef FS_MOUNT_WAY_H
#define FS_MOUNT_WAY_H

#include <stdbool.h>
#include <sys/types.h>

struct cas_store;
struct err;
struct fs_options;

enum fs_way {
	FS_WAY_OURS,	    /* we: as root, or as root of a user namespace */
	FS_WAY_HIDDEN,	    /* we, in namespaces of our own that are entered by choosing this */
	FS_WAY_FUSERMOUNT3, /* it, for us: nothing may be mounted on what it mounts */
};

const char *fs_way_name(enum fs_way way);

/*
 * The first that can be had. *no_userns says why it is not HIDDEN, when that was wanted. The
 * process must have one thread.
 */
int fs_way_choose(const struct fs_options *opts, enum fs_way *out, struct err *no_userns,
		  struct err *err);

/*
 * Where session one will be mounted, the caller's: in @mountpoint where we mount, else a
 * directory that is made, after what a daemon before left there is detached.
 * -EPERM: fusermount3 is not to be used. Else as fs_place_check.
 */
int fs_way_base(enum fs_way way, const struct fs_options *opts, const char *mountpoint,
		const struct cas_store *store, char **out, struct err *err);

/* Take session @dev off @path, unless somebody did so and mounted something of his own. */
void fs_way_unmount(const char *path, dev_t dev);

#endif
