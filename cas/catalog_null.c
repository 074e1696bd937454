/* cas/catalog_null.c - a catalog that knows nothing and forgets everything */
#include "cas/catalog.h"

#include <stddef.h>

static int null_blob_find(void *ctx, const struct cas_digest *digest, struct cas_stamp *stamp)
{
	(void)ctx;
	(void)digest;
	(void)stamp;
	return 0;
}

static int null_size_find(void *ctx, const uint8_t hash[CAS_HASH_SZ], uint64_t *size)
{
	(void)ctx;
	(void)hash;
	(void)size;
	return 0;
}

static void null_blob_add(void *ctx, const struct cas_digest *digest, const struct cas_stamp *stamp)
{
	(void)ctx;
	(void)digest;
	(void)stamp;
}

static void null_blob_event(void *ctx, const struct cas_digest *digest)
{
	(void)ctx;
	(void)digest;
}

static int null_file_find(void *ctx, const struct cas_file_id *id, struct cas_digest *digest)
{
	(void)ctx;
	(void)id;
	(void)digest;
	return 0;
}

static void null_file_add(void *ctx, const struct cas_file_id *id, const struct cas_digest *digest)
{
	(void)ctx;
	(void)id;
	(void)digest;
}

static int null_flush(void *ctx, struct err *err)
{
	(void)ctx;
	(void)err;
	return 0;
}

static int null_usage(void *ctx, struct cas_usage *out)
{
	(void)ctx;
	(void)out;
	return 0;
}

static int null_victims(void *ctx, const struct cas_victim *after, struct cas_victim *out, int max,
			struct err *err)
{
	(void)ctx;
	(void)after;
	(void)out;
	(void)max;
	(void)err;
	return 0;
}

static int null_trees(void *ctx, int64_t after_ns, struct cas_victim *out, int max, struct err *err)
{
	(void)ctx;
	(void)after_ns;
	(void)out;
	(void)max;
	(void)err;
	return 0;
}

static int null_spread(void *ctx, const struct cas_victim *list, int nr, struct err *err)
{
	(void)ctx;
	(void)list;
	(void)nr;
	(void)err;
	return 0;
}

static int null_trees_done(void *ctx, int64_t until_ns, struct err *err)
{
	(void)ctx;
	(void)until_ns;
	(void)err;
	return 0;
}

static void null_tree_touch(void *ctx, const struct cas_digest *root, bool over)
{
	(void)ctx;
	(void)root;
	(void)over;
}

static const struct cas_catalog_ops null_ops = {
	.blob_find = null_blob_find,
	.size_find = null_size_find,
	.blob_add = null_blob_add,
	.blob_touch = null_blob_event,
	.tree_touch = null_tree_touch,
	.blob_drop = null_blob_event,
	.file_find = null_file_find,
	.file_add = null_file_add,
	.flush = null_flush,
	.usage = null_usage,
	.victims = null_victims,
	.trees = null_trees,
	.spread = null_spread,
	.trees_done = null_trees_done,
};

const struct cas_catalog cas_catalog_null = {.ops = &null_ops, .ctx = NULL};
