/* cas/base/pool.c - a stack of jobs and the threads that empty it */
#include "cas/base/pool_i.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

static int processors(void)
{
	cpu_set_t set;

	/* Fails when the machine has more processors than the set has bits: plenty, then. */
	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return CAS_POOL_THREADS_MAX;
	return CPU_COUNT(&set);
}

void cas_pool_init(struct cas_pool *pool, int nr_threads)
{
	*pool = (struct cas_pool){0};
	if (nr_threads <= 0)
		nr_threads = processors();
	if (nr_threads > CAS_POOL_THREADS_MAX)
		nr_threads = CAS_POOL_THREADS_MAX;
	pool->max_threads = nr_threads - 1;
	lock_init(&pool->lock, LOCK_RANK_QUEUE, "cas_pool.lock");
	lock_cond_init(&pool->cond);
}

void cas_pool_fini(struct cas_pool *pool)
{
	(void)pthread_cond_destroy(&pool->cond);
	lock_fini(&pool->lock);
}

static void work_locked(struct cas_pool *pool) REQUIRES(pool->lock)
{
	while (pool->nr_open > 0) {
		struct cas_job *job = pool->stack;

		if (job == NULL) {
			pool->nr_idle++;
			(void)lock_wait(&pool->lock, &pool->cond, 0);
			pool->nr_idle--;
			continue;
		}
		pool->stack = job->next;
		lock_drop(&pool->lock);
		job->run(job);
		lock_take(&pool->lock);
		if (--pool->nr_open == 0)
			(void)pthread_cond_broadcast(&pool->cond);
	}
}

static void *thread_main(void *arg)
{
	struct cas_pool *pool = arg;

	lock_take(&pool->lock);
	work_locked(pool);
	lock_drop(&pool->lock);
	return NULL;
}

/* Signals are for the program's own threads. Without a thread the work is done anyway. */
static void thread_start_locked(struct cas_pool *pool) REQUIRES(pool->lock)
{
	sigset_t all;
	sigset_t old;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	if (pthread_create(&pool->threads[pool->nr_threads], NULL, thread_main, pool) == 0)
		pool->nr_threads++;
	else
		pool->max_threads = pool->nr_threads;
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void cas_pool_push(struct cas_pool *pool, struct cas_job *job)
{
	lock_take(&pool->lock);
	/* One waiting job is the caller's next; a second one is worth a thread. */
	if (pool->nr_idle > 0)
		(void)pthread_cond_signal(&pool->cond);
	else if (pool->stack && pool->nr_threads < pool->max_threads)
		thread_start_locked(pool);
	job->next = pool->stack;
	pool->stack = job;
	pool->nr_open++;
	lock_drop(&pool->lock);
}

struct part {
	struct cas_job job;
	void (*run)(void *ctx, size_t from, size_t to);
	void *ctx;
	size_t from;
	size_t to;
};

static void run_part(struct cas_job *job)
{
	struct part part = *(struct part *)job;

	free(job);
	part.run(part.ctx, part.from, part.to);
}

int cas_pool_push_part(struct cas_pool *pool, void (*run)(void *ctx, size_t from, size_t to),
		       void *ctx, size_t from, size_t to)
{
	struct part *part = malloc(sizeof(*part));

	if (part == NULL)
		return -ENOMEM;
	*part = (struct part){.job.run = run_part, .run = run, .ctx = ctx, .from = from, .to = to};
	cas_pool_push(pool, &part->job);
	return 0;
}

void cas_pool_run(struct cas_pool *pool)
{
	int nr;

	lock_take(&pool->lock);
	work_locked(pool);
	assert(pool->stack == NULL);
	nr = pool->nr_threads;
	pool->nr_threads = 0;
	lock_drop(&pool->lock);
	for (int i = 0; i < nr; i++)
		(void)pthread_join(pool->threads[i], NULL);
}
