/* cas/ingest/ingest_guard.c - where ingest must not go, and what identities are worth where */
#include "cas/ingest/ingest_i.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/io.h"
#include "cas/store/store.h"

/*
 * Opening and closing a database file drops the POSIX locks that this process holds on
 * it, which SQLite and LMDB rely on. So the store's own directories stay closed to
 * ingest, whether they are reached from above or named directly. Sandboxes' uppers,
 * also below STORE, may be ingested: only STORE itself and STORE/meta are barred.
 */

static int guard_add(struct ingest_guard *guard, int dir_fd, const char *name)
{
	struct stat st;

	/* What we may not look into no walk of ours gets into either. */
	if (fstatat(dir_fd, name, &st, 0) < 0)
		return errno == ENOENT || errno == EACCES ? 0 : -errno;
	guard->dev[guard->nr] = st.st_dev;
	guard->ino[guard->nr] = st.st_ino;
	guard->nr++;
	return 0;
}

int ingest_guard_init(struct ingest_guard *guard, struct cas_store *store, struct err *err)
{
	int fd = cas_store_dir_fd(store);
	int ret;

	guard->nr = 0;
	ret = guard_add(guard, fd, ".");
	if (ret == 0)
		ret = guard_add(guard, fd, "meta");
	if (ret == 0)
		ret = guard_add(guard, fd, "meta/index");
	if (ret < 0)
		return err_set(err, ret, "cannot stat the store %s: %s", cas_store_path(store),
			       strerrordesc_np(-ret));
	return 0;
}

bool ingest_guard_hits(const struct ingest_guard *guard, dev_t dev, ino_t ino)
{
	for (int i = 0; i < guard->nr; i++) {
		if (guard->dev[i] == dev && guard->ino[i] == ino)
			return true;
	}
	return false;
}

bool ingest_guard_in_meta(struct cas_store *store, int fd)
{
	char link[64];
	char path[PATH_MAX];
	const char *top = cas_store_path(store);
	size_t len = strlen(top);
	ssize_t got;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	got = readlink(link, path, sizeof(path) - 1);
	if (got < 0)
		return false;
	path[got] = '\0';
	return strncmp(path, top, len) == 0 && strncmp(path + len, "/meta", 5) == 0 &&
	       (path[len + 5] == '/' || path[len + 5] == '\0');
}

/* "36 35 98:0 /root /mount/point options... - type source options": is it a casbox on @dev? */
static bool line_matches(char *line, dev_t dev, struct buf *where)
{
	unsigned major = 0;
	unsigned minor = 0;
	int at = 0;
	char *type = strstr(line, " - ");
	char *end;

	if (type == NULL || strncmp(type + 3, "fuse.casbox", 11) != 0 ||
	    (type[14] != ' ' && type[14] != '.'))
		return false;
	if (sscanf(line, "%*u %*u %u:%u %*s %n", &major, &minor, &at) != 2 || at == 0)
		return false;
	if (makedev(major, minor) != dev)
		return false;
	end = strchr(line + at, ' ');
	if (end == NULL)
		return false;
	*end = '\0';
	(void)buf_append_str(where, line + at);
	return true;
}

bool ingest_guard_casbox(dev_t dev, struct buf *where)
{
	auto_buf struct buf text = {0};
	char *line;
	char *next;

	if (io_read_file(AT_FDCWD, "/proc/self/mountinfo", 64 << 20, &text) < 0)
		return false;
	for (line = text.data; line && *line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		if (line_matches(line, dev, where))
			return true;
	}
	return false;
}

/*
 * Remembering a file by (dev, inode, size, mtime, ctime) needs inode numbers that the
 * filesystem keeps, and a ctime that nobody can set. Both are known to hold here; FUSE,
 * FAT, CIFS and what else there is makes numbers up as it goes, so files there are read
 * each time.
 */
void ingest_traits_get(int fd, struct ingest_traits *out)
{
	struct timespec res = {.tv_nsec = 10000000};
	struct statfs fs;

	*out = (struct ingest_traits){.stable_ids = true};
	if (fstatfs(fd, &fs) < 0)
		fs.f_type = 0;
	switch ((unsigned long)fs.f_type) {
	case EXT4_SUPER_MAGIC:
	case XFS_SUPER_MAGIC:
	case BTRFS_SUPER_MAGIC:
	case TMPFS_MAGIC:
	case OVERLAYFS_SUPER_MAGIC:
	case 0xf2f52010UL: /* f2fs */
		/* Times come from the coarse clock: at most one tick behind. */
		(void)clock_getres(CLOCK_REALTIME_COARSE, &res);
		out->margin_ns = 2 * res.tv_nsec + 20000000;
		break;
	case NFS_SUPER_MAGIC:
	case 0x2fc12fc1UL: /* zfs */
	case 0xca451a4eUL: /* bcachefs */
		out->margin_ns = 2000000000;
		break;
	default:
		out->stable_ids = false;
		break;
	}
}
