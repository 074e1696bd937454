/* cas/store/store_link.c - files for hardlink checkouts */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/put/copy.h"
#include "cas/put/tmp.h"
#include "cas/store/lease.h"
#include "cas/store/store_i.h"

/*
 * A checkout by hardlink shares an inode with whoever works in the checkout: chmod, touch
 * and (by root, or after a chmod) writes reach it. So it never is the blob's, and each
 * variant is compared with how we left it before it is linked again.
 *
 * How we left it needs no record, because all of it is fixed: a regular file of the
 * blob's size, mode 0444 or 0555, the store's owner, and mtime 2000-01-01T00:00:00Z
 * exactly. Whoever writes, truncates, touches, chmods or chowns moves one of these; ctime
 * cannot be used, every link moves it; the inode need not be, since nothing but the store
 * itself puts names into links/. A writer who sets mtime back goes unnoticed here (fsck,
 * which hashes, finds it). One that differs is unlinked and made anew: those who have
 * linked it keep what they have.
 *
 * Variants are caches and never synced. A power cut could leave one with the right size
 * and time but without its bytes, so none outlives a boot: links/boot names the boot that
 * they were made in, and the first use in another one clears them away.
 *
 * The file must be executable at once (ETXTBSY otherwise): a child that another thread
 * forked while the copy was being written holds the writable descriptor until its exec.
 * So that descriptor is closed and a read lease asked for, which the kernel refuses while
 * anybody has the file open for writing; only then does the file get its name, and after
 * that nobody opens it for writing, because of its mode.
 */

#define LEASE_WAIT_MS 5000
#define ROUNDS	      4
#define BOOT_FILE     "links/boot"

static mode_t variant_mode(bool executable)
{
	return executable ? 0555 : 0444;
}

bool cas_variant_intact(const struct cas_store *store, const struct stat *st, mode_t mode,
			uint64_t size)
{
	return S_ISREG(st->st_mode) && (st->st_mode & 07777) == mode &&
	       (uint64_t)st->st_size == size && st->st_uid == store->owner &&
	       st->st_mtim.tv_sec == CAS_EPOCH_SEC && st->st_mtim.tv_nsec == 0;
}

static int is_this_boot(struct cas_store *store, const char *boot_id)
{
	auto_buf struct buf b = {0};

	return io_read_file(store->dir_fd, BOOT_FILE, 128, &b) == 0 &&
	       strcmp(buf_str(&b), boot_id) == 0;
}

static int clear_variants(struct cas_store *store, const char *boot_id)
{
	char shard[3];
	int ret = 0;

	for (unsigned i = 0; i < 2 * CAS_LAYOUT_NR_SHARDS && ret == 0; i++) {
		(void)snprintf(shard, sizeof(shard), "%02x", i / 2);
		ret = io_remove_tree(store->link_fd[i % 2], shard, NULL);
	}
	if (ret == 0)
		ret = io_replace_file(store->dir_fd, BOOT_FILE, boot_id, strlen(boot_id), 0644,
				      false);
	return ret;
}

/* Under a lock that other processes respect: no variant of another boot is left. */
static int settle_boot(struct cas_store *store)
{
	struct flock fl = {.l_type = F_WRLCK,
			   .l_whence = SEEK_SET,
			   .l_start = CAS_LAYOUT_LOCK_LINKS,
			   .l_len = 1};
	auto_buf struct buf boot_id = {0};
	int ret = 0;

	(void)io_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 128, &boot_id);
	if (is_this_boot(store, buf_str(&boot_id)))
		return 0;
	while (fcntl(store->lock_fd, F_OFD_SETLKW, &fl) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	if (!is_this_boot(store, buf_str(&boot_id)))
		ret = clear_variants(store, buf_str(&boot_id));
	fl.l_type = F_UNLCK;
	(void)fcntl(store->lock_fd, F_OFD_SETLK, &fl);
	return ret;
}

static int settle_boot_once(struct cas_store *store)
{
	int ret = 0;

	lock_take(&store->links_lock);
	if (!store->links_ready)
		ret = settle_boot(store);
	store->links_ready = ret == 0;
	lock_drop(&store->links_lock);
	return ret;
}

/* From writable to read-only; unnamed files are reached through /proc. */
static int reopen(struct cas_tmp *tmp)
{
	char proc[32];
	int fd;

	if (tmp->path[0] != '\0') {
		fd = openat(tmp->top_fd, tmp->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	} else {
		(void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", tmp->fd);
		fd = open(proc, O_RDONLY | O_CLOEXEC);
	}
	if (fd < 0)
		return errno == ENOENT ? -EOPNOTSUPP : -errno;
	if (close(tmp->fd) < 0) {
		tmp->fd = fd;
		return -errno;
	}
	tmp->fd = fd;
	return 0;
}

/* Nobody has it open for writing any more: no child between fork and exec either. */
static int wait_for_writers(int fd)
{
	const struct timespec nap = {.tv_nsec = 1000000};

	for (int i = 0; i < LEASE_WAIT_MS; i++) {
		int ret = cas_lease_take(fd);

		if (ret == 0)
			cas_lease_drop(fd);
		if (ret != -EAGAIN)
			return 0; /* proven, or no leases to be had here */
		(void)nanosleep(&nap, NULL);
	}
	return -EBUSY;
}

static int fill_variant(struct cas_store *store, const struct cas_digest *digest, mode_t mode,
			struct cas_tmp *tmp, struct err *err)
{
	const struct timespec times[2] = {{.tv_sec = CAS_EPOCH_SEC}, {.tv_sec = CAS_EPOCH_SEC}};
	auto_close int blob_fd = -1;
	int ret = cas_store_open_blob(store, digest, &blob_fd, err);

	if (ret < 0)
		return ret;
	ret = cas_copy_fd(blob_fd, tmp->fd, digest->size, CAS_COPY_ANY, err);
	if (ret < 0)
		return err_context(err, ret, "cannot make a file to link for blob %s",
				   CAS_DIGEST_TEXT(digest));
	ret = cas_store_dress(store, tmp->fd, mode);
	if (ret == 0 && futimens(tmp->fd, times) < 0)
		ret = -errno;
	return ret;
}

/* 0 made, -EEXIST: somebody else made one, -EOPNOTSUPP: not without a name. */
static int make_variant(struct cas_store *store, const struct cas_digest *digest, bool executable,
			bool named, struct err *err)
{
	auto_tmp struct cas_tmp tmp = CAS_TMP_NONE;
	int ret = cas_tmp_open(store, store->link_fd[executable], digest->hash, named, &tmp);

	if (ret == 0)
		ret = fill_variant(store, digest, variant_mode(executable), &tmp, err);
	if (ret == 0)
		ret = reopen(&tmp);
	if (ret == 0)
		ret = wait_for_writers(tmp.fd);
	if (ret == 0)
		ret = cas_tmp_publish(store, &tmp, digest->hash);
	if (ret == -EXDEV)
		ret = -EOPNOTSUPP;
	return ret;
}

/* 1 when an intact one is there; what is not intact is unlinked. */
static int find_variant(struct cas_store *store, const struct cas_digest *digest, bool executable)
{
	char path[CAS_LAYOUT_PATH_SZ];
	int dir_fd = store->link_fd[executable];
	struct stat st;

	cas_layout_path(digest->hash, path);
	if (fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (cas_variant_intact(store, &st, variant_mode(executable), digest->size))
		return 1;
	log_warn("the file that checkouts of blob %s link was changed in one of them; making it "
		 "anew",
		 CAS_DIGEST_TEXT(digest));
	if (S_ISDIR(st.st_mode))
		return io_remove_tree(dir_fd, path, NULL);
	return unlinkat(dir_fd, path, 0) < 0 && errno != ENOENT ? -errno : 0;
}

static int get_variant(struct cas_store *store, const struct cas_digest *digest, bool executable,
		       struct err *err)
{
	int ret = -EEXIST;

	for (int round = 0; round < ROUNDS && ret == -EEXIST; round++) {
		ret = find_variant(store, digest, executable);
		if (ret != 0)
			return ret;
		ret = make_variant(store, digest, executable, false, err);
		if (ret == -EOPNOTSUPP)
			ret = make_variant(store, digest, executable, true, err);
	}
	return ret;
}

int cas_store_link_variant(struct cas_store *store, const struct cas_digest *digest,
			   bool executable, int *dir_fd, char name[72], struct err *err)
{
	struct err why = {0};
	int ret;

	if (store->read_only)
		return err_set(err, -EROFS,
			       "cannot make files to link in store %s: it is read-only",
			       store->path);
	ret = settle_boot_once(store);
	if (ret == 0)
		ret = get_variant(store, digest, executable, &why);
	if (ret < 0 && why.msg[0] != '\0')
		return err_set(err, ret, "%s", why.msg);
	if (ret < 0)
		return err_set(err, ret, "cannot make a file to link for blob %s: %s",
			       CAS_DIGEST_TEXT(digest), strerrordesc_np(-ret));
	*dir_fd = store->link_fd[executable];
	cas_layout_path(digest->hash, name);
	return 0;
}
