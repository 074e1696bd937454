/* fs/view/cache.c - blobs by digest: cas/{file,executable,directory}/HASH-SIZE */

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
#include "fs/node/identity.h"
#include "fs/view/fixed.h"
#include "fs/view/view.h"
#include "meta/meta.h"

enum cache_tag { CACHE_TOP, CACHE_FILE, CACHE_EXECUTABLE, CACHE_DIRECTORY };

struct fs_view_cache {
	struct fs_view view;
	struct fs_view_tree tree;
	struct cas_store *store;
	struct fs_entry root;
};

static const struct fs_fixed cache_dirs[] = {
	{"file", CACHE_FILE, 0111, FS_KIND_DIR},
	{"executable", CACHE_EXECUTABLE, 0111, FS_KIND_DIR},
	{"directory", CACHE_DIRECTORY, 0111, FS_KIND_DIR},
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
	ret = fs_key_of_label(executable ? "cas/executable" : "cas/file", digest, &out->key);
	return ret < 0 ? ret : 1;
}

static int dir_entry(struct fs_view_cache *cache, const struct cas_digest *digest, const char *name,
		     struct fs_entry *out, struct err *err)
{
	struct fs_key path;
	int ret = fs_key_of_label(name, digest, &path);

	if (ret == 0)
		ret = fs_view_tree_root(&cache->tree, digest, &path, 0, out, err);
	if (ret == -ENOENT)
		return 0;
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
	if (dir->tag == CACHE_DIRECTORY)
		return dir_entry(cache, &digest, name, out, err);
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

static const struct fs_view_ops cache_ops = {.lookup = cache_lookup, .list = cache_list};

int fs_view_cache_new(struct cas_store *store, struct meta *meta, struct fs_view_cache **out)
{
	struct fs_view_cache *cache = calloc(1, sizeof(*cache));
	int ret;

	if (!cache)
		return -ENOMEM;
	cache->view = (struct fs_view){&cache_ops, cache};
	cache->store = store;
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
