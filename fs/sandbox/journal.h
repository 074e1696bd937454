/* fs/sandbox/journal.h - files that a capture moved, so that a cut one can be undone */
#ifndef FS_SANDBOX_JOURNAL_H
#define FS_SANDBOX_JOURNAL_H

#include <stddef.h>

struct cas_digest;
struct cas_store;
struct err;
struct fs_moving;

#define FS_JOURNAL_NAME "moved" /* beside the record */

/*
 * A line a file, written before the file may leave its name for the store. A move keeps
 * the inode, by which the blob is found again. Any thread notes.
 */
struct fs_journal;

/* In the sandbox's directory @dir_fd, which outlives it; appends to what is there. */
int fs_journal_open(int dir_fd, struct fs_journal **out, struct err *err);
void fs_journal_close(struct fs_journal *j);

/* As fs_capture_options.moving, with the journal as @ctx. */
int fs_journal_moving(void *ctx, int files_dir_fd, const struct fs_moving *files, size_t nr,
		      struct err *err);

/*
 * Give every file of the journal that left its name back to it, from the store, and all
 * of them their mode and time, then drop the journal. No journal is fine. -EUCLEAN: the journal is
 * damaged, or a file is in neither place (named). After any failure the journal is still there:
 * nothing is captured before it could be undone.
 */
int fs_journal_undo(struct cas_store *store, int dir_fd, struct err *err);
/*
 * Call @each for every blob that undoing the journal would give back; non-zero from it stops
 * and is returned. Of one that a capture is writing to, none.
 */
int fs_journal_blobs(struct cas_store *store, int dir_fd,
		     int (*each)(void *ctx, const struct cas_digest *digest), void *ctx,
		     struct err *err);
/* The capture is complete. */
int fs_journal_drop(int dir_fd, struct err *err);

#endif
