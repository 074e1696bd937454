/* tools/bench/bench_group.h - an action's work in the control group of its sandbox */
#ifndef TOOLS_BENCH_BENCH_GROUP_H
#define TOOLS_BENCH_BENCH_GROUP_H

struct bench_channel;
struct err;

/*
 * Make a control group below our own and tell casbox that it ends with sandbox @id, as
 * `casbox run` does: who is in no group may be alive somewhere, and his files are copied.
 * *path (caller frees; NULL: we may make none) is what bench_group_run takes; casbox
 * removes the group with the sandbox.
 */
int bench_group_make(struct bench_channel *ch, const char *id, char **path, struct err *err);

/*
 * Call @fn in a child of ours, in group @path (NULL: in ours): its result, and *ms (NULL:
 * nobody asks) is what it left there. What else it changes is lost.
 */
int bench_group_run(const char *path, int (*fn)(void *ctx, double *ms, struct err *err), void *ctx,
		    double *ms, struct err *err);

#endif
