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

/* A thread; in the list of the idle ones until somebody takes it off. */
struct hand {
	LIST_ENTRY(hand) link; /* crew lock */
	struct fs_crew *crew;
	pthread_t thread;
	pthread_cond_t wake;
	bool idle; /* crew lock */
};

LIST_HEAD(hand_list, hand);

struct fs_crew {
	struct lock lock;
	pthread_cond_t done;
	struct work_list list GUARDED_BY(lock);
	struct hand_list idle GUARDED_BY(lock);
	bool stop GUARDED_BY(lock);
	int nr_threads;
	struct hand hands[THREADS_MAX];
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

static void rest_locked(struct fs_crew *crew, struct hand *hand) REQUIRES(crew->lock)
{
	hand->idle = true;
	LIST_INSERT_HEAD(&crew->idle, hand, link);
	while (hand->idle && !crew->stop)
		(void)lock_wait(&crew->lock, &hand->wake, 0);
}

static void *crew_thread(void *arg)
{
	struct hand *hand = arg;
	struct fs_crew *crew = hand->crew;
	struct work *w;

	lock_take(&crew->lock);
	while (!crew->stop) {
		w = next_locked(crew);
		if (w == NULL) {
			rest_locked(crew, hand);
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

/* One that will look for work when it is woken up; NULL: all are at some. */
static struct hand *take_idle_locked(struct fs_crew *crew) REQUIRES(crew->lock)
{
	struct hand *hand = LIST_FIRST(&crew->idle);

	if (hand) {
		LIST_REMOVE(hand, link);
		hand->idle = false;
	}
	return hand;
}

/* Processors of ours but for the one that we are on; false: there is none. */
static bool find_others(cpu_set_t *out)
{
	int cpu = sched_getcpu();

	if (cpu < 0 || cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof(*out), out) < 0)
		return false;
	CPU_CLR((unsigned)cpu, out);
	return CPU_COUNT(out) > 0;
}

/*
 * Where every processor has something to run the kernel wakes up a thread where it ran last:
 * that may be here, where it would have its turn before us, while whoever waits for us is about
 * to leave his. So it is not to be here.
 */
static void wake_elsewhere(struct hand *const *hands, size_t nr)
{
	cpu_set_t others;
	bool found = nr > 0 && find_others(&others);

	for (size_t i = 0; i < nr; i++) {
		if (found)
			(void)pthread_setaffinity_np(hands[i]->thread, sizeof(others), &others);
		(void)pthread_cond_signal(&hands[i]->wake);
	}
}

void fs_crew_run(struct fs_crew *crew, size_t nr, void (*item)(void *ctx, size_t i), void *ctx)
{
	struct work w = {.nr = nr, .item = item, .ctx = ctx};
	struct hand *hands[THREADS_MAX];
	size_t nr_hands = 0;

	if (crew && nr > 1) {
		lock_take(&crew->lock);
		TAILQ_INSERT_TAIL(&crew->list, &w, link);
		while (nr_hands < nr - 1 && (hands[nr_hands] = take_idle_locked(crew)) != NULL)
			nr_hands++;
		lock_drop(&crew->lock);
	}
	wake_elsewhere(hands, nr_hands);
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
	struct hand *hand;

	if (loan == NULL)
		return NULL;
	*loan = (struct fs_crew_loan){
		.work = {.nr = 1, .item = run_loan, .ctx = loan}, .fn = fn, .ctx = ctx};
	lock_take(&crew->lock);
	hand = take_idle_locked(crew);
	if (hand)
		TAILQ_INSERT_TAIL(&crew->list, &loan->work, link);
	lock_drop(&crew->lock);
	if (hand == NULL) {
		free(loan);
		return NULL;
	}
	wake_elsewhere(&hand, 1);
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
		struct hand *hand = &crew->hands[crew->nr_threads];

		hand->crew = crew;
		lock_cond_init(&hand->wake);
		code = pthread_create(&hand->thread, NULL, crew_thread, hand);
		if (code == 0)
			crew->nr_threads++;
		else
			(void)pthread_cond_destroy(&hand->wake);
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
	LIST_INIT(&crew->idle);
	lock_init(&crew->lock, LOCK_RANK_QUEUE, "fs_crew.lock");
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
	for (int i = 0; i < crew->nr_threads; i++)
		(void)pthread_cond_broadcast(&crew->hands[i].wake);
	lock_drop(&crew->lock);
	for (int i = 0; i < crew->nr_threads; i++) {
		(void)pthread_join(crew->hands[i].thread, NULL);
		(void)pthread_cond_destroy(&crew->hands[i].wake);
	}
	(void)pthread_cond_destroy(&crew->done);
	lock_fini(&crew->lock);
	free(crew);
}
