/* fs/trace/hooks.c - the trace in the life of its sandbox */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/log.h"
#include "fs/sandbox/sandbox_i.h"
#include "fs/trace/dirs.h"
#include "fs/trace/opens.h"
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

	if (trace || fs_trace_new(sb->rec.trace, &trace) < 0)
		return trace;
	if (sb->rec.state != FS_SANDBOX_CREATING)
		fs_trace_lose(trace, "the daemon was killed meanwhile: what was before is not "
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
		fs_trace_lose(trace, "no memory: nothing that was asked for is here");
}

/* Layer @n lies over inputs: opens in it are not those of session one. */
static int watch_overlay(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd, size_t n,
			 struct err *err)
{
	const struct fs_layer *layer = &sb->rec.plan.layers[n];
	auto_close int upper_fd = -1;
	char path[64];

	(void)snprintf(path, sizeof(path), "upper/%zu/u", n);
	upper_fd = openat(dir_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (upper_fd < 0)
		return err_set(err, -errno, "cannot open %s of sandbox %s: %m", path, sb->rec.id);
	/* keys[0] is that of the bind. */
	return fs_opens_add_overlay(all->opens, sb->rec.id, layer->path, sb->keys[n + 1].dev,
				    upper_fd, err);
}

static void not_told(struct fs_sandbox *sb, int code, struct err *err)
{
	fs_trace_lower(sb->trace);
	log_info("sandbox %s: reads cannot be told, names are: %s", sb->rec.id,
		 err_text(err, code));
}

size_t fs_sandbox_trace_watch(struct fs_sandboxes *all, struct fs_sandbox *sb, char *const *targets,
			      struct fs_helper_step *out)
{
	const struct fs_plan *plan = &sb->rec.plan;
	struct err err = {0};
	int group_fd = -1;
	size_t nr = 0;
	int ret;

	if (fs_trace_kind_of(sb->trace) != FS_TRACE_READS)
		return 0;
	/* Where session one serves what is written, its directories are not those of the tree. */
	if (fs_plan_is_served(plan)) {
		not_told(sb, -EOPNOTSUPP, &err);
		return 0;
	}
	if (all->dirs &&
	    fs_dirs_add(all->dirs, sb->rec.id, sb->serial, &sb->view_root, sb->trace, &err) == 0)
		return 0;
	log_debug("sandbox %s: no marks on directories: %s", sb->rec.id, err.msg);
	ret = all->opens ? fs_opens_add(all->opens, sb->rec.id, sb->trace, &group_fd, &err)
			 : -ENOSYS;
	if (ret < 0) {
		not_told(sb, ret, &err);
		return 0;
	}
	for (size_t i = 0; i <= plan->nr_layers; i++) {
		if (i == 0 || plan->layers[i - 1].kind == FS_LAYER_OVERLAY)
			out[nr++] = (struct fs_helper_step){.op = FS_HELPER_WATCH,
							    .target = targets[i],
							    .fd = {group_fd, -1},
							    .may = true};
	}
	return nr;
}

void fs_sandbox_trace_watched(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd,
			      const struct fs_helper_step *steps, size_t nr)
{
	struct err err = {0};
	int ret = nr == 0 ? -ENOSYS : 0;

	if (fs_trace_kind_of(sb->trace) != FS_TRACE_READS ||
	    (all->dirs && fs_dirs_has(all->dirs, sb->serial)))
		return;
	for (size_t i = 0; ret == 0 && i < nr; i++)
		ret = steps[i].code;
	for (size_t i = 0; ret == 0 && i < sb->rec.plan.nr_layers; i++) {
		if (sb->rec.plan.layers[i].kind == FS_LAYER_OVERLAY)
			ret = watch_overlay(all, sb, dir_fd, i, &err);
	}
	if (ret < 0)
		not_told(sb, ret, &err);
}

void fs_sandbox_trace_settle(struct fs_sandboxes *all, enum fs_trace_kind kind)
{
	if (kind == FS_TRACE_READS && all->dirs)
		fs_dirs_settle(all->dirs);
	if (kind == FS_TRACE_READS && all->opens)
		fs_opens_settle(all->opens);
}

void fs_sandbox_trace_pause(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	struct fs_tap *tap = tap_of(all, sb);

	if (sb->trace && sb->rec.trace == FS_TRACE_READS && all->dirs)
		fs_dirs_remove(all->dirs, sb->serial);
	if (sb->trace && sb->rec.trace == FS_TRACE_READS && all->opens)
		fs_opens_remove(all->opens, sb->rec.id);
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
		ret = fs_trace_writes(trace, all, &sb->rec.root, &sb->rec.plan, dir_fd, &err);
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
