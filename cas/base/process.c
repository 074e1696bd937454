/* cas/base/process.c - what the kernel tells of other processes */
#include "cas/base/process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/io.h"

/* include/linux/sched.h; the ninth field of /proc/PID/stat. */
#define EXITING 0x4UL

static int read_of(pid_t pid, const char *name, struct buf *out)
{
	char path[48];

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	return io_read_file(AT_FDCWD, path, 65536, out);
}

static bool has_kill(const char *status, const char *field)
{
	const char *at = strstr(status, field);

	return at && (strtoull(at + strlen(field), NULL, 16) & (1ULL << (SIGKILL - 1)));
}

/* Six fields lie between the name in parentheses, which may hold anything, and the flags. */
static bool has_exiting(const char *stat)
{
	const char *at = strrchr(stat, ')');

	for (int i = 0; i < 7 && at; i++)
		at = strchr(at + 1, ' ');
	return at && (strtoul(at + 1, NULL, 10) & EXITING);
}

bool process_is_dying(pid_t pid)
{
	auto_buf struct buf status = {0};
	auto_buf struct buf stat = {0};

	if (pid <= 0 || read_of(pid, "status", &status) < 0 || read_of(pid, "stat", &stat) < 0)
		return true;
	return has_kill(buf_str(&status), "\nSigPnd:\t") ||
	       has_kill(buf_str(&status), "\nShdPnd:\t") || has_exiting(buf_str(&stat));
}
