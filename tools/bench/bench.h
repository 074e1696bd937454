/* tools/bench/bench.h - time pairs, reduce them to medians, print text and JSON */
#ifndef TOOLS_BENCH_BENCH_H
#define TOOLS_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>

struct err;

/*
 * Two ways of doing the same thing are timed alternately in one run, so that whatever
 * else the machine does falls on both; the ratio is taken pair by pair, and its median
 * is what counts. A time that was not taken is NAN and its pair is left out.
 */

/* CLOCK_MONOTONIC in milliseconds. */
double bench_now_ms(void);

/* Of the values that are not NAN; NAN when there are none. */
double bench_median(const double *values, size_t nr);
/* Median of over[i] / under[i] for the pairs that were both taken. */
double bench_ratio(const double *over, const double *under, size_t nr);

/* --- results --- */

struct bench_report;

/* Text goes to standard output as it comes, JSON is kept until bench_report_write. */
int bench_report_new(struct bench_report **out);
void bench_report_free(struct bench_report *rep);
/* Replace @path by one JSON object: "host", "tables", "gates", "notes". */
int bench_report_write(struct bench_report *rep, const char *path, struct err *err);

/* @key names the value in JSON, @head in text; @digits after the point. */
struct bench_column {
	const char *key;
	const char *head;
	int digits;
};

/*
 * Begin a table of sub-benchmark @bench; rows go to it until the next begins. @columns
 * ends with a NULL key and must outlive the table.
 */
void bench_table(struct bench_report *rep, const char *bench, const char *title,
		 const struct bench_column *columns);
/* One value a column; NAN prints as "-" and is null in JSON. */
void bench_row(struct bench_report *rep, const char *label, const double *values);

/* A value with a limit it must keep and one to aim for; larger is better when @target > @must. */
void bench_gate(struct bench_report *rep, const char *name, double value, double must,
		double target);
/* All gates so far, as a table. */
void bench_gates_print(struct bench_report *rep);

/* A line below the last table. */
void bench_note(struct bench_report *rep, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* --- what every sub-benchmark gets --- */

struct bench_env;

/* One row of the command table: runs with everything set up, reports, cleans nothing. */
struct bench_command {
	const char *name; /* NULL ends the table */
	const char *summary;
	int (*run)(struct bench_env *env, struct bench_report *rep, struct err *err);
};

int bench_action(struct bench_env *env, struct bench_report *rep, struct err *err);
int bench_traced(struct bench_env *env, struct bench_report *rep, struct err *err);
int bench_ready(struct bench_env *env, struct bench_report *rep, struct err *err);
int bench_second(struct bench_env *env, struct bench_report *rep, struct err *err);
int bench_bulk(struct bench_env *env, struct bench_report *rep, struct err *err);
int bench_write(struct bench_env *env, struct bench_report *rep, struct err *err);
int bench_put(struct bench_env *env, struct bench_report *rep, struct err *err);
int bench_put_local(struct bench_env *env, struct bench_report *rep, struct err *err);
int bench_put_tree(struct bench_env *env, struct bench_report *rep, struct err *err);
int bench_copy(struct bench_env *env, struct bench_report *rep, struct err *err);
int bench_checkout(struct bench_env *env, struct bench_report *rep, struct err *err);
int bench_diff(struct bench_env *env, struct bench_report *rep, struct err *err);
int bench_stat(struct bench_env *env, struct bench_report *rep, struct err *err);
int bench_remote(struct bench_env *env, struct bench_report *rep, struct err *err);
int bench_real(struct bench_env *env, struct bench_report *rep, struct err *err);

#endif
