/* cas/checkout/checkout_kept.c - a tree kept for snapshots (checkout_snap.c) becomes one more */
#include "cas/checkout/checkout_i.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/btrfs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/store/store_i.h"

/*
 * The program's front links this file (tools/front) and little else: what it calls is to stay
 * small.
 */

void checkout_key_of(const struct cas_digest *root, char out[CHECKOUT_KEY_SZ])
{
	char *slash;

	(void)snprintf(out, CHECKOUT_KEY_SZ, "%s-%u-%u", CAS_DIGEST_TEXT(root), geteuid(),
		       getegid());
	slash = strchr(out, '/');
	*slash = '-';
}

int checkout_look_at_tree(int fd, struct checkout_stamp *out)
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

static bool is_same_tree(const struct checkout_stamp *a, const struct checkout_stamp *b)
{
	return memcmp(a->uuid, b->uuid, sizeof(a->uuid)) == 0 && a->transid == b->transid;
}

static bool stamp_read(int dir_fd, struct checkout_stamp *out)
{
	auto_buf struct buf text = {0};
	char hex[2 * BTRFS_UUID_SIZE + 1];

	if (io_read_file(dir_fd, "stamp", CHECKOUT_STAMP_MAX, &text) < 0 ||
	    sscanf(buf_str(&text), "casbox-tree 1 %32s %" SCNu64 " %" SCNu64 " %" SCNu64, hex,
		   &out->transid, &out->files, &out->bytes) != 4)
		return false;
	for (size_t i = 0; i < BTRFS_UUID_SIZE; i++) {
		if (sscanf(hex + 2 * i, "%2hhx", &out->uuid[i]) != 1)
			return false;
	}
	return true;
}

int checkout_take_snapshot(int tree_fd, int dir_fd, const char *name)
{
	struct btrfs_ioctl_vol_args_v2 args = {.fd = tree_fd};

	(void)snprintf(args.name, sizeof(args.name), "%s", name);
	return ioctl(dir_fd, BTRFS_IOC_SNAP_CREATE_V2, &args) < 0 ? -errno : 0;
}

void checkout_set_read_only(int tree_fd, bool yes)
{
	__u64 flags = yes ? BTRFS_SUBVOL_RDONLY : 0;

	(void)ioctl(tree_fd, BTRFS_IOC_SUBVOL_SETFLAGS, &flags);
}

void checkout_remove_subvolume(int dir_fd, const char *name)
{
	struct btrfs_ioctl_vol_args args = {0};
	auto_close int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0)
		checkout_set_read_only(fd, false);
	(void)snprintf(args.name, sizeof(args.name), "%s", name);
	if (fd < 0 || ioctl(dir_fd, BTRFS_IOC_SNAP_DESTROY, &args) < 0)
		(void)io_remove_tree(dir_fd, name, NULL);
}

void checkout_snapshot_remove(int temp_fd)
{
	checkout_remove_subvolume(temp_fd, CHECKOUT_SNAPSHOT);
}

/* A checkout that comes meanwhile finds no tree, rather than a part of one. */
void checkout_remove_kept(int trees_fd, const char *name)
{
	auto_close int fd = openat(trees_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char tmp[40] = CAS_TMP_PREFIX;

	if (io_random_hex(tmp + strlen(tmp), 8) == 0 &&
	    renameat(trees_fd, name, trees_fd, tmp) == 0)
		name = tmp;
	if (fd >= 0)
		checkout_remove_subvolume(fd, CHECKOUT_SNAPSHOT);
	checkout_remove_subvolume(trees_fd, name);
}

int checkout_open_trees(const struct cas_store *store)
{
	int fd = openat(store->dir_fd, CHECKOUT_TREES, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* Or has whoever makes room taken it away? */
static bool is_still_kept(int trees_fd, const char *key, int dir_fd)
{
	struct stat kept;
	struct stat ours;

	return fstatat(trees_fd, key, &kept, AT_SYMLINK_NOFOLLOW) == 0 &&
	       fstat(dir_fd, &ours) == 0 && kept.st_ino == ours.st_ino &&
	       kept.st_dev == ours.st_dev;
}

int checkout_use_tree(struct checkout *co, int trees_fd, const char *key, int place_fd,
		      const char *place)
{
	auto_close int dir_fd =
		openat(trees_fd, key, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	auto_close int tree_fd = -1;
	struct checkout_stamp stamp;
	struct checkout_stamp now;

	if (dir_fd < 0)
		return 0;
	tree_fd =
		openat(dir_fd, CHECKOUT_SNAPSHOT, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (tree_fd < 0 || !stamp_read(dir_fd, &stamp) ||
	    checkout_look_at_tree(tree_fd, &now) != 1 || !is_same_tree(&stamp, &now)) {
		if (!is_still_kept(trees_fd, key, dir_fd))
			return 0;
		log_warn("the tree kept for checkouts as %s/%s was changed; removing it",
			 CHECKOUT_TREES, key);
		checkout_remove_kept(trees_fd, key);
		return 0;
	}
	if (checkout_take_snapshot(tree_fd, place_fd, place) < 0)
		return 0;
	if (checkout_look_at_tree(tree_fd, &now) != 1 || !is_same_tree(&stamp, &now)) {
		checkout_remove_subvolume(place_fd, place);
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
	char key[CHECKOUT_KEY_SZ];

	if (co->mode != CAS_CHECKOUT_AUTO || !is_same_mount(co->store->dir_fd, parent_fd))
		return 0;
	kept.trees_fd = checkout_open_trees(co->store);
	if (kept.trees_fd < 0 || io_random_hex(kept.name + strlen(kept.name), 8) < 0)
		return 0;
	checkout_key_of(root, key);
	if (checkout_use_tree(co, kept.trees_fd, key, kept.trees_fd, kept.name) != 1 ||
	    !lock_snapshot(&kept))
		return 0;
	*out = kept;
	kept.trees_fd = kept.fd = -1;
	return 1;
}

void checkout_kept_drop(struct checkout_kept *kept)
{
	if (kept->fd >= 0)
		checkout_remove_subvolume(kept->trees_fd, kept->name);
	checkout_kept_close(kept);
}

void checkout_kept_close(struct checkout_kept *kept)
{
	if (kept->fd >= 0)
		(void)close(steal_fd(&kept->fd));
	if (kept->trees_fd >= 0)
		(void)close(steal_fd(&kept->trees_fd));
}

int checkout_move(struct checkout *co, const struct cas_digest *root,
		  const struct checkout_destination *d, struct err *err)
{
	struct checkout_kept kept;
	int ret = checkout_kept_take(co, root, d->parent_fd, &kept);

	if (ret != 1)
		return ret;
	ret = checkout_publish(co, d, kept.trees_fd, kept.name, err);
	if (ret == 0) {
		checkout_kept_close(&kept);
		return 1;
	}
	checkout_kept_drop(&kept);
	return ret == -EXDEV ? 0 : ret;
}

int cas_checkout_kept(struct cas_store *store, const struct cas_digest *root, const char *dest,
		      struct err *err)
{
	auto_call(checkout_destination_fini) struct checkout_destination d = {.parent_fd = -1};
	struct cas_checkout_progress own = {0};
	struct checkout co = {.store = store, .dest = dest, .progress = &own};
	int ret = checkout_destination_open(AT_FDCWD, dest, &d, err);

	if (ret == 0)
		ret = checkout_destination_check(&d, dest, err);
	return ret == 0 ? checkout_move(&co, root, &d, err) : ret;
}
