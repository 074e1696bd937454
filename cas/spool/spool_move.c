/* cas/spool/spool_move.c - one spool file into the blob directory */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/log.h"
#include "cas/hash.h"
#include "cas/put/put_i.h"
#include "cas/spool/spool_i.h"
#include "cas/store/store_i.h"

/*
 * The spool file's lock (flock: it works on a file that nobody may write) makes this
 * process the only one of this store to move it; other hosts move their own copies, and
 * two that race end with one of two equal files. Temporaries carry the store's id and the
 * hash, so the lock covers them, too: one that is there already is a dead mover's.
 */

/* Open and lock it; -EBUSY when another process has it, -ENOENT when it is gone by now. */
static int claim(struct cas_spool *s, const struct cas_digest *digest, int *out, struct stat *st)
{
	char path[CAS_LAYOUT_PATH_SZ];
	auto_close int fd = -1;
	struct stat named;

	cas_layout_path(digest->hash, path);
	fd = openat(s->store->spool_fd, path,
		    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	if (fstat(fd, st) < 0 || fstatat(s->store->spool_fd, path, &named, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (named.st_ino != st->st_ino)
		return -EBUSY;
	*out = steal_fd(&fd);
	return 0;
}

/* After a power cut a spool file may lack bytes: look at those that we have not written. */
static int verify(struct cas_spool *s, const struct cas_spool_job *job, int fd,
		  const struct stat *st, struct err *err)
{
	struct cas_digest real;
	struct cas_stamp stamp;
	int ret;

	cas_stamp_of(st, &stamp);
	if (job->known && cas_stamp_equal(&stamp, &job->stamp))
		return 0;
	ret = cas_hash_fd(fd, &real);
	if (ret < 0)
		return err_set(err, ret, "cannot read blob %s in the spool: %s",
			       CAS_DIGEST_TEXT(&job->digest), strerrordesc_np(-ret));
	if (cas_digest_equal(&real, &job->digest))
		return 0;
	(void)cas_quarantine(s->store, s->store->spool_fd, job->digest.hash, st->st_ino);
	return err_set(err, -EBADMSG, "blob %s: its spool file has other bytes",
		       CAS_DIGEST_TEXT(&job->digest));
}

/* Make it young, so that the owner leaves it alone; our row follows the new stamp. */
static void touch(struct cas_store *store, const struct cas_digest *digest)
{
	char path[CAS_LAYOUT_PATH_SZ];
	auto_close int fd = -1;
	struct cas_stamp stamp;
	struct stat st;

	cas_layout_path(digest->hash, path);
	fd = openat(store->cas_fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || futimens(fd, NULL) < 0) {
		log_debug("cannot touch blob %s: %m", CAS_DIGEST_TEXT(digest));
		return;
	}
	if (fstat(fd, &st) == 0) {
		cas_stamp_of(&st, &stamp);
		store->catalog->ops->blob_add(store->catalog->ctx, digest, &stamp);
	}
}

/* Might the blob's owner still remove it? Only a second look, later, can tell. */
static bool needs_hold(struct cas_store *store, const struct cas_digest *digest)
{
	char path[CAS_LAYOUT_PATH_SZ];
	struct stat st;
	time_t age;

	if (store->may_unlink)
		return false;
	cas_layout_path(digest->hash, path);
	if (fstatat(store->cas_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return true;
	age = time(NULL) - st.st_mtim.tv_sec;
	if (age > CAS_OWNER_FLOOR_SEC / 2)
		touch(store, digest);
	return age < CAS_OWNER_HOLD_SEC || age > CAS_OWNER_FLOOR_SEC / 2;
}

/* Errors after which another look at the path of the blob directory may help. */
static bool is_gone(int ret)
{
	return ret == -ESTALE || ret == -ENOENT || ret == -ENOTCONN || ret == -ENODEV ||
	       ret == -EIO;
}

int cas_spool_move(struct cas_spool *s, const struct cas_spool_job *job, bool *hold,
		   struct err *err)
{
	struct cas_tmp file = CAS_TMP_NONE;
	struct cas_put_bytes_at from = {.tmp = &file, .moved = true};
	auto_close int fd = -1;
	struct stat st;
	int ret = claim(s, &job->digest, &fd, &st);

	if (ret < 0)
		return ret;
	ret = verify(s, job, fd, &st, err);
	if (ret < 0)
		return ret;
	file.fd = fd;
	file.top_fd = -1;
	ret = cas_publish_direct(s->store, &job->digest, &from, err);
	if (ret < 0 && is_gone(ret))
		cas_store_reopen_blobs(s->store);
	/* These two would mean that the spool file is gone, or wrong: it is not. */
	if (ret == -ENOENT || ret == -EBADMSG || ret == -EBUSY)
		return -EIO;
	if (ret == 0 && job->leftover)
		cas_tmp_sweep_own(s->store, s->store->cas_fd, job->digest.hash);
	if (ret == 0)
		*hold = needs_hold(s->store, &job->digest);
	return ret;
}

int cas_spool_confirm(struct cas_spool *s, const struct cas_digest *digest)
{
	char path[CAS_LAYOUT_PATH_SZ];
	auto_close int fd = -1;
	struct stat st;

	cas_layout_path(digest->hash, path);
	/* An open asks the server by name; a stat may be answered from memory. */
	fd = openat(s->store->cas_fd, path,
		    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) && (uint64_t)st.st_size == digest->size;
}

int cas_spool_unlink(struct cas_spool *s, const struct cas_digest *digest)
{
	char path[CAS_LAYOUT_PATH_SZ];

	cas_layout_path(digest->hash, path);
	if (unlinkat(s->store->spool_fd, path, 0) < 0 && errno != ENOENT)
		return -errno;
	return 0;
}
