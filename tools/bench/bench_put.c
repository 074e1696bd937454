/* tools/bench/bench_put.c - put: new and known blobs into a slow blob directory */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_env.h"
#include "tools/bench/bench_slow.h"

/*
 * latfs shows a directory whose changes take 5 or 20 ms each, one at a time in a
 * directory. On one mount, in turn: 64 threads that create and rename in one directory;
 * 64 that do the same in 256 shards under the blobs' names; and `casbox put` of as many
 * files, from its start until all of them are in the directory. The digest it prints in
 * between is the client's acknowledgment. All directories are there beforehand.
 */

#define WRITERS	   64
#define BLOBS	   3000 /* at scale 100; a flat directory gets a tenth */
#define BLOB_SZ	   4096
#define MAX_ROUNDS 16

enum { WAY_FLAT, WAY_SHARDED, WAY_CASBOX, NR_WAYS };

static const char *const way_names[NR_WAYS] = {"flat, 64 writers", "sharded, 64 writers",
					       "casbox put"};

enum { COL_RATE, COL_ALL, COL_ACK, NR_COLS };
static const struct bench_column columns[] = {
	{"blobs_per_s", "blobs/s", 0},
	{"total_ms", "total", 0},
	{"acknowledged_ms", "acked", 0},
	{NULL, NULL, 0},
};

struct put_bench {
	const struct bench_env *env;
	struct bench_report *rep;
	char *path; /* WORK/put: back/ shown at slow/, src/, stores */
	int dir_fd;
	struct bench_slow slow;
	unsigned nr;
	unsigned serial; /* of contents: each blob is new */
	double rate[NR_WAYS][MAX_ROUNDS];
	double ms[NR_WAYS][MAX_ROUNDS];
	double ack_ms[MAX_ROUNDS];
};

static void fill(char data[BLOB_SZ], unsigned serial, unsigned i)
{
	memset(data, 'x', BLOB_SZ);
	(void)snprintf(data, BLOB_SZ, "blob %u %u\n", serial, i);
}

/* --- the minimal program --- */

struct writer {
	int dir_fd;
	bool sharded;
	unsigned serial;
	unsigned first;
	unsigned nr;
	char (*names)[CAS_LAYOUT_PATH_SZ];
	int ret;
};

static int write_one(const struct writer *w, unsigned i)
{
	char data[BLOB_SZ];
	char tmp[CAS_LAYOUT_PATH_SZ + 8];
	const char *name = w->names[i];
	auto_close int fd = -1;
	int ret;

	fill(data, w->serial, i);
	(void)snprintf(tmp, sizeof(tmp), "%.*s.tmp-%u", w->sharded ? 3 : 0, name, i);
	fd = openat(w->dir_fd, tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	if (fd < 0)
		return -errno;
	ret = io_write_full(fd, data, BLOB_SZ);
	if (ret == 0 && renameat(w->dir_fd, tmp, w->dir_fd, w->sharded ? name : name + 3) < 0)
		ret = -errno;
	return ret;
}

static void *writer_main(void *arg)
{
	struct writer *w = arg;

	for (unsigned i = w->first; i < w->nr && w->ret == 0 && !bench_stopped(); i += WRITERS)
		w->ret = write_one(w, i);
	return NULL;
}

static int run_writers(const struct writer *common, double *ms)
{
	struct writer writers[WRITERS];
	pthread_t threads[WRITERS];
	double begin = bench_now_ms();
	int started = 0;
	int ret = 0;

	for (; started < WRITERS && ret == 0; started++) {
		writers[started] = *common;
		writers[started].first = (unsigned)started;
		ret = -pthread_create(&threads[started], NULL, writer_main, &writers[started]);
		if (ret < 0)
			break;
	}
	for (int i = 0; i < started; i++) {
		(void)pthread_join(threads[i], NULL);
		if (ret == 0)
			ret = writers[i].ret;
	}
	*ms = bench_now_ms() - begin;
	return ret;
}

static int native_once(struct put_bench *b, bool sharded, size_t round, struct err *err)
{
	int way = sharded ? WAY_SHARDED : WAY_FLAT;
	struct writer w = {.sharded = sharded,
			   .serial = b->serial++,
			   .nr = sharded ? b->nr : (b->nr + 9) / 10};
	auto_free void *names = calloc(w.nr, CAS_LAYOUT_PATH_SZ);
	auto_close int fd =
		openat(b->dir_fd, sharded ? "slow/sharded" : "slow/flat", O_RDONLY | O_CLOEXEC);
	int ret = 0;

	if (!names || fd < 0)
		return err_set(err, names ? -errno : -ENOMEM, "cannot open slow/");
	w.names = names;
	w.dir_fd = fd;
	for (unsigned i = 0; i < w.nr && ret == 0; i++) {
		char data[BLOB_SZ];
		struct cas_digest d;

		fill(data, w.serial, i);
		ret = cas_hash_bytes(data, BLOB_SZ, &d);
		if (ret == 0)
			cas_layout_path(d.hash, w.names[i]);
	}
	if (ret == 0)
		ret = run_writers(&w, &b->ms[way][round]);
	if (ret < 0)
		return err_set(err, ret, "writing into slow/: %s", strerror(-ret));
	b->rate[way][round] = w.nr / b->ms[way][round] * 1e3;
	return 0;
}

/* --- casbox --- */

/* As `casbox put`, with the time of the line it prints and of its end. */
static int put_timed(struct put_bench *b, const char *store, double *ack_ms, double *ms,
		     struct err *err)
{
	auto_free char *blobs = bench_text("%s/slow/blobs", b->path);
	auto_free char *src = bench_text("%s/src", b->path);
	auto_free char *at = bench_text("%s/%s", b->path, store);
	char *argv[] = {(char *)(uintptr_t)b->env->casbox,
			(char[]){"--store"},
			at,
			(char[]){"--blobs"},
			blobs,
			(char[]){"put"},
			src,
			NULL};
	posix_spawn_file_actions_t acts;
	char line[256];
	int pipe_fd[2];
	double begin = bench_now_ms();
	int status = 0;
	pid_t pid;
	int ret;

	if (!blobs || !src || !at || pipe2(pipe_fd, O_CLOEXEC) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	(void)posix_spawn_file_actions_init(&acts);
	(void)posix_spawn_file_actions_adddup2(&acts, pipe_fd[1], STDOUT_FILENO);
	ret = -posix_spawnp(&pid, argv[0], &acts, NULL, argv, environ);
	(void)posix_spawn_file_actions_destroy(&acts);
	(void)close(pipe_fd[1]);
	if (ret == 0) {
		if (read(pipe_fd[0], line, sizeof(line)) <= 0)
			ret = -EIO;
		*ack_ms = bench_now_ms() - begin;
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			;
		*ms = bench_now_ms() - begin;
	}
	(void)close(pipe_fd[0]);
	if (ret < 0 || status != 0)
		return err_set(err, ret < 0 ? ret : -EIO, "casbox put failed");
	return 0;
}

static int make_source(struct put_bench *b, struct err *err)
{
	unsigned serial = b->serial++;
	int ret = io_remove_tree(b->dir_fd, "src", err);

	if (ret == 0)
		ret = bench_mkdir(b->dir_fd, "src", err);
	for (unsigned i = 0; i < b->nr && ret == 0; i++) {
		char data[BLOB_SZ];
		char name[32];
		auto_close int fd = -1;

		fill(data, serial, i);
		(void)snprintf(name, sizeof(name), "src/%u", i);
		fd = openat(b->dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		ret = fd < 0 ? -errno : io_write_full(fd, data, BLOB_SZ);
		if (ret < 0)
			return err_set(err, ret, "writing %s: %s", name, strerror(-ret));
	}
	return ret;
}

static int casbox_once(struct put_bench *b, size_t round, struct err *err)
{
	int ret = make_source(b, err);

	if (ret == 0)
		ret = put_timed(b, "store", &b->ack_ms[round], &b->ms[WAY_CASBOX][round], err);
	b->rate[WAY_CASBOX][round] = b->nr / b->ms[WAY_CASBOX][round] * 1e3;
	return ret;
}

/* All changes since the last call. */
static double take_counts(struct put_bench *b)
{
	auto_buf struct buf text = {0};
	double sum = 0;
	char *line;
	char *next;

	if (io_read_file(b->dir_fd, "slow/.counts", 1 << 20, &text) < 0)
		return NAN;
	for (line = text.len > 0 ? text.data : NULL; line && *line; line = next ? next + 1 : NULL) {
		sum += strtod(line, NULL);
		next = strchr(line, '\n');
	}
	(void)close(openat(b->dir_fd, "slow/.counts", O_WRONLY | O_TRUNC | O_CLOEXEC));
	return sum;
}

/* The files of the last round once more, from its store and from one that is new. */
static int known_once(struct put_bench *b, double *same, double *other, struct err *err)
{
	double ack_ms;
	double ms;
	int ret;

	(void)take_counts(b);
	ret = put_timed(b, "store", &ack_ms, &ms, err);
	*same = take_counts(b);
	if (ret == 0)
		ret = put_timed(b, "other", &ack_ms, &ms, err);
	*other = take_counts(b);
	return ret;
}

/* What the ways write into, made past the slow mount. */
static int make_dirs(struct put_bench *b, struct err *err)
{
	static const char *const dirs[] = {"back",	 "back/flat",	   "back/sharded",
					   "back/blobs", "back/blobs/cas", "back/blobs/ac"};
	char name[32];
	int ret = 0;

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]) && ret == 0; i++)
		ret = bench_mkdir(b->dir_fd, dirs[i], err);
	for (unsigned i = 0; i < 2 * CAS_LAYOUT_NR_SHARDS && ret == 0; i++) {
		(void)snprintf(name, sizeof(name), "back/%s/%02x", i % 2 ? "sharded" : "blobs/cas",
			       i / 2);
		ret = bench_mkdir(b->dir_fd, name, err);
	}
	return ret;
}

/* --- report --- */

static void report(struct put_bench *b, size_t rounds, int latency_ms, double same, double other)
{
	auto_free char *title =
		bench_text("%u new blobs of 4 KiB, %d ms a change", b->nr, latency_ms);
	auto_free char *flat = bench_text("put: casbox over flat, %d ms", latency_ms);
	auto_free char *minimal = bench_text("put: casbox over minimal sharded, %d ms", latency_ms);
	auto_free char *known = bench_text("put: changes for known blobs, %d ms", latency_ms);

	if (!title || !flat || !minimal || !known)
		return;
	bench_table(b->rep, "put", title, columns);
	for (int way = 0; way < NR_WAYS; way++) {
		const double values[NR_COLS] = {
			bench_median(b->rate[way], rounds), bench_median(b->ms[way], rounds),
			way == WAY_CASBOX ? bench_median(b->ack_ms, rounds) : NAN};

		bench_row(b->rep, way_names[way], values);
	}
	bench_gate(b->rep, flat, bench_ratio(b->rate[WAY_CASBOX], b->rate[WAY_FLAT], rounds),
		   20 / 1.3, 20);
	bench_gate(b->rep, minimal, bench_ratio(b->rate[WAY_CASBOX], b->rate[WAY_SHARDED], rounds),
		   0.9 / 1.3, 0.9);
	bench_gate(b->rep, known, same + other, 0, 0);
	bench_note(b->rep,
		   "known blobs: %.0f changes from the same store, %.0f from one that is new", same,
		   other);
}

static int measure(struct put_bench *b, int latency_ms, struct err *err)
{
	size_t rounds = b->env->rounds < MAX_ROUNDS ? (size_t)b->env->rounds : MAX_ROUNDS;
	double same = NAN;
	double other = NAN;
	int ret = bench_slow_mount(b->env, b->path, "back", latency_ms, &b->slow, err);

	for (size_t r = 0; r < rounds && ret == 0; r++) {
		ret = native_once(b, false, r, err);
		/* Alternate who is first of the two that are close. */
		if (ret == 0 && r % 2 == 0)
			ret = native_once(b, true, r, err);
		if (ret == 0)
			ret = casbox_once(b, r, err);
		if (ret == 0 && r % 2 != 0)
			ret = native_once(b, true, r, err);
		if (bench_stopped())
			ret = -EINTR;
	}
	if (ret == 0)
		ret = known_once(b, &same, &other, err);
	if (ret == 0)
		report(b, rounds, latency_ms, same, other);
	bench_slow_unmount(&b->slow);
	return ret;
}

int bench_put(struct bench_env *env, struct bench_report *rep, struct err *err)
{
	static const int latencies[] = {5, 20};
	struct put_bench b = {.env = env, .rep = rep, .dir_fd = -1};
	int ret = 0;

	if (!env->casbox)
		return 0;
	if (!env->latfs)
		return err_set(err, -EINVAL, "say where latfs is with --latfs FILE");
	b.nr = BLOBS * env->scale / 100;
	if (b.nr < WRITERS)
		b.nr = WRITERS;
	for (size_t i = 0; i < sizeof(latencies) / sizeof(latencies[0]) && ret == 0; i++) {
		auto_free char *name = bench_text("put-%d", latencies[i]);

		ret = name ? bench_dir_new(env, name, &b.dir_fd, &b.path, err) : -ENOMEM;
		if (ret == 0)
			ret = make_dirs(&b, err);
		if (ret == 0)
			ret = measure(&b, latencies[i], err);
		if (b.dir_fd >= 0)
			(void)close(steal_fd(&b.dir_fd));
		free(steal_ptr(&b.path));
	}
	return ret;
}
