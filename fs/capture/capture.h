/* fs/capture/capture.h - declared outputs of a frozen sandbox become blobs */
#ifndef FS_CAPTURE_CAPTURE_H
#define FS_CAPTURE_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>

#include "cas/reapi/directory.h"
#include "fs/capture/merge.h"
#include "fs/sandbox/outputs.h"

struct cas_landing_list;
struct cas_store;
struct err;
struct fs_crew;
struct fs_derived;
struct fs_early;

/* A growing list of paths, each with a text that may be NULL. Owned. */
struct fs_findings {
	size_t nr;
	struct fs_finding {
		char *path;
		char *text;
	} * found;
};

int fs_findings_add(struct fs_findings *f, const char *path, const char *text);
/* NULL: it is not among them. */
const struct fs_finding *fs_findings_find(const struct fs_findings *f, const char *path);
void fs_findings_fini(struct fs_findings *f);

/* What became of one declared output. */
struct fs_captured {
	bool found;		/* false: missing, or it failed */
	struct cas_node node;	/* its name is not set; @target is owned */
	struct cas_digest tree; /* directories: of the Tree message */
};

/* A file that is about to leave its directory for the store. Borrowed. */
struct fs_moving {
	const char *name;
	const struct stat *st;
};

struct fs_capture_options {
	/* Files may leave the uppers: nobody can write them any more. */
	bool may_move;
	/*
	 * Called before files of one directory may be moved, so that a capture cut short can
	 * be undone. May be NULL. 0: go on, 1: copy these instead, negative: the capture ends.
	 */
	int (*moving)(void *ctx, int dir_fd, const struct fs_moving *files, size_t nr,
		      struct err *err);
	void *moving_ctx;
	/*
	 * Where files that may move are listed instead, past the first few: they are blobs
	 * when the list has landed (cas/landing). NULL: they move.
	 */
	struct cas_landing_list *landing;
	/* Places that showed another file system, and why they are left out; NULL: none. */
	const struct fs_findings *foreign;
	const _Atomic bool *left; /* true: end with -ECANCELED; NULL: never */
	struct fs_crew *crew;	  /* puts files, too; NULL: the calling thread does all */
	struct fs_early *early;	  /* what is known of files already; NULL: nothing */
};

/* @captured goes with the outputs by index. @failed: what could not be captured, and why. */
struct fs_capture {
	size_t nr;
	struct fs_captured *captured;
	struct fs_findings failed;
};

/*
 * Resolve each output by path and put it into the store, following no symlink: the
 * union of the outputs is walked once, so that what two outputs share is hashed once.
 * Untouched inputs are taken by their nodes. Nothing is opened that could block.
 * Blobs are published, durability is the caller's.
 * Fails as a whole only when the store or the tree does; the outputs' own faults are
 * in @failed. @derived may be NULL; Directories of it that are needed are published.
 */
int fs_capture_run(const struct fs_merge *m, struct fs_derived *derived,
		   const struct fs_outputs *outputs, const struct fs_capture_options *opts,
		   struct fs_capture *out, struct err *err);
void fs_capture_fini(struct fs_capture *c);

/* What the action did outside its outputs, as the policy sees it. */
struct fs_changes {
	struct fs_findings stray;   /* new names, topmost only; policy outputs */
	struct fs_findings changed; /* inputs whose content or kind differs, or that are gone */
};

/*
 * Compare what the sandbox shows with its tree, outside declared outputs. @absent names
 * the @nr_absent directories that the tree got for the outputs' sake: losing them is no
 * change. Time goes with what was written, not with the tree.
 */
int fs_changes_find(const struct fs_merge *m, const struct fs_outputs *outputs,
		    enum fs_writable policy, char *const *absent, size_t nr_absent,
		    struct fs_changes *out, struct err *err);
void fs_changes_fini(struct fs_changes *c);

#define FS_WALK_DEPTH_MAX  2100 /* more than PATH_MAX / 2 components */
#define FS_WALK_DEPTH_OPEN 24	/* levels that keep their descriptor */

#endif
