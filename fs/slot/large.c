/* fs/slot/large.c - large inputs of sandboxes, bound from session two */
#include "fs/slot/large.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#define HASH_FUNCTION	  HASH_FNV
#include <uthash.h>

#include "cas/cas.h"
#include "fs/backing/probe.h"
#include "fs/node/identity.h"
#include "fs/sandbox/outputs.h"
#include "fs/serve/executor.h"
#include "fs/view/view.h"
#include "meta/index/large.h"

#define NAME_SZ (2 * FS_KEY_SZ + 1)

/* A name of MNT/.casbox/large. */
struct named {
	char name[NAME_SZ];
	struct fs_entry entry;
	unsigned nr_users; /* sandboxes that are binding it */
	UT_hash_handle hh;
};

/* A search in the background; one at a time is enough, as it helps the others. */
struct searching {
	struct fs_job job; /* first: the job is the search */
	struct fs_large *large;
	struct cas_digest root;
	_Atomic bool runs;
};

struct fs_large {
	struct fs_large_options opts;
	char *mountpoint;
	struct meta_large *index;
	struct fs_view_tree tree;
	struct searching searching;
	struct lock lock;
	struct named *named GUARDED_BY(lock);
};

int fs_large_new(const struct fs_large_options *opts, struct fs_large **out)
{
	struct fs_large *large = calloc(1, sizeof(*large));

	if (!large)
		return -ENOMEM;
	large->opts = *opts;
	large->mountpoint = strdup(opts->mountpoint);
	lock_init(&large->lock, LOCK_RANK_LEAF, "large inputs");
	if (!large->mountpoint || meta_large_new(opts->meta, opts->min_size, &large->index) < 0) {
		fs_large_free(large);
		return -ENOMEM;
	}
	fs_view_tree_init(&large->tree, opts->meta);
	*out = large;
	return 0;
}

void fs_large_stop(struct fs_large *large)
{
	if (large)
		meta_large_stop(large->index);
}

NO_LOCK_CHECK void fs_large_free(struct fs_large *large)
{
	struct named *named, *next;

	if (!large)
		return;
	HASH_ITER (hh, large->named, named, next) {
		HASH_DEL(large->named, named);
		free(named);
	}
	meta_large_free(large->index);
	lock_fini(&large->lock);
	free(large->mountpoint);
	free(large);
}

/* What is not in the store is not asked of a tier: an action that needs it will. */
static int find(struct fs_large *large, const struct cas_digest *root,
		enum meta_large_effort effort, struct meta_large_list **out)
{
	struct err err = {0};
	int ret;

	cas_fetch_never_here(true);
	ret = meta_large_find(large->index, root, effort, out, &err);
	cas_fetch_never_here(false);
	if (ret < 0 && ret != -ECANCELED && ret != -EAGAIN)
		log_at(ret == -ENOENT ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARN, "large inputs of %s: %s",
		       CAS_DIGEST_TEXT(root), err_text(&err, ret));
	return ret;
}

static void run_search(struct fs_job *job)
{
	struct searching *s = (struct searching *)job;
	struct meta_large_list *list = NULL;

	(void)find(s->large, &s->root, META_LARGE_THOROUGH, &list);
	meta_large_unref(list);
	atomic_store(&s->runs, false);
}

static void search_later(struct fs_large *large, const struct cas_digest *root)
{
	struct searching *s = &large->searching;
	bool idle = false;

	if (!atomic_compare_exchange_strong(&s->runs, &idle, true))
		return;
	s->job.run = run_search;
	s->large = large;
	s->root = *root;
	fs_executor_submit(large->opts.executor, &s->job);
}

static void name_of(const struct fs_key *key, char out[NAME_SZ])
{
	for (size_t i = 0; i < FS_KEY_SZ; i++)
		(void)snprintf(out + 2 * i, 3, "%02x", key->bytes[i]);
}

static int name_add(struct fs_large *large, const char *name, const struct fs_entry *entry)
{
	struct named *fresh = calloc(1, sizeof(*fresh));
	struct named *named;
	int ret = 0;

	if (!fresh)
		return -ENOMEM;
	(void)strcpy(fresh->name, name);
	fresh->entry = *entry;
	lock_take(&large->lock);
	HASH_FIND_STR(large->named, name, named);
	if (!named) {
		HASH_ADD_STR(large->named, name, fresh);
		named = fresh->hh.tbl ? fresh : NULL;
		fresh = named ? NULL : fresh;
	}
	if (named)
		named->nr_users++;
	else
		ret = -ENOMEM;
	lock_drop(&large->lock);
	free(fresh);
	return ret;
}

static void name_drop(struct fs_large *large, const char *name)
{
	struct named *named;

	lock_take(&large->lock);
	HASH_FIND_STR(large->named, name, named);
	if (named && --named->nr_users == 0)
		HASH_DEL(large->named, named);
	else
		named = NULL;
	lock_drop(&large->lock);
	free(named);
}

int fs_large_lookup(struct fs_large *large, const char *name, struct fs_entry *out)
{
	struct named *named;

	if (!large)
		return 0;
	lock_take(&large->lock);
	HASH_FIND_STR(large->named, name, named);
	if (named)
		*out = named->entry;
	lock_drop(&large->lock);
	return named != NULL;
}

/* What session one shows at @path of @root. */
static int look(struct fs_large *large, const struct cas_digest *root, const char *path,
		struct fs_entry *out, struct err *err)
{
	struct fs_entry dir = {0};
	int ret = fs_view_tree_root(&large->tree, root, &fs_key_zero, 0, &dir, err);

	while (ret >= 0) {
		size_t len = strcspn(path, "/");
		char name[CAS_NAME_MAX + 1];

		if (len > CAS_NAME_MAX)
			return -ENAMETOOLONG;
		memcpy(name, path, len);
		name[len] = '\0';
		path += len;
		*out = (struct fs_entry){0};
		ret = dir.view->ops->lookup(dir.view, &dir, name, out, err);
		if (ret == 1 && out->kind == FS_KIND_SYMLINK)
			free((char *)(uintptr_t)out->target);
		if (ret == 0 || (ret == 1 && out->kind != (*path ? FS_KIND_DIR : FS_KIND_FILE)))
			return -ENOENT;
		if (ret == 1 && *path == '\0')
			return 0;
		path++;
		dir = *out;
	}
	return ret;
}

static int add_input(struct fs_large *large, const struct cas_digest *root, const char *path,
		     struct fs_large_inputs *out, struct err *err)
{
	struct fs_large_input *in = &out->in[out->nr];
	struct fs_entry entry;
	char name[NAME_SZ];
	int ret = look(large, root, path, &entry, err);

	if (ret < 0)
		return ret;
	name_of(&entry.key, name);
	*in = (struct fs_large_input){.path = strdup(path)};
	if (asprintf(&in->source, "%s/.casbox/large/%s", large->mountpoint, name) < 0)
		in->source = NULL;
	ret = in->path && in->source ? name_add(large, name, &entry) : -ENOMEM;
	if (ret < 0) {
		free(in->path);
		free(in->source);
		return ret;
	}
	out->nr++;
	return 0;
}

static bool is_output(const struct fs_outputs *outputs, const char *path)
{
	for (size_t i = 0; i < outputs->nr; i++) {
		if (fs_path_within(path, outputs->out[i].path))
			return true;
	}
	return false;
}

static void choose_of(struct fs_large *large, const struct cas_digest *root,
		      const struct meta_large_list *list, const struct fs_outputs *outputs,
		      struct fs_large_inputs *out)
{
	struct err err = {0};
	int ret = 0;

	if (list->nr > 0) {
		out->in = calloc(list->nr, sizeof(*out->in));
		ret = out->in ? 0 : -ENOMEM;
	}
	for (size_t i = 0; ret == 0 && i < list->nr; i++) {
		if (!is_output(outputs, list->files[i].path))
			ret = add_input(large, root, list->files[i].path, out, &err);
	}
	if (ret < 0)
		log_warn("large inputs of %s: %s", CAS_DIGEST_TEXT(root), err_text(&err, ret));
}

void fs_large_choose(struct fs_large *large, const struct cas_digest *root,
		     const struct fs_outputs *outputs, struct fs_large_inputs *out)
{
	struct meta_large_list *list = NULL;
	bool searching;
	int ret;

	*out = (struct fs_large_inputs){0};
	if (!large || !fs_probes_has(large->opts.probes, FS_FEATURE_LARGE) ||
	    !fs_probes_has(large->opts.probes, FS_FEATURE_PASSTHROUGH))
		return;
	searching = atomic_load(&large->searching.runs);
	ret = find(large, root, searching ? META_LARGE_KNOWN : META_LARGE_QUICK, &list);
	if (ret == -EAGAIN)
		search_later(large, root);
	if (ret < 0)
		return;
	choose_of(large, root, list, outputs, out);
	meta_large_unref(list);
}

void fs_large_done(struct fs_large *large, const struct fs_large_inputs *inputs)
{
	for (size_t i = 0; i < inputs->nr; i++)
		name_drop(large, strrchr(inputs->in[i].source, '/') + 1);
}

void fs_large_inputs_fini(struct fs_large_inputs *inputs)
{
	for (size_t i = 0; i < inputs->nr; i++) {
		free(inputs->in[i].path);
		free(inputs->in[i].source);
	}
	free(inputs->in);
	*inputs = (struct fs_large_inputs){0};
}
