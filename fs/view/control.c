/* fs/view/control.c - the files of .casbox */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/slot/large.h"
#include "fs/view/fixed.h"
#include "fs/view/view.h"

enum dot_tag {
	DOT_TOP,
	DOT_CONTROL,
	DOT_METRICS,
	DOT_EVENTS,
	DOT_VERSION,
	DOT_CONFIG,
	DOT_LOG_LEVEL,
	DOT_HELP,
	DOT_LARGE,
};

struct fs_view_dot {
	struct fs_view view;
	struct fs_views_options opts;
	struct fs_entry root;
};

static const struct fs_fixed dot_files[] = {
	{"control", DOT_CONTROL, 0600, FS_KIND_CONTROL},
	{"metrics", DOT_METRICS, 0400, FS_KIND_TEXT},
	{"events", DOT_EVENTS, 0400, FS_KIND_EVENTS},
	{"log-level", DOT_LOG_LEVEL, 0600, FS_KIND_TEXT},
	{"version", DOT_VERSION, 0400, FS_KIND_TEXT},
	{"config", DOT_CONFIG, 0400, FS_KIND_TEXT},
	{"help", DOT_HELP, 0400, FS_KIND_TEXT},
};
#define NR_DOT_FILES (sizeof(dot_files) / sizeof(dot_files[0]))

static const struct fs_fixed dot_top = {".casbox", DOT_TOP, 0700, FS_KIND_DIR};

/* Not listed, nor is what is in it: only the mount helper goes there. */
static const struct fs_fixed dot_large = {"large", DOT_LARGE, 0100, FS_KIND_DIR};

static int dot_lookup(const struct fs_view *view, const struct fs_entry *dir, const char *name,
		      struct fs_entry *out, struct err *err)
{
	const struct fs_view_dot *dot = view->ctx;

	if (dir->tag == DOT_LARGE)
		return fs_large_lookup(dot->opts.large, name, out);
	if (strcmp(name, "sandboxes") == 0) {
		fs_view_sandboxes_root(dot->opts.traces, out);
		return 1;
	}
	if (strcmp(name, dot_large.name) == 0) {
		int ret = fs_fixed_entry(view, &dot_large, dot_large.name, out);

		return ret < 0 ? ret : 1;
	}
	for (size_t i = 0; i < NR_DOT_FILES; i++) {
		int ret;

		if (strcmp(dot_files[i].name, name) != 0)
			continue;
		ret = fs_fixed_entry(view, &dot_files[i], dot_files[i].name, out);
		return ret < 0 ? ret : 1;
	}
	return 0;
}

static int dot_list(const struct fs_view *view, const struct fs_entry *dir, uint64_t start,
		    fs_view_each_fn each, void *ctx, struct err *err)
{
	const struct fs_view_dot *dot = view->ctx;

	for (uint64_t i = start; dir->tag == DOT_TOP && i <= NR_DOT_FILES; i++) {
		const char *name = i < NR_DOT_FILES ? dot_files[i].name : "sandboxes";
		struct fs_entry entry = {0};
		int ret = 0;

		if (i < NR_DOT_FILES)
			ret = fs_fixed_entry(view, &dot_files[i], name, &entry);
		else
			fs_view_sandboxes_root(dot->opts.traces, &entry);
		if (ret == 0)
			ret = each(ctx, i, name, &entry);
		if (ret != 0)
			return ret < 0 ? ret : 0;
	}
	return 0;
}

static int dot_text(const struct fs_view *view, const struct fs_entry *entry, struct buf *out)
{
	const struct fs_view_dot *dot = view->ctx;

	switch (entry->tag) {
	case DOT_VERSION:
		return dot->opts.version(dot->opts.text_ctx, out);
	case DOT_CONFIG:
		return dot->opts.config(dot->opts.text_ctx, out);
	case DOT_HELP:
		return dot->opts.help(dot->opts.text_ctx, out);
	case DOT_METRICS:
		return dot->opts.metrics(dot->opts.text_ctx, out);
	case DOT_LOG_LEVEL:
		return dot->opts.log_level(dot->opts.text_ctx, out);
	default:
		return 0;
	}
}

static int dot_change(const struct fs_view *view, const struct fs_entry *entry, const char *data,
		      size_t len)
{
	const struct fs_view_dot *dot = view->ctx;

	return entry->tag == DOT_LOG_LEVEL ? dot->opts.set_log_level(dot->opts.text_ctx, data, len)
					   : -EROFS;
}

static const struct fs_view_ops dot_ops = {
	.lookup = dot_lookup,
	.list = dot_list,
	.text = dot_text,
	.change = dot_change,
};

int fs_view_dot_new(const struct fs_views_options *opts, struct fs_view_dot **out)
{
	struct fs_view_dot *dot = calloc(1, sizeof(*dot));
	int ret;

	if (!dot)
		return -ENOMEM;
	dot->view = (struct fs_view){&dot_ops, dot};
	dot->opts = *opts;
	ret = fs_fixed_entry(&dot->view, &dot_top, ".casbox", &dot->root);
	if (ret < 0) {
		free(dot);
		return ret;
	}
	*out = dot;
	return 0;
}

void fs_view_dot_free(struct fs_view_dot *dot)
{
	free(dot);
}

void fs_view_dot_root(struct fs_view_dot *dot, struct fs_entry *out)
{
	*out = dot->root;
}
