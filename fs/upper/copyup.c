/* fs/upper/copyup.c - the first change of an input: it becomes the layer's */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/backing/backing.h"
#include "fs/upper/limit.h"
#include "fs/upper/upper_i.h"
#include "fs/view/attr.h"

/*
 * A file is copied to w without the layer's lock, and moved to its place with it: whoever
 * comes second throws his copy away. The number of the node, and so what the kernel has
 * cached of it, stays: the bytes are the same.
 */

#define SLOW_SZ (4U << 20) /* left to threads that do not answer the kernel */

static void times_of(const struct fs_entry *lower, struct timespec times[2])
{
	times[0] = times[1] = fs_attr_mtime(lower);
}

int fs_upper_dir_up(struct fs_unode *dir)
{
	mode_t mode = fs_attr_mode(&dir->lower);
	struct timespec times[2];
	struct fs_place place;
	int ret;

	if (dir->has_upper)
		return 0;
	if (dir->removed || !dir->names)
		return -ENOENT;
	ret = fs_upper_dir_up(dir->names->dir);
	if (ret == 0)
		ret = fs_disk_place(dir, &place);
	if (ret < 0)
		return ret;
	times_of(&dir->lower, times);
	if (mkdirat(place.dir_fd, place.name, fs_disk_mode(mode)) < 0) {
		ret = -errno;
	} else if (utimensat(place.dir_fd, place.name, times, AT_SYMLINK_NOFOLLOW) < 0) {
		ret = -errno;
		/* Or the next one would find it in the way. */
		(void)unlinkat(place.dir_fd, place.name, AT_REMOVEDIR);
	}
	fs_disk_place_end(&place);
	if (ret < 0)
		return ret;
	dir->has_upper = true;
	if (fs_disk_mode(mode) != (mode & 07777)) {
		int fd = fs_disk_open(dir);

		ret = fd < 0 ? fd : fs_disk_set_mode(dir, fd, mode);
		if (fd >= 0)
			fs_ufd_unref(dir);
	}
	return ret;
}

static int copy_blob(struct fs_uppers *all, const struct cas_digest *digest, int to,
		     struct err *err)
{
	struct fs_backing *from;
	int ret;

	if (lock_thread_is_prompt() && digest->size >= SLOW_SZ)
		return -EAGAIN;
	ret = fs_backing_ref(all->opts.backing, digest, &from, err);
	if (ret < 0)
		return ret;
	ret = fs_backing_copy(from, to, err);
	fs_backing_unref(all->opts.backing, from);
	return ret;
}

/* A copy of the file in w/@name, which looks as the input did; its descriptor. */
static int make_file(struct fs_unode *node, const struct fs_entry *lower, bool empty,
		     const char *name, struct err *err)
{
	struct fs_upper *upper = node->upper;
	struct timespec times[2];
	auto_close int fd = openat(upper->work_fd, name,
				   O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
	int ret = fd < 0 ? -errno : 0;

	if (ret == 0 && !empty)
		ret = copy_blob(upper->all, &lower->digest, fd, err);
	times_of(lower, times);
	if (ret == 0 && futimens(fd, times) < 0)
		ret = -errno;
	return ret < 0 ? ret : steal_fd(&fd);
}

/* Move what was made in w/@name to where the node is, or keep it as an orphan. */
static int place_file(struct fs_unode *node, const char *name)
{
	struct fs_upper *upper = node->upper;
	struct fs_place place;
	int ret = node->names ? fs_upper_dir_up(node->names->dir) : 0;

	if (ret == 0 && !node->names)
		node->orphan = true;
	if (ret == 0)
		ret = fs_disk_place(node, &place);
	if (ret < 0)
		return ret;
	if (renameat2(upper->work_fd, name, place.dir_fd, place.name, RENAME_NOREPLACE) < 0)
		ret = -errno;
	fs_disk_place_end(&place);
	return ret;
}

/* With the lock: the copy at w/@name, open as *fd, becomes the node's. */
static int publish_file(struct fs_unode *node, const char *name, int *fd)
{
	int ret = fs_upper_check(node->upper);

	if (ret < 0 || node->has_upper)
		return ret;
	/* The number is on disk before the file has its name. */
	node->odd = true;
	ret = fs_disk_set_mode(node, *fd, fs_attr_mode(&node->lower));
	if (ret == 0)
		ret = place_file(node, name);
	if (ret < 0) {
		node->odd = node->shown_mode = false;
		return ret;
	}
	node->has_upper = true;
	fs_ulimit_made(node, NULL);
	fs_ulimit_count(node, *fd);
	if (node->orphan)
		fs_ulimit_gone(node);
	fs_ufd_add(node, steal_fd(fd));
	fs_ufd_unref(node);
	return 1;
}

static int publish_link(struct fs_unode *node, const char *name)
{
	struct fs_upper *upper = node->upper;
	struct timespec times[2];
	int ret = fs_upper_check(upper);

	if (ret < 0 || node->has_upper)
		return ret;
	if (symlinkat(node->lower.target, upper->work_fd, name) < 0)
		return -errno;
	times_of(&node->lower, times);
	(void)utimensat(upper->work_fd, name, times, AT_SYMLINK_NOFOLLOW);
	ret = place_file(node, name);
	node->has_upper = ret == 0;
	if (ret == 0)
		fs_ulimit_made(node, node->lower.target);
	if (ret == 0 && node->orphan)
		fs_ulimit_gone(node);
	return ret < 0 ? ret : 1;
}

static const char *target_of(const struct fs_unode *node)
{
	return S_ISLNK(node->type) ? node->lower.target : NULL;
}

int fs_upper_copy_up(struct fs_unode *node, bool empty, struct err *err)
{
	struct fs_upper *upper = node->upper;
	struct fs_entry lower;
	char name[FS_WORK_NAME_SZ];
	auto_close int fd = -1;
	uint64_t promised = 0;
	bool done;
	int ret;

	fs_upper_lock(upper);
	ret = fs_upper_check(upper);
	done = node->has_upper;
	if (ret == 0 && !done && !node->free)
		ret = -EROFS;
	if (ret == 0 && !done && fs_unode_is_dir(node)) {
		ret = fs_upper_dir_up(node);
		done = true;
	}
	if (ret == 0 && !done)
		ret = fs_ulimit_may_make(upper, target_of(node));
	if (ret == 0 && !done)
		upper->nr_busy++;
	lower = node->lower;
	fs_disk_tmp_name(upper, name);
	fs_upper_unlock(upper);
	if (ret < 0 || done)
		return ret;
	if (S_ISREG(node->type)) {
		ret = fs_ulimit_promise(upper, -1, 0, empty ? 0 : lower.digest.size, &promised);
		if (ret == 0)
			ret = fd = make_file(node, &lower, empty, name, err);
	}
	fs_upper_lock(upper);
	upper->promised -= promised;
	/* Others were copied meanwhile. */
	if (ret >= 0 && !node->has_upper)
		ret = fs_ulimit_may_make(upper, target_of(node));
	if (ret >= 0)
		ret = S_ISREG(node->type) ? publish_file(node, name, &fd)
					  : publish_link(node, name);
	if (ret != 1)
		fs_disk_drop(upper, name);
	if (--upper->nr_busy == 0)
		(void)pthread_cond_broadcast(&upper->idle);
	fs_upper_unlock(upper);
	return ret < 0 ? ret : 0;
}
