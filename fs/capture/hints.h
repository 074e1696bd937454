/* fs/capture/hints.h - what is known of files that were hashed before anybody asked */
#ifndef FS_CAPTURE_HINTS_H
#define FS_CAPTURE_HINTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "fs/capture/early.h"

/*
 * Files by device and inode number, the oldest forgotten first. One thread hashes, one file
 * at a time, between begin and end; any thread asks.
 */
struct fs_hints;

/* -ENOMEM. */
int fs_hints_new(struct fs_hints **out);
/* NULL is fine. */
void fs_hints_free(struct fs_hints *hints);

/* The file @fd, which looks like @st, is about to be hashed. False: known, or too lively. */
bool fs_hints_begin(struct fs_hints *hints, int fd, const struct stat *st);
/* It was, or (NULL) it was not. */
void fs_hints_end(struct fs_hints *hints, const struct stat *st, const struct fs_early_hint *hint);

/*
 * 1 and *out when the file that looks like @st was hashed as such, else 0. When it is being
 * hashed just now calls @hurry, with locks held, and waits.
 */
int fs_hints_find(struct fs_hints *hints, const struct stat *st, void (*hurry)(void *ctx),
		  void *ctx, struct fs_early_hint *out);

/* Files that were hashed; those that find knew. */
void fs_hints_count(struct fs_hints *hints, uint64_t *nr_hashed, uint64_t *nr_used);

#endif
