/* cas/fetch/fetch_wait.c - threads that wait for a blob, or for a result */
#include <errno.h>

#include "cas/base/err.h"
#include "cas/fetch/fetch_i.h"
#include "cas/store/store_i.h"

#define CANCEL_MS 50

struct blocked {
	struct cas_fetch_waiter waiter; /* first */
	struct lock lock;
	pthread_cond_t cond;
	bool done;
	int ret;
	struct err *err;
};

static void blocked_done(struct cas_fetch_waiter *waiter, int ret, const struct err *why)
{
	struct blocked *b = (struct blocked *)waiter;

	lock_take(&b->lock);
	b->ret = ret;
	if (ret < 0 && b->err)
		*b->err = *why;
	b->done = true;
	(void)pthread_cond_broadcast(&b->cond);
	lock_drop(&b->lock);
}

static int blocked_wait(struct cas_fetch *fetch, struct blocked *b, const _Atomic bool *cancel)
{
	lock_take(&b->lock);
	while (!b->done) {
		unsigned long long until = cancel ? lock_now_ns() + CANCEL_MS * 1000000ULL : 0;

		(void)lock_wait(&b->lock, &b->cond, until);
		if (!b->done && cancel && atomic_load(cancel)) {
			bool left;

			lock_drop(&b->lock);
			left = cas_fetch_leave(fetch, &b->waiter);
			lock_take(&b->lock);
			if (left) {
				b->ret = -ECANCELED;
				break;
			}
			cancel = NULL; /* it is done, or about to be */
		}
	}
	lock_drop(&b->lock);
	return b->ret;
}

NO_LOCK_CHECK int cas_fetch_wait(struct cas_fetch *fetch, const struct cas_digest *digest,
				 const _Atomic bool *cancel, struct err *err)
{
	struct blocked b = {.waiter.done = blocked_done, .err = err};
	int ret;

	if (cas_store_is_read_only(fetch->store))
		return err_set(err, -EROFS,
			       "blob %s is not here, and cannot be fetched into a read-only store",
			       CAS_DIGEST_TEXT(digest));
	lock_init(&b.lock, LOCK_RANK_LEAF, "cas_fetch.blocked");
	lock_cond_init(&b.cond);
	ret = cas_fetch_begin(fetch, digest, &b.waiter);
	if (ret == 0)
		ret = blocked_wait(fetch, &b, cancel ? cancel : lock_thread_end());
	(void)pthread_cond_destroy(&b.cond);
	lock_fini(&b.lock);
	if (ret == -ECANCELED)
		return err_set(err, ret, "blob %s: nobody waits for it any more",
			       CAS_DIGEST_TEXT(digest));
	return ret;
}

int cas_fetch_bring(struct cas_fetch *fetch, const struct cas_digest *digest,
		    const _Atomic bool *cancel, struct err *err)
{
	int ret;

	if (!cas_fetch_may_wait(fetch) || cas_digest_is_empty(digest) ||
	    cas_store_has(fetch->store, digest) == 1)
		return 0;
	ret = cas_fetch_wait(fetch, digest, cancel, err);
	if (ret == -ECANCELED && cancel && atomic_load(cancel))
		return err_set(err, ret, "interrupted");
	if (ret < 0)
		cas_err_set_missing(err, digest);
	return ret;
}

int cas_fetch_action(struct cas_fetch *fetch, const struct cas_digest *action, struct buf *out,
		     struct err *err)
{
	int worst = 0;

	for (size_t i = 0; i < fetch->nr_tiers; i++) {
		struct cas_call call;
		struct err why = {0};
		int ret;

		cas_call_init(&call, 0);
		ret = cas_tier_action_get(fetch->tiers[i], action, out, &call, &why);
		cas_call_fini(&call);
		if (ret == 0)
			return 0;
		if (cas_fetch_worse(worst, ret) == ret && err)
			*err = why;
		worst = cas_fetch_worse(worst, ret);
	}
	if (worst == 0 || worst == -ENOENT)
		return err_set(err, -ENOENT, "there is no result of action %s in any tier",
			       CAS_DIGEST_TEXT(action));
	return worst;
}
