/* fs/explain/spot.h - what people name when they ask about trees */
#ifndef FS_EXPLAIN_SPOT_H
#define FS_EXPLAIN_SPOT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "meta/index/tree_diff.h"

struct cas_digest;
struct cas_store;
struct err;
struct meta;

/*
 * Find what @text names: DIGEST or a hash alone, or the id of a sandbox, which stands for its
 * input root; and after a slash a path in that tree. A DIGEST without a path is taken for a
 * Directory. End *out with fs_spot_fini.
 * -EINVAL: neither a digest nor an id. -ENOENT: no such sandbox, path, or Directory. -ENOTDIR: a
 * directory of the path is none. -EUCLEAN: a Directory on the way, or the root, is none.
 */
int fs_spot_find(struct cas_store *store, struct meta *meta, const char *text,
		 struct meta_change_side *out, struct err *err);
void fs_spot_fini(struct meta_change_side *side);

/* The input root of the sandbox @id, from its record. Errors as above. */
int fs_spot_sandbox(struct cas_store *store, const char *id, struct cas_digest *out,
		    struct err *err);

/*
 * What makes @b of @a, as fs_spot_find reads both: meta_tree_diff of two directories; of
 * anything else at most one change, of the path "".
 */
int fs_spot_diff(struct cas_store *store, struct meta *meta, const char *a, const char *b,
		 bool whole, size_t max, struct meta_changes *out, struct err *err);

/* "added", "deleted", "modified", "type"; and the letter for it. */
const char *fs_change_name(const struct meta_change *change);
char fs_change_letter(const struct meta_change *change);

/* "file", "directory", "symlink" */
const char *fs_node_name(enum cas_node_kind kind);
/* The mode that the mount shows. */
unsigned fs_side_mode(const struct meta_change_side *side);
/* NULL: no memory. */
json_t *fs_side_describe(const struct meta_change_side *side);
json_t *fs_change_describe(const struct meta_change *change);

#endif
