/* fs/upper/make.c - new names in a layer */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fs/upper/limit.h"
#include "fs/upper/place.h"
#include "fs/upper/upper_i.h"

/* One that is being made: where, and what became of it. */
struct making {
	struct fs_unode *dir;
	const struct fs_making *what;
	int dir_fd;
	int fd; /* of a file */
	struct fs_disk disk;
};

/* A file or node at @name of @dir_fd, nobody's but ours yet. */
static int make_at(struct making *m, int dir_fd, const char *name)
{
	mode_t mode = fs_disk_mode(m->what->mode);
	int ret = 0;

	switch (m->what->mode & S_IFMT) {
	case S_IFREG:
		m->fd = openat(dir_fd, name, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC,
			       mode & 0777);
		ret = m->fd;
		break;
	case S_IFDIR:
		ret = mkdirat(dir_fd, name, mode & 0777);
		break;
	case S_IFLNK:
		ret = symlinkat(m->what->target, dir_fd, name);
		break;
	case S_IFCHR:
		/* It has a meaning in layers of overlays. */
		if (m->what->rdev == 0)
			return -EPERM;
		ret = mknodat(dir_fd, name, m->what->mode, m->what->rdev);
		break;
	default:
		ret = mknodat(dir_fd, name, m->what->mode, m->what->rdev);
	}
	return ret < 0 ? -errno : 0;
}

/* Whose it is, where that is not ours already: the kernel leaves that to us. */
static int give(struct making *m, int dir_fd, const char *name, const struct stat *above)
{
	bool inherits = above->st_mode & S_ISGID;
	uid_t uid = m->what->by.uid;
	gid_t gid = inherits ? above->st_gid : m->what->by.gid;
	struct stat *st = &m->disk.st;

	if (fstatat(dir_fd, name, st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (st->st_uid == uid && st->st_gid == gid)
		return 0;
	/* A group of his that is not ours stays ours. */
	if (fchownat(dir_fd, name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0 &&
	    (errno != EPERM || st->st_uid != uid))
		return -errno;
	return 0;
}

/* Bits beyond rwx, and those without which we could not open it again. */
static int dress(struct making *m, struct fs_unode *node, const struct stat *above)
{
	mode_t want = m->what->mode & 07777;
	bool inherits = (above->st_mode & S_ISGID) && fs_unode_is_dir(node);
	int fd = m->fd;
	int ret;

	if (!fs_unode_is_dir(node) && !S_ISREG(node->type))
		return 0;
	want |= inherits ? S_ISGID : 0;
	if (want == (m->disk.st.st_mode & 07777) && want == fs_disk_mode(want | node->type))
		return 0;
	if (fd < 0)
		fd = fs_disk_open(node);
	if (fd < 0)
		return fd;
	ret = fs_disk_set_mode(node, fd, want);
	if (m->fd < 0)
		fs_ufd_unref(node);
	return ret;
}

/* Where a name was removed: a directory must not show again what was below. */
static int make_over_whiteout(struct making *m)
{
	struct fs_upper *upper = m->dir->upper;
	bool is_dir = S_ISDIR(m->what->mode);
	char name[FS_WORK_NAME_SZ];
	int ret;

	fs_disk_tmp_name(upper, name);
	ret = make_at(m, upper->work_fd, name);
	if (ret == 0 && is_dir) {
		auto_close int fd = openat(upper->work_fd, name,
					   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		ret = fd < 0 ? -errno : 0;
		if (ret == 0 && (fsetxattr(fd, FS_XATTR_OPAQUE, "y", 1, 0) < 0 ||
				 fchmod(fd, S_ISVTX | fs_disk_mode(m->what->mode)) < 0))
			ret = -errno;
	}
	if (ret == 0 && renameat2(upper->work_fd, name, m->dir_fd, m->what->name,
				  is_dir ? RENAME_EXCHANGE : 0) < 0)
		ret = -errno;
	/* What failed, or the whiteout. */
	if (ret < 0 || is_dir)
		fs_disk_drop(upper, name);
	return ret;
}

/* Nothing shows the name, or -EEXIST. *whiteout: the layer has one there. */
static int check_free(struct making *m, bool *whiteout, struct err *err)
{
	struct fs_disk disk;
	int ret;

	if (fs_dent_find(m->dir, m->what->name))
		return -EEXIST;
	*whiteout = false;
	if (!m->dir->has_lower)
		return 0;
	ret = fs_upper_hides(m->dir, m->what->name, err);
	if (ret <= 0)
		return ret;
	ret = fs_disk_look(m->dir_fd, m->what->name, &disk);
	*whiteout = ret > 0 && disk.whiteout;
	return ret < 0 ? ret : *whiteout ? 0 : -EEXIST;
}

/* It is on disk: its node. */
static int adopt(struct making *m, bool over, struct fs_found *out)
{
	const char *name = m->what->name;
	struct fs_unode *dir = m->dir;
	struct fs_unode *node = fs_unode_new(dir->upper, m->what->mode);
	struct stat above;
	int ret = node ? 0 : -ENOMEM;

	if (ret == 0 && fstat(m->dir_fd, &above) < 0)
		ret = -errno;
	if (ret == 0)
		ret = give(m, m->dir_fd, name, &above);
	if (ret == 0)
		ret = fs_dent_add(dir, name, node);
	if (ret < 0) {
		if (node)
			fs_unode_unref(node);
		return ret;
	}
	node->has_upper = node->free = true;
	node->ino = fs_disk_ino(m->disk.st.st_ino);
	node->odd = over && fs_unode_is_dir(node);
	ret = dress(m, node, &above);
	if (m->fd >= 0) {
		fs_ufd_add(node, steal_fd(&m->fd));
		fs_ufd_unref(node);
	}
	out->node = node;
	return ret;
}

static int make_locked(struct making *m, struct fs_found *out, struct err *err)
{
	const char *target = S_ISLNK(m->what->mode) ? m->what->target : NULL;
	struct fs_unode *dir = m->dir;
	bool over = false;
	int ret = fs_upper_check(dir->upper);

	if (ret == 0)
		ret = fs_upper_may_make(dir);
	if (ret == 0)
		ret = dir->removed ? -ENOENT : fs_upper_dir_up(dir);
	if (ret < 0)
		return ret;
	m->dir_fd = fs_disk_dir(dir);
	if (m->dir_fd < 0)
		return m->dir_fd;
	ret = check_free(m, &over, err);
	if (ret == 0)
		ret = fs_ulimit_may_make(dir->upper, target);
	if (ret == 0)
		fs_uplace_touch(dir, m->what->name);
	if (ret == 0)
		ret = over ? make_over_whiteout(m) : make_at(m, m->dir_fd, m->what->name);
	if (ret == 0) {
		ret = adopt(m, over, out);
		/* Half made is not made. */
		if (ret < 0 && !over)
			(void)unlinkat(m->dir_fd, m->what->name,
				       S_ISDIR(m->what->mode) ? AT_REMOVEDIR : 0);
		if (ret < 0 && out->node)
			fs_dent_remove(out->node->names);
		if (ret == 0)
			fs_ulimit_made(out->node, target);
	}
	if (m->fd >= 0)
		(void)close(steal_fd(&m->fd));
	fs_ufd_unref(dir);
	return ret;
}

int fs_upper_make(struct fs_unode *dir, const struct fs_making *what, struct fs_entry *out,
		  struct err *err)
{
	struct making m = {.dir = dir, .what = what, .dir_fd = -1, .fd = -1};
	struct fs_found found = {0};
	int ret;

	if (strlen(what->name) > CAS_NAME_MAX)
		return -ENAMETOOLONG;
	fs_upper_lock(dir->upper);
	ret = make_locked(&m, &found, err);
	if (ret == 0)
		fs_unode_entry(found.node, out);
	else
		fs_found_end(&found);
	fs_upper_unlock(dir->upper);
	return ret;
}

/* The name's whiteout, if there is one, is replaced. */
static int link_at(struct fs_unode *node, struct making *m, bool over)
{
	struct fs_upper *upper = node->upper;
	struct fs_place place;
	char name[FS_WORK_NAME_SZ];
	int ret = fs_disk_place(node, &place);

	if (ret < 0)
		return ret;
	fs_disk_tmp_name(upper, name);
	if (linkat(place.dir_fd, place.name, over ? upper->work_fd : m->dir_fd,
		   over ? name : m->what->name, 0) < 0)
		ret = -errno;
	if (ret == 0 && over && renameat(upper->work_fd, name, m->dir_fd, m->what->name) < 0) {
		ret = -errno;
		fs_disk_drop(upper, name);
	}
	fs_disk_place_end(&place);
	return ret;
}

static int link_locked(struct fs_unode *node, struct making *m, struct err *err)
{
	struct stat st;
	bool over = false;
	int ret = fs_upper_check(node->upper);

	if (ret == 0)
		ret = fs_upper_may_make(m->dir);
	if (ret == 0)
		ret = m->dir->removed ? -ENOENT : fs_upper_dir_up(m->dir);
	if (ret < 0)
		return ret;
	m->dir_fd = fs_disk_dir(m->dir);
	if (m->dir_fd < 0)
		return m->dir_fd;
	ret = check_free(m, &over, err);
	if (ret == 0)
		fs_uplace_touch(m->dir, m->what->name);
	if (ret == 0)
		ret = link_at(node, m, over);
	if (ret == 0)
		ret = fs_dent_add(m->dir, m->what->name, node);
	if (ret == 0 && fstatat(m->dir_fd, m->what->name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		ret = fs_unode_by_ino_add(node, st.st_ino);
	fs_ufd_unref(m->dir);
	return ret;
}

int fs_upper_link(struct fs_unode *node, struct fs_unode *dir, const char *name,
		  struct fs_entry *out, struct err *err)
{
	const struct fs_making what = {.name = name, .mode = node->type};
	struct making m = {.dir = dir, .what = &what, .dir_fd = -1, .fd = -1};
	int ret;

	if (node->upper != dir->upper)
		return -EXDEV;
	if (strlen(name) > CAS_NAME_MAX)
		return -ENAMETOOLONG;
	ret = fs_upper_copy_up(node, false, err);
	if (ret < 0)
		return ret == -EROFS ? -EXDEV : ret;
	fs_upper_lock(dir->upper);
	ret = link_locked(node, &m, err);
	if (ret == 0) {
		fs_unode_ref(node);
		fs_unode_entry(node, out);
	}
	fs_upper_unlock(dir->upper);
	return ret;
}
