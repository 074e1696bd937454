/* fs/node/identity.h - keys of nodes and the inode numbers made of them */
#ifndef FS_NODE_IDENTITY_H
#define FS_NODE_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "fs/view/view.h"

/*
 * Design 6.7. The path of a root is all zeros; the path of a directory in it is a hash of
 * its parent's path and its name; a file or symlink is keyed by all that makes it differ
 * from another: so the same place in two sandboxes is one node, two places are two.
 */

extern const struct fs_key fs_key_zero;

/* -ENOMEM or -EIO from the hash function. */
int fs_key_of_path(const struct fs_key *parent, const char *name, struct fs_key *out);

/* @entry has kind, digest or target, executable, and its properties. */
int fs_key_of_leaf(const struct fs_key *parent, const char *name, const struct fs_entry *entry,
		   struct fs_key *out);

/* Of a fixed place: @label names it. @digest may be NULL. */
int fs_key_of_label(const char *label, const struct cas_digest *digest, struct fs_key *out);

bool fs_key_equal(const struct fs_key *a, const struct fs_key *b);

/* 60 bits, never 0 or 1: overlayfs needs the top bits, and programs dislike those two. */
uint64_t fs_key_ino(const struct fs_key *key);

#endif
