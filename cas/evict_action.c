/* cas/evict_action.c - an ActionResult goes before the blobs that it names */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/evict_i.h"
#include "cas/reapi.pb-c.h"
#include "cas/store_i.h"

/*
 * Needed by a result: output files, both streams, each Tree, the files that the Tree
 * names, and the closure of a root Directory. What is missing already (a remote tier may
 * have it) is no reason to forget the result; only what is about to go is.
 */

#define MESSAGE_MAX (256u << 20)

struct sweep {
	struct cas_store *store;
	const struct cas_marks *doomed;
	bool dry_run;
	struct err *err;
};

static bool to_digest(const Reapi__Digest *d, struct cas_digest *out)
{
	if (d == NULL || d->hash == NULL || d->size_bytes < 0 ||
	    cas_hash_parse(d->hash, strlen(d->hash), out->hash) < 0)
		return false;
	out->size = (uint64_t)d->size_bytes;
	return true;
}

static bool is_doomed(const struct sweep *s, const Reapi__Digest *d)
{
	struct cas_digest digest;

	return to_digest(d, &digest) && cas_marks_has(s->doomed, digest.hash);
}

static bool files_doomed(const struct sweep *s, const Reapi__Directory *dir)
{
	for (size_t i = 0; dir && i < dir->n_files; i++) {
		if (is_doomed(s, dir->files[i]->digest))
			return true;
	}
	return false;
}

/* Does the Tree message @d, or a file in it, go? */
static bool tree_doomed(const struct sweep *s, const Reapi__Digest *d)
{
	auto_buf struct buf b = {0};
	struct cas_digest digest;
	Reapi__Tree *tree;
	bool doomed;

	if (is_doomed(s, d))
		return true;
	if (!to_digest(d, &digest) || cas_blob_peek(s->store, &digest, MESSAGE_MAX, &b, NULL) < 0)
		return false;
	tree = reapi__tree__unpack(NULL, b.len, (const uint8_t *)buf_str(&b));
	if (tree == NULL)
		return false;
	doomed = files_doomed(s, tree->root);
	for (size_t i = 0; i < tree->n_children && !doomed; i++)
		doomed = files_doomed(s, tree->children[i]);
	reapi__tree__free_unpacked(tree, NULL);
	return doomed;
}

/* Does a Directory blob of the closure of @d, or a file in it, go? */
static int closure_doomed(const struct sweep *s, const Reapi__Digest *d)
{
	struct cas_marks needs = {0};
	struct cas_digest digest;
	int ret = 0;

	if (!to_digest(d, &digest))
		return 0;
	ret = cas_marks_add_tree(&needs, s->store, &digest, true, s->err);
	if (ret == 0)
		ret = cas_marks_meet(&needs, s->doomed);
	cas_marks_fini(&needs);
	return ret;
}

/* 1, 0 or negative. */
static int result_doomed(const struct sweep *s, const Reapi__ActionResult *r)
{
	int ret = is_doomed(s, r->stdout_digest) || is_doomed(s, r->stderr_digest);

	for (size_t i = 0; i < r->n_output_files && ret == 0; i++)
		ret = is_doomed(s, r->output_files[i]->digest);
	for (size_t i = 0; i < r->n_output_directories && ret == 0; i++) {
		ret = tree_doomed(s, r->output_directories[i]->tree_digest);
		if (ret == 0)
			ret = closure_doomed(s, r->output_directories[i]->root_directory_digest);
	}
	return ret;
}

static int sweep_item(void *ctx, const struct cas_walk_item *item)
{
	struct sweep *s = ctx;
	auto_buf struct buf b = {0};
	Reapi__ActionResult *r;
	int ret;

	if (item->kind != CAS_WALK_ENTRY)
		return 0;
	ret = io_read_file(item->shard_fd, item->name, MESSAGE_MAX, &b);
	if (ret < 0)
		return 0; /* gone, or for fsck to name */
	r = reapi__action_result__unpack(NULL, b.len, (const uint8_t *)buf_str(&b));
	if (r == NULL)
		return 0;
	ret = result_doomed(s, r);
	reapi__action_result__free_unpacked(r, NULL);
	if (ret <= 0 || s->dry_run)
		return ret < 0 ? ret : 0;
	log_debug("%s goes: a blob that it names is evicted", item->path);
	if (unlinkat(item->shard_fd, item->name, 0) < 0 && errno != ENOENT)
		return err_set(s->err, -errno, "cannot remove %s: %m", item->path);
	return 0;
}

int cas_evict_actions(struct cas_store *store, const struct cas_marks *doomed, bool dry_run,
		      struct err *err)
{
	struct sweep s = {.store = store, .doomed = doomed, .dry_run = dry_run, .err = err};
	int ret = 0;

	for (unsigned i = 0; i < CAS_LAYOUT_NR_SHARDS && ret == 0 && store->ac_fd >= 0; i++)
		ret = cas_walk_shard(store->ac_fd, "ac", i, sweep_item, &s, err);
	return ret;
}
