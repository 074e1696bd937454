/* cas/store/store_blob.c - is a blob there, and are its bytes right? */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/fetch/fetch.h"
#include "cas/fsck/adopt_i.h"
#include "cas/hash.h"
#include "cas/landing/landing.h"
#include "cas/put/tmp.h"
#include "cas/spool/spool_i.h"
#include "cas/store/store_i.h"

/*
 * Design "stamps": a file that looks (inode, size, mtime, ctime) as it did when its bytes
 * were last hashed is served; any other is hashed first. What does not hash to its name,
 * or is no readable regular file, is renamed to .bad-HASH-RANDOM in its shard, where
 * nobody looks and gc finds it.
 *
 * Two threads or processes may quarantine and re-publish one name at the same time. The
 * one that finds a wrong file remembers its inode and compares after the rename: when it
 * has moved somebody's good file instead, it moves that back.
 */

void cas_stamp_of(const struct stat *st, struct cas_stamp *out)
{
	*out = (struct cas_stamp){
		.ino = st->st_ino,
		.size = (uint64_t)st->st_size,
		.mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
		.ctime_ns = (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec,
		.blocks = (uint64_t)st->st_blocks,
	};
}

bool cas_stamp_equal(const struct cas_stamp *a, const struct cas_stamp *b)
{
	return a->ino == b->ino && a->size == b->size && a->mtime_ns == b->mtime_ns &&
	       a->ctime_ns == b->ctime_ns;
}

bool cas_stamp_known(struct cas_store *store, const struct cas_digest *digest,
		     const struct stat *st)
{
	struct cas_stamp now;
	struct cas_stamp then;

	cas_stamp_of(st, &now);
	if (store->catalog->ops->blob_find(store->catalog->ctx, digest, &then) == 1 &&
	    cas_stamp_equal(&now, &then))
		return true;
	return cas_pending_find(store, digest, &then) == 1 && cas_stamp_equal(&now, &then);
}

int cas_blob_stat(struct cas_store *store, const uint8_t hash[CAS_HASH_SZ], struct stat *st)
{
	char path[CAS_LAYOUT_PATH_SZ];

	cas_layout_path(hash, path);
	if (fstatat(store->cas_fd, path, st, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	if (errno != ENOENT || cas_landing_want(store, hash) == 0)
		return -errno;
	return fstatat(store->cas_fd, path, st, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

int cas_store_has(struct cas_store *store, const struct cas_digest *digest)
{
	struct stat st;
	int ret;

	if (cas_digest_is_empty(digest))
		return 1;
	if (cas_spool_has(store, digest))
		return 1;
	ret = cas_blob_stat(store, digest->hash, &st);
	if (ret < 0)
		return ret == -ENOENT || ret == -ENOTDIR ? 0 : ret;
	return S_ISREG(st.st_mode) && (uint64_t)st.st_size == digest->size;
}

int cas_store_blocks(struct cas_store *store, const struct cas_digest *digest, uint64_t *blocks)
{
	char path[CAS_LAYOUT_PATH_SZ];
	struct stat st;

	cas_layout_path(digest->hash, path);
	if (store->blobs_path || fstatat(store->cas_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISREG(st.st_mode) || (uint64_t)st.st_size != digest->size)
		return 0;
	*blocks = (uint64_t)st.st_blocks;
	return 1;
}

int cas_store_resolve(struct cas_store *store, const uint8_t hash[CAS_HASH_SZ],
		      struct cas_digest *out)
{
	struct cas_digest d;
	struct stat st;
	int ret;

	memcpy(d.hash, hash, CAS_HASH_SZ);
	if (memcmp(hash, cas_digest_empty.hash, CAS_HASH_SZ) == 0) {
		*out = cas_digest_empty;
		return 1;
	}
	ret = cas_spool_size(store, hash, &d.size);
	if (ret != 1)
		ret = store->catalog->ops->size_find(store->catalog->ctx, hash, &d.size);
	if (ret != 1) {
		ret = cas_blob_stat(store, hash, &st);
		if (ret < 0)
			return ret == -ENOENT || ret == -ENOTDIR ? 0 : ret;
		/* Only the empty blob is empty: this one has lost its bytes. */
		if (!S_ISREG(st.st_mode) || st.st_size == 0)
			return 0;
		d.size = (uint64_t)st.st_size;
	}
	*out = d;
	return 1;
}

/* Under the names: rename aside, and back when it was another file after all. 1 moved, 0 not. */
static int move_aside(int top_fd, const char *path, const char *aside, ino_t ino)
{
	struct stat st;

	if (fstatat(top_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (ino != 0 && st.st_ino != ino)
		return 0;
	if (renameat(top_fd, path, top_fd, aside) < 0)
		return -errno;
	if (ino == 0 || fstatat(top_fd, aside, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_ino == ino)
		return 1;
	return cas_tmp_move(top_fd, aside, path);
}

int cas_quarantine(struct cas_store *store, int top_fd, const uint8_t hash[CAS_HASH_SZ], ino_t ino)
{
	char path[CAS_LAYOUT_PATH_SZ];
	char aside[CAS_SHARD_NAME_SZ];
	char rnd[17];
	unsigned shard = cas_layout_shard(hash);
	bool locked;
	int ret;

	if (store->read_only)
		return -EROFS;
	ret = io_random_hex(rnd, 8);
	if (ret < 0)
		return ret;
	cas_layout_path(hash, path);
	(void)snprintf(aside, sizeof(aside), "%.3s" CAS_BAD_PREFIX "%s-%s", path, path + 3, rnd);
	/* The lock narrows the race; waiting for it could stall a thread of the kernel's. */
	locked = cas_store_shard_lock(store, shard, true, false) == 0;
	ret = move_aside(top_fd, path, aside, ino);
	if (locked)
		cas_store_shard_unlock(store, shard, true);
	if (ret == 1)
		log_warn("%s did not hold what its name says: moved to %s", path, aside);
	return ret;
}

/* The file under the name is wrong: out of the way with it. */
static int reject(struct cas_store *store, const struct cas_digest *digest, ino_t ino,
		  const char *why, struct err *err)
{
	int ret = cas_quarantine(store, store->cas_fd, digest->hash, ino);

	/* Rows go with the file that they told of. */
	if (ret != 0)
		cas_pending_drop(store, digest);
	if (ret == 1 || ret == -ENOENT)
		store->catalog->ops->blob_drop(store->catalog->ctx, digest);
	if (ret >= 0 || ret == -ENOENT)
		return err_set(err, -EBADMSG, "blob %s: its file %s and %s",
			       CAS_DIGEST_TEXT(digest), why,
			       ret == 1	  ? "was moved aside"
			       : ret == 0 ? "was replaced meanwhile"
					  : "is gone by now");
	return err_set(err, -EBADMSG, "blob %s: its file %s and cannot be moved aside: %s",
		       CAS_DIGEST_TEXT(digest), why, strerrordesc_np(-ret));
}

/* Hash an open file that no stamp vouches for; its size may not be what was asked for. */
static int check_bytes(struct cas_store *store, const struct cas_digest *digest, int fd,
		       const struct stat *st, struct err *err)
{
	struct cas_digest real;
	struct cas_stamp stamp;
	int ret = cas_hash_fd(fd, &real);

	if (ret < 0)
		return err_set(err, ret, "cannot read blob %s: %s", CAS_DIGEST_TEXT(digest),
			       strerrordesc_np(-ret));
	if (memcmp(real.hash, digest->hash, CAS_HASH_SZ) != 0)
		return reject(store, digest, st->st_ino,
			      real.size == digest->size ? "has other bytes" : "has another size",
			      err);
	/* Read, so on disk or soon there; the stamp is from before the bytes were looked at. */
	cas_stamp_of(st, &stamp);
	store->catalog->ops->blob_add(store->catalog->ctx, &real, &stamp);
	return 0;
}

static int check_open(struct cas_store *store, const struct cas_digest *digest, int fd,
		      struct err *err)
{
	struct cas_digest real = *digest;
	struct stat st;
	int ret = 0;

	if (fstat(fd, &st) < 0)
		return err_set(err, -errno, "cannot stat blob %s: %m", CAS_DIGEST_TEXT(digest));
	if (!S_ISREG(st.st_mode))
		return reject(store, digest, st.st_ino, "is no regular file", err);
	real.size = (uint64_t)st.st_size;
	if (!cas_stamp_known(store, &real, &st))
		ret = check_bytes(store, digest, fd, &st, err);
	if (ret == 0 && real.size != digest->size)
		return err_set(err, -ENOENT, "blob %s: that hash belongs to %llu bytes",
			       CAS_DIGEST_TEXT(digest), (unsigned long long)real.size);
	return ret;
}

/* Why a file cannot be opened decides whether it is absent, wrong, or out of reach. */
static int explain_open(struct cas_store *store, const struct cas_digest *digest, const char *path,
			int code, struct err *err)
{
	struct stat st;

	if (code == ENOENT || code == ENOTDIR)
		return err_set(err, -ENOENT, "blob %s is not in the store",
			       CAS_DIGEST_TEXT(digest));
	/* A symlink, a socket, or a file whose mode lets nobody in. */
	if ((code == ELOOP || code == ENXIO || code == EACCES) &&
	    fstatat(store->cas_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    !(code == EACCES && cas_adopt_is_others(store, &st)))
		return reject(store, digest, st.st_ino,
			      S_ISREG(st.st_mode) ? "is unreadable" : "is no regular file", err);
	return err_set(err, -code, "cannot open blob %s: %s", CAS_DIGEST_TEXT(digest),
		       strerrordesc_np(code));
}

/* The quick answer, without opening: 1 a known stamp, -ENOENT no such name, 0 look closer. */
static int glance(struct cas_store *store, const struct cas_digest *digest, const char *path)
{
	struct stat st;

	if (fstatat(store->cas_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? -ENOENT : 0;
	return S_ISREG(st.st_mode) && (uint64_t)st.st_size == digest->size &&
	       cas_stamp_known(store, digest, &st);
}

int cas_blob_check(struct cas_store *store, const struct cas_digest *digest, int *fd,
		   struct err *err)
{
	char path[CAS_LAYOUT_PATH_SZ];
	auto_close int got = -1;
	int ret;

	cas_layout_path(digest->hash, path);
	ret = fd ? 0 : glance(store, digest, path);
	if (ret == 1)
		return 0;
	if (ret == -ENOENT)
		return explain_open(store, digest, path, ENOENT, err);
	got = openat(store->cas_fd, path,
		     O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (got < 0)
		return explain_open(store, digest, path, errno, err);
	ret = check_open(store, digest, got, err);
	if (ret == 0 && fd)
		*fd = steal_fd(&got);
	return ret;
}

/* A descriptor of a file that is empty and stays so. */
static int open_empty(int *fd, struct err *err)
{
	int got = memfd_create("casbox-empty", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (got < 0)
		return err_set(err, -errno, "cannot make an empty file: %m");
	(void)fcntl(got, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
	*fd = got;
	return 0;
}

static int open_here(struct cas_store *store, const struct cas_digest *digest, bool is_use, int *fd,
		     struct err *err)
{
	int ret;

	if (cas_digest_is_empty(digest))
		return open_empty(fd, err);
	/* What cannot be had from the spool may have been moved on. */
	if (cas_spool_check(store, digest, fd, NULL) == 0)
		return 0;
	ret = cas_blob_check(store, digest, fd, err);
	if (ret == -ENOENT && cas_landing_want(store, digest->hash) == 1)
		ret = cas_blob_check(store, digest, fd, err);
	if (ret == 0 && is_use) {
		store->catalog->ops->blob_touch(store->catalog->ctx, digest);
		cas_adopt_hit(store, digest);
	}
	return ret;
}

int cas_store_open_here(struct cas_store *store, const struct cas_digest *digest, int *fd,
			struct err *err)
{
	return open_here(store, digest, false, fd, err);
}

/* What is looked at without being used is not worth a download either. */
static int open_blob(struct cas_store *store, const struct cas_digest *digest, bool is_use, int *fd,
		     struct err *err)
{
	struct err why = {0};
	int ret = open_here(store, digest, is_use, fd, &why);

	if (ret == 0)
		return 0;
	if ((ret == -ENOENT || ret == -EBADMSG) && is_use && cas_fetch_may_wait(store->fetch)) {
		why = (struct err){0};
		ret = cas_fetch_wait(store->fetch, digest, NULL, &why);
		if (ret == 0)
			ret = open_here(store, digest, is_use, fd, &why);
	}
	if (ret < 0 && err) {
		*err = why;
		cas_err_set_missing(err, digest);
	}
	return ret;
}

int cas_store_open_blob(struct cas_store *store, const struct cas_digest *digest, int *fd,
			struct err *err)
{
	return open_blob(store, digest, true, fd, err);
}

static int read_blob(struct cas_store *store, const struct cas_digest *digest, size_t max,
		     bool is_use, struct buf *out, struct err *err)
{
	auto_close int fd = -1;
	ssize_t got;
	int ret;

	if (digest->size > max)
		return err_set(err, -EFBIG, "blob %s is larger than the %zu bytes accepted here",
			       CAS_DIGEST_TEXT(digest), max);
	if (cas_digest_is_empty(digest))
		return 0;
	ret = open_blob(store, digest, is_use, &fd, err);
	if (ret < 0)
		return ret;
	ret = buf_reserve(out, (size_t)digest->size);
	if (ret < 0)
		return ret;
	got = io_pread_full(fd, out->data + out->len, (size_t)digest->size, 0);
	if (got < 0 || (uint64_t)got < digest->size)
		return err_set(err, got < 0 ? (int)got : -EBADMSG, "cannot read blob %s: %s",
			       CAS_DIGEST_TEXT(digest),
			       got < 0 ? strerrordesc_np((int)-got) : "it ended early");
	out->len += (size_t)got;
	out->data[out->len] = '\0';
	return 0;
}

int cas_store_read_blob(struct cas_store *store, const struct cas_digest *digest, size_t max,
			struct buf *out, struct err *err)
{
	return read_blob(store, digest, max, true, out, err);
}

int cas_blob_peek(struct cas_store *store, const struct cas_digest *digest, size_t max,
		  struct buf *out, struct err *err)
{
	return read_blob(store, digest, max, false, out, err);
}
