/* tools/run/limits.h - how much memory and how many processes a command may have */
#ifndef TOOLS_RUN_LIMITS_H
#define TOOLS_RUN_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

struct cas_limit;
struct cgroup;
struct cli;

enum { LIMIT_MEMORY, LIMIT_PROCS, LIMIT_NR };

/* One limit, and who keeps it: a control group of version 2 or 1, or else the process limits. */
struct limit {
	uint64_t value; /* 0: none */
	int dir_fd;	/* of the group; -1: none */
	char *path;	/* of a version 1 group, ours to remove; NULL */
	int procs_fd;	/* through which a process joins that; -1 */
	bool per_process;
};

/* limits_init, set the values, then limits_begin; end with limits_fini. */
struct limits {
	struct limit of[LIMIT_NR];
	int join_fds[LIMIT_NR + 1]; /* ends with -1, as spawn_options takes them */
	struct rlimit rlimits[LIMIT_NR];
	int resources[LIMIT_NR + 1]; /* for these; ends with -1 */
};

void limits_init(struct limits *limits);

/*
 * @group is the command's version 2 group (its fd may be -1). What only process limits can
 * keep is told as a warning.
 */
void limits_begin(struct limits *limits, struct cli *cli, const struct cgroup *group);

/* After the end of the command: what became of each limit, LIMIT_NR at most: so many. */
size_t limits_tell(const struct limits *limits, struct cas_limit *out);

/*
 * Name each that it ran into, from @told. True when there was one, or could have been: of
 * process limits nobody can tell.
 */
bool limits_report(const struct limits *limits, struct cli *cli, const struct cas_limit *told);

void limits_fini(struct limits *limits);

#endif
