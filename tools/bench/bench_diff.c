/* tools/bench/bench_diff.c - diff: what changed between two roots, beside walks of both */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_box.h"
#include "tools/bench/bench_env.h"
#include "tools/bench/bench_race.h"

/*
 * A tree and the same with one changed file, both in the store and mounted. Who has no
 * `casbox diff` runs `diff -rq` over the two mounted trees, which reads every file of both;
 * `find` over both, which looks at sizes alone and finds no change of a file that kept its,
 * is the least that any walk costs. The kernel has both trees in its caches after the first
 * round. What is answered is checked: that file and no other.
 */
struct diff_bench {
	const struct bench_env *env;
	struct bench_scene scene;
	char *tree[2]; /* the two as directories of the mount */
	char root[2][CAS_DIGEST_STR_SZ];
	char *changed; /* path in the tree */
};

static void fini(struct diff_bench *b)
{
	free(b->tree[0]);
	free(b->tree[1]);
	free(b->changed);
}

/* Some file, below WORK/diff/src, gets a byte more. */
static int change_one(struct diff_bench *b, const char *src, struct err *err)
{
	const char *argv[] = {"find", src,	 "-type", "f",	   "-size",
			      "+0",   "-printf", "%P\\n", "-quit", NULL};
	auto_buf struct buf out = {0};
	auto_close int dir_fd = bench_open_dir(b->scene.dir_fd, "src", err);
	auto_close int fd = -1;
	int ret = dir_fd < 0 ? dir_fd : bench_spawn_ok(argv, NULL, &out, err);

	if (ret < 0)
		return ret;
	b->changed = strndup(buf_str(&out), strcspn(buf_str(&out), "\n"));
	if (!b->changed)
		return -ENOMEM;
	if (!*b->changed)
		return err_set(err, -EINVAL, "no file in %s", b->env->tree);
	if (fchmodat(dir_fd, b->changed, 0644, 0) == 0)
		fd = openat(dir_fd, b->changed, O_WRONLY | O_APPEND | O_CLOEXEC);
	ret = fd < 0 ? -errno : io_write_full(fd, "\n", 1);
	return ret < 0 ? err_set(err, ret, "changing %s: %s", b->changed, strerror(-ret)) : 0;
}

static int tree_path(struct diff_bench *b, int which)
{
	struct cas_digest digest;
	int ret = cas_digest_parse(b->root[which], &digest);

	if (ret == 0)
		b->tree[which] = bench_box_path(b->scene.box, "cas/directory", &digest);
	return ret < 0 ? ret : b->tree[which] ? 0 : -ENOMEM;
}

/* Two roots in a mounted store. */
static int prepare(struct diff_bench *b, struct err *err)
{
	auto_free char *src = bench_text("%s/src", b->scene.dir);
	const char *argv[] = {"cp", "-a", b->env->tree, src, NULL};
	double ms;
	int ret = src ? bench_timed(argv, &ms, err) : -ENOMEM;

	for (int i = 0; ret == 0 && i < 2; i++) {
		if (i == 1)
			ret = change_one(b, src, err);
		if (ret == 0)
			ret = bench_box_put(b->scene.box, src, b->root[i], err);
	}
	if (ret == 0)
		ret = bench_scene_mount(&b->scene, err);
	for (int i = 0; ret == 0 && i < 2; i++)
		ret = tree_path(b, i);
	return ret;
}

/* A program that ends with 1 and names the changed file in one line, and nothing else. */
static int run_diff(const struct diff_bench *b, const char *const *argv, double *ms,
		    struct err *err)
{
	auto_buf struct buf out = {0};
	double begin = bench_now_ms();
	const char *line;
	int status;
	int ret = bench_spawn(argv, NULL, &out, NULL, &status, err);

	*ms = bench_now_ms() - begin;
	if (ret < 0)
		return ret;
	line = buf_str(&out);
	if (status != 1 || !strstr(line, b->changed) || strchr(line, '\n') != strrchr(line, '\n'))
		return err_set(err, -EBADMSG, "%s ended with %d and said '%s', not that %s changed",
			       argv[0], status, line, b->changed);
	return 0;
}

static int walk_run(void *ctx, double *ms, struct err *err)
{
	const struct diff_bench *b = ctx;
	const char *argv[] = {"diff", "-rq", "--no-dereference", b->tree[0], b->tree[1], NULL};

	return run_diff(b, argv, ms, err);
}

static int find_run(void *ctx, double *ms, struct err *err)
{
	const struct diff_bench *b = ctx;
	const char *argv[] = {"find", b->tree[0], b->tree[1], "-printf", "%P %s %m %l\\n", NULL};

	return bench_timed(argv, ms, err);
}

static int casbox_run(void *ctx, double *ms, struct err *err)
{
	const struct diff_bench *b = ctx;
	const char *argv[] = {b->env->casbox, "--store", b->scene.box->store, "diff", b->root[0],
			      b->root[1],     NULL};

	return run_diff(b, argv, ms, err);
}

static int measure(struct diff_bench *b, struct bench_report *rep, struct err *err)
{
	static const struct bench_way ways[] = {
		{"diff -rq of both", walk_run, NULL},
		{"find over both", find_run, NULL},
		{"casbox diff", casbox_run, NULL},
		{NULL, NULL, NULL},
	};
	auto_free char *title = bench_text("%s and the same with one changed file", b->env->tree);
	struct bench_race race;
	int ret = prepare(b, err);

	if (ret == 0)
		ret = bench_race_run(b->env, ways, b, &race, err);
	if (ret < 0)
		return ret;
	bench_race_table(rep, "diff", title ? title : "", ways, &race);
	bench_note(rep, "find over both: %.1f times casbox diff", bench_race_ratio(&race, 1, 2));
	return 0;
}

int bench_diff(struct bench_env *env, struct bench_report *rep, struct err *err)
{
	auto_call(fini) struct diff_bench b = {.env = env};
	int ret;

	if (!env->casbox)
		return 0;
	if (!env->tree)
		return err_set(err, -EINVAL, "say which tree to compare with --tree DIR");
	ret = bench_scene_open(&b.scene, env, "diff", err);
	if (ret == 0)
		ret = measure(&b, rep, err);
	return bench_scene_close(&b.scene, ret, err);
}
