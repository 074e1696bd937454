/* fs/mount/place.c - where a store may be served */

/*
 * A daemon that touches its own mount waits for itself. Paths are compared resolved, and
 * directories on the way up by device and inode too, which sees bind mounts of them.
 */
#include "fs/mount/place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cas/cas.h"
#include "fs/mount/detach.h"

#define DEPTH_MAX 4096

static bool is_below(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	if (strcmp(dir, "/") == 0)
		return true;
	return strncmp(path, dir, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

/* Does a walk from @path up to the root meet @dir, whatever the names? */
static bool is_below_by_inode(const char *path, const char *dir)
{
	auto_close int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat want;
	struct stat st;
	struct stat last = {0};

	if (fd < 0 || stat(dir, &want) < 0)
		return false;
	for (int i = 0; i < DEPTH_MAX && fstat(fd, &st) == 0; i++) {
		int up;

		if (st.st_dev == want.st_dev && st.st_ino == want.st_ino)
			return true;
		if (i > 0 && st.st_dev == last.st_dev && st.st_ino == last.st_ino)
			return false;
		last = st;
		up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (up < 0)
			return false;
		(void)close(fd);
		fd = up;
	}
	return false;
}

static bool overlaps(const char *path, const char *dir)
{
	return is_below(path, dir) || is_below_by_inode(path, dir);
}

static int check_against(const char *mountpoint, const char *dir, const char *what, struct err *err)
{
	if (overlaps(dir, mountpoint))
		return err_set(err, -ELOOP, "the mount point %s would hide %s %s", mountpoint, what,
			       dir);
	if (overlaps(mountpoint, dir))
		return err_set(err, -ELOOP, "the mount point %s lies in %s %s", mountpoint, what,
			       dir);
	return 0;
}

static int check_store(const char *mountpoint, const char *store, struct err *err)
{
	auto_free char *run = NULL;

	if (asprintf(&run, "%s/run", store) < 0) {
		run = NULL;
		return -ENOMEM;
	}
	/* Mounts that `run` starts live below STORE/run, where nothing of ours walks. */
	if (is_below(mountpoint, run) && strcmp(mountpoint, run) != 0)
		return 0;
	return check_against(mountpoint, store, "the store", err);
}

static int check_empty(const char *path, struct err *err)
{
	auto_closedir DIR *dir = opendir(path);
	struct dirent *de;

	if (!dir)
		return err_set(err, -errno, "cannot mount at %s: %s", path, strerror(errno));
	while ((de = readdir(dir)) != NULL)
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			return err_set(err, -ENOTEMPTY,
				       "cannot mount at %s: it is not empty (it holds %s)", path,
				       de->d_name);
	return 0;
}

int fs_place_check(const char *mountpoint, const struct cas_store *store, const char *blobs,
		   char **out, struct err *err)
{
	auto_free char *path = realpath(mountpoint, NULL);
	auto_free char *blobs_path = NULL;
	int ret;

	if (!path)
		return err_set(err, -errno, "cannot mount at %s: %s", mountpoint, strerror(errno));
	if (fs_mounts_at(path, 0) > 0)
		return err_set(err, -EBUSY, "cannot mount at %s: a casbox is mounted there already",
			       path);
	ret = check_store(path, cas_store_path(store), err);
	if (ret == 0 && blobs && (blobs_path = realpath(blobs, NULL)) != NULL)
		ret = check_against(path, blobs_path, "the blobs in", err);
	if (ret == 0)
		ret = check_empty(path, err);
	if (ret < 0)
		return ret;
	*out = steal_ptr(&path);
	return 0;
}

bool fs_place_in_userns(void)
{
	auto_buf struct buf map = {0};
	unsigned inside = 1;
	unsigned outside = 1;
	unsigned count = 0;

	if (io_read_file(AT_FDCWD, "/proc/self/uid_map", 65536, &map) < 0)
		return false;
	return sscanf(buf_str(&map), "%u %u %u", &inside, &outside, &count) != 3 || inside != 0 ||
	       outside != 0 || count != 4294967295U;
}
