/* cas/fetch/fetch.h - one download per digest, however many wait for it */
#ifndef CAS_FETCH_FETCH_H
#define CAS_FETCH_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cas/digest.h"

struct buf;
struct cas_store;
struct cas_tier;
struct err;

/*
 * The tiers of a store, in order, and the threads that bring blobs from them. Whoever
 * wants a blob that is not here waits for its flight: one for each digest, in this process
 * and (by a lock that ends with the process) among those that share the store. What
 * arrives is hashed and published before anybody is told, or refused, and the next tier is
 * asked. A failure is told to those that wait and then forgotten.
 *
 * Flights that somebody waits for start before those that are only foreseen, and when the
 * last who waits goes, the flight ends with him.
 */
struct cas_fetch;

/*
 * Open the tiers @urls and attach them to @store, which from now on asks them for what it
 * does not have (cas_store_open_blob and all that is built on it), but not in threads that
 * called cas_fetch_never_here. @store outlives it. Errors as cas_tier_open.
 */
int cas_fetch_open(struct cas_store *store, const char *const *urls, size_t nr,
		   struct cas_fetch **out, struct err *err);
/* Ends all flights; who waits is told -ECANCELED. */
void cas_fetch_close(struct cas_fetch *fetch);

/* The fetcher of a store, or NULL. */
struct cas_fetch *cas_fetch_of(const struct cas_store *store);

/* The tiers, for whoever publishes to them. */
size_t cas_fetch_nr_tiers(const struct cas_fetch *fetch);
struct cas_tier *cas_fetch_tier(const struct cas_fetch *fetch, size_t i);

/*
 * The calling thread answers the kernel: it must never wait for another machine. What is
 * not here is -ENOENT to it, and cas_err_missing names the blob.
 */
void cas_fetch_never_here(bool never);

/*
 * From now on the calling thread waits for blobs only while *@end is false: each wait that
 * is given no cancel of its own has this one. NULL: as long as it takes.
 */
void cas_fetch_here_until(const _Atomic bool *end);

/*
 * Wait until the blob is in the store. -ENOENT: it is in no tier, and each was asked.
 * -EAGAIN, -ETIMEDOUT, -EACCES, -EPROTO: some could not be asked (cas/tier.h).
 * -EBADMSG: only wrong bytes were to be had. -ECANCELED: @cancel (NULL: that of the
 * thread, if any) became true (looked at every 50 ms), or the fetcher was closed. -EROFS: this
 * store is read-only, so nothing can be brought into it.
 */
int cas_fetch_wait(struct cas_fetch *fetch, const struct cas_digest *digest,
		   const _Atomic bool *cancel, struct err *err);

/*
 * Before the blob is read by who can be cancelled: what reads it waits for tiers as well,
 * but until their deadlines. 0 also when it is here, or @fetch (may be NULL) is not to be
 * waited for; else as cas_fetch_wait.
 */
int cas_fetch_bring(struct cas_fetch *fetch, const struct cas_digest *digest,
		    const _Atomic bool *cancel, struct err *err);

/*
 * cas_fetch_wait without a thread that waits. Embed it; it is the flight's from begin until
 * @done is called, or until leave returned true.
 */
struct cas_fetch_waiter {
	/* From a thread of the fetcher, with no lock held. @ret as cas_fetch_wait. */
	void (*done)(struct cas_fetch_waiter *waiter, int ret, const struct err *why);
	struct cas_flight *flight;
	struct cas_fetch_waiter *next;
};

/* -ENOMEM, -EAGAIN (no thread), -ECANCELED: @done will not be called. */
int cas_fetch_begin(struct cas_fetch *fetch, const struct cas_digest *digest,
		    struct cas_fetch_waiter *waiter);
/* True: @done was not called and will not be. False: it has been, or is just now. */
bool cas_fetch_leave(struct cas_fetch *fetch, struct cas_fetch_waiter *waiter);

/*
 * Bring these in, in this order, when nobody waits for something else: as many in a round
 * trip as the first tier takes. Returns when each came or failed, which nobody is told.
 * -ECANCELED: @stop (may be NULL) became true, or the fetcher was closed, and some were
 * not begun. -ENOMEM, -EAGAIN: no memory, no thread.
 */
int cas_fetch_ahead(struct cas_fetch *fetch, const struct cas_digest *digests, size_t nr,
		    const _Atomic bool *stop);

/*
 * In the background, the missing Directories below @root (itself included), a level each
 * round trip, or all at once where a tier sends trees. Directories that are here already
 * are not looked into but for @root. Once per root at a time.
 */
void cas_fetch_foresee_tree(struct cas_fetch *fetch, const struct cas_digest *root);

/*
 * The result of an action from the first tier that has one; -ENOENT: none has, each was
 * asked. Not stored. Blocks.
 */
int cas_fetch_action(struct cas_fetch *fetch, const struct cas_digest *action, struct buf *out,
		     struct err *err);

struct cas_fetch_stats {
	uint64_t nr_asked;   /* waits, or blobs foreseen, that found no local blob */
	uint64_t nr_fetched; /* blobs brought in */
	uint64_t bytes;	     /* of them */
	uint64_t nr_failed;  /* flights */
	uint64_t nr_joined;  /* waits that found a flight under way */
	uint64_t nr_refused; /* answers that were not the blob */
	uint64_t nr_flights; /* under way */
};
void cas_fetch_stats(struct cas_fetch *fetch, struct cas_fetch_stats *out);

/* May this thread wait for a flight? False without a fetcher. */
bool cas_fetch_may_wait(const struct cas_fetch *fetch);

/* @err is about this blob, which was not to be had. */
void cas_err_set_missing(struct err *err, const struct cas_digest *digest);
/* Does the error name a blob that was missing? */
bool cas_err_missing(const struct err *err, struct cas_digest *out);

#endif
