/* fs/capture/hints.h - what is known of files that were hashed before anybody asked */
#ifndef FS_CAPTURE_HINTS_H
#define FS_CAPTURE_HINTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "fs/capture/early.h"

/*
 * Files by device and inode number, the oldest forgotten first. Each belongs to the sandbox
 * that wrote it and is forgotten with it. One thread hashes, one file at a time, between
 * begin and end; any thread asks.
 */
struct fs_hints;

/* -ENOMEM. */
int fs_hints_new(struct fs_hints **out);
/* NULL is fine. */
void fs_hints_free(struct fs_hints *hints);

/* File @fd of sandbox @id, which looks like @st, is to be hashed. False: known, or too lively. */
bool fs_hints_begin(struct fs_hints *hints, const char *id, int fd, const struct stat *st);
/* It was, or (NULL) it was not. */
void fs_hints_end(struct fs_hints *hints, const struct stat *st, const struct fs_early_hint *hint);

/*
 * 1 and *out when the file that looks like @st was hashed as such, else 0. When it is being
 * hashed just now calls @hurry, with locks held, and waits.
 */
int fs_hints_find(struct fs_hints *hints, const struct stat *st, void (*hurry)(void *ctx),
		  void *ctx, struct fs_early_hint *out);

/*
 * Forget what is known of files of sandbox @id, but for one that is being hashed: who hashes
 * asks after the end whether there is any such sandbox still.
 */
void fs_hints_forget(struct fs_hints *hints, const char *id);

void fs_hints_count(struct fs_hints *hints, struct fs_early_counts *out);

#endif
