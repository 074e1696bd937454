/* fs/view/cache.c - blobs by digest: cas/{file,executable,directory,tree,command}/HASH-SIZE */

/*
 * Names resolve by lookup and are never listed, so the directories are 0111. A name may
 * appear at any time: what is missing is not remembered by the kernel. A directory has
 * one node a spelling of its digest, since the kernel moves a directory that it meets
 * under a second name.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/message/script.h"
#include "fs/node/identity.h"
#include "fs/view/fixed.h"
#include "fs/view/trees.h"
#include "fs/view/view.h"
#include "meta/meta.h"

enum cache_tag {
	CACHE_TOP,
	CACHE_FILE,
	CACHE_EXECUTABLE,
	CACHE_DIRECTORY,
	CACHE_TREE,
	CACHE_COMMAND,
};

struct fs_view_cache {
	struct fs_view view;
	struct fs_view_tree tree;
	struct fs_view_trees *trees;
	struct cas_store *store;
	struct fs_entry root;
};

static const struct fs_fixed cache_dirs[] = {
	{"file", CACHE_FILE, 0111, FS_KIND_DIR},
	{"executable", CACHE_EXECUTABLE, 0111, FS_KIND_DIR},
	{"directory", CACHE_DIRECTORY, 0111, FS_KIND_DIR},
	{"tree", CACHE_TREE, 0111, FS_KIND_DIR},
	{"command", CACHE_COMMAND, 0111, FS_KIND_DIR},
};
#define NR_CACHE_DIRS (sizeof(cache_dirs) / sizeof(cache_dirs[0]))

static const struct fs_fixed cache_top = {"cas", CACHE_TOP, 0555, FS_KIND_DIR};

/* 1, 0 for a name that is no digest or of unknown size, or negative. */
static int parse_name(struct cas_store *store, const char *name, struct cas_digest *out)
{
	uint8_t hash[CAS_HASH_SZ];

	if (cas_digest_parse(name, out) == 0)
		return 1;
	if (cas_hash_parse(name, strlen(name), hash) < 0)
		return 0;
	return cas_store_resolve(store, hash, out);
}

static int file_entry(struct fs_view_cache *cache, const struct cas_digest *digest, bool executable,
		      struct fs_entry *out)
{
	/*
	 * With tiers a name is there until an open finds otherwise: the kernel lets nobody
	 * leave who waits for a lookup of somebody else's, so that must not take long.
	 */
	int ret = cas_fetch_of(cache->store) ? 1 : cas_store_has(cache->store, digest);

	if (ret <= 0)
		return ret == -ENOENT ? 0 : ret;
	out->view = &cache->view;
	out->kind = FS_KIND_FILE;
	out->digest = *digest;
	out->executable = executable;
	out->named_blob = !cas_fetch_of(cache->store);
	ret = fs_key_of_label(executable ? "cas/executable" : "cas/file", digest, &out->key);
	return ret < 0 ? ret : 1;
}

/* What is of no use as what it is asked for is not there if it is not there at all. */
static int refuse(struct fs_view_cache *cache, const struct cas_digest *digest, int code)
{
	if (code == -ENOENT || (code == -EUCLEAN && cas_store_has(cache->store, digest) == 0))
		return 0;
	return code;
}

static int dir_entry(struct fs_view_cache *cache, const struct cas_digest *digest, const char *name,
		     bool tree, struct fs_entry *out, struct err *err)
{
	struct fs_key path;
	int ret = fs_key_of_label(name, digest, &path);

	if (ret == 0 && tree)
		ret = fs_view_trees_root(cache->trees, digest, &path, out, err);
	else if (ret == 0)
		ret = fs_view_tree_root(&cache->tree, digest, &path, 0, out, err);
	return ret < 0 ? refuse(cache, digest, ret) : 1;
}

/* The script of a Command, as an open of it finds it. */
static int command_text(struct fs_view_cache *cache, const struct cas_digest *digest,
			struct buf *out, struct err *err)
{
	struct cas_command command = {0};
	auto_buf struct buf data = {0};
	int ret = cas_store_read_blob(cache->store, digest, CAS_ACTION_MAX, &data, err);

	if (ret == -EFBIG)
		ret = err_set(err, -EUCLEAN, "too large");
	if (ret == 0)
		ret = cas_command_decode(buf_str(&data), data.len, &command, err);
	if (ret == 0)
		ret = fs_command_script(&command, digest, out);
	cas_command_fini(&command);
	return ret;
}

static int command_entry(struct fs_view_cache *cache, const struct cas_digest *digest,
			 struct fs_entry *out, struct err *err)
{
	auto_buf struct buf text = {0};
	int ret = command_text(cache, digest, &text, err);

	if (ret == -EUCLEAN)
		(void)err_context(err, ret, "%s is no Command", CAS_DIGEST_TEXT(digest));
	if (ret < 0)
		return refuse(cache, digest, ret);
	out->view = &cache->view;
	out->kind = FS_KIND_TEXT;
	out->tag = CACHE_COMMAND;
	out->digest = *digest;
	out->has_mode = true;
	out->mode = 0555;
	ret = fs_key_of_label("cas/command", digest, &out->key);
	return ret < 0 ? ret : 1;
}

static int fixed_lookup(struct fs_view_cache *cache, const char *name, struct fs_entry *out)
{
	for (size_t i = 0; i < NR_CACHE_DIRS; i++) {
		int ret;

		if (strcmp(cache_dirs[i].name, name) != 0)
			continue;
		ret = fs_fixed_entry(&cache->view, &cache_dirs[i], cache_dirs[i].name, out);
		return ret < 0 ? ret : 1;
	}
	return 0;
}

static int cache_lookup(const struct fs_view *view, const struct fs_entry *dir, const char *name,
			struct fs_entry *out, struct err *err)
{
	struct fs_view_cache *cache = view->ctx;
	struct cas_digest digest;
	int ret;

	if (dir->tag == CACHE_TOP)
		return fixed_lookup(cache, name, out);
	ret = parse_name(cache->store, name, &digest);
	if (ret <= 0)
		return ret;
	if (dir->tag == CACHE_DIRECTORY || dir->tag == CACHE_TREE)
		return dir_entry(cache, &digest, name, dir->tag == CACHE_TREE, out, err);
	if (dir->tag == CACHE_COMMAND)
		return command_entry(cache, &digest, out, err);
	return file_entry(cache, &digest, dir->tag == CACHE_EXECUTABLE, out);
}

static int cache_list(const struct fs_view *view, const struct fs_entry *dir, uint64_t start,
		      fs_view_each_fn each, void *ctx, struct err *err)
{
	struct fs_view_cache *cache = view->ctx;

	if (dir->tag != CACHE_TOP)
		return 0;
	for (uint64_t i = start; i < NR_CACHE_DIRS; i++) {
		struct fs_entry entry = {0};
		int ret = fixed_lookup(cache, cache_dirs[i].name, &entry);

		if (ret > 0)
			ret = each(ctx, i, cache_dirs[i].name, &entry);
		if (ret != 0)
			return ret < 0 ? ret : 0;
	}
	return 0;
}

/* The blob may have gone since it was looked up: then the kernel is to look again. */
static int cache_text(const struct fs_view *view, const struct fs_entry *entry, struct buf *out)
{
	int ret = command_text(view->ctx, &entry->digest, out, NULL);

	return ret == -ENOENT ? -ESTALE : ret;
}

static const struct fs_view_ops cache_ops = {
	.lookup = cache_lookup,
	.list = cache_list,
	.text = cache_text,
};

int fs_view_cache_new(struct cas_store *store, struct meta *meta, struct fs_view_trees *trees,
		      struct fs_view_cache **out)
{
	struct fs_view_cache *cache = calloc(1, sizeof(*cache));
	int ret;

	if (!cache)
		return -ENOMEM;
	cache->view = (struct fs_view){&cache_ops, cache};
	cache->store = store;
	cache->trees = trees;
	fs_view_tree_init(&cache->tree, meta);
	ret = fs_fixed_entry(&cache->view, &cache_top, "cas", &cache->root);
	if (ret < 0) {
		free(cache);
		return ret;
	}
	*out = cache;
	return 0;
}

void fs_view_cache_free(struct fs_view_cache *cache)
{
	free(cache);
}

void fs_view_cache_root(struct fs_view_cache *cache, struct fs_entry *out)
{
	*out = cache->root;
}
