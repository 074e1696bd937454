/* cas/landing/landing.h - outputs that are in the store before they are in its shards */
#ifndef CAS_LANDING_LANDING_H
#define CAS_LANDING_LANDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cas/digest.h"

struct cas_put_known;
struct cas_store;
struct err;

/*
 * To move a file into its shard takes the kernel longer than to hash a small one, and two
 * threads are no faster at it. So many outputs are not moved while somebody waits: they stay
 * in their directories, and those, as a whole, become STORE/landing/RANDOM:
 *
 *   manifest   which blob each file is, and what it looked like when it was hashed
 *   upper/     the files, with all that lay beside them
 *
 * From the rename that makes it STORE/landing/RANDOM on all blobs of the manifest are in
 * the store, as those in the spool are: whoever looks for one that is not in cas/ moves it
 * there first. The process that serves the store moves all others soon after; what a crash
 * leaves, the next process does that looks for a blob, and all who list blobs wait until
 * there is nothing left. Nothing is moved that does not look as the manifest says without
 * being hashed again, nor after another boot.
 *
 * Only where blobs lie on the store's own filesystem, by the one process that serves it, and
 * not with full durability, which has each file on disk before it counts.
 */

/* --- gathering --- */

/* Files of one directory tree that are to land. */
struct cas_landing_list;

/* May files land? Says so in advance: each of the functions below fails when they may not. */
bool cas_landing_is_on(struct cas_store *store);

/* Of files below @upper_fd, borrowed. -ENOMEM, -EXDEV: it is on another filesystem. */
int cas_landing_list_new(struct cas_store *store, int upper_fd, struct cas_landing_list **out);
void cas_landing_list_free(struct cas_landing_list *list);

/*
 * The path below the list's top of the directory @dir_fd, malloc'ed. NULL: it is not below, too
 * deep for the kernel to name, or nothing may leave it.
 */
char *cas_landing_list_path(const struct cas_landing_list *list, int dir_fd);

/*
 * File @name of @dir_fd, which is at @dir. 1 and *out: it will be a blob when the list has
 * landed, or is one already. 0: it can be none as it lies (cas_put_take says when; it copies).
 * Nobody may be able to write to it any more; @known may be NULL. Any thread.
 */
int cas_landing_offer(struct cas_landing_list *list, int dir_fd, const char *dir, const char *name,
		      const struct cas_put_known *known, struct cas_digest *out, struct err *err);

/* Files that are on it. */
size_t cas_landing_list_count(const struct cas_landing_list *list);

/* As a manifest, into the directory @dir_fd. */
int cas_landing_list_write(const struct cas_landing_list *list, int dir_fd, struct err *err);

/* --- landing --- */

/*
 * The directory @name of @dir_fd, which holds a manifest and upper/, becomes one that has landed.
 * On failure it is where it was.
 */
int cas_landing_take(struct cas_store *store, int dir_fd, const char *name, struct err *err);

/*
 * This process serves the store: files may land, and a thread moves them on. The catalog is set
 * before and stays until the stop, which moves all that can be moved. Does nothing for a
 * read-only store, or blobs elsewhere.
 */
int cas_landing_start(struct cas_store *store, struct err *err);
void cas_landing_stop(struct cas_store *store);

/*
 * Move all that has landed by now. Negative: why not all of it. Waits for another process that
 * is at it. For a store that is read-only: waits a moment for whoever can.
 */
int cas_landing_settle(struct cas_store *store, struct err *err);

/*
 * Somebody looks for that blob, and it is not in cas/. 1: look again, 0: nothing was changed. May
 * be called by threads that answer the kernel: moves one file.
 */
int cas_landing_want(struct cas_store *store, const uint8_t hash[CAS_HASH_SZ]);

/* What waits to be moved, as this process knows it. */
struct cas_landing_backlog {
	uint64_t blobs;
	uint64_t bytes;
	uint64_t failing; /* that could not be moved when it was tried last */
	uint64_t landed;  /* blobs that have landed since the start, moved or not */
};
void cas_landing_backlog(struct cas_store *store, struct cas_landing_backlog *out);

#endif
