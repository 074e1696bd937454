/* fs/slot/swap.c - make the nodes of one tree those of another */

/*
 * What the kernel may have cached lies in directories that have a node. So the walk goes
 * down from the top along nodes, and at each compares the Directory that it showed with
 * the one that it will show; equal digests end it. Per name that differs:
 *
 *   a directory before and after, with a node      the node shows the new one; go on there
 *   a directory before and after, without          forget the name (*)
 *   anything else                                  forget the name; a node that was there
 *                                                  is an orphan; the listing changed
 *
 * (*) Normally the kernel has none. But a directory that was given away may still have
 * its dentry here, and somebody who had no business here may just be looking it up.
 *
 * First all is read, then nodes are changed, then the kernel is told: whoever asks in
 * between gets answers of the new tree, or one of the old that is forgotten right after,
 * since telling waits for the requests under way in that directory. Names go before the
 * listings for the same reason: a listing under way would put old entries back.
 */
#include "fs/slot/swap.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/node/inode.h"
#include "fs/node/invalidate.h"
#include "fs/serve/session.h"
#include "fs/slot/push.h"
#include "meta/meta.h"

#define ITEMS_MAX     20000	    /* above, forgetting all is cheaper */
#define MOVE_NS	      1000000000ULL /* after which the kernel has got an answer for sure */
#define LIST_NAMES    4	 /* changed names that make listing cheaper than looking at each */
#define DISTANCE_DIRS 32 /* second-level directories that are looked into */
#define DISTANCE_SKIP 16 /* what one counts that is not */

/* A directory whose node shows something else from now on. */
struct dir {
	uint64_t id;
	struct cas_digest old;
	struct fs_entry entry; /* new digest and properties */
	bool list_changed;
	bool props_changed;
};

struct name {
	uint64_t dir;
	char *name;
};

struct plan {
	struct fs_swap *swap;
	struct err *err;
	struct dir *dirs;
	size_t nr_dirs;
	size_t dirs_cap;
	struct name *names;
	size_t nr_names;
	size_t names_cap;
	size_t at; /* in dirs: the one being compared */
};

static int grow(void **array, size_t *cap, size_t nr, size_t item_sz)
{
	size_t want = *cap ? 2 * *cap : 64;
	void *grown;

	if (nr < *cap)
		return 0;
	grown = realloc(*array, want * item_sz);
	if (!grown)
		return -ENOMEM;
	*array = grown;
	*cap = want;
	return 0;
}

static int add_name(struct plan *p, uint64_t dir, const char *name)
{
	int ret = p->nr_names + p->nr_dirs < ITEMS_MAX ? 0 : -E2BIG;

	if (ret == 0)
		ret = grow((void **)&p->names, &p->names_cap, p->nr_names, sizeof(*p->names));
	if (ret < 0)
		return ret;
	p->names[p->nr_names] = (struct name){dir, strdup(name)};
	if (!p->names[p->nr_names].name)
		return -ENOMEM;
	p->nr_names++;
	return 0;
}

static bool same_props(const struct fs_entry *a, const struct fs_entry *b)
{
	return a->has_mtime == b->has_mtime && a->has_mode == b->has_mode &&
	       a->mtime_sec == b->mtime_sec && a->mtime_nsec == b->mtime_nsec && a->mode == b->mode;
}

static int add_dir(struct plan *p, const struct fs_inode *node, const struct cas_digest *new)
{
	struct dir dir = {.id = node->id, .old = node->entry.digest, .entry = {.digest = *new}};
	int ret = p->nr_names + p->nr_dirs < ITEMS_MAX ? 0 : -E2BIG;

	if (ret == 0)
		ret = fs_view_tree_props(p->swap->meta, &dir.entry, p->err);
	if (ret == 0)
		ret = grow((void **)&p->dirs, &p->dirs_cap, p->nr_dirs, sizeof(*p->dirs));
	if (ret < 0)
		return ret;
	dir.props_changed = !same_props(&node->entry, &dir.entry);
	p->dirs[p->nr_dirs++] = dir;
	return 0;
}

static int compare_entry(void *ctx, const struct meta_dirent *old, const struct meta_dirent *new)
{
	struct plan *p = ctx;
	uint64_t dir = p->dirs[p->at].id;
	struct fs_inode node;

	if (old && new && old->kind == CAS_NODE_DIRECTORY &&new->kind == CAS_NODE_DIRECTORY) {
		if (fs_inode_child(p->swap->session->table, dir, old->name, &node) &&
		    cas_digest_equal(&node.entry.digest, &old->digest))
			return add_dir(p, &node, &new->digest);
	} else {
		p->dirs[p->at].list_changed = true;
	}
	return add_name(p, dir, old ? old->name : new->name);
}

/*
 * Names that the kernel moved away from here, unless it failed to. It must be done with
 * that: if it finds a directory here locked, by us, the lookup there fails with ESTALE.
 */
static int add_given(struct plan *p)
{
	struct fs_inode_name *given = fs_inode_given(p->swap->session->table, p->swap->serial);
	unsigned long long now = lock_now_ns();
	int ret = 0;

	for (struct fs_inode_name *n = given; ret == 0 && n; n = n->next) {
		if (now - n->when_ns < MOVE_NS)
			ret = fs_invalidate_barrier(p->swap->session->se, n->to);
		if (ret == 0)
			ret = add_name(p, n->dir, n->name);
	}
	fs_inode_names_free(given);
	return ret;
}

static int make_plan(struct plan *p, const struct cas_digest *old, const struct cas_digest *new)
{
	struct fs_inode top;
	int ret = fs_inode_get(p->swap->session->table, p->swap->top, &top) ? 0 : -ESTALE;

	/* It would be a mistake of ours, and show one tree's entries in another. */
	if (ret == 0 && !cas_digest_equal(&top.entry.digest, old))
		ret = -ESTALE;
	if (ret == 0)
		ret = add_given(p);
	if (ret == 0)
		ret = add_dir(p, &top, new);
	for (p->at = 0; ret == 0 && p->at < p->nr_dirs; p->at++) {
		struct cas_digest from = p->dirs[p->at].old;
		struct cas_digest to = p->dirs[p->at].entry.digest;

		ret = meta_dir_diff(p->swap->meta, &from, &to, compare_entry, p, NULL, p->err);
	}
	return ret;
}

static void change_nodes(const struct plan *p)
{
	struct fs_inode_table *table = p->swap->session->table;

	for (size_t i = 0; i < p->nr_dirs; i++)
		fs_inode_swap(table, p->dirs[i].id, &p->dirs[i].entry);
	for (size_t i = 0; i < p->nr_names; i++)
		fs_inode_orphan(table, p->names[i].dir, p->names[i].name);
}

static int tell_kernel(const struct plan *p)
{
	struct fuse_session *se = p->swap->session->se;
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < p->nr_names; i++)
		ret = fs_invalidate_name(se, p->names[i].dir, p->names[i].name);
	for (size_t i = 0; ret == 0 && i < p->nr_dirs; i++) {
		const struct dir *dir = &p->dirs[i];

		if (dir->list_changed)
			ret = fs_invalidate_node(se, dir->id);
		else if (dir->props_changed)
			ret = fs_invalidate_attr(se, dir->id);
		p->swap->nr_nodes += dir->list_changed || dir->props_changed;
	}
	p->swap->nr_names += p->nr_names;
	return ret < 0 ? err_set(p->err, ret, "the kernel could not be told: %s",
				 strerrordesc_np(-ret))
		       : 0;
}

/* Names of one directory are beside each other, in the order of dirs. */
static void add_to_push(const struct plan *p, struct fs_push *push)
{
	for (size_t i = 0; i < p->nr_names;) {
		uint64_t dir = p->names[i].dir;
		size_t end = i;

		while (end < p->nr_names && p->names[end].dir == dir)
			end++;
		if (end - i > LIST_NAMES)
			fs_push_list(push, dir);
		for (; i < end; i++)
			fs_push_name(push, dir, p->names[i].name);
	}
}

int fs_swap_run(struct fs_swap *swap, const struct cas_digest *old, const struct cas_digest *new,
		struct err *err)
{
	struct plan p = {.swap = swap, .err = err};
	int ret = make_plan(&p, old, new);

	if (ret == 0) {
		change_nodes(&p);
		ret = tell_kernel(&p);
	}
	if (ret == 0 && swap->push)
		add_to_push(&p, swap->push);
	for (size_t i = 0; i < p.nr_names; i++)
		free(p.names[i].name);
	free(p.names);
	free(p.dirs);
	return ret;
}

struct distance {
	struct meta *meta;
	uint64_t nr_differ;
	uint64_t nr_same;
	unsigned dirs_left;
	bool below; /* in the second level */
	struct err *err;
};

static int count_entry(void *ctx, const struct meta_dirent *old, const struct meta_dirent *new)
{
	struct distance *d = ctx;
	uint64_t nr_same = 0;
	int ret;

	if (d->below || !old || !new || old->kind != CAS_NODE_DIRECTORY ||
	    new->kind != CAS_NODE_DIRECTORY) {
		d->nr_differ++;
		return 0;
	}
	if (d->dirs_left == 0) {
		d->nr_differ += DISTANCE_SKIP;
		return 0;
	}
	d->dirs_left--;
	d->below = true;
	ret = meta_dir_diff(d->meta, &old->digest, &new->digest, count_entry, d, &nr_same, d->err);
	d->below = false;
	d->nr_same += nr_same;
	return ret;
}

int fs_swap_distance(struct meta *meta, const struct cas_digest *old, const struct cas_digest *new,
		     uint64_t *out, struct err *err)
{
	struct distance d = {.meta = meta, .dirs_left = DISTANCE_DIRS, .err = err};
	uint64_t nr_same = 0;
	int ret = meta_dir_diff(meta, old, new, count_entry, &d, &nr_same, err);

	if (ret == 0 && nr_same + d.nr_same == 0 && d.nr_differ > 0)
		ret = -ENODATA;
	if (ret < 0)
		return ret;
	*out = d.nr_differ;
	return 0;
}
