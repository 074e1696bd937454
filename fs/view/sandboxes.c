/* fs/view/sandboxes.c - the files of .casbox/sandboxes/ID, and the trees of traced sandboxes */

/*
 * traced/ID is the tree of a sandbox whose trace is exact: the same as sandboxes/ID in session
 * one, but that its nodes are nobody else's. Their keys begin with one of the sandbox's own,
 * so that the kernel knows nothing of it which this sandbox has not asked for. What the
 * kernel knows it may keep: the first time is what is recorded.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/node/identity.h"
#include "fs/sandbox/sandbox.h"
#include "fs/trace/trace.h"
#include "fs/view/fixed.h"
#include "fs/view/view.h"

#define NR_TEXTS       FS_TRACE_NR_TEXTS
#define TAG(pos, text) ((pos)*NR_TEXTS + (text))

struct fs_view_sandboxes {
	struct fs_view top;    /* .casbox/sandboxes */
	struct fs_view box;    /* .casbox/sandboxes/ID: tags are of the sandbox's position */
	struct fs_view traced; /* traced */
	struct fs_view_tree tree;
	struct fs_view_ops tree_ops;	     /* of the trees in it */
	const struct fs_view_ops *plain_ops; /* of other trees */
	struct fs_entry top_root;
	struct fs_entry traced_root;
	struct lock gate;
	pthread_cond_t idle;
	unsigned nr_asking;		/* gate: threads that use the table */
	struct fs_sandboxes *sandboxes; /* gate; NULL when closed */
};

static struct fs_sandboxes *gate_enter(struct fs_view_sandboxes *v)
{
	struct fs_sandboxes *all;

	lock_take(&v->gate);
	all = v->sandboxes;
	v->nr_asking += all != NULL;
	lock_drop(&v->gate);
	return all;
}

static void gate_leave(struct fs_view_sandboxes *v)
{
	lock_take(&v->gate);
	v->nr_asking--;
	(void)pthread_cond_broadcast(&v->idle);
	lock_drop(&v->gate);
}

/* --- .casbox/sandboxes/ID --- */

static int text_entry(struct fs_view_sandboxes *v, uint64_t pos, enum fs_trace_text text,
		      struct fs_entry *out)
{
	char label[64];

	(void)snprintf(label, sizeof(label), "sandbox %llu %d", (unsigned long long)pos, (int)text);
	*out = (struct fs_entry){
		.view = &v->box,
		.kind = FS_KIND_TEXT,
		.tag = TAG(pos, text),
		.has_mode = true,
		.mode = 0400,
		.fleeting = true,
		.slow = text != FS_TRACE_TEXT_STATUS,
	};
	return fs_key_of_label(label, NULL, &out->key);
}

static int box_lookup(const struct fs_view *view, const struct fs_entry *dir, const char *name,
		      struct fs_entry *out, struct err *err)
{
	struct fs_view_sandboxes *v = view->ctx;

	for (int i = 0; i < NR_TEXTS; i++) {
		int ret;

		if (strcmp(name, fs_trace_text_name((enum fs_trace_text)i)) != 0)
			continue;
		ret = text_entry(v, dir->tag / NR_TEXTS, (enum fs_trace_text)i, out);
		return ret < 0 ? ret : 1;
	}
	return 0;
}

static int box_list(const struct fs_view *view, const struct fs_entry *dir, uint64_t start,
		    fs_view_each_fn each, void *ctx, struct err *err)
{
	struct fs_view_sandboxes *v = view->ctx;

	for (uint64_t i = start; i < NR_TEXTS; i++) {
		struct fs_entry entry;
		int ret = text_entry(v, dir->tag / NR_TEXTS, (enum fs_trace_text)i, &entry);

		if (ret == 0)
			ret = each(ctx, i, fs_trace_text_name((enum fs_trace_text)i), &entry);
		if (ret != 0)
			return ret < 0 ? ret : 0;
	}
	return 0;
}

static int box_text(const struct fs_view *view, const struct fs_entry *entry, struct buf *out)
{
	struct fs_view_sandboxes *v = view->ctx;
	struct fs_sandboxes *all = gate_enter(v);
	auto_free char *id = NULL;
	struct err err = {0};
	int ret = -ENOENT;

	if (!all)
		return ret;
	id = fs_sandboxes_id(all, entry->tag / NR_TEXTS);
	if (id)
		ret = fs_trace_text(all, id, (enum fs_trace_text)(entry->tag % NR_TEXTS), out,
				    &err);
	gate_leave(v);
	if (ret < 0 && ret != -ENOENT)
		log_warn("%s of sandbox %s: %s",
			 fs_trace_text_name((enum fs_trace_text)(entry->tag % NR_TEXTS)),
			 id ? id : "?", err_text(&err, ret));
	return ret;
}

static const struct fs_view_ops box_ops = {
	.lookup = box_lookup,
	.list = box_list,
	.text = box_text,
};

/* --- .casbox/sandboxes --- */

/* The size tells a sandbox from an earlier one of that id. */
static int box_entry(struct fs_view_sandboxes *v, uint64_t pos, struct fs_entry *out)
{
	char label[64];

	(void)snprintf(label, sizeof(label), "sandbox %llu", (unsigned long long)pos);
	*out = (struct fs_entry){
		.view = &v->box,
		.kind = FS_KIND_DIR,
		.tag = TAG(pos, 0),
		.digest.size = pos,
		.has_mode = true,
		.mode = 0500,
		.fleeting = true,
	};
	return fs_key_of_label(label, NULL, &out->key);
}

static int top_lookup(const struct fs_view *view, const struct fs_entry *dir, const char *name,
		      struct fs_entry *out, struct err *err)
{
	struct fs_view_sandboxes *v = view->ctx;
	struct fs_sandboxes *all = gate_enter(v);
	uint64_t pos;
	int ret;

	if (!all)
		return 0;
	pos = fs_sandboxes_pos(all, name);
	gate_leave(v);
	if (pos == 0)
		return 0;
	ret = box_entry(v, pos, out);
	return ret < 0 ? ret : 1;
}

struct listing {
	struct fs_view_sandboxes *v;
	bool traced;
	fs_view_each_fn each;
	void *ctx;
	int ret;
};

static int list_one(void *ctx, uint64_t pos, const char *id)
{
	struct listing *list = ctx;
	struct fs_entry entry = {0};

	if (list->traced)
		entry = (struct fs_entry){
			.view = &list->v->tree.view, .kind = FS_KIND_DIR, .partial = true};
	else
		list->ret = box_entry(list->v, pos, &entry);
	if (list->ret == 0)
		list->ret = list->each(list->ctx, pos, id, &entry);
	return list->ret;
}

static int list_all(struct listing *list, enum fs_sandboxes_which which, uint64_t start)
{
	struct fs_sandboxes *all = gate_enter(list->v);

	if (all) {
		fs_sandboxes_list(all, which, start, list_one, list);
		gate_leave(list->v);
	}
	return list->ret < 0 ? list->ret : 0;
}

static int top_list(const struct fs_view *view, const struct fs_entry *dir, uint64_t start,
		    fs_view_each_fn each, void *ctx, struct err *err)
{
	struct listing list = {view->ctx, false, each, ctx, 0};

	return list_all(&list, FS_SANDBOXES_ALL, start);
}

static const struct fs_view_ops top_ops = {.lookup = top_lookup, .list = top_list};

/* --- traced --- */

static int traced_root(struct fs_view_sandboxes *v, const struct cas_digest *root, uint64_t serial,
		       struct fs_entry *out, struct err *err)
{
	struct fs_key key;
	char label[64];
	int ret;

	(void)snprintf(label, sizeof(label), "traced %llu", (unsigned long long)serial);
	ret = fs_key_of_label(label, root, &key);
	return ret < 0 ? ret : fs_view_tree_root(&v->tree, root, &key, serial, out, err);
}

static int find_traced(struct fs_view_sandboxes *v, const char *id, struct cas_digest *root,
		       uint64_t *serial)
{
	struct fs_sandboxes *all = gate_enter(v);
	int ret;

	if (!all)
		return 0;
	ret = fs_sandboxes_lookup_traced(all, id, root, serial);
	gate_leave(v);
	return ret;
}

static int traced_lookup(const struct fs_view *view, const struct fs_entry *dir, const char *name,
			 struct fs_entry *out, struct err *err)
{
	struct fs_view_sandboxes *v = view->ctx;
	struct cas_digest root;
	uint64_t serial;
	int ret = find_traced(v, name, &root, &serial);

	if (ret <= 0)
		return ret;
	ret = traced_root(v, &root, serial, out, err);
	/* It may have ended since it was found: then there is nothing. */
	if (ret == -ENOENT)
		return find_traced(v, name, &root, &serial) > 0 && serial == out->serial ? -EIO : 0;
	return ret < 0 ? ret : 1;
}

static int traced_list(const struct fs_view *view, const struct fs_entry *dir, uint64_t start,
		       fs_view_each_fn each, void *ctx, struct err *err)
{
	struct listing list = {view->ctx, true, each, ctx, 0};

	return list_all(&list, FS_SANDBOXES_TRACED, start);
}

static const struct fs_view_ops traced_ops = {.lookup = traced_lookup, .list = traced_list};

/* Whoever lists a directory has not looked at what is in it: no entry comes with a node. */
struct bare_list {
	fs_view_each_fn each;
	void *ctx;
};

static int bare_one(void *ctx, uint64_t pos, const char *name, const struct fs_entry *entry)
{
	const struct bare_list *list = ctx;
	struct fs_entry bare = *entry;

	bare.partial = true;
	return list->each(list->ctx, pos, name, &bare);
}

static int bare_tree_list(const struct fs_view *view, const struct fs_entry *dir, uint64_t start,
			  fs_view_each_fn each, void *ctx, struct err *err)
{
	const struct fs_view_tree *tree = view->ctx;
	const struct fs_view_sandboxes *v =
		(const void *)((const char *)tree - offsetof(struct fs_view_sandboxes, tree));
	struct bare_list list = {each, ctx};

	return v->plain_ops->list(view, dir, start, bare_one, &list, err);
}

/* --- life --- */

static const struct fs_fixed top_fixed = {"sandboxes", 0, 0500, FS_KIND_DIR};
static const struct fs_fixed traced_fixed = {"traced", 0, 0755, FS_KIND_DIR};

int fs_view_sandboxes_new(const struct fs_views_options *opts, struct fs_view_sandboxes **out)
{
	struct fs_view_sandboxes *v = calloc(1, sizeof(*v));
	int ret;

	if (!v)
		return -ENOMEM;
	v->top = (struct fs_view){&top_ops, v};
	v->box = (struct fs_view){&box_ops, v};
	v->traced = (struct fs_view){&traced_ops, v};
	v->sandboxes = opts->sandboxes;
	lock_cond_init(&v->idle);
	lock_init(&v->gate, LOCK_RANK_INODE, "traces gate");
	fs_view_tree_init(&v->tree, opts->meta);
	v->plain_ops = v->tree.view.ops;
	v->tree_ops = *v->plain_ops;
	v->tree_ops.list = bare_tree_list;
	v->tree.view.ops = &v->tree_ops;
	ret = fs_fixed_entry(&v->top, &top_fixed, ".casbox/sandboxes", &v->top_root);
	if (ret == 0)
		ret = fs_fixed_entry(&v->traced, &traced_fixed, "traced", &v->traced_root);
	if (ret < 0) {
		fs_view_sandboxes_free(v);
		return ret;
	}
	/* Their lists change. */
	v->top_root.lively = v->traced_root.lively = true;
	*out = v;
	return 0;
}

void fs_view_sandboxes_free(struct fs_view_sandboxes *v)
{
	if (!v)
		return;
	(void)pthread_cond_destroy(&v->idle);
	lock_fini(&v->gate);
	free(v);
}

void fs_view_sandboxes_close(struct fs_view_sandboxes *v)
{
	if (!v)
		return;
	lock_take(&v->gate);
	v->sandboxes = NULL;
	while (v->nr_asking > 0)
		(void)lock_wait(&v->gate, &v->idle, 0);
	lock_drop(&v->gate);
}

void fs_view_sandboxes_root(struct fs_view_sandboxes *v, struct fs_entry *out)
{
	*out = v->top_root;
}

void fs_view_sandboxes_traced(struct fs_view_sandboxes *v, struct fs_entry *out)
{
	*out = v->traced_root;
}
