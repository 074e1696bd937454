/* fs/backing/iobuf.c - buffers that bytes of blobs pass through */

/*
 * The kernel copies a blob's bytes into a buffer of ours and out of it again, page by
 * page. A buffer that is one huge page, and stays in use, saves it the look at each; one
 * from malloc of that size is even given back and made anew each time.
 */
#include "fs/backing/iobuf.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "cas/cas.h"

#define HUGE_SZ (2U << 20)

/* In the first bytes of a buffer that nobody has. */
struct idle {
	struct idle *next;
};

struct fs_iobufs {
	size_t keep;
	struct lock lock;
	size_t nr_idle GUARDED_BY(lock);
	struct idle *idle GUARDED_BY(lock);
};

int fs_iobufs_new(size_t keep, struct fs_iobufs **out)
{
	struct fs_iobufs *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return -ENOMEM;
	pool->keep = keep;
	lock_init(&pool->lock, LOCK_RANK_LEAF, "buffers");
	*out = pool;
	return 0;
}

NO_LOCK_CHECK void fs_iobufs_free(struct fs_iobufs *pool)
{
	if (!pool)
		return;
	while (pool->idle) {
		struct idle *buf = pool->idle;

		pool->idle = buf->next;
		free(buf);
	}
	lock_fini(&pool->lock);
	free(pool);
}

void *fs_iobuf_take(struct fs_iobufs *pool)
{
	struct idle *buf;

	lock_take(&pool->lock);
	buf = pool->idle;
	if (buf) {
		pool->idle = buf->next;
		pool->nr_idle--;
	}
	lock_drop(&pool->lock);
	if (buf)
		return buf;
	buf = aligned_alloc(HUGE_SZ, HUGE_SZ);
	/* Where there are none it is a buffer like any other. */
	if (buf)
		(void)madvise(buf, HUGE_SZ, MADV_HUGEPAGE);
	return buf;
}

void fs_iobuf_give(struct fs_iobufs *pool, void *buf)
{
	struct idle *idle = buf;

	if (!buf)
		return;
	lock_take(&pool->lock);
	if (pool->nr_idle < pool->keep) {
		idle->next = pool->idle;
		pool->idle = idle;
		pool->nr_idle++;
		idle = NULL;
	}
	lock_drop(&pool->lock);
	free(idle);
}
