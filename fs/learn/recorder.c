/* fs/learn/recorder.c - keeps the habits: which sandbox reads what */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "cas/cas.h"
#include "fs/learn/learn_i.h"
#include "meta/meta.h"

/* A sandbox that is alive. */
struct fs_learn_box {
	UT_hash_handle hh;
	struct cas_digest outputs;
	struct fs_habit_tops tops;   /* of its root, until there is a habit of it */
	struct fs_habit *habit;	     /* NULL: none yet */
	struct fs_ahead_blob *blobs; /* that were fetched for it */
	char id[];
};

static struct fs_learn_box *find_box_locked(struct fs_learn *l, const char *id, size_t len)
	REQUIRES(l->lock)
{
	struct fs_learn_box *box;

	HASH_FIND(hh, l->boxes, id, len, box);
	return box;
}

static void free_box_locked(struct fs_learn *l, struct fs_learn_box *box) REQUIRES(l->lock)
{
	HASH_DEL(l->boxes, box);
	fs_habit_tops_fini(&box->tops);
	fs_ahead_blobs_free(&box->blobs);
	free(box);
}

/* To be fetched; nothing when nothing is known. */
static struct fs_ahead *choose_locked(struct fs_learn *l, const struct cas_digest *root,
				      const struct fs_habit *own, const struct fs_habit_tops *tops)
{
	struct fs_ahead *ahead = calloc(1, sizeof(*ahead));

	if (!ahead)
		return NULL;
	ahead->root = *root;
	ahead->nr_paths = fs_habits_paths(&l->habits, own, tops, &ahead->paths);
	if (ahead->nr_paths == 0) {
		fs_ahead_free(ahead);
		return NULL;
	}
	return ahead;
}

static void submit_locked(struct fs_learn *l, struct fs_ahead *ahead, const char *id)
	REQUIRES(l->lock)
{
	if (!ahead)
		return;
	ahead->id = strdup(id);
	if (!ahead->id || l->ending) {
		fs_ahead_free(ahead);
		return;
	}
	DL_APPEND(l->aheads, ahead);
	(void)pthread_cond_signal(&l->work);
}

static void on_begin(struct fs_learn *l, const struct fs_learn_event *e)
{
	size_t len = strlen(e->text);
	struct fs_learn_box *box = calloc(1, sizeof(*box) + len + 1);

	if (!box)
		return;
	(void)strcpy(box->id, e->text);
	box->outputs = e->other;
	if (fs_habit_tops_of(l->meta, &e->digest, &box->tops) < 0) {
		free(box);
		return;
	}
	lock_take(&l->lock);
	HASH_ADD_KEYPTR(hh, l->boxes, box->id, len, box);
	if (box->hh.tbl) {
		box->habit = fs_habits_find(&l->habits, &box->outputs, &box->tops);
		if (box->habit)
			box->habit->nr_users++;
		submit_locked(l, choose_locked(l, &e->digest, box->habit, &box->tops), box->id);
	} else {
		fs_habit_tops_fini(&box->tops);
		free(box);
	}
	lock_drop(&l->lock);
}

/* What was fetched for it and not read was in vain. */
static void settle_locked(struct fs_learn *l, struct fs_learn_box *box) REQUIRES(l->lock)
{
	for (const struct fs_ahead_blob *b = box->blobs; b; b = b->hh.next) {
		if (b->used)
			continue;
		atomic_fetch_add(&l->nr_unused, 1);
		if (box->habit)
			fs_habit_wasted(box->habit, b->path);
	}
	if (!box->habit)
		return;
	/* The latest root is the one to compare the next with; a new habit has it. */
	if (box->tops.nr > 0) {
		fs_habit_tops_fini(&box->habit->tops);
		box->habit->tops = box->tops;
		box->tops.nr = 0;
	}
	box->habit->nr_users--;
	fs_habits_save(&l->habits, box->habit);
}

static void stop_ahead_locked(struct fs_learn *l, const char *id) REQUIRES(l->lock)
{
	struct fs_ahead *ahead;
	struct fs_ahead *next;

	DL_FOREACH_SAFE(l->aheads, ahead, next)
	{
		if (strcmp(ahead->id, id) != 0)
			continue;
		atomic_store(&ahead->stop, true);
		if (ahead->running)
			continue;
		DL_DELETE(l->aheads, ahead);
		fs_ahead_free(ahead);
	}
}

static void on_end(struct fs_learn *l, const struct fs_learn_event *e)
{
	struct fs_learn_box *box;

	lock_take(&l->lock);
	stop_ahead_locked(l, e->text);
	box = find_box_locked(l, e->text, strlen(e->text));
	if (box) {
		settle_locked(l, box);
		free_box_locked(l, box);
	}
	atomic_store(&l->nr_habits, l->habits.nr);
	lock_drop(&l->lock);
}

/* A name in a directory that stands for a blob. */
struct find_name {
	const struct cas_digest *digest;
	char name[CAS_NAME_MAX + 1];
};

static int each_entry(void *ctx, uint64_t index, const struct meta_dirent *entry)
{
	struct find_name *find = ctx;

	if (entry->kind != CAS_NODE_FILE || !cas_digest_equal(&entry->digest, find->digest))
		return 0;
	(void)strcpy(find->name, entry->name);
	return 1;
}

static bool tick_off(struct fs_learn_box *box, const struct cas_digest *digest)
{
	struct fs_ahead_blob *b;
	bool first;

	HASH_FIND(hh, box->blobs, digest, sizeof(*digest), b);
	first = b && !b->used;
	if (b)
		b->used = true;
	return first;
}

/* The first thing that was read in a sandbox of a new kind. */
static bool begin_habit_locked(struct fs_learn *l, struct fs_learn_box *box) REQUIRES(l->lock)
{
	/* Another of the kind may have been as quick. */
	box->habit = fs_habits_find(&l->habits, &box->outputs, &box->tops);
	if (!box->habit) {
		box->habit = fs_habit_new(&box->outputs, &box->tops);
		if (box->habit)
			fs_habits_add(&l->habits, box->habit);
	}
	if (box->habit)
		box->habit->nr_users++;
	return box->habit != NULL;
}

static void note_read_locked(struct fs_learn *l, struct fs_learn_box *box,
			     const struct fs_learn_event *e, const char *path) REQUIRES(l->lock)
{
	struct fs_ahead_blob *b;

	if (!box->habit && !begin_habit_locked(l, box))
		return;
	fs_habit_read(box->habit, path);
	HASH_FIND(hh, box->blobs, &e->digest, sizeof(e->digest), b);
	if (tick_off(box, &e->digest))
		atomic_fetch_add(&l->nr_used, 1);
	else if (e->waited && !b)
		atomic_fetch_add(&l->nr_unforeseen, 1);
}

static void on_read(struct fs_learn *l, const struct fs_learn_event *e)
{
	struct find_name find = {.digest = &e->digest};
	size_t len = strcspn(e->text, "/");
	const char *below = e->text + len + (e->text[len] == '/');
	auto_free char *path = NULL;
	struct fs_learn_box *box;

	/* Any of its names will do: to fetch one is to fetch them all. */
	if (meta_dir_list(l->meta, &e->other, 0, each_entry, &find, NULL) < 0 ||
	    find.name[0] == '\0')
		return;
	if (asprintf(&path, "%s%s%s", below, below[0] ? "/" : "", find.name) < 0) {
		path = NULL;
		return;
	}
	lock_take(&l->lock);
	box = find_box_locked(l, e->text, len);
	if (box)
		note_read_locked(l, box, e, path);
	lock_drop(&l->lock);
}

static void on_pushed(struct fs_learn *l, const struct fs_learn_event *e)
{
	lock_take(&l->lock);
	for (struct fs_learn_box *box = l->boxes; box; box = box->hh.next) {
		if (tick_off(box, &e->digest))
			atomic_fetch_add(&l->nr_used, 1);
	}
	lock_drop(&l->lock);
}

static void record(struct fs_learn *l, const struct fs_learn_event *e)
{
	switch (e->kind) {
	case FS_LEARN_BEGIN:
		on_begin(l, e);
		break;
	case FS_LEARN_END:
		on_end(l, e);
		break;
	case FS_LEARN_READ:
		on_read(l, e);
		break;
	case FS_LEARN_PUSHED:
		on_pushed(l, e);
		break;
	}
}

void *fs_learn_recorder(void *learn)
{
	struct fs_learn *l = learn;

	cas_fetch_never_here(true);
	lock_take(&l->queue_lock);
	while (l->events || !l->recorder_ends) {
		struct fs_learn_event *e = l->events;

		if (!e) {
			(void)lock_wait(&l->queue_lock, &l->queued, 0);
			continue;
		}
		DL_DELETE(l->events, e);
		l->nr_events--;
		lock_drop(&l->queue_lock);
		record(l, e);
		free(e);
		lock_take(&l->queue_lock);
	}
	lock_drop(&l->queue_lock);
	return NULL;
}

void fs_learn_hand_over(struct fs_learn *l, const char *id, struct fs_ahead_blob *blobs)
{
	struct fs_learn_box *box;

	lock_take(&l->lock);
	box = find_box_locked(l, id, strlen(id));
	if (box && !box->blobs) {
		atomic_fetch_add(&l->nr_foreseen, HASH_COUNT(blobs));
		box->blobs = blobs;
		blobs = NULL;
	}
	lock_drop(&l->lock);
	fs_ahead_blobs_free(&blobs);
}

NO_LOCK_CHECK void fs_learn_boxes_free(struct fs_learn *l)
{
	struct fs_learn_box *box;
	struct fs_learn_box *next;

	HASH_ITER (hh, l->boxes, box, next)
		free_box_locked(l, box);
}
