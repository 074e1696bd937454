/* tools/run/run_mounts.h - what a command mounted in its sandbox, in a namespace of its own */
#ifndef TOOLS_RUN_RUN_MOUNTS_H
#define TOOLS_RUN_RUN_MOUNTS_H

#include <sys/types.h>

struct err;
struct fs_findings;

/*
 * Hold on to the mount namespace of @pid, which was started but not waited for: a
 * descriptor, or negative errno.
 */
int run_mounts_hold(pid_t pid);

/*
 * What is mounted there at or below @top, an absolute path, and not in the namespace of
 * @from (0: ours): the paths relative to @top, with the type of filesystem as text.
 */
int run_mounts_find(int held_fd, pid_t from, const char *top, struct fs_findings *out,
		    struct err *err);

#endif
