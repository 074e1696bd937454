/* fs/serve/executor.c - threads that run what may block, and never serve */
#include "fs/serve/executor.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "cas/cas.h"

struct fs_executor {
	struct lock lock;
	pthread_cond_t wake;
	struct fs_job *head GUARDED_BY(lock);
	struct fs_job **tail GUARDED_BY(lock);
	int nr_jobs GUARDED_BY(lock); /* waiting */
	int nr_idle GUARDED_BY(lock);
	int nr_threads GUARDED_BY(lock);
	bool ending GUARDED_BY(lock);
	int max_threads;
	pthread_t *threads;
};

static struct fs_job *next_job(struct fs_executor *ex)
{
	struct fs_job *job;

	lock_take(&ex->lock);
	ex->nr_idle++;
	while (!ex->head && !ex->ending)
		(void)lock_wait(&ex->lock, &ex->wake, 0);
	ex->nr_idle--;
	job = ex->head;
	if (job) {
		ex->head = job->next;
		ex->nr_jobs--;
		if (!ex->head)
			ex->tail = &ex->head;
	}
	lock_drop(&ex->lock);
	return job;
}

static void *executor_thread(void *arg)
{
	struct fs_executor *ex = arg;
	struct fs_job *job;

	while ((job = next_job(ex)) != NULL)
		job->run(job);
	return NULL;
}

static int start_thread_locked(struct fs_executor *ex) REQUIRES(ex->lock)
{
	int ret = pthread_create(&ex->threads[ex->nr_threads], NULL, executor_thread, ex);

	if (ret != 0)
		return -ret;
	ex->nr_threads++;
	return 0;
}

NO_LOCK_CHECK int fs_executor_new(int max_threads, struct fs_executor **out)
{
	struct fs_executor *ex = calloc(1, sizeof(*ex));
	int ret;

	if (!ex)
		return -ENOMEM;
	ex->threads = calloc((size_t)max_threads, sizeof(*ex->threads));
	if (!ex->threads) {
		free(ex);
		return -ENOMEM;
	}
	lock_init(&ex->lock, LOCK_RANK_QUEUE, "executor queue");
	lock_cond_init(&ex->wake);
	ex->tail = &ex->head;
	ex->max_threads = max_threads;
	/* One thread from the start: a job always finds someone, sooner or later. */
	lock_take(&ex->lock);
	ret = start_thread_locked(ex);
	lock_drop(&ex->lock);
	if (ret < 0) {
		fs_executor_free(ex);
		return ret;
	}
	*out = ex;
	return 0;
}

void fs_executor_submit(struct fs_executor *ex, struct fs_job *job)
{
	job->next = NULL;
	lock_take(&ex->lock);
	*ex->tail = job;
	ex->tail = &job->next;
	ex->nr_jobs++;
	if (ex->nr_jobs > ex->nr_idle && ex->nr_threads < ex->max_threads)
		(void)start_thread_locked(ex);
	lock_drop(&ex->lock);
	/* After: whoever wakes up would only wait again, for the lock. */
	(void)pthread_cond_signal(&ex->wake);
}

NO_LOCK_CHECK void fs_executor_free(struct fs_executor *ex)
{
	if (!ex)
		return;
	lock_take(&ex->lock);
	ex->ending = true;
	(void)pthread_cond_broadcast(&ex->wake);
	lock_drop(&ex->lock);
	for (int i = 0; i < ex->nr_threads; i++)
		(void)pthread_join(ex->threads[i], NULL);
	(void)pthread_cond_destroy(&ex->wake);
	lock_fini(&ex->lock);
	free(ex->threads);
	free(ex);
}
