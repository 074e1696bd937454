/* tools/run/limits.c - how much memory and how many processes a command may have */
#include "tools/run/limits.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/cas.h"
#include "cas/reapi/action.h"
#include "tools/cli.h"
#include "tools/cmd/progress.h"
#include "tools/run/cgroup.h"

/*
 * Where version 1 groups are, a command has one of its own in each hierarchy, named after
 * our process: a run that was killed leaves an empty one, which the next run removes.
 */

#define V1_TOP	  "/sys/fs/cgroup"
#define V1_PREFIX "casbox-run-"
#define TEXT_MAX  65536

static const struct {
	const char *option;
	const char *name; /* in the result */
	const char *controller;
	const char *v2_max;
	const char *v2_peak;
	const char *v2_events; /* and the word in it that counts */
	const char *v2_word;
	const char *v1_max;
	const char *v1_peak;
	const char *v1_events;
	const char *v1_word;
	int resource;
} kinds[LIMIT_NR] = {
	{"--max-memory", "memory-bytes", "memory", "memory.max", "memory.peak", "memory.events",
	 "oom_kill", "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control",
	 "oom_kill", RLIMIT_AS},
	{"--max-procs", "processes", "pids", "pids.max", "pids.peak", "pids.events", "max",
	 "pids.max", NULL, "pids.events", "max", RLIMIT_NPROC},
};

static int write_text(int dir_fd, const char *name, const char *text)
{
	auto_close int fd = openat(dir_fd, name, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? -errno : io_write_full(fd, text, strlen(text));
}

static int write_number(int dir_fd, const char *name, uint64_t value)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%" PRIu64, value);
	return write_text(dir_fd, name, text);
}

/* The number after @word in a file of the group, or the first one; 0: not to be had. */
static uint64_t read_number(int dir_fd, const char *name, const char *word)
{
	auto_buf struct buf b = {0};
	char *save = NULL;

	if (!name || io_read_file(dir_fd, name, TEXT_MAX, &b) || b.len == 0)
		return 0;
	for (char *w = strtok_r(b.data, " \n", &save); w; w = strtok_r(NULL, " \n", &save)) {
		if (!word)
			return strtoull(w, NULL, 10);
		if (strcmp(w, word) == 0)
			word = NULL;
	}
	return 0;
}

/* In the command's own group, if its parent hands the controller down. */
static int begin_v2(struct limit *l, int kind, const struct cgroup *group)
{
	char word[16];
	int ret;

	if (group->fd < 0)
		return -ENOENT;
	(void)snprintf(word, sizeof(word), "+%s", kinds[kind].controller);
	if (faccessat(group->fd, kinds[kind].v2_max, F_OK, 0))
		(void)write_text(group->fd, "../cgroup.subtree_control", word);
	ret = write_number(group->fd, kinds[kind].v2_max, l->value);
	if (ret)
		return ret;
	if (kind == LIMIT_MEMORY)
		(void)write_text(group->fd, "memory.swap.max", "0");
	l->dir_fd = fcntl(group->fd, F_DUPFD_CLOEXEC, 3);
	return l->dir_fd < 0 ? -errno : 0;
}

/* Our own path in the hierarchy of @controller: the line "N:CONTROLLERS:PATH". */
static char *own_path(const char *controller)
{
	auto_buf struct buf b = {0};
	char *save = NULL;

	if (io_read_file(AT_FDCWD, "/proc/self/cgroup", TEXT_MAX, &b) || b.len == 0)
		return NULL;
	for (char *l = strtok_r(b.data, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
		char *names = strchr(l, ':');
		char *path = names ? strchr(names + 1, ':') : NULL;
		char *word, *rest = NULL;

		if (!path)
			continue;
		*path++ = '\0';
		for (word = strtok_r(names + 1, ",", &rest); word;
		     word = strtok_r(NULL, ",", &rest)) {
			if (strcmp(word, controller) == 0)
				return strdup(path);
		}
	}
	return NULL;
}

/* Groups of runs that are no more. */
static void sweep(int parent_fd)
{
	int copy = openat(parent_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_closedir DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *de;

	if (copy >= 0 && !dir)
		(void)close(copy);
	while (dir && (de = readdir(dir)) != NULL) {
		pid_t pid;

		if (strncmp(de->d_name, V1_PREFIX, strlen(V1_PREFIX)) != 0)
			continue;
		pid = (pid_t)strtol(de->d_name + strlen(V1_PREFIX), NULL, 10);
		if (pid > 0 && kill(pid, 0) && errno == ESRCH)
			(void)unlinkat(parent_fd, de->d_name, AT_REMOVEDIR);
	}
}

static int begin_v1(struct limit *l, int kind)
{
	auto_free char *own = own_path(kinds[kind].controller);
	auto_free char *parent = NULL;
	auto_close int parent_fd = -1;
	int ret;

	if (!own)
		return -ENOENT;
	if (asprintf(&parent, V1_TOP "/%s%s", kinds[kind].controller, own) < 0) {
		parent = NULL;
		return -ENOMEM;
	}
	parent_fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (parent_fd < 0)
		return -errno;
	sweep(parent_fd);
	if (asprintf(&l->path, "%s/" V1_PREFIX "%d", parent, (int)getpid()) < 0) {
		l->path = NULL;
		return -ENOMEM;
	}
	if (mkdir(l->path, 0755) && errno != EEXIST) {
		ret = -errno;
		free(steal_ptr(&l->path));
		return ret;
	}
	l->dir_fd = open(l->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (l->dir_fd < 0)
		return -errno;
	ret = write_number(l->dir_fd, kinds[kind].v1_max, l->value);
	if (ret == 0 && kind == LIMIT_MEMORY)
		(void)write_number(l->dir_fd, "memory.memsw.limit_in_bytes", l->value);
	l->procs_fd = ret ? -1 : openat(l->dir_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);
	return ret ? ret : l->procs_fd < 0 ? -errno : 0;
}

static void limit_fini(struct limit *l)
{
	if (l->procs_fd >= 0)
		(void)close(l->procs_fd);
	if (l->dir_fd >= 0)
		(void)close(l->dir_fd);
	/* EBUSY for a moment after the last process went. */
	for (int i = 0; l->path && rmdir(l->path) && errno == EBUSY && i < 50; i++)
		(void)usleep(2000);
	free(l->path);
	*l = (struct limit){.dir_fd = -1, .procs_fd = -1, .value = l->value};
}

static void begin_one(struct limits *limits, int kind, struct cli *cli, const struct cgroup *group)
{
	struct limit *l = &limits->of[kind];
	size_t nr = 0;
	int ret = begin_v2(l, kind, group);

	if (ret)
		ret = begin_v1(l, kind);
	if (ret == 0) {
		while (limits->join_fds[nr] >= 0)
			nr++;
		limits->join_fds[nr] = l->procs_fd;
		return;
	}
	limit_fini(l);
	cli_warn(cli,
		 kind == LIMIT_MEMORY
			 ? "%s holds for each process by itself: no control group keeps it (%s)"
			 : "%s holds for all processes of this user together: no control group "
			   "keeps it (%s)",
		 kinds[kind].option, strerror(-ret));
	while (limits->resources[nr] >= 0)
		nr++;
	limits->resources[nr] = kinds[kind].resource;
	limits->rlimits[nr] = (struct rlimit){l->value, l->value};
	l->per_process = true;
}

void limits_init(struct limits *limits)
{
	for (int i = 0; i <= LIMIT_NR; i++)
		limits->join_fds[i] = limits->resources[i] = -1;
	for (int i = 0; i < LIMIT_NR; i++)
		limits->of[i] = (struct limit){.dir_fd = -1, .procs_fd = -1};
}

void limits_begin(struct limits *limits, struct cli *cli, const struct cgroup *group)
{
	for (int i = 0; i < LIMIT_NR; i++) {
		if (limits->of[i].value)
			begin_one(limits, i, cli, group);
	}
}

static const char *amount(int kind, uint64_t value, char out[24])
{
	if (kind == LIMIT_MEMORY)
		return progress_size(value, out);
	(void)snprintf(out, 24, "%" PRIu64, value);
	return out;
}

static struct cas_limit tell_one(const struct limit *l, int kind)
{
	bool v1 = l->path != NULL;
	struct cas_limit told = {.name = kinds[kind].name, .value = l->value};

	/* Of process limits nobody can tell. */
	if (l->dir_fd < 0)
		return told;
	told.reached = read_number(l->dir_fd, v1 ? kinds[kind].v1_events : kinds[kind].v2_events,
				   v1 ? kinds[kind].v1_word : kinds[kind].v2_word) > 0;
	told.peak = read_number(l->dir_fd, v1 ? kinds[kind].v1_peak : kinds[kind].v2_peak, NULL);
	/* Who counts no peak was at the limit when it was hit. */
	if (told.peak == 0 && told.reached)
		told.peak = l->value;
	told.has_peak = told.peak > 0;
	return told;
}

size_t limits_tell(const struct limits *limits, struct cas_limit *out)
{
	size_t nr = 0;

	for (int i = 0; i < LIMIT_NR; i++) {
		if (limits->of[i].value)
			out[nr++] = tell_one(&limits->of[i], i);
	}
	return nr;
}

bool limits_report(const struct limits *limits, struct cli *cli, const struct cas_limit *told)
{
	bool any = false;

	for (int i = 0; i < LIMIT_NR; i++) {
		const struct limit *l = &limits->of[i];
		char max[24], top[24];

		any |= l->per_process;
		if (!l->value || !told++->reached)
			continue;
		any = true;
		cli_warn(cli, "the command ran into %s %s (peak %s, %" PRIu64 " %s)",
			 kinds[i].option, amount(i, l->value, max), amount(i, told[-1].peak, top),
			 read_number(l->dir_fd, l->path ? kinds[i].v1_events : kinds[i].v2_events,
				     l->path ? kinds[i].v1_word : kinds[i].v2_word),
			 i == LIMIT_MEMORY ? "killed" : "times refused");
	}
	return any;
}

void limits_fini(struct limits *limits)
{
	for (int i = 0; i < LIMIT_NR; i++)
		limit_fini(&limits->of[i]);
}
