/* cas/fetch/fetch_tree.c - the missing Directories of a tree, a level each round trip */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/log.h"
#include "cas/fetch/fetch_i.h"
#include "cas/put/put.h"
#include "cas/reapi/closure_i.h"
#include "cas/reapi/directory.h"
#include "cas/store/store_i.h"

/*
 * A level is what the Directories of the level before name. What is missing of it is
 * claimed, so that those who come for one of them meanwhile wait for the batch, and asked
 * of one tier after the other; then only those that were missing are looked into, since
 * below one that was here most is here, and who finds a gap there starts another search.
 */

#define BATCH_MAX 4096

struct seen {
	struct cas_digest digest;
	UT_hash_handle hh;
};

struct search {
	struct cas_fetch *fetch;
	struct cas_fetch_tree *tree;
	const struct cas_tier *tier; /* that is asked for all at once */
	struct cas_digests level;
	struct cas_digests next;
	struct seen *seen;
};

/* 1 new, 0 seen before, -ENOMEM. */
static int mark(struct search *s, const struct cas_digest *digest)
{
	struct seen *seen;

	HASH_FIND(hh, s->seen, digest, sizeof(*digest), seen);
	if (seen)
		return 0;
	seen = malloc(sizeof(*seen));
	if (seen == NULL)
		return -ENOMEM;
	seen->digest = *digest;
	HASH_ADD(hh, s->seen, digest, sizeof(seen->digest), seen);
	if (seen->hh.tbl == NULL) {
		free(seen);
		return -ENOMEM;
	}
	return 1;
}

static void search_fini(struct search *s)
{
	struct seen *seen;
	struct seen *next;

	HASH_ITER (hh, s->seen, seen, next) {
		HASH_DEL(s->seen, seen);
		free(seen);
	}
	free(s->level.at);
	free(s->next.at);
}

/* ---- levels ---- */

static int expand(struct search *s, const struct cas_digest *digest)
{
	struct cas_directory *dir = NULL;
	struct err why = {0};
	int ret = 0;

	/* Still missing, or no Directory: whoever looks there is told. */
	if (!cas_fetch_is_here(s->fetch, digest) ||
	    cas_directory_load(s->fetch->store, digest, &dir, &why) < 0)
		return 0;
	for (size_t i = 0; i < dir->nr_nodes && ret >= 0; i++) {
		const struct cas_node *node = &dir->nodes[i];

		if (node->kind != CAS_NODE_DIRECTORY || cas_digest_is_empty(&node->digest))
			continue;
		ret = mark(s, &node->digest);
		if (ret == 1)
			ret = cas_digests_add(&s->next, &node->digest);
	}
	cas_directory_free(dir);
	return ret < 0 ? ret : 0;
}

/* Part of a level: those of @part that are missing are brought, and looked into. */
static int do_part(struct search *s, const struct cas_digest *part, size_t nr)
{
	struct cas_digests missing = {0};
	int ret = 0;

	for (size_t i = 0; i < nr && ret == 0; i++) {
		if (!cas_fetch_is_here(s->fetch, &part[i]))
			ret = cas_digests_add(&missing, &part[i]);
		else if (cas_digest_equal(&part[i], &s->tree->root))
			ret = expand(s, &part[i]);
	}
	if (ret == 0 && missing.nr > 0)
		ret = cas_fetch_batch(s->fetch, missing.at, missing.nr, &s->tree->call);
	for (size_t i = 0; i < missing.nr && ret == 0; i++)
		ret = expand(s, &missing.at[i]);
	free(missing.at);
	return ret;
}

static int do_levels(struct search *s)
{
	int ret = cas_digests_add(&s->level, &s->tree->root);

	while (ret == 0 && s->level.nr > 0) {
		struct cas_digests done;

		for (size_t i = 0; i < s->level.nr && ret == 0; i += BATCH_MAX) {
			size_t nr = s->level.nr - i < BATCH_MAX ? s->level.nr - i : BATCH_MAX;

			ret = do_part(s, s->level.at + i, nr);
		}
		done = s->level;
		s->level = s->next;
		done.nr = 0;
		s->next = done;
	}
	return ret;
}

static int keep(void *ctx, const void *data, size_t len)
{
	struct search *s = ctx;
	struct cas_directory *dir = NULL;
	struct cas_digest digest;
	int ret;

	if (len == 0)
		return 0;
	/* Named by its own hash, whatever was asked for; but nothing that is no Directory. */
	ret = cas_directory_decode(data, len, &dir, NULL);
	cas_directory_free(dir);
	if (ret < 0)
		return 0;
	ret = cas_put_bytes(s->fetch->store, data, len, &digest, NULL);
	if (ret == 0)
		cas_fetch_came(s->fetch, &digest, s->tier);
	return ret;
}

/* All at once where that is possible; what it leaves out is found level by level. */
static void try_tree(struct search *s)
{
	for (size_t i = 0; i < s->fetch->nr_tiers; i++) {
		struct cas_tier *tier = s->fetch->tiers[i];
		struct err err = {0};

		s->tier = tier;
		if (cas_tier_has_trees(tier) &&
		    cas_tier_get_tree(tier, &s->tree->root, keep, s, &s->tree->call, &err) == 0)
			return;
	}
}

void cas_fetch_tree_run(struct cas_fetch *f, struct cas_fetch_task *task)
{
	struct cas_fetch_tree *tree = (struct cas_fetch_tree *)task;
	struct search s = {.fetch = f, .tree = tree};
	int ret;

	if (!cas_fetch_is_here(f, &tree->root))
		try_tree(&s);
	ret = do_levels(&s);
	if (ret < 0 && ret != -ECANCELED)
		log_info("looking for the Directories below %s: %s", CAS_DIGEST_TEXT(&tree->root),
			 strerrordesc_np(-ret));
	search_fini(&s);
	lock_take(&f->lock);
	HASH_DEL(f->trees, tree);
	lock_drop(&f->lock);
	cas_call_fini(&tree->call);
	free(tree);
}

void cas_fetch_foresee_tree(struct cas_fetch *fetch, const struct cas_digest *root)
{
	struct cas_fetch_tree *tree = NULL;

	lock_take(&fetch->lock);
	HASH_FIND(hh, fetch->trees, root, sizeof(*root), tree);
	if (tree == NULL && !fetch->ending)
		tree = calloc(1, sizeof(*tree));
	else
		tree = NULL;
	if (tree) {
		tree->root = *root;
		tree->task.run = cas_fetch_tree_run;
		tree->task.background = true;
		cas_call_init(&tree->call, 0);
		HASH_ADD(hh, fetch->trees, root, sizeof(tree->root), tree);
		if (tree->hh.tbl && cas_fetch_submit_locked(fetch, &tree->task) < 0)
			HASH_DEL(fetch->trees, tree);
		else if (tree->hh.tbl)
			tree = NULL; /* a thread's */
	}
	lock_drop(&fetch->lock);
	if (tree) {
		cas_call_fini(&tree->call);
		free(tree);
	}
}
