/* meta/uses.c - uses that wait in a file for the next writer */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/store/store.h"
#include "meta/index/files.h"
#include "meta/ledger/queue.h"
#include "meta/ledger/rows.h"
#include "meta/meta_i.h"

/*
 * Who evicts is a writer, and nobody else asks when something was last used. So where no
 * daemon serves, a command that only used the store need not open index and ledger for
 * writing, which takes longer than many a check-out: it appends its rows to STORE/run/uses,
 * and whoever writes next begins with these. The file's own lock keeps appending and
 * taking apart; a taken file has no name any more, which the next to append looks for.
 * Nothing is synced: what a crash loses is the order of a few evictions.
 */

#define USES_PATH "run/uses"
#define USES_MAX  (1 << 20)

static bool is_only_uses(const char *rows, size_t len)
{
	bool begins = true;

	for (size_t i = 0; i < len; i++) {
		if (begins && !strchr("tr!", rows[i]))
			return false;
		begins = rows[i] == ';' || rows[i] == '\n';
	}
	return true;
}

/* The file, locked; 0 when it was taken meanwhile. */
static int open_once(int store_fd, int flags, int *out)
{
	auto_close int fd =
		openat(store_fd, USES_PATH, O_NOFOLLOW | O_NOCTTY | O_CLOEXEC | flags, 0600);
	struct stat st;
	int ret;

	if (fd < 0)
		return -errno;
	ret = flags & O_CREAT ? meta_give_to_owner(store_fd, USES_PATH) : 0;
	while (ret == 0 && flock(fd, LOCK_EX) < 0)
		ret = errno == EINTR ? 0 : -errno;
	if (ret < 0 || fstat(fd, &st) < 0)
		return ret < 0 ? ret : -errno;
	if (!S_ISREG(st.st_mode))
		return -EUCLEAN;
	if (st.st_nlink == 0)
		return 0;
	*out = steal_fd(&fd);
	return 1;
}

static int open_locked(int store_fd, int flags, int *out)
{
	int ret;

	do
		ret = open_once(store_fd, flags, out);
	while (ret == 0);
	return ret < 0 ? ret : 0;
}

int meta_uses_leave(struct cas_store *store, const char *rows, size_t len, struct err *err)
{
	auto_close int fd = -1;
	struct stat st;
	int ret;

	if (len > USES_MAX || !is_only_uses(rows, len))
		return 0;
	ret = open_locked(cas_store_dir_fd(store), O_WRONLY | O_CREAT | O_APPEND, &fd);
	if (ret == 0 && fstat(fd, &st) < 0)
		ret = -errno;
	if (ret == 0 && (size_t)st.st_size + len > USES_MAX)
		return 0;
	if (ret == 0)
		ret = io_write_full(fd, rows, len);
	if (ret < 0)
		return err_set(err, ret, "cannot write %s/" USES_PATH ": %s", cas_store_path(store),
			       strerror(-ret));
	return 1;
}

/* A line that cannot be read, the end of a write that was cut off, is left out. */
static void push_line(struct meta *meta, const char *line, size_t len)
{
	struct meta_row *row = NULL;
	bool sync;

	if (meta_rows_parse(line, len, &row, &sync, NULL) < 0)
		return;
	while (row) {
		struct meta_row *next = row->next;

		meta_queue_push(meta->queue, row);
		row = next;
	}
}

void meta_uses_take(struct meta *meta)
{
	int store_fd = cas_store_dir_fd(meta->store);
	auto_buf struct buf text = {0};
	auto_close int fd = -1;
	int ret = open_locked(store_fd, O_RDONLY, &fd);

	if (ret == -ENOENT)
		return;
	if (ret == 0)
		ret = io_read_file(store_fd, USES_PATH, USES_MAX, &text);
	for (size_t at = 0; ret == 0 && at < text.len;) {
		const char *end = memchr(text.data + at, '\n', text.len - at);
		size_t len = end ? (size_t)(end - text.data) - at : text.len - at;

		push_line(meta, text.data + at, len);
		at += len + 1;
	}
	/* Unread or not: it would be in the way for ever. */
	if (unlinkat(store_fd, USES_PATH, 0) < 0 && ret == 0)
		ret = -errno;
	if (ret < 0)
		log_warn("lost what was used without a daemon: %s/" USES_PATH ": %s",
			 cas_store_path(meta->store), strerror(-ret));
}
