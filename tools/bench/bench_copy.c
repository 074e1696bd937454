/* tools/bench/bench_copy.c - copy: a large file that is mostly zeros, put and checked out */
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
#include "tools/bench/bench_race.h"
#include "tools/bench/bench_slow.h"

/*
 * 10 GiB of which 522 blocks of 1 MiB, spread evenly, hold something; the rest are holes.
 * It is read from the disk's own filesystem, and through one that does not know holes
 * (latfs without a delay shows one extent). What a copy took on the disk afterwards is
 * compared with those 522 blocks.
 */

#define BLOCK_SZ  (1u << 20)
#define NR_BLOCKS 10240 /* at scale 100 */
#define NR_DATA	  522

enum { COL_MS, COL_TIMES, COL_MIB, NR_COLS };
static const struct bench_column columns[] = {
	{"ms", "ms", 0},
	{"times_first", "times the first", 2},
	{"mib_allocated", "MiB taken", 1},
	{NULL, NULL, 0},
};

struct copy_bench {
	const struct bench_env *env;
	struct bench_report *rep;
	char *path;
	int dir_fd;
	struct bench_slow slow;
	unsigned nr_blocks;
	unsigned nr_data;
	const char *from; /* the directory that is read: src, or slow */
	char root[CAS_DIGEST_STR_SZ];
	double mib[BENCH_RACE_WAYS];
};

static void fini(struct copy_bench *b)
{
	bench_slow_unmount(&b->slow);
	if (b->dir_fd >= 0)
		(void)close(b->dir_fd);
	free(b->path);
}

static int make_source(const struct copy_bench *b, struct err *err)
{
	auto_free char *block = malloc(BLOCK_SZ);
	auto_close int fd = -1;
	int ret = bench_mkdir(b->dir_fd, "src", err);

	if (ret < 0)
		return ret;
	fd = openat(b->dir_fd, "src/f", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (!block || fd < 0 || ftruncate(fd, (off_t)b->nr_blocks * BLOCK_SZ) < 0)
		return err_set(err, -errno, "making src/f: %s", strerror(errno));
	for (unsigned i = 0; i < b->nr_data && ret == 0; i++) {
		off_t at = (off_t)((uint64_t)i * b->nr_blocks / b->nr_data) * BLOCK_SZ;

		memset(block, 'a' + (int)(i % 26), BLOCK_SZ);
		(void)snprintf(block, 32, "block %u", i);
		ret = io_pwrite_full(fd, block, BLOCK_SZ, at);
	}
	return ret < 0 ? err_set(err, ret, "writing src/f: %s", strerror(-ret)) : 0;
}

static int took(struct copy_bench *b, int way, const char *name, struct err *err)
{
	struct stat st;

	if (fstatat(b->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_set(err, -errno, "stat %s: %s", name, strerror(errno));
	b->mib[way] = (double)st.st_blocks * 512 / BLOCK_SZ;
	return 0;
}

/* --- the ways --- */

static int cp(struct copy_bench *b, int way, const char *sparse, double *ms, struct err *err)
{
	auto_free char *src = bench_text("%s/%s/f", b->path, b->from);
	auto_free char *dst = bench_text("%s/copy", b->path);
	const char *argv[] = {"cp", sparse, "--reflink=never", src, dst, NULL};
	int ret = src && dst ? bench_timed(argv, ms, err) : -ENOMEM;

	return ret == 0 ? took(b, way, "copy", err) : ret;
}

static int plain_run(void *ctx, double *ms, struct err *err)
{
	return cp(ctx, 0, "--sparse=never", ms, err);
}

static int sparse_run(void *ctx, double *ms, struct err *err)
{
	return cp(ctx, 1, "--sparse=always", ms, err);
}

static int copy_undo(void *ctx, struct err *err)
{
	const struct copy_bench *b = ctx;

	return io_remove_tree(b->dir_fd, "copy", err);
}

static int put_run(void *ctx, double *ms, struct err *err)
{
	struct copy_bench *b = ctx;
	auto_free char *store = bench_text("%s/store", b->path);
	auto_free char *src = bench_text("%s/%s/f", b->path, b->from);
	const char *argv[] = {b->env->casbox, "--store", store, "put", src, NULL};
	auto_buf struct buf out = {0};
	auto_free char *blob = NULL;
	double begin;
	int ret = store && src ? io_remove_tree(b->dir_fd, "store", err) : -ENOMEM;

	if (ret < 0)
		return ret;
	begin = bench_now_ms();
	ret = bench_spawn_ok(argv, NULL, &out, err);
	*ms = bench_now_ms() - begin;
	if (ret < 0)
		return ret;
	blob = bench_text("store/cas/%.2s/%.64s", buf_str(&out), buf_str(&out));
	return blob ? took(b, 2, blob, err) : -ENOMEM;
}

static int checkout_run(void *ctx, double *ms, struct err *err)
{
	struct copy_bench *b = ctx;
	auto_free char *store = bench_text("%s/store-dir", b->path);
	auto_free char *out = bench_text("%s/out", b->path);
	const char *argv[] = {b->env->casbox, "--store", store, "checkout", b->root, out, NULL};
	int ret = store && out ? bench_timed(argv, ms, err) : -ENOMEM;

	return ret == 0 ? took(b, 3, "out/f", err) : ret;
}

static int checkout_undo(void *ctx, struct err *err)
{
	const struct copy_bench *b = ctx;

	return io_remove_tree(b->dir_fd, "out", err);
}

/* A store of its own, from which checkouts are made. */
static int put_tree(struct copy_bench *b, struct err *err)
{
	auto_free char *store = bench_text("%s/store-dir", b->path);
	auto_free char *src = bench_text("%s/src", b->path);

	return store && src ? bench_store_put(b->env, store, src, b->root, err) : -ENOMEM;
}

static int measure(struct copy_bench *b, const char *from, const char *what, struct err *err)
{
	static const struct bench_way ways[] = {
		{"cp --sparse=never", plain_run, copy_undo},
		{"cp --sparse=always", sparse_run, copy_undo},
		{"casbox put", put_run, NULL},
		{"casbox checkout", checkout_run, checkout_undo},
		{NULL, NULL, NULL},
	};
	auto_free char *title =
		bench_text("%u MiB, %u of them data, from %s", b->nr_blocks, b->nr_data, what);
	auto_free char *put_gate = bench_text("copy: MiB a put from %s takes", what);
	auto_free char *out_gate = bench_text("copy: MiB a checkout takes (%s)", what);
	struct bench_race race;
	int ret;

	b->from = from;
	ret = bench_race_run(b->env, ways, b, &race, err);
	if (ret < 0)
		return ret;
	bench_table(b->rep, "copy", title, columns);
	for (int w = 0; ways[w].label; w++) {
		double values[NR_COLS] = {
			bench_median(race.ms[w], race.nr_rounds),
			w == 0 ? NAN : bench_race_ratio(&race, w, 0),
			b->mib[w],
		};

		bench_row(b->rep, ways[w].label, values);
	}
	/* Half a MiB for what maps the extents. */
	bench_gate(b->rep, put_gate, b->mib[2], b->nr_data + 0.5, b->nr_data + 0.5);
	bench_gate(b->rep, out_gate, b->mib[3], b->nr_data + 0.5, b->nr_data + 0.5);
	return 0;
}

int bench_copy(struct bench_env *env, struct bench_report *rep, struct err *err)
{
	auto_call(fini) struct copy_bench b = {.env = env, .rep = rep, .dir_fd = -1};
	int ret;

	if (!env->casbox)
		return 0;
	b.nr_blocks = NR_BLOCKS * env->scale / 100;
	b.nr_data = (NR_DATA * env->scale + 99) / 100;
	ret = bench_dir_new(env, "copy", &b.dir_fd, &b.path, err);
	if (ret == 0)
		ret = make_source(&b, err);
	if (ret == 0)
		ret = put_tree(&b, err);
	if (ret == 0)
		ret = measure(&b, "src", "the disk", err);
	if (ret == 0 && env->latfs) {
		ret = bench_slow_mount(env, b.path, "src", 0, &b.slow, err);
		if (ret == 0)
			ret = measure(&b, "slow", "FUSE without SEEK_HOLE", err);
		bench_slow_unmount(&b.slow);
	}
	return ret < 0 ? ret : io_remove_tree(env->work_fd, "copy", err);
}
