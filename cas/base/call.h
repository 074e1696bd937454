/* cas/base/call.h - how long something may take, and who may end it earlier */
#ifndef CAS_BASE_CALL_H
#define CAS_BASE_CALL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cas/base/lock.h"

/*
 * One piece of work that may wait for somebody else's machine. Whoever starts it owns the
 * call; any thread may cancel it, at any time between init and fini.
 *
 * @deadline_ns moves while bytes move, so read it anew for each wait. Whoever blocks where
 * no flag is looked at registers a function that wakes him.
 */
struct cas_call {
	_Atomic unsigned long long deadline_ns; /* CLOCK_MONOTONIC; 0: none */
	/* Of what cas_call_pace has set: by the thread that drives the call. */
	unsigned long long window_ns;
	unsigned long long begun_ns;
	unsigned long long limit_ns;
	uint64_t moved;
	_Atomic bool cancelled;
	bool background;	 /* nobody waits for it: those that somebody waits for go first */
	unsigned retry_after_ms; /* the server's wish after -EAGAIN; transports set it */
	struct lock lock;	 /* held while wake runs */
	void (*wake)(void *ctx) GUARDED_BY(lock);
	void *wake_ctx GUARDED_BY(lock);
};

/* @timeout_ms 0: no deadline of its own, only that of each tier. */
void cas_call_init(struct cas_call *call, unsigned timeout_ms);
/* Nobody may cancel it any more. */
void cas_call_fini(struct cas_call *call);

/* Any thread, any number of times. The registered function is called from here. */
void cas_call_cancel(struct cas_call *call);

/*
 * @wake must not block but for a leaf lock, and must not touch the call. It is called at
 * once when the call is cancelled already. After unregister it is not running and will not
 * run. One at a time.
 */
void cas_call_register(struct cas_call *call, void (*wake)(void *ctx), void *ctx);
void cas_call_unregister(struct cas_call *call);

/*
 * From now on the deadline is @window_ms after the last byte that moved, never after
 * @limit_ns (0: no such limit), and never later than a peer needs that sends
 * CAS_CALL_SLOWEST bytes a second and was silent for @window_ms before.
 */
#define CAS_CALL_SLOWEST 65536
void cas_call_pace(struct cas_call *call, unsigned window_ms, unsigned long long limit_ns);
/* So many bytes went to or came from the peer. */
void cas_call_progress(struct cas_call *call, uint64_t bytes);

/* 0 go on, -ECANCELED, -ETIMEDOUT. */
int cas_call_check(const struct cas_call *call);
/* Milliseconds until the deadline, 0 when it is over, never more than @max. */
unsigned cas_call_left_ms(const struct cas_call *call, unsigned max);

#endif
