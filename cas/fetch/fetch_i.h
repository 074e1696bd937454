/* cas/fetch/fetch_i.h - what the files of the fetcher share */
#ifndef CAS_FETCH_FETCH_I_H
#define CAS_FETCH_FETCH_I_H

#include <pthread.h>

#include "cas/base/call.h"
#include "cas/base/lock.h"
#include "cas/fetch/fetch.h"
#include "cas/tier.h"

#define HASH_NONFATAL_OOM	     1
#define HASH_FUNCTION(key, len, out) memcpy(&(out), (key), sizeof(out))
#include <uthash.h>

#define CAS_FETCH_THREADS 64

/* Something for a thread to do. It owns the task from run on. */
struct cas_fetch_task {
	void (*run)(struct cas_fetch *fetch, struct cas_fetch_task *task);
	bool background;
	bool queued;		     /* no thread has it yet */
	struct cas_fetch_task *prev; /* of the queue it is in */
	struct cas_fetch_task *next;
};

struct cas_fetch_queue {
	struct cas_fetch_task *head;
	struct cas_fetch_task *tail;
	int nr;
};

/*
 * A blob on its way. QUEUED: in a queue; RUNNING: a thread has it, from the moment it is
 * taken out of the queue. It is in the table
 * until it is done, or doomed because nobody waits any more (RUNNING, cancelled).
 */
struct cas_flight {
	struct cas_fetch_task task; /* first */
	struct cas_digest digest;
	struct cas_call call;
	bool in_table;
	bool fetched; /* it came from a tier */
	bool part;    /* of a batch, which brings it: never in a queue */
	struct cas_fetch_waiter *waiters;
	UT_hash_handle hh;
};

/* Missing Directories below a root, while they are looked for. */
struct cas_fetch_tree {
	struct cas_fetch_task task; /* first */
	struct cas_digest root;
	struct cas_call call;
	UT_hash_handle hh;
};

/* A call to cancel when the fetcher ends. */
struct cas_fetch_call {
	struct cas_call call; /* first */
	struct cas_fetch_call *prev;
	struct cas_fetch_call *next;
};

struct cas_fetch {
	struct cas_store *store;
	struct cas_tier **tiers;
	size_t nr_tiers;
	int lock_fd; /* of its own: OFD locks, a byte a digest */

	struct lock lock; /* guards the rest */
	pthread_cond_t work;
	struct cas_flight *flights;
	struct cas_fetch_tree *trees;
	struct cas_fetch_call *calls; /* of batches nobody waits for */
	struct cas_fetch_queue wanted;
	struct cas_fetch_queue foreseen;
	int nr_idle;
	int nr_background; /* threads with such a task */
	int nr_threads;
	bool ending;
	pthread_t threads[CAS_FETCH_THREADS];
	struct cas_fetch_stats stats;
};

/* Lock held. -EAGAIN: there is no thread, nor can one be started; it stays the caller's. */
int cas_fetch_submit_locked(struct cas_fetch *f, struct cas_fetch_task *task) REQUIRES(f->lock);

/* The blob was brought from the tier and is published: have that recorded. */
void cas_fetch_came(const struct cas_fetch *f, const struct cas_digest *digest,
		    const struct cas_tier *tier);

/* Out of the queue it is in. */
void cas_fetch_unqueue_locked(struct cas_fetch *f, struct cas_fetch_task *task) REQUIRES(f->lock);

/* A flight, which it ends. */
void cas_fetch_flight_run(struct cas_fetch *f, struct cas_fetch_task *task);

/* Is the blob in the store by now? Does not ask tiers. */
bool cas_fetch_is_here(struct cas_fetch *f, const struct cas_digest *digest);

/*
 * Claim a flight for a batch: NULL when it is under way already (or there is no memory).
 * End it with cas_fetch_flight_end, whatever came.
 */
struct cas_flight *cas_fetch_claim_part(struct cas_fetch *f, const struct cas_digest *digest);
void cas_fetch_flight_end(struct cas_fetch *f, struct cas_flight *flight, int ret,
			  const struct err *why);

/*
 * Bring @digests, or as many of them as can be had, and wait for those that others bring.
 * -ECANCELED, -ETIMEDOUT: as @call says. -ENOMEM.
 */
int cas_fetch_batch(struct cas_fetch *f, const struct cas_digest *digests, size_t nr,
		    struct cas_call *call);

/* As cas_fetch_begin, for a blob that nobody waits for but us. */
int cas_fetch_begin_ahead(struct cas_fetch *f, const struct cas_digest *digest,
			  struct cas_fetch_waiter *waiter);

/* While @call runs it is cancelled when the fetcher is closed. False: it is closed. */
bool cas_fetch_call_begin(struct cas_fetch *f, struct cas_fetch_call *call);
void cas_fetch_call_end(struct cas_fetch *f, struct cas_fetch_call *call);

/* The worse of two failures is the one that a later try may mend. */
int cas_fetch_worse(int a, int b);

/* A search, which it frees in the end. */
void cas_fetch_tree_run(struct cas_fetch *f, struct cas_fetch_task *task);

#endif
