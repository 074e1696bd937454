/* tools/run/spawn.h - start a command without copying a large process */
#ifndef TOOLS_RUN_SPAWN_H
#define TOOLS_RUN_SPAWN_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

struct err;
struct rlimit;

struct spawn_options {
	const char *const *argv; /* argv[0] is searched in env's PATH, as a shell does */
	const char *const *env;
	const char *cwd;      /* NULL: ours */
	int stdio[3];	      /* descriptor to become 0, 1, 2; -1: inherited as it is */
	int keep_fd;	      /* to become 3; 0: none */
	bool only_these;      /* nothing above 3 (above 2 without keep_fd) is inherited */
	const int *join_fds;  /* cgroup.procs of groups to join, opened; ends with -1; NULL */
	const int *resources; /* to be limited to rlimits[i]; ends with -1; NULL */
	const struct rlimit *rlimits;
	int cgroup_fd;		 /* directory of the control group to start in; -1: none */
	int namespace_fd;	 /* pidfd of who is in the user and mount namespace to join; 0 */
	bool own_mounts;	 /* a mount namespace of its own, where privileges allow */
	bool under_quota;	 /* for good without CAP_SYS_RESOURCE, which is above it */
	bool die_with_parent;	 /* SIGKILL when the calling thread ends */
	bool plain_umask;	 /* 022, whatever ours is */
	const sigset_t *sigmask; /* the mask the child starts with */
	/* Ignored by us, but not by whoever started us: 0-terminated, default in the child. */
	const int *default_signals;
};

struct spawn_child {
	pid_t pid;
	int pidfd; /* close-on-exec; the caller closes it */
};

/*
 * Start the command in a child made with CLONE_VM and CLONE_VFORK: the time does not
 * grow with this process's memory. The command has begun to execute when this returns.
 * Descriptors without close-on-exec reach it. The calling thread blocks all signals
 * meanwhile. Without a mount namespace of its own (own_mounts, no privilege) it starts
 * all the same.
 * -ENOENT: no such command (also -ENOTDIR for a path through a file). -EACCES,
 * -ENOEXEC and what else execve says: it is there but cannot be executed. Failures before
 * that are reported with their step, and *exec_failed (may be NULL) is false.
 */
int spawn_start(const struct spawn_options *opts, struct spawn_child *out, bool *exec_failed,
		struct err *err);

/*
 * Start @argv (argv[0] is a path) in the background with posix_spawn: a session of its
 * own, / as working directory, /dev/null as standard input and output, @log_fd as
 * standard error, @keep_fd as descriptor 3, and nothing else open.
 */
int spawn_background(const char *const *argv, int log_fd, int keep_fd, pid_t *pid, struct err *err);

/* Start @argv (a path first) as an ordinary child that inherits standard error only. */
int spawn_helper(const char *const *argv, pid_t *pid, struct err *err);

/* The path of the running program, to start it again; the caller frees. */
int spawn_self(char **out);

#endif
