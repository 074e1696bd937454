/* cas/fetch/push.c - send blobs, trees and results to a tier */
#include "cas/fetch/push.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/pool_i.h"
#include "cas/reapi/closure_i.h"
#include "cas/store/store.h"
#include "cas/tier.h"

/*
 * All that is to be sent is listed first (closure_i.h): files, then Directories level by
 * level. Lists are sent in chunks, each asked for and then sent by some threads at once;
 * small blobs in batches where the tier takes them.
 */

#define CHUNK	  1024
#define BATCH	  64
#define SMALL_MAX 65536
#define THREADS	  16

struct push {
	struct cas_store *store;
	struct cas_tier *tier;
	struct cas_push_progress *progress;
	struct lock lock; /* a leaf */
	int ret GUARDED_BY(lock);
	struct err *err GUARDED_BY(lock);
};

/* One blob, or a batch of small ones. */
struct send_job {
	struct cas_job job; /* first */
	struct push *push;
	struct cas_digest digests[BATCH];
	size_t nr;
};

static void fail(struct push *p, int ret, const struct err *why)
{
	lock_take(&p->lock);
	if (p->ret == 0) {
		p->ret = ret;
		if (p->err)
			*p->err = *why;
	}
	lock_drop(&p->lock);
}

static bool is_over(struct push *p)
{
	bool over;

	lock_take(&p->lock);
	over = p->ret != 0;
	lock_drop(&p->lock);
	return over || atomic_load(&p->progress->cancel);
}

static void count(struct push *p, const struct cas_digest *digest)
{
	(void)atomic_fetch_add(&p->progress->blobs, 1);
	(void)atomic_fetch_add(&p->progress->bytes, digest->size);
}

static int send_one(struct push *p, const struct cas_digest *digest, struct cas_call *call,
		    struct err *err)
{
	auto_close int fd = -1;
	struct cas_source source;
	int ret = cas_store_open_blob(p->store, digest, &fd, err);

	if (ret < 0)
		return ret;
	source = (struct cas_source){.fd = fd};
	ret = cas_tier_put(p->tier, digest, &source, call, err);
	if (ret == 0)
		count(p, digest);
	return ret;
}

static int sent_one(void *ctx, size_t i, int status, const void *data, size_t len)
{
	struct send_job *job = ctx;

	if (status == 0)
		count(job->push, &job->digests[i]);
	return status;
}

static int send_batch(struct send_job *job, struct cas_call *call, struct err *err)
{
	struct cas_source sources[BATCH];
	size_t nr = 0;
	int ret = 0;

	for (; nr < job->nr && ret == 0; nr++) {
		sources[nr].fd = -1;
		ret = cas_store_open_blob(job->push->store, &job->digests[nr], &sources[nr].fd,
					  err);
	}
	if (ret == 0)
		ret = cas_tier_put_many(job->push->tier, job->digests, sources, job->nr, sent_one,
					job, call, err);
	for (size_t i = 0; i < nr; i++) {
		if (sources[i].fd >= 0)
			(void)close(sources[i].fd);
	}
	return ret;
}

static void send_run(struct cas_job *j)
{
	struct send_job *job = (struct send_job *)j;
	struct push *p = job->push;
	struct cas_call call;
	struct err why = {0};
	int ret;

	if (is_over(p)) {
		free(job);
		return;
	}
	cas_call_init(&call, 0);
	ret = job->nr > 1 ? send_batch(job, &call, &why)
			  : send_one(p, &job->digests[0], &call, &why);
	cas_call_fini(&call);
	if (ret < 0) {
		(void)err_context(&why, ret, "cannot send blob %s",
				  CAS_DIGEST_TEXT(&job->digests[0]));
		fail(p, ret, &why);
	}
	free(job);
}

/* Into @open, which is handed to a thread when it is full; then NULL, or the next. */
static struct send_job *add_job(struct push *p, struct cas_pool *pool, struct send_job *open,
				const struct cas_digest *digest)
{
	bool small = digest->size <= SMALL_MAX && cas_tier_puts_batches(p->tier);

	if (open && (!small || open->nr == BATCH)) {
		cas_pool_push(pool, &open->job);
		open = NULL;
	}
	if (open == NULL) {
		open = calloc(1, sizeof(*open));
		if (open == NULL) {
			fail(p, -ENOMEM, &(struct err){.code = -ENOMEM, .msg = "out of memory"});
			return NULL;
		}
		open->job.run = send_run;
		open->push = p;
	}
	open->digests[open->nr++] = *digest;
	if (!small) {
		cas_pool_push(pool, &open->job);
		open = NULL;
	}
	return open;
}

static int send_missing(struct push *p, const struct cas_digest *digests, size_t nr,
			const bool *missing)
{
	struct cas_pool pool;
	struct send_job *open = NULL;

	cas_pool_init(&pool, THREADS);
	for (size_t i = 0; i < nr; i++) {
		if (!missing[i])
			continue;
		(void)atomic_fetch_add(&p->progress->total, digests[i].size);
		open = add_job(p, &pool, open, &digests[i]);
	}
	if (open)
		cas_pool_push(&pool, &open->job);
	cas_pool_run(&pool);
	cas_pool_fini(&pool);
	if (atomic_load(&p->progress->cancel))
		fail(p, -ECANCELED, &(struct err){.code = -ECANCELED, .msg = "interrupted"});
	return is_over(p) ? p->ret : 0;
}

static int send_chunk(struct push *p, const struct cas_digest *digests, size_t nr)
{
	bool missing[CHUNK];
	struct cas_call call;
	struct err why = {0};
	int ret;

	cas_call_init(&call, 0);
	ret = cas_tier_find_missing(p->tier, digests, nr, missing, &call, &why);
	cas_call_fini(&call);
	if (ret < 0) {
		fail(p, ret, &why);
		return ret;
	}
	for (size_t i = 0; i < nr; i++) {
		(void)atomic_fetch_add(&p->progress->blobs, !missing[i]);
		(void)atomic_fetch_add(&p->progress->known, !missing[i]);
	}
	return send_missing(p, digests, nr, missing);
}

static int send_list(struct push *p, const struct cas_digest *digests, size_t nr)
{
	int ret = 0;

	for (size_t i = 0; i < nr && ret == 0; i += CHUNK)
		ret = send_chunk(p, digests + i, nr - i < CHUNK ? nr - i : CHUNK);
	return ret;
}

/* Files, then Directories from the lowest level to the roots. */
static int send_closure(struct push *p, const struct cas_closure *c)
{
	int ret = send_list(p, c->files.at, c->files.nr);

	for (size_t level = c->nr_levels; level-- > 0 && ret == 0;)
		ret = send_list(p, c->dirs.at + c->levels[level],
				(level + 1 < c->nr_levels ? c->levels[level + 1] : c->dirs.nr) -
					c->levels[level]);
	return ret;
}

static int send_result(struct push *p, const struct cas_digest *action, struct err *err)
{
	auto_buf struct buf result = {0};
	struct cas_call call;
	struct err why = {0};
	int ret = cas_store_action_get(p->store, action, &result, err);

	if (ret < 0)
		return ret;
	cas_call_init(&call, 0);
	ret = cas_tier_action_put(p->tier, action, result.data, result.len, &call, &why);
	cas_call_fini(&call);
	if (ret < 0 && err)
		*err = why;
	return ret;
}

NO_LOCK_CHECK int cas_push(struct cas_store *store, struct cas_tier *tier, enum cas_push_kind kind,
			   const struct cas_digest *digest, struct cas_push_progress *progress,
			   struct err *err)
{
	struct push p = {.store = store, .tier = tier, .progress = progress, .err = err};
	struct cas_closure closure;
	int ret = 0;

	lock_init(&p.lock, LOCK_RANK_LEAF, "cas_push.lock");
	cas_closure_init(&closure, store, &progress->cancel);
	switch (kind) {
	case CAS_PUSH_BLOB:
		ret = cas_closure_add_file(&closure, digest);
		break;
	case CAS_PUSH_TREE:
		ret = cas_closure_add_tree(&closure, digest, err);
		break;
	case CAS_PUSH_ACTION:
		ret = cas_closure_add_action(&closure, digest, err);
		break;
	case CAS_PUSH_OUTPUTS:
		ret = cas_closure_add_outputs(&closure, digest, err);
		break;
	}
	if (ret == 0)
		ret = send_closure(&p, &closure);
	if (ret == 0 && kind == CAS_PUSH_ACTION)
		ret = send_result(&p, digest, err);
	cas_closure_fini(&closure);
	lock_fini(&p.lock);
	return ret;
}
