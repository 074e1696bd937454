/* tools/bench/bench_lane.c - the work of an action, and what surrounds it natively */
#include "tools/bench/bench_lane.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_env.h"
#include "tools/bench/bench_tree.h"

#define DATA_SZ	  (256u << 10)
#define NR_HOT	  100  /* files that every action reads some of */
#define NR_MISSED 2500 /* names that are looked for and nowhere */

/* --- life --- */

static int store_make(struct bench_lane *lane, struct err *err)
{
	int ret = bench_mkdir(lane->dir_fd, "kept", err);

	if (ret == 0)
		ret = bench_open_dir(lane->dir_fd, "kept", err);
	if (ret < 0)
		return ret;
	lane->store_fd = ret;
	ret = 0;
	for (unsigned i = 0; ret == 0 && i < 256; i++) {
		char name[3];

		(void)snprintf(name, sizeof(name), "%02x", i);
		ret = bench_mkdir(lane->store_fd, name, err);
	}
	return ret;
}

int bench_lane_open(struct bench_lane *lane, const struct bench_env *env,
		    const struct bench_tree *tree, const char *dir, int index, struct err *err)
{
	int ret;

	*lane = (struct bench_lane){
		.env = env,
		.tree = tree,
		.index = index,
		.dir_fd = -1,
		.floor_fd = -1,
		.store_fd = -1,
		.channel.fd = -1,
	};
	lane->dir = bench_text("%s/lane%d", dir, index);
	lane->data = malloc(DATA_SZ);
	if (!lane->dir || !lane->data)
		return err_set(err, -ENOMEM, "out of memory");
	ret = bench_mkdir(AT_FDCWD, lane->dir, err);
	if (ret == 0)
		ret = bench_open_dir(AT_FDCWD, lane->dir, err);
	if (ret < 0)
		return ret;
	lane->dir_fd = ret;
	ret = store_make(lane, err);
	if (ret == 0)
		ret = bench_mkdir(lane->dir_fd, "floor", err);
	if (ret == 0)
		ret = bench_open_dir(lane->dir_fd, "floor", err);
	if (ret < 0)
		return ret;
	lane->floor_fd = ret;
	return bench_tree_fill(tree, 0, BENCH_FILL_LINK, lane->floor_fd, err);
}

void bench_lane_close(struct bench_lane *lane)
{
	bench_channel_close(&lane->channel);
	if (lane->floor_fd >= 0)
		(void)close(steal_fd(&lane->floor_fd));
	if (lane->store_fd >= 0)
		(void)close(steal_fd(&lane->store_fd));
	if (lane->dir_fd >= 0)
		(void)close(steal_fd(&lane->dir_fd));
	free(lane->dir);
	free(lane->data);
	lane->dir = NULL;
	lane->data = NULL;
}

/* --- what an action reads and writes --- */

/* The nth file that a job reads: first the changed one, then hot ones, then any. */
static size_t job_file(const struct bench_lane *lane, const struct bench_job *job, int nth,
		       uint64_t *state)
{
	size_t nr_files = lane->tree->spec.nr_files;
	uint32_t random = bench_random(state);

	if (nth == 0)
		return bench_tree_change(lane->tree, job->root, 0);
	if (nth < 50 && nr_files > NR_HOT)
		return random % NR_HOT;
	return random % nr_files;
}

/* Output @nth: a head, for the first one the hashes of what was read, and filling. */
static void output_text(const struct bench_job *job, int nth, const struct cas_digest *read,
			uint8_t out[BENCH_OUTPUT_SZ])
{
	int at = snprintf((char *)out, BENCH_OUTPUT_SZ, "%s, root %zu, output %d\n", job->tag,
			  job->root, nth);

	for (int i = 0; nth == 0 && i < BENCH_NR_HASHED; i++) {
		(void)memcpy(out + at, read[i].hash, CAS_HASH_SZ);
		at += CAS_HASH_SZ;
	}
	(void)memset(out + at, 'x', (size_t)(BENCH_OUTPUT_SZ - at));
}

int bench_lane_prepare(struct bench_lane *lane, size_t root, const char *tag, struct bench_job *job,
		       struct err *err)
{
	struct cas_digest read[BENCH_NR_HASHED];
	const struct bench_file *changed;
	const char *dir;
	uint64_t state;
	int ret = bench_tree_move(lane->tree, lane->floor_root, root, lane->floor_fd, err);

	if (ret < 0)
		return ret;
	lane->floor_root = root;
	*job = (struct bench_job){.root = root, .seed = root * 2654435761u + 12345, .tag = tag};
	changed = &lane->tree->files[bench_tree_change(lane->tree, root, 0)];
	dir = lane->own_dir ? "out" : lane->tree->dirs[changed->dir];
	state = job->seed;
	for (int i = 0; i < BENCH_NR_HASHED; i++)
		read[i] = *bench_tree_digest(lane->tree, job_file(lane, job, i, &state), root);
	for (int i = 0; ret == 0 && i < BENCH_NR_OUTPUTS; i++) {
		(void)snprintf(job->out[i], sizeof(job->out[i]), "%s%so%d.o", dir, *dir ? "/" : "",
			       i);
		output_text(job, i, read, lane->data);
		ret = cas_hash_bytes(lane->data, BENCH_OUTPUT_SZ, &job->expect[i]);
	}
	return ret < 0 ? err_set(err, ret, "hashing: %s", strerror(-ret)) : 0;
}

static int work_stat(struct bench_lane *lane, const struct bench_job *job, int root_fd,
		     struct err *err)
{
	const struct bench_tree *tree = lane->tree;
	uint64_t state = job->seed + 1;

	for (int i = 0; i < BENCH_NR_STATS; i++) {
		size_t file = bench_random(&state) % tree->spec.nr_files;
		struct stat st;

		if (fstatat(root_fd, tree->files[file].path, &st, 0) < 0)
			return err_set(err, -errno, "stat of %s: %s", tree->files[file].path,
				       strerror(errno));
		if ((uint64_t)st.st_size != bench_tree_digest(tree, file, job->root)->size)
			return err_set(err, -EBADMSG, "%s has %lld bytes, another root's size",
				       tree->files[file].path, (long long)st.st_size);
	}
	return 0;
}

static int work_miss(struct bench_lane *lane, const struct bench_job *job, int root_fd,
		     struct err *err)
{
	const struct bench_tree *tree = lane->tree;
	uint64_t state = job->seed + 2;

	for (int i = 0; i < BENCH_NR_MISSES; i++) {
		uint32_t name = bench_random(&state) % NR_MISSED;
		const char *dir = tree->dirs[name % tree->spec.nr_dirs];
		char path[256];
		struct stat st;

		(void)snprintf(path, sizeof(path), "%s%smissing%u.h", dir, *dir ? "/" : "", name);
		if (fstatat(root_fd, path, &st, 0) == 0)
			return err_set(err, -EBADMSG, "%s exists in no root, but here", path);
		if (errno != ENOENT)
			return err_set(err, -errno, "stat of %s: %s", path, strerror(errno));
	}
	return 0;
}

static int read_whole(struct bench_lane *lane, int root_fd, const char *path, ssize_t *len,
		      struct err *err)
{
	auto_close int fd = openat(root_fd, path, O_RDONLY | O_CLOEXEC);
	ssize_t got = 0;
	struct stat st;

	if (fd < 0)
		return err_set(err, -errno, "opening %s: %s", path, strerror(errno));
	if (fstat(fd, &st) < 0)
		return err_set(err, -errno, "stat of %s: %s", path, strerror(errno));
	for (*len = 0; *len < (ssize_t)DATA_SZ; *len += got) {
		got = read(fd, lane->data + *len, DATA_SZ - (size_t)*len);
		if (got < 0)
			return err_set(err, -errno, "reading %s: %s", path, strerror(errno));
		if (got == 0 || *len + got >= st.st_size) {
			*len += got;
			break;
		}
	}
	return 0;
}

static int work_read(struct bench_lane *lane, const struct bench_job *job, int root_fd,
		     struct cas_digest *read, struct err *err)
{
	const struct bench_tree *tree = lane->tree;
	uint64_t state = job->seed;

	for (int i = 0; i < BENCH_NR_READS; i++) {
		size_t file = job_file(lane, job, i, &state);
		const char *path = tree->files[file].path;
		ssize_t len = 0;
		int ret = read_whole(lane, root_fd, path, &len, err);

		if (ret == 0 && i < BENCH_NR_HASHED)
			ret = cas_hash_bytes(lane->data, (size_t)len, &read[i]);
		if (ret < 0)
			return ret;
		if ((uint64_t)len != bench_tree_digest(tree, file, job->root)->size)
			return err_set(err, -EBADMSG, "%s reads as %zd bytes", path, len);
	}
	return 0;
}

static int work_write(struct bench_lane *lane, const struct bench_job *job, int root_fd,
		      const struct cas_digest *read, struct err *err)
{
	for (int i = 0; i < BENCH_NR_OUTPUTS; i++) {
		int fd = openat(root_fd, job->out[i], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
				0644);
		int ret;

		if (fd < 0)
			return err_set(err, -errno, "creating %s: %s", job->out[i],
				       strerror(errno));
		output_text(job, i, read, lane->data);
		ret = io_write_full(fd, lane->data, BENCH_OUTPUT_SZ);
		if (close(fd) < 0 && ret == 0)
			ret = -errno;
		if (ret < 0)
			return err_set(err, ret, "writing %s: %s", job->out[i], strerror(-ret));
	}
	return 0;
}

int bench_job_work(struct bench_lane *lane, const struct bench_job *job, int root_fd, double *times,
		   struct err *err)
{
	struct cas_digest read[BENCH_NR_HASHED];
	double at[5];
	int ret;

	at[0] = bench_now_ms();
	ret = work_stat(lane, job, root_fd, err);
	at[1] = bench_now_ms();
	if (ret == 0)
		ret = work_miss(lane, job, root_fd, err);
	at[2] = bench_now_ms();
	if (ret == 0)
		ret = work_read(lane, job, root_fd, read, err);
	at[3] = bench_now_ms();
	if (ret == 0)
		ret = work_write(lane, job, root_fd, read, err);
	at[4] = bench_now_ms();
	times[BENCH_STAT] = at[1] - at[0];
	times[BENCH_MISS] = at[2] - at[1];
	times[BENCH_READ] = at[3] - at[2];
	times[BENCH_WRITE] = at[4] - at[3];
	times[BENCH_WORK] = at[4] - at[0];
	return ret;
}

int bench_job_keep(struct bench_lane *lane, const struct bench_job *job, int base_fd,
		   struct err *err)
{
	for (int i = 0; i < BENCH_NR_OUTPUTS; i++) {
		char hex[CAS_HASH_HEX_SZ + 1];
		char to[CAS_HASH_HEX_SZ + 4];
		struct cas_digest digest;
		ssize_t len = 0;
		int ret = read_whole(lane, base_fd, job->out[i], &len, err);

		if (ret == 0)
			ret = cas_hash_bytes(lane->data, (size_t)len, &digest);
		if (ret < 0)
			return ret;
		if (!cas_digest_equal(&digest, &job->expect[i]))
			return err_set(err, -EBADMSG, "output %s of %s, root %zu: other bytes",
				       job->out[i], job->tag, job->root);
		cas_hash_format(digest.hash, hex);
		(void)snprintf(to, sizeof(to), "%.2s/%s", hex, hex);
		if (fchmodat(base_fd, job->out[i], 0444, 0) < 0 ||
		    renameat(base_fd, job->out[i], lane->store_fd, to) < 0)
			return err_set(err, -errno, "keeping output %s: %s", job->out[i],
				       strerror(errno));
	}
	return 0;
}
