/* fs/channel/channels.c - all conversations of a mount: opened, shut, waited for */
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <stdlib.h>

#include "cas/cas.h"
#include "fs/channel/channel_i.h"

int fs_channels_new(const struct control_env *env, struct fs_executor *executor,
		    struct fs_executor *patient, struct fs_channels **out)
{
	struct fs_channels *all = calloc(1, sizeof(*all));

	if (!all)
		return -ENOMEM;
	all->env = env;
	all->executor = executor;
	all->patient = patient;
	lock_init(&all->lock, LOCK_RANK_SESSION, "control channels");
	lock_cond_init(&all->changed);
	*out = all;
	return 0;
}

NO_LOCK_CHECK void fs_channels_free(struct fs_channels *all)
{
	if (!all)
		return;
	while (all->list) {
		struct fs_channel *c = all->list;

		all->list = c->next;
		fs_channel_free(c);
	}
	(void)pthread_cond_destroy(&all->changed);
	lock_fini(&all->lock);
	free(all);
}

size_t fs_channels_nr_pending(struct fs_channels *all)
{
	size_t nr;

	lock_take(&all->lock);
	nr = all->nr_pending;
	lock_drop(&all->lock);
	return nr;
}

void fs_channels_open(struct fs_channels *all)
{
	lock_take(&all->lock);
	all->open = true;
	(void)pthread_cond_broadcast(&all->changed);
	lock_drop(&all->lock);
}

/* Once all is shut: one that has lines and nobody who works on it, to be submitted. */
static struct fs_channel *find_left_locked(struct fs_channels *all) REQUIRES(all->lock)
{
	struct fs_channel *c = all->list;

	while (c && (!c->head || c->busy))
		c = c->next;
	if (c)
		c->busy = true;
	return c;
}

/* Lines of those that were left alone are refused now, like all. */
void fs_channels_shut(struct fs_channels *all)
{
	struct fs_channel *c;

	lock_take(&all->lock);
	all->shut = true;
	for (c = all->list; c; c = c->next)
		atomic_store(&c->unwanted, true);
	(void)pthread_cond_broadcast(&all->changed);
	while ((c = find_left_locked(all)) != NULL) {
		lock_drop(&all->lock);
		fs_executor_submit(all->executor, &c->job);
		lock_take(&all->lock);
	}
	lock_drop(&all->lock);
}

bool fs_channels_shut_if(struct fs_channels *all, size_t nr)
{
	bool may;

	lock_take(&all->lock);
	may = all->nr_pending <= nr;
	if (may)
		all->shut = true;
	lock_drop(&all->lock);
	return may;
}

static struct fs_channel *find_parked_locked(struct fs_channels *all) REQUIRES(all->lock)
{
	struct fs_channel *c = all->list;

	while (c && !c->parked)
		c = c->next;
	return c;
}

void fs_channels_reopen(struct fs_channels *all)
{
	struct fs_channel *c;

	lock_take(&all->lock);
	all->shut = false;
	while ((c = find_parked_locked(all)) != NULL) {
		c->parked = false;
		lock_drop(&all->lock);
		fs_executor_submit(all->executor, &c->job);
		lock_take(&all->lock);
	}
	lock_drop(&all->lock);
}

bool fs_channels_wait(struct fs_channels *all, size_t nr, unsigned long long deadline_ns)
{
	int ret = 0;
	bool done;

	lock_take(&all->lock);
	while (all->nr_pending > nr && ret == 0)
		ret = lock_wait(&all->lock, &all->changed, deadline_ns);
	done = all->nr_pending <= nr;
	lock_drop(&all->lock);
	return done;
}

static bool has_unread_locked(const struct fs_channels *all) REQUIRES(all->lock)
{
	for (const struct fs_channel *c = all->list; c; c = c->next)
		if (!c->released && c->answers.len > c->answers_pos)
			return true;
	return false;
}

bool fs_channels_wait_read(struct fs_channels *all, unsigned long long deadline_ns)
{
	int ret = 0;
	bool done;

	lock_take(&all->lock);
	while (has_unread_locked(all) && ret == 0)
		ret = lock_wait(&all->lock, &all->changed, deadline_ns);
	done = !has_unread_locked(all);
	lock_drop(&all->lock);
	return done;
}
