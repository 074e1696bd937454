/* fs/view/top.c - what lies at MNT, and what lies at MNT/sandboxes */

/*
 * MNT (session two) holds an empty directory on which session one is mounted (or a link to
 * where it is, when that may not be), the cache, the action cache, traced sandboxes
 * and, unlisted, .casbox. MNT/sandboxes (session one) holds a tree for each live sandbox.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/node/identity.h"
#include "fs/sandbox/sandbox.h"
#include "fs/slot/slot.h"
#include "fs/view/action.h"
#include "fs/upper/upper.h"
#include "fs/view/fixed.h"
#include "fs/view/trees.h"
#include "fs/view/view.h"

enum top_tag { TOP_ROOT, TOP_PLACE, TOP_OFF };

struct fs_view_top {
	struct fs_view view;
	struct fs_view_trees *trees;
	struct fs_view_cache *cache;
	struct fs_view_action *action;
	struct fs_view_dot *dot;
	struct fs_view_sandboxes *traces;
	struct fs_entry root;
	struct fs_entry place; /* where session one is mounted, or a link to there */
	char *beside;	       /* PLACE is a link to it; NULL */
};

static int top_lookup(const struct fs_view *view, const struct fs_entry *dir, const char *name,
		      struct fs_entry *out, struct err *err)
{
	struct fs_view_top *top = view->ctx;

	if (dir->tag != TOP_ROOT)
		return 0;
	if (strcmp(name, "sandboxes") == 0) {
		*out = top->place;
		if (top->beside && (out->target = strdup(top->beside)) == NULL)
			return -ENOMEM;
	} else if (strcmp(name, "cas") == 0)
		fs_view_cache_root(top->cache, out);
	else if (strcmp(name, "traced") == 0)
		fs_view_sandboxes_traced(top->traces, out);
	else if (strcmp(name, "ac") == 0)
		fs_view_action_root(top->action, out);
	else if (strcmp(name, ".casbox") == 0)
		fs_view_dot_root(top->dot, out);
	else
		return 0;
	return 1;
}

static int top_list(const struct fs_view *view, const struct fs_entry *dir, uint64_t start,
		    fs_view_each_fn each, void *ctx, struct err *err)
{
	static const char *const names[] = {"cas", "sandboxes", "traced", "ac"};

	if (dir->tag != TOP_ROOT)
		return 0;
	for (uint64_t i = start; i < sizeof(names) / sizeof(names[0]); i++) {
		struct fs_entry entry = {0};
		int ret;

		ret = top_lookup(view, dir, names[i], &entry, err);
		if (ret < 0)
			return ret;
		ret = each(ctx, i, names[i], &entry);
		if (entry.kind == FS_KIND_SYMLINK)
			free((char *)(uintptr_t)entry.target);
		if (ret != 0)
			return ret < 0 ? ret : 0;
	}
	return 0;
}

static const struct fs_view_ops top_ops = {.lookup = top_lookup, .list = top_list};

static const struct fs_fixed top_root = {"", TOP_ROOT, 0755, FS_KIND_DIR};
static const struct fs_fixed top_place = {"sandboxes", TOP_PLACE, 0755, FS_KIND_DIR};
static const struct fs_fixed top_link = {"sandboxes", TOP_PLACE, 0777, FS_KIND_SYMLINK};

int fs_view_top_new(const struct fs_views_options *opts, struct fs_view_top **out)
{
	struct fs_view_top *top = calloc(1, sizeof(*top));
	int ret;

	if (!top)
		return -ENOMEM;
	top->view = (struct fs_view){&top_ops, top};
	top->traces = opts->traces;
	ret = fs_view_trees_new(opts->store, &top->trees);
	if (ret == 0)
		ret = fs_view_cache_new(opts->store, opts->meta, top->trees, &top->cache);
	if (ret == 0)
		ret = fs_view_action_new(opts->store, opts->meta, top->trees, &top->action);
	if (ret == 0)
		ret = fs_view_dot_new(opts, &top->dot);
	if (ret == 0)
		ret = fs_fixed_entry(&top->view, &top_root, "/", &top->root);
	if (ret == 0)
		ret = fs_fixed_entry(&top->view, opts->beside ? &top_link : &top_place, "sandboxes",
				     &top->place);
	if (ret == 0 && opts->beside && (top->beside = strdup(opts->beside)) == NULL)
		ret = -ENOMEM;
	if (ret < 0) {
		fs_view_top_free(top);
		return ret;
	}
	*out = top;
	return 0;
}

void fs_view_top_free(struct fs_view_top *top)
{
	if (!top)
		return;
	fs_view_action_free(top->action);
	fs_view_cache_free(top->cache);
	fs_view_trees_free(top->trees);
	fs_view_dot_free(top->dot);
	free(top->beside);
	free(top);
}

void fs_view_top_root(struct fs_view_top *top, struct fs_entry *out)
{
	*out = top->root;
}

struct fs_view_boxes {
	struct fs_view view;
	struct fs_view_tree tree;
	struct fs_entry root;
	struct fs_slots *slots;
	struct fs_uppers *uppers;
	struct lock gate;
	pthread_cond_t idle;
	unsigned nr_asking;		/* gate: threads that use the table */
	struct fs_sandboxes *sandboxes; /* gate; NULL when closed */
};

static struct fs_sandboxes *gate_enter(struct fs_view_boxes *boxes)
{
	struct fs_sandboxes *all;

	lock_take(&boxes->gate);
	all = boxes->sandboxes;
	boxes->nr_asking += all != NULL;
	lock_drop(&boxes->gate);
	return all;
}

static void gate_leave(struct fs_view_boxes *boxes)
{
	lock_take(&boxes->gate);
	boxes->nr_asking--;
	(void)pthread_cond_broadcast(&boxes->idle);
	lock_drop(&boxes->gate);
}

static int find_sandbox(struct fs_view_boxes *boxes, const char *id, struct cas_digest *root,
			uint64_t *serial)
{
	struct fs_sandboxes *all = gate_enter(boxes);
	int ret;

	if (!all)
		return 0;
	ret = fs_sandboxes_lookup(all, id, root, serial);
	gate_leave(boxes);
	return ret == 0 ? fs_slots_lookup(boxes->slots, id, root, serial) : ret;
}

static int boxes_lookup(const struct fs_view *view, const struct fs_entry *dir, const char *name,
			struct fs_entry *out, struct err *err)
{
	const struct fs_fixed off = {name, TOP_OFF, 0100, FS_KIND_DIR};
	struct fs_view_boxes *boxes = view->ctx;
	struct cas_digest root;
	uint64_t serial;
	int ret;

	if (dir->tag == TOP_OFF)
		return 0;
	if (boxes->slots && strcmp(name, fs_slots_off(boxes->slots)) == 0) {
		ret = fs_fixed_entry(view, &off, name, out);
		return ret < 0 ? ret : 1;
	}
	ret = find_sandbox(boxes, name, &root, &serial);
	if (ret <= 0)
		return ret;
	ret = boxes->uppers ? fs_uppers_root(boxes->uppers, serial, out, err) : 0;
	if (ret != 0)
		return ret;
	ret = fs_view_tree_root(&boxes->tree, &root, &fs_key_zero, serial, out, err);
	/* It may have ended since it was found: then there is nothing. */
	if (ret == -ENOENT)
		return find_sandbox(boxes, name, &root, &serial) > 0 && serial == out->serial ? -EIO
											      : 0;
	return ret < 0 ? ret : 1;
}

struct boxes_list {
	const struct fs_view_boxes *boxes;
	fs_view_each_fn each;
	void *ctx;
	int ret;
};

/* The serial is left out: a listing tells only kind and key, which all roots share. */
static int boxes_list_one(void *ctx, uint64_t pos, const char *id)
{
	struct boxes_list *list = ctx;
	struct fs_entry entry = {
		.view = &list->boxes->tree.view,
		.kind = FS_KIND_DIR,
		.key = fs_key_zero,
		.partial = true,
	};

	list->ret = list->each(list->ctx, pos, id, &entry);
	return list->ret;
}

static int boxes_list(const struct fs_view *view, const struct fs_entry *dir, uint64_t start,
		      fs_view_each_fn each, void *ctx, struct err *err)
{
	struct fs_view_boxes *boxes = view->ctx;
	struct boxes_list list = {boxes, each, ctx, 0};
	struct fs_sandboxes *all;

	if (dir->tag == TOP_OFF)
		return 0;
	all = gate_enter(boxes);
	fs_slots_listed(boxes->slots);
	if (all) {
		fs_sandboxes_list(all, FS_SANDBOXES_ONE, start, boxes_list_one, &list);
		gate_leave(boxes);
	}
	return list.ret < 0 ? list.ret : 0;
}

static const struct fs_view_ops boxes_ops = {.lookup = boxes_lookup, .list = boxes_list};

int fs_view_boxes_new(const struct fs_views_options *opts, struct fs_view_boxes **out)
{
	struct fs_view_boxes *boxes = calloc(1, sizeof(*boxes));
	int ret;

	if (!boxes)
		return -ENOMEM;
	boxes->view = (struct fs_view){&boxes_ops, boxes};
	boxes->sandboxes = opts->sandboxes;
	boxes->slots = opts->slots;
	boxes->uppers = opts->uppers;
	lock_cond_init(&boxes->idle);
	lock_init(&boxes->gate, LOCK_RANK_INODE, "sandboxes gate");
	fs_view_tree_init(&boxes->tree, opts->meta);
	/* The same inode number as what it is mounted on: listings of MNT tell the truth. */
	ret = fs_fixed_entry(&boxes->view, &top_root, "sandboxes", &boxes->root);
	if (ret < 0) {
		fs_view_boxes_free(boxes);
		return ret;
	}
	*out = boxes;
	return 0;
}

void fs_view_boxes_free(struct fs_view_boxes *boxes)
{
	if (!boxes)
		return;
	(void)pthread_cond_destroy(&boxes->idle);
	lock_fini(&boxes->gate);
	free(boxes);
}

void fs_view_boxes_close(struct fs_view_boxes *boxes)
{
	if (!boxes)
		return;
	lock_take(&boxes->gate);
	boxes->sandboxes = NULL;
	while (boxes->nr_asking > 0)
		(void)lock_wait(&boxes->gate, &boxes->idle, 0);
	lock_drop(&boxes->gate);
}

void fs_view_boxes_root(struct fs_view_boxes *boxes, struct fs_entry *out)
{
	*out = boxes->root;
}
