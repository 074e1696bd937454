/* tools/run/run_child.h - one command of `run`, from its start to the last of its processes */
#ifndef TOOLS_RUN_RUN_CHILD_H
#define TOOLS_RUN_RUN_CHILD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cas/digest.h"

struct cas_store;
struct err;
struct fs_findings;
struct limits;

/*
 * From run_signals_init on, the signals that `run` passes on arrive on two descriptors
 * instead of killing it; those that were ignored at the start stay ignored. Call it once,
 * before any thread exists.
 */
struct run_signals {
	int fatal_fd;	    /* SIGINT, SIGTERM, SIGHUP, SIGQUIT */
	int other_fd;	    /* SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT, SIGTSTP */
	sigset_t inherited; /* the mask for the child */
};
int run_signals_init(struct run_signals *signals, struct err *err);

bool run_signals_pending(const struct run_signals *signals);

/* The first fatal signal that waits on the descriptor, taken from it; 0: none. */
int run_signals_take(const struct run_signals *signals);

struct run_child_options {
	const char *const *argv;
	const char *const *env;
	const char *cwd;
	const char *cgroup; /* absolute path of a control group, or NULL */
	int cgroup_fd;	    /* the same, opened; -1 */
	pid_t hidden_in;    /* whose namespaces the command joins, and has @top; 0: none */
	bool under_quota;   /* as spawn_options */
	/* Called before the command is started outside of the group after all. */
	int (*leave_group)(void *ctx, struct err *err);
	/* Called when all has ended, before the command's mount namespace does; or NULL. */
	int (*settle)(void *ctx, struct err *err);
	void *ctx;
	int keep_fd;  /* as spawn_options, and nothing else is inherited; 0: all is */
	bool in_init; /* argv starts an init, whose children are to get the signals */
	const struct limits *limits; /* begun; NULL: none */
	uint64_t timeout_ms;	     /* 0: none */
	struct cas_store *store; /* put standard output and error there; NULL: leave them alone */
	const int *default_signals; /* as spawn_options */
	/* For a result that others get: standard input is empty, and the umask 022. */
	bool same_for_all;
	/* Where to look for mounts of the command's, absolute; and those found; NULL: do not. */
	const char *top;
	struct fs_findings *foreign;
};

struct run_child_result {
	int status; /* exit status as a shell tells it: 128 + N for a signal */
	bool timed_out;
	bool exec_failed; /* status is 126 or 127, and err says why */
	int64_t start_ns; /* CLOCK_REALTIME */
	int64_t end_ns;
	bool has_streams;
	bool cut; /* who read one of them had gone before its end */
	struct cas_digest stdout_digest;
	struct cas_digest stderr_digest;
};

/*
 * Start the command, pass signals on to it, end it at the timeout, and when it has ended
 * kill everything it left behind, in its control group or else among our descendants.
 * -EINTR: a fatal signal came while its output could not be passed on.
 */
int run_child(const struct run_child_options *opts, const struct run_signals *signals,
	      struct run_child_result *out, struct err *err);

#endif
