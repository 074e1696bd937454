/* meta/uses_leave.c - uses that wait in a file for the next writer */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/store/store.h"
#include "meta/index/files.h"
#include "meta/meta_i.h"

/*
 * Who evicts is a writer, and nobody else asks when something was last used. So where no
 * daemon serves, a command that only used the store need not open index and ledger for
 * writing, which takes longer than many a check-out: it appends its rows to STORE/run/uses,
 * and whoever writes next begins with these. The file's own lock keeps appending and
 * taking apart; a taken file has no name any more, which the next to append looks for.
 * Nothing is synced: what a crash loses is the order of a few evictions.
 *
 * The program's front links this file (tools/front) and little else: what it calls is to stay
 * small.
 */

/* What one command may leave where meta_uses_have_room said so. */
#define ROOM 4096

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
		openat(store_fd, META_USES_PATH, O_NOFOLLOW | O_NOCTTY | O_CLOEXEC | flags, 0600);
	struct stat st;
	int ret;

	if (fd < 0)
		return -errno;
	ret = flags & O_CREAT ? meta_give_to_owner(store_fd, META_USES_PATH) : 0;
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

int meta_uses_open(int store_fd, int flags, int *out)
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

	if (len > META_USES_MAX || !is_only_uses(rows, len))
		return 0;
	ret = meta_uses_open(cas_store_dir_fd(store), O_WRONLY | O_CREAT | O_APPEND, &fd);
	if (ret == 0 && fstat(fd, &st) < 0)
		ret = -errno;
	if (ret == 0 && (size_t)st.st_size + len > META_USES_MAX)
		return 0;
	if (ret == 0)
		ret = io_write_full(fd, rows, len);
	if (ret < 0)
		return err_set(err, ret, "cannot write %s/" META_USES_PATH ": %s",
			       cas_store_path(store), strerror(-ret));
	return 1;
}

bool meta_uses_have_room(struct cas_store *store)
{
	struct stat st;

	if (fstatat(cas_store_dir_fd(store), META_USES_PATH, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT;
	return S_ISREG(st.st_mode) && st.st_size <= META_USES_MAX - ROOM;
}

/* The row that catalogs of meta.h make of tree_touch (meta/ledger/rows.h). */
int meta_uses_leave_tree(struct cas_store *store, const struct cas_digest *root, struct err *err)
{
	char row[CAS_DIGEST_STR_SZ + 4];
	int len = snprintf(row, sizeof(row), "r,%s\n", CAS_DIGEST_TEXT(root));

	return meta_uses_leave(store, row, (size_t)len, err);
}
