/* tests/lib/fsstress.c - programs that are hard on a filesystem, the list of them */
#include "tests/lib/fsstress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Past this many, the rest would only hide the first. */
#define WRONG_SHOWN 20

static int failures;

void wrong(const char *fmt, ...)
{
	va_list ap;
	int nr = __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);

	if (nr > WRONG_SHOWN)
		return;
	va_start(ap, fmt);
	flockfile(stdout);
	(void)fputs("fsstress: ", stdout);
	(void)vprintf(fmt, ap);
	(void)putchar('\n');
	(void)fflush(stdout);
	funlockfile(stdout);
	va_end(ap);
}

int wrong_count(void)
{
	return __atomic_load_n(&failures, __ATOMIC_RELAXED);
}

const char *name_of(int err)
{
	const char *name = err ? strerrorname_np(err) : "OK";

	return name ? name : "?";
}

void expect_call(const char *what, int want, long ret)
{
	int got = ret < 0 ? errno : 0;

	if (got != want)
		wrong("%s: %s, want %s", what, name_of(got), name_of(want));
}

int must_open(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0644);

	if (fd < 0) {
		wrong("open %s: %s", path, name_of(errno));
		exit(1);
	}
	return fd;
}

void must_fill(const char *path, size_t size, int byte)
{
	int fd = must_open(path, O_WRONLY | O_CREAT | O_TRUNC);
	char block[4096];

	memset(block, byte, sizeof(block));
	while (size > 0) {
		size_t part = size < sizeof(block) ? size : sizeof(block);

		if (write(fd, block, part) != (ssize_t)part) {
			wrong("write %s: %s", path, name_of(errno));
			exit(1);
		}
		size -= part;
	}
	expect_call("close", 0, close(fd));
}

void expect_filled(const char *path, size_t size, int byte)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	unsigned char block[4096];
	size_t at = 0;
	ssize_t got = -1;

	if (fd < 0) {
		wrong("open %s: %s", path, name_of(errno));
		return;
	}
	while ((got = read(fd, block, sizeof(block))) > 0) {
		for (ssize_t i = 0; i < got; i++) {
			if (block[i] == (unsigned char)byte)
				continue;
			wrong("%s: byte %zu is %d, want %d", path, at + (size_t)i, block[i], byte);
			(void)close(fd);
			return;
		}
		at += (size_t)got;
	}
	if (got < 0)
		wrong("read %s: %s", path, name_of(errno));
	else if (at != size)
		wrong("%s has %zu bytes, want %zu", path, at, size);
	(void)close(fd);
}

_Noreturn void child_end(void)
{
	_exit(wrong_count() != 0);
}

void child_wait(pid_t pid)
{
	int status = 0;

	if (waitpid(pid, &status, 0) != pid || status != 0)
		wrong("a process ended with status 0x%x", (unsigned int)status);
}

void in_processes(int nr, void (*body)(void *arg, int i), void *arg)
{
	pid_t pids[64];

	for (int i = 0; i < nr && i < 64; i++) {
		pids[i] = fork();
		if (pids[i] < 0) {
			wrong("fork: %s", name_of(errno));
			exit(1);
		}
		if (pids[i] == 0) {
			body(arg, i);
			child_end();
		}
	}
	for (int i = 0; i < nr && i < 64; i++)
		child_wait(pids[i]);
}

double seconds(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

long number(const char *text)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (*text == '\0' || *end != '\0') {
		(void)fprintf(stderr, "fsstress: '%s' is no number\n", text);
		exit(2);
	}
	return n;
}

double duration(const char *text)
{
	char *end;
	double secs = strtod(text, &end);

	if (*text == '\0' || *end != '\0') {
		(void)fprintf(stderr, "fsstress: '%s' is no time\n", text);
		exit(2);
	}
	return secs;
}

static const struct {
	const char *name;
	int nr;
	void (*run)(char **args);
	const char *usage;
} checks[] = {
	{"list-delete", 2, check_list_delete, "DIR COUNT"},
	{"list-threads", 2, check_list_threads, "DIR COUNT"},
	{"renamed", 1, check_renamed, "DIR"},
	{"replace", 3, check_replace, "FILE READERS SECONDS"},
	{"mapped-output", 1, check_mapped_output, "DIR"},
	{"mapped-input", 1, check_mapped_input, "FILE"},
	{"open-life", 1, check_open_life, "DIR"},
	{"second-fd", 1, check_second_fd, "DIR"},
	{"first-write", 1, check_first_write, "FILE"},
	{"append", 3, check_append, "FILE PROCESSES LINES"},
	{"append-odd", 1, check_append_odd, "FILE"},
	{"direct", 1, check_direct, "DIR"},
	{"mappings", 1, check_mappings, "DIR"},
	{"mixed-opens", 2, check_mixed_opens, "FILE COPY"},
	{"signals", 3, check_signals, "DIR INPUTS SECONDS"},
	{"locks", 3, check_locks, "FILE PROCESSES ROUNDS"},
	{"locks-apart", 2, check_locks_apart, "FILE FILE"},
	{"busy-text", 2, check_busy_text, "TOOL DIR"},
	{"fork-storm", 1, check_fork_storm, "SECONDS"},
	{"xattrs", 1, check_xattrs, "DIR"},
	{"events", 1, check_events, "DIR"},
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < sizeof(checks) / sizeof(checks[0]); i++) {
		if (strcmp(argv[1], checks[i].name) != 0 || argc - 2 != checks[i].nr)
			continue;
		checks[i].run(argv + 2);
		return wrong_count() != 0;
	}
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
		(void)fprintf(stderr, "usage: fsstress %s %s\n", checks[i].name, checks[i].usage);
	return 2;
}
