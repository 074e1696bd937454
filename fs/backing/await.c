/* fs/backing/await.c - requests that wait for a blob from a tier */

/*
 * Two may end a wait: the flight (on_done, on one of its threads) and the watcher, which
 * has to win cas_fetch_leave first. libfuse calls on_interrupt with the request's own lock
 * held, or from within fuse_req_interrupt_func, so that only tells the watcher.
 *
 * The kernel interrupts once, for the first signal, whatever it is, and a read that returns
 * EINTR for one that the process handles would be what no disk does. So only a process
 * that is about to die is let go: its thread has SIGKILL pending then, for that is what
 * every fatal signal becomes. The others are looked at again every WATCH_MS, because no
 * second interrupt follows.
 */
#define FUSE_USE_VERSION 312
#include "fs/backing/await.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/serve/executor.h"
#include "fs/serve/ops.h"

#define WATCH_MS   20
#define ROUNDS_MAX 16

struct await {
	struct cas_fetch_waiter waiter; /* first */
	struct fs_job job;
	struct fs_awaits *all;
	struct fs_again again;
	unsigned long long since_ns;
	int ret; /* of the flight */
	struct err why;
	bool watched; /* all->lock */
	struct await *prev;
	struct await *next;
};

struct fs_awaits {
	struct cas_fetch *fetch;
	struct fs_executor *executor;
	struct lock lock;
	pthread_cond_t changed;
	struct await *watched GUARDED_BY(lock);
	bool ending GUARDED_BY(lock);
	pthread_t watcher;
	bool has_watcher;
	_Atomic uint64_t nr_waits;
	_Atomic uint64_t waited_ns;
};

static void unwatch_locked(struct await *a) REQUIRES(a->all->lock)
{
	if (!a->watched)
		return;
	if (a->prev)
		a->prev->next = a->next;
	else
		a->all->watched = a->next;
	if (a->next)
		a->next->prev = a->prev;
	a->watched = false;
}

static void watch(struct await *a)
{
	struct fs_awaits *all = a->all;

	lock_take(&all->lock);
	if (!a->watched) {
		a->watched = true;
		a->prev = NULL;
		a->next = all->watched;
		if (a->next)
			a->next->prev = a;
		all->watched = a;
		(void)pthread_cond_broadcast(&all->changed);
	}
	lock_drop(&all->lock);
}

static void let_go(struct await *a)
{
	(void)fuse_reply_err(a->again.req, EINTR);
	free(a);
}

static pid_t asker(const struct await *a)
{
	return fuse_req_ctx(a->again.req)->pid;
}

static void on_interrupt(fuse_req_t req, void *data)
{
	/* libfuse forgets @data when the request is answered meanwhile. */
	if (data)
		watch(data);
}

/* Lock held. Those of the list that are dying, taken out of it and away from their flights. */
NO_LOCK_CHECK static struct await *take_dying_locked(struct fs_awaits *all)
{
	struct await *dying = NULL;
	struct await *next;

	for (struct await *a = all->watched; a; a = next) {
		next = a->next;
		if (!process_is_dying(asker(a)) || !cas_fetch_leave(all->fetch, &a->waiter))
			continue;
		unwatch_locked(a);
		a->next = dying;
		dying = a;
	}
	return dying;
}

static void *watcher_main(void *arg)
{
	struct fs_awaits *all = arg;

	lock_take(&all->lock);
	while (!all->ending) {
		unsigned long long until = all->watched ? lock_now_ns() + WATCH_MS * 1000000ULL : 0;
		struct await *dying;

		(void)lock_wait(&all->lock, &all->changed, until);
		dying = take_dying_locked(all);
		if (dying == NULL)
			continue;
		lock_drop(&all->lock);
		while (dying) {
			struct await *next = dying->next;

			fuse_req_interrupt_func(dying->again.req, NULL, NULL);
			let_go(dying);
			dying = next;
		}
		lock_take(&all->lock);
	}
	lock_drop(&all->lock);
	return NULL;
}

/* Nobody looks at it any more. Waits for an interrupt function that runs. */
static void end_watching(struct await *a)
{
	fuse_req_interrupt_func(a->again.req, NULL, NULL);
	lock_take(&a->all->lock);
	unwatch_locked(a);
	lock_drop(&a->all->lock);
}

/* On a thread of the executor: the flight is done with it, and nobody else has it. */
static void await_job(struct fs_job *job)
{
	struct await *a = (struct await *)(void *)((char *)job - offsetof(struct await, job));

	cas_fetch_never_here(true);
	end_watching(a);
	atomic_fetch_add(&a->all->nr_waits, 1);
	atomic_fetch_add(&a->all->waited_ns, lock_now_ns() - a->since_ns);
	if (a->ret == 0)
		a->again.run(&a->again);
	else if (a->ret == -ENOENT && a->again.may_be_absent)
		(void)fuse_reply_err(a->again.req, ENOENT);
	else
		fs_reply_error(a->again.req, -EIO, a->again.what, &a->again.node,
			       a->again.name[0] ? a->again.name : NULL, &a->why);
	free(a);
}

static void on_done(struct cas_fetch_waiter *waiter, int ret, const struct err *why)
{
	struct await *a = (struct await *)waiter;

	a->ret = ret;
	if (ret < 0)
		a->why = *why;
	fs_executor_submit(a->all->executor, &a->job);
}

static bool begin(struct await *a, const struct cas_digest *digest)
{
	struct fs_awaits *all = a->all;
	int ret = -ECANCELED;

	fuse_req_interrupt_func(a->again.req, on_interrupt, a);
	/* A request that is made again may come here when the fetcher is about to go. */
	lock_take(&all->lock);
	if (!all->ending)
		ret = cas_fetch_begin(all->fetch, digest, &a->waiter);
	lock_drop(&all->lock);
	if (ret == 0)
		return true;
	end_watching(a);
	free(a);
	return false;
}

bool fs_await(struct fs_awaits *awaits, const struct fs_again *again, const struct err *err)
{
	struct cas_digest digest;
	struct await *a;

	if (awaits == NULL || again->rounds >= ROUNDS_MAX || !cas_err_missing(err, &digest))
		return false;
	a = calloc(1, sizeof(*a));
	if (a == NULL)
		return false;
	a->waiter.done = on_done;
	a->job.run = await_job;
	a->all = awaits;
	a->again = *again;
	a->again.rounds++;
	a->since_ns = lock_now_ns();
	return begin(a, &digest);
}

NO_LOCK_CHECK int fs_awaits_new(struct cas_fetch *fetch, struct fs_executor *executor,
				struct fs_awaits **out)
{
	struct fs_awaits *all = calloc(1, sizeof(*all));
	int ret;

	if (!all)
		return -ENOMEM;
	all->fetch = fetch;
	all->executor = executor;
	/* Held while a flight is left. */
	lock_init(&all->lock, LOCK_RANK_BACKING, "awaits");
	lock_cond_init(&all->changed);
	ret = pthread_create(&all->watcher, NULL, watcher_main, all);
	if (ret != 0) {
		fs_awaits_free(all);
		return -ret;
	}
	all->has_watcher = true;
	*out = all;
	return 0;
}

void fs_awaits_count(const struct fs_awaits *awaits, uint64_t *nr, uint64_t *ns)
{
	*nr = awaits ? atomic_load(&awaits->nr_waits) : 0;
	*ns = awaits ? atomic_load(&awaits->waited_ns) : 0;
}

void fs_awaits_stop(struct fs_awaits *awaits)
{
	if (!awaits)
		return;
	lock_take(&awaits->lock);
	awaits->ending = true;
	(void)pthread_cond_broadcast(&awaits->changed);
	lock_drop(&awaits->lock);
}

NO_LOCK_CHECK void fs_awaits_free(struct fs_awaits *awaits)
{
	if (!awaits)
		return;
	fs_awaits_stop(awaits);
	if (awaits->has_watcher)
		(void)pthread_join(awaits->watcher, NULL);
	(void)pthread_cond_destroy(&awaits->changed);
	lock_fini(&awaits->lock);
	free(awaits);
}
