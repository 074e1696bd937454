/* tools/run/cgroup.c - a control group of one command, and the end of all that runs in it */
#include "tools/run/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cas/cas.h"

#define PROC_MAX (16 << 20) /* bytes of a file in /proc or of a group that we read */

char *cgroup_find_mount(struct mountinfo *mounts)
{
	struct mountinfo_entry e;

	while (mountinfo_next(mounts, &e)) {
		if (strcmp(e.type, "cgroup2") == 0 && strcmp(e.root, "/") == 0)
			return strdup(e.path);
	}
	return NULL;
}

/* Our own path in the hierarchy: the line "0::PATH". */
static char *own_path(const char *text)
{
	while (*text) {
		const char *end = strchrnul(text, '\n');

		if (strncmp(text, "0::/", 4) == 0)
			return strndup(text + 3, (size_t)(end - text) - 3);
		text = *end ? end + 1 : end;
	}
	return NULL;
}

static int parent_path(char **out, struct err *err)
{
	auto_call(mountinfo_fini) struct mountinfo mounts = {0};
	auto_buf struct buf own = {0};
	auto_free char *mount = NULL;
	auto_free char *path = NULL;
	int ret = mountinfo_read_self(&mounts);

	if (ret == 0)
		ret = io_read_file(AT_FDCWD, "/proc/self/cgroup", PROC_MAX, &own);
	if (ret)
		return err_set(err, ret, "cannot find our control group: %s", strerror(-ret));
	mount = cgroup_find_mount(&mounts);
	path = own_path(buf_str(&own));
	if (!mount || !path)
		return err_set(err, -ENOENT, "no version 2 control groups here");
	if (asprintf(out, "%s%s", mount, strcmp(path, "/") == 0 ? "" : path) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	return 0;
}

int cgroup_place(const char *name, char **out, struct err *err)
{
	auto_free char *parent = NULL;
	int ret = parent_path(&parent, err);

	if (ret)
		return ret;
	if (faccessat(AT_FDCWD, parent, W_OK, AT_EACCESS))
		return err_set(err, -errno, "cannot make a control group in %s: %s", parent,
			       strerror(errno));
	if (asprintf(out, "%s/%s", parent, name) < 0) {
		*out = NULL;
		return err_set(err, -ENOMEM, "out of memory");
	}
	return 0;
}

int cgroup_make(const char *path, struct cgroup *out, struct err *err)
{
	auto_free char *copy = strdup(path);
	int fd, ret;

	if (!copy)
		return err_set(err, -ENOMEM, "out of memory");
	if (mkdir(path, 0755) && errno != EEXIST)
		return err_set(err, -errno, "cannot make the control group %s: %s", path,
			       strerror(errno));
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		ret = -errno;
		(void)rmdir(path);
		return err_set(err, ret, "cannot open the control group %s: %s", path,
			       strerror(-ret));
	}
	*out = (struct cgroup){steal_ptr(&copy), fd};
	return 0;
}

static int read_below(const struct cgroup *group, const char *name, struct buf *out)
{
	buf_reset(out);
	return io_read_file(group->fd, name, PROC_MAX, out);
}

/* 1, 0 or a negative errno. */
static int populated(const struct cgroup *group)
{
	auto_buf struct buf text = {0};
	int ret = read_below(group, "cgroup.events", &text);

	if (ret)
		return ret;
	return strstr(buf_str(&text), "populated 1") != NULL;
}

/* Kernels before 5.14 have no cgroup.kill: one by one, as often as it takes. */
static void kill_each(const struct cgroup *group)
{
	auto_buf struct buf text = {0};
	char *save = NULL;

	if (read_below(group, "cgroup.procs", &text) || text.len == 0)
		return;
	for (char *w = strtok_r(text.data, "\n", &save); w; w = strtok_r(NULL, "\n", &save)) {
		pid_t pid = (pid_t)strtol(w, NULL, 10);

		if (pid > 0 && pid != getpid())
			(void)kill(pid, SIGKILL);
	}
}

static void kill_all(const struct cgroup *group)
{
	auto_close int fd = openat(group->fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, "1", 1) != 1)
		kill_each(group);
}

/* Reap what has become ours, or it keeps the group populated as zombies. */
static void reap(void)
{
	while (waitpid(-1, NULL, WNOHANG) > 0)
		continue;
}

int cgroup_kill(const struct cgroup *group, int timeout_ms, struct err *err)
{
	unsigned long long deadline = lock_now_ns() + (unsigned long long)timeout_ms * 1000000;
	auto_close int events = openat(group->fd, "cgroup.events", O_RDONLY | O_CLOEXEC);

	for (;;) {
		struct pollfd p = {.fd = events, .events = POLLPRI};
		int ret = populated(group);

		if (ret <= 0)
			return ret;
		kill_all(group);
		reap();
		if (lock_now_ns() >= deadline)
			return err_set(err, -ETIMEDOUT,
				       "processes in %s did not end within %d ms of SIGKILL",
				       group->path, timeout_ms);
		/* The event may have come before the poll: never wait long. */
		if (populated(group) == 1)
			(void)poll(&p, 1, 10);
	}
}

/* What a nested `run` that was killed has left: empty groups. */
static void remove_below(int fd)
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_closedir DIR *dir = copy >= 0 ? fdopendir(copy) : NULL;
	struct dirent *de;

	if (copy >= 0 && !dir)
		(void)close(copy);
	while (dir && (de = readdir(dir)) != NULL) {
		int child;

		if (de->d_type != DT_DIR || de->d_name[0] == '.')
			continue;
		child = openat(fd, de->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (child >= 0) {
			remove_below(child);
			(void)close(child);
		}
		(void)unlinkat(fd, de->d_name, AT_REMOVEDIR);
	}
}

void cgroup_fini(struct cgroup *group)
{
	if (group->fd >= 0) {
		remove_below(group->fd);
		(void)close(group->fd);
	}
	/* EBUSY for a moment after the last process went. */
	for (int i = 0; group->path && rmdir(group->path) && errno == EBUSY && i < 50; i++)
		(void)usleep(2000);
	free(group->path);
	*group = (struct cgroup){NULL, -1};
}

/* Children from before: whoever became us by exec may have had some. Not ours to kill. */
static pid_t *old_children;
static size_t nr_old_children;

static bool is_old(pid_t pid)
{
	for (size_t i = 0; i < nr_old_children; i++) {
		if (old_children[i] == pid)
			return true;
	}
	return false;
}

/* The parent of process @name, 0 when it is gone. */
static pid_t parent_of(int proc_fd, const char *name)
{
	char path[300];
	char text[512];
	char *p;
	ssize_t len;
	auto_close int fd = -1;

	(void)snprintf(path, sizeof(path), "%s/stat", name);
	fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	len = io_read_full(fd, text, sizeof(text) - 1);
	if (len <= 0)
		return 0;
	text[len] = '\0';
	/* PID (NAME) STATE PPID: the name may hold anything, so from the last ")". */
	p = strrchr(text, ')');
	return p && strlen(p) > 4 ? (pid_t)strtol(p + 4, NULL, 10) : 0;
}

/* Call @each for our children; the sum of what it returns. */
static int each_child(int (*each)(pid_t pid))
{
	auto_closedir DIR *proc = opendir("/proc");
	struct dirent *de;
	int sum = 0;

	while (proc && (de = readdir(proc)) != NULL) {
		if (de->d_name[0] < '0' || de->d_name[0] > '9')
			continue;
		if (parent_of(dirfd(proc), de->d_name) == getpid())
			sum += each((pid_t)strtol(de->d_name, NULL, 10));
	}
	return sum;
}

static int remember_child(pid_t pid)
{
	pid_t *grown = reallocarray(old_children, nr_old_children + 1, sizeof(*grown));

	if (!grown)
		return 0;
	old_children = grown;
	old_children[nr_old_children++] = pid;
	return 1;
}

static int kill_child(pid_t pid)
{
	if (is_old(pid))
		return 0;
	(void)kill(pid, SIGKILL);
	return 1;
}

static bool have_children(void)
{
	siginfo_t info;

	return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

int cgroup_adopt_orphans(void)
{
	/* The scan is for the rare case alone. */
	if (have_children())
		(void)each_child(remember_child);
	return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) ? -errno : 0;
}

int cgroup_kill_children(int timeout_ms)
{
	unsigned long long deadline = lock_now_ns() + (unsigned long long)timeout_ms * 1000000;

	for (;;) {
		reap();
		/* Their children become ours when they die, and are killed next time round. */
		if (!have_children() || each_child(kill_child) == 0)
			return 0;
		if (lock_now_ns() >= deadline)
			return -ETIMEDOUT;
		(void)usleep(1000);
	}
}
