/* fs/explain/explain_i.h - the parts of an explanation */
#ifndef FS_EXPLAIN_EXPLAIN_I_H
#define FS_EXPLAIN_EXPLAIN_I_H

#include "fs/explain/explain.h"
#include "fs/sandbox/record.h"

#define EXPLAIN_LISTED 20 /* of what may be many, so many are named */

/* blob.c */
int fs_explain_blob(const struct fs_explain *ex, const struct cas_digest *digest, json_t **out,
		    struct err *err);
/* box.c */
int fs_explain_sandbox(const struct fs_explain *ex, const char *id, json_t **out, struct err *err);
/* name.c: in the tree @root; @id of a sandbox, or NULL. */
int fs_explain_name(const struct fs_explain *ex, const struct cas_digest *root, const char *id,
		    const char *path, json_t **out, struct err *err);

/* The record of a sandbox, and its directory (the caller closes *dir_fd). -ENOENT: none. */
int fs_explain_record(struct cas_store *store, const char *id, struct fs_record *out, int *dir_fd,
		      struct err *err);

/* Set @key to @value, which is taken over. -ENOMEM, also for a NULL @value. */
int fs_explain_set(json_t *obj, const char *key, json_t *value);
json_t *fs_explain_digest(const struct cas_digest *digest);

#endif
