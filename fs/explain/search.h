/* fs/explain/search.h - which trees hold a blob */
#ifndef FS_EXPLAIN_SEARCH_H
#define FS_EXPLAIN_SEARCH_H

#include <stddef.h>
#include <stdint.h>

#include "cas/digest.h"

struct fs_seen_dir;
struct meta;

/*
 * One search looks into each directory once, however many trees it is asked about. One
 * thread. Zero-initialize but for @meta and @target; end with fs_search_fini.
 */
struct fs_search {
	struct meta *meta;
	struct cas_digest target;
	struct fs_seen_dir *seen;
	uint64_t nr_dirs;   /* looked into */
	uint64_t nr_unread; /* that could not be: what is in them is not known */
};

/*
 * 1 and a path (malloc'ed; "": it is the root itself) at which the tree @root has the blob or
 * directory; 0: it has none, as far as it can be read. -ENOMEM.
 */
int fs_search_tree(struct fs_search *search, const struct cas_digest *root, char **path);
void fs_search_fini(struct fs_search *search);

#endif
