/* tools/bench/bench_remote.c - remote: a tree behind a REAPI server some milliseconds away */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_box.h"
#include "tools/bench/bench_env.h"

/*
 * tests/reapid serves the blobs of the tree on loopback and answers each call 5 ms later
 * than it could. Each round begins with an empty store. First `find` goes through a
 * sandbox of the tree. Then, in another empty store, a sandbox reads files here and there;
 * the store is emptied with `gc`, which leaves what was learned; and another sandbox reads
 * the same. Times run from the create command on.
 */

#define DELAY_MS    5
#define READS	    1000 /* at scale 100 */
#define MAX_ROUNDS  16
#define START_TRIES 500

enum { COL_MS, COL_CALLS, COL_PER, NR_COLS };
static const struct bench_column columns[] = {
	{"total_ms", "total", 0},
	{"calls", "calls", 0},
	{"each_ms", "each", 3},
	{NULL, NULL, 0},
};

enum { WAY_FIND, WAY_DEMAND, WAY_LEARNED, NR_WAYS };
static const char *const way_names[NR_WAYS] = {"find", "reads on demand", "reads learned before"};

struct remote {
	struct bench_scene scene;
	struct bench_report *rep;
	pid_t server;
	int server_in; /* it ends when this is closed */
	char root[CAS_DIGEST_STR_SZ];
	size_t nr_dirs;
	size_t nr_reads;
	char **reads; /* paths from the root */
	size_t rounds;
	double ms[NR_WAYS][MAX_ROUNDS];
	double calls[NR_WAYS][MAX_ROUNDS];
};

/* --- the server --- */

/* Its blobs are those of the store that the tree was put into. */
static int link_blobs(const struct remote *r, struct err *err)
{
	char name[16];
	int ret = 0;

	for (unsigned i = 0; ret == 0 && i < CAS_LAYOUT_NR_SHARDS; i++) {
		auto_closedir DIR *dir = NULL;
		struct dirent *e;
		int fd;

		(void)snprintf(name, sizeof(name), "far/cas/%02x", i);
		fd = openat(r->scene.dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		dir = fd < 0 ? NULL : fdopendir(fd);
		while (ret == 0 && dir && (e = readdir(dir)) != NULL) {
			auto_free char *to = bench_text("server/data/cache/cas/%s", e->d_name);

			if (!to || (e->d_name[0] != '.' &&
				    linkat(fd, e->d_name, r->scene.dir_fd, to, 0) < 0))
				ret = err_set(err, -errno, "linking blob %s: %m", e->d_name);
		}
	}
	return ret;
}

static int make_server(const struct remote *r, struct err *err)
{
	static const char *const dirs[] = {"server", "server/data", "server/data/cache",
					   "server/data/cache/cas", "server/data/cache/ac"};
	int ret = 0;

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]) && ret == 0; i++)
		ret = bench_mkdir(r->scene.dir_fd, dirs[i], err);
	return ret < 0 ? ret : link_blobs(r, err);
}

static int spawn_server(struct remote *r, int in, struct err *err)
{
	auto_free char *dir = bench_text("%s/server", r->scene.dir);
	char *argv[] = {(char *)(uintptr_t)r->scene.env->reapid, dir, NULL};
	posix_spawn_file_actions_t actions;
	int ret;

	if (!dir)
		return err_set(err, -ENOMEM, "out of memory");
	(void)posix_spawn_file_actions_init(&actions);
	(void)posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
	ret = -posix_spawn(&r->server, argv[0], &actions, NULL, argv, environ);
	(void)posix_spawn_file_actions_destroy(&actions);
	return ret < 0 ? err_set(err, ret, "starting %s: %s", argv[0], strerror(-ret)) : 0;
}

/* All that casbox does from now on is with this tier. */
static int use_server(const struct remote *r, struct err *err)
{
	const struct timespec nap = {.tv_nsec = 10000000};
	auto_buf struct buf port = {0};
	auto_free char *url = NULL;

	for (int i = 0; i < START_TRIES && port.len == 0; i++) {
		if (io_read_file(r->scene.dir_fd, "server/port", 16, &port) < 0)
			(void)nanosleep(&nap, NULL);
	}
	if (port.len == 0)
		return err_set(err, -ETIMEDOUT, "%s did not start", r->scene.env->reapid);
	url = bench_text("grpc://127.0.0.1:%d/cache", atoi(port.data));
	if (!url || setenv("CASBOX_TIER", url, 1) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	return 0;
}

static int start_server(struct remote *r, struct err *err)
{
	char delay[16];
	int fds[2];
	int ret;

	(void)snprintf(delay, sizeof(delay), "%d", DELAY_MS);
	if (setenv("REAPID_DELAY_MS", delay, 1) < 0 || pipe2(fds, O_CLOEXEC) < 0)
		return err_set(err, -errno, "starting a server: %m");
	r->server_in = fds[1];
	ret = spawn_server(r, fds[0], err);
	(void)close(fds[0]);
	return ret < 0 ? ret : use_server(r, err);
}

static void stop_server(struct remote *r)
{
	(void)unsetenv("CASBOX_TIER");
	if (r->server_in >= 0)
		(void)close(steal_fd(&r->server_in));
	while (r->server > 0 && waitpid(r->server, NULL, 0) < 0 && errno == EINTR)
		;
	r->server = 0;
}

/* Round trips since the last call: what it logs, but for the single blobs of a batch. */
static double take_calls(const struct remote *r)
{
	auto_buf struct buf text = {0};
	double calls = 0;
	char *next;

	if (io_read_file(r->scene.dir_fd, "server/log", 1 << 28, &text) < 0)
		return -1;
	(void)close(openat(r->scene.dir_fd, "server/log", O_WRONLY | O_TRUNC | O_CLOEXEC));
	for (char *line = text.len > 0 ? text.data : NULL; line && *line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		calls += !strstr(line, " batch");
	}
	return calls;
}

/* --- a sandbox --- */

/* With an empty store, or with the one that is there. */
static int open_box(struct remote *r, bool fresh, struct err *err)
{
	int ret = fresh ? io_remove_tree(r->scene.dir_fd, "store", err) : 0;

	if (ret == -ENOENT)
		ret = 0;
	return ret < 0 ? ret : bench_scene_mount(&r->scene, err);
}

static int close_box(struct remote *r, struct err *err)
{
	bench_channel_close(&r->scene.channel);
	return bench_box_umount(r->scene.box, err);
}

static int run_find(struct remote *r, const char *path, const char *type, struct buf *out,
		    struct err *err)
{
	const char *argv[] = {"find", ".", "-type", type, NULL};

	if (!type)
		argv[2] = NULL;
	return bench_spawn_ok(argv, path, out, err);
}

/* Some of the files, from all over the tree, in no order that a disk would like. */
static int choose_reads(struct remote *r, const char *path, struct err *err)
{
	auto_buf struct buf text = {0};
	auto_free char **files = NULL;
	uint64_t random = 1;
	size_t nr = 0;
	int ret = run_find(r, path, "f", &text, err);

	if (ret < 0)
		return ret;
	for (size_t i = 0; i < text.len; i++)
		nr += text.data[i] == '\n';
	files = calloc(nr + 1, sizeof(*files));
	r->reads = calloc(r->nr_reads, sizeof(*r->reads));
	if (!files || !r->reads || nr == 0)
		return err_set(err, -ENOMEM, "no files in %s, or no memory", path);
	nr = 0;
	for (char *line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n"))
		files[nr++] = line;
	if (r->nr_reads > nr)
		r->nr_reads = nr;
	for (size_t i = 0; i < r->nr_reads; i++) {
		size_t at;

		random = random * 6364136223846793005u + 1442695040888963407u;
		at = i + (size_t)(random >> 33) % (nr - i);
		r->reads[i] = strdup(files[at]);
		files[at] = files[i];
		if (!r->reads[i])
			return err_set(err, -ENOMEM, "out of memory");
	}
	return 0;
}

static int find_once(struct remote *r, size_t round, struct err *err)
{
	auto_buf struct buf names = {0};
	auto_buf struct buf dirs = {0};
	auto_free char *path = NULL;
	double begin;
	int ret = open_box(r, true, err);

	(void)take_calls(r);
	begin = bench_now_ms();
	if (ret == 0)
		ret = bench_create(&r->scene.channel, r->root, "find", "", &path, err);
	if (ret == 0)
		ret = run_find(r, path, NULL, &names, err);
	r->ms[WAY_FIND][round] = bench_now_ms() - begin;
	r->calls[WAY_FIND][round] = take_calls(r);
	if (ret == 0)
		ret = run_find(r, path, "d", &dirs, err);
	r->nr_dirs = 0;
	for (size_t i = 0; i < dirs.len; i++)
		r->nr_dirs += dirs.data[i] == '\n';
	if (ret == 0 && !r->reads)
		ret = choose_reads(r, path, err);
	if (ret == 0)
		ret = bench_remove(&r->scene.channel, "find", err);
	return ret < 0 ? ret : close_box(r, err);
}

static int read_file(const char *path, struct err *err)
{
	char data[65536];
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : 1;

	while (got > 0)
		got = read(fd, data, sizeof(data));
	return got < 0 ? err_set(err, -errno, "reading %s: %m", path) : 0;
}

static int reads_once(struct remote *r, size_t round, int way, struct err *err)
{
	auto_free char *path = NULL;
	double begin;
	int ret = open_box(r, way == WAY_DEMAND, err);

	(void)take_calls(r);
	begin = bench_now_ms();
	if (ret == 0)
		ret = bench_create(&r->scene.channel, r->root, "reads", "", &path, err);
	for (size_t i = 0; ret == 0 && i < r->nr_reads; i++) {
		auto_free char *file = bench_text("%s/%s", path, r->reads[i]);

		ret = file ? read_file(file, err) : -ENOMEM;
	}
	r->ms[way][round] = bench_now_ms() - begin;
	r->calls[way][round] = take_calls(r);
	if (ret == 0)
		ret = bench_remove(&r->scene.channel, "reads", err);
	return ret < 0 ? ret : close_box(r, err);
}

static int empty_store(struct remote *r, struct err *err)
{
	const char *argv[] = {r->scene.env->casbox,
			      "--store",
			      r->scene.box->store,
			      "gc",
			      "--max-size",
			      "0",
			      NULL};

	return bench_spawn_ok(argv, NULL, NULL, err);
}

/* --- all of it --- */

static void report(struct remote *r)
{
	auto_free char *title = bench_text("%zu directories, %zu files read, %d ms away",
					   r->nr_dirs, r->nr_reads, DELAY_MS);
	double trips[MAX_ROUNDS];

	bench_table(r->rep, "remote", title ? title : "remote", columns);
	for (int way = 0; way < NR_WAYS; way++) {
		double values[NR_COLS] = {bench_median(r->ms[way], r->rounds),
					  bench_median(r->calls[way], r->rounds), 0};

		values[COL_PER] =
			values[COL_MS] / (double)(way == WAY_FIND ? r->nr_dirs : r->nr_reads);
		bench_row(r->rep, way_names[way], values);
	}
	for (size_t i = 0; i < r->rounds; i++)
		trips[i] = DELAY_MS * (double)r->nr_dirs;
	bench_gate(r->rep, "remote: find, round trips a directory",
		   bench_ratio(r->ms[WAY_FIND], trips, r->rounds), 0.1, 0.05);
	bench_gate(r->rep, "remote: reads on demand / learned",
		   bench_ratio(r->ms[WAY_DEMAND], r->ms[WAY_LEARNED], r->rounds), 5, 8);
}

static int run_rounds(struct remote *r, struct err *err)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < r->rounds; i++) {
		if (bench_stopped())
			return err_set(err, -EINTR, "stopped");
		ret = find_once(r, i, err);
		if (ret == 0)
			ret = reads_once(r, i, WAY_DEMAND, err);
		if (ret == 0)
			ret = empty_store(r, err);
		if (ret == 0)
			ret = reads_once(r, i, WAY_LEARNED, err);
	}
	return ret;
}

static int put_tree(struct remote *r, struct err *err)
{
	auto_free char *far = bench_text("%s/far", r->scene.dir);
	struct bench_box box = {.env = r->scene.env, .store = far};

	return far ? bench_box_put(&box, r->scene.env->tree, r->root, err) : -ENOMEM;
}

int bench_remote(struct bench_env *env, struct bench_report *rep, struct err *err)
{
	struct remote r = {.rep = rep, .server_in = -1};
	int ret;

	if (!env->tree || !env->reapid || !env->casbox)
		return err_set(err, -EINVAL, "remote needs --tree, --reapid and a casbox");
	r.rounds = (size_t)(env->rounds < MAX_ROUNDS ? env->rounds : MAX_ROUNDS);
	r.nr_reads = (READS * env->scale + 99) / 100;
	ret = bench_scene_open(&r.scene, env, "remote", err);
	if (ret == 0)
		ret = put_tree(&r, err);
	if (ret == 0)
		ret = make_server(&r, err);
	if (ret == 0)
		ret = start_server(&r, err);
	if (ret == 0)
		ret = run_rounds(&r, err);
	ret = bench_scene_close(&r.scene, ret, err);
	stop_server(&r);
	if (ret == 0)
		report(&r);
	for (size_t i = 0; r.reads && i < r.nr_reads; i++)
		free(r.reads[i]);
	free(r.reads);
	return ret;
}
