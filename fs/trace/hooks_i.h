/* fs/trace/hooks_i.h - the trace in the life of its sandbox */
#ifndef FS_TRACE_HOOKS_I_H
#define FS_TRACE_HOOKS_I_H

#include <stdbool.h>
#include <stddef.h>

#include "fs/trace/trace.h"

struct fs_helper_step;
struct fs_sandbox;
struct fs_sandboxes;

/* None of these fails: what goes wrong is a remark in the trace. */

/* Where its session has it: the directory above the one that is called as it is. */
const char *fs_sandbox_base(const struct fs_sandboxes *all, const struct fs_sandbox *sb);
/* It shows @sb->serial: record what is asked for. */
void fs_sandbox_trace_begin(struct fs_sandboxes *all, struct fs_sandbox *sb);
/*
 * Its layers are about to be mounted, at @targets + 1: what the helper has to do afterwards so
 * that what is opened is recorded. The number of steps, at most 1 + layers, at @out; and
 * when it has done them.
 */
size_t fs_sandbox_trace_watch(struct fs_sandboxes *all, struct fs_sandbox *sb, char *const *targets,
			      struct fs_helper_step *out);
void fs_sandbox_trace_watched(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd,
			      const struct fs_helper_step *steps, size_t nr);
/* What was opened until now is in traces of @kind. No lock is held. */
void fs_sandbox_trace_settle(struct fs_sandboxes *all, enum fs_trace_kind kind);
/* Its layers are about to go, so nobody records any more. */
void fs_sandbox_trace_pause(struct fs_sandboxes *all, struct fs_sandbox *sb);
/*
 * It is frozen, or left as it is by a daemon that ends (!@finished): keep the trace in its
 * directory, in the former case with what it wrote.
 */
void fs_sandbox_trace_keep(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd,
			   bool finished);

#endif
