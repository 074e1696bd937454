/* fs/slot/pool.c - directories prepared for sandboxes that are to come */
#include "fs/slot/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "fs/capture/result.h"
#include "fs/engine/engine.h"
#include "fs/sandbox/journal.h"
#include "fs/trace/trace.h"

int fs_pool_name(const char *prefix, struct fs_pooled *dir, struct err *err)
{
	char rnd[33];
	int ret = io_random_hex(rnd, 16);

	if (ret < 0)
		return err_set(err, ret, "no random bytes");
	(void)snprintf(dir->name, sizeof(dir->name), "%s%s", prefix, rnd);
	return 0;
}

void fs_pooled_free(struct fs_pooled *dir)
{
	if (dir && dir->dir_fd >= 0)
		(void)close(dir->dir_fd);
	if (dir)
		free(dir->cgroup);
	free(dir);
}

int fs_pool_delete(int top_fd, struct fs_pooled *dir, struct err *err)
{
	int ret = dir ? io_remove_tree(top_fd, dir->name, err) : 0;

	fs_pooled_free(dir);
	return ret;
}

/*
 * Ask ext4 to put each u into another part of the disk than the last: it looks at every
 * inode freed there within the last minute (without a journal) before it gives one out,
 * and the u before is one of them. Where that is not known, nothing is lost.
 */
static void spread(int dir_fd, const char *name)
{
	auto_close int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int flags;

	if (fd < 0 || ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0)
		return;
	flags |= FS_TOPDIR_FL;
	(void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
}

static int fill(int dir_fd, struct err *err)
{
	int ret = fs_engine_mkdir(dir_fd, "upper", err);

	if (ret == 0)
		ret = fs_engine_mkdir(dir_fd, "upper/0", err);
	if (ret == 0) {
		spread(dir_fd, "upper/0");
		ret = fs_engine_mkdir(dir_fd, "upper/0/u", err);
	}
	if (ret == 0)
		ret = fs_engine_mkdir(dir_fd, "upper/0/w", err);
	return ret;
}

int fs_pool_make(int top_fd, struct fs_pooled **out, struct err *err)
{
	struct fs_pooled *dir = calloc(1, sizeof(*dir));
	int ret;

	if (dir == NULL)
		return err_set(err, -ENOMEM, "no memory for a sandbox");
	dir->dir_fd = -1;
	ret = fs_pool_name(FS_POOL_PREFIX, dir, err);
	if (ret == 0 && mkdirat(top_fd, dir->name, 0700) < 0)
		ret = err_set(err, -errno, "cannot make a directory for a sandbox: %m");
	if (ret < 0) {
		fs_pooled_free(dir);
		return ret;
	}
	ret = dir->dir_fd = fs_engine_opendir(top_fd, dir->name, err);
	if (ret >= 0)
		ret = fill(dir->dir_fd, err);
	if (ret < 0) {
		(void)fs_pool_delete(top_fd, dir, NULL);
		return ret;
	}
	*out = dir;
	return 0;
}

/* Empty the file, if it is there. */
static int empty_file(int dir_fd, const char *name, struct err *err)
{
	auto_close int fd = openat(dir_fd, name, O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 && errno != ENOENT ? err_set(err, -errno, "cannot empty %s: %m", name) : 0;
}

/* The directory @name of a layer as when it was new. */
static int renew(int layer_fd, const char *name, struct err *err)
{
	int ret = 0;

	/* Outputs moved to the store leave it empty as a rule. */
	if (unlinkat(layer_fd, name, AT_REMOVEDIR) < 0)
		ret = io_remove_tree(layer_fd, name, err);
	return ret < 0 ? ret : fs_engine_mkdir(layer_fd, name, err);
}

static int renew_layers(const struct fs_pooled *dir, struct err *err)
{
	auto_close int upper_fd = fs_engine_opendir(dir->dir_fd, "upper", err);
	auto_close int layer_fd = upper_fd < 0 ? -1 : fs_engine_opendir(upper_fd, "0", err);
	struct stat st;
	int ret;

	/* All of it has landed. */
	if (upper_fd == -ENOENT)
		return fill(dir->dir_fd, err);
	if (upper_fd < 0 || layer_fd < 0)
		return upper_fd < 0 ? upper_fd : layer_fd;
	ret = renew(layer_fd, "u", err);
	/* An overlay has put its own directory there; else nobody was. */
	if (ret == 0 && fstatat(layer_fd, "w/work", &st, AT_SYMLINK_NOFOLLOW) == 0)
		ret = renew(layer_fd, "w", err);
	for (size_t i = 1; ret == 0 && i < dir->nr_layers; i++) {
		char name[32];

		(void)snprintf(name, sizeof(name), "%zu", i);
		ret = io_remove_tree(upper_fd, name, err);
	}
	return ret;
}

int fs_pool_recycle(int top_fd, struct fs_pooled *dir, struct err *err)
{
	struct fs_pooled ready = *dir;
	int ret = renew_layers(dir, err);

	if (ret == 0)
		ret = empty_file(dir->dir_fd, FS_JOURNAL_NAME, err);
	if (ret == 0)
		ret = empty_file(dir->dir_fd, FS_RESULT_NAME, err);
	if (ret == 0 && unlinkat(dir->dir_fd, FS_TRACE_NAME, 0) < 0 && errno != ENOENT)
		ret = err_set(err, -errno, "cannot remove %s: %m", FS_TRACE_NAME);
	if (ret == 0)
		ret = fs_pool_name(FS_POOL_PREFIX, &ready, err);
	if (ret < 0)
		return ret;
	if (renameat(top_fd, dir->name, top_fd, ready.name) < 0)
		return err_set(err, -errno, "cannot rename %s: %m", dir->name);
	ready.nr_layers = 0;
	*dir = ready;
	return 0;
}
