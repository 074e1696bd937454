/* tools/bench/bench_stat.c - stat: what it costs to look at each entry of a large directory */
#include <dirent.h>
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
#include "tools/bench/bench_race.h"

/*
 * One directory with a million names (hard links of some empty files: what is measured is
 * looking names up), listed with the metadata of each by its whole path, as many programs
 * do, and by the directory's descriptor, as every walk of casbox does.
 */

#define NR_NAMES 1000000 /* at scale 100 */
#define PER_FILE 50000	 /* links of a file: ext4 has at most 65,000 */

struct stat_bench {
	const struct bench_env *env;
	char *path;
	int dir_fd;
	unsigned nr;
};

static void fini(struct stat_bench *b)
{
	if (b->dir_fd >= 0)
		(void)close(b->dir_fd);
	free(b->path);
}

static int make_names(const struct stat_bench *b, struct err *err)
{
	char first[32] = "";

	for (unsigned i = 0; i < b->nr; i++) {
		char name[32];
		int ret = 0;

		(void)snprintf(name, sizeof(name), "entry-%u", i);
		if (i % PER_FILE == 0) {
			auto_close int fd =
				openat(b->dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

			ret = fd < 0 ? -errno : 0;
			(void)strcpy(first, name);
		} else if (linkat(b->dir_fd, first, b->dir_fd, name, 0) < 0) {
			ret = -errno;
		}
		if (ret < 0)
			return err_set(err, ret, "making %s: %s", name, strerror(-ret));
	}
	return 0;
}

static int look(const struct stat_bench *b, const char *name, bool whole)
{
	struct stat st;
	char path[4096];

	if (!whole)
		return fstatat(b->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW);
	(void)snprintf(path, sizeof(path), "%s/%s", b->path, name);
	return lstat(path, &st);
}

static int list(const struct stat_bench *b, bool whole, double *ms, struct err *err)
{
	double begin = bench_now_ms();
	int fd = openat(b->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_closedir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;
	unsigned nr = 0;

	while (dir && (de = readdir(dir)) != NULL)
		nr += look(b, de->d_name, whole) == 0;
	*ms = bench_now_ms() - begin;
	return nr == b->nr + 2 ? 0 : err_set(err, -EIO, "%u of %u entries", nr, b->nr + 2);
}

static int path_run(void *ctx, double *ms, struct err *err)
{
	return list(ctx, true, ms, err);
}

static int descriptor_run(void *ctx, double *ms, struct err *err)
{
	return list(ctx, false, ms, err);
}

int bench_stat(struct bench_env *env, struct bench_report *rep, struct err *err)
{
	static const struct bench_way ways[] = {
		{"by path", path_run, NULL},
		{"by descriptor", descriptor_run, NULL},
		{NULL, NULL, NULL},
	};
	auto_call(fini) struct stat_bench b = {.env = env, .dir_fd = -1};
	auto_free char *title = NULL;
	struct bench_race race;
	double ms;
	int ret;

	b.nr = NR_NAMES / 100 * env->scale;
	title = bench_text("%u names of one directory, listed and looked at", b.nr);
	/* As deep as stores and trees lie. */
	ret = bench_dir_new(env, "stat", &b.dir_fd, &b.path, err);
	if (ret == 0)
		ret = make_names(&b, err);
	if (ret == 0)
		ret = list(&b, false, &ms, err);
	if (ret == 0)
		ret = bench_race_run(env, ways, &b, &race, err);
	if (ret < 0)
		return ret;
	bench_race_table(rep, "stat", title, ways, &race);
	return io_remove_tree(env->work_fd, "stat", err);
}
