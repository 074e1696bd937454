/* fs/mount/detach.h - what is mounted at a path, without touching it */
#ifndef FS_MOUNT_DETACH_H
#define FS_MOUNT_DETACH_H

#include <sys/types.h>

/*
 * By /proc/self/mountinfo: how many casbox mounts are stacked exactly at @path; with
 * @dev other than 0, only those of that device.
 */
int fs_mounts_at(const char *path, dev_t dev);

/*
 * Break the connections of the casbox mounts at @path, which has no '/' at its end, and below:
 * whoever waits for an answer there gets an error. How many mounts had one that could be.
 */
int fs_mounts_abort(const char *path);

#endif
