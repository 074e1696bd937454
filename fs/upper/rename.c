/* fs/upper/rename.c - names of a layer move */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/upper/limit.h"
#include "fs/upper/place.h"
#include "fs/upper/upper_i.h"

/*
 * What moves is in the layer first: inputs are copied up, a directory with inputs gets a
 * place and remembers which directory of the tree it shows. If the tree has the old name,
 * a whiteout follows; and what rename would not replace comes to be at the old name, and is
 * taken from there. w/rename says so in between, lest a crash bring any of it back.
 */

/* One end. */
struct end {
	struct fs_unode *dir;
	const char *name;
	int dir_fd;
	struct fs_found found; /* the destination may be empty */
	struct fs_disk disk;   /* what the layer has there, if anything */
	int hides;	       /* as fs_upper_hides */
};

struct move {
	struct end from;
	struct end to;
	unsigned flags;
	struct err *err;
};

static void end_fini(struct end *e)
{
	if (e->dir_fd >= 0)
		fs_ufd_unref(e->dir);
	e->dir_fd = -1;
	fs_found_end(&e->found);
}

static void move_fini(struct move *m)
{
	end_fini(&m->from);
	end_fini(&m->to);
}

static int check_dirs(const struct move *m)
{
	const struct fs_unode *node = m->from.found.node;
	bool is_dir = fs_unode_is_dir(node);

	if (!m->to.found.node || (m->flags & RENAME_EXCHANGE))
		return 0;
	if (is_dir && !fs_unode_is_dir(m->to.found.node))
		return -ENOTDIR;
	return !is_dir && fs_unode_is_dir(m->to.found.node) ? -EISDIR : 0;
}

/* What both names stand for, and whether they may change. */
static int look_both(struct move *m)
{
	bool exchange = m->flags & RENAME_EXCHANGE;
	int ret = fs_upper_check(m->from.dir->upper);

	if (ret == 0)
		ret = fs_upper_look(m->from.dir, m->from.name, &m->from.found, m->err);
	if (ret <= 0)
		return ret < 0 ? ret : -ENOENT;
	ret = fs_upper_look(m->to.dir, m->to.name, &m->to.found, m->err);
	if (ret < 0)
		return ret;
	if (ret == 0 && exchange)
		return -ENOENT;
	if (ret > 0 && (m->flags & RENAME_NOREPLACE))
		return -EEXIST;
	if (ret > 0)
		ret = fs_upper_may_change(&m->to.found);
	if (ret == 0)
		ret = fs_upper_may_change(&m->from.found);
	if (ret == 0)
		ret = fs_upper_may_make(m->to.dir);
	if (ret == 0 && m->to.dir->removed)
		ret = -ENOENT;
	return ret < 0 ? ret : check_dirs(m);
}

/* A file or symlink that has to be copied up first; NULL: none. */
static struct fs_unode *needs_copy(const struct move *m)
{
	struct fs_unode *a = m->from.found.node;
	struct fs_unode *b = (m->flags & RENAME_EXCHANGE) ? m->to.found.node : NULL;

	if (!a->has_upper && !fs_unode_is_dir(a))
		return a;
	return b && !b->has_upper && !fs_unode_is_dir(b) ? b : NULL;
}

/* A directory that moves keeps what it shows of the tree, and shows nothing else. */
static int settle_dir(struct fs_unode *node, int hides)
{
	auto_free char *origin = NULL;
	int ret;
	int fd;

	if (!fs_unode_is_dir(node) || (!node->has_lower && hides != 2))
		return 0;
	ret = fs_upper_dir_up(node);
	if (ret < 0)
		return ret;
	fd = fs_disk_open(node);
	if (fd < 0)
		return fd;
	if (node->has_lower && !node->origin) {
		origin = fs_unode_origin(node);
		ret = origin ? fs_disk_set_redirect(node, fd, origin) : -ENOMEM;
		if (ret == 0)
			node->origin = steal_ptr(&origin);
	} else if (!node->has_lower) {
		ret = fs_disk_set_opaque(node, fd);
	}
	fs_ufd_unref(node);
	return ret;
}

static int open_end(struct end *e, struct err *err)
{
	int ret = fs_upper_dir_up(e->dir);

	if (ret < 0)
		return ret;
	e->dir_fd = fs_disk_dir(e->dir);
	if (e->dir_fd < 0)
		return e->dir_fd;
	e->hides = fs_upper_hides(e->dir, e->name, err);
	ret = e->hides < 0 ? e->hides : fs_disk_look(e->dir_fd, e->name, &e->disk);
	return ret < 0 ? ret : 0;
}

static int prepare(struct move *m)
{
	struct fs_unode *old = m->to.found.node;
	int ret = open_end(&m->from, m->err);

	if (ret == 0)
		ret = open_end(&m->to, m->err);
	if (ret == 0 && old && fs_unode_is_dir(old) && !(m->flags & RENAME_EXCHANGE)) {
		ret = fs_upper_is_empty(old, m->err);
		ret = ret < 0 ? ret : ret ? 0 : -ENOTEMPTY;
	}
	if (ret == 0)
		ret = settle_dir(m->from.found.node, m->to.hides);
	if (ret == 0 && (m->flags & RENAME_EXCHANGE))
		ret = settle_dir(old, m->from.hides);
	/* Both may have got a place just now. */
	if (ret == 0)
		ret = fs_disk_look(m->from.dir_fd, m->from.name, &m->from.disk);
	if (ret == 0)
		return -ENOENT;
	ret = ret < 0 ? ret : fs_disk_look(m->to.dir_fd, m->to.name, &m->to.disk);
	return ret < 0 ? ret : 0;
}

/* The layer has something at the destination that rename would not replace. */
static bool is_in_the_way(const struct move *m)
{
	bool moves_dir = fs_unode_is_dir(m->from.found.node);

	if (m->to.disk.st.st_mode == 0)
		return false;
	return moves_dir && (m->to.disk.whiteout || m->to.found.node->has_lower);
}

static int move_on_disk(struct move *m)
{
	struct fs_upper *upper = m->from.dir->upper;
	bool exchange = (m->flags & RENAME_EXCHANGE) || is_in_the_way(m);
	char old[FS_WORK_NAME_SZ];

	if (renameat2(m->from.dir_fd, m->from.name, m->to.dir_fd, m->to.name,
		      exchange ? RENAME_EXCHANGE : 0) < 0)
		return -errno;
	if (!exchange || (m->flags & RENAME_EXCHANGE) || (m->to.disk.whiteout && m->from.hides > 0))
		return 0;
	/* What was in the way is at the old name now. */
	fs_disk_tmp_name(upper, old);
	if (renameat(m->from.dir_fd, m->from.name, upper->work_fd, old) < 0)
		return -errno;
	fs_disk_drop(upper, old);
	return 0;
}

static int hide_old(struct move *m)
{
	struct fs_upper *upper = m->from.dir->upper;
	struct fs_disk disk;
	int ret = fs_disk_look(m->from.dir_fd, m->from.name, &disk);

	if (ret == 0)
		ret = fs_upper_put_whiteout(upper, m->from.dir_fd, m->from.name);
	return ret < 0 ? ret : 0;
}

/* Move, and hide what the tree has at the old name. */
static int move_and_hide(struct move *m)
{
	struct fs_upper *upper = m->from.dir->upper;
	bool exchange = m->flags & RENAME_EXCHANGE;
	bool hide = m->from.hides > 0 && !exchange;
	bool noted = hide || (!exchange && is_in_the_way(m));
	auto_free char *path = noted ? fs_unode_path(m->from.dir, m->from.name) : NULL;
	int ret = 0;

	if (noted)
		ret = path ? fs_disk_note_rename(upper, path, m->from.disk.st.st_ino, hide)
			   : -ENOMEM;
	if (ret < 0)
		return ret;
	ret = move_on_disk(m);
	if (ret == 0 && hide)
		ret = hide_old(m);
	if (noted)
		(void)unlinkat(upper->work_fd, FS_WORK_RENAME, 0);
	return ret;
}

/* The names that we know follow. */
static int move_names(struct move *m)
{
	struct fs_unode *node = m->from.found.node;
	struct fs_unode *old = m->to.found.node;
	bool exchange = m->flags & RENAME_EXCHANGE;
	int ret;

	if (old) {
		fs_dent_remove(fs_dent_find(m->to.dir, m->to.name));
		if (fs_unode_is_dir(old) && !exchange)
			old->removed = true;
	}
	fs_dent_remove(fs_dent_find(m->from.dir, m->from.name));
	ret = fs_dent_add(m->to.dir, m->to.name, node);
	if (ret == 0 && exchange)
		ret = fs_dent_add(m->from.dir, m->from.name, old);
	return ret;
}

/* Negative; or 0: done; or 1: *copy, counted, has to be copied up before. */
static int rename_locked(struct move *m, struct fs_unode **copy)
{
	struct fs_unode *old;
	bool last = false;
	bool moved;
	int ret = look_both(m);

	if (ret < 0)
		return ret;
	old = m->to.found.node;
	if (m->from.found.node == old)
		return 0;
	*copy = needs_copy(m);
	if (*copy) {
		fs_unode_ref(*copy);
		return 1;
	}
	ret = prepare(m);
	fs_uplace_touch(m->from.dir, m->from.name);
	fs_uplace_touch(m->to.dir, m->to.name);
	if (ret == 0 && old && !(m->flags & RENAME_EXCHANGE)) {
		last = fs_ulimit_is_last(old, m->to.dir_fd, m->to.name);
		ret = fs_upper_keep(old, m->to.dir_fd, m->to.name, false, &moved);
	}
	if (ret == 0)
		ret = move_and_hide(m);
	if (ret == 0 && last)
		fs_ulimit_gone(old);
	return ret < 0 ? ret : move_names(m);
}

int fs_upper_rename(struct fs_unode *dir, const char *name, struct fs_unode *dir2,
		    const char *name2, unsigned flags, struct err *err)
{
	struct fs_unode *copy = NULL;
	int ret;

	if (dir->upper != dir2->upper)
		return -EXDEV;
	if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE))
		return -EINVAL;
	if (strlen(name2) > CAS_NAME_MAX)
		return -ENAMETOOLONG;
	do {
		struct move m = {.from = {.dir = dir, .name = name, .dir_fd = -1},
				 .to = {.dir = dir2, .name = name2, .dir_fd = -1},
				 .flags = flags,
				 .err = err};

		fs_upper_lock(dir->upper);
		ret = rename_locked(&m, &copy);
		move_fini(&m);
		fs_upper_unlock(dir->upper);
		if (ret > 0) {
			ret = fs_upper_copy_up(copy, false, err);
			fs_unode_unref(copy);
			ret = ret < 0 ? ret : 1;
		}
	} while (ret > 0);
	fs_uppers_reap(dir->upper->all);
	return ret;
}
