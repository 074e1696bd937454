/* tools/bench/bench_ways.c - casbox and its rivals: how an action gets its tree */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_env.h"
#include "tools/bench/bench_lane.h"
#include "tools/bench/bench_tree.h"

static bool is_root(const struct bench_env *env)
{
	(void)env;
	return geteuid() == 0;
}

/* --- steps in common --- */

/* Open the tree that set-up made at lane/@name and make the directory of outputs in it. */
static int root_open(struct bench_lane *lane, const char *name, int *root_fd, struct err *err)
{
	int fd = bench_open_dir(lane->dir_fd, name, err);
	int ret;

	if (fd < 0)
		return fd;
	ret = lane->own_dir ? bench_mkdir(fd, "out", err) : 0;
	if (ret < 0)
		(void)close(fd);
	else
		*root_fd = fd;
	return ret;
}

static int rmdir_out(struct bench_lane *lane, int base_fd, struct err *err)
{
	if (lane->own_dir && unlinkat(base_fd, "out", AT_REMOVEDIR) < 0)
		return err_set(err, -errno, "removing directory out: %s", strerror(errno));
	return 0;
}

/* Whole tree, when the job asks for it; outputs are ours. */
static int root_verify(struct bench_lane *lane, const struct bench_job *job, int root_fd,
		       struct err *err)
{
	const char *extra[] = {lane->own_dir ? "out" : job->out[0], job->out[1], job->out[2], NULL};

	return job->verify ? bench_tree_verify(lane->tree, job->root, root_fd, extra, err) : 0;
}

static void times_add(double *times, double setup, double tear)
{
	times[BENCH_SETUP] = setup;
	times[BENCH_TEAR] = tear;
	times[BENCH_TOTAL] = setup + times[BENCH_WORK] + tear;
}

/* --- the floor: the tree is there already --- */

static int run_floor(struct bench_lane *lane, const struct bench_job *job, double *times,
		     struct err *err)
{
	double begin = bench_now_ms();
	auto_close int fd = -1;
	double setup;
	int ret = root_open(lane, "floor", &fd, err);

	setup = bench_now_ms() - begin;
	if (ret == 0)
		ret = bench_job_work(lane, job, fd, times, err);
	if (ret == 0)
		ret = root_verify(lane, job, fd, err);
	begin = bench_now_ms();
	if (ret == 0)
		ret = bench_job_keep(lane, job, fd, err);
	if (ret == 0)
		ret = rmdir_out(lane, fd, err);
	times_add(times, setup, bench_now_ms() - begin);
	return ret;
}

const struct bench_way bench_way_floor = {"native floor", run_floor, NULL};

/* --- farms: the tree is put together for each action --- */

static int farm_setup(struct bench_lane *lane, const struct bench_job *job, enum bench_fill how,
		      int *fd, struct err *err)
{
	auto_close int farm_fd = -1;
	int ret = bench_mkdir(lane->dir_fd, "farm", err);

	if (ret == 0)
		ret = bench_open_dir(lane->dir_fd, "farm", err);
	if (ret < 0)
		return ret;
	farm_fd = ret;
	ret = bench_tree_fill(lane->tree, job->root, how, farm_fd, err);
	return ret < 0 ? ret : root_open(lane, "farm", fd, err);
}

static int run_filled(struct bench_lane *lane, const struct bench_job *job, enum bench_fill how,
		      double *times, struct err *err)
{
	double begin = bench_now_ms();
	auto_close int fd = -1;
	double setup;
	int ret = farm_setup(lane, job, how, &fd, err);

	setup = bench_now_ms() - begin;
	if (ret == 0)
		ret = bench_job_work(lane, job, fd, times, err);
	if (ret == 0)
		ret = root_verify(lane, job, fd, err);
	begin = bench_now_ms();
	if (ret == 0)
		ret = bench_job_keep(lane, job, fd, err);
	if (ret == 0)
		ret = io_remove_tree(lane->dir_fd, "farm", err);
	times_add(times, setup, bench_now_ms() - begin);
	return ret;
}

static int run_farm(struct bench_lane *lane, const struct bench_job *job, double *times,
		    struct err *err)
{
	return run_filled(lane, job, BENCH_FILL_LINK, times, err);
}

static int run_copy(struct bench_lane *lane, const struct bench_job *job, double *times,
		    struct err *err)
{
	return run_filled(lane, job, BENCH_FILL_COPY, times, err);
}

const struct bench_way bench_way_farm = {"hardlink farm", run_farm, NULL};
const struct bench_way bench_way_copy = {"copy farm", run_copy, NULL};

/* --- mounts over the materialized tree --- */

/*
 * How a rival mounts: over lane/floor, at lane/merged, with lane/upper and lane/scratch
 * when it is an overlay. @base is where the outputs lie afterwards.
 */
struct rival {
	int (*mount)(struct bench_lane *lane, struct err *err);
	const char *base;
	bool layers;
};

static int overlay_mount(struct bench_lane *lane, struct err *err)
{
	auto_free char *at = bench_text("%s/merged", lane->dir);
	auto_free char *options =
		bench_text("lowerdir=%s/floor,upperdir=%s/upper,workdir=%s/scratch,volatile",
			   lane->dir, lane->dir, lane->dir);

	if (!at || !options)
		return err_set(err, -ENOMEM, "out of memory");
	if (mount("overlay", at, "overlay", 0, options) < 0)
		return err_set(err, -errno, "mounting an overlay at %s: %s", at, strerror(errno));
	return 0;
}

static int bindfs_mount(struct bench_lane *lane, struct err *err)
{
	auto_free char *from = bench_text("%s/floor", lane->dir);
	auto_free char *at = bench_text("%s/merged", lane->dir);
	const char *argv[] = {"bindfs", "--no-allow-other", from, at, NULL};

	if (!at || !from)
		return err_set(err, -ENOMEM, "out of memory");
	return bench_spawn_ok(argv, NULL, NULL, err);
}

static int fuse_overlayfs_mount(struct bench_lane *lane, struct err *err)
{
	auto_free char *at = bench_text("%s/merged", lane->dir);
	auto_free char *options =
		bench_text("lowerdir=%s/floor,upperdir=%s/upper,workdir=%s/scratch", lane->dir,
			   lane->dir, lane->dir);
	const char *argv[] = {"fuse-overlayfs", "-o", options, at, NULL};

	if (!at || !options)
		return err_set(err, -ENOMEM, "out of memory");
	return bench_spawn_ok(argv, NULL, NULL, err);
}

static int rival_unmount(struct bench_lane *lane, struct err *err)
{
	auto_free char *at = bench_text("%s/merged", lane->dir);
	const char *argv[] = {"fusermount3", "-u", at, NULL};

	if (at && umount2(at, UMOUNT_NOFOLLOW) == 0)
		return 0;
	if (geteuid() != 0)
		return bench_spawn_ok(argv, NULL, NULL, err);
	return err_set(err, -errno, "unmounting %s: %s", at ? at : "", strerror(errno));
}

static int rival_setup(struct bench_lane *lane, const struct rival *rival, int *fd, struct err *err)
{
	int ret = bench_mkdir(lane->dir_fd, "merged", err);

	if (ret == 0 && rival->layers)
		ret = bench_mkdir(lane->dir_fd, "upper", err);
	if (ret == 0 && rival->layers)
		ret = bench_mkdir(lane->dir_fd, "scratch", err);
	if (ret == 0)
		ret = rival->mount(lane, err);
	return ret < 0 ? ret : root_open(lane, "merged", fd, err);
}

static int rival_tear(struct bench_lane *lane, const struct bench_job *job,
		      const struct rival *rival, struct err *err)
{
	auto_close int base_fd = -1;
	int ret = rival_unmount(lane, err);

	if (ret == 0)
		ret = bench_open_dir(lane->dir_fd, rival->base, err);
	if (ret < 0)
		return ret;
	base_fd = ret;
	ret = bench_job_keep(lane, job, base_fd, err);
	if (ret == 0 && !rival->layers)
		ret = rmdir_out(lane, base_fd, err);
	if (ret == 0 && rival->layers)
		ret = io_remove_tree(lane->dir_fd, "upper", err);
	if (ret == 0 && rival->layers)
		ret = io_remove_tree(lane->dir_fd, "scratch", err);
	return ret;
}

static int rival_run(struct bench_lane *lane, const struct bench_job *job,
		     const struct rival *rival, double *times, struct err *err)
{
	double begin = bench_now_ms();
	double setup;
	int fd = -1;
	int ret = rival_setup(lane, rival, &fd, err);

	setup = bench_now_ms() - begin;
	if (ret == 0)
		ret = bench_job_work(lane, job, fd, times, err);
	if (ret == 0)
		ret = root_verify(lane, job, fd, err);
	begin = bench_now_ms();
	if (fd >= 0)
		(void)close(fd);
	if (ret == 0)
		ret = rival_tear(lane, job, rival, err);
	times_add(times, setup, bench_now_ms() - begin);
	return ret;
}

static int run_overlay(struct bench_lane *lane, const struct bench_job *job, double *times,
		       struct err *err)
{
	static const struct rival rival = {overlay_mount, "upper", true};

	return rival_run(lane, job, &rival, times, err);
}

static int run_bindfs(struct bench_lane *lane, const struct bench_job *job, double *times,
		      struct err *err)
{
	static const struct rival rival = {bindfs_mount, "floor", false};

	return rival_run(lane, job, &rival, times, err);
}

static int run_fuse_overlayfs(struct bench_lane *lane, const struct bench_job *job, double *times,
			      struct err *err)
{
	static const struct rival rival = {fuse_overlayfs_mount, "upper", true};

	return rival_run(lane, job, &rival, times, err);
}

static bool have_bindfs(const struct bench_env *env)
{
	(void)env;
	return bench_have_program("bindfs");
}

static bool have_fuse_overlayfs(const struct bench_env *env)
{
	(void)env;
	return bench_have_program("fuse-overlayfs");
}

const struct bench_way bench_way_overlay = {"kernel overlayfs", run_overlay, is_root};
const struct bench_way bench_way_bindfs = {"bindfs", run_bindfs, have_bindfs};
const struct bench_way bench_way_fuse_overlayfs = {"fuse-overlayfs", run_fuse_overlayfs,
						   have_fuse_overlayfs};

/* --- casbox --- */

static int box_setup(struct bench_lane *lane, const struct bench_job *job, const char *id,
		     const char *trace, int *fd, struct err *err)
{
	auto_free char *path = NULL;
	char options[BENCH_NR_OUTPUTS * 300 + 64];
	int at = snprintf(options, sizeof(options), "--trace %s%s", trace,
			  lane->own_dir ? " --output out/" : "");
	int ret;

	for (int i = 0; !lane->own_dir && i < BENCH_NR_OUTPUTS; i++)
		at += snprintf(options + at, sizeof(options) - (size_t)at, " --output %s",
			       job->out[i]);
	ret = bench_create(&lane->channel, lane->tree->roots[job->root], id, options, &path, err);
	if (ret == 0)
		ret = bench_open_dir(AT_FDCWD, path, err);
	if (ret < 0)
		return ret;
	*fd = ret;
	return 0;
}

/* Untimed: the captured bytes, as the store shows them. */
static int box_verify(struct bench_lane *lane, const struct bench_job *job, struct err *err)
{
	int ret = 0;

	for (int i = 0; ret == 0 && i < BENCH_NR_OUTPUTS; i++)
		ret = bench_box_check_blob(lane->box, &job->expect[i], err);
	return ret;
}

static int run_traced(struct bench_lane *lane, const struct bench_job *job, const char *trace,
		      double *times, struct err *err)
{
	char id[64];
	int fd = -1;
	double at[4];
	int ret;

	(void)snprintf(id, sizeof(id), "bench-%d-%u", lane->index, lane->serial++);
	at[0] = bench_now_ms();
	ret = box_setup(lane, job, id, trace, &fd, err);
	at[1] = bench_now_ms();
	if (ret == 0)
		ret = bench_job_work(lane, job, fd, times, err);
	if (ret == 0)
		ret = root_verify(lane, job, fd, err);
	at[2] = bench_now_ms();
	if (fd >= 0)
		(void)close(fd);
	if (ret == 0)
		ret = bench_ask(&lane->channel, NULL, err,
				"finish %s --exit-code 0 --remove --alone", id);
	at[3] = bench_now_ms();
	times[BENCH_CREATE] = at[1] - at[0];
	times[BENCH_FINISH] = at[3] - at[2];
	times_add(times, at[1] - at[0], at[3] - at[2]);
	return ret < 0 ? ret : box_verify(lane, job, err);
}

static int run_box(struct bench_lane *lane, const struct bench_job *job, double *times,
		   struct err *err)
{
	return run_traced(lane, job, "off", times, err);
}

static int run_reads(struct bench_lane *lane, const struct bench_job *job, double *times,
		     struct err *err)
{
	return run_traced(lane, job, "reads", times, err);
}

static int run_exact(struct bench_lane *lane, const struct bench_job *job, double *times,
		     struct err *err)
{
	return run_traced(lane, job, "exact", times, err);
}

const struct bench_way bench_way_box = {"casbox", run_box, NULL};
const struct bench_way bench_way_reads = {"casbox --trace=reads", run_reads, NULL};
const struct bench_way bench_way_exact = {"casbox --trace=exact", run_exact, NULL};
