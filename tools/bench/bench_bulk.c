/* tools/bench/bench_bulk.c - bulk: a large input, in a sandbox and through cas/file */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_box.h"
#include "tools/bench/bench_env.h"
#include "tools/bench/bench_tree.h"

/*
 * The blob is in the page cache of the store's filesystem; a "first" use is one for which
 * the mount has no pages of its own yet (they are given up with POSIX_FADV_DONTNEED before
 * each round). The native file is always warm: nothing can be better.
 */
#define READ_SZ (128 << 10)

enum measure { FIRST, WARM, MAPPED, EXEC, NR_MEASURES };
enum place { NATIVE, SANDBOX, VIEW, NR_PLACES };

static const char *const measure_names[] = {"first read", "warm sequential", "first mapping",
					    "first exec"};
/* In a sandbox; the view must reach 1.1 and should reach 1.0 in all. */
static const double musts[] = {2.5, 1.3, 2.0, 2.0};
static const double targets[] = {1.5, 1.1, 1.3, 1.3};

struct bulk {
	struct bench_scene scene;
	uint8_t *data;
	char *file[NR_PLACES]; /* the large file */
	char *tool[NR_PLACES]; /* a program, to execute */
	struct cas_digest digest;
	double *times[NR_PLACES][NR_MEASURES];
};

static int read_all(struct bulk *b, const char *path, struct err *err)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t total = 0;
	ssize_t got;

	if (fd < 0)
		return err_set(err, -errno, "opening %s: %s", path, strerror(errno));
	while ((got = read(fd, b->data, READ_SZ)) > 0)
		total += (uint64_t)got;
	if (got < 0 || total != b->scene.env->bytes)
		return err_set(err, got < 0 ? -errno : -EBADMSG, "reading %s: %s", path,
			       got < 0 ? strerror(errno) : "another size");
	return 0;
}

static int map_all(struct bulk *b, const char *path, struct err *err)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t len = (size_t)b->scene.env->bytes;
	volatile uint8_t sum = 0;
	uint8_t *map;

	if (fd < 0)
		return err_set(err, -errno, "opening %s: %s", path, strerror(errno));
	map = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return err_set(err, -errno, "mapping %s: %s", path, strerror(errno));
	for (size_t i = 0; i < len; i += 4096)
		sum = (uint8_t)(sum + map[i]);
	(void)munmap(map, len);
	return 0;
}

static int exec_tool(const char *path, struct err *err)
{
	const char *argv[] = {path, "--help", NULL};
	auto_buf struct buf out = {0};

	return bench_spawn_ok(argv, NULL, &out, err);
}

/* Let the mount's own pages of a file go. */
static int forget(const char *path, struct err *err)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return err_set(err, -errno, "opening %s: %s", path, strerror(errno));
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	return 0;
}

static int measure_once(struct bulk *b, enum place place, enum measure m, double *ms,
			struct err *err)
{
	const char *path = m == EXEC ? b->tool[place] : b->file[place];
	double begin;
	int ret = 0;

	/* Giving up the native file's pages would make it cold. */
	if (place != NATIVE && m != WARM)
		ret = forget(path, err);
	begin = bench_now_ms();
	if (ret == 0 && m == EXEC)
		ret = exec_tool(path, err);
	else if (ret == 0)
		ret = m == MAPPED ? map_all(b, path, err) : read_all(b, path, err);
	*ms = bench_now_ms() - begin;
	return ret;
}

static int round_run(struct bulk *b, size_t round, struct err *err)
{
	size_t nr_places = b->scene.box ? NR_PLACES : 1;
	int ret = 0;

	for (size_t m = 0; m < NR_MEASURES; m++) {
		for (size_t k = 0; ret == 0 && k < nr_places; k++) {
			size_t p = (k + round) % nr_places;

			ret = measure_once(b, (enum place)p, (enum measure)m,
					   &b->times[p][m][round], err);
		}
	}
	if (ret == 0 && bench_stopped())
		ret = err_set(err, -EINTR, "stopped");
	return ret;
}

static void report(struct bulk *b, struct bench_report *rep)
{
	static const struct bench_column columns[] = {
		{"native_ms", "native", 1}, {"sandbox_ms", "sandbox", 1},
		{"view_ms", "cas/file", 1}, {"sandbox_times", "times", 2},
		{"view_times", "times", 2}, {NULL, NULL, 0}};
	size_t rounds = (size_t)b->scene.env->rounds;
	auto_free char *title = bench_text("%llu MiB that the store has warm, ms",
					   (unsigned long long)b->scene.env->bytes >> 20);

	bench_table(rep, "bulk", title ? title : "ms", columns);
	for (size_t m = 0; m < NR_MEASURES; m++) {
		double values[5];
		auto_free char *box = bench_text("bulk, sandbox, %s", measure_names[m]);
		auto_free char *view = bench_text("bulk, cas/file, %s", measure_names[m]);

		for (size_t p = 0; p < NR_PLACES; p++)
			values[p] = bench_median(b->times[p][m], rounds);
		values[3] = bench_ratio(b->times[SANDBOX][m], b->times[NATIVE][m], rounds);
		values[4] = bench_ratio(b->times[VIEW][m], b->times[NATIVE][m], rounds);
		bench_row(rep, measure_names[m], values);
		if (!b->scene.box || !box || !view)
			continue;
		bench_gate(rep, box, values[3], musts[m], targets[m]);
		if (m != EXEC)
			bench_gate(rep, view, values[4], 1.1, 1.0);
	}
}

/* --- preparation --- */

static int make_large(struct bulk *b, int dir_fd, struct err *err)
{
	auto_close int fd = openat(dir_fd, "large", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	uint64_t state = 5;
	int ret = 0;

	if (fd < 0)
		return err_set(err, -errno, "making the large file: %s", strerror(errno));
	for (uint64_t at = 0; ret == 0 && at < b->scene.env->bytes; at += READ_SZ) {
		uint64_t left = b->scene.env->bytes - at;

		for (size_t i = 0; i < READ_SZ; i += 4) {
			uint32_t word = bench_random(&state);

			(void)memcpy(b->data + i, &word, 4);
		}
		ret = io_write_full(fd, b->data, left < READ_SZ ? (size_t)left : READ_SZ);
	}
	if (ret == 0)
		ret = cas_hash_fd(fd, &b->digest);
	return ret < 0 ? err_set(err, ret, "writing the large file: %s", strerror(-ret)) : 0;
}

static int make_tool(struct bulk *b, int dir_fd, struct cas_digest *digest, struct err *err)
{
	auto_close int in = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	auto_close int out = openat(dir_fd, "tool", O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	ssize_t got;
	int ret = in < 0 || out < 0 ? -errno : cas_hash_fd(in, digest);

	while (ret == 0 && (got = io_read_full(in, b->data, READ_SZ)) != 0)
		ret = got < 0 ? (int)got : io_write_full(out, b->data, (size_t)got);
	return ret < 0 ? err_set(err, ret, "copying a program: %s", strerror(-ret)) : 0;
}

static int box_prepare(struct bulk *b, const struct cas_digest *tool, struct err *err)
{
	auto_free char *source = bench_text("%s/source", b->scene.dir);
	auto_free char *top = NULL;
	char root[CAS_DIGEST_STR_SZ];
	int ret = source ? bench_box_put(b->scene.box, source, root, err) : -ENOMEM;

	if (ret == 0)
		ret = bench_scene_mount(&b->scene, err);
	if (ret == 0)
		ret = bench_create(&b->scene.channel, root, "bulk", "--output out/", &top, err);
	if (ret < 0)
		return ret;
	b->file[SANDBOX] = bench_text("%s/large", top);
	b->tool[SANDBOX] = bench_text("%s/tool", top);
	b->file[VIEW] = bench_box_path(b->scene.box, "cas/file", &b->digest);
	b->tool[VIEW] = bench_box_path(b->scene.box, "cas/executable", tool);
	if (!b->file[SANDBOX] || !b->tool[SANDBOX] || !b->file[VIEW] || !b->tool[VIEW])
		return err_set(err, -ENOMEM, "out of memory");
	/* So that the store's own copy is what is warm. */
	return bench_box_check_blob(b->scene.box, &b->digest, err);
}

static int bulk_prepare(struct bulk *b, struct err *err)
{
	auto_close int fd = -1;
	struct cas_digest tool;
	int ret = bench_mkdir(b->scene.dir_fd, "source", err);

	if (ret < 0)
		return ret;
	fd = bench_open_dir(b->scene.dir_fd, "source", err);
	if (fd < 0)
		return fd;
	ret = make_large(b, fd, err);
	if (ret == 0)
		ret = make_tool(b, fd, &tool, err);
	b->file[NATIVE] = bench_text("%s/source/large", b->scene.dir);
	b->tool[NATIVE] = bench_text("%s/source/tool", b->scene.dir);
	if (ret == 0 && (!b->file[NATIVE] || !b->tool[NATIVE]))
		ret = err_set(err, -ENOMEM, "out of memory");
	for (size_t p = 0; p < NR_PLACES; p++) {
		for (size_t m = 0; ret == 0 && m < NR_MEASURES; m++) {
			b->times[p][m] = calloc((size_t)b->scene.env->rounds, sizeof(double));
			if (!b->times[p][m])
				ret = err_set(err, -ENOMEM, "out of memory");
			for (int i = 0; ret == 0 && i < b->scene.env->rounds; i++)
				b->times[p][m][i] = NAN;
		}
	}
	return ret == 0 && b->scene.box ? box_prepare(b, &tool, err) : ret;
}

/* The bytes, as each place shows them. */
static int bulk_verify(struct bulk *b, struct err *err)
{
	auto_close int fd = open(b->file[SANDBOX], O_RDONLY | O_CLOEXEC);
	struct cas_digest got;
	int ret = fd < 0 ? -errno : cas_hash_fd(fd, &got);

	if (ret < 0)
		return err_set(err, ret, "reading %s: %s", b->file[SANDBOX], strerror(-ret));
	if (!cas_digest_equal(&got, &b->digest))
		return err_set(err, -EBADMSG, "%s holds other bytes", b->file[SANDBOX]);
	ret = bench_box_check_blob(b->scene.box, &b->digest, err);
	return ret < 0 ? ret : bench_remove(&b->scene.channel, "bulk", err);
}

int bench_bulk(struct bench_env *env, struct bench_report *rep, struct err *err)
{
	struct bulk b = {.data = malloc(READ_SZ)};
	int ret = bench_scene_open(&b.scene, env, "bulk", err);

	if (ret == 0 && !b.data)
		ret = err_set(err, -ENOMEM, "out of memory");
	if (ret == 0)
		ret = bulk_prepare(&b, err);
	if (ret == 0)
		ret = read_all(&b, b.file[NATIVE], err);
	for (int i = 0; ret == 0 && i < env->rounds; i++)
		ret = round_run(&b, (size_t)i, err);
	if (ret == 0)
		report(&b, rep);
	if (ret == 0 && b.scene.box)
		ret = bulk_verify(&b, err);
	for (size_t p = 0; p < NR_PLACES; p++) {
		for (size_t m = 0; m < NR_MEASURES; m++)
			free(b.times[p][m]);
		free(b.file[p]);
		free(b.tool[p]);
	}
	free(b.data);
	return bench_scene_close(&b.scene, ret, err);
}
