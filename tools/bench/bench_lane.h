/* tools/bench/bench_lane.h - one lane's actions, done in one of several ways */
#ifndef TOOLS_BENCH_BENCH_LANE_H
#define TOOLS_BENCH_BENCH_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cas/digest.h"
#include "tools/bench/bench_box.h"

struct bench_env;
struct bench_tree;
struct err;

/* The action: what a compile does to its tree. */
#define BENCH_NR_STATS	 600
#define BENCH_NR_MISSES	 1500
#define BENCH_NR_READS	 300
#define BENCH_NR_HASHED	 10 /* of the reads: their hashes are output 0 */
#define BENCH_NR_OUTPUTS 3
#define BENCH_OUTPUT_SZ	 20000

/* Milliseconds of one action. Total is set-up, work and tear-down; the others lie in those. */
enum bench_time {
	BENCH_TOTAL,
	BENCH_SETUP,
	BENCH_WORK,
	BENCH_TEAR,
	BENCH_STAT,
	BENCH_MISS,
	BENCH_READ,
	BENCH_WRITE,
	BENCH_CREATE,
	BENCH_FINISH,
	BENCH_NR_TIMES,
};

/*
 * One action before it runs. The same seed makes the same accesses whichever way is
 * taken; the tag makes the outputs' bytes differ between ways, so that no store has
 * them already.
 */
struct bench_job {
	size_t root;
	uint64_t seed;
	const char *tag;
	bool verify; /* compare the whole tree too, outside the times */
	char out[BENCH_NR_OUTPUTS][256];
	struct cas_digest expect[BENCH_NR_OUTPUTS];
};

/*
 * A lane's directory holds its materialized tree ("floor"), which is moved to the job's
 * root before the job runs, and what the ways make and remove. One thread owns it.
 */
struct bench_lane {
	const struct bench_env *env;
	const struct bench_tree *tree;
	int index;
	char *dir;
	int dir_fd;
	int floor_fd;
	int store_fd; /* HH/HASH: where native ways move outputs */
	size_t floor_root;
	bool own_dir; /* outputs in a directory of their own; else beside the changed input */
	uint8_t *data;
	struct bench_box *box; /* NULL without the product */
	struct bench_channel channel;
	unsigned serial; /* of sandboxes */
};

/* Make DIR/laneN with its floor at root 0. @box may be NULL; its mount must answer. */
int bench_lane_open(struct bench_lane *lane, const struct bench_env *env,
		    const struct bench_tree *tree, const char *dir, int index, struct err *err);
void bench_lane_close(struct bench_lane *lane);

/* Untimed: bring the floor to @root, name the outputs, know what they must hold. */
int bench_lane_prepare(struct bench_lane *lane, size_t root, const char *tag, struct bench_job *job,
		       struct err *err);

/* Fill in @times; an output with other bytes than expected is -EBADMSG. */
struct bench_way {
	const char *name;
	int (*run)(struct bench_lane *lane, const struct bench_job *job, double *times,
		   struct err *err);
	/* May be NULL: always. */
	bool (*usable)(const struct bench_env *env);
};

extern const struct bench_way bench_way_floor;
extern const struct bench_way bench_way_box;
extern const struct bench_way bench_way_reads;
extern const struct bench_way bench_way_exact;
extern const struct bench_way bench_way_farm;
extern const struct bench_way bench_way_copy;
extern const struct bench_way bench_way_overlay;
extern const struct bench_way bench_way_bindfs;
extern const struct bench_way bench_way_fuse_overlayfs;

/* --- for the ways --- */

/* The work itself, below @root_fd; fills in its part of @times. */
int bench_job_work(struct bench_lane *lane, const struct bench_job *job, int root_fd, double *times,
		   struct err *err);

/* Hash each output below @base_fd, compare, move it to its place in the lane's store. */
int bench_job_keep(struct bench_lane *lane, const struct bench_job *job, int base_fd,
		   struct err *err);

#endif
