/* fs/mount/detach.c - get rid of mounts whose daemon died */

/*
 * The mount point itself cannot be resolved while its mount is dead, so paths are
 * compared as text: the parent resolved, the last component as given. A lazy detach
 * takes everything mounted below along, so only the mounts at the path are looked at.
 */
#include "fs/mount/detach.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/fs.h"
#include "fs/helper/helper.h"
#include "fs/mount/fusermount.h"
#include "fs/mount/mountfd.h"

#define DETACH_MAX 1000
#define LINKS_MAX  40
#define PING_MS	   2000

int fs_mounts_at(const char *path, dev_t dev)
{
	struct mountinfo mounts = {0};
	struct mountinfo_entry e;
	int ret = mountinfo_read_self(&mounts);
	int nr = 0;

	if (ret < 0)
		return ret;
	while (mountinfo_next(&mounts, &e))
		nr += (dev == 0 || e.dev == dev) && strcmp(e.path, path) == 0 &&
		      strcmp(e.type, FS_MOUNT_TYPE) == 0;
	mountinfo_fini(&mounts);
	return nr;
}

int fs_mounts_abort(const char *path)
{
	struct mountinfo mounts = {0};
	struct mountinfo_entry e;
	size_t len = strlen(path);
	int ret = mountinfo_read_self(&mounts);
	int nr = 0;

	if (ret < 0)
		return ret;
	while (mountinfo_next(&mounts, &e))
		nr += strncmp(e.path, path, len) == 0 &&
		      (e.path[len] == '\0' || e.path[len] == '/') &&
		      strcmp(e.type, FS_MOUNT_TYPE) == 0 && fs_mount_abort(e.dev, NULL) == 0;
	mountinfo_fini(&mounts);
	return nr;
}

/* The parent resolved, the last component as it is; -ENOENT and the like. */
static int resolve_parent(const char *path, char out[PATH_MAX])
{
	auto_free char *copy = strdup(path);
	auto_free char *parent = NULL;
	char *slash;
	size_t len;

	if (!copy)
		return -ENOMEM;
	len = strlen(copy);
	while (len > 1 && copy[len - 1] == '/')
		copy[--len] = '\0';
	slash = strrchr(copy, '/');
	if (slash)
		*slash = '\0';
	parent = realpath(!slash ? "." : slash == copy ? "/" : copy, NULL);
	if (!parent)
		return -errno;
	if (snprintf(out, PATH_MAX, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent,
		     slash ? slash + 1 : copy) >= PATH_MAX)
		return -ENAMETOOLONG;
	return 0;
}

/*
 * The mount point itself: what a symlink at @path leads to, as long as there are more. A
 * place where a casbox is mounted is no symlink, and must not be asked: it may be dead.
 */
static int resolve(const char *path, char out[PATH_MAX])
{
	char target[PATH_MAX];
	int ret = resolve_parent(path, out);

	for (int i = 0; ret == 0 && i < LINKS_MAX; i++) {
		auto_free char *next = NULL;
		ssize_t len = -1;

		if (fs_mounts_at(out, 0) == 0)
			len = readlink(out, target, sizeof(target) - 1);
		if (len < 0)
			return 0;
		target[len] = '\0';
		if (asprintf(&next, "%.*s/%s",
			     target[0] == '/' ? 0 : (int)(strrchr(out, '/') - out), out,
			     target) < 0) {
			next = NULL;
			return -ENOMEM;
		}
		ret = resolve_parent(next, out);
	}
	return ret < 0 ? ret : -ELOOP;
}

/*
 * 1: the mount at @path has no daemon, 0: it answers, or -ETIMEDOUT. A daemon that is
 * stopped never answers, and who asked would wait for it beyond SIGKILL: another process
 * asks, and is given up.
 */
static int is_dead(const char *path, struct err *err)
{
	struct fs_helper *helper = NULL;
	struct err why = {0};
	int ret = fs_helper_new(NULL, &helper, err);

	if (ret < 0)
		return ret;
	ret = fs_helper_ping(helper, path, PING_MS, &why);
	fs_helper_free(helper);
	if (ret == -ETIMEDOUT)
		return err_set(err, ret,
			       "the casbox mounted at %s does not answer: its daemon is stopped or "
			       "stuck; 'casbox umount --force %s' ends it",
			       path, path);
	return ret == -ENOTCONN || ret == -ECONNABORTED;
}

int fs_detach_dead(const char *mountpoint, struct err *err)
{
	char path[PATH_MAX];
	int ret = resolve(mountpoint, path);
	int nr = 0;

	if (ret < 0)
		return ret == -ENOENT || ret == -ENOTDIR
			       ? 0
			       : err_set(err, ret, "cannot resolve %s: %s", mountpoint,
					 strerror(-ret));
	while (nr < DETACH_MAX && fs_mounts_at(path, 0) > 0) {
		ret = is_dead(path, err);
		if (ret <= 0)
			return ret < 0 ? ret : nr;
		ret = fs_mount_remove(path, true, err);
		if (ret < 0)
			return ret;
		nr++;
	}
	return nr;
}
