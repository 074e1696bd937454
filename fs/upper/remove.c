/* fs/upper/remove.c - names of a layer go */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/upper/limit.h"
#include "fs/upper/place.h"
#include "fs/upper/upper_i.h"

/*
 * Session one has no opens, so nobody can tell whether a file without a name is in use
 * still: it is kept until the kernel forgets it, by its descriptor or as w/oN.
 */

int fs_upper_put_whiteout(struct fs_upper *upper, int dir_fd, const char *name)
{
	char tmp[FS_WORK_NAME_SZ];
	int ret;

	fs_disk_tmp_name(upper, tmp);
	ret = fs_disk_whiteout(upper, tmp);
	if (ret == 0 && renameat2(upper->work_fd, tmp, dir_fd, name, RENAME_NOREPLACE) < 0) {
		ret = -errno;
		fs_disk_drop(upper, tmp);
	}
	return ret;
}

/* Has it another name that we know? */
static bool has_other_name(const struct fs_unode *node)
{
	return node->names && node->names->next;
}

int fs_upper_keep(struct fs_unode *node, int dir_fd, const char *name, bool may_move, bool *moved)
{
	char orphan[FS_WORK_NAME_SZ];
	int ret;

	*moved = false;
	if (!node->has_upper || fs_unode_is_dir(node) || node->orphan || has_other_name(node) ||
	    !fs_unode_is_used(node))
		return 0;
	/* With more names on disk it will be found again by one of them. */
	if (!node->in_by_ino && fs_ufd_pin(node)) {
		node->pinned = true;
		return 0;
	}
	fs_disk_orphan_name(node, orphan);
	if (may_move)
		ret = renameat(dir_fd, name, node->upper->work_fd, orphan);
	else
		ret = linkat(dir_fd, name, node->upper->work_fd, orphan, 0);
	if (ret < 0)
		return -errno;
	node->orphan = true;
	*moved = may_move;
	return 0;
}

/* The tree has the name, too: a whiteout takes the place of what the layer has there. */
static int cover(struct fs_unode *node, int dir_fd, const char *name)
{
	struct fs_upper *upper = node->upper;
	bool keep = !fs_unode_is_dir(node) && !node->orphan && !has_other_name(node) &&
		    fs_unode_is_used(node);
	char old[FS_WORK_NAME_SZ];
	int ret;

	if (keep)
		fs_disk_orphan_name(node, old);
	else
		fs_disk_tmp_name(upper, old);
	ret = fs_disk_whiteout(upper, old);
	if (ret < 0)
		return ret;
	if (renameat2(upper->work_fd, old, dir_fd, name, RENAME_EXCHANGE) < 0)
		ret = -errno;
	if (ret == 0 && keep)
		node->orphan = true;
	else
		fs_disk_drop(upper, old);
	return ret;
}

/* Whiteouts in it go with it. */
static int remove_dir(struct fs_unode *node, int dir_fd, const char *name)
{
	char old[FS_WORK_NAME_SZ];

	if (unlinkat(dir_fd, name, AT_REMOVEDIR) == 0)
		return 0;
	if (errno != ENOTEMPTY && errno != EEXIST)
		return -errno;
	fs_disk_tmp_name(node->upper, old);
	if (renameat(dir_fd, name, node->upper->work_fd, old) < 0)
		return -errno;
	fs_disk_drop(node->upper, old);
	return 0;
}

static int remove_upper(struct fs_unode *node, int dir_fd, const char *name, bool hides)
{
	bool moved = false;
	int ret;

	if (hides)
		return cover(node, dir_fd, name);
	if (fs_unode_is_dir(node))
		return remove_dir(node, dir_fd, name);
	ret = fs_upper_keep(node, dir_fd, name, true, &moved);
	if (ret == 0 && !moved && unlinkat(dir_fd, name, 0) < 0)
		ret = -errno;
	return ret;
}

static int remove_found(struct fs_unode *dir, const char *name, struct fs_unode *node,
			struct err *err)
{
	int hides = fs_upper_hides(dir, name, err);
	int ret = hides < 0 ? hides : 0;
	bool last = false;
	int dir_fd;

	if (ret == 0 && !dir->has_upper)
		ret = fs_upper_dir_up(dir);
	if (ret < 0)
		return ret;
	fs_uplace_touch(dir, name);
	dir_fd = fs_disk_dir(dir);
	if (dir_fd < 0)
		return dir_fd;
	last = fs_ulimit_is_last(node, dir_fd, name);
	if (node->has_upper)
		ret = remove_upper(node, dir_fd, name, hides > 0);
	else
		ret = fs_upper_put_whiteout(dir->upper, dir_fd, name);
	fs_ufd_unref(dir);
	if (ret < 0)
		return ret;
	fs_dent_remove(fs_dent_find(dir, name));
	if (fs_unode_is_dir(node))
		node->removed = true;
	if (last)
		fs_ulimit_gone(node);
	return 0;
}

static int remove_locked(struct fs_unode *dir, const char *name, bool is_dir,
			 struct fs_found *found, struct err *err)
{
	int ret = fs_upper_check(dir->upper);

	if (ret == 0)
		ret = fs_upper_look(dir, name, found, err);
	if (ret <= 0)
		return ret < 0 ? ret : -ENOENT;
	ret = fs_upper_may_change(found);
	if (ret < 0)
		return ret;
	if (fs_unode_is_dir(found->node) != is_dir)
		return is_dir ? -ENOTDIR : -EISDIR;
	ret = is_dir ? fs_upper_is_empty(found->node, err) : 1;
	if (ret <= 0)
		return ret < 0 ? ret : -ENOTEMPTY;
	return remove_found(dir, name, found->node, err);
}

int fs_upper_remove(struct fs_unode *dir, const char *name, bool is_dir, struct err *err)
{
	struct fs_found found = {0};
	int ret;

	fs_upper_lock(dir->upper);
	ret = remove_locked(dir, name, is_dir, &found, err);
	fs_found_end(&found);
	fs_upper_unlock(dir->upper);
	fs_uppers_reap(dir->upper->all);
	return ret;
}
