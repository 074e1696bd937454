/* fs/capture/crew.c - threads that lend a hand */

/*
 * Work lies on the stack of who brought it, and in a list as long as it has parts that
 * nobody has begun. Parts are handed out by a counter. Who brought it takes it off the
 * list when there are none left, and waits for those who are still at one: nobody else
 * looks at it then.
 */
#include "fs/capture/crew.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "cas/base/err.h"
#include "cas/base/lock.h"

#define THREADS_MAX 8

struct work {
	TAILQ_ENTRY(work) link; /* crew lock */
	unsigned nr_hands;	/* crew lock: threads of the crew that are at it */
	size_t nr;
	void (*item)(void *ctx, size_t i);
	void *ctx;
	_Atomic size_t next;
};

TAILQ_HEAD(work_list, work);

struct fs_crew {
	struct lock lock;
	pthread_cond_t wake;
	pthread_cond_t done;
	struct work_list list GUARDED_BY(lock);
	unsigned nr_idle GUARDED_BY(lock);
	bool stop GUARDED_BY(lock);
	int nr_threads;
	pthread_t threads[THREADS_MAX];
};

static void work_on(struct work *w)
{
	size_t i;

	while ((i = atomic_fetch_add(&w->next, 1)) < w->nr)
		w->item(w->ctx, i);
}

static struct work *next_locked(struct fs_crew *crew) REQUIRES(crew->lock)
{
	struct work *w;

	TAILQ_FOREACH(w, &crew->list, link)
	{
		if (atomic_load(&w->next) < w->nr)
			break;
	}
	return w;
}

static void *crew_thread(void *arg)
{
	struct fs_crew *crew = arg;
	struct work *w;

	lock_take(&crew->lock);
	while (!crew->stop) {
		w = next_locked(crew);
		if (w == NULL) {
			crew->nr_idle++;
			(void)lock_wait(&crew->lock, &crew->wake, 0);
			crew->nr_idle--;
			continue;
		}
		w->nr_hands++;
		lock_drop(&crew->lock);
		work_on(w);
		lock_take(&crew->lock);
		if (--w->nr_hands == 0)
			(void)pthread_cond_broadcast(&crew->done);
	}
	lock_drop(&crew->lock);
	return NULL;
}

void fs_crew_run(struct fs_crew *crew, size_t nr, void (*item)(void *ctx, size_t i), void *ctx)
{
	struct work w = {.nr = nr, .item = item, .ctx = ctx};
	unsigned wanted = 0;

	if (crew && nr > 1) {
		lock_take(&crew->lock);
		TAILQ_INSERT_TAIL(&crew->list, &w, link);
		wanted = crew->nr_idle < nr - 1 ? crew->nr_idle : (unsigned)nr - 1;
		lock_drop(&crew->lock);
	}
	for (unsigned i = 0; i < wanted; i++)
		(void)pthread_cond_signal(&crew->wake);
	work_on(&w);
	if (crew == NULL || nr <= 1)
		return;
	lock_take(&crew->lock);
	TAILQ_REMOVE(&crew->list, &w, link);
	while (w.nr_hands > 0)
		(void)lock_wait(&crew->lock, &crew->done, 0);
	lock_drop(&crew->lock);
}

struct fs_crew_loan {
	struct work work;
	void (*fn)(void *ctx);
	void *ctx;
};

static void run_loan(void *ctx, size_t i)
{
	struct fs_crew_loan *loan = ctx;

	(void)i;
	loan->fn(loan->ctx);
}

struct fs_crew_loan *fs_crew_lend(struct fs_crew *crew, void (*fn)(void *ctx), void *ctx)
{
	struct fs_crew_loan *loan = crew ? calloc(1, sizeof(*loan)) : NULL;
	bool idle;

	if (loan == NULL)
		return NULL;
	*loan = (struct fs_crew_loan){
		.work = {.nr = 1, .item = run_loan, .ctx = loan}, .fn = fn, .ctx = ctx};
	lock_take(&crew->lock);
	idle = crew->nr_idle > 0;
	if (idle)
		TAILQ_INSERT_TAIL(&crew->list, &loan->work, link);
	lock_drop(&crew->lock);
	if (!idle) {
		free(loan);
		return NULL;
	}
	(void)pthread_cond_signal(&crew->wake);
	return loan;
}

bool fs_crew_return(struct fs_crew *crew, struct fs_crew_loan *loan)
{
	bool begun;

	if (loan == NULL)
		return false;
	/* Whoever comes now finds that there is nothing left to begin. */
	begun = atomic_fetch_add(&loan->work.next, 1) > 0;
	lock_take(&crew->lock);
	TAILQ_REMOVE(&crew->list, &loan->work, link);
	while (loan->work.nr_hands > 0)
		(void)lock_wait(&crew->lock, &crew->done, 0);
	lock_drop(&crew->lock);
	free(loan);
	return begun;
}

/* One for each processor, since one of them often waits for the mount helper; alone there is none.
 */
static int threads_wanted(void)
{
	cpu_set_t set;
	int nr = THREADS_MAX;

	/* Fails when the machine has more processors than the set has bits: plenty, then. */
	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		nr = CPU_COUNT(&set) > 1 ? CPU_COUNT(&set) : 0;
	return nr < THREADS_MAX ? nr : THREADS_MAX;
}

/* Signals are for the thread that waits for them. */
static int start_threads(struct fs_crew *crew)
{
	int want = threads_wanted();
	sigset_t every;
	sigset_t old;
	int code = 0;

	(void)sigfillset(&every);
	(void)pthread_sigmask(SIG_SETMASK, &every, &old);
	while (code == 0 && crew->nr_threads < want) {
		code = pthread_create(&crew->threads[crew->nr_threads], NULL, crew_thread, crew);
		crew->nr_threads += code == 0;
	}
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -code;
}

NO_LOCK_CHECK int fs_crew_new(struct fs_crew **out, struct err *err)
{
	struct fs_crew *crew = calloc(1, sizeof(*crew));
	int ret;

	if (crew == NULL)
		return err_set(err, -ENOMEM, "no memory for threads that capture");
	TAILQ_INIT(&crew->list);
	lock_init(&crew->lock, LOCK_RANK_QUEUE, "fs_crew.lock");
	lock_cond_init(&crew->wake);
	lock_cond_init(&crew->done);
	ret = start_threads(crew);
	if (ret < 0) {
		fs_crew_free(crew);
		return err_set(err, ret, "cannot start a thread that captures");
	}
	*out = crew;
	return 0;
}

void fs_crew_free(struct fs_crew *crew)
{
	if (crew == NULL)
		return;
	lock_take(&crew->lock);
	crew->stop = true;
	(void)pthread_cond_broadcast(&crew->wake);
	lock_drop(&crew->lock);
	for (int i = 0; i < crew->nr_threads; i++)
		(void)pthread_join(crew->threads[i], NULL);
	(void)pthread_cond_destroy(&crew->wake);
	(void)pthread_cond_destroy(&crew->done);
	lock_fini(&crew->lock);
	free(crew);
}
