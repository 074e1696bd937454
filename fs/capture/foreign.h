/* fs/capture/foreign.h - mounts that an action made in its sandbox */
#ifndef FS_CAPTURE_FOREIGN_H
#define FS_CAPTURE_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>

#include "fs/capture/capture.h"
#include "fs/helper/helper.h"

/* A mount of ours. */
struct fs_own_mount {
	const char *path; /* relative to the sandbox */
	struct fs_mount_key key;
	bool elsewhere; /* out: it is mounted still, but its place was moved */
};

/*
 * Look through our mount namespace for what is mounted at or below @top, the absolute path
 * of a sandbox: all but @own goes to @out, by its path relative to @top. Resolves nothing.
 */
int fs_foreign_find(const char *top, struct fs_own_mount *own, size_t nr_own,
		    struct fs_findings *out, struct err *err);

/* Add one; @type is the other file system's. -ENOMEM. */
int fs_foreign_add(struct fs_findings *out, const char *path, const char *type);

#endif
