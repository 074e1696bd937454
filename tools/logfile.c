/* tools/logfile.c - the daemon's log: STORE/run/log, bounded */
#include "tools/logfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cas/cas.h"

#define LOG_MAX (1 << 20)

#define LINE_SZ 2200 /* of the log's own lines and what stands before them */

static char log_path[PATH_MAX];
static char old_path[PATH_MAX];
static off_t log_sz; /* as far as we know: others may write there, too */

static int set_paths(const char *store, struct err *err)
{
	char run[PATH_MAX];
	int len = snprintf(run, sizeof(run), "%s/run", store);

	if (len + (int)sizeof("/log.1") > (int)sizeof(run))
		return err_set(err, -ENAMETOOLONG, "%s is too long a path", store);
	(void)snprintf(log_path, sizeof(log_path), "%.*s/log", len, run);
	(void)snprintf(old_path, sizeof(old_path), "%.*s/log.1", len, run);
	(void)io_mkdir_parents(AT_FDCWD, run, 0755);
	return 0;
}

/* The daemon of the store's owner writes on where root's has begun. */
static int open_log(void)
{
	int fd = open(log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return -errno;
	io_give_to_dir_owner(fd, log_path);
	return fd;
}

int logfile_open(const char *store, struct err *err)
{
	struct stat st;
	int ret = set_paths(store, err);
	int fd;

	if (ret)
		return ret;
	if (stat(log_path, &st) == 0 && st.st_size > LOG_MAX)
		(void)rename(log_path, old_path);
	fd = open_log();
	if (fd < 0)
		return err_set(err, fd, "cannot open %s: %s", log_path, strerror(-fd));
	return fd;
}

static void rotate(void)
{
	int fd;

	if (rename(log_path, old_path))
		return;
	fd = open_log();
	if (fd < 0)
		return;
	(void)dup2(fd, STDERR_FILENO);
	(void)close(fd);
}

static void look_at_size(void)
{
	struct stat st;

	log_sz = fstat(STDERR_FILENO, &st) == 0 && S_ISREG(st.st_mode) ? st.st_size : 0;
}

/*
 * The log's own lock is held: one call at a time. Somebody may be waiting for whoever logs:
 * one system call a line.
 */
static void write_line(void *ctx, enum log_level level, const char *line)
{
	struct timespec now;
	char text[LINE_SZ];
	struct tm tm;
	int len;

	(void)ctx;
	(void)clock_gettime(CLOCK_REALTIME, &now);
	(void)gmtime_r(&now.tv_sec, &tm);
	len = snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %s: %s\n",
		       tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min,
		       tm.tm_sec, now.tv_nsec / 1000000, log_level_name(level), line);
	if (len >= (int)sizeof(text))
		len = (int)sizeof(text) - 1;
	(void)io_write_full(STDERR_FILENO, text, (size_t)len);
	log_sz += len;
	if (log_sz <= LOG_MAX)
		return;
	look_at_size();
	if (log_sz > LOG_MAX) {
		rotate();
		look_at_size();
	}
}

void logfile_begin(const char *store)
{
	if (set_paths(store, NULL) < 0)
		return;
	look_at_size();
	log_set_sink(write_line, NULL);
}
