/* cas/put/tmp.c - a file that has no name yet, or a temporary one, until it is published */
#include "cas/put/tmp.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/io.h"
#include "cas/store/lease.h"
#include "cas/store/store_i.h"

/*
 * An O_TMPFILE costs its directory nothing until it is linked, and may be linked into any
 * directory of the same filesystem: so even a file whose hash is not known yet costs
 * exactly one mutation, in the shard it ends up in. A temporary name is always in the
 * shard of the final one, because a shard may be a mount or a symlink to elsewhere.
 */

/* What kernels and filesystems answer when they know no O_TMPFILE. */
static bool is_unsupported(int code)
{
	return code == EOPNOTSUPP || code == EISDIR || code == EINVAL || code == ENOSYS ||
	       code == EPERM;
}

static void shard_name(const uint8_t hash[CAS_HASH_SZ], char out[3])
{
	(void)snprintf(out, 3, "%02x", hash[0]);
}

static int open_unnamed(int top_fd, const char *dir, int *fd)
{
	*fd = openat(top_fd, dir, O_TMPFILE | O_RDWR | O_CLOEXEC, CAS_BLOB_MODE);
	if (*fd >= 0)
		return 0;
	return is_unsupported(errno) ? -EOPNOTSUPP : -errno;
}

static int open_named(struct cas_tmp *tmp, const char *shard)
{
	struct flock fl = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
	char rnd[17];
	int ret = io_random_hex(rnd, 8);

	if (ret < 0)
		return ret;
	(void)snprintf(tmp->path, sizeof(tmp->path), "%s/" CAS_TMP_PREFIX "%s", shard, rnd);
	tmp->fd = openat(tmp->top_fd, tmp->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
			 CAS_BLOB_MODE);
	if (tmp->fd < 0) {
		ret = -errno;
		tmp->path[0] = '\0';
		return ret;
	}
	/* Only a hint to gc, and not every filesystem has locks. */
	(void)fcntl(tmp->fd, F_OFD_SETLK, &fl);
	return 0;
}

static int open_in(struct cas_tmp *tmp, const char *shard, bool named)
{
	int ret = -EOPNOTSUPP;

	if (!named)
		ret = open_unnamed(tmp->top_fd, shard, &tmp->fd);
	return ret == -EOPNOTSUPP ? open_named(tmp, shard) : ret;
}

int cas_tmp_open(const struct cas_store *store, int top_fd, const uint8_t hash[CAS_HASH_SZ],
		 bool named, struct cas_tmp *out)
{
	struct cas_tmp tmp = {.fd = -1, .top_fd = top_fd};
	char shard[3];
	int ret;

	shard_name(hash, shard);
	ret = open_in(&tmp, shard, named);
	if (ret == -ENOENT) {
		ret = cas_store_mkdir(store, top_fd, shard, 0755);
		if (ret == 0)
			ret = open_in(&tmp, shard, named);
	}
	if (ret == 0)
		*out = tmp;
	return ret;
}

static void own_name(const struct cas_store *store, const uint8_t hash[CAS_HASH_SZ], char out[96])
{
	char path[CAS_LAYOUT_PATH_SZ];

	cas_layout_path(hash, path);
	(void)snprintf(out, 96, "%.2s/" CAS_TMP_PREFIX "%.16s-%.64s", path, store->id, path + 3);
}

static int open_own(struct cas_tmp *tmp)
{
	const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;

	tmp->fd = openat(tmp->top_fd, tmp->path, flags, CAS_BLOB_MODE);
	if (tmp->fd < 0 && errno == EEXIST) {
		(void)unlinkat(tmp->top_fd, tmp->path, 0);
		tmp->fd = openat(tmp->top_fd, tmp->path, flags, CAS_BLOB_MODE);
	}
	return tmp->fd < 0 ? -errno : 0;
}

int cas_tmp_open_own(const struct cas_store *store, int top_fd, const uint8_t hash[CAS_HASH_SZ],
		     bool named, struct cas_tmp *out)
{
	struct cas_tmp tmp = {.fd = -1, .top_fd = top_fd, .own = true};
	char shard[3];
	int ret = -EOPNOTSUPP;

	shard_name(hash, shard);
	for (int made = 0; made < 2; made++) {
		if (!named)
			ret = open_unnamed(top_fd, shard, &tmp.fd);
		if (ret == -EOPNOTSUPP) {
			own_name(store, hash, tmp.path);
			ret = open_own(&tmp);
		}
		if (ret != -ENOENT || made || cas_store_mkdir(store, top_fd, shard, 0755) < 0)
			break;
		ret = -EOPNOTSUPP;
		tmp.path[0] = '\0';
	}
	if (ret == 0)
		*out = tmp;
	return ret;
}

void cas_tmp_sweep_own(const struct cas_store *store, int top_fd, const uint8_t hash[CAS_HASH_SZ])
{
	char path[96];
	struct stat st;

	own_name(store, hash, path);
	if (fstatat(top_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
		(void)unlinkat(top_fd, path, 0);
}

int cas_tmp_open_anywhere(int top_fd, struct cas_tmp *out)
{
	struct cas_tmp tmp = {.fd = -1, .top_fd = top_fd};
	int ret = open_unnamed(top_fd, ".", &tmp.fd);

	if (ret == 0)
		*out = tmp;
	return ret;
}

int cas_tmp_move(int top_fd, const char *from, const char *to)
{
	struct stat st;

	if (renameat2(top_fd, from, top_fd, to, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	if (linkat(top_fd, from, top_fd, to, 0) == 0) {
		(void)unlinkat(top_fd, from, 0);
		return 0;
	}
	if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS)
		return -errno;
	/* No way to refuse to replace is left; what would be replaced has the same bytes. */
	if (fstatat(top_fd, to, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST;
	return renameat(top_fd, from, top_fd, to) < 0 ? -errno : 0;
}

/* One mutation on any filesystem; what it may replace has the same bytes. */
static int rename_own(const struct cas_tmp *tmp, const char *to)
{
	struct stat st;

	if (renameat2(tmp->top_fd, tmp->path, tmp->top_fd, to, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	if (fstatat(tmp->top_fd, to, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST;
	return renameat(tmp->top_fd, tmp->path, tmp->top_fd, to) < 0 ? -errno : 0;
}

static int link_unnamed(const struct cas_tmp *tmp, const char *to)
{
	char proc[32];

	if (linkat(tmp->fd, "", tmp->top_fd, to, AT_EMPTY_PATH) == 0)
		return 0;
	/* Without CAP_DAC_READ_SEARCH (or Linux 6.10) that is ENOENT, and /proc the way. */
	if (errno != ENOENT && errno != EPERM && errno != EINVAL)
		return -errno;
	(void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", tmp->fd);
	return linkat(AT_FDCWD, proc, tmp->top_fd, to, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

/* Is @dir_fd/@name this file, with no other name, and has nobody asked to write? */
static bool is_alone(const struct cas_tmp *tmp, int dir_fd, const char *name)
{
	struct stat named;
	struct stat open;

	return fstatat(dir_fd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	       fstat(tmp->fd, &open) == 0 && named.st_ino == open.st_ino &&
	       named.st_dev == open.st_dev && open.st_nlink == 1 && cas_lease_held(tmp->fd);
}

/*
 * A rename carries one name away, whatever file has it then: so it is looked at again. Who
 * took the old name meanwhile keeps it; the file is still open.
 */
static int rename_foreign(const struct cas_tmp *tmp, const char *to)
{
	if (!is_alone(tmp, tmp->from_fd, tmp->from))
		return -EBUSY;
	if (renameat2(tmp->from_fd, tmp->from, tmp->top_fd, to, RENAME_NOREPLACE) < 0)
		return errno == EEXIST || errno == ENOENT ? -errno : -EOPNOTSUPP;
	if (is_alone(tmp, tmp->top_fd, to))
		return 0;
	if (renameat2(tmp->top_fd, to, tmp->from_fd, tmp->from, RENAME_NOREPLACE) == 0)
		return -EBUSY;
	if (errno != EEXIST)
		return -errno;
	(void)unlinkat(tmp->top_fd, to, 0);
	return -EBUSY;
}

static int publish_unnamed(const struct cas_tmp *tmp, const char *to)
{
	return tmp->from ? rename_foreign(tmp, to) : link_unnamed(tmp, to);
}

int cas_tmp_publish(const struct cas_store *store, struct cas_tmp *tmp,
		    const uint8_t hash[CAS_HASH_SZ])
{
	char to[CAS_LAYOUT_PATH_SZ];
	char shard[3];
	int ret;

	cas_layout_path(hash, to);
	if (tmp->path[0] != '\0') {
		ret = tmp->own ? rename_own(tmp, to) : cas_tmp_move(tmp->top_fd, tmp->path, to);
		if (ret == 0)
			tmp->path[0] = '\0';
		return ret;
	}
	ret = publish_unnamed(tmp, to);
	if (ret != -ENOENT)
		return ret;
	shard_name(hash, shard);
	ret = cas_store_mkdir(store, tmp->top_fd, shard, 0755);
	if (ret == 0)
		ret = publish_unnamed(tmp, to);
	return ret == -ENOENT ? -EOPNOTSUPP : ret;
}

int cas_tmp_replace(struct cas_tmp *tmp, const uint8_t hash[CAS_HASH_SZ])
{
	char to[CAS_LAYOUT_PATH_SZ];

	cas_layout_path(hash, to);
	if (renameat(tmp->top_fd, tmp->path, tmp->top_fd, to) < 0)
		return -errno;
	tmp->path[0] = '\0';
	return 0;
}

void cas_tmp_fini(struct cas_tmp *tmp)
{
	if (tmp->path[0] != '\0')
		(void)unlinkat(tmp->top_fd, tmp->path, 0);
	tmp->path[0] = '\0';
	if (tmp->fd >= 0)
		(void)close(steal_fd(&tmp->fd));
}
