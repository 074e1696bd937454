/* fs/trace/writes.h - what a sandbox wrote, by the files of its layers */
#ifndef FS_TRACE_WRITES_H
#define FS_TRACE_WRITES_H

#include "cas/reapi/directory.h"

struct cas_digest;
struct err;
struct fs_plan;
struct fs_sandboxes;
struct fs_trace;
struct meta;

/*
 * Note what the uppers of @plan, below the sandbox's directory @dir_fd, show beside the inputs
 * of @root, as MADE, REPLACED (also when the content is the same: it was opened to be
 * written) or REMOVED; of a directory that was removed itself alone. Reads directories of ours
 * only; the action may go on meanwhile, and then the answer is of some moment. Time goes with
 * what was written, and with the inputs in directories that were moved.
 */
int fs_trace_writes(struct fs_trace *trace, const struct fs_sandboxes *all,
		    const struct cas_digest *root, const struct fs_plan *plan, int dir_fd,
		    struct err *err);

/* 1 and what @path is in the tree @root ("": a directory), or 0: it is not there. */
int fs_trace_in_tree(struct meta *meta, const struct cas_digest *root, const char *path,
		     enum cas_node_kind *kind, struct err *err);

#endif
