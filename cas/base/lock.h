/* cas/base/lock.h - ranked locks */
#ifndef CAS_BASE_LOCK_H
#define CAS_BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>

/*
 * Locks are taken in rank order, lowest number first. With CASBOX_LOCK_CHECK (every
 * build but release) taking one out of order, or two of a rank that does not
 * allow it, aborts with both names. Clang checks REQUIRES.
 */
enum lock_rank {
	LOCK_RANK_SESSION = 1,
	LOCK_RANK_INODE_TABLE,
	LOCK_RANK_INODE, /* two at once: parent first, then the lower number */
	LOCK_RANK_BACKING,
	LOCK_RANK_SANDBOX, /* the list of live sandboxes */
	LOCK_RANK_FETCH,
	LOCK_RANK_SHARD,
	LOCK_RANK_LEDGER,
	LOCK_RANK_INDEX,
	LOCK_RANK_QUEUE, /* queues between threads */
	LOCK_RANK_LEAF,
};

#if defined(__clang__)
#define LOCK_ATTR(x) __attribute__((x))
#else
#define LOCK_ATTR(x)
#endif
/* For the reader: in C no clang so far lets an attribute name a sibling of its field. */
#define GUARDED_BY(l)
#define REQUIRES(...) LOCK_ATTR(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) LOCK_ATTR(locks_excluded(__VA_ARGS__))
#define NO_LOCK_CHECK LOCK_ATTR(no_thread_safety_analysis)

struct LOCK_ATTR(capability("mutex")) lock {
	pthread_mutex_t mutex;
	enum lock_rank rank;
	const char *name;
};

/* @name must outlive the lock. */
void lock_init(struct lock *l, enum lock_rank rank, const char *name);
void lock_fini(struct lock *l);
void lock_take(struct lock *l) LOCK_ATTR(acquire_capability(*l));
void lock_drop(struct lock *l) LOCK_ATTR(release_capability(*l));

/* Wait on @cond with @l held; @deadline_ns is CLOCK_MONOTONIC, 0 for none. -ETIMEDOUT or 0. */
int lock_wait(struct lock *l, pthread_cond_t *cond, unsigned long long deadline_ns)
	LOCK_ATTR(requires_capability(*l));

/* A condition variable on CLOCK_MONOTONIC, as lock_wait expects. */
void lock_cond_init(pthread_cond_t *cond);

/*
 * A property of the calling thread, false at its start: it answers the kernel, and must
 * not wait for another machine.
 */
void lock_thread_never_waits(bool never);
bool lock_thread_is_prompt(void);

/* Another: it waits for other machines only while *@end is false; NULL at its start: always. */
void lock_thread_waits_until(const _Atomic bool *end);
const _Atomic bool *lock_thread_end(void);

/* CLOCK_MONOTONIC now, in nanoseconds. */
unsigned long long lock_now_ns(void);

#endif
