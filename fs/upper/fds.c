/* fs/upper/fds.c - descriptors of nodes: not more than so many */

/*
 * What is in use, or pinned, stays open; of the rest the least recently used goes first
 * when there are too many. A descriptor says nothing about the node: it is opened again
 * by name when it is wanted.
 */
#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fs/upper/upper_i.h"

#define FDS_MIN 64
#define FDS_MAX 16384
#define EVICT	8 /* at a time */

/* A quarter of what this process may have: blobs take the most. */
void fs_ufds_init(struct fs_ufds *fds)
{
	struct rlimit limit;

	fds->max = FDS_MIN;
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / 4 > fds->max)
		fds->max = limit.rlim_cur / 4 < FDS_MAX ? limit.rlim_cur / 4 : FDS_MAX;
	lock_init(&fds->lock, LOCK_RANK_LEAF, "descriptors of layers");
	TAILQ_INIT(&fds->lru);
}

void fs_ufds_fini(struct fs_ufds *fds)
{
	lock_fini(&fds->lock);
}

static struct fs_ufds *fds_of(const struct fs_unode *node)
{
	return &node->upper->all->fds;
}

/* Off the list; what is to be closed. */
static int take_locked(struct fs_ufds *fds, struct fs_unode *node)
{
	TAILQ_REMOVE(&fds->lru, node, fds_link);
	fds->nr--;
	if (node->fd_pinned)
		fds->nr_pinned--;
	node->fd_pinned = false;
	return steal_fd(&node->fd);
}

int fs_ufd_ref(struct fs_unode *node)
{
	struct fs_ufds *fds = fds_of(node);
	int fd;

	lock_take(&fds->lock);
	fd = node->fd;
	if (fd >= 0) {
		node->fd_users++;
		TAILQ_REMOVE(&fds->lru, node, fds_link);
		TAILQ_INSERT_TAIL(&fds->lru, node, fds_link);
	}
	lock_drop(&fds->lock);
	return fd;
}

/* Some of those that are too many. */
static size_t evict_locked(struct fs_ufds *fds, int old[EVICT])
{
	struct fs_unode *node = TAILQ_FIRST(&fds->lru);
	size_t nr = 0;

	for (int looked = 0; node && fds->nr > fds->max && nr < EVICT && looked < 64; looked++) {
		struct fs_unode *next = TAILQ_NEXT(node, fds_link);

		if (node->fd_users == 0 && !node->fd_pinned) {
			old[nr++] = take_locked(fds, node);
		} else {
			/* Not again at once. */
			TAILQ_REMOVE(&fds->lru, node, fds_link);
			TAILQ_INSERT_TAIL(&fds->lru, node, fds_link);
		}
		node = next;
	}
	return nr;
}

void fs_ufd_add(struct fs_unode *node, int fd)
{
	struct fs_ufds *fds = fds_of(node);
	int old[EVICT];
	size_t nr;

	lock_take(&fds->lock);
	node->fd = fd;
	node->fd_users = 1;
	TAILQ_INSERT_TAIL(&fds->lru, node, fds_link);
	fds->nr++;
	nr = evict_locked(fds, old);
	lock_drop(&fds->lock);
	while (nr > 0)
		(void)close(old[--nr]);
}

void fs_ufd_unref(struct fs_unode *node)
{
	struct fs_ufds *fds = fds_of(node);

	lock_take(&fds->lock);
	node->fd_users--;
	lock_drop(&fds->lock);
}

bool fs_ufd_pin(struct fs_unode *node)
{
	struct fs_ufds *fds = fds_of(node);
	bool can;

	lock_take(&fds->lock);
	can = node->fd >= 0 && (node->fd_pinned || fds->nr_pinned < fds->max / 2);
	if (can && !node->fd_pinned) {
		node->fd_pinned = true;
		fds->nr_pinned++;
	}
	lock_drop(&fds->lock);
	return can;
}

void fs_ufd_close(struct fs_unode *node)
{
	struct fs_ufds *fds = fds_of(node);
	int fd = -1;

	lock_take(&fds->lock);
	if (node->fd >= 0 && node->fd_users == 0)
		fd = take_locked(fds, node);
	lock_drop(&fds->lock);
	if (fd >= 0)
		(void)close(fd);
}
