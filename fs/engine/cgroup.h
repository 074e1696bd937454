/* fs/engine/cgroup.h - end everything in a control group of ours */
#ifndef FS_ENGINE_CGROUP_H
#define FS_ENGINE_CGROUP_H

struct err;

/* 0, or -EINVAL: not a path below /sys/fs/cgroup whose last component is "casbox-…". */
int fs_cgroup_check(const char *cgroup, struct err *err);

/*
 * Kill all processes in @cgroup and wait until it is empty, up to 5 s. A group that is
 * gone is empty. -EINVAL as above. -ETIMEDOUT: somebody survived.
 */
int fs_cgroup_kill(const char *cgroup, struct err *err);

/*
 * Remove a group in which nobody is left: the kernel calls it busy for a moment after the
 * last process went, so this may wait some 100 ms.
 */
void fs_cgroup_remove(const char *cgroup);

#endif
