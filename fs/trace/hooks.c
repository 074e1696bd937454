/* fs/trace/hooks.c - the trace in the life of its sandbox */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/log.h"
#include "fs/sandbox/sandbox_i.h"
#include "fs/trace/trace.h"
#include "fs/trace/writes.h"

const char *fs_sandbox_base(const struct fs_sandboxes *all, const struct fs_sandbox *sb)
{
	return sb->rec.trace == FS_TRACE_EXACT ? all->traced : all->base;
}

static struct fs_tap *tap_of(const struct fs_sandboxes *all, const struct fs_sandbox *sb)
{
	return sb->rec.trace == FS_TRACE_EXACT ? all->tap_two : all->tap_one;
}

/* A sandbox of a daemon before us goes on with the trace that it left, if it could. */
static struct fs_trace *trace_of_before(struct fs_sandbox *sb)
{
	struct fs_trace *trace = NULL;
	struct err err = {0};
	int ret;

	if (sb->rec.state == FS_SANDBOX_CREATING || sb->dir_fd < 0)
		return NULL;
	ret = fs_trace_load(sb->dir_fd, &trace, &err);
	if (ret == 0)
		(void)unlinkat(sb->dir_fd, FS_TRACE_NAME, 0);
	else if (ret != -ENOENT)
		log_warn("sandbox %s: %s", sb->rec.id, err_text(&err, ret));
	return trace;
}

static struct fs_trace *trace_make(struct fs_sandbox *sb)
{
	struct fs_trace *trace = trace_of_before(sb);
	enum fs_trace_kind kind = sb->rec.trace == FS_TRACE_READS ? FS_TRACE_NAMES : sb->rec.trace;

	if (trace || fs_trace_new(kind, &trace) < 0)
		return trace;
	if (kind != sb->rec.trace)
		fs_trace_remark(trace, "reads was asked for, but nobody tells us of opens here");
	if (sb->rec.state != FS_SANDBOX_CREATING)
		fs_trace_remark(trace, "the daemon was killed meanwhile: what was before is not "
				       "here");
	return trace;
}

void fs_sandbox_trace_begin(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	struct fs_tap *tap = tap_of(all, sb);
	struct fs_trace *trace;

	if (sb->rec.trace == FS_TRACE_OFF)
		return;
	trace = trace_make(sb);
	if (!trace) {
		log_error("sandbox %s: no memory to trace it", sb->rec.id);
		return;
	}
	lock_take(&all->lock);
	sb->trace = trace;
	lock_drop(&all->lock);
	if (!tap || fs_tap_add(tap, sb->serial, trace) < 0)
		fs_trace_remark(trace, "no memory: nothing that was asked for is here");
}

void fs_sandbox_trace_pause(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	struct fs_tap *tap = tap_of(all, sb);

	if (sb->trace && tap)
		fs_tap_drop(tap, sb->serial);
}

void fs_sandbox_trace_keep(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd,
			   bool finished)
{
	struct fs_trace *trace = sb->trace;
	struct err err = {0};
	int ret = 0;

	if (!trace)
		return;
	if (dir_fd < 0)
		ret = dir_fd = fs_sandbox_dir(all, sb, &err);
	if (ret >= 0 && finished)
		ret = fs_trace_writes(trace, all->meta, &sb->rec.root, &sb->rec.plan, dir_fd, &err);
	if (ret < 0)
		fs_trace_remark(trace, "not all that it wrote could be listed");
	if (dir_fd >= 0 && fs_trace_save(trace, dir_fd, &err) == 0) {
		fs_sandbox_give(all, dir_fd, FS_TRACE_NAME);
		lock_take(&all->lock);
		sb->trace = NULL;
		lock_drop(&all->lock);
		fs_trace_unref(trace);
		return;
	}
	/* It stays in memory. */
	log_warn("sandbox %s: %s", sb->rec.id, err_text(&err, ret));
}
