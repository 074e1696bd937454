/* cas/checkout/checkout_snap.c - on btrfs: a tree that was made before is one snapshot */
#include "cas/checkout/checkout_i.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/btrfs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/reapi/directory.h"
#include "cas/store/store_i.h"

/*
 * STORE/trees/HASH-SIZE-UID-GID/ holds `tree`, a read-only subvolume in which the tree of
 * that root was grown as any checkout grows (files of that user), and `stamp`, what the
 * kernel said about it then: its uuid and the number of the last transaction that changed
 * anything in it. A tree is used only while it is read-only and both are the same, which
 * is looked at once more after the snapshot was taken; so whoever makes it writable,
 * changes it, or removes it, at whatever moment, costs a checkout the ordinary way.
 *
 * The snapshot commits the tree to disk before its stamp is written: a power cut leaves no
 * stamp with a tree that lacks bytes.
 *
 * The directory is filled under a temporary name, whose lock tells that somebody lives,
 * and renamed. A snapshot of a kept tree is taken under such a name, too, and moved to its
 * destination, where one mount holds both; else it is taken in a directory beside that.
 * Snapshots cost a transaction, some milliseconds, so small trees are not
 * worth one. Trees share their extents with blobs and with what was checked out; there are
 * at most MAX_TREES, the least recently used (mtime of the stamp) goes first, and eviction
 * takes them all before it takes a blob.
 */

#define MIN_ENTRIES 512
#define MAX_TREES   16

static bool is_btrfs(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && fs.f_type == BTRFS_SUPER_MAGIC;
}

/* Are both in one filesystem, whatever their subvolumes? */
static bool is_same_btrfs(int a_fd, int b_fd)
{
	struct btrfs_ioctl_fs_info_args a = {0};
	struct btrfs_ioctl_fs_info_args b = {0};

	return is_btrfs(a_fd) && is_btrfs(b_fd) && ioctl(a_fd, BTRFS_IOC_FS_INFO, &a) == 0 &&
	       ioctl(b_fd, BTRFS_IOC_FS_INFO, &b) == 0 &&
	       memcmp(a.fsid, b.fsid, sizeof(a.fsid)) == 0;
}

/* What is none in trees/ is somebody else's. */
static bool is_key(const char *name)
{
	return strspn(name, "0123456789abcdef") == CAS_HASH_HEX_SZ &&
	       name[CAS_HASH_HEX_SZ] == '-' && strlen(name) < CHECKOUT_KEY_SZ;
}

/* "casbox-tree 1 UUID TRANSID FILES BYTES\n" */
static int stamp_write(int dir_fd, const struct checkout_stamp *s)
{
	char hex[2 * BTRFS_UUID_SIZE + 1];
	char text[CHECKOUT_STAMP_MAX];

	for (size_t i = 0; i < BTRFS_UUID_SIZE; i++)
		(void)snprintf(hex + 2 * i, 3, "%02x", s->uuid[i]);
	(void)snprintf(text, sizeof(text), "casbox-tree 1 %s %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
		       hex, s->transid, s->files, s->bytes);
	return io_replace_file(dir_fd, "stamp", text, strlen(text), 0600, false);
}

static int make_trees(struct cas_store *store)
{
	int ret = cas_store_mkdir(store, store->dir_fd, CHECKOUT_TREES, 0755);

	return ret < 0 ? ret : checkout_open_trees(store);
}

/* Has the tree so many entries that a snapshot pays? Loads no more than that takes. */
static bool is_large(struct checkout *co, const struct cas_digest *root)
{
	auto_buf struct buf queue = {0};
	size_t seen = 0;
	size_t at = 0;

	if (buf_append(&queue, root, sizeof(*root)) < 0)
		return false;
	for (; at < queue.len && seen < MIN_ENTRIES; at += sizeof(*root)) {
		struct cas_directory *dir = NULL;
		struct cas_digest digest;
		int ret;

		memcpy(&digest, queue.data + at, sizeof(digest));
		ret = cas_directory_load(co->store, &digest, &dir, NULL);
		for (size_t i = 0; ret == 0 && i < dir->nr_nodes; i++) {
			if (dir->nodes[i].kind == CAS_NODE_DIRECTORY)
				ret = buf_append(&queue, &dir->nodes[i].digest, sizeof(digest));
		}
		seen += ret == 0 ? dir->nr_nodes : 0;
		cas_directory_free(dir);
		if (ret < 0)
			return false;
	}
	return seen >= MIN_ENTRIES;
}

/* Not a tree: gone if whoever was making one is. */
static void sweep_temporary(int trees_fd, const char *name, int fd)
{
	if (strncmp(name, CAS_TMP_PREFIX, strlen(CAS_TMP_PREFIX)) == 0 && fd >= 0 &&
	    flock(fd, LOCK_EX | LOCK_NB) == 0)
		checkout_remove_kept(trees_fd, name);
}

/* The number of trees, and the name of the least recently used. */
static unsigned count_trees(int trees_fd, char oldest[CHECKOUT_KEY_SZ])
{
	int scan_fd = openat(trees_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_closedir DIR *dir = scan_fd < 0 ? NULL : fdopendir(scan_fd);
	int64_t oldest_sec = INT64_MAX;
	struct dirent *de;
	unsigned nr = 0;

	if (dir == NULL && scan_fd >= 0)
		(void)close(scan_fd);
	while (dir && (de = readdir(dir)) != NULL) {
		auto_close int fd = openat(trees_fd, de->d_name,
					   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		struct stat st;

		sweep_temporary(trees_fd, de->d_name, fd);
		if (!is_key(de->d_name))
			continue;
		nr++;
		if (fd < 0 || fstatat(fd, "stamp", &st, AT_SYMLINK_NOFOLLOW) < 0)
			st.st_mtim.tv_sec = 0;
		if (st.st_mtim.tv_sec >= oldest_sec)
			continue;
		oldest_sec = st.st_mtim.tv_sec;
		(void)strcpy(oldest, de->d_name);
	}
	return nr;
}

static void trim(int trees_fd, unsigned max)
{
	char oldest[CHECKOUT_KEY_SZ] = "";

	/* Bounded, as one that cannot be removed would be found for ever. */
	for (unsigned i = 0; i < 4 * MAX_TREES && count_trees(trees_fd, oldest) > max; i++)
		checkout_remove_kept(trees_fd, oldest);
}

void cas_checkout_drop_trees(struct cas_store *store)
{
	auto_close int fd = checkout_open_trees(store);

	if (fd >= 0)
		trim(fd, 0);
}

static int create_subvolume(int dir_fd)
{
	struct btrfs_ioctl_vol_args args = {0};
	auto_close int fd = -1;
	int ret;

	(void)strcpy(args.name, CHECKOUT_SNAPSHOT);
	if (ioctl(dir_fd, BTRFS_IOC_SUBVOL_CREATE, &args) < 0)
		return -errno;
	fd = openat(dir_fd, CHECKOUT_SNAPSHOT, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	ret = fd < 0 || fchmod(fd, 0755) < 0 ? -errno : steal_fd(&fd);
	if (ret < 0)
		checkout_remove_subvolume(dir_fd, CHECKOUT_SNAPSHOT);
	return ret;
}

/* Grown in @dir_fd, shown in @temp_fd and stamped: 1. 0: not possible. Negative: a fault. */
static int grow_tree(struct checkout *co, const struct cas_digest *root, int dir_fd, int temp_fd)
{
	auto_close int tree_fd = create_subvolume(dir_fd);
	struct checkout_stamp stamp;
	int code;

	if (tree_fd < 0)
		return 0;
	checkout_tree(co, root, tree_fd);
	lock_take(&co->lock);
	code = co->code;
	lock_drop(&co->lock);
	if (code < 0)
		return code;
	stamp.files = atomic_load(&co->progress->files) - co->files_before;
	stamp.bytes = atomic_load(&co->progress->bytes) - co->bytes_before;
	checkout_set_read_only(tree_fd, true);
	code = checkout_take_snapshot(tree_fd, temp_fd, CHECKOUT_SNAPSHOT);
	if (code < 0)
		return code;
	if (checkout_look_at_tree(tree_fd, &stamp) == 1)
		(void)stamp_write(dir_fd, &stamp);
	return 1;
}

static int make_tree(struct checkout *co, const struct cas_digest *root, int trees_fd,
		     const char *key, int temp_fd, struct err *err)
{
	char tmp[40] = CAS_TMP_PREFIX;
	auto_close int dir_fd = -1;
	int ret = io_random_hex(tmp + strlen(tmp), 8);

	if (ret < 0 || cas_store_mkdir(co->store, trees_fd, tmp, 0700) < 0)
		return 0;
	dir_fd = openat(trees_fd, tmp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir_fd < 0 || flock(dir_fd, LOCK_EX | LOCK_NB) < 0) {
		(void)io_remove_tree(trees_fd, tmp, NULL);
		return 0;
	}
	ret = grow_tree(co, root, dir_fd, temp_fd);
	if (ret < 0 && co->code == 0)
		(void)err_set(err, ret, "cannot take a snapshot of the tree: %s",
			      strerrordesc_np(-ret));
	if (ret != 1 || faccessat(dir_fd, "stamp", F_OK, 0) < 0 ||
	    renameat2(trees_fd, tmp, trees_fd, key, RENAME_NOREPLACE) < 0)
		checkout_remove_kept(trees_fd, tmp);
	else
		trim(trees_fd, MAX_TREES);
	return ret;
}

int checkout_snapshot(struct checkout *co, const struct cas_digest *root, int temp_fd,
		      struct err *err)
{
	auto_close int trees_fd = -1;
	char key[CHECKOUT_KEY_SZ];
	int ret;

	if (co->mode != CAS_CHECKOUT_AUTO || !is_same_btrfs(co->store->dir_fd, temp_fd))
		return 0;
	checkout_key_of(root, key);
	trees_fd = checkout_open_trees(co->store);
	ret = trees_fd < 0 ? 0 : checkout_use_tree(co, trees_fd, key, temp_fd, CHECKOUT_SNAPSHOT);
	if (ret != 0 || co->store->read_only || !is_large(co, root))
		return ret;
	if (trees_fd < 0)
		trees_fd = make_trees(co->store);
	return trees_fd < 0 ? 0 : make_tree(co, root, trees_fd, key, temp_fd, err);
}
