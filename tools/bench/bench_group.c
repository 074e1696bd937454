/* tools/bench/bench_group.c - an action's work in the control group of its sandbox */
#include "tools/bench/bench_group.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/mountinfo.h"
#include "tools/bench/bench_box.h"
#include "tools/bench/bench_env.h"

#define OWN_MAX 65536

/* Where version 2 of control groups is mounted; NULL: nowhere. */
static char *find_hierarchy(void)
{
	struct mountinfo mounts = {0};
	struct mountinfo_entry e;
	char *found = NULL;

	if (mountinfo_read_self(&mounts) < 0)
		return NULL;
	while (!found && mountinfo_next(&mounts, &e)) {
		if (strcmp(e.type, "cgroup2") == 0 && strcmp(e.root, "/") == 0)
			found = strdup(e.path);
	}
	mountinfo_fini(&mounts);
	return found;
}

/* "0::PATH" is our own group; the caller's. */
static char *find_own(void)
{
	auto_buf struct buf text = {0};
	char *save = NULL;

	if (io_read_file(AT_FDCWD, "/proc/self/cgroup", OWN_MAX, &text) < 0 || text.len == 0)
		return NULL;
	for (char *line = strtok_r(text.data, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		if (strncmp(line, "0::/", 4) == 0)
			return strdup(line + 4);
	}
	return NULL;
}

int bench_group_make(struct bench_channel *ch, const char *id, char **path, struct err *err)
{
	auto_free char *top = find_hierarchy();
	auto_free char *own = find_own();
	auto_free char *group = NULL;
	int ret;

	*path = NULL;
	if (!top || !own)
		return 0;
	group = bench_text("%s/%s%scasbox-bench-%d-%s", top, own, *own ? "/" : "", (int)getpid(),
			   id);
	if (!group)
		return err_set(err, -ENOMEM, "out of memory");
	if (mkdir(group, 0755) < 0)
		return 0;
	ret = bench_ask(ch, NULL, err, "cgroup %s %s", id, group);
	if (ret < 0)
		(void)rmdir(group);
	else
		*path = steal_ptr(&group);
	return ret;
}

static int join(const char *path, struct err *err)
{
	auto_free char *procs = bench_text("%s/cgroup.procs", path);
	auto_close int fd = procs ? open(procs, O_WRONLY | O_CLOEXEC) : -1;
	int ret = fd < 0 ? -errno : io_write_full(fd, "0", 1);

	return ret < 0 ? err_set(err, ret, "joining %s: %s", path, strerror(-ret)) : 0;
}

/* What the child has to say. */
struct outcome {
	int ret;
	double ms;
	char why[400];
};

static void child(const char *path, int (*fn)(void *ctx, double *ms, struct err *err), void *ctx,
		  int fd)
{
	struct outcome o = {0};
	struct err err = {0};

	o.ret = path ? join(path, &err) : 0;
	if (o.ret == 0)
		o.ret = fn(ctx, &o.ms, &err);
	if (o.ret < 0)
		(void)snprintf(o.why, sizeof(o.why), "%s", err_text(&err, o.ret));
	_exit(io_write_full(fd, &o, sizeof(o)) < 0);
}

int bench_group_run(const char *path, int (*fn)(void *ctx, double *ms, struct err *err), void *ctx,
		    double *ms, struct err *err)
{
	struct outcome o = {0};
	int ends[2];
	ssize_t got;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_set(err, -errno, "making a pipe: %s", strerror(errno));
	(void)fflush(NULL);
	pid = fork();
	if (pid == 0)
		child(path, fn, ctx, ends[1]);
	(void)close(ends[1]);
	got = pid < 0 ? -errno : io_read_full(ends[0], &o, sizeof(o));
	(void)close(ends[0]);
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	if (got != (ssize_t)sizeof(o))
		return err_set(err, got < 0 ? (int)got : -ECHILD, "a writer ended early");
	if (ms)
		*ms = o.ms;
	return o.ret < 0 ? err_set(err, o.ret, "%s", o.why) : 0;
}
