/* fs/view/trees.h - Tree messages as directories */
#ifndef FS_VIEW_TREES_H
#define FS_VIEW_TREES_H

#include "fs/view/view.h"

struct cas_store;

/*
 * The trees that Tree messages tell, read-only. A node says which Tree it is of and which of
 * its Directories; those Trees that were looked into last are kept in memory, others are
 * read again. Any thread.
 */
struct fs_view_trees;

int fs_view_trees_new(struct cas_store *store, struct fs_view_trees **out);
void fs_view_trees_free(struct fs_view_trees *trees);

/*
 * The entry of the root of the Tree @digest. -ENOENT: no such blob, which @err names where a
 * tier may have it. -EUCLEAN: it is none (fs/message/tree_blob.h).
 */
int fs_view_trees_root(struct fs_view_trees *trees, const struct cas_digest *digest,
		       const struct fs_key *path, struct fs_entry *out, struct err *err);

#endif
