/* fs/message/tree_blob.h - a Tree, ready to be searched */
#ifndef FS_MESSAGE_TREE_BLOB_H
#define FS_MESSAGE_TREE_BLOB_H

#include <stddef.h>
#include <stdint.h>

#include "meta/index/dirs.h"

struct err;

/* The Directories of a Tree, packed; 0 is the root. Immutable, shared by count. */
struct fs_tree_blob;

/*
 * Every Directory is held to what one that is a blob is held to, and each that is named by
 * another must be there (but the empty one). -EUCLEAN: that is not so; -ENOMEM.
 */
int fs_tree_blob_new(const void *data, size_t len, struct fs_tree_blob **out, struct err *err);
struct fs_tree_blob *fs_tree_blob_ref(struct fs_tree_blob *blob);
/* NULL is fine. */
void fs_tree_blob_unref(struct fs_tree_blob *blob);
/* Bytes of memory that it takes. */
size_t fs_tree_blob_size(const struct fs_tree_blob *blob);

/*
 * 1, the entry @name of directory @dir, and, if it is one, which directory *child is; 0: no
 * such name. -EUCLEAN: @dir is none of this Tree. End *out with meta_dirent_fini.
 */
int fs_tree_blob_find(const struct fs_tree_blob *blob, uint64_t dir, const char *name,
		      struct meta_dirent *out, uint64_t *child);
/* The entry at @index, in order of name; 0: there are no more. */
int fs_tree_blob_get(const struct fs_tree_blob *blob, uint64_t dir, uint64_t index,
		     struct meta_dirent *out, uint64_t *child);
/*
 * 1 and a path (malloc'ed) at which the Tree has the file or directory @target; 0: it has none.
 * -ENOMEM.
 */
int fs_tree_blob_search(const struct fs_tree_blob *blob, const struct cas_digest *target,
			char **path);
/* -EUCLEAN as above. */
int fs_tree_blob_info(const struct fs_tree_blob *blob, uint64_t dir, struct meta_dirinfo *out);

#endif
