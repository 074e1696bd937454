/* cas/fetch/fetch_ahead.c - blobs that somebody is likely to want */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "cas/base/auto.h"
#include "cas/fetch/fetch_i.h"

/*
 * In the order they were given, some at a time: batches where the first tier takes them,
 * flights of single blobs otherwise and for what is large. A batch claims its blobs when
 * it begins, so that who wants one of a later batch does not wait for it, but has a flight
 * of his own, which goes first.
 */

#define GROUP_BLOBS 64
#define GROUP_BYTES (1u << 20) /* whoever wants one of them waits for all */
#define GROUPS_MAX  4	       /* at a time */
#define SINGLES_MAX 64
#define LOOK_MS	    50 /* how often @stop is looked at */

struct ahead {
	struct cas_fetch *fetch;
	struct lock lock;
	pthread_cond_t less;
	int nr_groups GUARDED_BY(lock);
	int nr_singles GUARDED_BY(lock);
};

struct group {
	struct cas_fetch_task task; /* first */
	struct ahead *all;
	const struct cas_digest *digests;
	size_t nr;
};

struct single {
	struct cas_fetch_waiter waiter; /* first */
	struct ahead *all;
};

static void group_run(struct cas_fetch *f, struct cas_fetch_task *task)
{
	struct group *g = (struct group *)task;
	struct ahead *all = g->all;
	struct cas_fetch_call c = {0};

	cas_call_init(&c.call, 0);
	c.call.background = true;
	if (cas_fetch_call_begin(f, &c)) {
		(void)cas_fetch_batch(f, g->digests, g->nr, &c.call);
		cas_fetch_call_end(f, &c);
	}
	cas_call_fini(&c.call);
	free(g);
	lock_take(&all->lock);
	all->nr_groups--;
	(void)pthread_cond_signal(&all->less);
	lock_drop(&all->lock);
}

static void single_done(struct cas_fetch_waiter *waiter, int ret, const struct err *why)
{
	struct single *s = (struct single *)waiter;
	struct ahead *all = s->all;

	(void)ret;
	(void)why;
	free(s);
	lock_take(&all->lock);
	all->nr_singles--;
	(void)pthread_cond_signal(&all->less);
	lock_drop(&all->lock);
}

/* Until fewer than these are under way; false: @stop. */
static bool wait_for_less(struct ahead *a, int groups, int singles, const _Atomic bool *stop)
{
	bool stopped;

	lock_take(&a->lock);
	while (!(stopped = stop && atomic_load(stop)) &&
	       (a->nr_groups >= groups || a->nr_singles >= singles))
		(void)lock_wait(&a->lock, &a->less, lock_now_ns() + LOOK_MS * 1000000ULL);
	lock_drop(&a->lock);
	return !stopped;
}

static int start_single(struct ahead *a, const struct cas_digest *digest)
{
	struct single *s = calloc(1, sizeof(*s));
	int ret;

	if (s == NULL)
		return -ENOMEM;
	s->waiter.done = single_done;
	s->all = a;
	lock_take(&a->lock);
	a->nr_singles++;
	lock_drop(&a->lock);
	ret = cas_fetch_begin_ahead(a->fetch, digest, &s->waiter);
	if (ret == 0)
		return 0;
	free(s);
	lock_take(&a->lock);
	a->nr_singles--;
	lock_drop(&a->lock);
	return ret;
}

static int start_group(struct ahead *a, const struct cas_digest *digests, size_t nr)
{
	struct group *g = calloc(1, sizeof(*g));
	int ret;

	if (g == NULL)
		return -ENOMEM;
	*g = (struct group){.task = {.run = group_run, .background = true},
			    .all = a,
			    .digests = digests,
			    .nr = nr};
	lock_take(&a->lock);
	a->nr_groups++;
	lock_drop(&a->lock);
	lock_take(&a->fetch->lock);
	ret = a->fetch->ending ? -ECANCELED : cas_fetch_submit_locked(a->fetch, &g->task);
	lock_drop(&a->fetch->lock);
	if (ret == 0)
		return 0;
	free(g);
	lock_take(&a->lock);
	a->nr_groups--;
	lock_drop(&a->lock);
	return ret;
}

/* How many of them go together. */
static size_t group_size(const struct cas_fetch *f, const struct cas_digest *digests, size_t nr)
{
	uint64_t bytes = digests[0].size;
	size_t n = 1;

	if (!cas_tier_gets_batches(f->tiers[0]))
		return 1;
	while (n < nr && n < GROUP_BLOBS && bytes + digests[n].size <= GROUP_BYTES)
		bytes += digests[n++].size;
	return n;
}

NO_LOCK_CHECK int cas_fetch_ahead(struct cas_fetch *fetch, const struct cas_digest *digests,
				  size_t nr, const _Atomic bool *stop)
{
	struct ahead a = {.fetch = fetch};
	size_t at = 0;
	int ret = fetch->nr_tiers > 0 ? 0 : -ENOENT;

	lock_init(&a.lock, LOCK_RANK_QUEUE, "cas_fetch.ahead");
	lock_cond_init(&a.less);
	while (ret == 0 && at < nr) {
		size_t n = group_size(fetch, digests + at, nr - at);

		if (!wait_for_less(&a, GROUPS_MAX, SINGLES_MAX, stop))
			ret = -ECANCELED;
		else if (n == 1)
			ret = start_single(&a, &digests[at]);
		else
			ret = start_group(&a, digests + at, n);
		at += n;
	}
	/* What has begun is not cut off: others may wait for it by now. */
	(void)wait_for_less(&a, 1, 1, NULL);
	(void)pthread_cond_destroy(&a.less);
	lock_fini(&a.lock);
	return ret;
}
