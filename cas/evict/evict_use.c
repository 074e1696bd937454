/* cas/evict/evict_use.c - uses of whole trees, and uses since the victims were chosen */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/log.h"
#include "cas/evict/evict_i.h"
#include "cas/store/store_i.h"

/*
 * A put of a tree that was mostly there records one use, of the tree. Before blobs are
 * chosen it is spread over what is in the tree: into the catalog where that is believed,
 * page by page, and then it is done with; else over the candidates in memory.
 */

#define PAGE 1024

int cas_evict_fresh_trees(struct cas_eviction *e, struct cas_victim **out)
{
	const struct cas_catalog *cat = e->store->catalog;
	struct cas_victim *trees = calloc(CAS_TREES_MAX, sizeof(*trees));
	int nr;

	if (trees == NULL)
		return err_set(e->err, -ENOMEM, "cannot list the trees: out of memory");
	nr = cat->ops->trees(cat->ctx, e->last_tree_ns, trees, CAS_TREES_MAX, e->err);
	if (nr <= 0) {
		free(trees);
		return nr;
	}
	e->last_tree_ns = trees[0].last_use_ns;
	*out = trees;
	return nr;
}

/* What is in a tree, on its way to the catalog. */
struct spread {
	struct cas_eviction *e;
	int64_t use_ns;
	struct cas_victim page[PAGE];
	int nr;
	int ret; /* of the catalog */
	struct err why;
};

static void spread_page(struct spread *s)
{
	const struct cas_catalog *cat = s->e->store->catalog;

	if (s->ret == 0 && s->nr > 0)
		s->ret = cat->ops->spread(cat->ctx, s->page, s->nr, &s->why);
	s->nr = 0;
}

static void spread_one(void *ctx, const uint8_t hash[CAS_HASH_SZ])
{
	struct spread *s = ctx;

	s->page[s->nr] = (struct cas_victim){.last_use_ns = s->use_ns};
	memcpy(s->page[s->nr].digest.hash, hash, CAS_HASH_SZ);
	if (++s->nr == PAGE)
		spread_page(s);
}

static void raise_one(void *ctx, const uint8_t hash[CAS_HASH_SZ])
{
	const struct spread *s = ctx;
	struct cas_candidate *c = NULL;

	if (s->e->by_hash)
		HASH_FIND(hh, s->e->by_hash, hash, CAS_HASH_SZ, c);
	if (c && c->last_use_ns < s->use_ns)
		c->last_use_ns = s->use_ns;
}

/* The latest come first, so each blob counts once. */
static int spread_trees(struct spread *s, const struct cas_victim *trees, int nr)
{
	struct cas_marks seen = {.fresh = s->e->by_catalog ? spread_one : raise_one, .ctx = s};
	int ret = 0;

	for (int i = 0; i < nr && ret == 0 && s->ret == 0; i++) {
		s->use_ns = trees[i].last_use_ns;
		ret = cas_marks_add_tree(&seen, s->e->store, &trees[i].digest, false, s->e->err);
	}
	cas_marks_fini(&seen);
	spread_page(s);
	return ret;
}

int cas_evict_learn_trees(struct cas_eviction *e)
{
	const struct cas_catalog *cat = e->store->catalog;
	auto_free struct cas_victim *trees = NULL;
	auto_free struct spread *s = calloc(1, sizeof(*s));
	struct err why = {0};
	int ret;

	if (s == NULL)
		return err_set(e->err, -ENOMEM, "cannot look into the trees: out of memory");
	s->e = e;
	e->last_tree_ns = INT64_MIN;
	ret = cas_evict_fresh_trees(e, &trees);
	if (ret > 0)
		ret = spread_trees(s, trees, ret);
	if (ret < 0 || trees == NULL || !e->by_catalog)
		return ret;
	if (s->ret == 0)
		s->ret = cat->ops->trees_done(cat->ctx, e->last_tree_ns, &why);
	/* On a full disk the order is less good, and still there. */
	if (s->ret < 0)
		log_warn("evicting without the uses of trees: %s",
			 err_text(s->why.code ? &s->why : &why, s->ret));
	return 0;
}

int cas_evict_spare_blobs(struct cas_eviction *e)
{
	const struct cas_catalog *cat = e->store->catalog;
	struct cas_victim page[PAGE];
	int nr = PAGE;
	int ret = 0;

	while (nr == PAGE && ret == 0) {
		nr = cat->ops->victims(cat->ctx, &e->last, page, PAGE, e->err);
		for (int i = 0; i < nr && ret == 0; i++)
			ret = cas_marks_add(&e->live, page[i].digest.hash);
		if (nr > 0)
			e->last = page[nr - 1];
	}
	if (ret < 0)
		return err_set(e->err, ret, "cannot remember what is used: out of memory");
	return nr < 0 ? nr : 0;
}

int cas_evict_mark_trees(struct cas_eviction *e, const struct cas_victim *trees, int nr)
{
	int ret = 0;

	for (int i = 0; i < nr && ret == 0; i++)
		ret = cas_marks_add_tree(&e->live, e->store, &trees[i].digest, false, e->err);
	return ret;
}
