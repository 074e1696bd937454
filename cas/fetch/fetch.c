/* cas/fetch/fetch.c - one download per digest, however many wait for it */
#include "cas/fetch/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/fetch/fetch_i.h"
#include "cas/store/store_i.h"

/*
 * Flights and other tasks are in one of two queues and run on threads that are started as
 * needed. A flight asks one tier after the other, through a put, which hashes: nothing is
 * published under a digest but the bytes that have it.
 *
 * A waiter's @flight says where it is in a list; it is NULL once the flight is done with
 * it. So leave knows, under the lock, who of the two was first.
 */

void cas_fetch_never_here(bool never)
{
	lock_thread_never_waits(never);
}

void cas_fetch_here_until(const _Atomic bool *end)
{
	lock_thread_waits_until(end);
}

bool cas_fetch_may_wait(const struct cas_fetch *fetch)
{
	return fetch && !lock_thread_is_prompt();
}

void cas_err_set_missing(struct err *err, const struct cas_digest *digest)
{
	_Static_assert(sizeof(*digest) == ERR_BLOB_SZ, "an error holds a digest");
	if (err == NULL)
		return;
	memcpy(err->blob, digest, sizeof(*digest));
	err->names_blob = true;
}

bool cas_err_missing(const struct err *err, struct cas_digest *out)
{
	if (!err->names_blob)
		return false;
	memcpy(out, err->blob, sizeof(*out));
	return true;
}

int cas_fetch_worse(int a, int b)
{
	static const int order[] = {-ENOENT, -EBADMSG, -EPROTO, -EACCES, -ETIMEDOUT, -EAGAIN};
	size_t at[2] = {0, 0};

	/* An errno that is none of these is ours, and says more than all of them. */
	for (size_t i = 1; i <= sizeof(order) / sizeof(order[0]); i++) {
		if (order[i - 1] == a)
			at[0] = i;
		if (order[i - 1] == b)
			at[1] = i;
	}
	if (a == 0 || b == 0)
		return a == 0 ? b : a;
	if (at[0] == 0 || at[1] == 0)
		return at[0] == 0 ? a : b;
	return at[0] > at[1] ? a : b;
}

/* ---- the table ---- */

static struct cas_flight *flight_new(const struct cas_digest *digest, bool background)
{
	struct cas_flight *flight = calloc(1, sizeof(*flight));

	if (flight == NULL)
		return NULL;
	flight->digest = *digest;
	flight->task.run = cas_fetch_flight_run;
	flight->task.background = background;
	cas_call_init(&flight->call, 0);
	flight->call.background = background;
	return flight;
}

static void flight_free(struct cas_flight *flight)
{
	cas_call_fini(&flight->call);
	free(flight);
}

static struct cas_flight *find_locked(struct cas_fetch *f, const struct cas_digest *digest)
	REQUIRES(f->lock)
{
	struct cas_flight *flight;

	HASH_FIND(hh, f->flights, digest, sizeof(*digest), flight);
	return flight;
}

/* -ENOMEM. */
static int enter_locked(struct cas_fetch *f, struct cas_flight *flight) REQUIRES(f->lock)
{
	HASH_ADD(hh, f->flights, digest, sizeof(flight->digest), flight);
	if (flight->hh.tbl == NULL)
		return -ENOMEM;
	flight->in_table = true;
	f->stats.nr_flights++;
	f->stats.nr_asked++;
	return 0;
}

static void leave_locked(struct cas_fetch *f, struct cas_flight *flight) REQUIRES(f->lock)
{
	if (!flight->in_table)
		return;
	HASH_DEL(f->flights, flight);
	flight->in_table = false;
	f->stats.nr_flights--;
}

/* Find or make; a new one is queued. -ENOMEM, -ECANCELED, -EAGAIN: no thread. */
static int get_locked(struct cas_fetch *f, const struct cas_digest *digest, bool background,
		      struct cas_flight **out) REQUIRES(f->lock)
{
	struct cas_flight *flight = find_locked(f, digest);
	int ret;

	if (f->ending)
		return -ECANCELED;
	if (flight) {
		f->stats.nr_joined += !background;
		/* Somebody waits for it now: to the front. */
		if (!background && flight->task.background && flight->task.queued) {
			cas_fetch_unqueue_locked(f, &flight->task);
			flight->task.background = false;
			flight->call.background = false;
			/* There is a thread: it was queued before. */
			(void)cas_fetch_submit_locked(f, &flight->task);
		}
		*out = flight;
		return 0;
	}
	flight = flight_new(digest, background);
	ret = flight ? enter_locked(f, flight) : -ENOMEM;
	if (ret == 0)
		ret = cas_fetch_submit_locked(f, &flight->task);
	if (ret < 0) {
		if (flight) {
			leave_locked(f, flight);
			flight_free(flight);
		}
		return ret;
	}
	*out = flight;
	return 0;
}

static int begin(struct cas_fetch *fetch, const struct cas_digest *digest, bool background,
		 struct cas_fetch_waiter *waiter)
{
	struct cas_flight *flight = NULL;
	int ret;

	lock_take(&fetch->lock);
	ret = get_locked(fetch, digest, background, &flight);
	if (ret == 0) {
		waiter->flight = flight;
		waiter->next = flight->waiters;
		flight->waiters = waiter;
	}
	lock_drop(&fetch->lock);
	return ret;
}

int cas_fetch_begin(struct cas_fetch *fetch, const struct cas_digest *digest,
		    struct cas_fetch_waiter *waiter)
{
	return begin(fetch, digest, false, waiter);
}

int cas_fetch_begin_ahead(struct cas_fetch *f, const struct cas_digest *digest,
			  struct cas_fetch_waiter *waiter)
{
	return begin(f, digest, true, waiter);
}

bool cas_fetch_call_begin(struct cas_fetch *f, struct cas_fetch_call *call)
{
	bool ending;

	lock_take(&f->lock);
	ending = f->ending;
	if (!ending)
		DL_APPEND(f->calls, call);
	lock_drop(&f->lock);
	return !ending;
}

void cas_fetch_call_end(struct cas_fetch *f, struct cas_fetch_call *call)
{
	lock_take(&f->lock);
	DL_DELETE(f->calls, call);
	lock_drop(&f->lock);
}

bool cas_fetch_leave(struct cas_fetch *fetch, struct cas_fetch_waiter *waiter)
{
	struct cas_flight *flight;
	struct cas_flight *unused = NULL;

	lock_take(&fetch->lock);
	flight = waiter->flight;
	if (flight) {
		struct cas_fetch_waiter **p = &flight->waiters;

		while (*p != waiter)
			p = &(*p)->next;
		*p = waiter->next;
		waiter->flight = NULL;
		/* The last one out; what was foreseen or is part of a batch goes on. */
		if (flight->waiters == NULL && !flight->task.background && !flight->part) {
			leave_locked(fetch, flight);
			if (flight->task.queued) {
				cas_fetch_unqueue_locked(fetch, &flight->task);
				unused = flight;
			} else {
				cas_call_cancel(&flight->call);
			}
		}
	}
	lock_drop(&fetch->lock);
	if (unused)
		flight_free(unused);
	return flight != NULL;
}

struct cas_flight *cas_fetch_claim_part(struct cas_fetch *f, const struct cas_digest *digest)
{
	struct cas_flight *flight = NULL;

	lock_take(&f->lock);
	if (!f->ending && find_locked(f, digest) == NULL) {
		flight = flight_new(digest, true);
		if (flight && enter_locked(f, flight) < 0) {
			flight_free(flight);
			flight = NULL;
		}
		if (flight)
			flight->part = true;
	}
	lock_drop(&f->lock);
	return flight;
}

void cas_fetch_flight_end(struct cas_fetch *f, struct cas_flight *flight, int ret,
			  const struct err *why)
{
	struct cas_fetch_waiter *waiters;
	bool missed;

	lock_take(&f->lock);
	leave_locked(f, flight);
	waiters = steal_ptr(&flight->waiters);
	for (struct cas_fetch_waiter *w = waiters; w; w = w->next)
		w->flight = NULL;
	f->stats.nr_fetched += flight->fetched;
	f->stats.bytes += flight->fetched ? flight->digest.size : 0;
	f->stats.nr_failed += ret < 0 && ret != -ECANCELED;
	missed = ret < 0 && ret != -ECANCELED && waiters;
	lock_drop(&f->lock);
	if (missed)
		cas_store_note_missed(f->store, &flight->digest);
	while (waiters) {
		struct cas_fetch_waiter *next = waiters->next;

		waiters->done(waiters, ret, why);
		waiters = next;
	}
	flight_free(flight);
}

void cas_fetch_stats(struct cas_fetch *fetch, struct cas_fetch_stats *out)
{
	lock_take(&fetch->lock);
	*out = fetch->stats;
	lock_drop(&fetch->lock);
}

/* ---- open and close ---- */

struct cas_fetch *cas_fetch_of(const struct cas_store *store)
{
	return store->fetch;
}

size_t cas_fetch_nr_tiers(const struct cas_fetch *fetch)
{
	return fetch->nr_tiers;
}

struct cas_tier *cas_fetch_tier(const struct cas_fetch *fetch, size_t i)
{
	return fetch->tiers[i];
}

NO_LOCK_CHECK int cas_fetch_open(struct cas_store *store, const char *const *urls, size_t nr,
				 struct cas_fetch **out, struct err *err)
{
	struct cas_fetch *f = calloc(1, sizeof(*f));
	int ret = 0;

	if (f == NULL)
		return -ENOMEM;
	f->store = store;
	lock_init(&f->lock, LOCK_RANK_FETCH, "cas_fetch.lock");
	lock_cond_init(&f->work);
	f->lock_fd = openat(cas_store_dir_fd(store), "lock", O_RDWR | O_CLOEXEC);
	f->tiers = calloc(nr + 1, sizeof(*f->tiers));
	if (f->tiers == NULL)
		ret = -ENOMEM;
	for (size_t i = 0; i < nr && ret == 0; i++) {
		ret = cas_tier_open(urls[i], &f->tiers[i], err);
		if (ret == 0)
			f->nr_tiers++;
	}
	if (ret < 0) {
		cas_fetch_close(f);
		return ret;
	}
	store->fetch = f;
	*out = f;
	return 0;
}

/* Whoever waits in a queue is told; what runs is cancelled and tells itself. */
static void end_all_locked(struct cas_fetch *f) REQUIRES(f->lock)
{
	struct cas_flight *flight;
	struct cas_flight *next;
	struct cas_fetch_tree *tree;
	struct cas_fetch_tree *next_tree;
	struct cas_fetch_call *call;

	f->ending = true;
	DL_FOREACH (f->calls, call)
		cas_call_cancel(&call->call);
	HASH_ITER (hh, f->flights, flight, next)
		cas_call_cancel(&flight->call);
	HASH_ITER (hh, f->trees, tree, next_tree)
		cas_call_cancel(&tree->call);
	(void)pthread_cond_broadcast(&f->work);
}

NO_LOCK_CHECK void cas_fetch_close(struct cas_fetch *fetch)
{
	if (fetch == NULL)
		return;
	if (fetch->store->fetch == fetch)
		fetch->store->fetch = NULL;
	lock_take(&fetch->lock);
	end_all_locked(fetch);
	lock_drop(&fetch->lock);
	for (int i = 0; i < fetch->nr_threads; i++)
		(void)pthread_join(fetch->threads[i], NULL);
	for (size_t i = 0; i < fetch->nr_tiers; i++)
		cas_tier_close(fetch->tiers[i]);
	if (fetch->lock_fd >= 0)
		(void)close(fetch->lock_fd);
	free(fetch->tiers);
	(void)pthread_cond_destroy(&fetch->work);
	lock_fini(&fetch->lock);
	free(fetch);
}
