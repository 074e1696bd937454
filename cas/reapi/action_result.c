/* cas/reapi/action_result.c - an ActionResult: told otherwise, and looked through for what it needs
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/text_i.h"
#include "cas/evict/evict_i.h"
#include "cas/fetch/fetch.h"
#include "cas/put/put.h"
#include "cas/reapi.pb-c.h"
#include "cas/reapi/action.h"
#include "cas/reapi/directory.h"
#include "cas/store/store.h"

#define TREE_MAX (256 << 20)

static const char *new_path(const char *path, const struct cas_result_path *paths, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		if (strcmp(paths[i].from, path) == 0)
			return paths[i].to;
	}
	return path;
}

static int set_path(char **path, const struct cas_result_path *paths, size_t nr)
{
	char *copy = strdup(new_path(*path, paths, nr));

	if (copy == NULL)
		return -ENOMEM;
	/* As protobuf-c frees it. */
	if (*path != (char *)protobuf_c_empty_string)
		free(*path);
	*path = copy;
	return 0;
}

static void drop_digest(Reapi__Digest **digest)
{
	if (*digest)
		reapi__digest__free_unpacked(*digest, NULL);
	*digest = NULL;
}

static int shape_dir(Reapi__OutputDirectory *d, const struct cas_result_path *paths, size_t nr,
		     enum cas_output_format format)
{
	if (format == CAS_OUTPUT_TREE && d->tree_digest)
		drop_digest(&d->root_directory_digest);
	if (format == CAS_OUTPUT_DIRECTORY && d->root_directory_digest) {
		drop_digest(&d->tree_digest);
		d->is_topologically_sorted = false;
	}
	return set_path(&d->path, paths, nr);
}

int cas_result_shape(const void *data, size_t len, const struct cas_result_path *paths,
		     size_t nr_paths, enum cas_output_format format, struct buf *out,
		     struct err *err)
{
	Reapi__ActionResult *r = reapi__action_result__unpack(NULL, len, data);
	int ret = 0;

	if (r == NULL)
		return err_set(err, -EUCLEAN, "not an ActionResult");
	for (size_t i = 0; ret == 0 && i < r->n_output_files; i++)
		ret = set_path(&r->output_files[i]->path, paths, nr_paths);
	for (size_t i = 0; ret == 0 && i < r->n_output_symlinks; i++)
		ret = set_path(&r->output_symlinks[i]->path, paths, nr_paths);
	for (size_t i = 0; ret == 0 && i < r->n_output_directories; i++)
		ret = shape_dir(r->output_directories[i], paths, nr_paths, format);
	if (ret == 0)
		ret = buf_reserve(out, reapi__action_result__get_packed_size(r) + 1);
	if (ret == 0)
		out->len += reapi__action_result__pack(r, (uint8_t *)out->data + out->len);
	reapi__action_result__free_unpacked(r, NULL);
	return ret ? err_set(err, ret, "no memory for a result") : 0;
}

static int to_digest(const Reapi__Digest *from, struct cas_digest *out, struct err *err)
{
	if (from == NULL || from->size_bytes < 0 ||
	    cas_hash_parse(from->hash, strlen(from->hash), out->hash) < 0)
		return err_set(err, -EUCLEAN, "an ActionResult with a digest that is none");
	out->size = (uint64_t)from->size_bytes;
	return 0;
}

/* In the store, if need be from a tier. */
static int want_blob(struct cas_store *store, const struct cas_digest *digest, struct err *err)
{
	struct cas_fetch *fetch = cas_fetch_of(store);
	int ret = cas_store_has(store, digest);

	if (ret == 1)
		return 0;
	if (ret == 0 && fetch && cas_fetch_may_wait(fetch))
		return cas_fetch_wait(fetch, digest, NULL, err);
	if (ret == 0)
		return err_set(err, -ENOENT, "the blob %s is not in the store",
			       CAS_DIGEST_TEXT(digest));
	return err_set(err, ret, "cannot look for the blob %s: %s", CAS_DIGEST_TEXT(digest),
		       strerrordesc_np(-ret));
}

static int want(struct cas_store *store, const Reapi__Digest *from, struct cas_digest *out,
		struct err *err)
{
	int ret = to_digest(from, out, err);

	return ret ? ret : want_blob(store, out, err);
}

static int want_files(struct cas_store *store, const Reapi__Directory *dir, struct err *err)
{
	struct cas_digest digest;
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < dir->n_files; i++)
		ret = want(store, dir->files[i]->digest, &digest, err);
	return ret;
}

/* One Directory of a Tree becomes a blob of its own, and is checked on the way. */
static int put_directory(struct cas_store *store, const Reapi__Directory *from,
			 struct cas_digest *out, struct err *err)
{
	size_t len = reapi__directory__get_packed_size(from);
	auto_free uint8_t *data = malloc(len + 1);
	struct cas_directory *dir = NULL;
	int ret;

	if (data == NULL)
		return err_set(err, -ENOMEM, "no memory for a Directory");
	(void)reapi__directory__pack(from, data);
	ret = cas_directory_decode(data, len, &dir, err);
	cas_directory_free(dir);
	if (ret == 0)
		ret = want_files(store, from, err);
	return ret ? ret : cas_put_bytes(store, data, len, out, err);
}

static int put_tree(struct cas_store *store, const Reapi__Tree *tree, struct cas_digest *root,
		    struct err *err)
{
	static const Reapi__Directory empty = REAPI__DIRECTORY__INIT;
	struct cas_digest child;
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < tree->n_children; i++)
		ret = put_directory(store, tree->children[i], &child, err);
	return ret ? ret : put_directory(store, tree->root ? tree->root : &empty, root, err);
}

/* Every Directory below a root, each once. */
struct walk {
	struct cas_marks seen;
	struct cas_digest *list;
	size_t nr;
	size_t cap;
};

static int walk_add(struct walk *w, const struct cas_digest *digest)
{
	if (cas_marks_has(&w->seen, digest->hash))
		return 0;
	if (w->nr == w->cap) {
		size_t cap = w->cap ? 2 * w->cap : 64;
		struct cas_digest *grown = realloc(w->list, cap * sizeof(*grown));

		if (grown == NULL)
			return -ENOMEM;
		w->list = grown;
		w->cap = cap;
	}
	w->list[w->nr++] = *digest;
	return cas_marks_add(&w->seen, digest->hash);
}

static int want_directory(struct cas_store *store, struct walk *w, const struct cas_digest *digest,
			  struct err *err)
{
	struct cas_directory *dir = NULL;
	int ret = cas_directory_load(store, digest, &dir, err);

	for (size_t i = 0; ret == 0 && i < dir->nr_nodes; i++) {
		const struct cas_node *node = &dir->nodes[i];

		if (node->kind == CAS_NODE_FILE)
			ret = want_blob(store, &node->digest, err);
		else if (node->kind == CAS_NODE_DIRECTORY)
			ret = walk_add(w, &node->digest);
	}
	cas_directory_free(dir);
	return ret;
}

static int want_tree(struct cas_store *store, const struct cas_digest *root, struct err *err)
{
	struct walk w = {0};
	int ret = walk_add(&w, root);

	for (size_t i = 0; ret == 0 && i < w.nr; i++) {
		struct cas_digest digest = w.list[i];

		ret = want_directory(store, &w, &digest, err);
	}
	free(w.list);
	cas_marks_fini(&w.seen);
	return ret == -ENOMEM ? err_set(err, ret, "no memory for a tree") : ret;
}

static int load_dir(struct cas_store *store, const Reapi__OutputDirectory *d,
		    struct cas_digest *out, struct err *err)
{
	auto_buf struct buf b = {0};
	struct cas_digest digest;
	Reapi__Tree *tree;
	int ret;

	if (d->root_directory_digest) {
		ret = to_digest(d->root_directory_digest, out, err);
		return ret ? ret : want_tree(store, out, err);
	}
	ret = to_digest(d->tree_digest, &digest, err);
	if (ret == 0)
		ret = cas_store_read_blob(store, &digest, TREE_MAX, &b, err);
	if (ret)
		return ret;
	tree = reapi__tree__unpack(NULL, b.len, (const uint8_t *)buf_str(&b));
	if (tree == NULL)
		return err_set(err, -EUCLEAN, "the Tree %s is none", CAS_DIGEST_TEXT(&digest));
	ret = put_tree(store, tree, out, err);
	reapi__tree__free_unpacked(tree, NULL);
	return ret;
}

static int load_links(Reapi__OutputSymlink *const *links, size_t nr, struct cas_result *out)
{
	for (size_t i = 0; i < nr; i++) {
		struct cas_result_output *o = &out->outputs[out->nr++];

		o->kind = CAS_OUTPUT_LINK;
		o->path = strdup(links[i]->path);
		o->target = strdup(links[i]->target);
		if (o->path == NULL || o->target == NULL)
			return -ENOMEM;
	}
	return 0;
}

static int load_outputs(struct cas_store *store, const Reapi__ActionResult *r,
			struct cas_result *out, struct err *err)
{
	int ret = 0;

	out->outputs =
		calloc(r->n_output_files + r->n_output_directories + r->n_output_symlinks +
			       r->n_output_file_symlinks + r->n_output_directory_symlinks + 1,
		       sizeof(*out->outputs));
	if (out->outputs == NULL)
		return -ENOMEM;
	for (size_t i = 0; ret == 0 && i < r->n_output_files; i++) {
		struct cas_result_output *o = &out->outputs[out->nr++];

		o->executable = r->output_files[i]->is_executable;
		o->path = strdup(r->output_files[i]->path);
		ret = o->path ? want(store, r->output_files[i]->digest, &o->digest, err) : -ENOMEM;
	}
	for (size_t i = 0; ret == 0 && i < r->n_output_directories; i++) {
		struct cas_result_output *o = &out->outputs[out->nr++];

		o->kind = CAS_OUTPUT_DIR;
		o->path = strdup(r->output_directories[i]->path);
		ret = o->path ? load_dir(store, r->output_directories[i], &o->digest, err)
			      : -ENOMEM;
	}
	if (ret == 0)
		ret = load_links(r->output_symlinks, r->n_output_symlinks, out);
	if (ret == 0 && r->n_output_symlinks == 0)
		ret = load_links(r->output_file_symlinks, r->n_output_file_symlinks, out);
	if (ret == 0 && r->n_output_symlinks == 0)
		ret = load_links(r->output_directory_symlinks, r->n_output_directory_symlinks, out);
	return ret;
}

/* A stream by its digest, or as it is. */
static int load_stream(struct cas_store *store, const Reapi__Digest *digest,
		       const ProtobufCBinaryData *raw, bool *has, struct cas_digest *out,
		       struct err *err)
{
	*has = digest || raw->len > 0;
	if (digest)
		return want(store, digest, out, err);
	return raw->len > 0 ? cas_put_bytes(store, raw->data, raw->len, out, err) : 0;
}

int cas_result_load(struct cas_store *store, const void *data, size_t len, struct cas_result *out,
		    struct err *err)
{
	Reapi__ActionResult *r = reapi__action_result__unpack(NULL, len, data);
	struct cas_result got = {0};
	int ret;

	if (r == NULL)
		return err_set(err, -EUCLEAN, "not an ActionResult");
	got.exit_code = r->exit_code;
	ret = load_stream(store, r->stdout_digest, &r->stdout_raw, &got.has_stdout,
			  &got.stdout_digest, err);
	if (ret == 0)
		ret = load_stream(store, r->stderr_digest, &r->stderr_raw, &got.has_stderr,
				  &got.stderr_digest, err);
	if (ret == 0)
		ret = load_outputs(store, r, &got, err);
	reapi__action_result__free_unpacked(r, NULL);
	if (ret) {
		cas_result_fini(&got);
		return ret == -ENOMEM ? err_set(err, ret, "no memory for a result") : ret;
	}
	*out = got;
	return 0;
}

void cas_result_fini(struct cas_result *result)
{
	for (size_t i = 0; i < result->nr; i++) {
		free(result->outputs[i].path);
		free(result->outputs[i].target);
	}
	free(result->outputs);
	memset(result, 0, sizeof(*result));
}
