/* cas/fetch/pull.c - bring a blob, or a tree with all its files, into the store */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "cas/base/err.h"
#include "cas/base/lock.h"
#include "cas/fetch/fetch.h"
#include "cas/fetch/push.h"
#include "cas/reapi/closure_i.h"
#include "cas/store/store.h"

/*
 * The Directories come first, a level each round trip (cas_fetch_foresee_tree), while the
 * walk waits for one after the other; then files, SLOTS of them at a time.
 */

#define SLOTS	  128
#define CANCEL_NS 50000000ULL

struct slot {
	struct cas_fetch_waiter waiter; /* first */
	struct pull *pull;
	struct cas_digest digest;
	bool busy; /* pull->lock */
};

struct pull {
	struct cas_store *store;
	struct cas_fetch *fetch;
	struct cas_push_progress *progress;
	struct lock lock;
	pthread_cond_t changed;
	size_t nr_busy GUARDED_BY(lock);
	int ret GUARDED_BY(lock);
	struct err *err GUARDED_BY(lock);
	struct slot slots[SLOTS];
};

static void fail_locked(struct pull *p, int ret, const struct err *why) REQUIRES(p->lock)
{
	if (p->ret != 0)
		return;
	p->ret = ret;
	if (p->err)
		*p->err = *why;
}

static void slot_done(struct cas_fetch_waiter *waiter, int ret, const struct err *why)
{
	struct slot *slot = (struct slot *)waiter;
	struct pull *p = slot->pull;

	lock_take(&p->lock);
	slot->busy = false;
	p->nr_busy--;
	if (ret < 0) {
		fail_locked(p, ret, why);
	} else {
		(void)atomic_fetch_add(&p->progress->blobs, 1);
		(void)atomic_fetch_add(&p->progress->bytes, slot->digest.size);
	}
	(void)pthread_cond_broadcast(&p->changed);
	lock_drop(&p->lock);
}

/* Interrupted: nobody waits any more. */
static void leave_all(struct pull *p)
{
	for (size_t i = 0; i < SLOTS; i++) {
		bool busy;

		lock_take(&p->lock);
		busy = p->slots[i].busy;
		lock_drop(&p->lock);
		if (!busy || !cas_fetch_leave(p->fetch, &p->slots[i].waiter))
			continue;
		lock_take(&p->lock);
		p->slots[i].busy = false;
		p->nr_busy--;
		lock_drop(&p->lock);
	}
}

/* Until fewer than @max are under way; then what went wrong so far. */
static int wait_for(struct pull *p, size_t max)
{
	int ret;

	lock_take(&p->lock);
	while (p->nr_busy >= max && (p->ret == 0 || max == 1)) {
		(void)lock_wait(&p->lock, &p->changed, lock_now_ns() + CANCEL_NS);
		if (!atomic_load(&p->progress->cancel))
			continue;
		fail_locked(p, -ECANCELED, &(struct err){.code = -ECANCELED, .msg = "interrupted"});
		lock_drop(&p->lock);
		leave_all(p);
		lock_take(&p->lock);
	}
	ret = p->ret;
	lock_drop(&p->lock);
	return ret;
}

static int start(struct pull *p, const struct cas_digest *digest)
{
	struct slot *slot = NULL;
	int ret;

	lock_take(&p->lock);
	for (size_t i = 0; i < SLOTS && slot == NULL; i++) {
		if (!p->slots[i].busy)
			slot = &p->slots[i];
	}
	slot->busy = true;
	p->nr_busy++;
	lock_drop(&p->lock);
	*slot = (struct slot){.waiter.done = slot_done, .pull = p, .digest = *digest, .busy = true};
	ret = cas_fetch_begin(p->fetch, digest, &slot->waiter);
	if (ret < 0)
		slot_done(&slot->waiter, ret, &(struct err){.code = ret, .msg = "out of memory"});
	return ret;
}

static int pull_files(struct pull *p, const struct cas_digests *files)
{
	int ret = 0;
	int last;

	for (size_t i = 0; i < files->nr; i++) {
		if (cas_store_has(p->store, &files->at[i]) != 1)
			(void)atomic_fetch_add(&p->progress->total, files->at[i].size);
	}
	for (size_t i = 0; i < files->nr && ret == 0; i++) {
		if (cas_store_has(p->store, &files->at[i]) == 1) {
			(void)atomic_fetch_add(&p->progress->blobs, 1);
			(void)atomic_fetch_add(&p->progress->known, 1);
			continue;
		}
		ret = wait_for(p, SLOTS);
		if (ret == 0)
			ret = start(p, &files->at[i]);
	}
	last = wait_for(p, 1);
	return ret < 0 ? ret : last;
}

NO_LOCK_CHECK int cas_pull(struct cas_store *store, struct cas_fetch *fetch, bool is_tree,
			   const struct cas_digest *digest, struct cas_push_progress *progress,
			   struct err *err)
{
	struct pull *p = calloc(1, sizeof(*p));
	struct cas_closure closure;
	int ret;

	if (p == NULL)
		return -ENOMEM;
	p->store = store;
	p->fetch = fetch;
	p->progress = progress;
	p->err = err;
	lock_init(&p->lock, LOCK_RANK_QUEUE, "cas_pull.lock");
	lock_cond_init(&p->changed);
	cas_closure_init(&closure, store, &progress->cancel);
	if (is_tree && !cas_digest_is_empty(digest))
		cas_fetch_foresee_tree(fetch, digest);
	ret = is_tree ? cas_closure_add_tree(&closure, digest, err)
		      : cas_closure_add_file(&closure, digest);
	if (ret == 0) {
		(void)atomic_fetch_add(&progress->blobs, closure.dirs.nr);
		ret = pull_files(p, &closure.files);
	}
	cas_closure_fini(&closure);
	(void)pthread_cond_destroy(&p->changed);
	lock_fini(&p->lock);
	free(p);
	return ret;
}
