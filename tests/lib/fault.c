/* tests/lib/fault.c - make system calls of the code under test fail, or be the last */
#include "tests/lib/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXIT_STATUS 99

static struct {
	atomic_uint seen[FAULT_NR];
	atomic_uint changes;
	int code[FAULT_NR];
	unsigned nth[FAULT_NR];
	bool limited[FAULT_NR];
	unsigned long max[FAULT_NR];
	unsigned slow_ms[FAULT_NR];
	unsigned exit_at;
	bool exit_after;
	long ahead_sec;
} plan;

void fault_fail(enum fault_call call, unsigned nth, int code)
{
	plan.code[call] = code;
	plan.nth[call] = nth;
}

void fault_short(enum fault_call call, unsigned long max)
{
	plan.limited[call] = true;
	plan.max[call] = max;
}

void fault_slow(enum fault_call call, unsigned ms)
{
	plan.slow_ms[call] = ms;
}

void fault_exit(unsigned nth, bool after)
{
	plan.exit_at = nth;
	plan.exit_after = after;
}

int fault_exit_child(unsigned nth, bool after, bool named, int (*body)(void *ctx), void *ctx)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		fault_reset();
		if (named)
			fault_fail(FAULT_TMPFILE, 0, EOPNOTSUPP);
		fault_exit(nth, after);
		_exit(body(ctx) < 0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -ECHILD;
	if (WEXITSTATUS(status) == EXIT_STATUS)
		return 1;
	return WEXITSTATUS(status) == 0 ? 0 : -ECHILD;
}

void fault_clock(long seconds)
{
	plan.ahead_sec = seconds;
}

time_t __real_time(time_t *out);
time_t __wrap_time(time_t *out);

time_t __wrap_time(time_t *out)
{
	time_t now = __real_time(NULL) + plan.ahead_sec;

	if (out)
		*out = now;
	return now;
}

unsigned fault_seen(enum fault_call call)
{
	return atomic_load(&plan.seen[call]);
}

void fault_reset(void)
{
	memset(&plan, 0, sizeof(plan));
}

/* Opening what is there changes nothing; creating and everything else does. */
static bool is_change(enum fault_call call, int flags)
{
	return call != FAULT_OPENAT || (flags & O_CREAT) != 0;
}

/* Before the call: true when it is to fail, with errno set. @change counts it for exit. */
static bool enter(enum fault_call call, bool change, bool *last)
{
	unsigned nth = atomic_fetch_add(&plan.seen[call], 1) + 1;

	*last = change && plan.exit_at > 0 &&
		atomic_fetch_add(&plan.changes, 1) + 1 == plan.exit_at;
	if (*last && !plan.exit_after)
		_exit(EXIT_STATUS);
	if (plan.slow_ms[call] > 0)
		(void)usleep(plan.slow_ms[call] * 1000);
	if (plan.code[call] == 0 || (plan.nth[call] != 0 && plan.nth[call] != nth))
		return false;
	if (*last)
		_exit(EXIT_STATUS);
	errno = plan.code[call];
	return true;
}

static void leave(bool last)
{
	if (last)
		_exit(EXIT_STATUS);
}

static size_t limit(enum fault_call call, size_t len)
{
	return plan.limited[call] && plan.max[call] < len ? plan.max[call] : len;
}

#define WRAP(type, name, call, params, args)                                                       \
	type __real_##name params;                                                                 \
	type __wrap_##name params;                                                                 \
	type __wrap_##name params                                                                  \
	{                                                                                          \
		bool last;                                                                         \
		type ret;                                                                          \
                                                                                                   \
		if (enter(call, true, &last))                                                      \
			return -1;                                                                 \
		ret = __real_##name args;                                                          \
		leave(last);                                                                       \
		return ret;                                                                        \
	}

WRAP(int, linkat, FAULT_LINKAT, (int a, const char *b, int c, const char *d, int e),
     (a, b, c, d, e))
WRAP(int, renameat, FAULT_RENAMEAT, (int a, const char *b, int c, const char *d), (a, b, c, d))
WRAP(int, renameat2, FAULT_RENAMEAT2, (int a, const char *b, int c, const char *d, unsigned e),
     (a, b, c, d, e))
WRAP(int, unlinkat, FAULT_UNLINKAT, (int a, const char *b, int c), (a, b, c))
WRAP(int, mkdirat, FAULT_MKDIRAT, (int a, const char *b, mode_t c), (a, b, c))
WRAP(ssize_t, write, FAULT_WRITE, (int a, const void *b, size_t c), (a, b, limit(FAULT_WRITE, c)))
WRAP(ssize_t, pwrite64, FAULT_PWRITE, (int a, const void *b, size_t c, off_t d),
     (a, b, limit(FAULT_PWRITE, c), d))
WRAP(int, ftruncate64, FAULT_FTRUNCATE, (int a, off_t b), (a, b))
WRAP(int, fchmod, FAULT_FCHMOD, (int a, mode_t b), (a, b))
WRAP(int, fsetxattr, FAULT_FSETXATTR, (int a, const char *b, const void *c, size_t d, int e),
     (a, b, c, d, e))
WRAP(int, symlinkat, FAULT_SYMLINKAT, (const char *a, int b, const char *c), (a, b, c))
WRAP(int, futimens, FAULT_FUTIMENS, (int a, const struct timespec b[2]), (a, b))
WRAP(int, fdatasync, FAULT_FDATASYNC, (int a), (a))
WRAP(int, fsync, FAULT_FSYNC, (int a), (a))
WRAP(int, syncfs, FAULT_SYNCFS, (int a), (a))
WRAP(ssize_t, copy_file_range, FAULT_COPY_FILE_RANGE,
     (int a, off_t *b, int c, off_t *d, size_t e, unsigned f),
     (a, b, c, d, limit(FAULT_COPY_FILE_RANGE, e), f))

int __real_openat64(int dir_fd, const char *path, int flags, ...);
int __wrap_openat64(int dir_fd, const char *path, int flags, ...);
int __wrap_openat64(int dir_fd, const char *path, int flags, ...)
{
	enum fault_call call = (flags & O_TMPFILE) == O_TMPFILE ? FAULT_TMPFILE : FAULT_OPENAT;
	mode_t mode = 0;
	bool last;
	va_list ap;
	int ret;

	va_start(ap, flags);
	if (flags & (O_CREAT | __O_TMPFILE))
		mode = va_arg(ap, mode_t);
	va_end(ap);
	if (enter(call, is_change(call, flags), &last))
		return -1;
	ret = __real_openat64(dir_fd, path, flags, mode);
	leave(last);
	return ret;
}

int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...)
{
	unsigned long arg;
	bool last;
	va_list ap;
	int ret;

	va_start(ap, request);
	arg = va_arg(ap, unsigned long);
	va_end(ap);
	if (enter(FAULT_IOCTL, true, &last))
		return -1;
	ret = __real_ioctl(fd, request, arg);
	leave(last);
	return ret;
}
