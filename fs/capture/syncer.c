/* fs/capture/syncer.c - sync what was captured, soon, and many captures at once */
#include "fs/capture/syncer.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

#include "cas/base/err.h"
#include "cas/base/lock.h"
#include "cas/base/log.h"
#include "cas/store/store.h"

#define DELAY_NS 200000000ULL

struct fs_syncer {
	struct cas_store *store;
	pthread_t thread;
	struct lock lock;
	pthread_cond_t wake;
	bool wanted GUARDED_BY(lock);
	bool ending GUARDED_BY(lock);
};

/* Wait until somebody asks, and then for more of them. False: the end. */
static bool next_batch(struct fs_syncer *s)
{
	unsigned long long end;
	bool go;
	int ret = 0;

	lock_take(&s->lock);
	while (!s->wanted && !s->ending)
		(void)lock_wait(&s->lock, &s->wake, 0);
	end = lock_now_ns() + DELAY_NS;
	while (!s->ending && ret == 0)
		ret = lock_wait(&s->lock, &s->wake, end);
	s->wanted = false;
	go = !s->ending;
	lock_drop(&s->lock);
	return go;
}

static void *syncer_main(void *arg)
{
	struct fs_syncer *s = arg;

	while (next_batch(s)) {
		struct err err = {0};
		int ret = cas_store_sync(s->store, &err);

		if (ret < 0)
			log_error("%s", err_text(&err, ret));
	}
	return NULL;
}

NO_LOCK_CHECK int fs_syncer_new(struct cas_store *store, struct fs_syncer **out, struct err *err)
{
	struct fs_syncer *s = calloc(1, sizeof(*s));
	sigset_t every;
	sigset_t old;
	int code;

	if (s == NULL)
		return err_set(err, -ENOMEM, "no memory for the thread that syncs");
	s->store = store;
	lock_init(&s->lock, LOCK_RANK_QUEUE, "fs_syncer.lock");
	lock_cond_init(&s->wake);
	/* Signals are for the thread that waits for them. */
	(void)sigfillset(&every);
	(void)pthread_sigmask(SIG_SETMASK, &every, &old);
	code = pthread_create(&s->thread, NULL, syncer_main, s);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (code != 0) {
		(void)pthread_cond_destroy(&s->wake);
		lock_fini(&s->lock);
		free(s);
		return err_set(err, -code, "cannot start the thread that syncs");
	}
	*out = s;
	return 0;
}

void fs_syncer_want(struct fs_syncer *s)
{
	lock_take(&s->lock);
	/* Whoever is asked already will not be woken earlier for it. */
	if (!s->wanted) {
		s->wanted = true;
		(void)pthread_cond_signal(&s->wake);
	}
	lock_drop(&s->lock);
}

void fs_syncer_free(struct fs_syncer *s)
{
	if (s == NULL)
		return;
	lock_take(&s->lock);
	s->ending = true;
	(void)pthread_cond_signal(&s->wake);
	lock_drop(&s->lock);
	(void)pthread_join(s->thread, NULL);
	(void)pthread_cond_destroy(&s->wake);
	lock_fini(&s->lock);
	free(s);
}
