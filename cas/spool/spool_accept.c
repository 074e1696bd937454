/* cas/spool/spool_accept.c - a put ends here: its bytes get a spool file */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/fsck/adopt_i.h"
#include "cas/put/copy.h"
#include "cas/put/put_i.h"
#include "cas/spool/spool_i.h"
#include "cas/store/store_i.h"

/*
 * The blob directory is asked about a blob only when index or memory know it as one that
 * is there: such an answer is cheap, and the others are the mover's to find out. So a put
 * of something new never waits for the blob directory, even when that is away.
 */

#define ROUNDS	8
#define POLL_NS 20000000ULL

/* Known, and there, and safe from whoever may unlink: nothing to do but to count the use. */
static bool is_known(struct cas_store *store, const struct cas_digest *digest)
{
	struct cas_stamp stamp;
	struct stat st;
	char path[CAS_LAYOUT_PATH_SZ];

	if (store->catalog->ops->blob_find(store->catalog->ctx, digest, &stamp) != 1 &&
	    cas_pending_find(store, digest, &stamp) != 1)
		return false;
	cas_layout_path(digest->hash, path);
	if (fstatat(store->cas_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return false;
	if (!store->may_unlink && time(NULL) - st.st_mtim.tv_sec > CAS_OWNER_FLOOR_SEC / 2)
		return false;
	return cas_blob_check(store, digest, NULL, NULL) == 0;
}

/* Entries whose files another process has moved; lock held. */
static void forget_moved(struct cas_spool *s) REQUIRES(s->lock)
{
	(void)cas_spool_is_served_locked(s);
	if (!s->passive)
		return;
	lock_drop(&s->lock);
	cas_spool_wake(s->store);
	(void)cas_spool_scan(s, false, NULL);
	lock_take(&s->lock);
}

static bool has_room(const struct cas_spool *s, uint64_t size) REQUIRES(s->lock)
{
	unsigned nr = HASH_COUNT(s->table);

	return nr == 0 || (nr < s->opts.max_blobs && s->bytes + size <= s->opts.max_bytes);
}

static bool is_stuck(const struct cas_spool *s) REQUIRES(s->lock)
{
	const struct cas_spool_entry *e;

	for (e = s->table; e; e = e->hh.next) {
		if (e->attempts < CAS_SPOOL_STUCK)
			return false;
	}
	return true;
}

static int wait_for_room(struct cas_spool *s, uint64_t size, struct err *err)
{
	int ret = 0;

	lock_take(&s->lock);
	while (ret == 0 && !has_room(s, size)) {
		forget_moved(s);
		if (has_room(s, size))
			break;
		if (is_stuck(s))
			ret = err_set(err, -EAGAIN,
				      "the spool of store %s is full and %s takes nothing: %s",
				      s->store->path, s->store->blobs_path, s->last_error);
		else
			(void)lock_wait(&s->lock, &s->room, lock_now_ns() + POLL_NS);
	}
	lock_drop(&s->lock);
	return ret;
}

/* A file of its own in the spool, dressed, with the bytes. */
static int make_file(struct cas_store *store, const struct cas_digest *digest,
		     const struct cas_put_bytes_at *from, bool named, struct cas_tmp *tmp)
{
	int ret = cas_tmp_open(store, store->spool_fd, digest->hash, named, tmp);

	if (ret == 0 && from->tmp && from->tmp->fd >= 0)
		ret = cas_copy_fd_watched(from->tmp->fd, tmp->fd, digest->size, CAS_COPY_ANY,
					  from->watch, NULL);
	else if (ret == 0)
		ret = cas_copy_bytes(tmp->fd, from->data, (size_t)digest->size);
	return ret == 0 ? cas_store_dress(store, tmp->fd, CAS_BLOB_MODE) : ret;
}

static int give_name(struct cas_store *store, const struct cas_digest *digest, struct cas_tmp *tmp,
		     struct cas_stamp *stamp)
{
	bool full = store->durability == CAS_DURABILITY_FULL;
	struct stat st;
	int ret = full && fdatasync(tmp->fd) < 0 ? -errno : 0;

	if (ret == 0)
		ret = cas_tmp_publish(store, tmp, digest->hash);
	if (ret == 0 && full)
		ret = cas_shard_sync(store->spool_fd, digest->hash);
	if (ret == 0 && fstat(tmp->fd, &st) < 0)
		ret = -errno;
	if (ret == 0)
		cas_stamp_of(&st, stamp);
	return ret;
}

static int spool_once(struct cas_store *store, const struct cas_digest *digest,
		      const struct cas_put_bytes_at *from, struct cas_stamp *stamp)
{
	int ret = -EXDEV;

	/* The spilled file itself, when it may have a name here. */
	if (from->tmp && from->tmp->fd >= 0 && from->tmp->top_fd == store->spool_fd) {
		ret = cas_store_dress(store, from->tmp->fd, CAS_BLOB_MODE);
		if (ret == 0)
			ret = give_name(store, digest, from->tmp, stamp);
	}
	for (int named = 0; named < 2 && (ret == -EXDEV || ret == -EOPNOTSUPP); named++) {
		auto_tmp struct cas_tmp tmp = CAS_TMP_NONE;

		ret = make_file(store, digest, from, named, &tmp);
		if (ret == 0)
			ret = give_name(store, digest, &tmp, stamp);
	}
	return ret;
}

/* Not a file, so not a spool file: out of the way with it. */
static void clear_name(struct cas_store *store, const struct cas_digest *digest)
{
	char path[CAS_LAYOUT_PATH_SZ];
	struct stat st;

	cas_layout_path(digest->hash, path);
	if (fstatat(store->spool_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode))
		(void)cas_quarantine(store, store->spool_fd, digest->hash, st.st_ino);
}

/* The file is there; an entry that cannot be made costs nothing, the next scan finds it. */
static void add_entry(struct cas_spool *s, const struct cas_digest *digest,
		      const struct cas_stamp *stamp)
{
	struct cas_spool_entry *e;
	bool scan;

	lock_take(&s->lock);
	e = cas_spool_find_locked(s, digest->hash);
	if (e == NULL)
		e = cas_spool_add_locked(s, digest);
	if (e) {
		e->own = true;
		e->seen = true;
		if (e->state == CAS_SPOOL_READY) {
			e->known = true;
			e->stamp = *stamp;
		} else {
			e->again = true;
		}
	}
	scan = !s->scanned && !s->passive;
	s->scanned |= scan;
	lock_drop(&s->lock);
	atomic_store(&s->store->spool_dirty, true);
	/* What an earlier process has left is moved along. */
	if (scan)
		(void)cas_spool_scan(s, true, NULL);
}

int cas_spool_accept(struct cas_store *store, const struct cas_digest *digest,
		     const struct cas_put_bytes_at *from, struct err *err)
{
	struct cas_stamp stamp;
	int ret = -EEXIST;

	for (int round = 0; round < ROUNDS && ret == -EEXIST; round++) {
		if (cas_spool_check(store, digest, NULL, NULL) == 0) {
			atomic_store(&store->spool_dirty, true);
			cas_store_count_put(store, digest, true);
			return 0;
		}
		if (is_known(store, digest)) {
			store->catalog->ops->blob_touch(store->catalog->ctx, digest);
			cas_adopt_hit(store, digest);
			cas_store_count_put(store, digest, true);
			return 0;
		}
		ret = wait_for_room(store->spool, digest->size, err);
		if (ret < 0)
			return ret;
		ret = spool_once(store, digest, from, &stamp);
		if (ret == -EEXIST)
			clear_name(store, digest);
	}
	if (ret == -ENOSPC || ret == -EDQUOT)
		return cas_publish_direct(store, digest, from, err);
	if (ret < 0)
		return err_set(err, ret, "cannot put blob %s into the spool of store %s: %s",
			       CAS_DIGEST_TEXT(digest), store->path, strerrordesc_np(-ret));
	add_entry(store->spool, digest, &stamp);
	cas_store_count_put(store, digest, false);
	return 0;
}
