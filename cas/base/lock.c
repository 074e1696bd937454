/* cas/base/lock.c - ranked locks */
#include "cas/base/lock.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#if defined(CASBOX_LOCK_CHECK)
#define HELD_MAX 16
static _Thread_local const struct lock *held[HELD_MAX];
static _Thread_local int nr_held;

static void check_take(const struct lock *l)
{
	for (int i = 0; i < nr_held; i++) {
		int same_ok = l->rank == LOCK_RANK_INODE;

		if (held[i]->rank > l->rank || (held[i]->rank == l->rank && !same_ok)) {
			(void)fprintf(stderr, "casbox: lock order: took %s while holding %s\n",
				      l->name, held[i]->name);
			abort();
		}
	}
	assert(nr_held < HELD_MAX);
	held[nr_held++] = l;
}

static void check_drop(const struct lock *l)
{
	for (int i = nr_held - 1; i >= 0; i--) {
		if (held[i] == l) {
			held[i] = held[--nr_held];
			return;
		}
	}
	(void)fprintf(stderr, "casbox: dropped %s, which is not held\n", l->name);
	abort();
}
#else
static void check_take(const struct lock *l)
{
	(void)l;
}

static void check_drop(const struct lock *l)
{
	(void)l;
}
#endif

static _Thread_local bool never_waits;
static _Thread_local const _Atomic bool *waits_until;

void lock_thread_never_waits(bool never)
{
	never_waits = never;
}

bool lock_thread_is_prompt(void)
{
	return never_waits;
}

void lock_thread_waits_until(const _Atomic bool *end)
{
	waits_until = end;
}

const _Atomic bool *lock_thread_end(void)
{
	return waits_until;
}

void lock_init(struct lock *l, enum lock_rank rank, const char *name)
{
	(void)pthread_mutex_init(&l->mutex, NULL);
	l->rank = rank;
	l->name = name;
}

void lock_fini(struct lock *l)
{
	(void)pthread_mutex_destroy(&l->mutex);
}

NO_LOCK_CHECK void lock_take(struct lock *l)
{
	check_take(l);
	(void)pthread_mutex_lock(&l->mutex);
}

NO_LOCK_CHECK void lock_drop(struct lock *l)
{
	check_drop(l);
	(void)pthread_mutex_unlock(&l->mutex);
}

int lock_wait(struct lock *l, pthread_cond_t *cond, unsigned long long deadline_ns)
{
	struct timespec ts;

	if (deadline_ns == 0)
		return -pthread_cond_wait(cond, &l->mutex);
	ts.tv_sec = (time_t)(deadline_ns / 1000000000ULL);
	ts.tv_nsec = (long)(deadline_ns % 1000000000ULL);
	return -pthread_cond_timedwait(cond, &l->mutex, &ts);
}

void lock_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(cond, &attr);
	(void)pthread_condattr_destroy(&attr);
}

unsigned long long lock_now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (unsigned long long)ts.tv_sec * 1000000000ULL + (unsigned long long)ts.tv_nsec;
}
