/* tools/bench/bench_write.c - write: many small outputs, a large one, and their capture */
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
#include "tools/bench/bench_group.h"
#include "tools/bench/bench_tree.h"

/*
 * The same files are written natively and in a sandbox. Native time of "capture" is that
 * of opening, reading and hashing each byte once. Who writes in a sandbox is in its control group,
 * as an action is, so that files can be moved into the store. A capture is "right after" when it
 * follows the last write, and "later" when casbox had time for what it does ahead. Every round and
 * place writes other bytes, so that the store knows none of them.
 *
 * Captured files may lie in the store's landing/ for a while. Nothing else is timed before they
 * are in their shards, and how long that took after the capture is told beside it.
 *
 * Small files are deleted only after the last of them was made: ext4 without a journal
 * steps around inodes freed in the last seconds, and whichever way comes next pays for it.
 */
#define NR_SMALL   10000 /* at full scale */
#define NR_SUBDIRS 100
#define SMALL_MAX  8192
#define CHUNK_SZ   (1 << 20)

/* @dir is where the files go, below the sandbox: an output. */
struct shape {
	const char *name;
	const char *options; /* of create */
	const char *dir;
	bool make_dir; /* the action makes it */
	bool large;
	double must, target;
	double plain_must, plain_target; /* of plain users, whom casbox serves itself; 0: none */
};

static const struct shape shapes[] = {
	{"small files, own directory", "--output out/", "out", false, false, 1.2, 1.05, 5, 4},
	{"small files, beside inputs", "--output src/gen", "src/gen", true, false, 2.2, 1.6, 5, 4},
	{"large file, own directory", "--output out/", "out", false, true, 1.1, 1.0, 0, 0},
};
#define NR_SHAPES (sizeof(shapes) / sizeof(shapes[0]))

enum { NATIVE_WRITE, BOX_WRITE, NATIVE_HASH, BOX_CAPTURE, BOX_LATER, BOX_MOVED, NR_TIMES };

#define LATER_ROUNDS 2 /* the blobs stay, and take space */
#define CALM_MS	     200
#define CALM_MAX_MS  10000
#define FIRST_MS     1000

struct write_bench {
	struct bench_scene scene;
	char root[CAS_DIGEST_STR_SZ];
	uint8_t *data; /* CHUNK_SZ */
	double *times[NR_TIMES];
	unsigned nr_small;
	unsigned serial;
	unsigned nr_boxes;
	bool no_group; /* files are copied: nobody may make control groups here */
};

/* --- the files --- */

static uint32_t small_size(unsigned file)
{
	uint64_t state = file;

	return 1024 + bench_random(&state) % (SMALL_MAX - 1024);
}

/* Distinct for each serial and file: a stamp at the front of the common bytes. */
static void stamp(struct write_bench *w, unsigned serial, uint64_t part)
{
	(void)memcpy(w->data, &serial, sizeof(serial));
	(void)memcpy(w->data + sizeof(serial), &part, sizeof(part));
}

static int write_file(struct write_bench *w, int dir_fd, const char *name, uint64_t len,
		      unsigned serial, uint64_t part, struct err *err)
{
	int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	int ret = 0;

	if (fd < 0)
		return err_set(err, -errno, "creating %s: %s", name, strerror(errno));
	for (uint64_t at = 0; ret == 0 && at < len; at += CHUNK_SZ) {
		stamp(w, serial, part + (at << 20));
		ret = io_write_full(fd, w->data,
				    len - at < CHUNK_SZ ? (size_t)(len - at) : CHUNK_SZ);
	}
	if (close(fd) < 0 && ret == 0)
		ret = -errno;
	return ret < 0 ? err_set(err, ret, "writing %s: %s", name, strerror(-ret)) : 0;
}

static int write_all(struct write_bench *w, const struct shape *shape, int dir_fd, unsigned serial,
		     struct err *err)
{
	char name[32];
	int ret = 0;

	if (shape->large)
		return write_file(w, dir_fd, "large", w->scene.env->bytes, serial, 0, err);
	for (unsigned i = 0; ret == 0 && i < NR_SUBDIRS; i++) {
		(void)snprintf(name, sizeof(name), "d%02u", i);
		ret = bench_mkdir(dir_fd, name, err);
	}
	for (unsigned i = 0; ret == 0 && i < w->nr_small; i++) {
		(void)snprintf(name, sizeof(name), "d%02u/f%05u.o", i % NR_SUBDIRS, i);
		ret = write_file(w, dir_fd, name, small_size(i), serial, i, err);
	}
	return ret;
}

static int hash_file(int dir_fd, const char *name, struct cas_digest *out, struct err *err)
{
	auto_close int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	int ret = fd < 0 ? -errno : cas_hash_fd(fd, out);

	return ret < 0 ? err_set(err, ret, "hashing %s: %s", name, strerror(-ret)) : 0;
}

static int hash_all(const struct write_bench *w, const struct shape *shape, int dir_fd,
		    struct err *err)
{
	struct cas_digest digest;
	char name[32];
	int ret = 0;

	if (shape->large)
		return hash_file(dir_fd, "large", &digest, err);
	for (unsigned i = 0; ret == 0 && i < w->nr_small; i++) {
		(void)snprintf(name, sizeof(name), "d%02u/f%05u.o", i % NR_SUBDIRS, i);
		ret = hash_file(dir_fd, name, &digest, err);
	}
	return ret;
}

/* What the store now shows under the directory's digest is what was written. */
static int verify_all(struct write_bench *w, const struct shape *shape,
		      const struct cas_digest *top, unsigned serial, struct err *err)
{
	auto_free char *path = bench_box_path(w->scene.box, "cas/directory", top);
	auto_close int fd = path ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	int ret = 0;

	if (fd < 0)
		return err_set(err, -errno, "opening %s: %s", path ? path : "", strerror(errno));
	for (unsigned i = 0; ret == 0 && !shape->large && i < w->nr_small; i++) {
		struct cas_digest got, want;
		char name[32];

		(void)snprintf(name, sizeof(name), "d%02u/f%05u.o", i % NR_SUBDIRS, i);
		stamp(w, serial, i);
		ret = hash_file(fd, name, &got, err);
		if (ret == 0)
			ret = cas_hash_bytes(w->data, small_size(i), &want);
		if (ret == 0 && !cas_digest_equal(&got, &want))
			ret = err_set(err, -EBADMSG, "output %s holds other bytes", name);
	}
	if (ret == 0 && shape->large) {
		struct stat st;

		if (fstatat(fd, "large", &st, 0) < 0 || (uint64_t)st.st_size != w->scene.env->bytes)
			ret = err_set(err, -EBADMSG, "the large output was not captured whole");
	}
	return ret;
}

/* --- one round --- */

static int native_once(struct write_bench *w, const struct shape *shape, size_t round,
		       struct err *err)
{
	unsigned serial = w->serial++;
	auto_close int fd = -1;
	char name[32];
	double at[3];
	int ret;

	(void)snprintf(name, sizeof(name), "native-%u", serial);
	ret = bench_mkdir(w->scene.dir_fd, name, err);
	if (ret < 0)
		return ret;
	fd = bench_open_dir(w->scene.dir_fd, name, err);
	if (fd < 0)
		return fd;
	at[0] = bench_now_ms();
	ret = write_all(w, shape, fd, serial, err);
	at[1] = bench_now_ms();
	if (ret == 0)
		ret = hash_all(w, shape, fd, err);
	at[2] = bench_now_ms();
	w->times[NATIVE_WRITE][round] = at[1] - at[0];
	w->times[NATIVE_HASH][round] = at[2] - at[1];
	return ret < 0 || !shape->large ? ret : io_remove_tree(w->scene.dir_fd, name, err);
}

struct writing {
	struct write_bench *w;
	const struct shape *shape;
	const char *top;
	unsigned serial;
};

static int write_in_box(void *ctx, double *ms, struct err *err)
{
	const struct writing *job = ctx;
	auto_free char *dir = bench_text("%s/%s", job->top, job->shape->dir);
	auto_close int fd = -1;
	double begin = bench_now_ms();
	int ret = dir ? 0 : err_set(err, -ENOMEM, "out of memory");

	if (ret == 0 && job->shape->make_dir)
		ret = bench_mkdir(AT_FDCWD, dir, err);
	if (ret < 0)
		return ret;
	fd = bench_open_dir(AT_FDCWD, dir, err);
	if (fd < 0)
		return fd;
	ret = write_all(job->w, job->shape, fd, job->serial, err);
	*ms = bench_now_ms() - begin;
	return ret;
}

static int box_write(struct write_bench *w, const struct shape *shape, const char *id,
		     const char *top, unsigned serial, double *ms, struct err *err)
{
	struct writing job = {w, shape, top, serial};
	auto_free char *group = NULL;
	int ret = bench_group_make(&w->scene.channel, id, &group, err);

	w->no_group |= ret == 0 && !group;
	return ret < 0 ? ret : bench_group_run(group, write_in_box, &job, ms, err);
}

static int ask(struct write_bench *w, const char *what, json_int_t *out, struct err *err)
{
	json_t *answer = NULL;
	int ret = bench_ask(&w->scene.channel, &answer, err, "stats");

	*out = json_integer_value(json_object_get(answer, what));
	json_decref(answer);
	return ret;
}

static int ask_hashed(struct write_bench *w, json_int_t *out, struct err *err)
{
	return ask(w, "early_hashed", out, err);
}

/* Until all that was captured is in its shard. */
static int wait_moved(struct write_bench *w, struct err *err)
{
	json_int_t waiting = 1;
	int ret = 0;

	while (ret == 0 && waiting > 0 && !bench_stopped()) {
		ret = ask(w, "landing_blobs", &waiting, err);
		if (waiting > 0)
			(void)usleep(2000);
	}
	return ret;
}

/* Until more than @before were hashed ahead, or none is, and no more for a while. */
static int wait_calm(struct write_bench *w, const struct shape *shape, json_int_t before,
		     struct err *err)
{
	double begin = bench_now_ms();
	double changed = begin;
	json_int_t last = before;
	int ret = 0;

	while (ret == 0 && bench_now_ms() - begin < CALM_MAX_MS) {
		double patience = last > before ? CALM_MS : shape->large ? CALM_MAX_MS : FIRST_MS;
		json_int_t now = last;

		if (bench_now_ms() - changed > patience)
			break;
		(void)usleep(20000);
		ret = ask_hashed(w, &now, err);
		if (now != last)
			changed = bench_now_ms();
		last = now;
	}
	return ret;
}

static int box_once(struct write_bench *w, const struct shape *shape, size_t round, bool later,
		    struct err *err)
{
	double *write_ms = &w->times[BOX_WRITE][round];
	json_int_t hashed = 0;
	double unused;
	unsigned serial = w->serial++;
	auto_free char *top = NULL;
	struct cas_digest digest;
	double begin;
	char id[32];
	int ret;

	(void)snprintf(id, sizeof(id), "write-%u", w->nr_boxes++);
	ret = bench_create(&w->scene.channel, w->root, id, shape->options, &top, err);
	if (ret == 0 && later)
		ret = ask_hashed(w, &hashed, err);
	if (ret == 0)
		ret = box_write(w, shape, id, top, serial, later ? &unused : write_ms, err);
	if (ret == 0 && later)
		ret = wait_calm(w, shape, hashed, err);
	begin = bench_now_ms();
	if (ret == 0)
		ret = bench_finish(&w->scene.channel, id, false, &digest, err);
	w->times[later ? BOX_LATER : BOX_CAPTURE][round] = bench_now_ms() - begin;
	begin = bench_now_ms();
	if (ret == 0)
		ret = wait_moved(w, err);
	if (!later)
		w->times[BOX_MOVED][round] = bench_now_ms() - begin;
	if (ret == 0)
		ret = verify_all(w, shape, &digest, serial, err);
	return ret < 0 || !shape->large ? ret : bench_remove(&w->scene.channel, id, err);
}

static int shape_run(struct write_bench *w, const struct shape *shape, double *values,
		     struct err *err)
{
	size_t rounds = (size_t)w->scene.env->rounds;
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < rounds; i++) {
		for (size_t t = BOX_WRITE; t < NR_TIMES; t++)
			w->times[t][i] = t == NATIVE_HASH ? 0 : NAN;
		for (size_t k = 0; ret == 0 && k < 2; k++) {
			if ((i + k) % 2 == 0)
				ret = native_once(w, shape, i, err);
			else if (w->scene.box)
				ret = box_once(w, shape, i, false, err);
		}
		if (ret == 0 && w->scene.box && i < LATER_ROUNDS)
			ret = box_once(w, shape, i, true, err);
		if (ret == 0 && bench_stopped())
			ret = err_set(err, -EINTR, "stopped");
	}
	if (ret < 0)
		return ret;
	values[0] = bench_median(w->times[NATIVE_WRITE], rounds);
	values[1] = bench_median(w->times[BOX_WRITE], rounds);
	values[2] = bench_ratio(w->times[BOX_WRITE], w->times[NATIVE_WRITE], rounds);
	values[3] = bench_median(w->times[NATIVE_HASH], rounds);
	values[4] = bench_median(w->times[BOX_CAPTURE], rounds);
	values[5] = bench_ratio(w->times[BOX_CAPTURE], w->times[NATIVE_HASH], rounds);
	values[6] = bench_median(w->times[BOX_MOVED], rounds);
	values[7] = bench_median(w->times[BOX_LATER], rounds);
	values[8] = bench_ratio(w->times[BOX_LATER], w->times[NATIVE_HASH], rounds);
	return 0;
}

static int shape_row(struct write_bench *w, struct bench_report *rep, const struct shape *shape,
		     struct err *err)
{
	auto_free char *writing = bench_text("write, %s: times ext4", shape->name);
	auto_free char *capture = bench_text("capture right after, %s: times hashing", shape->name);
	auto_free char *later = bench_text("capture later, %s: times hashing", shape->name);
	bool plain = geteuid() != 0;
	double values[9];
	int ret = shape_run(w, shape, values, err);

	if (ret < 0)
		return ret;
	bench_row(rep, shape->name, values);
	if (w->scene.box && writing && capture && later) {
		if (!plain)
			bench_gate(rep, writing, values[2], shape->must, shape->target);
		else if (shape->plain_must > 0)
			bench_gate(rep, writing, values[2], shape->plain_must, shape->plain_target);
		bench_gate(rep, capture, values[5], 1.2, 1.2);
		bench_gate(rep, later, values[8], 1.2, 1.2);
	}
	return 0;
}

/* --- preparation --- */

/* An input tree with a directory src that has inputs. */
static int source_make(struct write_bench *w, struct err *err)
{
	auto_free char *source = bench_text("%s/source", w->scene.dir);
	int ret = bench_mkdir(w->scene.dir_fd, "source", err);

	if (ret == 0)
		ret = bench_mkdir(w->scene.dir_fd, "source/src", err);
	for (unsigned i = 0; ret == 0 && i < 20; i++) {
		char name[32];

		(void)snprintf(name, sizeof(name), "source/src/in%u.c", i);
		ret = write_file(w, w->scene.dir_fd, name, 3000, ~0u, i, err);
	}
	if (ret == 0 && w->scene.box)
		ret = source ? bench_box_put(w->scene.box, source, w->root, err) : -ENOMEM;
	return ret < 0 ? ret : bench_scene_mount(&w->scene, err);
}

static int buffers_make(struct write_bench *w)
{
	uint64_t state = 6;

	w->data = malloc(CHUNK_SZ);
	for (size_t t = 0; t < NR_TIMES; t++) {
		w->times[t] = calloc((size_t)w->scene.env->rounds, sizeof(double));
		if (!w->times[t])
			return -ENOMEM;
	}
	if (!w->data)
		return -ENOMEM;
	for (size_t i = 0; i < CHUNK_SZ; i++)
		w->data[i] = (uint8_t)bench_random(&state);
	return 0;
}

int bench_write(struct bench_env *env, struct bench_report *rep, struct err *err)
{
	static const struct bench_column columns[] = {
		{"ext4_ms", "native", 1},	  {"casbox_ms", "casbox", 1},
		{"times_ext4", "times", 2},	  {"hash_ms", "hashing", 1},
		{"capture_ms", "right after", 1}, {"times_hash", "times", 2},
		{"moved_ms", "then moved", 1},	  {"later_ms", "later", 1},
		{"later_times_hash", "times", 2}, {NULL, NULL, 0}};
	struct write_bench w = {.nr_small = NR_SMALL * env->scale / 100};
	int ret = bench_scene_open(&w.scene, env, "write", err);

	if (ret == 0 && buffers_make(&w) < 0)
		ret = err_set(err, -ENOMEM, "out of memory");
	if (ret == 0)
		ret = source_make(&w, err);
	if (ret == 0)
		bench_table(rep, "write", "outputs, and their capture against hashing once, ms",
			    columns);
	for (size_t i = 0; ret == 0 && i < NR_SHAPES; i++)
		ret = shape_row(&w, rep, &shapes[i], err);
	if (ret == 0 && w.scene.box)
		bench_note(rep, w.no_group ? "write: no control group can be made here: copied, "
					     "not moved"
					   : "write: in a control group, so that files are moved");
	for (size_t t = 0; t < NR_TIMES; t++)
		free(w.times[t]);
	free(w.data);
	return bench_scene_close(&w.scene, ret, err);
}
