/* fs/learn/habit.h - what actions of a kind have read, in order */
#ifndef FS_LEARN_HABIT_H
#define FS_LEARN_HABIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
/* Out of memory is an error to return, not the end of the process. */
#define HASH_NONFATAL_OOM 1
/* Its default hash falls through switch labels, which we do not allow. */
#define HASH_FUNCTION HASH_FNV
#include <uthash.h>

#include "cas/digest.h"

struct buf;
struct meta;

#define FS_HABIT_PATHS_MAX 8192 /* the first ones are kept */
#define FS_HABIT_TOPS_MAX  64	/* names of a root that are compared */
#define FS_HABIT_WASTED	   4	/* so often fetched and not read: it is forgotten */
#define FS_HABIT_FILE_MAX  (16u << 20)

/* An entry of an input root. */
struct fs_habit_top {
	struct cas_digest digest; /* the empty blob for a symlink */
	char *name;
};

struct fs_habit_tops {
	size_t nr;
	struct fs_habit_top at[FS_HABIT_TOPS_MAX];
};

/* A file, by its path from the input root. */
struct fs_habit_path {
	UT_hash_handle hh;
	unsigned wasted; /* fetched since it was last read */
	char path[];
};

/*
 * One kind of action: those with the same declared outputs whose roots look alike. Paths
 * and not digests, so that it holds for a root in which files have changed. No locking.
 */
struct fs_habit {
	struct fs_habit *prev, *next;
	char name[33]; /* of its file */
	struct cas_digest outputs;
	struct fs_habit_tops tops;   /* of the root it was last added to for */
	struct fs_habit_path *paths; /* in the order of the first read */
	unsigned nr_users;
	bool changed; /* it is not as its file says */
};

/* What an input root has, from the index: -ENOENT: not here. */
int fs_habit_tops_of(struct meta *meta, const struct cas_digest *root, struct fs_habit_tops *out);
void fs_habit_tops_fini(struct fs_habit_tops *tops);

/* Of two roots, 0 to 100: half for names in common, half for what they stand for. */
unsigned fs_habit_likeness(const struct fs_habit_tops *a, const struct fs_habit_tops *b);

/* Takes @tops over (it is empty then). NULL: no memory, or no random numbers. */
struct fs_habit *fs_habit_new(const struct cas_digest *outputs, struct fs_habit_tops *tops);
void fs_habit_free(struct fs_habit *habit);

/* It was read: noted once. */
void fs_habit_read(struct fs_habit *habit, const char *path);
/* It was fetched and nobody read it. */
void fs_habit_wasted(struct fs_habit *habit, const char *path);
size_t fs_habit_count(const struct fs_habit *habit);

/*
 * As a file, and back. -EUCLEAN: that is no such file; -ENOMEM. What parses is a habit
 * whatever is in it: paths are names to look up in a tree, and nothing else.
 */
int fs_habit_format(const struct fs_habit *habit, struct buf *out);
int fs_habit_parse(const char *text, size_t len, struct fs_habit **out);

#endif
