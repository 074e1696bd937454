/* cas/store/store_sync.c - durability, and the rows that wait for it */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/spool/spool_i.h"
#include "cas/store/store_i.h"

/*
 * A row that says "these bytes were hashed" must not outlive the bytes in a power cut:
 * the stamp could fit a file whose data never reached the disk. With durability=batch
 * rows therefore queue here until one syncfs covers them all; look-ups see them at once.
 * The queue is bounded: whoever fills it pays for a sync.
 */

#define PENDING_MAX 4096

struct pending {
	struct cas_digest digest;
	struct cas_stamp stamp;
	UT_hash_handle hh;
};

int cas_pending_find(struct cas_store *store, const struct cas_digest *digest,
		     struct cas_stamp *stamp)
{
	struct pending *p;
	int found = 0;

	lock_take(&store->pending_lock);
	if (store->pending) {
		HASH_FIND(hh, store->pending, digest->hash, CAS_HASH_SZ, p);
		found = p && p->digest.size == digest->size;
		if (found)
			*stamp = p->stamp;
	}
	lock_drop(&store->pending_lock);
	return found;
}

static struct pending *remove_pending(struct cas_store *store, const struct cas_digest *digest)
	REQUIRES(store->pending_lock)
{
	struct pending *p = NULL;

	if (store->pending)
		HASH_FIND(hh, store->pending, digest->hash, CAS_HASH_SZ, p);
	if (p) {
		HASH_DEL(store->pending, p);
		store->nr_pending--;
	}
	return p;
}

void cas_pending_drop(struct cas_store *store, const struct cas_digest *digest)
{
	struct pending *p;

	lock_take(&store->pending_lock);
	p = remove_pending(store, digest);
	lock_drop(&store->pending_lock);
	free(p);
}

int cas_pending_add(struct cas_store *store, const struct cas_digest *digest,
		    const struct cas_stamp *stamp)
{
	struct pending *p;
	struct pending *old;
	bool full;

	if (store->durability != CAS_DURABILITY_BATCH) {
		store->catalog->ops->blob_add(store->catalog->ctx, digest, stamp);
		return 0;
	}
	atomic_store(&store->dirty, true);
	p = calloc(1, sizeof(*p));
	if (p == NULL)
		return 0;
	p->digest = *digest;
	p->stamp = *stamp;
	lock_take(&store->pending_lock);
	old = remove_pending(store, digest);
	HASH_ADD(hh, store->pending, digest.hash, CAS_HASH_SZ, p);
	if (p->hh.tbl) {
		store->nr_pending++;
		p = NULL;
	}
	full = store->nr_pending >= PENDING_MAX;
	lock_drop(&store->pending_lock);
	free(old);
	free(p);
	return full;
}

int cas_shard_sync(int top_fd, const uint8_t hash[CAS_HASH_SZ])
{
	char path[CAS_LAYOUT_PATH_SZ];
	auto_close int fd = -1;

	cas_layout_path(hash, path);
	path[2] = '\0';
	fd = openat(top_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	return fsync(fd) < 0 ? -errno : 0;
}

static int sync_files(struct cas_store *store, struct err *err)
{
	struct stat st;

	if (syncfs(store->cas_fd) < 0)
		return err_set(err, -errno, "cannot sync the blobs of store %s: %m", store->path);
	if (store->ac_fd >= 0 && fstat(store->ac_fd, &st) == 0 && st.st_dev != store->cas_dev &&
	    syncfs(store->ac_fd) < 0)
		return err_set(err, -errno, "cannot sync the action results of store %s: %m",
			       store->path);
	return 0;
}

/* Hand the rows to the catalog, or throw them away; the table is the caller's by now. */
static void hand_over(struct cas_store *store, struct pending *rows, bool keep)
{
	struct pending *p;
	struct pending *next;

	HASH_ITER (hh, rows, p, next) {
		HASH_DEL(rows, p);
		if (keep)
			store->catalog->ops->blob_add(store->catalog->ctx, &p->digest, &p->stamp);
		free(p);
	}
}

/* Puts that end in the spool: that far, they do not wait for the blob directory. */
static int sync_spool(struct cas_store *store, struct err *err)
{
	if (!atomic_exchange(&store->spool_dirty, false))
		return 0;
	if (store->durability == CAS_DURABILITY_BATCH && syncfs(store->spool_fd) < 0) {
		atomic_store(&store->spool_dirty, true);
		return err_set(err, -errno, "cannot sync the spool of store %s: %m", store->path);
	}
	cas_spool_wake(store);
	return 0;
}

int cas_store_sync(struct cas_store *store, struct err *err)
{
	return store->spool ? sync_spool(store, err) : cas_store_sync_blobs(store, err);
}

int cas_store_sync_blobs(struct cas_store *store, struct err *err)
{
	struct pending *rows;
	int ret = 0;

	/* Nothing left to sync may mean that somebody has only just begun to. */
	lock_take(&store->sync_lock);
	/* Rows first, then the sync: all of them were published before it started. */
	lock_take(&store->pending_lock);
	rows = store->pending;
	store->pending = NULL;
	store->nr_pending = 0;
	lock_drop(&store->pending_lock);
	if (atomic_exchange(&store->dirty, false) && store->durability == CAS_DURABILITY_BATCH)
		ret = sync_files(store, err);
	if (ret < 0)
		atomic_store(&store->dirty, true);
	hand_over(store, rows, ret == 0);
	lock_drop(&store->sync_lock);
	return ret;
}
