/* cas/reapi/closure.c - all blobs below some Directories or results, each once */
#include "cas/reapi/closure_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM	     1
#define HASH_FUNCTION(key, len, out) memcpy(&(out), (key), sizeof(out))
#include <uthash.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/fetch/fetch.h"
#include "cas/reapi.pb-c.h"
#include "cas/reapi/directory.h"
#include "cas/store/store.h"

#define MESSAGE_MAX (256u << 20)

/* A file and a Directory may have the same bytes: both count. */
struct cas_closure_seen {
	struct key {
		struct cas_digest digest;
		uint64_t is_dir;
	} key;
	UT_hash_handle hh;
};

int cas_digests_add(struct cas_digests *list, const struct cas_digest *digest)
{
	if (list->nr == list->cap) {
		size_t cap = list->cap ? 2 * list->cap : 64;
		struct cas_digest *at = reallocarray(list->at, cap, sizeof(*at));

		if (at == NULL)
			return -ENOMEM;
		list->at = at;
		list->cap = cap;
	}
	list->at[list->nr++] = *digest;
	return 0;
}

void cas_closure_init(struct cas_closure *c, struct cas_store *store, const _Atomic bool *cancel)
{
	*c = (struct cas_closure){.store = store, .cancel = cancel};
}

void cas_closure_fini(struct cas_closure *c)
{
	struct cas_closure_seen *seen;
	struct cas_closure_seen *next;

	HASH_ITER (hh, c->seen, seen, next) {
		HASH_DEL(c->seen, seen);
		free(seen);
	}
	free(c->files.at);
	free(c->dirs.at);
	free(c->levels);
}

/* Add to @list unless it is there, or empty. */
static int add(struct cas_closure *c, const struct cas_digest *digest, bool is_dir)
{
	struct key key = {*digest, is_dir};
	struct cas_closure_seen *seen;

	if (cas_digest_is_empty(digest))
		return 0;
	HASH_FIND(hh, c->seen, &key, sizeof(key), seen);
	if (seen)
		return 0;
	seen = malloc(sizeof(*seen));
	if (seen == NULL)
		return -ENOMEM;
	seen->key = key;
	HASH_ADD(hh, c->seen, key, sizeof(seen->key), seen);
	if (seen->hh.tbl == NULL) {
		free(seen);
		return -ENOMEM;
	}
	return cas_digests_add(is_dir ? &c->dirs : &c->files, digest);
}

int cas_closure_add_file(struct cas_closure *c, const struct cas_digest *digest)
{
	return add(c, digest, false);
}

static int add_nodes(struct cas_closure *c, const struct cas_digest *digest, struct err *err)
{
	struct cas_directory *dir = NULL;
	int ret = cas_fetch_bring(cas_fetch_of(c->store), digest, c->cancel, err);

	if (ret == 0)
		ret = cas_directory_load(c->store, digest, &dir, err);
	for (size_t i = 0; ret == 0 && i < dir->nr_nodes; i++) {
		if (dir->nodes[i].kind != CAS_NODE_SYMLINK)
			ret = add(c, &dir->nodes[i].digest,
				  dir->nodes[i].kind == CAS_NODE_DIRECTORY);
	}
	cas_directory_free(dir);
	return ret;
}

static int begin_level(struct cas_closure *c)
{
	size_t *levels = reallocarray(c->levels, c->nr_levels + 1, sizeof(*levels));

	if (levels == NULL)
		return -ENOMEM;
	c->levels = levels;
	c->levels[c->nr_levels++] = c->dirs.nr;
	return 0;
}

int cas_closure_add_tree(struct cas_closure *c, const struct cas_digest *root, struct err *err)
{
	size_t at = c->dirs.nr;
	int ret = begin_level(c);

	if (ret == 0)
		ret = add(c, root, true);
	while (ret == 0 && at < c->dirs.nr) {
		size_t end = c->dirs.nr;

		ret = begin_level(c);
		for (; at < end && ret == 0; at++) {
			struct cas_digest digest = c->dirs.at[at];

			ret = atomic_load(c->cancel) ? err_set(err, -ECANCELED, "interrupted")
						     : add_nodes(c, &digest, err);
		}
	}
	return ret;
}

static bool to_digest(const Reapi__Digest *d, struct cas_digest *out)
{
	if (d == NULL || d->hash == NULL || d->size_bytes < 0 ||
	    cas_hash_parse(d->hash, strlen(d->hash), out->hash) < 0)
		return false;
	out->size = (uint64_t)d->size_bytes;
	return true;
}

static int add_message(struct cas_closure *c, const Reapi__Digest *d)
{
	struct cas_digest digest;

	return to_digest(d, &digest) ? cas_closure_add_file(c, &digest) : 0;
}

static int add_files(struct cas_closure *c, const Reapi__Directory *dir)
{
	int ret = 0;

	for (size_t i = 0; dir && i < dir->n_files && ret == 0; i++)
		ret = add_message(c, dir->files[i]->digest);
	return ret;
}

static int add_tree_message(struct cas_closure *c, const Reapi__Digest *d, struct err *err)
{
	auto_buf struct buf b = {0};
	struct cas_digest digest;
	Reapi__Tree *tree;
	int ret;

	if (!to_digest(d, &digest))
		return 0;
	ret = cas_closure_add_file(c, &digest);
	if (ret == 0)
		ret = cas_store_read_blob(c->store, &digest, MESSAGE_MAX, &b, err);
	if (ret < 0)
		return ret;
	tree = reapi__tree__unpack(NULL, b.len, (const uint8_t *)buf_str(&b));
	if (tree == NULL)
		return err_set(err, -EUCLEAN, "%s is no Tree", CAS_DIGEST_TEXT(&digest));
	ret = add_files(c, tree->root);
	for (size_t i = 0; i < tree->n_children && ret == 0; i++)
		ret = add_files(c, tree->children[i]);
	reapi__tree__free_unpacked(tree, NULL);
	return ret;
}

static int add_outputs(struct cas_closure *c, const Reapi__ActionResult *r, struct err *err)
{
	int ret = add_message(c, r->stdout_digest);

	if (ret == 0)
		ret = add_message(c, r->stderr_digest);
	for (size_t i = 0; i < r->n_output_files && ret == 0; i++)
		ret = add_message(c, r->output_files[i]->digest);
	for (size_t i = 0; i < r->n_output_directories && ret == 0; i++) {
		const Reapi__OutputDirectory *o = r->output_directories[i];
		struct cas_digest root;

		ret = add_tree_message(c, o->tree_digest, err);
		if (ret == 0 && to_digest(o->root_directory_digest, &root))
			ret = cas_closure_add_tree(c, &root, err);
	}
	return ret;
}

/* Action and Command: services want them before a result. */
static int add_question(struct cas_closure *c, const struct cas_digest *action)
{
	auto_buf struct buf b = {0};
	Reapi__Action *a;
	int ret;

	if (cas_store_has(c->store, action) != 1)
		return 0;
	ret = cas_closure_add_file(c, action);
	if (ret < 0 || cas_store_read_blob(c->store, action, MESSAGE_MAX, &b, NULL) < 0)
		return ret;
	a = reapi__action__unpack(NULL, b.len, (const uint8_t *)buf_str(&b));
	if (a) {
		struct cas_digest command;

		if (to_digest(a->command_digest, &command) &&
		    cas_store_has(c->store, &command) == 1)
			ret = cas_closure_add_file(c, &command);
		reapi__action__free_unpacked(a, NULL);
	}
	return ret;
}

static int add_result(struct cas_closure *c, const struct buf *b, const struct cas_digest *digest,
		      struct err *err)
{
	Reapi__ActionResult *r =
		reapi__action_result__unpack(NULL, b->len, (const uint8_t *)buf_str(b));
	int ret;

	if (r == NULL)
		return err_set(err, -EUCLEAN, "what is kept as the result %s is none",
			       CAS_DIGEST_TEXT(digest));
	ret = add_outputs(c, r, err);
	reapi__action_result__free_unpacked(r, NULL);
	return ret;
}

int cas_closure_add_action(struct cas_closure *c, const struct cas_digest *action, struct err *err)
{
	auto_buf struct buf b = {0};
	int ret = cas_store_action_get(c->store, action, &b, err);

	if (ret == 0)
		ret = add_question(c, action);
	return ret < 0 ? ret : add_result(c, &b, action, err);
}

int cas_closure_add_outputs(struct cas_closure *c, const struct cas_digest *result, struct err *err)
{
	auto_buf struct buf b = {0};
	int ret = cas_store_read_blob(c->store, result, MESSAGE_MAX, &b, err);

	return ret < 0 ? ret : add_result(c, &b, result, err);
}

int cas_tree_find_missing(struct cas_store *store, const struct cas_digest *root,
			  struct cas_tree_lack *out, struct err *err)
{
	const _Atomic bool never = false;
	struct cas_tree_lack lack = {0};
	struct cas_closure c;
	int ret;

	cas_closure_init(&c, store, &never);
	ret = cas_closure_add_tree(&c, root, err);
	for (size_t i = 0; i < c.files.nr && ret >= 0; i++) {
		ret = cas_store_has(store, &c.files.at[i]);
		if (ret == 0 && lack.missing++ == 0)
			lack.first = c.files.at[i];
	}
	lack.blobs = c.files.nr + c.dirs.nr;
	cas_closure_fini(&c);
	if (ret < 0)
		return ret;
	*out = lack;
	return lack.missing > 0;
}
