/* fs/view/tree.c - the read-only tree of a root digest */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/node/identity.h"
#include "fs/view/tree_i.h"
#include "fs/view/view.h"
#include "meta/meta.h"

#define MODE_MASK 0777

static void take_props(struct fs_entry *out, bool has_mtime, int64_t sec, int32_t nsec,
		       bool has_mode, uint32_t mode)
{
	out->has_mtime = has_mtime;
	out->has_mode = has_mode;
	out->mtime_sec = has_mtime ? sec : 0;
	out->mtime_nsec = has_mtime ? nsec : 0;
	out->mode = has_mode ? (uint16_t)(mode & MODE_MASK) : 0;
}

static const struct fs_view_tree *tree_of(const struct fs_view *view)
{
	return view->ctx;
}

void fs_tree_dir_props(const struct cas_properties *props, struct fs_entry *out)
{
	take_props(out, props->has_mtime, props->mtime_sec, props->mtime_nsec, props->has_mode,
		   props->mode);
}

int fs_view_tree_props(struct meta *meta, struct fs_entry *out, struct err *err)
{
	struct meta_dirinfo info;
	int ret = meta_dir_info(meta, &out->digest, &info, err);

	if (ret < 0)
		return ret;
	fs_tree_dir_props(&info.props, out);
	return 0;
}

int fs_tree_entry(const struct fs_view *view, const struct fs_entry *dir, const char *name,
		  const struct meta_dirent *from, struct fs_entry *out)
{
	out->view = view;
	switch (from->kind) {
	case CAS_NODE_DIRECTORY:
		out->kind = FS_KIND_DIR;
		out->digest = from->digest;
		return fs_key_of_path(&dir->key, name, &out->key);
	case CAS_NODE_SYMLINK:
		out->kind = FS_KIND_SYMLINK;
		out->target = from->target;
		break;
	case CAS_NODE_FILE:
		out->kind = FS_KIND_FILE;
		out->digest = from->digest;
		out->executable = from->executable;
		break;
	}
	take_props(out, from->has_mtime, from->mtime_sec, from->mtime_nsec, from->has_mode,
		   from->mode);
	return fs_key_of_leaf(&dir->key, name, out, &out->key);
}

static int tree_lookup(const struct fs_view *view, const struct fs_entry *dir, const char *name,
		       struct fs_entry *out, struct err *err)
{
	struct meta_dirent found = {0};
	int ret = meta_dir_find(tree_of(view)->meta, &dir->digest, name, &found, err);

	if (ret <= 0)
		return ret;
	ret = fs_tree_entry(view, dir, name, &found, out);
	if (ret == 0 && out->kind == FS_KIND_SYMLINK)
		found.target = NULL; /* handed over */
	if (ret == 0 && out->kind == FS_KIND_DIR)
		ret = fs_view_tree_props(tree_of(view)->meta, out, err);
	meta_dirent_fini(&found);
	return ret < 0 ? ret : 1;
}

struct tree_list {
	const struct fs_view *view;
	const struct fs_entry *dir;
	fs_view_each_fn each;
	void *ctx;
};

static int tree_list_one(void *ctx, uint64_t index, const struct meta_dirent *entry)
{
	const struct tree_list *list = ctx;
	struct fs_entry out = {0};
	int ret = fs_tree_entry(list->view, list->dir, entry->name, entry, &out);

	return ret < 0 ? ret : list->each(list->ctx, index, entry->name, &out);
}

static int tree_list(const struct fs_view *view, const struct fs_entry *dir, uint64_t start,
		     fs_view_each_fn each, void *ctx, struct err *err)
{
	struct tree_list list = {view, dir, each, ctx};

	return meta_dir_list(tree_of(view)->meta, &dir->digest, start, tree_list_one, &list, err);
}

static int tree_complete(const struct fs_view *view, struct fs_entry *entry, struct err *err)
{
	if (entry->kind != FS_KIND_DIR)
		return 0;
	return fs_view_tree_props(tree_of(view)->meta, entry, err);
}

static const struct fs_view_ops tree_ops = {
	.lookup = tree_lookup,
	.list = tree_list,
	.complete = tree_complete,
	.negative_forever = true,
};

void fs_view_tree_init(struct fs_view_tree *tree, struct meta *meta)
{
	*tree = (struct fs_view_tree){.view = {&tree_ops, tree}, .meta = meta};
}

int fs_view_tree_root(const struct fs_view_tree *tree, const struct cas_digest *root,
		      const struct fs_key *path, uint64_t serial, struct fs_entry *out,
		      struct err *err)
{
	out->view = &tree->view;
	out->kind = FS_KIND_DIR;
	out->digest = *root;
	out->key = *path;
	out->serial = serial;
	return fs_view_tree_props(tree->meta, out, err);
}
