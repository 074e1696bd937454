/* fs/upper/xattr.c - attributes that an action gives its files */

/* Only user.* exist, and ours of them are for nobody to see. */
#include <errno.h>
#include <linux/limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "fs/upper/upper_i.h"

static bool is_ours(const char *name)
{
	return strncmp(name, FS_XATTR_PREFIX, strlen(FS_XATTR_PREFIX)) == 0;
}

static int check_name(const struct fs_unode *node, const char *name)
{
	if (strncmp(name, "user.", 5) != 0)
		return -EOPNOTSUPP;
	/* As on a disk: neither symlinks nor special files have them. */
	if (!S_ISREG(node->type) && !fs_unode_is_dir(node))
		return -EPERM;
	return is_ours(name) ? -EPERM : 0;
}

/* Has it a file that could have some? */
static int has_file(struct fs_unode *node)
{
	int ret;

	fs_upper_lock(node->upper);
	ret = fs_upper_check(node->upper);
	if (ret == 0)
		ret = node->has_upper && !node->removed &&
		      (S_ISREG(node->type) || fs_unode_is_dir(node));
	fs_upper_unlock(node->upper);
	return ret;
}

ssize_t fs_upper_xattr_get(struct fs_unode *node, const char *name, void *out, size_t size)
{
	ssize_t got = has_file(node);
	int fd;

	/* Lists of access control are another matter; all else is there, and nobody has it. */
	if (strncmp(name, "system.", 7) == 0)
		return -EOPNOTSUPP;
	if (got <= 0 || is_ours(name) || strncmp(name, "user.", 5) != 0)
		return got < 0 ? got : -ENODATA;
	fd = fs_upper_acquire(node);
	if (fd < 0)
		return fd;
	got = fgetxattr(fd, name, out, size);
	if (got < 0)
		got = -errno;
	fs_upper_release(node);
	return got;
}

/* Without ours and without those of other kinds. */
static size_t keep_user(char *names, size_t len)
{
	size_t kept = 0;

	for (size_t at = 0; at < len;) {
		size_t n = strlen(names + at) + 1;

		if (strncmp(names + at, "user.", 5) == 0 && !is_ours(names + at)) {
			memmove(names + kept, names + at, n);
			kept += n;
		}
		at += n;
	}
	return kept;
}

ssize_t fs_upper_xattr_list(struct fs_unode *node, char *out, size_t size)
{
	auto_free char *names = malloc(XATTR_LIST_MAX);
	ssize_t got = has_file(node);
	int fd;

	if (!names)
		return -ENOMEM;
	if (got <= 0)
		return got;
	fd = fs_upper_acquire(node);
	if (fd < 0)
		return fd;
	got = flistxattr(fd, names, XATTR_LIST_MAX);
	if (got < 0)
		got = -errno;
	fs_upper_release(node);
	if (got <= 0)
		return got;
	got = (ssize_t)keep_user(names, (size_t)got);
	if (size == 0)
		return got;
	if ((size_t)got > size)
		return -ERANGE;
	memcpy(out, names, (size_t)got);
	return got;
}

/* It has a file of its own when this returns 0. */
static int give_file(struct fs_unode *node, const char *name, struct err *err)
{
	int ret = check_name(node, name);

	if (ret < 0)
		return ret;
	if (!fs_unode_is_dir(node))
		return fs_upper_copy_up(node, false, err);
	fs_upper_lock(node->upper);
	ret = fs_upper_check(node->upper);
	if (ret == 0)
		ret = fs_upper_may_make(node);
	if (ret == 0)
		ret = fs_upper_dir_up(node);
	fs_upper_unlock(node->upper);
	return ret;
}

int fs_upper_xattr_set(struct fs_unode *node, const char *name, const void *value, size_t size,
		       int flags, struct err *err)
{
	int ret = give_file(node, name, err);
	int fd = ret < 0 ? ret : fs_upper_acquire(node);

	if (fd < 0)
		return fd;
	ret = fsetxattr(fd, name, value, size, flags) < 0 ? -errno : 0;
	fs_upper_release(node);
	return ret;
}

int fs_upper_xattr_remove(struct fs_unode *node, const char *name, struct err *err)
{
	int ret = give_file(node, name, err);
	int fd = ret < 0 ? ret : fs_upper_acquire(node);

	if (fd < 0)
		return fd;
	ret = fremovexattr(fd, name) < 0 ? -errno : 0;
	fs_upper_release(node);
	return ret;
}
