/* fs/learn/learn.h - fetch what similar actions have read before somebody asks for it */
#ifndef FS_LEARN_LEARN_H
#define FS_LEARN_LEARN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cas/digest.h"

struct cas_fetch;
struct cas_store;
struct fs_inode;
struct fs_inode_table;
struct meta;

/*
 * Only where there are tiers. Of each kind of action (fs/learn/habit.h) the files are
 * remembered that its sandboxes have read, as far as session one is asked for their bytes:
 * what the kernel has in its cache it does not ask for, so a habit is added to and never
 * replaced. When a sandbox begins, the habit of its kind, or else what most of the habits
 * of the roots that are most like its own have in common, tells which blobs to fetch, in
 * that order, behind everything that somebody waits for. Kept in STORE/run/habits.
 *
 * Nothing depends on it: whatever goes wrong costs only what would have been gained.
 */
struct fs_learn;

/* -ENOMEM, -EAGAIN: no thread. */
int fs_learn_new(struct cas_store *store, struct meta *meta, struct cas_fetch *fetch,
		 struct fs_learn **out);
/* Nothing is begun from now on; what runs is cut off. Before the fetcher is closed. */
void fs_learn_stop(struct fs_learn *learn);
/* After the sessions. NULL is fine, here and everywhere below. */
void fs_learn_free(struct fs_learn *learn);

/* --- what happens; any thread, none of these waits for anything --- */

/* The sandbox @id, with the outputs that were given. */
void fs_learn_begin(struct fs_learn *learn, const char *id, const struct cas_digest *root,
		    const char *const *outputs, size_t nr);
void fs_learn_end(struct fs_learn *learn, const char *id);
/*
 * The beginning of a file was read, below the root of @table in a directory with a
 * sandbox's id. @waited: for a tier.
 */
void fs_learn_read(struct fs_learn *learn, struct fs_inode_table *table,
		   const struct fs_inode *file, bool waited);
/* The kernel has these bytes, so nobody will be seen reading them. */
void fs_learn_pushed(struct fs_learn *learn, const struct cas_digest *digest);

/* --- for people --- */

struct fs_learn_stats {
	uint64_t nr_habits;	/* kinds of actions known now */
	uint64_t nr_foreseen;	/* blobs that were not here and were fetched for a habit */
	uint64_t nr_used;	/* of them: read by the sandbox they were fetched for */
	uint64_t nr_unforeseen; /* other blobs that a reader waited for */
	uint64_t nr_unused;	/* foreseen, and not read when the sandbox ended */
};
void fs_learn_stats(struct fs_learn *learn, struct fs_learn_stats *out);
/* Used of used and unused; used of used and unforeseen. 1 when there were none. */
double fs_learn_precision(const struct fs_learn_stats *stats);
double fs_learn_recall(const struct fs_learn_stats *stats);
/* The same as an object. */
json_t *fs_learn_describe(struct fs_learn *learn);

#endif
