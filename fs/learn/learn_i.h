/* fs/learn/learn_i.h - what the files of the learner share */
#ifndef FS_LEARN_LEARN_I_H
#define FS_LEARN_LEARN_I_H

#include <pthread.h>
#include <stdatomic.h>

#include "cas/base/lock.h"
#include "fs/learn/learn.h"
#include "fs/learn/habit.h"

#define FS_LEARN_THREADS 2 /* that fetch */

/* ---- the habits of a store: table.c; one thread at a time ---- */

struct fs_habits {
	struct fs_habit *all; /* the most recently used first */
	size_t nr;
	size_t nr_paths;
	int dir_fd; /* STORE/run/habits, -1: they are not kept */
};

int fs_habits_open(struct cas_store *store, struct fs_habits *t);
void fs_habits_close(struct fs_habits *t);
/* The habit of that kind, which comes to the front, or NULL. */
struct fs_habit *fs_habits_find(struct fs_habits *t, const struct cas_digest *outputs,
				const struct fs_habit_tops *tops);
/* Its paths, or those of what is most like it: their count; *paths and each malloc'ed. */
size_t fs_habits_paths(struct fs_habits *t, const struct fs_habit *own,
		       const struct fs_habit_tops *tops, char ***paths);
/* A new one to the front; the oldest go that nobody uses. */
void fs_habits_add(struct fs_habits *t, struct fs_habit *habit);
/* Keep it, if it has changed. */
void fs_habits_save(struct fs_habits *t, struct fs_habit *habit);

/* ---- the learner ---- */

enum fs_learn_kind { FS_LEARN_BEGIN, FS_LEARN_END, FS_LEARN_READ, FS_LEARN_PUSHED };

struct fs_learn_event {
	struct fs_learn_event *prev, *next;
	enum fs_learn_kind kind;
	bool waited;		  /* READ */
	struct cas_digest digest; /* BEGIN: the root; READ, PUSHED: the file */
	struct cas_digest other;  /* BEGIN: of the outputs; READ: the directory */
	char text[];		  /* BEGIN, END: the id; READ: the directory's path */
};

struct fs_learn_box;

struct fs_learn {
	struct cas_store *store;
	struct meta *meta;
	struct cas_fetch *fetch;

	struct lock queue_lock; /* a leaf; guards the next three */
	pthread_cond_t queued;
	struct fs_learn_event *events;
	size_t nr_events;
	bool recorder_ends;

	struct lock lock; /* rank QUEUE; guards the rest */
	pthread_cond_t work;
	struct fs_habits habits;
	struct fs_learn_box *boxes;
	struct fs_ahead *aheads; /* waiting or running, in order */
	bool ending;

	pthread_t recorder;
	bool records; /* there is one */
	pthread_t fetchers[FS_LEARN_THREADS];
	int nr_fetchers;
	_Atomic uint64_t nr_foreseen;
	_Atomic uint64_t nr_used;
	_Atomic uint64_t nr_unforeseen;
	_Atomic uint64_t nr_unused;
	_Atomic uint64_t nr_habits;
};

/* A blob that was fetched because of a path. */
struct fs_ahead_blob {
	UT_hash_handle hh;
	struct cas_digest digest;
	bool used;
	char path[];
};

/* Paths to fetch for a sandbox. */
struct fs_ahead {
	struct fs_ahead *prev, *next;
	struct cas_digest root;
	size_t nr_paths;
	char **paths;
	char *id;		     /* of the sandbox */
	struct fs_ahead_blob *blobs; /* in order */
	bool running;		     /* learner's lock: a thread has it */
	_Atomic bool stop;
};

void fs_ahead_free(struct fs_ahead *ahead);
void fs_ahead_blobs_free(struct fs_ahead_blob **blobs);

/*
 * Find the files of @ahead in its root, fetching what Directories that needs, and fill in
 * its blobs with those that are not here. The calling thread must be one that never waits
 * (cas_fetch_never_here). -ECANCELED: it is to stop. -ENOMEM.
 */
int fs_ahead_find(struct cas_store *store, struct meta *meta, struct cas_fetch *fetch,
		  struct fs_ahead *ahead);
/* Which they are, malloc'ed. */
int fs_ahead_digests(const struct fs_ahead *ahead, struct cas_digest **out, size_t *nr);

/*
 * The sandbox @id is told of the blobs that are about to come for it: it may read them at
 * once. Takes them over.
 */
void fs_learn_hand_over(struct fs_learn *l, const char *id, struct fs_ahead_blob *blobs);

/* The threads. */
void *fs_learn_recorder(void *learn);
void *fs_learn_fetcher(void *learn);
/* Sandboxes that have not ended. */
void fs_learn_boxes_free(struct fs_learn *l);

#endif
