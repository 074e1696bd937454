/* tools/bench/bench_ready.c - ready: from the create command to the first file in use */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_box.h"
#include "tools/bench/bench_env.h"
#include "tools/bench/bench_tree.h"

#define MAX_ROUNDS_LARGE 10

enum { COL_READY, COL_CREATE, COL_STAT, COL_REMOVE, NR_COLS };

static const struct bench_column columns[] = {
	{"ready_ms", "ready", 3}, {"create_ms", "create", 3},
	{"stat_ms", "stat", 3},	  {"remove_ms", "remove", 3},
	{NULL, NULL, 0},
};

/* One tree and how often it is made; times of one row at a time. */
struct ready {
	struct bench_scene scene;
	struct bench_report *rep;
	struct bench_tree *tree;
	size_t rounds;
	size_t next_root;
	double *times[NR_COLS];
};

/* The file that is new in this root: it was never seen by the kernel, so nothing helps. */
static const struct bench_file *new_file(const struct ready *r, size_t root)
{
	return &r->tree->files[bench_tree_change(r->tree, root, 0)];
}

static int stat_new(const struct ready *r, int fd, const char *top, size_t root, struct err *err)
{
	const struct bench_file *file = new_file(r, root);
	auto_free char *path = bench_text("%s/%s", top, file->path);
	struct stat st;

	if (!path || fstatat(fd, path, &st, 0) < 0)
		return err_set(err, -errno, "stat of %s: %s", path ? path : top, strerror(errno));
	if ((uint64_t)st.st_size != file->digest[1].size)
		return err_set(err, -EBADMSG, "%s has %lld bytes, another root's size", path,
			       (long long)st.st_size);
	return 0;
}

/* Untimed. */
static int hash_new(const struct ready *r, const char *top, size_t root, struct err *err)
{
	const struct bench_file *file = new_file(r, root);
	auto_free char *path = bench_text("%s/%s", top, file->path);
	auto_close int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	struct cas_digest got;
	int ret = fd < 0 ? -errno : cas_hash_fd(fd, &got);

	if (ret < 0)
		return err_set(err, ret, "reading %s: %s", path ? path : top, strerror(-ret));
	if (!cas_digest_equal(&got, &file->digest[1]))
		return err_set(err, -EBADMSG, "%s holds other bytes than its root", path);
	return 0;
}

static int box_once(struct ready *r, size_t round, struct err *err)
{
	struct bench_channel *ch = &r->scene.channel;
	size_t root = r->next_root++;
	auto_free char *path = NULL;
	char id[32];
	double at[4];
	int ret;

	(void)snprintf(id, sizeof(id), "ready-%zu", root);
	at[0] = bench_now_ms();
	ret = bench_create(ch, r->tree->roots[root], id, "--output out/", &path, err);
	at[1] = bench_now_ms();
	if (ret == 0)
		ret = stat_new(r, AT_FDCWD, path, root, err);
	at[2] = bench_now_ms();
	if (ret == 0)
		ret = hash_new(r, path, root, err);
	at[3] = bench_now_ms();
	if (ret == 0)
		ret = bench_remove(ch, id, err);
	r->times[COL_REMOVE][round] = bench_now_ms() - at[3];
	r->times[COL_CREATE][round] = at[1] - at[0];
	r->times[COL_STAT][round] = at[2] - at[1];
	r->times[COL_READY][round] = at[2] - at[0];
	return ret;
}

static int farm_once(struct ready *r, size_t round, struct err *err)
{
	size_t root = r->next_root++;
	auto_close int fd = -1;
	double at[4];
	int ret;

	at[0] = bench_now_ms();
	ret = bench_mkdir(r->scene.dir_fd, "farm", err);
	if (ret == 0)
		ret = bench_open_dir(r->scene.dir_fd, "farm", err);
	if (ret < 0)
		return ret;
	fd = ret;
	ret = bench_tree_fill(r->tree, root, BENCH_FILL_LINK, fd, err);
	at[1] = bench_now_ms();
	if (ret == 0)
		ret = stat_new(r, fd, ".", root, err);
	at[2] = bench_now_ms();
	if (ret == 0)
		ret = io_remove_tree(r->scene.dir_fd, "farm", err);
	at[3] = bench_now_ms();
	r->times[COL_CREATE][round] = at[1] - at[0];
	r->times[COL_STAT][round] = at[2] - at[1];
	r->times[COL_READY][round] = at[2] - at[0];
	r->times[COL_REMOVE][round] = at[3] - at[2];
	return ret;
}

/* Repeat, report the medians; *ready is that of the first column. */
static int row(struct ready *r, const char *what, size_t rounds,
	       int (*once)(struct ready *r, size_t round, struct err *err), double *ready,
	       struct err *err)
{
	auto_free char *label = bench_text("%s, %zu files", what, r->tree->spec.nr_files);
	double values[NR_COLS];
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < rounds; i++)
		ret = bench_stopped() ? err_set(err, -EINTR, "stopped") : once(r, i, err);
	if (ret < 0)
		return ret;
	for (size_t c = 0; c < NR_COLS; c++)
		values[c] = bench_median(r->times[c], rounds);
	bench_row(r->rep, label ? label : what, values);
	*ready = values[COL_READY];
	return 0;
}

static void gate(struct ready *r, const char *when, double value)
{
	auto_free char *name = bench_text("ready, %zu files%s, ms", r->tree->spec.nr_files, when);

	if (name)
		bench_gate(r->rep, name, value, 1, 0.3);
}

static int crowd(struct ready *r, bool make, struct err *err)
{
	struct bench_channel *ch = &r->scene.channel;
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < r->scene.env->live; i++) {
		auto_free char *path = NULL;
		char id[32];

		if (bench_stopped())
			return err_set(err, -EINTR, "stopped");
		(void)snprintf(id, sizeof(id), "live-%zu", i);
		if (make)
			ret = bench_create(ch, r->tree->roots[0], id, "--output out/", &path, err);
		else
			ret = bench_remove(ch, id, err);
	}
	return ret;
}

static int box_rows(struct ready *r, struct err *err)
{
	auto_free char *crowded = bench_text("casbox, %zu live", r->scene.env->live);
	auto_free char *when = bench_text(" with %zu live", r->scene.env->live);
	double ready = NAN;
	int ret = row(r, "casbox", r->rounds, box_once, &ready, err);

	if (ret < 0 || !crowded || !when)
		return ret;
	gate(r, "", ready);
	if (r->scene.env->live == 0)
		return 0;
	ret = crowd(r, true, err);
	if (ret == 0)
		ret = row(r, crowded, r->rounds, box_once, &ready, err);
	if (ret < 0)
		return ret;
	gate(r, when, ready);
	return crowd(r, false, err);
}

static int tree_run(struct ready *r, const struct bench_tree_spec *spec, size_t farm_rounds,
		    struct err *err)
{
	double ready;
	int ret = bench_tree_new(r->scene.dir_fd, spec, &r->tree, err);

	if (ret == 0 && r->scene.box)
		ret = bench_tree_put(r->tree, r->scene.box, r->scene.dir_fd, r->scene.dir, err);
	if (ret == 0)
		ret = bench_scene_mount(&r->scene, err);
	r->next_root = 1;
	for (size_t c = 0; ret == 0 && c < NR_COLS; c++) {
		r->times[c] = calloc(r->rounds + farm_rounds, sizeof(double));
		if (!r->times[c])
			ret = err_set(err, -ENOMEM, "out of memory");
	}
	if (ret == 0 && r->scene.box)
		ret = box_rows(r, err);
	if (ret == 0 && farm_rounds > 0)
		ret = row(r, "hardlink farm", farm_rounds, farm_once, &ready, err);
	for (size_t c = 0; c < NR_COLS; c++)
		free(r->times[c]);
	bench_tree_free(r->tree);
	return ret;
}

/* A scene of its own for each size: a store and a mount that know of nothing else. */
static int size_run(struct bench_env *env, struct bench_report *rep, struct bench_tree_spec *spec,
		    size_t rounds, size_t farm_rounds, struct err *err)
{
	struct ready r = {.rep = rep, .rounds = rounds};
	int ret;

	/* the farm goes on where casbox stopped */
	spec->nr_roots = 1 + 2 * rounds + farm_rounds;
	ret = bench_scene_open(&r.scene, env, "ready", err);
	if (ret == 0)
		ret = tree_run(&r, spec, farm_rounds, err);
	return bench_scene_close(&r.scene, ret, err);
}

int bench_ready(struct bench_env *env, struct bench_report *rep, struct err *err)
{
	struct bench_tree_spec small = {.nr_files = 2000,
					.nr_dirs = 125,
					.min_sz = 1 << 10,
					.max_sz = 40 << 10,
					.per_root = 1,
					.seed = 2};
	struct bench_tree_spec large = {.nr_files = env->files,
					.nr_dirs = env->files / 16 + 1,
					.min_sz = 64,
					.max_sz = 2 << 10,
					.per_root = 1,
					.seed = 3};
	size_t rounds = (size_t)env->actions;
	size_t rounds_large = rounds < MAX_ROUNDS_LARGE ? rounds : MAX_ROUNDS_LARGE;
	int ret;

	bench_table(rep, "ready", "create to first stat, ms", columns);
	ret = size_run(env, rep, &small, rounds, (rounds + 3) / 4, err);
	if (ret == 0)
		ret = size_run(env, rep, &large, rounds_large, env->few ? 0 : 1, err);
	return ret;
}
