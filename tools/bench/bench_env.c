/* tools/bench/bench_env.c - options, the working directory, programs, and cleaning up */
#include "tools/bench/bench_env.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cas/cas.h"

extern char **environ;

#define GRACE_S 20 /* for the child to end by itself once it was told to */

static volatile sig_atomic_t stopped;

bool bench_stopped(void)
{
	return stopped != 0;
}

static void on_signal(int sig)
{
	(void)sig;
	stopped = 1;
}

/* --- programs --- */

static int wait_status(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int read_all(int fd, struct buf *out)
{
	for (;;) {
		ssize_t got;
		int ret = buf_reserve(out, 65536);

		if (ret < 0)
			return ret;
		got = read(fd, out->data + out->len, 65535);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			return 0;
		out->len += (size_t)got;
		out->data[out->len] = '\0';
	}
}

/* Start it with the two descriptors as its output and errors (-1: as ours). */
static int start(const char *const *argv, const char *dir, int out_fd, int err_fd, pid_t *pid)
{
	posix_spawn_file_actions_t acts;
	int ret = posix_spawn_file_actions_init(&acts);

	if (ret != 0)
		return -ret;
	if (dir)
		ret = posix_spawn_file_actions_addchdir_np(&acts, dir);
	if (ret == 0 && out_fd >= 0)
		ret = posix_spawn_file_actions_adddup2(&acts, out_fd, STDOUT_FILENO);
	if (ret == 0)
		ret = posix_spawn_file_actions_adddup2(&acts, err_fd, STDERR_FILENO);
	if (ret == 0)
		ret = posix_spawnp(pid, argv[0], &acts, NULL, (char *const *)argv, environ);
	(void)posix_spawn_file_actions_destroy(&acts);
	return -ret;
}

int bench_spawn(const char *const *argv, const char *dir, struct buf *out, struct buf *complaint,
		int *status, struct err *err)
{
	auto_close int err_fd = memfd_create("complaint", MFD_CLOEXEC);
	int pipe_fd[2] = {-1, -1};
	pid_t pid;
	int ret;

	if (err_fd < 0 || (out && pipe2(pipe_fd, O_CLOEXEC) < 0))
		return err_set(err, -errno, "starting %s: %s", argv[0], strerror(errno));
	ret = start(argv, dir, pipe_fd[1], err_fd, &pid);
	if (out)
		(void)close(pipe_fd[1]);
	if (ret == 0 && out)
		(void)read_all(pipe_fd[0], out);
	if (out)
		(void)close(pipe_fd[0]);
	if (ret < 0)
		return err_set(err, ret, "starting %s: %s", argv[0], strerror(-ret));
	ret = wait_status(pid);
	if (ret < 0)
		return err_set(err, ret, "waiting for %s: %s", argv[0], strerror(-ret));
	*status = ret;
	if (complaint && lseek(err_fd, 0, SEEK_SET) == 0)
		(void)read_all(err_fd, complaint);
	return 0;
}

int bench_spawn_ok(const char *const *argv, const char *dir, struct buf *out, struct err *err)
{
	auto_buf struct buf words = {0};
	auto_buf struct buf complaint = {0};
	int status = 0;
	int ret = bench_spawn(argv, dir, out, &complaint, &status, err);

	if (ret < 0 || status == 0)
		return ret;
	for (size_t i = 0; argv[i]; i++)
		(void)buf_printf(&words, "%s%s", i ? " " : "", argv[i]);
	return err_set(err, -EIO, "'%s' ended with status %d: %s", buf_str(&words), status,
		       buf_str(&complaint));
}

bool bench_have_program(const char *name)
{
	const char *path = getenv("PATH");
	auto_free char *dirs = strdup(path ? path : "/usr/bin:/bin");
	char *save = NULL;

	for (char *d = dirs ? strtok_r(dirs, ":", &save) : NULL; d;
	     d = strtok_r(NULL, ":", &save)) {
		auto_free char *file = bench_text("%s/%s", d, name);

		if (file && access(file, X_OK) == 0)
			return true;
	}
	return false;
}

/* --- directories --- */

char *bench_text(const char *fmt, ...)
{
	char *text;
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vasprintf(&text, fmt, ap);
	va_end(ap);
	return len < 0 ? NULL : text;
}

int bench_mkdir(int dir_fd, const char *name, struct err *err)
{
	if (mkdirat(dir_fd, name, 0755) < 0 && errno != EEXIST)
		return err_set(err, -errno, "making directory %s: %s", name, strerror(errno));
	return 0;
}

int bench_open_dir(int dir_fd, const char *name, struct err *err)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return err_set(err, -errno, "opening directory %s: %s", name, strerror(errno));
	return fd;
}

int bench_dir_new(const struct bench_env *env, const char *name, int *fd_out, char **path_out,
		  struct err *err)
{
	auto_free char *path = bench_text("%s/%s", env->work, name);
	int ret = io_remove_tree(env->work_fd, name, err);

	if (ret == 0)
		ret = bench_mkdir(env->work_fd, name, err);
	if (ret == 0 && !path)
		ret = err_set(err, -ENOMEM, "out of memory");
	if (ret < 0)
		return ret;
	ret = bench_open_dir(env->work_fd, name, err);
	if (ret < 0)
		return ret;
	*fd_out = ret;
	*path_out = steal_ptr(&path);
	return 0;
}

/* --- the child and what it leaves --- */

/* In the child: the handlers run in it, and calls that wait return EINTR. */
static void child_signals(void)
{
	struct sigaction act = {.sa_handler = on_signal};
	sigset_t none;

	(void)sigemptyset(&act.sa_mask);
	(void)sigaction(SIGINT, &act, NULL);
	(void)sigaction(SIGTERM, &act, NULL);
	(void)sigaction(SIGHUP, &act, NULL);
	(void)sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* Wait for the child; a signal to us is passed on, and once GRACE_S are over it is killed. */
static int child_wait(pid_t pid, const sigset_t *set)
{
	double kill_at = 0;

	for (;;) {
		struct timespec second = {1, 0};
		int sig = sigtimedwait(set, NULL, &second);
		int status;
		pid_t got = waitpid(pid, &status, WNOHANG);

		if (got == pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		if (sig > 0 && sig != SIGCHLD) {
			(void)kill(pid, SIGTERM);
			kill_at = (double)lock_now_ns() / 1e9 + GRACE_S;
		}
		if (kill_at > 0 && (double)lock_now_ns() / 1e9 > kill_at)
			(void)kill(pid, SIGKILL);
	}
}

/* One mount of /proc/self/mountinfo: undoes the \ooo of spaces and the like. */
static void unescape(char *path)
{
	char *to = path;

	for (const char *p = path; *p; p++) {
		if (p[0] == '\\' && p[1] && p[2] && p[3]) {
			*to++ = (char)((p[1] - '0') * 64 + (p[2] - '0') * 8 + (p[3] - '0'));
			p += 3;
		} else {
			*to++ = *p;
		}
	}
	*to = '\0';
}

/* A daemon that does not answer would hold up whoever touches its mount: end it for good. */
static void abort_connection(unsigned minor_nr)
{
	char path[64];
	auto_close int fd = -1;

	(void)snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%u/abort", minor_nr);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		(void)!write(fd, "1", 1);
}

/* A plain user may not himself. */
static bool detach(const char *path)
{
	const char *argv[] = {"fusermount3", "-uz", "--", path, NULL};
	struct err err = {0};

	return umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) == 0 ||
	       (geteuid() != 0 && bench_spawn_ok(argv, NULL, NULL, &err) == 0);
}

/* Detach the last mount at or below @top; false when there is none. */
static bool detach_last(const char *top)
{
	auto_free char *line = NULL;
	auto_free char *found = NULL;
	unsigned found_minor = 0;
	bool found_fuse = false;
	size_t cap = 0;
	FILE *f = fopen("/proc/self/mountinfo", "re");

	while (f && getline(&line, &cap, f) > 0) {
		auto_free char *at = NULL;
		unsigned minor_nr;

		if (sscanf(line, "%*d %*d %*u:%u %*s %ms", &minor_nr, &at) != 2)
			continue;
		unescape(at);
		if (strncmp(at, top, strlen(top)) != 0 ||
		    (at[strlen(top)] != '/' && at[strlen(top)] != '\0'))
			continue;
		free(found);
		found = steal_ptr(&at);
		found_minor = minor_nr;
		found_fuse = strstr(line, " - fuse") != NULL;
	}
	if (f)
		(void)fclose(f);
	if (!found)
		return false;
	if (found_fuse)
		abort_connection(found_minor);
	return detach(found);
}

static int clean_up(const struct bench_env *env)
{
	struct err err = {0};
	int ret = 0;

	while (detach_last(env->work))
		;
	if (env->keep)
		return 0;
	(void)close(env->work_fd);
	/* A daemon whose connection was cut may still be writing its last files. */
	for (int i = 0; i < 20; i++) {
		struct timespec wait = {0, 250000000};

		ret = io_remove_tree(AT_FDCWD, env->work, &err);
		if (ret == 0 || ret == -EXDEV)
			break;
		(void)nanosleep(&wait, NULL);
	}
	if (ret < 0)
		(void)fprintf(stderr, "casbox-bench: removing %s: %s\n", env->work,
			      err_text(&err, ret));
	return ret;
}

int bench_supervise(const struct bench_env *env, int (*body)(void *ctx), void *ctx)
{
	sigset_t set;
	pid_t pid;
	int status = 1;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGHUP);
	(void)sigaddset(&set, SIGCHLD);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	(void)fflush(NULL);
	pid = fork();
	if (pid == 0) {
		child_signals();
		exit(body(ctx));
	}
	if (pid < 0)
		(void)fprintf(stderr, "casbox-bench: fork: %s\n", strerror(errno));
	else
		status = child_wait(pid, &set);
	if (clean_up(env) < 0 && status == 0)
		status = 1;
	return status;
}
