/* fs/engine/cgroup.c - end everything in a control group of ours */
#include "fs/engine/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/lock.h"
#include "cas/base/log.h"

#define CGROUP_TOP     "/sys/fs/cgroup/"
#define CGROUP_PREFIX  "casbox-"
#define KILL_WAIT_NS   5000000000ULL
#define KILL_PAUSE_NS  1000000L
#define PROCS_FILE_MAX (1 << 20)

#define REMOVE_TRIES	50
#define REMOVE_PAUSE_NS 2000000L

int fs_cgroup_check(const char *cgroup, struct err *err)
{
	const char *last = strrchr(cgroup, '/');

	if (strncmp(cgroup, CGROUP_TOP, strlen(CGROUP_TOP)) != 0 || strstr(cgroup, "/../") ||
	    strncmp(last + 1, CGROUP_PREFIX, strlen(CGROUP_PREFIX)) != 0)
		return err_set(err, -EINVAL, "control group %s is not one of casbox's", cgroup);
	return 0;
}

/* 1: somebody is in it, 0: nobody. Version 2 says so itself, version 1 lists its processes. */
static int populated(int dir_fd)
{
	auto_buf struct buf text = {0};
	int ret = io_read_file(dir_fd, "cgroup.events", 4096, &text);

	if (ret == 0)
		return strstr(buf_str(&text), "populated 1") != NULL;
	buf_reset(&text);
	ret = io_read_file(dir_fd, "cgroup.procs", PROCS_FILE_MAX, &text);
	if (ret < 0)
		return ret == -ENOENT || ret == -ENODEV ? 0 : ret;
	return text.len > 0;
}

static int kill_each(int dir_fd)
{
	auto_buf struct buf text = {0};
	int ret = io_read_file(dir_fd, "cgroup.procs", PROCS_FILE_MAX, &text);
	char *save = NULL;

	if (ret < 0)
		return ret == -ENODEV ? 0 : ret;
	if (text.len == 0)
		return 0;
	for (char *line = strtok_r(text.data, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		pid_t pid = (pid_t)strtol(line, NULL, 10);

		/* 0 is a process that our pid namespace cannot name. */
		if (pid > 1)
			(void)kill(pid, SIGKILL);
	}
	return 0;
}

static int kill_all(int dir_fd)
{
	auto_close int fd = openat(dir_fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && io_write_full(fd, "1", 1) == 0)
		return 0;
	return kill_each(dir_fd);
}

int fs_cgroup_kill(const char *cgroup, struct err *err)
{
	const struct timespec pause = {.tv_nsec = KILL_PAUSE_NS};
	unsigned long long end = lock_now_ns() + KILL_WAIT_NS;
	auto_close int fd = -1;
	int ret = fs_cgroup_check(cgroup, err);

	if (ret < 0)
		return ret;
	fd = open(cgroup, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT
			       ? 0
			       : err_set(err, -errno, "cannot open control group %s: %m", cgroup);
	for (;;) {
		ret = populated(fd);
		if (ret == 0) {
			/* Most often it works at once, and whoever made it may be dead. */
			(void)rmdir(cgroup);
			return 0;
		}
		if (ret > 0)
			ret = kill_all(fd);
		if (ret < 0)
			return err_set(err, ret, "cannot kill control group %s: %s", cgroup,
				       strerrordesc_np(-ret));
		if (lock_now_ns() > end)
			return err_set(err, -ETIMEDOUT,
				       "control group %s: processes survive SIGKILL", cgroup);
		(void)nanosleep(&pause, NULL);
	}
}

/* What a nested run that was killed with the rest has left: groups in which nobody is. */
static void remove_below(int fd)
{
	auto_close int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_closedir DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *de;

	if (dir == NULL)
		return;
	(void)steal_fd(&copy);
	while ((de = readdir(dir)) != NULL) {
		auto_close int child = -1;

		if (de->d_type != DT_DIR || de->d_name[0] == '.')
			continue;
		child = openat(fd, de->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (child >= 0)
			remove_below(child);
		(void)unlinkat(fd, de->d_name, AT_REMOVEDIR);
	}
}

void fs_cgroup_remove(const char *cgroup)
{
	const struct timespec pause = {.tv_nsec = REMOVE_PAUSE_NS};
	int code = 0;

	if (fs_cgroup_check(cgroup, NULL) < 0)
		return;
	for (int i = 0; i < REMOVE_TRIES; i++) {
		auto_close int fd = -1;

		code = rmdir(cgroup) < 0 ? errno : 0;
		if (code != EBUSY)
			break;
		fd = open(cgroup, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd >= 0)
			remove_below(fd);
		(void)nanosleep(&pause, NULL);
	}
	if (code != 0 && code != ENOENT)
		log_warn("cannot remove control group %s: %s", cgroup, strerrordesc_np(code));
}
