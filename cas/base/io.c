/* cas/base/io.c - whole reads and writes, and small helpers below a directory descriptor */
#include "cas/base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/btrfs.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"

ssize_t io_read_full(int fd, void *data, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t got = read(fd, (char *)data + done, len - done);

		if (got < 0) {
			int code = errno;

			if (code == EINTR)
				continue;
			return -code;
		}
		if (got == 0)
			break;
		done += (size_t)got;
	}
	return (ssize_t)done;
}

ssize_t io_pread_full(int fd, void *data, size_t len, off_t off)
{
	size_t done = 0;

	while (done < len) {
		ssize_t got = pread(fd, (char *)data + done, len - done, off + (off_t)done);

		if (got < 0) {
			int code = errno;

			if (code == EINTR)
				continue;
			return -code;
		}
		if (got == 0)
			break;
		done += (size_t)got;
	}
	return (ssize_t)done;
}

int io_write_full(int fd, const void *data, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t put = write(fd, (const char *)data + done, len - done);

		if (put < 0) {
			int code = errno;

			if (code == EINTR)
				continue;
			return -code;
		}
		done += (size_t)put;
	}
	return 0;
}

int io_pwrite_full(int fd, const void *data, size_t len, off_t off)
{
	size_t done = 0;

	while (done < len) {
		ssize_t put = pwrite(fd, (const char *)data + done, len - done, off + (off_t)done);

		if (put < 0) {
			int code = errno;

			if (code == EINTR)
				continue;
			return -code;
		}
		done += (size_t)put;
	}
	return 0;
}

int io_read_file(int dir_fd, const char *path, size_t max, struct buf *out)
{
	auto_close int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	size_t start = out->len;

	if (fd < 0)
		return -errno;
	/* Most have a few lines, for which no pages are to be mapped. */
	for (size_t step = 4096;; step = 65536) {
		ssize_t got;
		int ret = buf_reserve(out, step);

		if (ret < 0)
			return ret;
		got = io_read_full(fd, out->data + out->len, step);
		if (got < 0)
			return (int)got;
		out->len += (size_t)got;
		out->data[out->len] = '\0';
		if (out->len - start > max)
			return -EFBIG;
		if ((size_t)got < step)
			return 0;
	}
}

int io_replace_file(int dir_fd, const char *name, const void *data, size_t len, mode_t mode,
		    bool durable)
{
	char tmp[NAME_MAX + 1];
	char rnd[17];
	auto_close int fd = -1;
	int ret = io_random_hex(rnd, 8);

	if (ret < 0)
		return ret;
	(void)snprintf(tmp, sizeof(tmp), ".tmp-%s", rnd);
	fd = openat(dir_fd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	ret = io_write_full(fd, data, len);
	if (ret == 0 && fchmod(fd, mode) < 0)
		ret = -errno;
	if (ret == 0 && durable && fsync(fd) < 0)
		ret = -errno;
	if (close(steal_fd(&fd)) < 0 && ret == 0)
		ret = -errno;
	if (ret == 0 && renameat(dir_fd, tmp, dir_fd, name) < 0)
		ret = -errno;
	if (ret < 0)
		(void)unlinkat(dir_fd, tmp, 0);
	return ret;
}

/* Asking costs less than a filesystem takes to cut nothing off. */
static int cut_after(int fd, off_t len)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size > len && ftruncate(fd, len) < 0)
		return -errno;
	return 0;
}

int io_overwrite_file(int dir_fd, const char *name, const void *data, size_t len, mode_t mode,
		      bool durable)
{
	auto_close int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode);
	int ret;

	if (fd < 0)
		return -errno;
	ret = io_write_full(fd, data, len);
	/* Not by O_TRUNC: some filesystems then write the file to disk when it is closed. */
	if (ret == 0)
		ret = cut_after(fd, (off_t)len);
	if (ret == 0 && durable && fsync(fd) < 0)
		ret = -errno;
	if (close(steal_fd(&fd)) < 0 && ret == 0)
		ret = -errno;
	return ret;
}

int io_mkdir_parents(int dir_fd, const char *path, mode_t mode)
{
	char part[PATH_MAX];
	size_t len = strlen(path);

	if (len == 0 || len >= sizeof(part))
		return len == 0 ? -ENOENT : -ENAMETOOLONG;
	memcpy(part, path, len + 1);
	for (char *p = part + 1;; p++) {
		if (*p != '/' && *p != '\0')
			continue;
		char was = *p;

		*p = '\0';
		if (mkdirat(dir_fd, part, mode) < 0) {
			int code = errno;
			struct stat st;

			if (code != EEXIST && code != EROFS && code != EACCES)
				return -code;
			if (fstatat(dir_fd, part, &st, 0) < 0)
				return -(code == EEXIST ? errno : code);
			if (!S_ISDIR(st.st_mode))
				return -ENOTDIR;
		}
		*p = was;
		if (was == '\0')
			return 0;
	}
}

/*
 * Removal recurses, but only LIFT_DEPTH levels: a directory found below that is renamed
 * into the top directory and met there again, so that neither the stack nor the number
 * of descriptors depends on how deep somebody made a tree.
 */
#define LIFT_DEPTH 32

struct removal {
	dev_t dev;
	int top_fd;	 /* the directory that is being removed */
	unsigned lifted; /* directories renamed into it so far */
};

static int remove_entries(int fd, struct removal *r, int depth, struct err *err);

/* Take immutable and append-only off, where we may; true: something was taken off. */
static bool unflag(int fd)
{
	int flags;

	if (fd < 0 || ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0 ||
	    !(flags & (FS_IMMUTABLE_FL | FS_APPEND_FL)))
		return false;
	flags &= ~(FS_IMMUTABLE_FL | FS_APPEND_FL);
	return ioctl(fd, FS_IOC_SETFLAGS, &flags) == 0;
}

/* Of @name, a file or directory, and of the directory that it is in. */
static bool unflag_entry(int dir_fd, const char *name)
{
	auto_close int fd = -1;
	bool parent = unflag(dir_fd);
	struct stat st;

	/* Nothing else has flags, and opening it could do something. */
	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
		fd = openat(dir_fd, name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
	return unflag(fd) || parent;
}

/* unlinkat, also of what an action made immutable; -1 with errno. */
static int drop(int dir_fd, const char *name, int how)
{
	if (unlinkat(dir_fd, name, how) == 0)
		return 0;
	if (errno != EPERM)
		return -1;
	if (unflag_entry(dir_fd, name))
		return unlinkat(dir_fd, name, how);
	errno = EPERM;
	return -1;
}

/* False where a rename is not possible; then recursion has to do. */
static bool lift(int dir_fd, const char *name, struct removal *r)
{
	char lifted[32];

	(void)snprintf(lifted, sizeof(lifted), ".casbox-lifted-%u", r->lifted);
	if (renameat(dir_fd, name, r->top_fd, lifted) < 0 &&
	    (errno != EPERM || !unflag_entry(dir_fd, name) ||
	     renameat(dir_fd, name, r->top_fd, lifted) < 0))
		return false;
	r->lifted++;
	return true;
}

/* A bind mount has the device of what it shows, so that alone does not tell. */
static bool is_mount_root(int fd)
{
	struct statx stx;

	return statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &stx) == 0 &&
	       (stx.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

/* Such a one has a device of its own, and yet is part of its parent's filesystem. */
static bool is_subvolume(int dir_fd, int fd, const struct stat *st)
{
	struct statfs fs;
	struct stat above;

	if (fstatfs(fd, &fs) < 0 || fs.f_type != BTRFS_SUPER_MAGIC)
		return false;
	/* Or in one. */
	return st->st_ino == IO_SUBVOLUME_INO ||
	       (fstat(dir_fd, &above) == 0 && above.st_dev == st->st_dev);
}

/* A subvolume may be read-only, and its owner may change that. */
static void make_writable(int fd)
{
	__u64 flags;

	if (ioctl(fd, BTRFS_IOC_SUBVOL_GETFLAGS, &flags) < 0 || !(flags & BTRFS_SUBVOL_RDONLY))
		return;
	flags &= ~BTRFS_SUBVOL_RDONLY;
	(void)ioctl(fd, BTRFS_IOC_SUBVOL_SETFLAGS, &flags);
}

/* Check and open: *fd, or 0 with *fd < 0 when it is gone. */
static int remove_open(int dir_fd, const char *name, const struct removal *r, int *fd,
		       struct err *err)
{
	/* O_PATH first: a directory of mode 0 opens, and its mode is mended by descriptor. */
	auto_close int path_fd =
		openat(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	*fd = -1;
	if (path_fd < 0)
		return errno == ENOENT ? 0 : err_set(err, -errno, "cannot open directory %s", name);
	if (fstat(path_fd, &st) < 0)
		return err_set(err, -errno, "cannot stat %s", name);
	if ((st.st_dev != r->dev && !is_subvolume(dir_fd, path_fd, &st)) || is_mount_root(path_fd))
		return err_set(err, -EXDEV, "%s is a mount point", name);
	if ((st.st_mode & 0700) != 0700) {
		char proc[64];

		(void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", path_fd);
		if (chmod(proc, st.st_mode | 0700) < 0 &&
		    (errno != EPERM || !unflag_entry(dir_fd, name) ||
		     chmod(proc, st.st_mode | 0700) < 0))
			return err_set(err, -errno, "cannot make %s removable: %m", name);
	}
	*fd = openat(path_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*fd < 0)
		return err_set(err, -errno, "cannot read directory %s", name);
	if (st.st_ino == IO_SUBVOLUME_INO)
		make_writable(*fd);
	return 0;
}

static int remove_dir(int dir_fd, const char *name, struct removal *r, int depth, struct err *err)
{
	auto_close int fd = -1;
	int ret = remove_open(dir_fd, name, r, &fd, err);

	if (ret < 0 || fd < 0)
		return ret;
	if (depth > LIFT_DEPTH && lift(dir_fd, name, r))
		return 0;
	ret = remove_entries(steal_fd(&fd), r, depth, err);
	if (ret < 0)
		return ret;
	if (drop(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return err_set(err, -errno, "cannot remove directory %s: %m", name);
	return 0;
}

/* Takes ownership of @fd. */
static int remove_entries(int fd, struct removal *r, int depth, struct err *err)
{
	auto_closedir DIR *dir = fdopendir(fd);
	struct dirent *de;

	if (dir == NULL) {
		int code = errno;

		(void)close(fd);
		return err_set(err, -code, "cannot read a directory to remove");
	}
	for (errno = 0; (de = readdir(dir)) != NULL; errno = 0) {
		int ret = 0;

		if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
			continue;
		if (de->d_type != DT_DIR && drop(fd, de->d_name, 0) == 0)
			continue;
		if (de->d_type == DT_DIR || errno == EISDIR ||
		    (errno == EPERM && de->d_type == DT_UNKNOWN))
			ret = remove_dir(fd, de->d_name, r, depth + 1, err);
		else if (errno != ENOENT)
			ret = err_set(err, -errno, "cannot remove %s: %m", de->d_name);
		if (ret < 0)
			return ret;
	}
	return errno ? err_set(err, -errno, "cannot read a directory to remove") : 0;
}

static int remove_top(int dir_fd, const char *name, dev_t dev, struct err *err)
{
	struct removal r = {.dev = dev};
	auto_close int fd = -1;
	unsigned lifted;
	int ret = remove_open(dir_fd, name, &r, &fd, err);

	if (ret < 0 || fd < 0)
		return ret;
	r.top_fd = fd;
	do {
		int scan = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (scan < 0)
			return err_set(err, -errno, "cannot read directory %s", name);
		lifted = r.lifted;
		ret = remove_entries(scan, &r, 0, err);
	} while (ret == 0 && r.lifted != lifted);
	if (ret < 0)
		return ret;
	if (drop(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return err_set(err, -errno, "cannot remove directory %s: %m", name);
	return 0;
}

int io_remove_tree(int dir_fd, const char *name, struct err *err)
{
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_set(err, -errno, "cannot stat %s", name);
	if (S_ISDIR(st.st_mode))
		return remove_top(dir_fd, name, st.st_dev, err);
	if (drop(dir_fd, name, 0) < 0 && errno != ENOENT)
		return err_set(err, -errno, "cannot remove %s: %m", name);
	return 0;
}

void io_give_to_dir_owner(int fd, const char *path)
{
	const char *slash = strrchr(path, '/');
	char dir[PATH_MAX];
	struct stat st;
	int len = snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path) : 1,
			   slash ? path : ".");

	if (geteuid() == 0 && len > 0 && (size_t)len < sizeof(dir) && stat(dir, &st) == 0 &&
	    st.st_uid != 0)
		(void)!fchown(fd, st.st_uid, st.st_gid);
}

int io_random_hex(char *out, size_t nr)
{
	static const char digits[] = "0123456789abcdef";

	unsigned char bytes[64];

	for (size_t i = 0; i < nr; i++) {
		size_t at = i % sizeof(bytes);
		size_t want = nr - i < sizeof(bytes) ? nr - i : sizeof(bytes);

		ssize_t got = (ssize_t)want;

		/* Up to 256 bytes come whole. */
		while (at == 0 && (got = getrandom(bytes, want, 0)) < 0 && errno == EINTR)
			;
		if (got < 0)
			return -errno;
		out[2 * i] = digits[bytes[at] >> 4];
		out[2 * i + 1] = digits[bytes[at] & 15];
	}
	out[2 * nr] = '\0';
	return 0;
}
