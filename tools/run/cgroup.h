/* tools/run/cgroup.h - a control group of one command, and the end of all that runs in it */
#ifndef TOOLS_RUN_CGROUP_H
#define TOOLS_RUN_CGROUP_H

struct err;
struct mountinfo;

/* Zero-initialize with fd = -1; ended by cgroup_fini, which removes the group. */
struct cgroup {
	char *path; /* absolute; NULL: none */
	int fd;	    /* its directory */
};

/*
 * The path of a group @name below our own in the version 2 hierarchy, wherever that is
 * mounted; the caller's. -ENOENT: no such hierarchy. -EACCES, -EROFS: not ours to divide.
 */
int cgroup_place(const char *name, char **out, struct err *err);

/* Make the group at @path. -EACCES, -EROFS, -EPERM as above. */
int cgroup_make(const char *path, struct cgroup *out, struct err *err);

/*
 * Kill everything in the group and wait until it is empty, or @timeout_ms passed
 * (-ETIMEDOUT). An empty group costs one read.
 */
int cgroup_kill(const struct cgroup *group, int timeout_ms, struct err *err);

void cgroup_fini(struct cgroup *group);

/*
 * Without a control group: from now on what our children leave behind becomes ours
 * (0 or negative errno), and: kill and reap our children until none is left.
 */
int cgroup_adopt_orphans(void);
int cgroup_kill_children(int timeout_ms);

/*
 * Where all of version 2 is mounted, of what is left of @mounts: the caller frees; NULL:
 * nowhere. For tests.
 */
char *cgroup_find_mount(struct mountinfo *mounts);

#endif
