/* fs/capture/missing.c - inputs that a sandbox wanted and could not have */
#include "fs/capture/missing.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM	     1
#define HASH_FUNCTION(key, len, out) memcpy(&(out), (key), sizeof(out))
#include <uthash.h>

#include "cas/cas.h"
#include "meta/meta.h"

/*
 * A file's node belongs to all sandboxes that show it at the same place, so a failed read
 * does not tell whose it was. The store remembers what failed, and whoever has such a
 * blob in his tree, and was alive then, is told: he may not have read it, but would have
 * failed.
 */

struct visited {
	struct cas_digest digest;
	UT_hash_handle hh;
};

struct walk {
	struct meta *meta;
	const struct cas_digest *failed;
	bool *found;
	size_t nr;
	struct visited *visited;
};

static void look(struct walk *w, const struct cas_digest *digest)
{
	for (size_t i = 0; i < w->nr; i++)
		w->found[i] |= cas_digest_equal(&w->failed[i], digest);
}

/* 1 new, 0 known, negative. */
static int visit(struct walk *w, const struct cas_digest *digest)
{
	struct visited *v;

	HASH_FIND(hh, w->visited, digest, sizeof(*digest), v);
	if (v)
		return 0;
	v = malloc(sizeof(*v));
	if (v == NULL)
		return -ENOMEM;
	v->digest = *digest;
	HASH_ADD(hh, w->visited, digest, sizeof(v->digest), v);
	if (v->hh.tbl)
		return 1;
	free(v);
	return -ENOMEM;
}

static int each_entry(void *ctx, uint64_t index, const struct meta_dirent *entry)
{
	struct walk *w = ctx;
	int ret = 0;

	if (entry->kind == CAS_NODE_SYMLINK)
		return 0;
	look(w, &entry->digest);
	if (entry->kind == CAS_NODE_DIRECTORY)
		ret = visit(w, &entry->digest);
	return ret < 0 ? ret : 0;
}

/* uthash keeps the order of insertion, so the table is the queue as well. */
static void walk_tree(struct walk *w, const struct cas_digest *root)
{
	struct err ignored = {0};

	look(w, root);
	if (visit(w, root) < 0)
		return;
	for (struct visited *v = w->visited; v; v = v->hh.next) {
		if (meta_dir_list(w->meta, &v->digest, 0, each_entry, w, &ignored) == -ENOMEM)
			return;
	}
}

static void walk_fini(struct walk *w)
{
	struct visited *v;
	struct visited *next;

	HASH_ITER (hh, w->visited, v, next) {
		HASH_DEL(w->visited, v);
		free(v);
	}
}

static int add(json_t *array, const struct cas_digest *digest)
{
	char subject[CAS_DIGEST_STR_SZ + 8];

	(void)snprintf(subject, sizeof(subject), "blobs/%s", CAS_DIGEST_TEXT(digest));
	return json_array_append_new(
		array, json_pack("{s:s, s:s}", "type", "MISSING", "subject", subject));
}

json_t *fs_missing_list(struct cas_store *store, struct meta *meta, const struct cas_digest *root,
			int64_t since_ns)
{
	struct cas_digest failed[CAS_STORE_MISSED_MAX];
	bool found[CAS_STORE_MISSED_MAX] = {false};
	struct walk w = {.meta = meta, .failed = failed, .found = found};
	json_t *array = json_array();

	w.nr = cas_store_missed_since(store, since_ns, failed);
	if (w.nr == 0 || array == NULL)
		return array;
	/* What is not here is not fetched for this. */
	cas_fetch_never_here(true);
	walk_tree(&w, root);
	cas_fetch_never_here(false);
	walk_fini(&w);
	for (size_t i = 0; i < w.nr; i++) {
		if (found[i])
			(void)add(array, &failed[i]);
	}
	return array;
}
