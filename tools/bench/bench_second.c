/* tools/bench/bench_second.c - second-root: first touch of a root that shares 99 % */
#include <dirent.h>
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

/*
 * Native: the tree is materialized and warm. casbox: each measurement gets a new sandbox
 * of a new root, of which 13 of 1,251 directories differ from the one before; everything
 * in that one was walked, missed and read. Only one phase is timed in a sandbox, as the
 * first thing that happens in it; then the others follow, untimed, to leave it as warm.
 */
static const struct bench_tree_spec second_tree = {
	.nr_files = 20000,
	.nr_dirs = 1250,
	.min_sz = 256,
	.max_sz = 16 << 10,
	.per_root = 12,
	.seed = 4,
};

#define MISSES_PER_DIR 16
#define READ_SZ	       (64 << 10)

struct second {
	struct bench_scene scene;
	struct bench_tree *tree;
	size_t next_root;
	size_t floor_root;
	int floor_fd;
	uint8_t *data;
};

typedef int (*phase_fn)(struct second *s, size_t root, int root_fd, struct err *err);

static int walk(int dir_fd, const char *name, size_t *nr, struct err *err)
{
	int fd = bench_open_dir(dir_fd, name, err);
	auto_closedir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	int ret = 0;

	if (!dir) {
		if (fd >= 0)
			(void)close(fd);
		return fd < 0 ? fd : err_set(err, -errno, "listing %s: %s", name, strerror(errno));
	}
	while (ret == 0 && (e = readdir(dir)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
		    strcmp(e->d_name, "out") == 0)
			continue;
		*nr += 1;
		if (e->d_type == DT_DIR)
			ret = walk(dirfd(dir), e->d_name, nr, err);
	}
	return ret;
}

static int phase_walk(struct second *s, size_t root, int root_fd, struct err *err)
{
	size_t want = s->tree->spec.nr_files + s->tree->spec.nr_dirs - 1;
	size_t nr = 0;
	int ret = walk(root_fd, ".", &nr, err);

	if (ret == 0 && nr != want)
		ret = err_set(err, -EBADMSG, "%zu names instead of %zu in root %zu", nr, want,
			      root);
	return ret;
}

static int phase_stat(struct second *s, size_t root, int root_fd, struct err *err)
{
	for (size_t i = 0; i < s->tree->spec.nr_files; i++) {
		const char *path = s->tree->files[i].path;
		struct stat st;

		if (fstatat(root_fd, path, &st, 0) < 0)
			return err_set(err, -errno, "stat of %s: %s", path, strerror(errno));
		if ((uint64_t)st.st_size != bench_tree_digest(s->tree, i, root)->size)
			return err_set(err, -EBADMSG, "%s has another root's size", path);
	}
	return 0;
}

static int phase_miss(struct second *s, size_t root, int root_fd, struct err *err)
{
	(void)root;
	for (size_t i = 0; i < s->tree->spec.nr_dirs * MISSES_PER_DIR; i++) {
		const char *dir = s->tree->dirs[i / MISSES_PER_DIR];
		char path[256];
		struct stat st;

		(void)snprintf(path, sizeof(path), "%s%smissing%zu.h", dir, *dir ? "/" : "", i);
		if (fstatat(root_fd, path, &st, 0) == 0 || errno != ENOENT)
			return err_set(err, -EBADMSG, "%s is not missing", path);
	}
	return 0;
}

static int phase_read(struct second *s, size_t root, int root_fd, struct err *err)
{
	for (size_t i = 0; i < s->tree->spec.nr_files; i++) {
		const char *path = s->tree->files[i].path;
		auto_close int fd = openat(root_fd, path, O_RDONLY | O_CLOEXEC);
		ssize_t got = fd < 0 ? -1 : read(fd, s->data, READ_SZ);

		if (got < 0)
			return err_set(err, -errno, "reading %s: %s", path, strerror(errno));
		if ((uint64_t)got != bench_tree_digest(s->tree, i, root)->size)
			return err_set(err, -EBADMSG, "%s has another root's size", path);
	}
	return 0;
}

static const struct phase {
	const char *name;
	phase_fn run;
	double must, target;
} phases[] = {
	{"walk", phase_walk, 1.1, 0.9},
	{"stat first", phase_stat, 1.3, 1.1},
	{"missing names", phase_miss, 1.6, 1.2},
	{"reads", phase_read, 1.35, 1.1},
};
#define NR_PHASES (sizeof(phases) / sizeof(phases[0]))

/* Phase @first timed, the others after it; the tree's bytes are checked when asked. */
static int phases_run(struct second *s, size_t first, size_t root, int root_fd, bool verify,
		      double *ms, struct err *err)
{
	const char *extra[] = {"out", NULL};
	double begin = bench_now_ms();
	int ret = phases[first].run(s, root, root_fd, err);

	*ms = bench_now_ms() - begin;
	for (size_t i = 1; ret == 0 && i < NR_PHASES; i++)
		ret = phases[(first + i) % NR_PHASES].run(s, root, root_fd, err);
	if (ret == 0 && verify)
		ret = bench_tree_verify(s->tree, root, root_fd, extra, err);
	return ret;
}

static int native_once(struct second *s, size_t phase, size_t root, double *ms, struct err *err)
{
	int ret = bench_tree_move(s->tree, s->floor_root, root, s->floor_fd, err);

	s->floor_root = root;
	return ret < 0 ? ret : phases_run(s, phase, root, s->floor_fd, false, ms, err);
}

static int box_once(struct second *s, size_t phase, size_t root, bool verify, double *ms,
		    struct err *err)
{
	auto_free char *path = NULL;
	char id[32];
	int fd;
	int ret;

	(void)snprintf(id, sizeof(id), "second-%zu", root);
	ret = bench_create(&s->scene.channel, s->tree->roots[root], id, "--output out/", &path,
			   err);
	if (ret < 0)
		return ret;
	fd = bench_open_dir(AT_FDCWD, path, err);
	if (fd < 0)
		return fd;
	ret = phases_run(s, phase, root, fd, verify, ms, err);
	(void)close(fd);
	return ret < 0 ? ret : bench_remove(&s->scene.channel, id, err);
}

/* A first sandbox that warms what all others share. */
static int warm(struct second *s, struct err *err)
{
	double ms;
	int ret = native_once(s, 0, 0, &ms, err);

	if (ret == 0 && s->scene.box)
		ret = box_once(s, 0, 0, true, &ms, err);
	s->next_root = 1;
	return ret;
}

static int phase_row(struct second *s, struct bench_report *rep, size_t phase, struct err *err)
{
	const struct phase *p = &phases[phase];
	size_t rounds = (size_t)s->scene.env->rounds;
	auto_free double *native = calloc(rounds, sizeof(double));
	auto_free double *box = calloc(rounds, sizeof(double));
	auto_free char *name = bench_text("second-root, %s: times ext4", p->name);
	double values[3];
	int ret = 0;

	if (!native || !box || !name)
		return err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; ret == 0 && i < rounds; i++) {
		size_t root = s->next_root++;

		box[i] = NAN;
		for (size_t k = 0; ret == 0 && k < 2; k++) {
			if ((i + k) % 2 == 0)
				ret = native_once(s, phase, root, &native[i], err);
			else if (s->scene.box)
				ret = box_once(s, phase, root, i + 1 == rounds, &box[i], err);
		}
		if (ret == 0 && bench_stopped())
			ret = err_set(err, -EINTR, "stopped");
	}
	if (ret < 0)
		return ret;
	values[0] = bench_median(native, rounds);
	values[1] = bench_median(box, rounds);
	values[2] = bench_ratio(box, native, rounds);
	bench_row(rep, p->name, values);
	if (s->scene.box)
		bench_gate(rep, name, values[2], p->must, p->target);
	return 0;
}

static int second_prepare(struct second *s, struct err *err)
{
	struct bench_tree_spec spec = second_tree;
	int ret;

	spec.nr_files = spec.nr_files * s->scene.env->scale / 100;
	spec.nr_dirs = spec.nr_dirs * s->scene.env->scale / 100 + 1;
	spec.per_root = spec.per_root * s->scene.env->scale / 100 + 1;
	spec.nr_roots = 1 + NR_PHASES * (size_t)s->scene.env->rounds;
	ret = bench_tree_new(s->scene.dir_fd, &spec, &s->tree, err);
	if (ret == 0 && s->scene.box)
		ret = bench_tree_put(s->tree, s->scene.box, s->scene.dir_fd, s->scene.dir, err);
	if (ret == 0)
		ret = bench_mkdir(s->scene.dir_fd, "floor", err);
	if (ret == 0)
		ret = bench_open_dir(s->scene.dir_fd, "floor", err);
	if (ret < 0)
		return ret;
	s->floor_fd = ret;
	ret = bench_tree_fill(s->tree, 0, BENCH_FILL_LINK, s->floor_fd, err);
	return ret < 0 ? ret : bench_scene_mount(&s->scene, err);
}

int bench_second(struct bench_env *env, struct bench_report *rep, struct err *err)
{
	static const struct bench_column columns[] = {{"ext4_ms", "native", 2},
						      {"casbox_ms", "casbox", 2},
						      {"times_ext4", "times", 2},
						      {NULL, NULL, 0}};
	struct second s = {.floor_fd = -1, .data = malloc(READ_SZ)};
	auto_free char *title = bench_text("%zu files, first touch of a new root, ms",
					   second_tree.nr_files * env->scale / 100);
	int ret = bench_scene_open(&s.scene, env, "second-root", err);

	if (ret == 0 && !s.data)
		ret = err_set(err, -ENOMEM, "out of memory");
	if (ret == 0)
		ret = second_prepare(&s, err);
	if (ret == 0)
		ret = warm(&s, err);
	if (ret == 0)
		bench_table(rep, "second-root", title ? title : "ms", columns);
	for (size_t p = 0; ret == 0 && p < NR_PHASES; p++)
		ret = phase_row(&s, rep, p, err);
	if (s.floor_fd >= 0)
		(void)close(s.floor_fd);
	bench_tree_free(s.tree);
	free(s.data);
	return bench_scene_close(&s.scene, ret, err);
}
