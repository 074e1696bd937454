/* tools/bench/bench_action.c - action: successive compile-like actions, way against way */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_env.h"
#include "tools/bench/bench_lane.h"
#include "tools/bench/bench_tree.h"

#define MAX_LANES 16
#define MAX_WAYS  3
#define NR_FIRST  11 /* mounts whose first action is measured */

static const struct bench_tree_spec action_tree = {
	.nr_files = 2000,
	.nr_dirs = 125,
	.min_sz = 1 << 10,
	.max_sz = 40 << 10,
	.per_root = 1,
	.seed = 1,
};

/*
 * Several ways run the same jobs, alternately: all lanes do job i in one way, then all in
 * the next, and which way is first changes from job to job. times[way][kind] has
 * nr_actions * nr_lanes values, those of one action of all lanes beside each other.
 */
struct pass {
	const struct bench_way *ways[MAX_WAYS];
	size_t nr_ways;
	size_t nr_lanes;
	size_t nr_actions;
	size_t first_root;
	const char *tag;
	struct bench_lane *lanes;
	double *times[MAX_WAYS][BENCH_NR_TIMES];
	pthread_barrier_t barrier;
	atomic_bool failed;
};

/* Who runs in a pass; its error when it failed. */
struct runner {
	struct pass *pass;
	struct bench_lane *lane;
	pthread_t thread;
	struct bench_job job;
	char tag[64];
	int ret;
	struct err err;
};

static void pass_fini(struct pass *pass)
{
	for (size_t w = 0; w < MAX_WAYS; w++) {
		for (size_t t = 0; t < BENCH_NR_TIMES; t++)
			free(pass->times[w][t]);
	}
}

static int pass_init(struct pass *pass, struct err *err)
{
	size_t nr = pass->nr_actions * pass->nr_lanes;

	for (size_t w = 0; w < pass->nr_ways; w++) {
		for (size_t t = 0; t < BENCH_NR_TIMES; t++) {
			pass->times[w][t] = calloc(nr, sizeof(double));
			if (!pass->times[w][t])
				return err_set(err, -ENOMEM, "out of memory");
			for (size_t i = 0; i < nr; i++)
				pass->times[w][t][i] = NAN;
		}
	}
	return 0;
}

static int runner_prepare(struct runner *r, size_t action, size_t way)
{
	struct pass *pass = r->pass;
	size_t slot = action * pass->nr_lanes + (size_t)r->lane->index;
	int ret;

	if (bench_stopped())
		return err_set(&r->err, -EINTR, "stopped");
	(void)snprintf(r->tag, sizeof(r->tag), "%s, %s", pass->tag, pass->ways[way]->name);
	ret = bench_lane_prepare(r->lane, pass->first_root + slot, r->tag, &r->job, &r->err);
	r->job.verify = action + 1 == pass->nr_actions;
	return ret;
}

static int runner_run(struct runner *r, size_t action, size_t way)
{
	struct pass *pass = r->pass;
	size_t slot = action * pass->nr_lanes + (size_t)r->lane->index;
	double times[BENCH_NR_TIMES];
	int ret;

	for (size_t t = 0; t < BENCH_NR_TIMES; t++)
		times[t] = NAN;
	ret = pass->ways[way]->run(r->lane, &r->job, times, &r->err);
	if (ret < 0)
		return err_context(&r->err, ret, "%s, lane %d, action %zu", pass->ways[way]->name,
				   r->lane->index, action);
	for (size_t t = 0; t < BENCH_NR_TIMES; t++)
		pass->times[way][t][slot] = times[t];
	return 0;
}

/* Failing lanes keep coming to the barriers, so that nobody waits for ever. */
static void *runner_main(void *arg)
{
	struct runner *r = arg;
	struct pass *pass = r->pass;

	for (size_t i = 0; i < pass->nr_actions; i++) {
		for (size_t w = 0; w < pass->nr_ways; w++) {
			size_t way = (i + w) % pass->nr_ways;

			if (!atomic_load(&pass->failed))
				r->ret = runner_prepare(r, i, way);
			pthread_barrier_wait(&pass->barrier);
			if (r->ret == 0 && !atomic_load(&pass->failed))
				r->ret = runner_run(r, i, way);
			if (r->ret < 0)
				atomic_store(&pass->failed, true);
			pthread_barrier_wait(&pass->barrier);
		}
	}
	return NULL;
}

static int pass_run(struct pass *pass, struct err *err)
{
	struct runner *runners = calloc(pass->nr_lanes, sizeof(*runners));
	size_t started = 0;
	int ret = 0;

	if (!runners)
		return err_set(err, -ENOMEM, "out of memory");
	(void)pthread_barrier_init(&pass->barrier, NULL, (unsigned)pass->nr_lanes);
	for (; ret == 0 && started < pass->nr_lanes; started++) {
		runners[started].pass = pass;
		runners[started].lane = &pass->lanes[started];
		ret = -pthread_create(&runners[started].thread, NULL, runner_main,
				      &runners[started]);
	}
	/* The lanes that did start would wait for the missing one: nothing to do but end. */
	if (ret < 0) {
		log_error("starting a lane: %s", strerror(-ret));
		_exit(1);
	}
	for (size_t i = 0; i < started; i++) {
		(void)pthread_join(runners[i].thread, NULL);
		if (runners[i].ret < 0 && ret == 0)
			ret = err_set(err, runners[i].ret, "%s", runners[i].err.msg);
	}
	(void)pthread_barrier_destroy(&pass->barrier);
	free(runners);
	return ret;
}

/* --- reduce and print --- */

enum { COL_TOTAL, COL_SETUP, COL_WORK, COL_TEAR, COL_FIRST, COL_TIMES, NR_COLS };

static const struct bench_column columns[] = {
	{"total_ms", "total", 2}, {"setup_ms", "set-up", 2},
	{"work_ms", "work", 2},	  {"teardown_ms", "tear-down", 2},
	{"first_ms", "first", 2}, {"times_floor", "x floor", 2},
	{NULL, NULL, 0},
};
static const struct bench_column detail_columns[] = {
	{"create_ms", "create", 3},
	{"stat_ms", "stat", 3},
	{"miss_ms", "missing", 3},
	{"read_ms", "read", 3},
	{"write_ms", "write", 3},
	{"finish_ms", "finish", 3},
	{NULL, NULL, 0},
};
static const enum bench_time detail_times[] = {BENCH_CREATE, BENCH_STAT,  BENCH_MISS,
					       BENCH_READ,   BENCH_WRITE, BENCH_FINISH};

/* The first quarter of a lane's actions warms caches and does not count. */
static size_t pass_warm(const struct pass *pass)
{
	size_t warm = pass->nr_actions / 4;

	return (warm > 0 || pass->nr_actions == 1 ? warm : 1) * pass->nr_lanes;
}

static double pass_median(const struct pass *pass, size_t way, enum bench_time t)
{
	size_t warm = pass_warm(pass);

	return bench_median(pass->times[way][t] + warm, pass->nr_actions * pass->nr_lanes - warm);
}

static double pass_ratio(const struct pass *pass, size_t over, size_t under)
{
	size_t warm = pass_warm(pass);

	return bench_ratio(pass->times[over][BENCH_TOTAL] + warm,
			   pass->times[under][BENCH_TOTAL] + warm,
			   pass->nr_actions * pass->nr_lanes - warm);
}

static double pass_first(const struct pass *pass, size_t way)
{
	return bench_median(pass->times[way][BENCH_TOTAL], pass->nr_lanes);
}

/* One way's row; the floor is way 0 of the pass unless that is the row itself. */
static void pass_row(struct bench_report *rep, const struct pass *pass, size_t way,
		     const char *label, double times_floor)
{
	double values[NR_COLS];

	values[COL_TOTAL] = pass_median(pass, way, BENCH_TOTAL);
	values[COL_SETUP] = pass_median(pass, way, BENCH_SETUP);
	values[COL_WORK] = pass_median(pass, way, BENCH_WORK);
	values[COL_TEAR] = pass_median(pass, way, BENCH_TEAR);
	values[COL_FIRST] = pass_first(pass, way);
	values[COL_TIMES] = times_floor;
	bench_row(rep, label, values);
}

static void pass_detail(struct bench_report *rep, const struct pass *pass, size_t way)
{
	double values[sizeof(detail_times) / sizeof(detail_times[0])];

	for (size_t i = 0; i < sizeof(detail_times) / sizeof(detail_times[0]); i++)
		values[i] = pass_median(pass, way, detail_times[i]);
	bench_row(rep, pass->ways[way]->name, values);
}

/* --- one shape with one number of lanes --- */

/* What is run there; lanes and box are the same for all passes of it. */
struct setting {
	const struct bench_env *env;
	struct bench_report *rep;
	const struct bench_tree *tree;
	struct bench_box *box; /* NULL without the product */
	bool own_dir;
	bool traced; /* what tracing costs is measured, nothing else */
	size_t nr_lanes;
	size_t actions;
	size_t next_root;
	struct bench_lane lanes[MAX_LANES];
	struct pass main; /* floor and casbox; kept for its details */
	size_t nr_first;
	double first_farm[NR_FIRST];
	double first_box[NR_FIRST]; /* the first action of a mount, beside it */
};

typedef int (*passes_fn)(struct setting *s, struct err *err);

static int setting_pass(struct setting *s, struct pass *pass, const char *tag, size_t actions,
			struct err *err)
{
	int ret;

	pass->nr_lanes = s->nr_lanes;
	pass->nr_actions = actions;
	pass->first_root = s->next_root;
	pass->lanes = s->lanes;
	pass->tag = tag;
	while (pass->nr_ways < MAX_WAYS && pass->ways[pass->nr_ways])
		pass->nr_ways++;
	ret = pass_init(pass, err);
	return ret < 0 ? ret : pass_run(pass, err);
}

static char *setting_title(const struct setting *s, const char *what)
{
	return bench_text("%s, outputs %s, %zu lane%s, ms an action", what,
			  s->own_dir ? "in their own directory" : "beside inputs", s->nr_lanes,
			  s->nr_lanes > 1 ? "s" : "");
}

/* What a plain user's actions write casbox serves itself: other figures are to be met. */
static bool is_plain(void)
{
	return geteuid() != 0;
}

static void gate_times(struct setting *s, double ratio)
{
	auto_free char *name = bench_text("action, %s, %zu lane%s: times the floor",
					  s->own_dir ? "own directory" : "beside inputs",
					  s->nr_lanes, s->nr_lanes > 1 ? "s" : "");
	bool one = s->nr_lanes == 1;

	if (!name || s->nr_lanes > 2)
		return;
	if (is_plain())
		bench_gate(s->rep, name, ratio, 2.0, 1.6);
	else if (s->own_dir)
		bench_gate(s->rep, name, ratio, one ? 1.4 : 1.8, one ? 1.15 : 1.3);
	else
		bench_gate(s->rep, name, ratio, 2.0, 1.5);
}

/* casbox against the floor, action by action. */
static int pass_main(struct setting *s, struct err *err)
{
	struct pass *pass = &s->main;
	double ratio;
	int ret;

	pass->ways[0] = &bench_way_floor;
	pass->ways[1] = s->box ? &bench_way_box : NULL;
	ret = setting_pass(s, pass, "main", s->actions, err);
	if (ret < 0)
		return ret;
	s->next_root += s->actions * s->nr_lanes;
	pass_row(s->rep, pass, 0, "native floor", 1);
	if (!s->box)
		return 0;
	ratio = pass_ratio(pass, 1, 0);
	pass_row(s->rep, pass, 1, "casbox", ratio);
	gate_times(s, ratio);
	if (s->own_dir && s->nr_lanes == 1 && !is_plain())
		bench_gate(s->rep, "action: set-up and tear-down, ms",
			   pass_median(pass, 1, BENCH_SETUP) + pass_median(pass, 1, BENCH_TEAR),
			   0.8, 0.3);
	return 0;
}

/*
 * casbox alone, so that what it does after its answers falls on its own next action and
 * not on the floor's.
 */
static int pass_alone(struct setting *s, struct err *err)
{
	auto_call(pass_fini) struct pass box = {.ways = {&bench_way_box}};
	auto_call(pass_fini) struct pass floor = {.ways = {&bench_way_floor}};
	int ret = setting_pass(s, &box, "alone", s->actions, err);

	if (ret == 0)
		ret = setting_pass(s, &floor, "alone", s->actions, err);
	if (ret < 0)
		return ret;
	s->next_root += s->actions * s->nr_lanes;
	pass_row(s->rep, &box, 0, "casbox, back to back",
		 pass_median(&box, 0, BENCH_TOTAL) / pass_median(&floor, 0, BENCH_TOTAL));
	return 0;
}

/* The hardlink farm against floor and casbox. */
static int pass_farm(struct setting *s, struct err *err)
{
	auto_call(pass_fini) struct pass pass = {
		.ways = {&bench_way_floor, &bench_way_farm, &bench_way_box}};
	size_t actions = (s->actions + 1) / 2;
	int ret;

	if (!s->box)
		pass.ways[2] = NULL;
	ret = setting_pass(s, &pass, "farm", actions, err);
	if (ret < 0)
		return ret;
	s->next_root += actions * s->nr_lanes;
	pass_row(s->rep, &pass, 0, "native floor", 1);
	if (s->box)
		pass_row(s->rep, &pass, 2, "casbox", pass_ratio(&pass, 2, 0));
	pass_row(s->rep, &pass, 1, "hardlink farm", pass_ratio(&pass, 1, 0));
	if (!s->box || !s->own_dir || s->nr_lanes != 1)
		return 0;
	bench_gate(s->rep, "action: hardlink farm / casbox", pass_ratio(&pass, 1, 2),
		   is_plain() ? 4 : 5, is_plain() ? 5 : 6);
	return 0;
}

/*
 * The first action of a mount, beside the farm's: one such pair tells little, as it holds some
 * thousand switches between two processes, so it is repeated on one mount after the other.
 */
static int passes_first(struct setting *s, struct err *err)
{
	size_t box = s->nr_first % 2;
	auto_call(pass_fini) struct pass pass = {0};
	int ret;

	pass.ways[box] = &bench_way_box;
	pass.ways[1 - box] = &bench_way_farm;
	s->next_root += s->nr_first;
	ret = setting_pass(s, &pass, "first", 1, err);
	if (ret < 0)
		return ret;
	s->first_box[s->nr_first] = pass_first(&pass, box);
	s->first_farm[s->nr_first++] = pass_first(&pass, 1 - box);
	return 0;
}

static void report_first(struct setting *s)
{
	static const struct bench_column first_columns[] = {
		{"first_ms", "first", 2}, {"times_farm", "x farm", 2}, {NULL, NULL, 0}};
	double ratio = bench_ratio(s->first_box, s->first_farm, s->nr_first);
	double farm[] = {bench_median(s->first_farm, s->nr_first), 1};
	double box[] = {bench_median(s->first_box, s->nr_first), ratio};

	bench_table(s->rep, "action", "the first action of a mount that nothing warmed, ms",
		    first_columns);
	bench_row(s->rep, bench_way_farm.name, farm);
	bench_row(s->rep, bench_way_box.name, box);
	bench_gate(s->rep, "action: unwarmed first action / hardlink farm", ratio, 1, 1);
}

static int pass_rival(struct setting *s, const struct bench_way *way, struct err *err)
{
	auto_call(pass_fini) struct pass pass = {.ways = {&bench_way_floor, way}};
	int ret = setting_pass(s, &pass, "rival", (s->actions + 3) / 4, err);

	if (ret < 0)
		return ret;
	pass_row(s->rep, &pass, 1, way->name, pass_ratio(&pass, 1, 0));
	return 0;
}

static int passes_box(struct setting *s, struct err *err)
{
	auto_free char *title = setting_title(s, "casbox against the floor");
	int ret;

	if (!title)
		return err_set(err, -ENOMEM, "out of memory");
	bench_table(s->rep, "action", title, columns);
	ret = pass_main(s, err);
	if (ret == 0 && s->box)
		ret = pass_alone(s, err);
	if (ret < 0)
		return ret;
	bench_table(s->rep, "action", "the parts, ms", detail_columns);
	for (size_t w = 0; w < s->main.nr_ways; w++)
		pass_detail(s->rep, &s->main, w);
	return 0;
}

static int passes_rivals(struct setting *s, struct err *err)
{
	static const struct bench_way *const rivals[] = {
		&bench_way_overlay, &bench_way_copy, &bench_way_bindfs, &bench_way_fuse_overlayfs};
	auto_free char *title = setting_title(s, "other ways");
	int ret;

	if (!title)
		return err_set(err, -ENOMEM, "out of memory");
	bench_table(s->rep, "action", title, columns);
	ret = pass_farm(s, err);
	for (size_t i = 0; i < sizeof(rivals) / sizeof(rivals[0]); i++) {
		if (s->env->few || (rivals[i]->usable && !rivals[i]->usable(s->env)))
			continue;
		if (ret == 0)
			ret = pass_rival(s, rivals[i], err);
	}
	return ret;
}

/* Lanes that the mount warmed before their first action, for the root before it. */
static int passes_warm(struct setting *s, struct err *err)
{
	auto_call(pass_fini) struct pass pass = {.ways = {&bench_way_floor, &bench_way_box}};
	auto_free char *title = setting_title(s, "lanes warmed by the mount");
	int ret = title ? setting_pass(s, &pass, "warm", (s->actions + 1) / 2, err) : -ENOMEM;

	if (ret < 0)
		return ret;
	bench_table(s->rep, "action", title, columns);
	pass_row(s->rep, &pass, 0, "native floor", 1);
	pass_row(s->rep, &pass, 1, "casbox", pass_ratio(&pass, 1, 0));
	bench_gate(s->rep, "action: warmed first action / later ones",
		   pass_first(&pass, 1) / pass_median(&pass, 1, BENCH_TOTAL), 1.5, 1.5);
	return 0;
}

static int pass_reads(struct setting *s, struct err *err)
{
	auto_call(pass_fini) struct pass pass = {.ways = {&bench_way_box, &bench_way_reads}};
	int ret = setting_pass(s, &pass, "reads", s->actions, err);

	if (ret < 0)
		return ret;
	s->next_root += s->actions;
	pass_row(s->rep, &pass, 0, bench_way_box.name, 1);
	pass_row(s->rep, &pass, 1, bench_way_reads.name, pass_ratio(&pass, 1, 0));
	bench_gate(s->rep, "action: --trace=reads / untraced", pass_ratio(&pass, 1, 0), 1.05, 1.02);
	return 0;
}

static int passes_trace(struct setting *s, struct err *err)
{
	auto_call(pass_fini) struct pass pass = {.ways = {&bench_way_farm, &bench_way_exact}};
	auto_free char *title = setting_title(s, "traced, times untraced or farm");
	int ret = title ? 0 : err_set(err, -ENOMEM, "out of memory");

	if (ret < 0)
		return ret;
	bench_table(s->rep, "action", title, columns);
	ret = pass_reads(s, err);
	if (ret == 0)
		ret = setting_pass(s, &pass, "exact", (s->actions + 1) / 2, err);
	if (ret < 0)
		return ret;
	pass_row(s->rep, &pass, 0, "hardlink farm", 1);
	pass_row(s->rep, &pass, 1, bench_way_exact.name, pass_ratio(&pass, 1, 0));
	bench_gate(s->rep, "action: --trace=exact / hardlink farm", pass_ratio(&pass, 1, 0), 1.3,
		   1.3);
	return 0;
}

/* On a mount that answers. */
static int setting_mounted(struct setting *s, passes_fn passes, struct err *err)
{
	int ret = 0;

	s->next_root = 1;
	for (size_t i = 0; ret == 0 && i < s->nr_lanes; i++) {
		s->lanes[i].own_dir = s->own_dir;
		s->lanes[i].box = s->box;
		if (s->box)
			ret = bench_channel_open(s->box, &s->lanes[i].channel, err);
	}
	if (ret == 0)
		ret = passes(s, err);
	pass_fini(&s->main);
	(void)memset(&s->main, 0, sizeof(s->main));
	for (size_t i = 0; i < s->nr_lanes; i++)
		bench_channel_close(&s->lanes[i].channel);
	if (ret == 0 && s->box)
		ret = bench_box_umount(s->box, err);
	return ret;
}

/* A mount of its own, so that no earlier setting has warmed it. */
static int setting_run(struct setting *s, passes_fn passes, struct err *err)
{
	int ret = s->box ? bench_box_mount(s->box, err) : 0;

	return ret < 0 ? ret : setting_mounted(s, passes, err);
}

static int setting_warm(struct setting *s, struct err *err)
{
	struct err refused = {0};
	int ret = bench_box_mount_warm(s->box, s->nr_lanes, s->tree->roots[0], &refused);

	if (ret == -EOPNOTSUPP) {
		bench_note(s->rep, "warmed lanes are not measured: %s", refused.msg);
		return 0;
	}
	if (ret < 0)
		return err_set(err, ret, "%s", refused.msg);
	return setting_mounted(s, passes_warm, err);
}

/*
 * One lane and two, or as many as were asked for; both shapes. The rivals come after all
 * that casbox is judged by: they delete so many files that creating others is slower for
 * a while (ext4 without a journal steps around inodes freed in the last seconds).
 */
static int settings_run(struct setting *s, size_t max_lanes, struct err *err)
{
	size_t min_lanes = s->env->lanes ? max_lanes : 1;
	int ret = 0;

	for (int shape = 0; shape < 2; shape++) {
		s->own_dir = shape == 0;
		for (size_t lanes = min_lanes; ret == 0 && lanes <= max_lanes; lanes++) {
			s->nr_lanes = lanes;
			ret = setting_run(s, passes_box, err);
		}
	}
	s->own_dir = true;
	s->nr_lanes = min_lanes;
	if (ret == 0 && s->box)
		ret = setting_warm(s, err);
	while (ret == 0 && s->box && min_lanes == 1 && s->nr_first < NR_FIRST)
		ret = setting_run(s, passes_first, err);
	if (ret == 0 && s->nr_first > 0)
		report_first(s);
	for (int shape = 0; ret == 0 && shape < 2; shape++) {
		s->own_dir = shape == 0;
		ret = setting_run(s, passes_rivals, err);
	}
	return ret;
}

static int action_prepare(struct setting *s, struct bench_scene *scene, size_t max_lanes,
			  struct bench_tree **tree, struct err *err)
{
	struct bench_tree_spec spec = action_tree;
	int ret;

	/* of main and alone, which need more than the pass with the farm; or of the first ones */
	spec.nr_roots = 1 + max_lanes * 2 * s->actions;
	if (spec.nr_roots < 1 + NR_FIRST)
		spec.nr_roots = 1 + NR_FIRST;
	ret = bench_tree_new(scene->dir_fd, &spec, tree, err);
	if (ret < 0)
		return ret;
	s->tree = *tree;
	s->box = scene->box;
	for (size_t i = 0; ret == 0 && i < max_lanes; i++)
		ret = bench_lane_open(&s->lanes[i], s->env, s->tree, scene->dir, (int)i, err);
	if (ret == 0 && s->box)
		ret = bench_tree_put(*tree, s->box, scene->dir_fd, scene->dir, err);
	return ret;
}

static int bench_lanes(struct bench_env *env, size_t max_lanes, bool traced,
		       struct bench_report *rep, struct err *err)
{
	struct setting *s = calloc(1, sizeof(*s));
	struct bench_tree *tree = NULL;
	struct bench_scene scene;
	int ret;

	if (!s)
		return err_set(err, -ENOMEM, "out of memory");
	s->env = env;
	s->rep = rep;
	s->actions = (size_t)env->actions;
	s->traced = traced;
	s->own_dir = true;
	s->nr_lanes = 1;
	for (size_t i = 0; i < MAX_LANES; i++) {
		s->lanes[i].dir_fd = s->lanes[i].floor_fd = s->lanes[i].store_fd = -1;
		s->lanes[i].channel.fd = -1;
	}
	ret = bench_scene_open(&scene, env, "action", err);
	if (ret == 0)
		ret = action_prepare(s, &scene, max_lanes, &tree, err);
	if (ret == 0 && s->traced && s->box)
		ret = setting_run(s, passes_trace, err);
	else if (ret == 0 && !s->traced)
		ret = settings_run(s, max_lanes, err);
	for (size_t i = 0; i < MAX_LANES; i++)
		bench_lane_close(&s->lanes[i]);
	bench_tree_free(tree);
	free(s);
	return bench_scene_close(&scene, ret, err);
}

int bench_action(struct bench_env *env, struct bench_report *rep, struct err *err)
{
	return bench_lanes(env, env->lanes ? (size_t)env->lanes : 2, false, rep, err);
}

int bench_traced(struct bench_env *env, struct bench_report *rep, struct err *err)
{
	return bench_lanes(env, 1, true, rep, err);
}
