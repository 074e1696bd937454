/* tools/bench/bench_copy.c - copy: a large file that is mostly zeros, put and checked out */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_env.h"
#include "tools/bench/bench_race.h"

/*
 * 10 GiB of which 522 blocks of 1 MiB, spread evenly, hold something; the rest are holes.
 * It is read from the disk's own filesystem, and through one that does not know holes
 * (latfs without a delay shows one extent). What a copy took on the disk afterwards is
 * compared with those 522 blocks.
 */

#define BLOCK_SZ    (1u << 20)
#define NR_BLOCKS   10240 /* at scale 100 */
#define NR_DATA	    522
#define MOUNT_TRIES 500

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
	pid_t latfs;
	unsigned nr_blocks;
	unsigned nr_data;
	const char *from; /* the directory that is read: src, or slow */
	char root[CAS_DIGEST_STR_SZ + 2];
	double mib[BENCH_RACE_WAYS];
};

static void unmount_slow(struct copy_bench *b)
{
	auto_free char *slow = bench_text("%s/slow", b->path);

	if (b->latfs <= 0)
		return;
	(void)kill(b->latfs, SIGTERM);
	while (waitpid(b->latfs, NULL, 0) < 0 && errno == EINTR)
		;
	b->latfs = 0;
	if (slow)
		(void)umount2(slow, MNT_DETACH);
}

static void fini(struct copy_bench *b)
{
	unmount_slow(b);
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

static int mount_slow(struct copy_bench *b, struct err *err)
{
	auto_free char *back = bench_text("%s/src", b->path);
	auto_free char *slow = bench_text("%s/slow", b->path);
	char *argv[] = {(char *)(uintptr_t)b->env->latfs, back, slow, NULL};
	const struct timespec nap = {.tv_nsec = 10000000};
	int ret = back && slow ? bench_mkdir(b->dir_fd, "slow", err) : -ENOMEM;

	if (ret == 0)
		ret = -posix_spawn(&b->latfs, argv[0], NULL, NULL, argv, environ);
	if (ret < 0)
		return err_set(err, ret, "starting %s: %s", argv[0], strerror(-ret));
	for (int i = 0; i < MOUNT_TRIES; i++) {
		if (faccessat(b->dir_fd, "slow/.counts", F_OK, 0) == 0)
			return 0;
		(void)nanosleep(&nap, NULL);
	}
	return err_set(err, -ETIMEDOUT, "%s did not mount %s", argv[0], slow);
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
	const char *argv[] = {b->env->casbox, "--store", store, "put", src, NULL};
	auto_buf struct buf out = {0};
	int ret = store && src ? bench_spawn_ok(argv, NULL, &out, err) : -ENOMEM;

	if (ret == 0)
		(void)snprintf(b->root, sizeof(b->root), "%.*s", (int)strcspn(buf_str(&out), "\n"),
			       buf_str(&out));
	return ret;
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
		ret = mount_slow(&b, err);
		if (ret == 0)
			ret = measure(&b, "slow", "FUSE without SEEK_HOLE", err);
		unmount_slow(&b);
	}
	return ret < 0 ? ret : io_remove_tree(env->work_fd, "copy", err);
}
