/* fs/mount/userns.h - namespaces of our own, to mount in without privileges */
#ifndef FS_MOUNT_USERNS_H
#define FS_MOUNT_USERNS_H

struct err;

/*
 * Could this process mount in a user namespace of its own? Tried in a child, since there
 * is no way back: where AppArmor forbids it, the namespace is made, but grants nothing.
 * -EPERM, -ENOSPC, -EACCES and what the kernel says: no, and why.
 */
int fs_userns_check(struct err *err);

/*
 * Go into new user and mount namespaces. Ids stay what they are; the capabilities there are
 * kept by this process and by the programs that it executes. The process must have one thread.
 */
int fs_userns_enter(struct err *err);

#endif
