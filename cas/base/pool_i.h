/* cas/base/pool_i.h - a stack of jobs and the threads that empty it */
#ifndef CAS_BASE_POOL_I_H
#define CAS_BASE_POOL_I_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "cas/base/lock.h"

#define CAS_POOL_THREADS_MAX 16

/* Embedded in the caller's struct; owned by the pool from push until run is called. */
struct cas_job {
	struct cas_job *next;
	void (*run)(struct cas_job *job);
};

/*
 * Last in, first out: a walk that pushes directories so goes deep before it goes wide,
 * which bounds the descriptors it holds. The thread that calls cas_pool_run works too;
 * others are started only when jobs wait, so that a small walk costs no thread.
 */
struct cas_pool {
	struct lock lock;
	pthread_cond_t cond;
	/* Guarded by lock, down to nr_threads. */
	struct cas_job *stack;
	unsigned long nr_open; /* waiting or running */
	int nr_idle;
	int nr_threads;
	int max_threads; /* started ones, without the caller */
	pthread_t threads[CAS_POOL_THREADS_MAX];
};

/* @nr_threads counts the caller's; 0: one per processor this process may use. */
void cas_pool_init(struct cas_pool *pool, int nr_threads);
/* From any thread, also from within a job; never fails. */
void cas_pool_push(struct cas_pool *pool, struct cas_job *job);
/* The same for a part of a list, from @from to before @to: a job of the pool's. -ENOMEM. */
int cas_pool_push_part(struct cas_pool *pool, void (*run)(void *ctx, size_t from, size_t to),
		       void *ctx, size_t from, size_t to);
/* Return when every job has run, those pushed meanwhile included; threads are gone then. */
void cas_pool_run(struct cas_pool *pool);
void cas_pool_fini(struct cas_pool *pool);

#endif
