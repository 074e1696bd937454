/* cas/checkout/checkout_dest.c - where a checkout goes */
#include "cas/checkout/checkout_i.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/io.h"
#include "cas/base/text_i.h"

/*
 * The parent is opened once, and everything happens below its descriptor: symlinks in
 * the path to it are the caller's own, below it none is followed. The rename at the end
 * needs no flag: a directory renamed over a file or symlink fails with ENOTDIR, over
 * anything with entries with ENOTEMPTY, so of two checkouts to one destination the later fails.
 */

void checkout_destination_fini(struct checkout_destination *d)
{
	if (d->parent_fd >= 0)
		(void)close(d->parent_fd);
}

/* "a/b//" is "a" and "b"; "b" is "." and "b". */
static int destination_split(const char *dest, struct checkout_destination *out)
{
	size_t len = strlen(dest);
	size_t start;
	size_t parent;

	while (len > 1 && dest[len - 1] == '/')
		len--;
	start = len;
	while (start > 0 && dest[start - 1] != '/')
		start--;
	parent = start;
	while (parent > 1 && dest[parent - 1] == '/')
		parent--;
	if (len - start > NAME_MAX || parent >= PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(out->name, dest + start, len - start);
	out->name[len - start] = '\0';
	if (out->name[0] == '\0' || strcmp(out->name, ".") == 0 || strcmp(out->name, "..") == 0)
		return -EINVAL;
	memcpy(out->parent, parent ? dest : ".", parent ? parent : 1);
	out->parent[parent ? parent : 1] = '\0';
	return 0;
}

int checkout_destination_open(int dir_fd, const char *dest, struct checkout_destination *out,
			      struct err *err)
{
	int ret = destination_split(dest, out);

	if (ret == -EINVAL)
		return err_set(err, ret, "'%s' does not end in a name to create", CAS_TEXT(dest));
	if (ret < 0)
		return err_set(err, ret, "'%s' is too long", CAS_TEXT(dest));
	out->parent_fd = openat(dir_fd, out->parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (out->parent_fd < 0)
		return err_set(err, -errno, "cannot open '%s', the parent of the checkout: %s",
			       CAS_TEXT(out->parent), strerrordesc_np(errno));
	return 0;
}

static int exists(const char *dest, struct err *err)
{
	return err_set(err, -EEXIST, "'%s' exists and is no empty directory", CAS_TEXT(dest));
}

int checkout_destination_check(const struct checkout_destination *d, const char *dest,
			       struct err *err)
{
	auto_close int fd = -1;
	struct stat st;
	struct stat above;

	if (fstatat(d->parent_fd, d->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0
				       : err_set(err, -errno, "cannot stat '%s': %s",
						 CAS_TEXT(dest), strerrordesc_np(errno));
	if (!S_ISDIR(st.st_mode))
		return exists(dest, err);
	if (fstat(d->parent_fd, &above) == 0 && above.st_dev != st.st_dev &&
	    st.st_ino != IO_SUBVOLUME_INO)
		return err_set(err, -EBUSY, "'%s' is a mount point, which cannot be replaced",
			       CAS_TEXT(dest));
	fd = openat(d->parent_fd, d->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0) {
		auto_closedir DIR *dir = fdopendir(fd);
		struct dirent *de;

		if (dir)
			(void)steal_fd(&fd);
		while (dir && (de = readdir(dir)) != NULL) {
			if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
				return exists(dest, err);
		}
	}
	return 0;
}

int checkout_publish(struct checkout *co, const struct checkout_destination *d, int from_fd,
		     const char *from, struct err *err)
{
	int code;

	if (renameat(from_fd, from, d->parent_fd, d->name) == 0)
		return 0;
	code = -errno;
	if (code == -EEXIST || code == -ENOTEMPTY || code == -ENOTDIR)
		return exists(co->dest, err);
	return err_set(err, code, "cannot rename the finished tree to '%s': %s", CAS_TEXT(co->dest),
		       strerrordesc_np(-code));
}
