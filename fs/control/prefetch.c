/* fs/control/prefetch.c - blobs that are brought from the tiers before anybody asks */

#include "fs/control/prefetch.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "cas/cas.h"
#include "fs/control/commands.h"
#include "fs/control/control.h"
#include "fs/message/proto_json.h"
#include "fs/report/events.h"
#include "fs/serve/executor.h"

#define NR_THREADS 2
#define TOLD_MAX   16 /* in one tick */

struct prefetch {
	struct fs_job job; /* first */
	struct fs_prefetches *all;
	struct prefetch *next; /* all->lock */
	uint64_t id;
	uint64_t told; /* bytes in the last event; all->lock */
	struct cas_digest digest;
	bool is_tree;
	struct cas_push_progress progress;
};

struct fs_prefetches {
	struct cas_store *store;
	struct cas_fetch *fetch;
	struct fs_events *events;
	struct fs_executor *executor;
	struct lock lock;
	uint64_t last_id GUARDED_BY(lock);
	bool ending GUARDED_BY(lock);
	struct prefetch *list GUARDED_BY(lock);
	struct fs_prefetch_stats stats GUARDED_BY(lock);
};

static void tell(struct prefetch *p, const char *state, const char *error)
{
	const struct cas_push_progress *g = &p->progress;

	if (!p->all->events)
		return;
	fs_event(p->all->events, "prefetch", "{s:I, s:s, s:s, s:I, s:I, s:I, s:o*}", "id",
		 (json_int_t)p->id, "digest", CAS_DIGEST_TEXT(&p->digest), "state", state, "blobs",
		 (json_int_t)atomic_load(&g->blobs), "bytes", (json_int_t)atomic_load(&g->bytes),
		 "total_bytes", (json_int_t)atomic_load(&g->total), "error",
		 error ? fs_json_text(error) : NULL);
}

/* It runs, or waits for its turn, from here on. -ECANCELED: too late. */
static int enter(struct prefetch *p)
{
	struct fs_prefetches *all = p->all;
	bool ending;

	lock_take(&all->lock);
	ending = all->ending;
	if (!ending) {
		p->id = ++all->last_id;
		p->next = all->list;
		all->list = p;
		all->stats.nr_begun++;
		all->stats.nr_running++;
	}
	lock_drop(&all->lock);
	return ending ? -ECANCELED : 0;
}

static void leave(struct prefetch *p, int ret)
{
	uint64_t known = atomic_load(&p->progress.known);
	uint64_t blobs = atomic_load(&p->progress.blobs);
	struct fs_prefetches *all = p->all;
	struct prefetch **at = &all->list;

	lock_take(&all->lock);
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	all->stats.nr_running--;
	all->stats.nr_done += ret == 0;
	all->stats.nr_failed += ret < 0;
	all->stats.nr_blobs += blobs > known ? blobs - known : 0;
	all->stats.bytes += atomic_load(&p->progress.bytes);
	lock_drop(&all->lock);
}

static int run(struct prefetch *p, struct err *err)
{
	int ret = cas_pull(p->all->store, p->all->fetch, p->is_tree, &p->digest, &p->progress, err);

	if (ret < 0)
		log_warn("prefetch of %s: %s", CAS_DIGEST_TEXT(&p->digest), err_text(err, ret));
	tell(p, ret < 0 ? "failed" : "done", ret < 0 ? err_text(err, ret) : NULL);
	leave(p, ret);
	return ret;
}

static void run_job(struct fs_job *job)
{
	struct prefetch *p = (struct prefetch *)job;
	struct err err = {0};

	(void)run(p, &err);
	free(p);
}

NO_LOCK_CHECK int fs_prefetches_new(struct cas_store *store, struct cas_fetch *fetch,
				    struct fs_events *events, struct fs_prefetches **out)
{
	struct fs_prefetches *all = calloc(1, sizeof(*all));
	int ret;

	if (!all)
		return -ENOMEM;
	all->store = store;
	all->fetch = fetch;
	all->events = events;
	lock_init(&all->lock, LOCK_RANK_QUEUE, "prefetches");
	ret = fs_executor_new(NR_THREADS, &all->executor);
	if (ret < 0) {
		fs_prefetches_free(all);
		return ret;
	}
	*out = all;
	return 0;
}

void fs_prefetches_stop(struct fs_prefetches *all)
{
	if (!all)
		return;
	lock_take(&all->lock);
	all->ending = true;
	for (struct prefetch *p = all->list; p; p = p->next)
		atomic_store(&p->progress.cancel, true);
	lock_drop(&all->lock);
}

void fs_prefetches_free(struct fs_prefetches *all)
{
	if (!all)
		return;
	fs_prefetches_stop(all);
	fs_executor_free(all->executor);
	lock_fini(&all->lock);
	free(all);
}

int fs_prefetch_begin(struct fs_prefetches *all, const struct cas_digest *digest, bool is_tree,
		      uint64_t *id)
{
	struct prefetch *p = calloc(1, sizeof(*p));
	int ret;

	if (!p)
		return -ENOMEM;
	*p = (struct prefetch){
		.job.run = run_job, .all = all, .digest = *digest, .is_tree = is_tree};
	ret = enter(p);
	if (ret < 0) {
		free(p);
		return ret;
	}
	*id = p->id;
	fs_executor_submit(all->executor, &p->job);
	return 0;
}

static int add_progress(json_t *answer, const struct cas_push_progress *progress)
{
	json_t *o = json_pack("{s:I, s:I, s:I}", "blobs", (json_int_t)progress->blobs, "known",
			      (json_int_t)progress->known, "bytes", (json_int_t)progress->bytes);
	int ret = o && json_object_update(answer, o) == 0 ? 0 : -ENOMEM;

	json_decref(o);
	return ret;
}

int fs_prefetch_now(struct fs_prefetches *all, const struct cas_digest *digest, bool is_tree,
		    json_t *answer, struct err *err)
{
	struct prefetch p = {.all = all, .digest = *digest, .is_tree = is_tree};
	int ret = enter(&p);

	if (ret == 0)
		ret = run(&p, err);
	return ret == 0 ? add_progress(answer, &p.progress) : ret;
}

/* With the lock, so that none goes meanwhile: what is told is copied out first. */
static size_t copy_running(struct fs_prefetches *all, struct prefetch *out, size_t max)
{
	size_t nr = 0;

	lock_take(&all->lock);
	for (struct prefetch *p = all->list; p && nr < max; p = p->next) {
		uint64_t bytes = atomic_load(&p->progress.bytes);

		if (bytes == p->told)
			continue;
		p->told = bytes;
		out[nr] = (struct prefetch){.all = all, .id = p->id, .digest = p->digest};
		atomic_store(&out[nr].progress.blobs, atomic_load(&p->progress.blobs));
		atomic_store(&out[nr].progress.bytes, bytes);
		atomic_store(&out[nr].progress.total, atomic_load(&p->progress.total));
		nr++;
	}
	lock_drop(&all->lock);
	return nr;
}

void fs_prefetches_tick(struct fs_prefetches *all)
{
	struct prefetch running[TOLD_MAX];
	size_t nr = copy_running(all, running, TOLD_MAX);

	for (size_t i = 0; i < nr; i++)
		tell(&running[i], "running", NULL);
}

void fs_prefetches_stats(struct fs_prefetches *all, struct fs_prefetch_stats *out)
{
	lock_take(&all->lock);
	*out = all->stats;
	lock_drop(&all->lock);
}

static int prefetch_one(struct control_call *call, const char *text, json_t *list, struct err *err)
{
	struct fs_prefetches *all = call->env->prefetches;
	bool is_tree = !control_has(call->req, "blob");
	struct cas_digest digest;
	json_t *item = NULL;
	uint64_t id;
	int ret = control_parse_digest(call, text, &digest, err);

	if (ret == 0 && control_has(call->req, "wait")) {
		item = json_pack("{s:s}", "digest", CAS_DIGEST_TEXT(&digest));
		ret = item ? fs_prefetch_now(all, &digest, is_tree, item, err) : -ENOMEM;
	} else if (ret == 0) {
		ret = fs_prefetch_begin(all, &digest, is_tree, &id);
		if (ret == 0)
			item = json_pack("{s:s, s:I}", "digest", CAS_DIGEST_TEXT(&digest), "id",
					 (json_int_t)id);
	}
	if (ret < 0) {
		json_decref(item);
		return ret;
	}
	return json_array_append_new(list, item) < 0 ? -ENOMEM : 0;
}

int control_prefetch(struct control_call *call, struct err *err)
{
	size_t nr;
	auto_free const char **texts = control_values(call->req, "digest", &nr);
	json_t *list = json_array();
	int ret = texts && list ? 0 : -ENOMEM;

	if (ret == 0 && !call->env->prefetches)
		ret = err_set(err, -ENODEV, "prefetch: no tier is configured to bring blobs from");
	for (size_t i = 0; ret == 0 && i < nr; i++)
		ret = prefetch_one(call, texts[i], list, err);
	if (ret < 0) {
		json_decref(list);
		return ret;
	}
	return control_add(call->answer, "prefetches", list);
}
