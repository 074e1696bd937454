/* fs/view/trees.c - Tree messages as directories */
/*
 * The entry of a directory has the digest of its Tree, and as tag its place in it: enough to
 * find everything again, so that no node holds anything. What is kept is bounded by NR_KEPT
 * and KEPT_MAX; a Tree that is larger is kept alone.
 */
#include "fs/view/trees.h"

#include <errno.h>
#include <stdlib.h>

#include "cas/cas.h"
#include "cas/reapi/tree_read.h"
#include "fs/message/tree_blob.h"
#include "fs/node/identity.h"
#include "fs/view/tree_i.h"

#define NR_KEPT	 16
#define KEPT_MAX (size_t)(64 << 20)

struct kept {
	struct cas_digest digest;
	struct fs_tree_blob *blob; /* counted; NULL: free */
	uint64_t used;
};

struct fs_view_trees {
	struct fs_view view;
	struct cas_store *store;
	struct lock lock;
	uint64_t clock GUARDED_BY(lock);
	size_t bytes GUARDED_BY(lock);
	struct kept kept[NR_KEPT] GUARDED_BY(lock);
};

static struct fs_tree_blob *find_kept(struct fs_view_trees *trees, const struct cas_digest *digest)
{
	struct fs_tree_blob *blob = NULL;

	lock_take(&trees->lock);
	for (size_t i = 0; blob == NULL && i < NR_KEPT; i++) {
		struct kept *k = &trees->kept[i];

		if (k->blob && cas_digest_equal(&k->digest, digest)) {
			k->used = ++trees->clock;
			blob = fs_tree_blob_ref(k->blob);
		}
	}
	lock_drop(&trees->lock);
	return blob;
}

static void drop_kept_locked(struct fs_view_trees *trees, struct kept *k) REQUIRES(trees->lock)
{
	if (k->blob == NULL)
		return;
	trees->bytes -= fs_tree_blob_size(k->blob);
	fs_tree_blob_unref(k->blob);
	k->blob = NULL;
	k->used = 0;
}

static struct kept *oldest_locked(struct fs_view_trees *trees) REQUIRES(trees->lock)
{
	struct kept *oldest = &trees->kept[0];

	for (size_t i = 1; i < NR_KEPT; i++)
		if (trees->kept[i].used < oldest->used)
			oldest = &trees->kept[i];
	return oldest;
}

/* The oldest in use; NULL: all are free. */
static struct kept *victim_locked(struct fs_view_trees *trees) REQUIRES(trees->lock)
{
	struct kept *victim = NULL;

	for (size_t i = 0; i < NR_KEPT; i++)
		if (trees->kept[i].blob && (!victim || trees->kept[i].used < victim->used))
			victim = &trees->kept[i];
	return victim;
}

static void keep(struct fs_view_trees *trees, const struct cas_digest *digest,
		 struct fs_tree_blob *blob)
{
	size_t size = fs_tree_blob_size(blob);
	struct kept *k;

	lock_take(&trees->lock);
	while (trees->bytes + size > KEPT_MAX && (k = victim_locked(trees)) != NULL)
		drop_kept_locked(trees, k);
	k = oldest_locked(trees);
	drop_kept_locked(trees, k);
	*k = (struct kept){*digest, fs_tree_blob_ref(blob), ++trees->clock};
	trees->bytes += size;
	lock_drop(&trees->lock);
}

/* Counted; unref it. */
static int get(struct fs_view_trees *trees, const struct cas_digest *digest,
	       struct fs_tree_blob **out, struct err *err)
{
	auto_buf struct buf data = {0};
	int ret = 0;

	*out = find_kept(trees, digest);
	if (*out)
		return 0;
	if (!cas_digest_is_empty(digest))
		ret = cas_store_read_blob(trees->store, digest, CAS_TREE_MAX, &data, err);
	if (ret == -EFBIG)
		ret = err_set(err, -EUCLEAN, "too large");
	if (ret == 0)
		ret = fs_tree_blob_new(buf_str(&data), data.len, out, err);
	if (ret == -EUCLEAN)
		return err_context(err, ret, "%s is no Tree", CAS_DIGEST_TEXT(digest));
	if (ret == 0)
		keep(trees, digest, *out);
	return ret;
}

/* The child's entry; out->target is borrowed from @from. */
static int entry_of(const struct fs_tree_blob *blob, const struct fs_view *view,
		    const struct fs_entry *dir, const struct meta_dirent *from, uint64_t child,
		    struct fs_entry *out)
{
	struct meta_dirinfo info;
	int ret = fs_tree_entry(view, dir, from->name, from, out);

	if (ret < 0 || from->kind != CAS_NODE_DIRECTORY)
		return ret;
	ret = fs_tree_blob_info(blob, child, &info);
	if (ret < 0)
		return ret;
	out->digest = dir->digest;
	out->tag = child;
	fs_tree_dir_props(&info.props, out);
	return 0;
}

static int trees_lookup(const struct fs_view *view, const struct fs_entry *dir, const char *name,
			struct fs_entry *out, struct err *err)
{
	struct fs_tree_blob *blob;
	struct meta_dirent found = {0};
	uint64_t child = 0;
	int ret = get(view->ctx, &dir->digest, &blob, err);

	if (ret < 0)
		return ret;
	ret = fs_tree_blob_find(blob, dir->tag, name, &found, &child);
	if (ret == 1) {
		ret = entry_of(blob, view, dir, &found, child, out);
		if (ret == 0 && out->kind == FS_KIND_SYMLINK)
			found.target = NULL; /* handed over */
		meta_dirent_fini(&found);
		ret = ret < 0 ? ret : 1;
	}
	fs_tree_blob_unref(blob);
	return ret;
}

static int trees_list(const struct fs_view *view, const struct fs_entry *dir, uint64_t start,
		      fs_view_each_fn each, void *ctx, struct err *err)
{
	struct fs_tree_blob *blob;
	int ret = get(view->ctx, &dir->digest, &blob, err);

	if (ret < 0)
		return ret;
	for (uint64_t i = start;; i++) {
		struct meta_dirent from = {0};
		struct fs_entry entry = {0};
		uint64_t child = 0;

		ret = fs_tree_blob_get(blob, dir->tag, i, &from, &child);
		if (ret <= 0)
			break;
		ret = entry_of(blob, view, dir, &from, child, &entry);
		if (ret == 0)
			ret = each(ctx, i, from.name, &entry);
		meta_dirent_fini(&from);
		if (ret != 0)
			break;
	}
	fs_tree_blob_unref(blob);
	return ret < 0 ? ret : 0;
}

static const struct fs_view_ops trees_ops = {
	.lookup = trees_lookup,
	.list = trees_list,
	.negative_forever = true,
};

int fs_view_trees_new(struct cas_store *store, struct fs_view_trees **out)
{
	struct fs_view_trees *trees = calloc(1, sizeof(*trees));

	if (trees == NULL)
		return -ENOMEM;
	trees->view = (struct fs_view){&trees_ops, trees};
	trees->store = store;
	lock_init(&trees->lock, LOCK_RANK_LEAF, "trees");
	*out = trees;
	return 0;
}

NO_LOCK_CHECK void fs_view_trees_free(struct fs_view_trees *trees)
{
	if (trees == NULL)
		return;
	for (size_t i = 0; i < NR_KEPT; i++)
		fs_tree_blob_unref(trees->kept[i].blob);
	lock_fini(&trees->lock);
	free(trees);
}

int fs_view_trees_root(struct fs_view_trees *trees, const struct cas_digest *digest,
		       const struct fs_key *path, struct fs_entry *out, struct err *err)
{
	struct fs_tree_blob *blob;
	struct meta_dirinfo info;
	int ret = get(trees, digest, &blob, err);

	if (ret < 0)
		return ret;
	ret = fs_tree_blob_info(blob, 0, &info);
	fs_tree_blob_unref(blob);
	if (ret < 0)
		return ret;
	out->view = &trees->view;
	out->kind = FS_KIND_DIR;
	out->digest = *digest;
	out->tag = 0;
	out->key = *path;
	fs_tree_dir_props(&info.props, out);
	return 0;
}
