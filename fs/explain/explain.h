/* fs/explain/explain.h - why things are as they are, in facts and in words */
#ifndef FS_EXPLAIN_EXPLAIN_H
#define FS_EXPLAIN_EXPLAIN_H

#include <jansson.h>

struct buf;
struct cas_digest;
struct cas_store;
struct err;
struct fs_sandboxes;
struct meta;

/* What explaining looks at; it changes nothing, and counts as no use. */
struct fs_explain {
	struct cas_store *store;
	struct meta *meta;
	struct fs_sandboxes *sandboxes; /* of the daemon, for what only it knows; or NULL */
};

/*
 * Explain what @what names: a digest or a hash (its blob: where it is, where it came from, who
 * needs it), or a sandbox, by id or by a path that leads into one; with @path (may be NULL) why
 * that name is or is not found in the tree. *out is an object with "about": "blob", "sandbox"
 * or "name". May take as long as walking every tree that is needed.
 * -EINVAL: neither digest nor id. -ENOENT: nothing is known of it. Else as reading says.
 */
int fs_explain(const struct fs_explain *ex, const char *what, const char *path, json_t **out,
	       struct err *err);

/* Append *out of the above in words, a line a fact. -ENOMEM. */
int fs_explain_words(const json_t *facts, struct buf *out);

#endif
