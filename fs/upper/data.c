/* fs/upper/data.c - the bytes of files in a layer */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/upper/limit.h"
#include "fs/upper/upper_i.h"

/*
 * Reading and writing happen without the layer's lock, by a descriptor that is counted:
 * whoever ends the layer waits for it.
 */

int fs_upper_acquire(struct fs_unode *node)
{
	struct fs_upper *upper = node->upper;
	int fd;

	fs_upper_lock(upper);
	fd = fs_upper_check(upper);
	if (fd == 0)
		fd = fs_disk_open(node);
	if (fd >= 0)
		upper->nr_busy++;
	fs_upper_unlock(upper);
	return fd;
}

void fs_upper_release(struct fs_unode *node)
{
	struct fs_upper *upper = node->upper;

	fs_ufd_unref(node);
	fs_upper_lock(upper);
	if (--upper->nr_busy == 0)
		(void)pthread_cond_broadcast(&upper->idle);
	fs_upper_unlock(upper);
}

void fs_upper_wait_idle(struct fs_upper *upper)
{
	fs_upper_lock(upper);
	upper->ended = true;
	while (upper->nr_busy > 0)
		fs_upper_wait(upper);
	fs_upper_unlock(upper);
}

int fs_upper_is_lower(struct fs_unode *node, struct fs_entry *lower)
{
	int ret;

	fs_upper_lock(node->upper);
	ret = fs_upper_check(node->upper);
	if (ret == 0 && !node->has_upper && S_ISREG(node->type)) {
		*lower = node->lower;
		ret = 1;
	}
	fs_upper_unlock(node->upper);
	return ret;
}

ssize_t fs_upper_read(struct fs_unode *node, void *data, size_t size, off_t off)
{
	int fd = fs_upper_acquire(node);
	ssize_t got;

	if (fd < 0)
		return fd;
	got = io_pread_full(fd, data, size, off);
	fs_upper_release(node);
	return got;
}

int fs_upper_write(struct fs_unode *node, const void *data, size_t size, off_t off, struct err *err)
{
	int ret = fs_upper_copy_up(node, false, err);
	uint64_t promised;
	int fd;

	if (ret < 0)
		return ret;
	fd = fs_upper_acquire(node);
	if (fd < 0)
		return fd;
	ret = fs_ulimit_promise(node->upper, fd, (uint64_t)off, size, &promised);
	if (ret == 0) {
		ret = io_pwrite_full(fd, data, size, off);
		fs_ulimit_settle(node, fd, promised);
	}
	fs_upper_release(node);
	return ret;
}

int fs_upper_fallocate(struct fs_unode *node, int mode, off_t off, off_t len, struct err *err)
{
	bool takes = (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_COLLAPSE_RANGE |
			      FALLOC_FL_INSERT_RANGE)) == 0;
	int ret = fs_upper_copy_up(node, false, err);
	uint64_t promised;
	int fd;

	if (ret < 0)
		return ret;
	fd = fs_upper_acquire(node);
	if (fd < 0)
		return fd;
	/* What makes room, or moves what is there, takes next to nothing. */
	ret = fs_ulimit_promise(node->upper, fd, (uint64_t)off, takes ? (uint64_t)len : 0,
				&promised);
	if (ret == 0) {
		ret = fallocate(fd, mode, off, len) < 0 ? -errno : 0;
		fs_ulimit_settle(node, fd, promised);
	}
	fs_upper_release(node);
	return ret;
}

off_t fs_upper_seek(struct fs_unode *node, off_t off, int whence)
{
	int fd = fs_upper_acquire(node);
	off_t got;

	if (fd < 0)
		return fd;
	got = lseek(fd, off, whence);
	if (got < 0)
		got = -errno;
	fs_upper_release(node);
	return got;
}

static int readlink_locked(struct fs_unode *node, char **out)
{
	auto_free char *target = malloc(PATH_MAX + 1);
	struct fs_place place;
	ssize_t len;
	int ret = fs_upper_check(node->upper);

	if (!target)
		return -ENOMEM;
	if (ret == 0 && !node->has_upper) {
		*out = strdup(node->lower.target);
		return *out ? 0 : -ENOMEM;
	}
	if (ret == 0)
		ret = fs_disk_place(node, &place);
	if (ret < 0)
		return ret;
	len = readlinkat(place.dir_fd, place.name, target, PATH_MAX);
	ret = len < 0 ? -errno : 0;
	fs_disk_place_end(&place);
	if (ret < 0)
		return ret;
	target[len] = '\0';
	*out = steal_ptr(&target);
	return 0;
}

int fs_upper_readlink(struct fs_unode *node, char **out)
{
	int ret;

	fs_upper_lock(node->upper);
	ret = readlink_locked(node, out);
	fs_upper_unlock(node->upper);
	return ret;
}
