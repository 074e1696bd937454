/* tools/bench/bench_checkout.c - checkout: a tree of many files beside the bare calls */
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_box.h"
#include "tools/bench/bench_env.h"
#include "tools/bench/bench_race.h"

/*
 * 1,978 files, 466 MB, in 140 directories. The bare calls make the directories, and each
 * file by one linkat, or by opening, creating, FICLONE and closing, from a directory that
 * holds them all; or the whole by one snapshot of a read-only subvolume. casbox is the
 * program from its start to its end; everything was checked out once before, so that
 * links and trees are there. Its first tree is compared with the source.
 *
 * A snapshot takes about as long as starting a program does, so it is compared twice: the
 * bare call with cas_checkout in a process that has the store open, and `btrfs subvolume
 * snapshot` with `casbox checkout`.
 */

#define NR_FILES 1978
#define NR_DIRS	 140
#define BYTES	 466000000ULL

struct checkout_bench {
	const struct bench_env *env;
	char *path;
	int dir_fd;
	struct cas_store *store; /* while snapshots are measured */
	char root[CAS_DIGEST_STR_SZ];
	char label[96];
};

static void fini(struct checkout_bench *b)
{
	cas_store_close(b->store);
	if (b->dir_fd >= 0)
		(void)close(b->dir_fd);
	free(b->path);
}

static void name_dir(const char *top, unsigned i, char out[64])
{
	(void)snprintf(out, 64, "%s/d%u", top, i % NR_DIRS);
}

static void name_file(const char *top, unsigned i, char out[64])
{
	(void)snprintf(out, 64, "%s/d%u/f%u", top, i % NR_DIRS, i);
}

static int make_dirs(const struct checkout_bench *b, const char *top)
{
	char name[64];

	if (mkdirat(b->dir_fd, top, 0755) < 0)
		return -errno;
	for (unsigned i = 0; i < NR_DIRS; i++) {
		name_dir(top, i, name);
		if (mkdirat(b->dir_fd, name, 0755) < 0)
			return -errno;
	}
	return 0;
}

/* Sizes from 1/20 to 39/20 of the mean; each block of a file is its own. */
static int write_file(const struct checkout_bench *b, unsigned i, uint64_t mean)
{
	static char block[65536];
	char name[64];
	uint64_t left = mean * (1 + 2 * (i * 7919ULL % 20)) / 20;
	auto_close int fd = -1;
	int ret = 0;

	name_file("src", i, name);
	fd = openat(b->dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, i % 4 ? 0644 : 0755);
	if (fd < 0)
		return -errno;
	memset(block, 'a' + (int)(i % 26), sizeof(block));
	for (unsigned k = 0; ret == 0 && left > 0; k++) {
		size_t part = left < sizeof(block) ? (size_t)left : sizeof(block);

		(void)snprintf(block, 64, "file %u block %u", i, k);
		ret = io_write_full(fd, block, part);
		left -= part;
	}
	return ret;
}

static int make_source(struct checkout_bench *b, struct err *err)
{
	uint64_t mean = BYTES * b->env->scale / 100 / NR_FILES;
	int ret = make_dirs(b, "src");

	for (unsigned i = 0; i < NR_FILES && ret == 0; i++)
		ret = write_file(b, i, mean);
	return ret < 0 ? err_set(err, ret, "making the tree: %s", strerror(-ret)) : 0;
}

/* --- casbox --- */

static int run_casbox(const struct checkout_bench *b, const char *mode, double *ms, struct err *err)
{
	auto_free char *store = bench_text("%s/store", b->path);
	auto_free char *out = bench_text("%s/out", b->path);
	const char *argv[] = {b->env->casbox, "--store", store, "checkout", "--mode",
			      mode,	      b->root,	 out,	NULL};

	return store && out ? bench_timed(argv, ms, err) : -ENOMEM;
}

static int auto_run(void *ctx, double *ms, struct err *err)
{
	return run_casbox(ctx, "auto", ms, err);
}

/* By a caller that is there already, as the bare call is. */
static int call_run(void *ctx, double *ms, struct err *err)
{
	const struct checkout_bench *b = ctx;
	const struct cas_checkout_options opts = {.mode = CAS_CHECKOUT_AUTO, .snapshot = true};
	double begin = bench_now_ms();
	struct cas_digest root;
	int ret = cas_digest_parse(b->root, &root);

	if (ret == 0)
		ret = cas_checkout_at(b->store, &root, b->dir_fd, "out", &opts, err);
	*ms = bench_now_ms() - begin;
	return ret;
}

static int reflink_run(void *ctx, double *ms, struct err *err)
{
	return run_casbox(ctx, "reflink", ms, err);
}

static int hardlink_run(void *ctx, double *ms, struct err *err)
{
	return run_casbox(ctx, "hardlink", ms, err);
}

static int out_undo(void *ctx, struct err *err)
{
	const struct checkout_bench *b = ctx;

	return io_remove_tree(b->dir_fd, "out", err);
}

/* --- the bare calls --- */

static int bare(const struct checkout_bench *b, bool reflink, double *ms, struct err *err)
{
	double begin = bench_now_ms();
	int ret = make_dirs(b, "out");

	for (unsigned i = 0; i < NR_FILES && ret == 0; i++) {
		char from[64];
		char to[64];
		auto_close int src = -1;
		auto_close int dst = -1;

		name_file("src", i, from);
		name_file("out", i, to);
		if (!reflink) {
			ret = linkat(b->dir_fd, from, b->dir_fd, to, 0) < 0 ? -errno : 0;
			continue;
		}
		src = openat(b->dir_fd, from, O_RDONLY | O_CLOEXEC);
		dst = openat(b->dir_fd, to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
		ret = src < 0 || dst < 0 || ioctl(dst, FICLONE, src) < 0 ? -errno : 0;
	}
	*ms = bench_now_ms() - begin;
	return ret < 0 ? err_set(err, ret, "making out/: %s", strerror(-ret)) : 0;
}

static int link_run(void *ctx, double *ms, struct err *err)
{
	return bare(ctx, false, ms, err);
}

static int clone_run(void *ctx, double *ms, struct err *err)
{
	return bare(ctx, true, ms, err);
}

static int snapshot_run(void *ctx, double *ms, struct err *err)
{
	const struct checkout_bench *b = ctx;
	auto_close int fd = openat(b->dir_fd, "volume", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct btrfs_ioctl_vol_args_v2 args = {.fd = fd};
	double begin = bench_now_ms();
	int ret;

	(void)strcpy(args.name, "out");
	ret = fd < 0 || ioctl(b->dir_fd, BTRFS_IOC_SNAP_CREATE_V2, &args) < 0 ? -errno : 0;
	*ms = bench_now_ms() - begin;
	return ret < 0 ? err_set(err, ret, "snapshot: %s", strerror(-ret)) : 0;
}

static int btrfs_run(void *ctx, double *ms, struct err *err)
{
	const struct checkout_bench *b = ctx;
	auto_free char *volume = bench_text("%s/volume", b->path);
	auto_free char *out = bench_text("%s/out", b->path);
	const char *argv[] = {"btrfs", "subvolume", "snapshot", volume, out, NULL};

	return volume && out ? bench_timed(argv, ms, err) : -ENOMEM;
}

/* What the bare snapshot is of: the tree once more, by reflink. */
static int make_volume(const struct checkout_bench *b, struct err *err)
{
	auto_free char *src = bench_text("%s/src/.", b->path);
	auto_free char *dst = bench_text("%s/volume", b->path);
	const char *argv[] = {"cp", "-r", "--reflink=always", src, dst, NULL};
	struct btrfs_ioctl_vol_args args = {0};
	auto_buf struct buf out = {0};

	(void)strcpy(args.name, "volume");
	if (!src || !dst || ioctl(b->dir_fd, BTRFS_IOC_SUBVOL_CREATE, &args) < 0)
		return err_set(err, -errno, "making a subvolume: %s", strerror(errno));
	return bench_spawn_ok(argv, NULL, &out, err);
}

/* --- all of it --- */

static int put_source(struct checkout_bench *b, struct err *err)
{
	auto_free char *store = bench_text("%s/store", b->path);
	auto_free char *src = bench_text("%s/src", b->path);

	return store && src ? bench_store_put(b->env, store, src, b->root, err) : -ENOMEM;
}

/* Once before, and right. */
static int warm(struct checkout_bench *b, const char *mode, struct err *err)
{
	auto_free char *src = bench_text("%s/src", b->path);
	auto_free char *out = bench_text("%s/out", b->path);
	const char *argv[] = {"diff", "-r", src, out, NULL};
	auto_buf struct buf said = {0};
	double ms;
	int ret = run_casbox(b, mode, &ms, err);

	if (ret == 0)
		ret = src && out ? bench_spawn_ok(argv, NULL, &said, err) : -ENOMEM;
	return ret == 0 ? out_undo(b, err) : ret;
}

static int measure(struct checkout_bench *b, struct bench_report *rep, const char *what,
		   const char *mode, const struct bench_way *ways, struct err *err)
{
	auto_free char *title = bench_text("%d files, %llu MB, by %s", NR_FILES,
					   BYTES * b->env->scale / 100 / 1000000, what);
	struct bench_race race;
	int ret = title ? warm(b, mode, err) : -ENOMEM;

	if (ret == 0)
		ret = bench_race_run(b->env, ways, b, &race, err);
	if (ret < 0)
		return ret;
	bench_race_table(rep, "checkout", title, ways, &race);
	for (int i = 0; ways[i].label && ways[i + 1].label; i += 2) {
		auto_free char *name =
			bench_text("checkout: %s, times %s", ways[i + 1].label, ways[i].label);

		if (name)
			bench_gate(rep, name, bench_race_ratio(&race, i + 1, i), 1.56, 1.2);
	}
	/* Starting the program included, as for the other ways. */
	if (ways[2].label && ways[3].label)
		bench_gate(rep, "checkout: casbox checkout, times snapshot, the bare call",
			   bench_race_ratio(&race, 3, 0), 1.56, 1.2);
	return 0;
}

static int measure_snapshot(struct checkout_bench *b, struct bench_report *rep, struct err *err)
{
	static const struct bench_way ways[] = {
		{"snapshot, the bare call", snapshot_run, out_undo},
		{"cas_checkout", call_run, out_undo},
		{"btrfs subvolume snapshot", btrfs_run, out_undo},
		{"casbox checkout", auto_run, out_undo},
		{NULL, NULL, NULL},
	};
	static const struct bench_way without_btrfs[] = {
		{"snapshot, the bare call", snapshot_run, out_undo},
		{"cas_checkout", call_run, out_undo},
		{NULL, NULL, NULL},
	};
	auto_free char *path = bench_text("%s/store", b->path);
	const struct cas_store_options opts = {.path = path};
	int ret = path ? cas_store_open(&opts, &b->store, err) : -ENOMEM;

	if (ret == 0)
		ret = make_volume(b, err);
	if (ret == 0)
		ret = measure(b, rep, "snapshot", "auto",
			      bench_have_program("btrfs") ? ways : without_btrfs, err);
	return ret;
}

int bench_checkout(struct bench_env *env, struct bench_report *rep, struct err *err)
{
	static const struct bench_way by_link[] = {
		{"mkdirat, linkat", link_run, out_undo},
		{"casbox checkout --mode hardlink", hardlink_run, out_undo},
		{NULL, NULL, NULL},
	};
	static const struct bench_way by_reflink[] = {
		{"mkdirat, openat, FICLONE", clone_run, out_undo},
		{"casbox checkout --mode reflink", reflink_run, out_undo},
		{NULL, NULL, NULL},
	};
	auto_call(fini) struct checkout_bench b = {.env = env, .dir_fd = -1};
	struct statfs fs;
	int ret;

	if (!env->casbox)
		return 0;
	ret = bench_dir_new(env, "checkout", &b.dir_fd, &b.path, err);
	if (ret == 0)
		ret = make_source(&b, err);
	if (ret == 0)
		ret = put_source(&b, err);
	if (ret == 0)
		ret = measure(&b, rep, "hardlink", "hardlink", by_link, err);
	if (ret == 0 && fstatfs(b.dir_fd, &fs) == 0 && fs.f_type == BTRFS_SUPER_MAGIC) {
		ret = measure(&b, rep, "reflink", "reflink", by_reflink, err);
		if (ret == 0)
			ret = measure_snapshot(&b, rep, err);
	}
	return ret < 0 ? ret : io_remove_tree(env->work_fd, "checkout", err);
}
