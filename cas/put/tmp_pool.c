/* cas/put/tmp_pool.c - files without a name that are ready for blobs to come */
#include "cas/put/tmp_pool.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/lock.h"
#include "cas/put/put_i.h"
#include "cas/store/store_i.h"

/*
 * To allocate an inode is half of what a small put costs on ext4, and worse soon after many
 * were freed. The files are linked into whatever shard it turns out to be; where that is on
 * another filesystem they are of no use, and the put makes its own.
 */

#define POOL_MAX 64

struct cas_tmp_pool {
	struct lock lock;
	unsigned nr GUARDED_BY(lock);
	int fds[POOL_MAX] GUARDED_BY(lock);
};

int cas_tmp_pool_new(struct cas_store *store)
{
	struct cas_tmp_pool *pool;

	if (store->tmps || store->read_only || store->spool)
		return 0;
	pool = calloc(1, sizeof(*pool));
	if (pool == NULL)
		return -ENOMEM;
	lock_init(&pool->lock, LOCK_RANK_LEAF, "pool of temporary files");
	store->tmps = pool;
	return 0;
}

void cas_tmp_pool_free(struct cas_store *store)
{
	struct cas_tmp tmp;

	if (store->tmps == NULL)
		return;
	while (cas_tmp_pool_take(store, &tmp))
		cas_tmp_fini(&tmp);
	lock_fini(&store->tmps->lock);
	free(steal_ptr(&store->tmps));
}

bool cas_tmp_pool_take(const struct cas_store *store, struct cas_tmp *out)
{
	struct cas_tmp_pool *pool = store->tmps;
	int fd = -1;

	if (pool == NULL)
		return false;
	lock_take(&pool->lock);
	if (pool->nr > 0)
		fd = pool->fds[--pool->nr];
	lock_drop(&pool->lock);
	if (fd < 0)
		return false;
	*out = (struct cas_tmp){.fd = fd, .top_fd = store->cas_fd, .dressed = true};
	return true;
}

static bool is_full(struct cas_tmp_pool *pool)
{
	bool full;

	lock_take(&pool->lock);
	full = pool->nr == POOL_MAX;
	lock_drop(&pool->lock);
	return full;
}

static void add(struct cas_tmp_pool *pool, struct cas_tmp *tmp)
{
	lock_take(&pool->lock);
	if (pool->nr < POOL_MAX)
		pool->fds[pool->nr++] = steal_fd(&tmp->fd);
	lock_drop(&pool->lock);
}

void cas_tmp_pool_fill(struct cas_store *store)
{
	struct cas_tmp tmp;

	while (store->tmps && !is_full(store->tmps) &&
	       cas_tmp_open_anywhere(store->cas_fd, &tmp) == 0) {
		bool dressed = cas_store_dress(store, tmp.fd, CAS_BLOB_MODE) == 0;

		if (dressed)
			add(store->tmps, &tmp);
		cas_tmp_fini(&tmp);
		if (!dressed)
			break;
	}
}
