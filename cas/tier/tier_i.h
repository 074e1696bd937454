/* cas/tier/tier_i.h - what the files of a tier share */
#ifndef CAS_TIER_TIER_I_H
#define CAS_TIER_TIER_I_H

#include <pthread.h>

#include "cas/base/lock.h"
#include "cas/tier/transport.h"
#include "cas/tier/url.h"

/*
 * The breaker is CLOSED (open_until_ns 0), OPEN until open_until_ns, or HALF OPEN after
 * that: then one attempt (@probing) goes through and decides.
 */
struct cas_tier {
	struct tier_url url;
	const struct tier_scheme *scheme;
	void *ctx; /* the transport's */
	bool writable;
	unsigned deadline_ms;
	unsigned tries;
	unsigned parallel;

	struct lock lock; /* a leaf; guards the rest */
	pthread_cond_t changed;
	unsigned nr_running;
	unsigned nr_background; /* of them */
	unsigned nr_waiting;	/* calls that somebody waits for */
	unsigned nr_failed;	/* in a row */
	unsigned open_ms;	/* how long the breaker opens next time */
	unsigned long long open_until_ns;
	bool probing;
	struct cas_tier_stats stats;
};

/*
 * One operation, given to tier_run. @attempt makes one try with the fields it knows; it is
 * called again when its result is worth it. @advanced counts bytes that need not move
 * again.
 */
struct tier_op {
	int (*attempt)(struct cas_tier *tier, struct tier_op *op, struct cas_call *call,
		       struct err *err);
	const char *what; /* for messages: "get", "put" */
	uint64_t advanced;
	void *args; /* the operation's own */
};

/* cas_tier_open with this scheme whatever the URL says; NULL: as it says. */
int tier_open_as(const char *url, const struct tier_scheme *scheme, struct cas_tier **out,
		 struct err *err);

/* Attempts, with a slot for each, until one settles it or the deadline is over. */
int tier_run(struct cas_tier *tier, struct tier_op *op, struct cas_call *call, struct err *err);

/* Add to the counters. */
void tier_count_in(struct cas_tier *tier, uint64_t blobs, uint64_t bytes);
void tier_count_out(struct cas_tier *tier, uint64_t blobs, uint64_t bytes);

#endif
