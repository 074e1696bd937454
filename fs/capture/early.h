/* fs/capture/early.h - outputs are hashed when their writer closes them */
#ifndef FS_CAPTURE_EARLY_H
#define FS_CAPTURE_EARLY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "cas/put/put.h"

struct cas_store;
struct fs_probes;

/*
 * A thread, at the lowest priority, that hears by fanotify of files on the uppers'
 * filesystem that were made, that a writer closed or that got a new name, and hashes them, or puts
 * them into the store at once, while the action goes on. What it found is a hint: it holds for a
 * file that is still the same one with the same size and times, which it got when nobody had it
 * open for writing or mapped so. Events that get lost cost time only.
 *
 * Of overlays only what is made or renamed is heard: what one writes anew into a file that was
 * there is hashed at finish.
 */
struct fs_early;

/* What is to be done about a file. */
enum fs_early_wish {
	FS_EARLY_NOTHING,
	FS_EARLY_HASH, /* it will be moved into the store, or land there */
	FS_EARLY_PUT,  /* it will be copied: that can be done now */
};

struct fs_early_options {
	struct cas_store *store;
	int dir_fd; /* STORE/sandboxes, borrowed */
	struct fs_probes *probes;
	/*
	 * About the file at @path, below the place of layer @layer of sandbox @id. Called
	 * by the thread, without a lock held.
	 */
	enum fs_early_wish (*wish)(void *ctx, const char *id, size_t layer, const char *path);
	/* May the outputs of sandbox @id still be captured? As above. */
	bool (*is_due)(void *ctx, const char *id);
	void *ctx;
};

/* *out is NULL where it is not allowed or wanted; @probes is told. -ENOMEM. */
int fs_early_new(const struct fs_early_options *opts, struct fs_early **out);
/* NULL is fine. */
void fs_early_free(struct fs_early *early);

struct fs_early_hint {
	struct cas_put_known known;
	bool is_put; /* the store had it then */
};

/*
 * 1 and *out when the file that looks like @st was hashed as such; waits when that is
 * under way. 0: not known. @early may be NULL.
 */
int fs_early_find(struct fs_early *early, const struct stat *st, struct fs_early_hint *out);

/*
 * Sandbox @id is not due any more (is_due says so already): what is known of its files is
 * of no use. @early may be NULL.
 */
void fs_early_forget(struct fs_early *early, const char *id);

/*
 * Outputs are being captured: until the resume no file is begun, for there is no processor to
 * spare. Counted; @early may be NULL.
 */
void fs_early_pause(struct fs_early *early);
void fs_early_resume(struct fs_early *early);

struct fs_early_counts {
	uint64_t nr_hashed; /* files that were hashed, or put, so far */
	uint64_t nr_used;   /* those that fs_early_find knew */
	uint64_t nr_known;  /* of sandboxes that are due, now */
};

/* @early may be NULL. */
void fs_early_count(struct fs_early *early, struct fs_early_counts *out);

#endif
