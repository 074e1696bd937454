/* cas/spool/spool_mover.c - the table of accepted puts, and the threads that move them */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/err.h"
#include "cas/base/log.h"
#include "cas/spool/spool_i.h"
#include "cas/store/store_i.h"

#define SETTLE_BATCH 256
#define BUSY_MS	     50
#define RETRY_MAX_MS 30000
#define TELL_MS	     10000
#define LOOK_AHEAD   512

struct cas_spool_entry *cas_spool_find_locked(struct cas_spool *s, const uint8_t *hash)
{
	struct cas_spool_entry *e = NULL;

	if (s->table)
		HASH_FIND(hh, s->table, hash, CAS_HASH_SZ, e);
	return e;
}

static void make_ready(struct cas_spool *s, struct cas_spool_entry *e) REQUIRES(s->lock)
{
	e->state = CAS_SPOOL_READY;
	e->next = NULL;
	*s->ready_tail = e;
	s->ready_tail = &e->next;
}

/* Its spool file is gone, unless a put has made another one meanwhile. */
static void remove_entry(struct cas_spool *s, struct cas_spool_entry *e) REQUIRES(s->lock)
{
	if (e->again) {
		e->again = false;
		e->known = false;
		make_ready(s, e);
		return;
	}
	HASH_DEL(s->table, e);
	s->bytes -= e->digest.size;
	free(e);
	(void)pthread_cond_broadcast(&s->room);
}

static void *mover(void *arg);

/* Threads are started as work comes; one that cannot be started is done without. */
void cas_spool_call_mover_locked(struct cas_spool *s)
{
	sigset_t all;
	sigset_t old;

	if (s->nr_idle > 0 || s->nr_threads >= s->opts.nr_movers || s->stop) {
		(void)pthread_cond_signal(&s->work);
		return;
	}
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	if (pthread_create(&s->threads[s->nr_threads], NULL, mover, s) == 0)
		s->nr_threads++;
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
}

struct cas_spool_entry *cas_spool_add_locked(struct cas_spool *s, const struct cas_digest *digest)
{
	struct cas_spool_entry *e = calloc(1, sizeof(*e));

	if (e == NULL)
		return NULL;
	e->digest = *digest;
	HASH_ADD(hh, s->table, digest.hash, CAS_HASH_SZ, e);
	if (e->hh.tbl == NULL) {
		free(e);
		return NULL;
	}
	s->bytes += digest->size;
	e->seq = s->next_seq++;
	make_ready(s, e);
	if (!s->passive)
		cas_spool_call_mover_locked(s);
	return e;
}

/* --- moving --- */

/* Those whose time has come; returns when the next one's does, 0 for never. */
static unsigned long long promote(struct cas_spool *s) REQUIRES(s->lock)
{
	unsigned long long now = lock_now_ns();
	unsigned long long next = 0;
	struct cas_spool_entry *e;
	struct cas_spool_entry *tmp;

	if (s->nr_later == 0)
		return 0;
	HASH_ITER (hh, s->table, e, tmp) {
		if (e->state != CAS_SPOOL_WAITING && e->state != CAS_SPOOL_HELD)
			continue;
		if (e->due_ns <= now && e->state == CAS_SPOOL_WAITING) {
			s->nr_later--;
			make_ready(s, e);
		} else if (next == 0 || e->due_ns < next) {
			next = e->due_ns;
		}
	}
	return next;
}

/*
 * The first whose shard nobody is at: two in one shard would wait for each other's changes
 * there. When there is none near the front, the front.
 */
static struct cas_spool_entry *take_ready(struct cas_spool *s) REQUIRES(s->lock)
{
	struct cas_spool_entry **at = &s->ready;
	struct cas_spool_entry *e;

	for (int i = 0; *at && i < LOOK_AHEAD; i++, at = &(*at)->next) {
		if (s->at_work[cas_layout_shard((*at)->digest.hash)] == 0)
			break;
	}
	if (*at == NULL || s->at_work[cas_layout_shard((*at)->digest.hash)] > 0)
		at = &s->ready;
	e = *at;
	if (e == NULL)
		return NULL;
	*at = e->next;
	if (s->ready_tail == &e->next)
		s->ready_tail = at;
	e->state = CAS_SPOOL_MOVING;
	return e;
}

static struct cas_spool_entry *take_held(struct cas_spool *s) REQUIRES(s->lock)
{
	unsigned long long now = lock_now_ns();
	struct cas_spool_entry *e;
	struct cas_spool_entry *tmp;

	if (s->nr_later == 0)
		return NULL;
	HASH_ITER (hh, s->table, e, tmp) {
		if (e->state == CAS_SPOOL_HELD && e->due_ns <= now) {
			s->nr_later--;
			e->state = CAS_SPOOL_MOVING;
			return e;
		}
	}
	return NULL;
}

static void set_aside(struct cas_spool *s, struct cas_spool_entry *e, enum cas_spool_state state,
		      unsigned long long ms) REQUIRES(s->lock)
{
	e->state = state;
	e->due_ns = lock_now_ns() + ms * CAS_SPOOL_NS_PER_MS;
	s->nr_later++;
}

/* One cause, such as a full disk, keeps thousands: a line each would tell no more. */
static bool is_worth_a_line(struct cas_spool *s) REQUIRES(s->lock)
{
	unsigned long long now = lock_now_ns();

	if (s->told_ns > 0 && now - s->told_ns < TELL_MS * CAS_SPOOL_NS_PER_MS)
		return false;
	s->told_ns = now;
	return true;
}

static void retry_later(struct cas_spool *s, struct cas_spool_entry *e, struct err *why, int ret)
	REQUIRES(s->lock)
{
	unsigned shift = e->attempts < 9 ? e->attempts : 9;
	unsigned long long ms = (unsigned long long)s->opts.retry_ms << shift;

	if ((e->attempts == 0 || e->attempts == CAS_SPOOL_STUCK) && is_worth_a_line(s))
		log_warn("blob %s stays in the spool for now: %s", CAS_DIGEST_TEXT(&e->digest),
			 err_text(why, ret));
	(void)snprintf(s->last_error, sizeof(s->last_error), "%s", err_text(why, ret));
	e->attempts++;
	e->leftover = true; /* a temporary of ours may be there */
	set_aside(s, e, CAS_SPOOL_WAITING, ms < RETRY_MAX_MS ? ms : RETRY_MAX_MS);
	(void)pthread_cond_broadcast(&s->room);
}

/* What a move came to. */
static void finish_move(struct cas_spool *s, struct cas_spool_entry *e, int ret, bool hold,
			struct err *why) REQUIRES(s->lock)
{
	if (ret == -ENOENT || ret == -EBADMSG) {
		remove_entry(s, e);
	} else if (ret == -EBUSY) {
		e->leftover = true;
		set_aside(s, e, CAS_SPOOL_WAITING, BUSY_MS);
	} else if (ret < 0) {
		retry_later(s, e, why, ret);
	} else {
		e->state = CAS_SPOOL_MOVED;
		e->hold = hold;
		e->next = s->moved;
		s->moved = e;
		s->nr_moved++;
	}
}

static void move_one(struct cas_spool *s, struct cas_spool_entry *e) REQUIRES(s->lock)
{
	struct cas_spool_job job = {e->digest, e->stamp, e->known, e->leftover};
	unsigned shard = cas_layout_shard(e->digest.hash);
	struct err why = {0};
	bool hold = false;
	int ret;

	s->at_work[shard]++;
	lock_drop(&s->lock);
	ret = cas_spool_move(s, &job, &hold, &why);
	lock_take(&s->lock);
	s->at_work[shard]--;
	finish_move(s, e, ret, hold, &why);
}

/* The last look at one that was held; its owner has had its chance to remove it. */
static void settle_held(struct cas_spool *s, struct cas_spool_entry *e) REQUIRES(s->lock)
{
	struct err why = {0};
	int ret;

	lock_drop(&s->lock);
	ret = cas_spool_confirm(s, &e->digest);
	if (ret == 1)
		ret = cas_spool_unlink(s, &e->digest) < 0 ? -EIO : 1;
	lock_take(&s->lock);
	if (ret == 1)
		remove_entry(s, e);
	else if (ret == 0)
		make_ready(s, e);
	else
		retry_later(s, e, &why, ret);
}

static void settle_moved(struct cas_spool *s, struct cas_spool_entry *e) REQUIRES(s->lock)
{
	struct err why = {0};
	int ret;

	if (e->hold) {
		set_aside(s, e, CAS_SPOOL_HELD, s->opts.hold_ms);
		(void)pthread_cond_broadcast(&s->room);
		return;
	}
	lock_drop(&s->lock);
	ret = cas_spool_unlink(s, &e->digest);
	lock_take(&s->lock);
	if (ret == 0)
		remove_entry(s, e);
	else
		retry_later(s, e, &why, ret);
}

/* Make what was moved durable, at once; then their spool files have served. */
static void settle(struct cas_spool *s) REQUIRES(s->lock)
{
	struct cas_spool_entry *list = s->moved;
	struct err why = {0};
	int ret;

	s->moved = NULL;
	s->nr_moved = 0;
	s->settling = true;
	lock_drop(&s->lock);
	ret = cas_store_sync_blobs(s->store, &why);
	lock_take(&s->lock);
	while (list) {
		struct cas_spool_entry *e = list;

		list = e->next;
		if (ret < 0)
			retry_later(s, e, &why, ret);
		else
			settle_moved(s, e);
	}
	s->settling = false;
}

/* Of two times the first; 0 is never. */
static unsigned long long earlier(unsigned long long a, unsigned long long b)
{
	return a == 0 || (b > 0 && b < a) ? b : a;
}

static void *mover(void *arg)
{
	struct cas_spool *s = arg;

	lock_take(&s->lock);
	while (!s->stop) {
		struct cas_spool_entry *e = take_ready(s);
		unsigned long long next;

		if (e) {
			move_one(s, e);
		}
		if (s->nr_moved > 0 && !s->settling &&
		    (s->nr_moved >= SETTLE_BATCH || s->ready == NULL)) {
			settle(s);
			(void)cas_spool_move_results_locked(s);
			continue;
		}
		if (e || s->ready || cas_spool_move_results_locked(s))
			continue;
		e = take_held(s);
		if (e) {
			settle_held(s, e);
			continue;
		}
		next = earlier(promote(s), cas_spool_results_due_locked(s));
		if (s->ready)
			continue;
		s->nr_idle++;
		(void)lock_wait(&s->lock, &s->work, next);
		s->nr_idle--;
	}
	/* Durable rows are worth a last sync; what it leaves is found known by the next. */
	if (s->nr_moved > 0 && !s->settling)
		settle(s);
	lock_drop(&s->lock);
	return NULL;
}
