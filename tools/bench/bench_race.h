/* tools/bench/bench_race.h - several ways to do one thing, in turn, in rounds */
#ifndef TOOLS_BENCH_BENCH_RACE_H
#define TOOLS_BENCH_BENCH_RACE_H

#include <stddef.h>

struct bench_env;
struct bench_report;
struct err;

#define BENCH_RACE_WAYS	  8
#define BENCH_RACE_ROUNDS 16

/*
 * @run does it once and says how long that took; what it must prepare, or look at
 * afterwards, is not in *ms. @undo (may be NULL) removes what it made.
 */
struct bench_way {
	const char *label; /* NULL ends the list */
	int (*run)(void *ctx, double *ms, struct err *err);
	int (*undo)(void *ctx, struct err *err);
};

struct bench_race {
	size_t nr_rounds;
	double ms[BENCH_RACE_WAYS][BENCH_RACE_ROUNDS];
};

/*
 * env->rounds rounds; who is first moves on from one to the next. Before each turn all
 * earlier writes of the working directory's filesystem are on its disk.
 */
int bench_race_run(const struct bench_env *env, const struct bench_way *ways, void *ctx,
		   struct bench_race *out, struct err *err);

/* A row for each way: median, and the median of its ratios to the first one. */
void bench_race_table(struct bench_report *rep, const char *bench, const char *title,
		      const struct bench_way *ways, const struct bench_race *race);

/* Median of the ratios of one way to another. */
double bench_race_ratio(const struct bench_race *race, int over, int under);

/* Run a program and tell how long it took; it must end with status 0. */
int bench_timed(const char *const *argv, double *ms, struct err *err);

#endif
