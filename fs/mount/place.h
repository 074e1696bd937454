/* fs/mount/place.h - where a store may be served */
#ifndef FS_MOUNT_PLACE_H
#define FS_MOUNT_PLACE_H

#include <stdbool.h>

struct cas_store;
struct err;

/*
 * Resolve @mountpoint (a dead mount of ours there was detached before) and check it; the
 * caller frees *out, an absolute path without symlinks.
 * -ELOOP: it lies in the store (other than below STORE/run), or the store, its blobs
 * (@blobs may be NULL) in it; both paths are named. -EBUSY: a casbox is mounted there.
 * -ENOTEMPTY, -ENOENT, -ENOTDIR, -EACCES: as they say.
 */
int fs_place_check(const char *mountpoint, const struct cas_store *store, const char *blobs,
		   char **out, struct err *err);

/* Is this process root of a user namespace other than the first? */
bool fs_place_in_userns(void);

#endif
