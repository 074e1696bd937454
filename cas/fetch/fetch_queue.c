/* cas/fetch/fetch_queue.c - tasks of the fetcher, and the threads that do them */
#include <signal.h>

#include "cas/fetch/fetch_i.h"

static void queue_add(struct cas_fetch_queue *q, struct cas_fetch_task *task)
{
	task->next = NULL;
	task->prev = q->tail;
	if (q->tail)
		q->tail->next = task;
	else
		q->head = task;
	q->tail = task;
	q->nr++;
	task->queued = true;
}

static void queue_remove(struct cas_fetch_queue *q, struct cas_fetch_task *task)
{
	if (task->prev)
		task->prev->next = task->next;
	else
		q->head = task->next;
	if (task->next)
		task->next->prev = task->prev;
	else
		q->tail = task->prev;
	task->prev = task->next = NULL;
	q->nr--;
	task->queued = false;
}

static struct cas_fetch_queue *queue_of(struct cas_fetch *f, const struct cas_fetch_task *task)
{
	return task->background ? &f->foreseen : &f->wanted;
}

void cas_fetch_unqueue_locked(struct cas_fetch *f, struct cas_fetch_task *task)
{
	queue_remove(queue_of(f, task), task);
}

static struct cas_fetch_task *next_locked(struct cas_fetch *f) REQUIRES(f->lock)
{
	struct cas_fetch_task *task = f->wanted.head;

	if (task == NULL && (f->nr_background < CAS_FETCH_THREADS / 2 || f->ending))
		task = f->foreseen.head;
	if (task)
		queue_remove(queue_of(f, task), task);
	return task;
}

static void *thread_main(void *arg)
{
	struct cas_fetch *f = arg;

	lock_take(&f->lock);
	for (;;) {
		struct cas_fetch_task *task = next_locked(f);
		bool background;

		if (task == NULL && f->ending)
			break;
		if (task == NULL) {
			f->nr_idle++;
			(void)lock_wait(&f->lock, &f->work, 0);
			f->nr_idle--;
			continue;
		}
		background = task->background;
		f->nr_background += background;
		lock_drop(&f->lock);
		task->run(f, task);
		lock_take(&f->lock);
		f->nr_background -= background;
	}
	lock_drop(&f->lock);
	return NULL;
}

/* Signals are for the program's own threads. */
static int start_thread_locked(struct cas_fetch *f) REQUIRES(f->lock)
{
	sigset_t all;
	sigset_t old;
	int ret;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(&f->threads[f->nr_threads], NULL, thread_main, f);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (ret != 0)
		return -ret;
	(void)pthread_setname_np(f->threads[f->nr_threads], "fetch");
	f->nr_threads++;
	return 0;
}

/* How many tasks could begin now. Threads that were woken for some still count as idle. */
static int nr_ready_locked(const struct cas_fetch *f) REQUIRES(f->lock)
{
	int background = CAS_FETCH_THREADS / 2 - f->nr_background;

	return f->wanted.nr + (f->foreseen.nr < background ? f->foreseen.nr : background);
}

int cas_fetch_submit_locked(struct cas_fetch *f, struct cas_fetch_task *task)
{
	int ret = 0;

	queue_add(queue_of(f, task), task);
	if (nr_ready_locked(f) > f->nr_idle && f->nr_threads < CAS_FETCH_THREADS)
		ret = start_thread_locked(f);
	/* One is enough for it to be done in the end. */
	if (ret < 0 && f->nr_threads == 0) {
		queue_remove(queue_of(f, task), task);
		return ret;
	}
	(void)pthread_cond_signal(&f->work);
	return 0;
}
