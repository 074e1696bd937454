/* fs/learn/learn.c - which sandbox reads what, and what that says about the next one */
#include "fs/learn/learn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "cas/cas.h"
#include "fs/learn/learn_i.h"
#include "fs/node/inode.h"
#include "meta/meta.h"

/*
 * What happens is queued and worked off by one thread, the recorder, in order; so those
 * who tell of it wait for nothing. It finds the names of what was read, keeps the habits,
 * and gives what is to be fetched to other threads, which hand over the blobs that they
 * are about to bring, to be ticked off when they are read.
 */

#define EVENTS_MAX 65536 /* of reads; more are lost */

/* ---- what happens ---- */

static void tell(struct fs_learn *l, enum fs_learn_kind kind, const struct cas_digest *digest,
		 const struct cas_digest *other, const char *text, bool waited)
{
	struct fs_learn_event *e;

	if (!l)
		return;
	e = calloc(1, sizeof(*e) + strlen(text) + 1);
	if (!e)
		return;
	e->kind = kind;
	e->waited = waited;
	e->digest = *digest;
	e->other = *other;
	(void)strcpy(e->text, text);
	lock_take(&l->queue_lock);
	if (!l->recorder_ends && (l->nr_events < EVENTS_MAX || kind < FS_LEARN_READ)) {
		DL_APPEND(l->events, e);
		l->nr_events++;
		(void)pthread_cond_signal(&l->queued);
		e = NULL;
	}
	lock_drop(&l->queue_lock);
	free(e);
}

static int compare_words(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Which outputs, in whatever order; none: the empty blob. */
static int digest_outputs(const char *const *outputs, size_t nr, struct cas_digest *out)
{
	auto_free const char **sorted = calloc(nr + 1, sizeof(*sorted));
	auto_buf struct buf text = {0};
	int ret = sorted ? 0 : -ENOMEM;

	for (size_t i = 0; ret == 0 && i < nr; i++)
		sorted[i] = outputs[i];
	if (ret == 0)
		qsort(sorted, nr, sizeof(*sorted), compare_words);
	for (size_t i = 0; ret == 0 && i < nr; i++)
		ret = buf_append(&text, sorted[i], strlen(sorted[i]) + 1);
	return ret < 0 ? ret : cas_hash_bytes(buf_str(&text), text.len, out);
}

void fs_learn_begin(struct fs_learn *learn, const char *id, const struct cas_digest *root,
		    const char *const *outputs, size_t nr)
{
	struct cas_digest digest;

	if (learn && digest_outputs(outputs, nr, &digest) == 0)
		tell(learn, FS_LEARN_BEGIN, root, &digest, id, false);
}

void fs_learn_end(struct fs_learn *learn, const char *id)
{
	tell(learn, FS_LEARN_END, &cas_digest_empty, &cas_digest_empty, id, false);
}

void fs_learn_read(struct fs_learn *learn, struct fs_inode_table *table,
		   const struct fs_inode *file, bool waited)
{
	auto_free char *path = NULL;
	struct fs_inode dir;

	if (!learn || file->dir == 0 || !fs_inode_get(table, file->dir, &dir))
		return;
	path = fs_inode_path(table, file->dir);
	if (path)
		tell(learn, FS_LEARN_READ, &file->entry.digest, &dir.entry.digest, path, waited);
}

void fs_learn_pushed(struct fs_learn *learn, const struct cas_digest *digest)
{
	tell(learn, FS_LEARN_PUSHED, digest, &cas_digest_empty, "", false);
}

/* ---- for people ---- */

void fs_learn_stats(struct fs_learn *learn, struct fs_learn_stats *out)
{
	*out = (struct fs_learn_stats){0};
	if (!learn)
		return;
	out->nr_habits = atomic_load(&learn->nr_habits);
	out->nr_foreseen = atomic_load(&learn->nr_foreseen);
	out->nr_used = atomic_load(&learn->nr_used);
	out->nr_unforeseen = atomic_load(&learn->nr_unforeseen);
	out->nr_unused = atomic_load(&learn->nr_unused);
}

static double share(uint64_t part, uint64_t rest)
{
	return part + rest == 0 ? 1 : (double)part / (double)(part + rest);
}

double fs_learn_precision(const struct fs_learn_stats *stats)
{
	return share(stats->nr_used, stats->nr_unused);
}

double fs_learn_recall(const struct fs_learn_stats *stats)
{
	return share(stats->nr_used, stats->nr_unforeseen);
}

json_t *fs_learn_describe(struct fs_learn *learn)
{
	struct fs_learn_stats s;

	fs_learn_stats(learn, &s);
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "habits", (json_int_t)s.nr_habits,
			 "foreseen", (json_int_t)s.nr_foreseen, "used", (json_int_t)s.nr_used,
			 "unused", (json_int_t)s.nr_unused, "unforeseen",
			 (json_int_t)s.nr_unforeseen, "precision", fs_learn_precision(&s), "recall",
			 fs_learn_recall(&s));
}

/* ---- open and close ---- */

static int start_threads(struct fs_learn *l)
{
	int ret = -pthread_create(&l->recorder, NULL, fs_learn_recorder, l);

	l->records = ret == 0;
	if (ret == 0)
		(void)pthread_setname_np(l->recorder, "learn");
	while (ret == 0 && l->nr_fetchers < FS_LEARN_THREADS) {
		ret = -pthread_create(&l->fetchers[l->nr_fetchers], NULL, fs_learn_fetcher, l);
		if (ret == 0)
			(void)pthread_setname_np(l->fetchers[l->nr_fetchers++], "foresee");
	}
	return ret;
}

NO_LOCK_CHECK int fs_learn_new(struct cas_store *store, struct meta *meta, struct cas_fetch *fetch,
			       struct fs_learn **out)
{
	struct fs_learn *l = calloc(1, sizeof(*l));
	int ret;

	if (!l)
		return -ENOMEM;
	l->store = store;
	l->meta = meta;
	l->fetch = fetch;
	lock_init(&l->queue_lock, LOCK_RANK_LEAF, "learner's queue");
	lock_cond_init(&l->queued);
	lock_init(&l->lock, LOCK_RANK_QUEUE, "learner");
	lock_cond_init(&l->work);
	ret = fs_habits_open(store, &l->habits);
	if (ret < 0)
		log_info("habits are not kept in %s/run/habits: %s", cas_store_path(store),
			 strerrordesc_np(-ret));
	atomic_store(&l->nr_habits, l->habits.nr);
	ret = start_threads(l);
	if (ret < 0) {
		fs_learn_free(l);
		return ret;
	}
	*out = l;
	return 0;
}

void fs_learn_stop(struct fs_learn *learn)
{
	struct fs_ahead *ahead;

	if (!learn)
		return;
	lock_take(&learn->lock);
	learn->ending = true;
	DL_FOREACH (learn->aheads, ahead)
		atomic_store(&ahead->stop, true);
	(void)pthread_cond_broadcast(&learn->work);
	lock_drop(&learn->lock);
	while (learn->nr_fetchers > 0)
		(void)pthread_join(learn->fetchers[--learn->nr_fetchers], NULL);
	lock_take(&learn->queue_lock);
	learn->recorder_ends = true;
	(void)pthread_cond_broadcast(&learn->queued);
	lock_drop(&learn->queue_lock);
	if (learn->records)
		(void)pthread_join(learn->recorder, NULL);
	learn->records = false;
}

NO_LOCK_CHECK void fs_learn_free(struct fs_learn *learn)
{
	struct fs_ahead *ahead;
	struct fs_ahead *next;
	struct fs_habit *habit;

	if (!learn)
		return;
	fs_learn_stop(learn);
	DL_FOREACH_SAFE(learn->aheads, ahead, next)
	{
		DL_DELETE(learn->aheads, ahead);
		fs_ahead_free(ahead);
	}
	/* Sandboxes that live on have read what they have read. */
	DL_FOREACH (learn->habits.all, habit)
		fs_habits_save(&learn->habits, habit);
	fs_learn_boxes_free(learn);
	fs_habits_close(&learn->habits);
	(void)pthread_cond_destroy(&learn->queued);
	(void)pthread_cond_destroy(&learn->work);
	lock_fini(&learn->queue_lock);
	lock_fini(&learn->lock);
	free(learn);
}
