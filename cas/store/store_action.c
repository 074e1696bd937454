/* cas/store/store_action.c - ac/: action results by action digest */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/fetch/fetch.h"
#include "cas/fetch/outbox.h"
#include "cas/fsck/adopt_i.h"
#include "cas/put/tmp.h"
#include "cas/spool/spool_i.h"
#include "cas/store/store_i.h"

/*
 * An ActionResult is named by its action, not by its bytes: a new one replaces the old
 * by rename, and nothing vouches for it but that it decodes. An empty file decodes to a
 * success without outputs, and is also what a power cut may leave of a file that was
 * never synced; so empty ones are neither stored nor believed.
 */

#define ACTION_MAX (256u << 20)

int cas_action_read(int fd, struct buf *out, struct stat *st)
{
	ssize_t got;
	int ret;

	if (fstat(fd, st) < 0)
		return -errno;
	if (!S_ISREG(st->st_mode) || st->st_size > (off_t)ACTION_MAX)
		return -EUCLEAN;
	if (st->st_size == 0)
		return -ENOENT;
	ret = buf_reserve(out, (size_t)st->st_size);
	if (ret < 0)
		return ret;
	got = io_pread_full(fd, out->data + out->len, (size_t)st->st_size, 0);
	if (got < 0)
		return (int)got;
	out->len += (size_t)got;
	out->data[out->len] = '\0';
	return 0;
}

static int read_stored(struct cas_store *store, const struct cas_digest *action, struct buf *out)
{
	char path[CAS_LAYOUT_PATH_SZ];
	auto_close int fd = -1;
	struct stat st;
	int ret;

	cas_layout_path(action->hash, path);
	if (store->ac_fd < 0)
		return -ENOENT;
	fd = openat(store->ac_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOTDIR ? -ENOENT : -errno;
	ret = cas_action_read(fd, out, &st);
	if (ret == 0)
		cas_adopt_hit_action(store, fd, &st);
	return ret;
}

/* The one that waits is the later one; it is stored before it ceases to wait. */
static int read_action(struct cas_store *store, const struct cas_digest *action, struct buf *out)
{
	auto_close int fd = cas_spool_result_open(store, action->hash);
	struct stat st;

	if (fd >= 0 && cas_action_read(fd, out, &st) == 0)
		return 0;
	return read_stored(store, action, out);
}

/* Is this very result stored already? */
static bool is_stored(struct cas_store *store, const struct cas_digest *action, const void *data,
		      size_t len)
{
	auto_buf struct buf old = {0};

	return read_stored(store, action, &old) == 0 && old.len == len &&
	       memcmp(old.data, data, len) == 0;
}

/* An eviction looks which result it removes, and removes it, under the same lock. */
static int replace_action(struct cas_store *store, const struct cas_digest *action,
			  struct cas_tmp *tmp)
{
	unsigned shard = cas_layout_shard(action->hash);
	bool locked = cas_store_shard_lock(store, shard, false, true) == 0;
	int ret = cas_tmp_replace(tmp, action->hash);

	if (locked)
		cas_store_shard_unlock(store, shard, false);
	return ret;
}

int cas_action_write(struct cas_store *store, int top_fd, const struct cas_digest *action,
		     const void *data, size_t len)
{
	auto_tmp struct cas_tmp tmp = CAS_TMP_NONE;
	int ret = cas_tmp_open(store, top_fd, action->hash, true, &tmp);

	if (ret == 0)
		ret = io_write_full(tmp.fd, data, len);
	if (ret == 0)
		ret = cas_store_dress(store, tmp.fd, CAS_BLOB_MODE);
	if (ret == 0 && store->durability == CAS_DURABILITY_FULL && fdatasync(tmp.fd) < 0)
		ret = -errno;
	if (ret == 0)
		ret = replace_action(store, action, &tmp);
	if (ret == 0 && store->durability == CAS_DURABILITY_FULL)
		ret = cas_shard_sync(top_fd, action->hash);
	return ret;
}

/* Nothing is looked for in the blob directory, which may be slow, where there is a spool. */
static int write_action(struct cas_store *store, const struct cas_digest *action, const void *data,
			size_t len)
{
	int ret = -ENOSPC;

	if (store->spool)
		ret = cas_spool_result_put(store->spool, action, data, len);
	if (ret != -ENOSPC && ret != -EDQUOT)
		return ret;
	if (is_stored(store, action, data, len))
		return 0;
	ret = cas_action_write(store, store->ac_fd, action, data, len);
	if (ret == 0)
		atomic_store(&store->dirty, true);
	/* A spooled put syncs the spool alone. */
	return ret == 0 && store->spool ? cas_store_sync_blobs(store, NULL) : ret;
}

/* From a tier, and kept here from now on; what it names comes when it is touched. */
static int fetch_action(struct cas_store *store, const struct cas_digest *action, struct buf *out,
			struct err *err)
{
	size_t before = out->len;
	int ret = cas_fetch_action(store->fetch, action, out, err);

	if (ret == 0 && !store->read_only && out->len > before &&
	    write_action(store, action, out->data + before, out->len - before) < 0)
		log_info("the result of action %s is not kept here", CAS_DIGEST_TEXT(action));
	return ret;
}

int cas_store_action_get(struct cas_store *store, const struct cas_digest *action, struct buf *out,
			 struct err *err)
{
	int ret = read_action(store, action, out);

	if (ret == -ENOENT && cas_fetch_may_wait(store->fetch))
		return fetch_action(store, action, out, err);
	if (ret == -ENOENT)
		return err_set(err, ret, "there is no result of action %s",
			       CAS_DIGEST_TEXT(action));
	if (ret < 0)
		return err_set(err, ret, "cannot read the result of action %s: %s",
			       CAS_DIGEST_TEXT(action), strerrordesc_np(-ret));
	return 0;
}

int cas_store_action_put(struct cas_store *store, const struct cas_digest *action, const void *data,
			 size_t len, struct err *err)
{
	int ret;

	if (store->read_only)
		return err_set(err, -EROFS, "store %s is read-only", store->path);
	if (len == 0 || len > ACTION_MAX)
		return err_set(err, -EINVAL, "a result of %zu bytes for action %s", len,
			       CAS_DIGEST_TEXT(action));
	ret = write_action(store, action, data, len);
	if (ret < 0)
		return err_set(err, ret, "cannot store the result of action %s: %s",
			       CAS_DIGEST_TEXT(action), strerrordesc_np(-ret));
	return cas_outbox_add(store->outbox, CAS_PUSH_ACTION, action, err);
}
