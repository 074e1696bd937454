/* tools/bench/bench_local.c - put-local, put-tree: into a store on the local disk */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_env.h"
#include "tools/bench/bench_race.h"

/*
 * put-local: files of 4 KiB, all different. The minimal program reads each, hashes it,
 * writes it into a file without a name in its shard and links that, with four threads and
 * the durability that casbox is asked for; casbox also records each blob in index and
 * ledger, and which file has which digest. Shards are there beforehand.
 *
 * put-tree: a tree (--tree DIR), copied into the working directory first, by `cp -a` and
 * into a new store; both sync in the end unless durability is none. Then the same tree
 * once more, unchanged, beside a `find` that looks at each of its files.
 */

#define BLOBS	  100000 /* at scale 100 */
#define BLOB_SZ	  4096
#define WRITERS	  4
#define PER_DIR	  1000
#define NR_SHARDS 256

struct local_bench {
	const struct bench_env *env;
	char *path;
	int dir_fd;
	unsigned nr;
};

static void local_fini(struct local_bench *b)
{
	if (b->dir_fd >= 0)
		(void)close(b->dir_fd);
	free(b->path);
}

static void source_name(unsigned i, char out[48])
{
	(void)snprintf(out, 48, "src/%u/%u", i / PER_DIR, i);
}

static int make_sources(const struct local_bench *b, struct err *err)
{
	int ret = bench_mkdir(b->dir_fd, "src", err);

	for (unsigned i = 0; i < b->nr && ret == 0; i++) {
		char data[BLOB_SZ];
		char name[48];
		auto_close int fd = -1;

		source_name(i, name);
		if (i % PER_DIR == 0) {
			char *slash = strrchr(name, '/');

			*slash = '\0';
			ret = bench_mkdir(b->dir_fd, name, err);
			*slash = '/';
		}
		memset(data, 'x', BLOB_SZ);
		(void)snprintf(data, BLOB_SZ, "blob %u\n", i);
		fd = openat(b->dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		if (ret == 0)
			ret = fd < 0 ? -errno : io_write_full(fd, data, BLOB_SZ);
		if (ret < 0)
			return err_set(err, ret, "writing %s: %s", name, strerror(-ret));
	}
	return ret;
}

/* --- the minimal program --- */

struct writer {
	const struct local_bench *b;
	int cas_fd;
	bool full;
	unsigned first;
	int ret;
};

static int read_source(const struct local_bench *b, unsigned i, char data[BLOB_SZ])
{
	char name[48];
	auto_close int fd = -1;
	ssize_t got;

	source_name(i, name);
	fd = openat(b->dir_fd, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	got = io_read_full(fd, data, BLOB_SZ);
	return got < 0 ? (int)got : got < BLOB_SZ ? -EIO : 0;
}

static int link_blob(const struct writer *w, const char *data, const char *path)
{
	char shard[3] = {path[0], path[1], '\0'};
	char proc[32];
	auto_close int fd = openat(w->cas_fd, shard, O_TMPFILE | O_RDWR | O_CLOEXEC, 0444);
	int ret;

	if (fd < 0)
		return -errno;
	ret = io_write_full(fd, data, BLOB_SZ);
	if (ret == 0 && w->full && fdatasync(fd) < 0)
		ret = -errno;
	(void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	if (ret == 0 && linkat(AT_FDCWD, proc, w->cas_fd, path, AT_SYMLINK_FOLLOW) < 0)
		ret = -errno;
	if (ret == 0 && w->full) {
		auto_close int dir_fd = openat(w->cas_fd, shard, O_RDONLY | O_CLOEXEC);

		ret = dir_fd < 0 || fsync(dir_fd) < 0 ? -errno : 0;
	}
	return ret;
}

static void *writer_main(void *arg)
{
	struct writer *w = arg;
	struct cas_hash *hash = NULL;

	w->ret = cas_hash_new(&hash);
	for (unsigned i = w->first; i < w->b->nr && w->ret == 0 && !bench_stopped(); i += WRITERS) {
		char data[BLOB_SZ];
		char path[CAS_LAYOUT_PATH_SZ];
		struct cas_digest d;

		w->ret = read_source(w->b, i, data);
		if (w->ret == 0)
			w->ret = cas_hash_update(hash, data, BLOB_SZ);
		if (w->ret == 0)
			w->ret = cas_hash_final(hash, &d);
		if (w->ret == 0) {
			cas_layout_path(d.hash, path);
			w->ret = link_blob(w, data, path);
		}
	}
	cas_hash_free(hash);
	return NULL;
}

static int run_writers(const struct writer *common)
{
	struct writer writers[WRITERS];
	pthread_t threads[WRITERS];
	int started = 0;
	int ret = 0;

	for (; started < WRITERS; started++) {
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
	return ret;
}

static int make_shards(int dir_fd, const char *parent, struct err *err)
{
	char name[64];
	int ret = bench_mkdir(dir_fd, parent, err);

	for (unsigned i = 0; i < NR_SHARDS && ret == 0; i++) {
		(void)snprintf(name, sizeof(name), "%s/%02x", parent, i);
		ret = bench_mkdir(dir_fd, name, err);
	}
	return ret;
}

static int minimal_run(void *ctx, double *ms, struct err *err)
{
	const struct local_bench *b = ctx;
	struct writer w = {.b = b, .full = strcmp(b->env->durability, "full") == 0};
	auto_close int fd = -1;
	double begin;
	int ret = make_shards(b->dir_fd, "cas", err);

	if (ret < 0)
		return ret;
	fd = bench_open_dir(b->dir_fd, "cas", err);
	if (fd < 0)
		return fd;
	w.cas_fd = fd;
	begin = bench_now_ms();
	ret = run_writers(&w);
	if (ret == 0 && strcmp(b->env->durability, "batch") == 0 && syncfs(fd) < 0)
		ret = -errno;
	*ms = bench_now_ms() - begin;
	return ret < 0 ? err_set(err, ret, "writing into cas/: %s", strerror(-ret)) : 0;
}

static int minimal_undo(void *ctx, struct err *err)
{
	const struct local_bench *b = ctx;

	return io_remove_tree(b->dir_fd, "cas", err);
}

/* --- casbox --- */

/* A store with its shards and databases, which a first blob makes. */
static int store_new(const struct local_bench *b, const char *store, struct err *err)
{
	auto_free char *first = bench_text("%s/first", b->path);
	const char *argv[] = {b->env->casbox, "--store", store, "put", first, NULL};
	auto_close int fd = openat(b->dir_fd, "first", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	auto_buf struct buf out = {0};
	int ret;

	if (!first || fd < 0 || io_write_full(fd, "first\n", 6) < 0)
		return err_set(err, -EIO, "cannot write the first blob");
	ret = bench_spawn_ok(argv, NULL, &out, err);
	return ret < 0 ? ret : make_shards(b->dir_fd, "store/cas", err);
}

static int put_run(void *ctx, double *ms, struct err *err)
{
	const struct local_bench *b = ctx;
	auto_free char *store = bench_text("%s/store", b->path);
	auto_free char *src = bench_text("%s/src", b->path);
	const char *argv[] = {b->env->casbox, "--store", store, "put", "-j", "4", src, NULL};
	int ret;

	if (!store || !src)
		return -ENOMEM;
	ret = store_new(b, store, err);
	return ret < 0 ? ret : bench_timed(argv, ms, err);
}

static int store_undo(void *ctx, struct err *err)
{
	const struct local_bench *b = ctx;

	return io_remove_tree(b->dir_fd, "store", err);
}

int bench_put_local(struct bench_env *env, struct bench_report *rep, struct err *err)
{
	static const struct bench_way ways[] = {
		{"hash, write, link", minimal_run, minimal_undo},
		{"casbox put", put_run, store_undo},
		{NULL, NULL, NULL},
	};
	auto_call(local_fini) struct local_bench b = {.env = env, .dir_fd = -1};
	auto_free char *title = NULL;
	struct bench_race race;
	int ret;

	if (!env->casbox)
		return 0;
	b.nr = BLOBS / 100 * env->scale;
	title = bench_text("%u blobs of 4 KiB from %d writers", b.nr, WRITERS);
	ret = bench_dir_new(env, "put-local", &b.dir_fd, &b.path, err);
	if (ret == 0)
		ret = make_sources(&b, err);
	if (ret == 0)
		ret = bench_race_run(env, ways, &b, &race, err);
	if (ret < 0)
		return ret;
	bench_race_table(rep, "put-local", title, ways, &race);
	bench_gate(rep, "put-local: times the minimal program", bench_race_ratio(&race, 1, 0), 1.95,
		   1.5);
	return io_remove_tree(env->work_fd, "put-local", err);
}

/* --- put-tree --- */

static int sync_unless_none(const struct local_bench *b)
{
	return strcmp(b->env->durability, "none") != 0 && syncfs(b->dir_fd) < 0 ? -errno : 0;
}

static int cp_run(void *ctx, double *ms, struct err *err)
{
	const struct local_bench *b = ctx;
	auto_free char *src = bench_text("%s/src", b->path);
	auto_free char *dst = bench_text("%s/copy", b->path);
	const char *argv[] = {"cp", "-a", src, dst, NULL};
	double begin = bench_now_ms();
	int ret = src && dst ? bench_timed(argv, ms, err) : -ENOMEM;

	if (ret == 0)
		ret = sync_unless_none(b);
	*ms = bench_now_ms() - begin;
	return ret;
}

static int cp_undo(void *ctx, struct err *err)
{
	const struct local_bench *b = ctx;

	return io_remove_tree(b->dir_fd, "copy", err);
}

static int tree_run(void *ctx, double *ms, struct err *err)
{
	const struct local_bench *b = ctx;
	auto_free char *store = bench_text("%s/store", b->path);
	auto_free char *src = bench_text("%s/src", b->path);
	const char *argv[] = {b->env->casbox, "--store", store, "put", src, NULL};

	return store && src ? bench_timed(argv, ms, err) : -ENOMEM;
}

static int find_run(void *ctx, double *ms, struct err *err)
{
	const struct local_bench *b = ctx;
	auto_free char *src = bench_text("%s/src", b->path);
	const char *argv[] = {"find", src, "-size", "+0", NULL};

	return src ? bench_timed(argv, ms, err) : -ENOMEM;
}

static int measure_again(struct local_bench *b, struct bench_report *rep, struct err *err)
{
	static const struct bench_way ways[] = {
		{"find -size +0", find_run, NULL},
		{"casbox put, once more", tree_run, NULL},
		{NULL, NULL, NULL},
	};
	struct bench_race race;
	double ms;
	int ret = tree_run(b, &ms, err);

	if (ret == 0)
		ret = bench_race_run(b->env, ways, b, &race, err);
	if (ret < 0)
		return ret;
	bench_race_table(rep, "put-tree", "the same tree, unchanged", ways, &race);
	bench_gate(rep, "put-tree: unchanged, times find -size +0", bench_race_ratio(&race, 1, 0),
		   2.6, 2.0);
	return 0;
}

int bench_put_tree(struct bench_env *env, struct bench_report *rep, struct err *err)
{
	static const struct bench_way ways[] = {
		{"cp -a", cp_run, cp_undo},
		{"casbox put", tree_run, store_undo},
		{NULL, NULL, NULL},
	};
	auto_call(local_fini) struct local_bench b = {.env = env, .dir_fd = -1};
	auto_free char *title = NULL;
	auto_free char *src = NULL;
	struct bench_race race;
	double ms;
	int ret;

	if (!env->casbox)
		return 0;
	if (!env->tree)
		return err_set(err, -EINVAL, "say which tree to put with --tree DIR");
	title = bench_text("a new store takes %s", env->tree);
	ret = bench_dir_new(env, "put-tree", &b.dir_fd, &b.path, err);
	src = bench_text("%s/src", b.path);
	if (ret == 0)
		ret = bench_timed((const char *const[]){"cp", "-a", env->tree, src, NULL}, &ms,
				  err);
	if (ret == 0)
		ret = bench_race_run(env, ways, &b, &race, err);
	if (ret < 0)
		return ret;
	bench_race_table(rep, "put-tree", title, ways, &race);
	bench_gate(rep, "put-tree: times cp -a", bench_race_ratio(&race, 1, 0), 1.56, 1.2);
	ret = measure_again(&b, rep, err);
	return ret < 0 ? ret : io_remove_tree(env->work_fd, "put-tree", err);
}
