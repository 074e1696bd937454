/* fs/report/teller.c - events that nobody else is there to tell of */
#include "fs/report/teller.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>

#include "cas/cas.h"
#include "fs/control/prefetch.h"
#include "fs/report/events.h"
#include "fs/report/metrics.h"

#define LOOK_NS 1000000000ULL

/* What was told of a tier. */
struct told {
	uint64_t nr_failures;
	bool broken;
};

struct fs_teller {
	struct fs_events *events;
	struct cas_fetch *fetch;
	struct fs_prefetches *prefetches;
	struct fs_metrics *metrics;
	size_t nr_tiers;
	struct told *told; /* the thread's */
	pthread_t thread;
	struct lock lock;
	pthread_cond_t wake;
	bool stop GUARDED_BY(lock);
};

static void look_at_tier(struct fs_teller *t, struct cas_tier *tier, struct told *told)
{
	struct cas_tier_stats s;

	cas_tier_stats(tier, &s);
	if (s.nr_failures > told->nr_failures || s.broken != told->broken)
		fs_event(t->events, s.broken || !told->broken ? "tier-trouble" : "tier-back",
			 "{s:s, s:I, s:I, s:b}", "tier", cas_tier_name(tier), "failures",
			 (json_int_t)(s.nr_failures - told->nr_failures), "requests",
			 (json_int_t)s.nr_requests, "paused", (int)s.broken);
	*told = (struct told){s.nr_failures, s.broken};
}

/* True: go on. */
static bool pause_for(struct fs_teller *t, unsigned long long ns)
{
	unsigned long long end = lock_now_ns() + ns;
	bool stop;

	lock_take(&t->lock);
	while (!t->stop && lock_wait(&t->lock, &t->wake, end) != -ETIMEDOUT)
		;
	stop = t->stop;
	lock_drop(&t->lock);
	return !stop;
}

static void *teller_thread(void *arg)
{
	struct fs_teller *t = arg;

	do {
		for (size_t i = 0; i < t->nr_tiers; i++)
			look_at_tier(t, cas_fetch_tier(t->fetch, i), &t->told[i]);
		fs_metrics_sample(t->metrics);
		if (t->prefetches)
			fs_prefetches_tick(t->prefetches);
	} while (pause_for(t, LOOK_NS));
	return NULL;
}

static void free_teller(struct fs_teller *t)
{
	(void)pthread_cond_destroy(&t->wake);
	lock_fini(&t->lock);
	free(t->told);
	free(t);
}

int fs_teller_new(struct fs_events *events, struct cas_fetch *fetch,
		  struct fs_prefetches *prefetches, struct fs_metrics *metrics,
		  struct fs_teller **out)
{
	struct fs_teller *t = calloc(1, sizeof(*t));
	int ret;

	if (!t)
		return -ENOMEM;
	*t = (struct fs_teller){
		.events = events, .fetch = fetch, .prefetches = prefetches, .metrics = metrics};
	t->nr_tiers = fetch ? cas_fetch_nr_tiers(fetch) : 0;
	lock_init(&t->lock, LOCK_RANK_QUEUE, "teller");
	lock_cond_init(&t->wake);
	t->told = calloc(t->nr_tiers + 1, sizeof(*t->told));
	ret = t->told ? -pthread_create(&t->thread, NULL, teller_thread, t) : -ENOMEM;
	if (ret < 0) {
		free_teller(t);
		return ret;
	}
	*out = t;
	return 0;
}

void fs_teller_free(struct fs_teller *t)
{
	if (!t)
		return;
	lock_take(&t->lock);
	t->stop = true;
	(void)pthread_cond_signal(&t->wake);
	lock_drop(&t->lock);
	(void)pthread_join(t->thread, NULL);
	free_teller(t);
}
