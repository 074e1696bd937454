/* cas/fetch/fetch.c - one download per digest, however many wait for it */
#include "cas/fetch/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/log.h"
#include "cas/fetch/fetch_i.h"
#include "cas/put/put.h"
#include "cas/store/store_i.h"

/*
 * Flights and other tasks are in one of two queues and run on threads that are started as
 * needed. A flight asks one tier after the other, through a put, which hashes: nothing is
 * published under a digest but the bytes that have it.
 *
 * Other processes that share the store: each takes a write lock on a byte that the digest
 * chooses (48 bits of it) in STORE/lock, far beyond the bytes that are locked for other
 * reasons, and looks again once it has it. The lock is the open file description's, so a
 * killed process leaves nothing behind. Who does not get it in CLAIM_MS fetches all the
 * same: two downloads are better than none.
 *
 * A waiter's @flight says where it is in a list; it is NULL once the flight is done with
 * it. So leave knows, under the lock, who of the two was first.
 */

#define CLAIM_MS      30000
#define CLAIM_STEP_MS 10
#define CLAIM_BASE    (1LL << 48)
#define CANCEL_MS     50
#define WRONG_TRIES   2 /* of one tier that sent wrong bytes */

void cas_fetch_never_here(bool never)
{
	lock_thread_never_waits(never);
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

/* ---- threads and queues ---- */

static void queue_add(struct cas_fetch_queue *q, struct cas_fetch_task *task)
{
	task->next = NULL;
	task->prev = q->tail;
	if (q->tail)
		q->tail->next = task;
	else
		q->head = task;
	q->tail = task;
	q->nr++;
	task->queued = true;
}

static void queue_remove(struct cas_fetch_queue *q, struct cas_fetch_task *task)
{
	if (task->prev)
		task->prev->next = task->next;
	else
		q->head = task->next;
	if (task->next)
		task->next->prev = task->prev;
	else
		q->tail = task->prev;
	task->prev = task->next = NULL;
	q->nr--;
	task->queued = false;
}

static struct cas_fetch_queue *queue_of(struct cas_fetch *f, const struct cas_fetch_task *task)
{
	return task->background ? &f->foreseen : &f->wanted;
}

static struct cas_fetch_task *next_locked(struct cas_fetch *f) REQUIRES(f->lock)
{
	struct cas_fetch_task *task = f->wanted.head;

	if (task == NULL && (f->nr_background < CAS_FETCH_THREADS / 2 || f->ending))
		task = f->foreseen.head;
	if (task)
		queue_remove(queue_of(f, task), task);
	return task;
}

static void *thread_main(void *arg)
{
	struct cas_fetch *f = arg;

	lock_take(&f->lock);
	for (;;) {
		struct cas_fetch_task *task = next_locked(f);
		bool background;

		if (task == NULL && f->ending)
			break;
		if (task == NULL) {
			f->nr_idle++;
			(void)lock_wait(&f->lock, &f->work, 0);
			f->nr_idle--;
			continue;
		}
		background = task->background;
		f->nr_background += background;
		lock_drop(&f->lock);
		task->run(f, task);
		lock_take(&f->lock);
		f->nr_background -= background;
	}
	lock_drop(&f->lock);
	return NULL;
}

/* Signals are for the program's own threads. */
static int start_thread_locked(struct cas_fetch *f) REQUIRES(f->lock)
{
	sigset_t all;
	sigset_t old;
	int ret;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(&f->threads[f->nr_threads], NULL, thread_main, f);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (ret != 0)
		return -ret;
	(void)pthread_setname_np(f->threads[f->nr_threads], "fetch");
	f->nr_threads++;
	return 0;
}

/* How many tasks could begin now. Threads that were woken for some still count as idle. */
static int nr_ready_locked(const struct cas_fetch *f) REQUIRES(f->lock)
{
	int background = CAS_FETCH_THREADS / 2 - f->nr_background;

	return f->wanted.nr + (f->foreseen.nr < background ? f->foreseen.nr : background);
}

int cas_fetch_submit_locked(struct cas_fetch *f, struct cas_fetch_task *task)
{
	int ret = 0;

	queue_add(queue_of(f, task), task);
	if (nr_ready_locked(f) > f->nr_idle && f->nr_threads < CAS_FETCH_THREADS)
		ret = start_thread_locked(f);
	/* One is enough for it to be done in the end. */
	if (ret < 0 && f->nr_threads == 0) {
		queue_remove(queue_of(f, task), task);
		return ret;
	}
	(void)pthread_cond_signal(&f->work);
	return 0;
}

/* ---- one blob ---- */

bool cas_fetch_is_here(struct cas_fetch *f, const struct cas_digest *digest)
{
	auto_close int fd = -1;

	return cas_store_open_here(f->store, digest, &fd, NULL) == 0;
}

struct incoming {
	struct cas_store *store;
	struct cas_put *put;
};

static int incoming_write(void *ctx, const void *data, size_t len, struct err *err)
{
	struct incoming *in = ctx;

	return cas_put_write(in->put, data, len, err);
}

static int incoming_restart(void *ctx, struct err *err)
{
	struct incoming *in = ctx;

	cas_put_free(in->put);
	in->put = NULL;
	return cas_put_new(in->store, &in->put, err);
}

static int ask_tier(struct cas_fetch *f, struct cas_tier *tier, struct cas_flight *flight,
		    struct err *err)
{
	struct incoming in = {.store = f->store};
	const struct cas_sink sink = {incoming_write, incoming_restart, &in};
	int ret = cas_put_new(f->store, &in.put, err);

	if (ret == 0)
		ret = cas_tier_get(tier, &flight->digest, &sink, &flight->call, err);
	if (ret == 0) {
		ret = cas_put_publish(in.put, &flight->digest, NULL, err);
		if (ret == -EBADMSG)
			err_set(err, ret, "tier %s sent other bytes as blob %s",
				cas_tier_name(tier), CAS_DIGEST_TEXT(&flight->digest));
	}
	cas_put_free(in.put);
	return ret;
}

/* All tiers, until one has it. */
static int ask_tiers(struct cas_fetch *f, struct cas_flight *flight, struct err *err)
{
	int worst = 0;

	for (size_t i = 0; i < f->nr_tiers; i++) {
		int ret = -EBADMSG;

		for (int tries = 0; tries < WRONG_TRIES && ret == -EBADMSG; tries++) {
			struct err why = {0};

			ret = ask_tier(f, f->tiers[i], flight, &why);
			if (ret == 0 || ret == -ECANCELED)
				return ret;
			if (ret == -EBADMSG) {
				log_warn("%s", err_text(&why, ret));
				lock_take(&f->lock);
				f->stats.nr_refused++;
				lock_drop(&f->lock);
			}
			if (cas_fetch_worse(worst, ret) == ret)
				*err = why;
			worst = cas_fetch_worse(worst, ret);
		}
	}
	if (worst == -ENOENT)
		return err_set(err, worst, "blob %s is in no tier",
			       CAS_DIGEST_TEXT(&flight->digest));
	return err_context(err, worst, "cannot fetch blob %s", CAS_DIGEST_TEXT(&flight->digest));
}

static struct flock claim_of(const struct cas_digest *digest, short type)
{
	long long at = 0;

	for (int i = 0; i < 6; i++)
		at = at << 8 | digest->hash[i];
	return (struct flock){
		.l_type = type, .l_whence = SEEK_SET, .l_start = CLAIM_BASE + at, .l_len = 1};
}

/* Keep other processes from fetching it, too; whoever had it before may have brought it. */
static void claim(struct cas_fetch *f, struct cas_flight *flight)
{
	const struct timespec nap = {.tv_nsec = CLAIM_STEP_MS * 1000000L};
	unsigned long long end = lock_now_ns() + CLAIM_MS * 1000000ULL;
	struct flock fl = claim_of(&flight->digest, F_WRLCK);

	while (f->lock_fd >= 0 && fcntl(f->lock_fd, F_OFD_SETLK, &fl) < 0) {
		if ((errno != EAGAIN && errno != EACCES) || lock_now_ns() >= end ||
		    cas_call_check(&flight->call) < 0)
			return;
		(void)nanosleep(&nap, NULL);
	}
}

static void unclaim(struct cas_fetch *f, const struct cas_digest *digest)
{
	struct flock fl = claim_of(digest, F_UNLCK);

	if (f->lock_fd >= 0)
		(void)fcntl(f->lock_fd, F_OFD_SETLK, &fl);
}

static void flight_run(struct cas_fetch *f, struct cas_fetch_task *task)
{
	struct cas_flight *flight = (struct cas_flight *)task;
	struct err why = {0};
	int ret = 0;

	claim(f, flight);
	if (!cas_fetch_is_here(f, &flight->digest)) {
		ret = ask_tiers(f, flight, &why);
		flight->fetched = ret == 0;
	}
	unclaim(f, &flight->digest);
	if (ret < 0 && task->background)
		log_info("%s", err_text(&why, ret));
	cas_fetch_flight_end(f, flight, ret, &why);
}

/* ---- the table ---- */

static struct cas_flight *flight_new(const struct cas_digest *digest, bool background)
{
	struct cas_flight *flight = calloc(1, sizeof(*flight));

	if (flight == NULL)
		return NULL;
	flight->digest = *digest;
	flight->task.run = flight_run;
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
			queue_remove(&f->foreseen, &flight->task);
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

int cas_fetch_begin(struct cas_fetch *fetch, const struct cas_digest *digest,
		    struct cas_fetch_waiter *waiter)
{
	struct cas_flight *flight = NULL;
	int ret;

	lock_take(&fetch->lock);
	ret = get_locked(fetch, digest, false, &flight);
	if (ret == 0) {
		waiter->flight = flight;
		waiter->next = flight->waiters;
		flight->waiters = waiter;
	}
	lock_drop(&fetch->lock);
	return ret;
}

void cas_fetch_foresee(struct cas_fetch *fetch, const struct cas_digest *digest)
{
	struct cas_flight *flight;

	lock_take(&fetch->lock);
	(void)get_locked(fetch, digest, true, &flight);
	lock_drop(&fetch->lock);
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
				queue_remove(&fetch->wanted, &flight->task);
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

/* In the place of the same, or of the oldest. */
static void remember_locked(struct cas_fetch *f, const struct cas_digest *digest) REQUIRES(f->lock)
{
	struct cas_fetch_failed *place = &f->failed[0];
	struct timespec now;

	for (size_t i = 0; i < CAS_FETCH_FAILED_MAX; i++) {
		if (f->failed[i].when_ns < place->when_ns)
			place = &f->failed[i];
	}
	for (size_t i = 0; i < CAS_FETCH_FAILED_MAX; i++) {
		if (f->failed[i].when_ns && cas_digest_equal(&f->failed[i].digest, digest))
			place = &f->failed[i];
	}
	(void)clock_gettime(CLOCK_REALTIME, &now);
	place->digest = *digest;
	place->when_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

size_t cas_fetch_failed_since(struct cas_fetch *fetch, int64_t since_ns,
			      struct cas_digest out[CAS_FETCH_FAILED_MAX])
{
	size_t nr = 0;

	lock_take(&fetch->lock);
	for (size_t i = 0; i < CAS_FETCH_FAILED_MAX; i++) {
		if (fetch->failed[i].when_ns && fetch->failed[i].when_ns >= since_ns)
			out[nr++] = fetch->failed[i].digest;
	}
	lock_drop(&fetch->lock);
	return nr;
}

void cas_fetch_flight_end(struct cas_fetch *f, struct cas_flight *flight, int ret,
			  const struct err *why)
{
	struct cas_fetch_waiter *waiters;

	lock_take(&f->lock);
	leave_locked(f, flight);
	waiters = steal_ptr(&flight->waiters);
	for (struct cas_fetch_waiter *w = waiters; w; w = w->next)
		w->flight = NULL;
	f->stats.nr_fetched += flight->fetched;
	f->stats.bytes += flight->fetched ? flight->digest.size : 0;
	f->stats.nr_failed += ret < 0 && ret != -ECANCELED;
	if (ret < 0 && ret != -ECANCELED && waiters)
		remember_locked(f, &flight->digest);
	lock_drop(&f->lock);
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

/* ---- to wait ---- */

struct blocked {
	struct cas_fetch_waiter waiter; /* first */
	struct lock lock;
	pthread_cond_t cond;
	bool done;
	int ret;
	struct err *err;
};

static void blocked_done(struct cas_fetch_waiter *waiter, int ret, const struct err *why)
{
	struct blocked *b = (struct blocked *)waiter;

	lock_take(&b->lock);
	b->ret = ret;
	if (ret < 0 && b->err)
		*b->err = *why;
	b->done = true;
	(void)pthread_cond_broadcast(&b->cond);
	lock_drop(&b->lock);
}

static int blocked_wait(struct cas_fetch *fetch, struct blocked *b, const _Atomic bool *cancel)
{
	lock_take(&b->lock);
	while (!b->done) {
		unsigned long long until = cancel ? lock_now_ns() + CANCEL_MS * 1000000ULL : 0;

		(void)lock_wait(&b->lock, &b->cond, until);
		if (!b->done && cancel && atomic_load(cancel)) {
			bool left;

			lock_drop(&b->lock);
			left = cas_fetch_leave(fetch, &b->waiter);
			lock_take(&b->lock);
			if (left) {
				b->ret = -ECANCELED;
				break;
			}
			cancel = NULL; /* it is done, or about to be */
		}
	}
	lock_drop(&b->lock);
	return b->ret;
}

NO_LOCK_CHECK int cas_fetch_wait(struct cas_fetch *fetch, const struct cas_digest *digest,
				 const _Atomic bool *cancel, struct err *err)
{
	struct blocked b = {.waiter.done = blocked_done, .err = err};
	int ret;

	if (cas_store_is_read_only(fetch->store))
		return err_set(err, -EROFS,
			       "blob %s is not here, and cannot be fetched into a read-only store",
			       CAS_DIGEST_TEXT(digest));
	lock_init(&b.lock, LOCK_RANK_LEAF, "cas_fetch.blocked");
	lock_cond_init(&b.cond);
	ret = cas_fetch_begin(fetch, digest, &b.waiter);
	if (ret == 0)
		ret = blocked_wait(fetch, &b, cancel);
	(void)pthread_cond_destroy(&b.cond);
	lock_fini(&b.lock);
	if (ret == -ECANCELED)
		return err_set(err, ret, "blob %s: nobody waits for it any more",
			       CAS_DIGEST_TEXT(digest));
	return ret;
}

int cas_fetch_action(struct cas_fetch *fetch, const struct cas_digest *action, struct buf *out,
		     struct err *err)
{
	int worst = 0;

	for (size_t i = 0; i < fetch->nr_tiers; i++) {
		struct cas_call call;
		struct err why = {0};
		int ret;

		cas_call_init(&call, 0);
		ret = cas_tier_action_get(fetch->tiers[i], action, out, &call, &why);
		cas_call_fini(&call);
		if (ret == 0)
			return 0;
		if (cas_fetch_worse(worst, ret) == ret && err)
			*err = why;
		worst = cas_fetch_worse(worst, ret);
	}
	if (worst == 0 || worst == -ENOENT)
		return err_set(err, -ENOENT, "there is no result of action %s in any tier",
			       CAS_DIGEST_TEXT(action));
	return worst;
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

	f->ending = true;
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
