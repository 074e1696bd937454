/* fs/upper/limit.c - how much lies in a layer, and that it does not become too much */

/*
 * A file takes the blocks that its filesystem has given it, whatever its size, and a long
 * symlink one; what the action makes is a file, of any type, but whiteouts and directories of the
 * tree are none. What may grow is promised before it does, at its worst, and counted as it turned
 * out. What has lost its last name counts until the kernel forgets it. That may be just about to
 * happen, so before anything is refused for it a thread that may wait does so for a moment.
 */
#include "fs/upper/limit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK	      4096U
#define STAT_BLK      512U
#define FULL	      (-EDQUOT)
#define WAIT_NS	      200000000ULL
#define LINK_IN_INODE 60U /* as ext4 has it */

static bool is_limited(const struct fs_upper *upper)
{
	return upper->limit.bytes > 0 || upper->limit.files > 0;
}

static void note_peak(struct fs_upper *upper)
{
	if (upper->used.bytes > upper->usage.peak.bytes)
		upper->usage.peak.bytes = upper->used.bytes;
	if (upper->used.files > upper->usage.peak.files)
		upper->usage.peak.files = upper->used.files;
}

/*
 * It does not fit. 0: something went meanwhile, so look again. -EAGAIN: ask again where one
 * may wait. Else it is refused.
 */
NO_LOCK_CHECK static int await_room(struct fs_upper *upper, unsigned long long until)
{
	if (upper->nr_gone == 0 || upper->ended)
		return FULL;
	if (lock_thread_is_prompt())
		return -EAGAIN;
	return lock_wait(&upper->lock, &upper->idle, until) < 0 ? FULL : 0;
}

static bool fits(const struct fs_upper *upper, uint64_t more)
{
	uint64_t taken = upper->used.bytes + upper->promised;

	return taken <= upper->limit.bytes && more <= upper->limit.bytes - taken;
}

/* What the target of a symlink takes: a short one lies in the inode. */
static uint64_t link_takes(size_t len)
{
	return len < LINK_IN_INODE ? 0 : BLOCK;
}

static uint64_t takes_on_disk(const struct stat *st)
{
	return S_ISREG(st->st_mode)   ? (uint64_t)st->st_blocks * STAT_BLK
	       : S_ISLNK(st->st_mode) ? link_takes((size_t)st->st_size)
				      : 0;
}

int fs_ulimit_may_make(struct fs_upper *upper, const char *target)
{
	unsigned long long until = lock_now_ns() + WAIT_NS;
	uint64_t more = target ? link_takes(strlen(target)) : 0;
	bool files = false;
	bool bytes = false;
	int ret = 0;

	while (ret == 0) {
		files = upper->limit.files > 0 && upper->used.files >= upper->limit.files;
		bytes = more > 0 && upper->limit.bytes > 0 && !fits(upper, more);
		if (!files && !bytes)
			return 0;
		ret = await_room(upper, until);
	}
	upper->usage.refused_files |= ret == FULL && files;
	upper->usage.refused_bytes |= ret == FULL && bytes;
	return ret;
}

void fs_ulimit_made(struct fs_unode *node, const char *target)
{
	struct fs_upper *upper = node->upper;

	if (!is_limited(upper) || node->counted)
		return;
	node->counted = true;
	node->charged = target ? link_takes(strlen(target)) : 0;
	upper->used.files++;
	upper->used.bytes += node->charged;
	note_peak(upper);
}

void fs_ulimit_met(struct fs_unode *node, const struct stat *st)
{
	node->counted = is_limited(node->upper) && !(fs_unode_is_dir(node) && node->has_lower);
	if (node->counted)
		node->charged = takes_on_disk(st);
}

/*
 * How many bytes of the range, of whole blocks, have none yet, so that they could take some.
 * What begins or ends within a block has it all, as where the file ends.
 */
static uint64_t holes_in(int fd, uint64_t off, uint64_t end)
{
	uint64_t holes = 0;

	while (off < end) {
		off_t data = lseek(fd, (off_t)off, SEEK_DATA);
		off_t hole;

		if (data < 0 || (uint64_t)data >= end)
			return holes + end - off;
		data -= data % BLOCK;
		holes += (uint64_t)data > off ? (uint64_t)data - off : 0;
		hole = lseek(fd, data, SEEK_HOLE);
		if (hole <= data)
			return holes + end - (uint64_t)data;
		off = (uint64_t)hole + (BLOCK - (uint64_t)hole % BLOCK) % BLOCK;
	}
	return holes;
}

int fs_ulimit_promise(struct fs_upper *upper, int fd, uint64_t off, uint64_t size,
		      uint64_t *promised)
{
	unsigned long long until;
	uint64_t begin = off - off % BLOCK;
	uint64_t end = off + size + (BLOCK - (off + size) % BLOCK) % BLOCK;
	uint64_t more = end - begin;
	int ret = 0;

	*promised = 0;
	if (upper->limit.bytes == 0 || size == 0)
		return 0;
	until = lock_now_ns() + WAIT_NS;
	fs_upper_lock(upper);
	/* What has its blocks already needs no more. */
	if (!fits(upper, more) && fd >= 0)
		more = holes_in(fd, begin, end);
	while (ret == 0 && !fits(upper, more))
		ret = await_room(upper, until);
	if (ret == 0) {
		upper->promised += more;
		*promised = more;
	}
	upper->usage.refused_bytes |= ret == FULL;
	fs_upper_unlock(upper);
	return ret;
}

void fs_ulimit_count(struct fs_unode *node, int fd)
{
	struct fs_upper *upper = node->upper;
	struct stat st;
	uint64_t now;

	if (!is_limited(upper) || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	now = (uint64_t)st.st_blocks * STAT_BLK;
	upper->used.bytes -= node->charged < upper->used.bytes ? node->charged : upper->used.bytes;
	upper->used.bytes += now;
	node->charged = now;
	note_peak(upper);
}

void fs_ulimit_settle(struct fs_unode *node, int fd, uint64_t promised)
{
	if (node->upper->limit.bytes == 0)
		return;
	fs_upper_lock(node->upper);
	node->upper->promised -= promised;
	fs_ulimit_count(node, fd);
	fs_upper_unlock(node->upper);
}

bool fs_ulimit_is_last(const struct fs_unode *node, int dir_fd, const char *name)
{
	struct stat st;

	if (!node->counted)
		return false;
	/* An orphan's name in w is none. */
	return fs_unode_is_dir(node) || fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	       st.st_nlink <= (node->orphan ? 2U : 1U);
}

void fs_ulimit_gone(struct fs_unode *node)
{
	node->gone = true;
	node->upper->nr_gone++;
}

void fs_ulimit_freed(struct fs_unode *node)
{
	struct fs_upper *upper = node->upper;

	if (!node->gone)
		return;
	upper->nr_gone--;
	upper->used.files--;
	upper->used.bytes -= node->charged < upper->used.bytes ? node->charged : upper->used.bytes;
	(void)pthread_cond_broadcast(&upper->idle);
}

/* --- what an earlier daemon left --- */

/* A file of several names is a part of one under each. */
struct sum {
	struct fs_upper *upper;
	double files;
	double bytes;
};

static int add_tree(struct sum *sum, int dir_fd, const struct fs_entry *lower);

static void add_file(struct sum *sum, const struct stat *st)
{
	double links = (double)st->st_nlink;

	sum->files += 1.0 / links;
	sum->bytes += (double)takes_on_disk(st) / links;
}

/* 1: what of the tree the directory open as @fd shows, where the one above shows @lower; 0:
 * nothing. */
static int shows(struct fs_upper *upper, int fd, const struct fs_disk *disk, const char *name,
		 const struct fs_entry *lower, struct fs_entry *out)
{
	const struct fs_view *tree = &upper->all->tree.view;
	auto_free char *origin = NULL;
	int ret = 0;

	if (disk->odd && fs_disk_is_opaque(fd))
		return 0;
	if (disk->odd)
		ret = fs_disk_redirect(fd, &origin);
	if (ret > 0)
		return fs_upper_walk_lower(upper, origin, out, NULL);
	if (ret == 0 && lower)
		ret = tree->ops->lookup(tree, lower, name, out, NULL);
	if (ret > 0 && out->kind == FS_KIND_SYMLINK)
		free((char *)out->target);
	return ret > 0 ? out->kind == FS_KIND_DIR : ret;
}

/* @lower is the tree's directory, or NULL. */
static int add_entry(struct sum *sum, int dir_fd, const char *name, const struct fs_entry *lower)
{
	struct fs_entry below = {0};
	struct fs_disk disk;
	int ret = fs_disk_look(dir_fd, name, &disk);
	auto_close int fd = -1;

	if (ret <= 0 || disk.whiteout)
		return ret < 0 ? ret : 0;
	if (!S_ISDIR(disk.st.st_mode)) {
		add_file(sum, &disk.st);
		return 0;
	}
	fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ret = shows(sum->upper, fd, &disk, name, lower, &below);
	if (ret < 0)
		return ret;
	sum->files += ret > 0 ? 0.0 : 1.0;
	return add_tree(sum, fd, ret > 0 ? &below : NULL);
}

static int add_tree(struct sum *sum, int dir_fd, const struct fs_entry *lower)
{
	auto_close int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_closedir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *de;
	int ret = dir ? 0 : -errno;

	if (dir)
		(void)steal_fd(&fd);
	while (ret == 0 && (errno = 0, de = readdir(dir)) != NULL) {
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			ret = add_entry(sum, dir_fd, de->d_name, lower);
	}
	return ret == 0 && errno != 0 ? -errno : ret;
}

int fs_ulimit_begin(struct fs_upper *upper, const struct fs_upper_spec *spec)
{
	const struct fs_entry *lower = &upper->root->lower;
	struct sum sum = {.upper = upper};
	int fd;
	int ret;

	upper->limit = spec->limit;
	if (!is_limited(upper) || !spec->again)
		return 0;
	fd = fs_disk_dir(upper->root);
	if (fd < 0)
		return fd;
	ret = add_tree(&sum, fd, lower);
	fs_ufd_unref(upper->root);
	if (ret < 0)
		return ret;
	upper->used.bytes = (uint64_t)(sum.bytes + 0.5);
	upper->used.files = (uint64_t)(sum.files + 0.5);
	note_peak(upper);
	return 0;
}

void fs_upper_usage(struct fs_upper *upper, struct fs_upper_usage *out)
{
	fs_upper_lock(upper);
	*out = upper->usage;
	fs_upper_unlock(upper);
}
