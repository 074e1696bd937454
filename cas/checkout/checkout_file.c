/* cas/checkout/checkout_file.c - one file or symlink of a checkout */
#include "cas/checkout/checkout_i.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/watch.h"
#include "cas/put/copy.h"
#include "cas/reapi/directory.h"
#include "cas/store/store_i.h"

/*
 * A hardlink shares mode and times with every other checkout of the digest, so nodes
 * with properties of their own, and empty files, are always files of their own. In a
 * hardlink checkout two names of one digest are one inode: that is what was asked for.
 */

static mode_t node_mode(const struct cas_node *node)
{
	if (node->props.has_mode)
		return node->props.mode & 0777;
	return node->executable ? 0555 : 0444;
}

static int set_mtime(int fd, const struct cas_properties *props)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
				    {.tv_sec = props->mtime_sec, .tv_nsec = props->mtime_nsec}};

	if (!props->has_mtime)
		return 0;
	return futimens(fd, times) < 0 ? -errno : 0;
}

/* The umask, or a default ACL of the directory, may have taken bits away. */
static int set_mode(int fd, mode_t mode)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if ((st.st_mode & 07777) == mode)
		return 0;
	return fchmod(fd, mode) < 0 ? -errno : 0;
}

static int fill(struct checkout *co, const struct cas_digest *digest, int fd, struct err *err)
{
	const struct watch watch = {
		.bytes = &co->progress->bytes, .cancel = &co->progress->cancel, .stop = &co->stop};
	auto_close int blob = -1;
	int ret;

	if (digest->size == 0)
		return 0;
	/* The use is told once, of the whole tree. */
	ret = cas_store_open_here(co->store, digest, &blob, NULL);
	if (ret < 0)
		ret = cas_store_open_blob(co->store, digest, &blob, err);
	if (ret < 0)
		return ret;
	if (co->mode == CAS_CHECKOUT_REFLINK ||
	    (co->mode == CAS_CHECKOUT_AUTO && !atomic_load(&co->no_reflink))) {
		ret = cas_copy_fd_watched(blob, fd, digest->size, CAS_COPY_REFLINK, &watch, NULL);
		if (ret != -EOPNOTSUPP || co->mode == CAS_CHECKOUT_REFLINK)
			return ret < 0 ? err_set(err, ret, "cannot reflink %s: %s",
						 CAS_DIGEST_TEXT(digest), strerrordesc_np(-ret))
				       : 0;
		atomic_store(&co->no_reflink, true);
	}
	return cas_copy_fd_watched(blob, fd, digest->size, CAS_COPY_KERNEL | CAS_COPY_LOOP, &watch,
				   err);
}

static int copy_file(struct checkout *co, int dir_fd, const struct cas_node *node, struct err *err)
{
	mode_t mode = node_mode(node);
	auto_close int fd = openat(dir_fd, node->name,
				   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	struct err why = {0};
	int ret;

	if (fd < 0)
		return err_set(err, -errno, "cannot create it: %s", strerrordesc_np(errno));
	ret = fill(co, &node->digest, fd, &why);
	if (ret < 0)
		(void)err_set(err, ret, "%s", err_text(&why, ret));
	if (ret == 0) {
		ret = set_mode(fd, mode);
		if (ret == 0)
			ret = set_mtime(fd, &node->props);
		/* Some filesystems tell only now that the data did not fit. */
		if (close(steal_fd(&fd)) < 0 && ret == 0)
			ret = -errno;
		if (ret < 0)
			(void)err_set(err, ret, "cannot finish it: %s", strerrordesc_np(-ret));
	}
	if (ret < 0)
		(void)unlinkat(dir_fd, node->name, 0);
	return ret;
}

/* 1 when linked, 0 when it has to be a copy. */
static int link_file(struct checkout *co, int dir_fd, const struct cas_node *node, struct err *err)
{
	const struct cas_properties *props = &node->props;
	char name[72];
	int from_fd;
	int code = 0;

	if (node->digest.size == 0 || props->has_mtime || props->has_mode ||
	    atomic_load(&co->no_link))
		return 0;
	/* An eviction may remove the variant before it is linked: then it is made once more. */
	for (int i = 0; i < 3; i++) {
		int ret = cas_store_link_variant(co->store, &node->digest, node->executable,
						 &from_fd, name, err);

		/* A read-only store cannot make one. */
		if (ret == -EROFS)
			return 0;
		if (ret < 0)
			return ret;
		if (linkat(from_fd, name, dir_fd, node->name, 0) == 0)
			return 1;
		code = -errno;
		if (code != -ENOENT)
			break;
	}
	if (code == -EXDEV || code == -EPERM || code == -EOPNOTSUPP)
		atomic_store(&co->no_link, true);
	else if (code != -EMLINK)
		return err_set(err, code, "cannot link %s: %s", CAS_DIGEST_TEXT(&node->digest),
			       strerrordesc_np(-code));
	return 0;
}

int checkout_file(struct checkout *co, int dir_fd, const struct cas_node *node, struct err *err)
{
	int ret = 0;

	if (co->mode == CAS_CHECKOUT_HARDLINK)
		ret = link_file(co, dir_fd, node, err);
	if (ret == 1)
		atomic_fetch_add_explicit(&co->progress->bytes, node->digest.size,
					  memory_order_relaxed);
	if (ret == 0)
		ret = copy_file(co, dir_fd, node, err);
	if (ret < 0)
		return ret;
	atomic_fetch_add_explicit(&co->progress->files, 1, memory_order_relaxed);
	return 0;
}

int checkout_symlink(int dir_fd, const struct cas_node *node, struct err *err)
{
	struct timespec times[2] = {
		{.tv_nsec = UTIME_OMIT},
		{.tv_sec = node->props.mtime_sec, .tv_nsec = node->props.mtime_nsec}};

	if (symlinkat(node->target, dir_fd, node->name) < 0)
		return err_set(err, -errno, "cannot make the symlink: %s", strerrordesc_np(errno));
	if (node->props.has_mtime && utimensat(dir_fd, node->name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return err_set(err, -errno, "cannot set its time: %s", strerrordesc_np(errno));
	return 0;
}
