/* tools/cmd/progress.c - a line on the terminal while long work runs */
#include "tools/cmd/progress.h"

#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/cas.h"

#define STEP_NS 250000000ULL

struct progress {
	struct progress_source source;
	unsigned long long start_ns;
	pthread_t thread;
	struct lock lock;
	pthread_cond_t cond;
	bool stop GUARDED_BY(lock);
};

const char *progress_size(uint64_t bytes, char out[24])
{
	static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
	uint64_t scale = 1;
	int unit = 0;

	while (unit < 6 && bytes / scale >= 1000) {
		scale *= 1000;
		unit++;
	}
	if (unit == 0)
		(void)snprintf(out, 24, "%llu B", (unsigned long long)bytes);
	else
		(void)snprintf(out, 24, "%llu.%llu %s", (unsigned long long)(bytes / scale),
			       (unsigned long long)(bytes / (scale / 10) % 10), units[unit]);
	return out;
}

static void show(const struct progress *p)
{
	uint64_t count = atomic_load_explicit(p->source.count, memory_order_relaxed);
	uint64_t bytes = atomic_load_explicit(p->source.bytes, memory_order_relaxed);
	uint64_t ms = (lock_now_ns() - p->start_ns) / 1000000 + 1;
	uint64_t rate = (uint64_t)((unsigned __int128)bytes * 1000 / ms);
	uint64_t total = p->source.total_bytes ? *p->source.total_bytes : 0;
	char size[24], speed[24], left[48] = "";

	if (total > bytes && rate > 0)
		(void)snprintf(left, sizeof(left), ", %llu s left",
			       (unsigned long long)((total - bytes) / rate));
	(void)fprintf(stderr, "\r%s: %llu, %s, %s/s%s\033[K", p->source.verb,
		      (unsigned long long)count, progress_size(bytes, size),
		      progress_size(rate, speed), left);
	(void)fflush(stderr);
}

static void *progress_thread(void *arg)
{
	struct progress *p = arg;

	lock_take(&p->lock);
	while (!p->stop) {
		if (lock_wait(&p->lock, &p->cond, lock_now_ns() + STEP_NS))
			show(p);
	}
	lock_drop(&p->lock);
	return NULL;
}

/* Signals are for the main thread. */
static bool start_thread(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
	sigset_t all, old;
	int ret;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_BLOCK, &all, &old);
	ret = pthread_create(thread, NULL, run, arg);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	return ret == 0;
}

/* nftw gives its callback no argument. The total appears when all is counted. */
static uint64_t counted;
static _Atomic uint64_t *count_total;

static int count_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)path;
	(void)at;
	if (type == FTW_F && S_ISREG(st->st_mode))
		counted += (uint64_t)st->st_size;
	return 0;
}

static void *count_thread(void *arg)
{
	for (char *const *path = arg; *path; path++)
		(void)nftw(*path, count_one, 16, FTW_PHYS);
	atomic_store(count_total, counted);
	return NULL;
}

void progress_count(char *const *paths, _Atomic uint64_t *total)
{
	pthread_t thread;

	count_total = total;
	if (isatty(STDERR_FILENO) && start_thread(&thread, count_thread, (void *)(uintptr_t)paths))
		(void)pthread_detach(thread);
}

struct progress *progress_begin(const struct progress_source *source)
{
	struct progress *p;

	if (!isatty(STDERR_FILENO))
		return NULL;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->source = *source;
	p->start_ns = lock_now_ns();
	lock_init(&p->lock, LOCK_RANK_LEAF, "progress");
	lock_cond_init(&p->cond);
	if (start_thread(&p->thread, progress_thread, p))
		return p;
	lock_fini(&p->lock);
	free(p);
	return NULL;
}

void progress_end(struct progress *p)
{
	if (!p)
		return;
	lock_take(&p->lock);
	p->stop = true;
	(void)pthread_cond_signal(&p->cond);
	lock_drop(&p->lock);
	(void)pthread_join(p->thread, NULL);
	(void)fputs("\r\033[K", stderr);
	(void)fflush(stderr);
	(void)pthread_cond_destroy(&p->cond);
	lock_fini(&p->lock);
	free(p);
}
