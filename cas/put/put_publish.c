/* cas/put/put_publish.c - the one place where a blob gets its name */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/put/copy.h"
#include "cas/put/put_i.h"
#include "cas/put/tmp_pool.h"
#include "cas/spool/spool_i.h"
#include "cas/store/store_i.h"

/*
 * Order of events: look, make the file, make it durable if every blob is to be, name it,
 * record it. The file gets its name by a link or rename that never replaces; losing that
 * race to another put of the same digest is success, once the winner's file was looked
 * at. A wrong file under the name is moved aside by the look, and the next round wins.
 *
 * The shard's lock is held, shared, from the naming to the row: an eviction (exclusive)
 * cannot come between and drop the row before it was added.
 */

#define ROUNDS 8

int cas_put_check_writable(const struct cas_store *store, struct err *err)
{
	if (!store->read_only)
		return 0;
	return err_set(err, -EROFS, "cannot put into store %s: it is read-only", store->path);
}

/* In full durability, or where syncfs(cas/) does not reach: this file, now. */
static int make_durable(struct cas_store *store, int fd, bool *shard_too)
{
	struct stat st;

	*shard_too = false;
	if (store->durability == CAS_DURABILITY_NONE)
		return 0;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (store->durability == CAS_DURABILITY_BATCH && st.st_dev == store->cas_dev)
		return 0;
	*shard_too = true;
	return fdatasync(fd) < 0 ? -errno : 0;
}

/*
 * Shard lock held, shared. The stamp is taken after the link, which moves ctime. A FUSE
 * filesystem that goes by paths knows no open file any more whose first name is gone: then
 * there is no stamp, and the first open hashes.
 */
static int name_and_record(struct cas_store *store, const struct cas_digest *digest,
			   struct cas_tmp *tmp, bool sync_shard, bool *overflow)
{
	struct cas_stamp stamp = {0};
	struct stat st;
	int ret = cas_tmp_publish(store, tmp, digest->hash);

	if (ret == 0 && sync_shard)
		ret = cas_shard_sync(store->cas_fd, digest->hash);
	if (ret < 0)
		return ret;
	if (fstat(tmp->fd, &st) == 0)
		cas_stamp_of(&st, &stamp);
	else if (errno != ESTALE && errno != ENOENT)
		return -errno;
	*overflow = cas_pending_add(store, digest, &stamp) == 1;
	return 0;
}

int cas_publish_tmp(struct cas_store *store, const struct cas_digest *digest, struct cas_tmp *tmp,
		    struct err *err)
{
	unsigned shard = cas_layout_shard(digest->hash);
	bool sync_shard;
	bool overflow = false;
	bool locked;
	int ret = make_durable(store, tmp->fd, &sync_shard);

	if (ret == 0) {
		/* Not having it risks the order of two rows, which are hints: go on. */
		locked = cas_store_shard_lock(store, shard, false, true) == 0;
		if (!locked)
			log_warn("shard %02x of store %s is locked by a process that does not go "
				 "on; publishing without the lock",
				 shard, store->path);
		ret = name_and_record(store, digest, tmp, sync_shard, &overflow);
		if (locked)
			cas_store_shard_unlock(store, shard, false);
	}
	if (ret == -EEXIST || ret == -EXDEV || ret == -EOPNOTSUPP || ret == -EBUSY)
		return ret;
	if (ret < 0)
		return err_set(err, ret, "cannot publish blob %s: %s", CAS_DIGEST_TEXT(digest),
			       strerrordesc_np(-ret));
	return overflow ? cas_store_sync_blobs(store, err) : 0;
}

static int open_file(struct cas_store *store, const struct cas_digest *digest,
		     const struct cas_put_bytes_at *from, bool named, struct cas_tmp *tmp)
{
	if (from->moved)
		return cas_tmp_open_own(store, store->cas_fd, digest->hash, named, tmp);
	if (!named && cas_tmp_pool_take(store, tmp))
		return 0;
	return cas_tmp_open(store, store->cas_fd, digest->hash, named, tmp);
}

/* A file in the shard itself (@named: with a name) with the bytes, dressed. */
static int make_file(struct cas_store *store, const struct cas_digest *digest,
		     const struct cas_put_bytes_at *from, bool named, struct cas_tmp *tmp,
		     struct err *err)
{
	int ret = open_file(store, digest, from, named, tmp);

	if (ret == 0 && from->tmp && from->tmp->fd >= 0) {
		ret = cas_copy_fd_watched(from->tmp->fd, tmp->fd, digest->size, CAS_COPY_ANY,
					  from->watch, err);
		if (ret < 0)
			return err_context(err, ret, "cannot write blob %s",
					   CAS_DIGEST_TEXT(digest));
	} else if (ret == 0) {
		ret = cas_copy_bytes(tmp->fd, from->data, (size_t)digest->size);
	}
	if (ret == 0 && !tmp->dressed)
		ret = cas_store_dress(store, tmp->fd, CAS_BLOB_MODE);
	if (ret < 0)
		return err_set(err, ret, "cannot write blob %s: %s", CAS_DIGEST_TEXT(digest),
			       strerrordesc_np(-ret));
	return 0;
}

/* Copy into the shard and publish that; with a name when an unnamed file will not do. */
static int publish_copy(struct cas_store *store, const struct cas_digest *digest,
			const struct cas_put_bytes_at *from, struct err *err)
{
	int ret = -EOPNOTSUPP;

	for (int named = 0; named < 2 && (ret == -EOPNOTSUPP || ret == -EXDEV); named++) {
		auto_tmp struct cas_tmp tmp = CAS_TMP_NONE;

		ret = make_file(store, digest, from, named, &tmp, err);
		if (ret < 0)
			return ret;
		ret = cas_publish_tmp(store, digest, &tmp, err);
	}
	return ret;
}

static int publish_once(struct cas_store *store, const struct cas_digest *digest,
			const struct cas_put_bytes_at *from, struct err *err)
{
	int ret = -EXDEV;

	/* The spilled file itself, when it may have a name in the shard. */
	if (from->tmp && from->tmp->fd >= 0 && from->tmp->top_fd == store->cas_fd) {
		ret = cas_store_dress(store, from->tmp->fd, CAS_BLOB_MODE);
		if (ret < 0)
			return err_set(err, ret, "cannot set the mode of blob %s: %s",
				       CAS_DIGEST_TEXT(digest), strerrordesc_np(-ret));
		ret = cas_publish_tmp(store, digest, from->tmp, err);
	}
	if (ret == -EXDEV || ret == -EOPNOTSUPP)
		ret = publish_copy(store, digest, from, err);
	return ret;
}

int cas_publish(struct cas_store *store, const struct cas_digest *digest,
		const struct cas_put_bytes_at *from, struct err *err)
{
	if (cas_digest_is_empty(digest))
		return 0;
	if (store->spool)
		return cas_spool_accept(store, digest, from, err);
	return cas_publish_direct(store, digest, from, err);
}

int cas_publish_direct(struct cas_store *store, const struct cas_digest *digest,
		       const struct cas_put_bytes_at *from, struct err *err)
{
	int ret;

	for (int round = 0; round < ROUNDS; round++) {
		struct err why = {0};

		ret = cas_blob_check(store, digest, NULL, &why);
		if (ret == 0) {
			store->catalog->ops->blob_touch(store->catalog->ctx, digest);
			if (!from->moved)
				cas_store_count_put(store, digest, true);
			return 0;
		}
		if (ret != -ENOENT && ret != -EBADMSG)
			return err_set(err, ret, "%s", err_text(&why, ret));
		ret = publish_once(store, digest, from, err);
		/* What moves out of the spool was counted when it came there. */
		if (ret == 0 && !from->moved)
			cas_store_count_put(store, digest, false);
		if (ret != -EEXIST)
			return ret;
	}
	return err_set(err, -EEXIST,
		       "cannot publish blob %s: a file that is not this blob keeps its name",
		       CAS_DIGEST_TEXT(digest));
}
