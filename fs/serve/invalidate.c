/* fs/serve/invalidate.c - tell the kernel what changed, from a thread that serves nothing */
#define FUSE_USE_VERSION 312
#include "fs/serve/invalidate.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"

struct item {
	struct item *next;
	char *name; /* NULL: only the listing */
};

struct fs_invalidate {
	struct fuse_session *session;
	pthread_t thread;
	struct lock lock;
	pthread_cond_t changed;
	struct item *head GUARDED_BY(lock);
	struct item **tail GUARDED_BY(lock);
	uint64_t nr_queued GUARDED_BY(lock);
	uint64_t nr_done GUARDED_BY(lock);
	bool ending GUARDED_BY(lock);
};

static void notify(struct fs_invalidate *inv, const struct item *item)
{
	int ret = 0;

	if (item->name)
		ret = fuse_lowlevel_notify_inval_entry(inv->session, FUSE_ROOT_ID, item->name,
						       strlen(item->name));
	/* ENOENT: not cached, which is as good. */
	if (ret < 0 && ret != -ENOENT)
		log_warn("cannot invalidate the name %s: %s", item->name, strerror(-ret));
	ret = fuse_lowlevel_notify_inval_inode(inv->session, FUSE_ROOT_ID, 0, 0);
	if (ret < 0 && ret != -ENOENT)
		log_warn("cannot invalidate the list of sandboxes: %s", strerror(-ret));
}

static struct item *next_item(struct fs_invalidate *inv)
{
	struct item *item;

	lock_take(&inv->lock);
	while (!inv->head && !inv->ending)
		(void)lock_wait(&inv->lock, &inv->changed, 0);
	item = inv->ending ? NULL : inv->head;
	if (item) {
		inv->head = item->next;
		if (!inv->head)
			inv->tail = &inv->head;
	}
	lock_drop(&inv->lock);
	return item;
}

static void *invalidate_thread(void *arg)
{
	struct fs_invalidate *inv = arg;
	struct item *item;

	while ((item = next_item(inv)) != NULL) {
		notify(inv, item);
		free(item->name);
		free(item);
		lock_take(&inv->lock);
		inv->nr_done++;
		(void)pthread_cond_broadcast(&inv->changed);
		lock_drop(&inv->lock);
	}
	return NULL;
}

NO_LOCK_CHECK int fs_invalidate_new(struct fuse_session *session, struct fs_invalidate **out)
{
	struct fs_invalidate *inv = calloc(1, sizeof(*inv));
	int ret;

	if (!inv)
		return -ENOMEM;
	inv->session = session;
	inv->tail = &inv->head;
	lock_init(&inv->lock, LOCK_RANK_QUEUE, "invalidation queue");
	lock_cond_init(&inv->changed);
	ret = pthread_create(&inv->thread, NULL, invalidate_thread, inv);
	if (ret != 0) {
		lock_fini(&inv->lock);
		(void)pthread_cond_destroy(&inv->changed);
		free(inv);
		return -ret;
	}
	*out = inv;
	return 0;
}

NO_LOCK_CHECK void fs_invalidate_free(struct fs_invalidate *inv)
{
	if (!inv)
		return;
	lock_take(&inv->lock);
	inv->ending = true;
	(void)pthread_cond_broadcast(&inv->changed);
	lock_drop(&inv->lock);
	(void)pthread_join(inv->thread, NULL);
	while (inv->head) {
		struct item *item = inv->head;

		inv->head = item->next;
		free(item->name);
		free(item);
	}
	(void)pthread_cond_destroy(&inv->changed);
	lock_fini(&inv->lock);
	free(inv);
}

void fs_invalidate_root(struct fs_invalidate *inv, const char *name)
{
	struct item *item = calloc(1, sizeof(*item));

	if (!item || (name && !(item->name = strdup(name)))) {
		free(item);
		log_error("no memory to invalidate %s: it may show an old tree",
			  name ? name : "the list of sandboxes");
		return;
	}
	lock_take(&inv->lock);
	*inv->tail = item;
	inv->tail = &item->next;
	inv->nr_queued++;
	(void)pthread_cond_broadcast(&inv->changed);
	lock_drop(&inv->lock);
}

bool fs_invalidate_settle(struct fs_invalidate *inv, int timeout_ms)
{
	unsigned long long end = lock_now_ns() + (unsigned long long)timeout_ms * 1000000ULL;
	uint64_t upto;
	bool done;
	int ret = 0;

	lock_take(&inv->lock);
	upto = inv->nr_queued;
	while (inv->nr_done < upto && !inv->ending && ret == 0)
		ret = lock_wait(&inv->lock, &inv->changed, end);
	done = inv->nr_done >= upto;
	lock_drop(&inv->lock);
	return done;
}
