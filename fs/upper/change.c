/* fs/upper/change.c - attributes of nodes */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/node/identity.h"
#include "fs/upper/limit.h"
#include "fs/upper/upper_i.h"

/* A symlink or special file is changed by its name, everything else by a descriptor. */
static bool by_descriptor(const struct fs_unode *node)
{
	return fs_unode_is_dir(node) || S_ISREG(node->type);
}

static int stat_upper(struct fs_unode *node, struct stat *st)
{
	struct fs_place place;
	int fd = fs_ufd_ref(node);
	int ret = 0;

	if (fd >= 0) {
		ret = fstat(fd, st) < 0 ? -errno : 0;
		fs_ufd_unref(node);
		return ret;
	}
	/* The layer's root has no name. */
	if (!node->names && !node->orphan)
		return -ESTALE;
	ret = fs_disk_place(node, &place);
	if (ret < 0)
		return ret;
	if (fstatat(place.dir_fd, place.name, st, AT_SYMLINK_NOFOLLOW) < 0)
		ret = -errno;
	fs_disk_place_end(&place);
	return ret;
}

static int stat_locked(struct fs_unode *node, struct stat *st, struct fs_entry *lower)
{
	int ret = fs_upper_check(node->upper);

	if (ret < 0)
		return ret;
	if (!node->has_upper) {
		*lower = node->lower;
		st->st_ino = node->ino;
		return 1;
	}
	if (node->removed) {
		*st = (struct stat){
			.st_mode = node->type | 0700, .st_uid = geteuid(), .st_gid = getegid()};
		if (fs_ufd_ref(node) >= 0) {
			(void)fstat(node->fd, st);
			fs_ufd_unref(node);
		}
		st->st_nlink = 0;
	} else {
		ret = stat_upper(node, st);
	}
	st->st_ino = node->ino;
	if (node->shown_mode)
		st->st_mode = node->type | node->mode;
	/* A name in w is none; and how many directories a merged one has nobody counts. */
	if (node->orphan && st->st_nlink > 0)
		st->st_nlink--;
	if (node->has_lower && fs_unode_is_dir(node) && !node->removed)
		st->st_nlink = 1;
	return ret;
}

int fs_upper_stat(struct fs_unode *node, struct stat *st, struct fs_entry *lower)
{
	int ret;

	*st = (struct stat){0};
	fs_upper_lock(node->upper);
	ret = stat_locked(node, st, lower);
	fs_upper_unlock(node->upper);
	return ret;
}

uint64_t fs_upper_parent_ino(struct fs_unode *dir)
{
	uint64_t ino;

	fs_upper_lock(dir->upper);
	ino = dir->names ? dir->names->dir->ino : dir->ino;
	fs_upper_unlock(dir->upper);
	return ino;
}

static int change_owner(struct fs_unode *node, const struct fs_change *c, int fd)
{
	uid_t uid = c->set_uid ? c->uid : (uid_t)-1;
	gid_t gid = c->set_gid ? c->gid : (gid_t)-1;
	struct stat st;

	if (!c->set_uid && !c->set_gid)
		return 0;
	if (fstat(fd, &st) < 0 || fchown(fd, uid, gid) < 0)
		return -errno;
	/* The kernel says itself which bits go with the owner: what else went comes back. */
	if (S_ISREG(st.st_mode) && (st.st_mode & (S_ISUID | S_ISGID)))
		return fchmod(fd, st.st_mode & 07777) < 0 ? -errno : 0;
	(void)node;
	return 0;
}

static int change_open(struct fs_unode *node, const struct fs_change *c)
{
	int fd = fs_disk_open(node);
	int ret = 0;

	if (fd < 0)
		return fd;
	if (c->set_size && ftruncate(fd, c->size) < 0)
		ret = -errno;
	if (c->set_size)
		fs_ulimit_count(node, fd);
	if (ret == 0)
		ret = change_owner(node, c, fd);
	if (ret == 0 && c->set_mode)
		ret = fs_disk_set_mode(node, fd, c->mode);
	if (ret == 0 && (c->set_atime || c->set_mtime) && futimens(fd, c->times) < 0)
		ret = -errno;
	fs_ufd_unref(node);
	return ret;
}

static int change_named(struct fs_unode *node, const struct fs_change *c)
{
	struct fs_place place;
	int ret = fs_disk_place(node, &place);

	if (ret < 0)
		return ret;
	if ((c->set_uid || c->set_gid) &&
	    fchownat(place.dir_fd, place.name, c->set_uid ? c->uid : (uid_t)-1,
		     c->set_gid ? c->gid : (gid_t)-1, AT_SYMLINK_NOFOLLOW) < 0)
		ret = -errno;
	if (ret == 0 && c->set_mode && !S_ISLNK(node->type) &&
	    fchmodat(place.dir_fd, place.name, c->mode & 07777, 0) < 0)
		ret = -errno;
	if (ret == 0 && (c->set_atime || c->set_mtime) &&
	    utimensat(place.dir_fd, place.name, c->times, AT_SYMLINK_NOFOLLOW) < 0)
		ret = -errno;
	fs_disk_place_end(&place);
	return ret;
}

int fs_upper_change(struct fs_unode *node, const struct fs_change *c, struct err *err)
{
	bool empty = c->set_size && c->size == 0;
	int ret = 0;

	/* Whoever may make names in a directory may change its attributes as well. */
	if (fs_unode_is_dir(node)) {
		fs_upper_lock(node->upper);
		ret = fs_upper_check(node->upper);
		if (ret == 0 && !node->removed)
			ret = fs_upper_may_make(node);
		if (ret == 0 && !node->removed)
			ret = fs_upper_dir_up(node);
		fs_upper_unlock(node->upper);
	} else {
		ret = fs_upper_copy_up(node, empty, err);
	}
	if (ret < 0)
		return ret;
	fs_upper_lock(node->upper);
	ret = fs_upper_check(node->upper);
	if (ret == 0)
		ret = by_descriptor(node) ? change_open(node, c) : change_named(node, c);
	fs_upper_unlock(node->upper);
	return ret;
}

static int kill_locked(struct fs_unode *node)
{
	struct stat st;
	struct fs_entry lower;
	int ret = stat_locked(node, &st, &lower);
	mode_t gone = S_ISUID;
	int fd;

	if (ret != 0)
		return ret < 0 ? ret : 0;
	/* Without the right to execute it the bit means something else. */
	if (st.st_mode & S_IXGRP)
		gone |= S_ISGID;
	if (!(st.st_mode & gone))
		return 0;
	fd = fs_disk_open(node);
	if (fd < 0)
		return fd;
	ret = fs_disk_set_mode(node, fd, st.st_mode & ~gone);
	fs_ufd_unref(node);
	return ret;
}

int fs_upper_kill_set_id(struct fs_unode *node)
{
	int ret;

	fs_upper_lock(node->upper);
	ret = kill_locked(node);
	fs_upper_unlock(node->upper);
	return ret;
}
