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

#define TREES	    "trees"
#define MIN_ENTRIES 512
#define MAX_TREES   16
#define STAMP_MAX   256
#define KEY_SZ	    (CAS_DIGEST_STR_SZ + 32)

/* What vouches for a tree, and what a checkout of it counts. */
struct tree_stamp {
	uint8_t uuid[BTRFS_UUID_SIZE];
	uint64_t transid;
	uint64_t files;
	uint64_t bytes;
};

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

static void key_of(const struct cas_digest *root, char out[KEY_SZ])
{
	char *slash;

	(void)snprintf(out, KEY_SZ, "%s-%u-%u", CAS_DIGEST_TEXT(root), geteuid(), getegid());
	slash = strchr(out, '/');
	*slash = '-';
}

/* What is none in trees/ is somebody else's. */
static bool is_key(const char *name)
{
	return strspn(name, "0123456789abcdef") == CAS_HASH_HEX_SZ &&
	       name[CAS_HASH_HEX_SZ] == '-' && strlen(name) < KEY_SZ;
}

/* 1 and *out: a read-only subvolume. 0: something else. */
static int look_at_tree(int fd, struct tree_stamp *out)
{
	struct btrfs_ioctl_get_subvol_info_args *info = calloc(1, sizeof(*info));
	__u64 flags = 0;
	int ret = 0;

	if (info == NULL)
		return -ENOMEM;
	/* The latter answers 1 for a subvolume that has no other above it (6.18). */
	if (ioctl(fd, BTRFS_IOC_SUBVOL_GETFLAGS, &flags) == 0 && (flags & BTRFS_SUBVOL_RDONLY) &&
	    ioctl(fd, BTRFS_IOC_GET_SUBVOL_INFO, info) >= 0) {
		memcpy(out->uuid, info->uuid, sizeof(out->uuid));
		out->transid = info->ctransid;
		ret = 1;
	}
	free(info);
	return ret;
}

static bool is_same_tree(const struct tree_stamp *a, const struct tree_stamp *b)
{
	return memcmp(a->uuid, b->uuid, sizeof(a->uuid)) == 0 && a->transid == b->transid;
}

/* "casbox-tree 1 UUID TRANSID FILES BYTES\n" */
static int stamp_write(int dir_fd, const struct tree_stamp *s)
{
	char hex[2 * BTRFS_UUID_SIZE + 1];
	char text[STAMP_MAX];

	for (size_t i = 0; i < BTRFS_UUID_SIZE; i++)
		(void)snprintf(hex + 2 * i, 3, "%02x", s->uuid[i]);
	(void)snprintf(text, sizeof(text), "casbox-tree 1 %s %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
		       hex, s->transid, s->files, s->bytes);
	return io_replace_file(dir_fd, "stamp", text, strlen(text), 0600, false);
}

static bool stamp_read(int dir_fd, struct tree_stamp *out)
{
	auto_buf struct buf text = {0};
	char hex[2 * BTRFS_UUID_SIZE + 1];

	if (io_read_file(dir_fd, "stamp", STAMP_MAX, &text) < 0 ||
	    sscanf(buf_str(&text), "casbox-tree 1 %32s %" SCNu64 " %" SCNu64 " %" SCNu64, hex,
		   &out->transid, &out->files, &out->bytes) != 4)
		return false;
	for (size_t i = 0; i < BTRFS_UUID_SIZE; i++) {
		if (sscanf(hex + 2 * i, "%2hhx", &out->uuid[i]) != 1)
			return false;
	}
	return true;
}

static int snapshot(int tree_fd, int dir_fd, const char *name)
{
	struct btrfs_ioctl_vol_args_v2 args = {.fd = tree_fd};

	(void)snprintf(args.name, sizeof(args.name), "%s", name);
	return ioctl(dir_fd, BTRFS_IOC_SNAP_CREATE_V2, &args) < 0 ? -errno : 0;
}

static void set_read_only(int tree_fd, bool yes)
{
	__u64 flags = yes ? BTRFS_SUBVOL_RDONLY : 0;

	(void)ioctl(tree_fd, BTRFS_IOC_SUBVOL_SETFLAGS, &flags);
}

/* At once where we may (root, or mounted so), else, and what is none, file by file. */
static void remove_subvolume(int dir_fd, const char *name)
{
	struct btrfs_ioctl_vol_args args = {0};
	auto_close int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0)
		set_read_only(fd, false);
	(void)snprintf(args.name, sizeof(args.name), "%s", name);
	if (fd < 0 || ioctl(dir_fd, BTRFS_IOC_SNAP_DESTROY, &args) < 0)
		(void)io_remove_tree(dir_fd, name, NULL);
}

void checkout_snapshot_remove(int temp_fd)
{
	remove_subvolume(temp_fd, CHECKOUT_SNAPSHOT);
}

/* A directory of trees/ that nobody uses any more, or has ever used. */
static void remove_kept(int trees_fd, const char *name)
{
	auto_close int fd = openat(trees_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0)
		remove_subvolume(fd, CHECKOUT_SNAPSHOT);
	remove_subvolume(trees_fd, name);
}

static int open_trees(struct cas_store *store, bool make)
{
	int fd = openat(store->dir_fd, TREES, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT && make) {
		int ret = cas_store_mkdir(store, store->dir_fd, TREES, 0755);

		if (ret < 0)
			return ret;
		fd = openat(store->dir_fd, TREES, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	return fd < 0 ? -errno : fd;
}

/* --- using one --- */

/* 1: @place_fd/@place is a snapshot of the tree kept as @key. 0: there is none. */
static int use_tree(struct checkout *co, int trees_fd, const char *key, int place_fd,
		    const char *place)
{
	auto_close int dir_fd =
		openat(trees_fd, key, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	auto_close int tree_fd = -1;
	struct tree_stamp stamp;
	struct tree_stamp now;

	if (dir_fd < 0)
		return 0;
	tree_fd =
		openat(dir_fd, CHECKOUT_SNAPSHOT, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (tree_fd < 0 || !stamp_read(dir_fd, &stamp) || look_at_tree(tree_fd, &now) != 1 ||
	    !is_same_tree(&stamp, &now)) {
		log_warn("the tree kept for checkouts as %s/%s was changed; removing it", TREES,
			 key);
		remove_kept(trees_fd, key);
		return 0;
	}
	if (snapshot(tree_fd, place_fd, place) < 0)
		return 0;
	if (look_at_tree(tree_fd, &now) != 1 || !is_same_tree(&stamp, &now)) {
		remove_subvolume(place_fd, place);
		return 0;
	}
	(void)utimensat(dir_fd, "stamp", NULL, 0);
	atomic_fetch_add(&co->progress->files, stamp.files);
	atomic_fetch_add(&co->progress->bytes, stamp.bytes);
	return 1;
}

/* Below one mount, a snapshot taken here can be moved there. */
static bool is_same_mount(int a_fd, int b_fd)
{
	struct statx a;
	struct statx b;

	return statx(a_fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &a) == 0 &&
	       statx(b_fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &b) == 0 &&
	       (a.stx_mask & b.stx_mask & STATX_MNT_ID) && a.stx_mnt_id == b.stx_mnt_id;
}

/* False: whoever sweeps has come before the lock. */
static bool lock_snapshot(struct checkout_kept *kept)
{
	kept->fd =
		openat(kept->trees_fd, kept->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return kept->fd >= 0 && flock(kept->fd, LOCK_EX | LOCK_NB) == 0;
}

int checkout_kept_take(struct checkout *co, const struct cas_digest *root, int parent_fd,
		       struct checkout_kept *out)
{
	auto_call(checkout_kept_drop) struct checkout_kept kept = {-1, -1, CAS_TMP_PREFIX};
	char key[KEY_SZ];

	if (co->mode != CAS_CHECKOUT_AUTO || !is_same_mount(co->store->dir_fd, parent_fd))
		return 0;
	kept.trees_fd = open_trees(co->store, false);
	if (kept.trees_fd < 0 || io_random_hex(kept.name + strlen(kept.name), 8) < 0)
		return 0;
	key_of(root, key);
	if (use_tree(co, kept.trees_fd, key, kept.trees_fd, kept.name) != 1 ||
	    !lock_snapshot(&kept))
		return 0;
	*out = kept;
	kept.trees_fd = kept.fd = -1;
	return 1;
}

void checkout_kept_drop(struct checkout_kept *kept)
{
	if (kept->fd >= 0)
		remove_subvolume(kept->trees_fd, kept->name);
	checkout_kept_close(kept);
}

void checkout_kept_close(struct checkout_kept *kept)
{
	if (kept->fd >= 0)
		(void)close(steal_fd(&kept->fd));
	if (kept->trees_fd >= 0)
		(void)close(steal_fd(&kept->trees_fd));
}

/* --- making one --- */

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
		remove_kept(trees_fd, name);
}

/* The number of trees, and the name of the least recently used. */
static unsigned count_trees(int trees_fd, char oldest[KEY_SZ])
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
	char oldest[KEY_SZ] = "";

	/* Bounded, as one that cannot be removed would be found for ever. */
	for (unsigned i = 0; i < 4 * MAX_TREES && count_trees(trees_fd, oldest) > max; i++)
		remove_kept(trees_fd, oldest);
}

void cas_checkout_drop_trees(struct cas_store *store)
{
	auto_close int fd = open_trees(store, false);

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
		remove_subvolume(dir_fd, CHECKOUT_SNAPSHOT);
	return ret;
}

/* Grown in @dir_fd, shown in @temp_fd and stamped: 1. 0: not possible. Negative: a fault. */
static int grow_tree(struct checkout *co, const struct cas_digest *root, int dir_fd, int temp_fd)
{
	auto_close int tree_fd = create_subvolume(dir_fd);
	struct tree_stamp stamp;
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
	set_read_only(tree_fd, true);
	code = snapshot(tree_fd, temp_fd, CHECKOUT_SNAPSHOT);
	if (code < 0)
		return code;
	if (look_at_tree(tree_fd, &stamp) == 1)
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
		remove_kept(trees_fd, tmp);
	else
		trim(trees_fd, MAX_TREES);
	return ret;
}

int checkout_snapshot(struct checkout *co, const struct cas_digest *root, int temp_fd,
		      struct err *err)
{
	auto_close int trees_fd = -1;
	char key[KEY_SZ];
	int ret;

	if (co->mode != CAS_CHECKOUT_AUTO || !is_same_btrfs(co->store->dir_fd, temp_fd))
		return 0;
	key_of(root, key);
	trees_fd = open_trees(co->store, false);
	ret = trees_fd < 0 ? 0 : use_tree(co, trees_fd, key, temp_fd, CHECKOUT_SNAPSHOT);
	if (ret != 0 || co->store->read_only || !is_large(co, root))
		return ret;
	if (trees_fd < 0)
		trees_fd = open_trees(co->store, true);
	return trees_fd < 0 ? 0 : make_tree(co, root, trees_fd, key, temp_fd, err);
}
