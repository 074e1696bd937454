/* fs/explain/blob.c - a blob: where it is, where it came from, who needs it */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "cas/store/blob_place.h"
#include "fs/capture/result.h"
#include "fs/explain/explain_i.h"
#include "fs/explain/search.h"
#include "fs/message/outcome.h"
#include "fs/message/proto_json.h"
#include "fs/message/tree_blob.h"
#include "meta/meta.h"

#define RESULTS_MAX 1000 /* the newest are looked into */
#define RESULT_MAX  (256 << 20)
#define TREE_MAX    (16 << 20) /* larger ones are not looked into */

int fs_explain_set(json_t *obj, const char *key, json_t *value)
{
	return json_object_set_new(obj, key, value) < 0 ? -ENOMEM : 0;
}

json_t *fs_explain_digest(const struct cas_digest *digest)
{
	return json_string(CAS_DIGEST_TEXT(digest));
}

/* Who needs a blob, while it is being found out. */
struct needers {
	const struct fs_explain *ex;
	struct fs_search search;
	json_t *pins;
	json_t *sandboxes;
	json_t *results;
	uint64_t nr_pins;
	uint64_t nr_sandboxes;
	uint64_t nr_results;
};

static int add_place(const struct fs_explain *ex, const struct cas_digest *digest, json_t *out,
		     struct err *err)
{
	struct cas_blob_place place = {0};
	int ret = cas_store_place(ex->store, digest, &place);

	if (ret < 0)
		return err_set(err, ret, "cannot look for %s: %s", CAS_DIGEST_TEXT(digest),
			       strerrordesc_np(-ret));
	ret = fs_explain_set(out, "present", json_boolean(place.path != NULL));
	if (ret == 0 && place.path) {
		ret = fs_explain_set(out, "path", fs_json_text(place.path));
		if (ret == 0)
			ret = fs_explain_set(out, "disk_bytes",
					     json_integer((json_int_t)place.blocks * 512));
		if (ret == 0)
			ret = fs_explain_set(out, "mode", json_integer(place.mode & 07777));
		if (ret == 0)
			ret = fs_explain_set(out, "hashed", json_boolean(place.hashed));
	}
	if (ret == 0 && place.spool)
		ret = fs_explain_set(out, "spool_path", fs_json_text(place.spool));
	if (ret == 0 && place.link_0444)
		ret = fs_explain_set(out, "hardlink_0444", fs_json_text(place.link_0444));
	if (ret == 0 && place.link_0555)
		ret = fs_explain_set(out, "hardlink_0555", fs_json_text(place.link_0555));
	cas_blob_place_fini(&place);
	return ret;
}

static int add_facts(const struct fs_explain *ex, const struct cas_digest *digest, json_t *out,
		     struct err *err)
{
	struct meta_blob_facts facts = {0};
	int ret = meta_blob_facts(ex->meta, digest, &facts, err);

	if (ret <= 0)
		return ret;
	ret = fs_explain_set(out, "recorded_ns", json_integer(facts.created_ns));
	if (ret == 0)
		ret = fs_explain_set(out, "last_use_ns", json_integer(facts.last_use_ns));
	if (ret == 0 && facts.source) {
		ret = fs_explain_set(out, "source", fs_json_text(facts.source));
		if (ret == 0)
			ret = fs_explain_set(out, "came_ns", json_integer(facts.came_ns));
	}
	meta_blob_facts_fini(&facts);
	return ret;
}

/* Which of our messages the bytes are, as far as that is told from them. */
static int add_kind(const struct fs_explain *ex, const struct cas_digest *digest, json_t *out)
{
	struct meta_dirinfo info;
	int ret;

	if (digest->size > (1U << 20) || cas_store_has(ex->store, digest) != 1)
		return 0;
	if (meta_dir_info(ex->meta, digest, &info, NULL) < 0)
		return 0;
	ret = fs_explain_set(out, "directory", json_true());
	return ret == 0 ? fs_explain_set(out, "entries", json_integer((json_int_t)info.nr_entries))
			: ret;
}

/* --- who needs it --- */

static int add_needer(json_t *list, uint64_t *nr, json_t *obj)
{
	(*nr)++;
	if (json_array_size(list) >= EXPLAIN_LISTED) {
		json_decref(obj);
		return 0;
	}
	return obj && json_array_append_new(list, obj) == 0 ? 0 : -ENOMEM;
}

static int look_pin(struct needers *n, const char *name)
{
	struct cas_digest pin;
	auto_free char *path = NULL;
	int ret;

	if (cas_digest_parse(name, &pin) < 0)
		return 0;
	ret = fs_search_tree(&n->search, &pin, &path);
	return ret <= 0 ? ret
			: add_needer(n->pins, &n->nr_pins,
				     json_pack("{s:o, s:s}", "pin", fs_explain_digest(&pin), "path",
					       path));
}

/* "output PATH", with @below in it. */
static int describe_output(const struct fs_outcome *o, const struct fs_outcome_node *node,
			   const char *below, char **how)
{
	auto_free char *path = strdup(below);

	for (; path && node != o->nodes; node = &o->nodes[node->parent]) {
		char *longer;

		if (asprintf(&longer, "%s%s%s", node->name, *path ? "/" : "", path) < 0)
			return -ENOMEM;
		free(path);
		path = longer;
	}
	return path && asprintf(how, "output %s", path) >= 0 ? 1 : -ENOMEM;
}

/* Where no root Directory is told, the Tree has to be looked through. */
static int search_message(struct needers *n, const struct cas_digest *digest, char **path)
{
	auto_buf struct buf data = {0};
	struct fs_tree_blob *tree;
	int ret;

	if (cas_store_has(n->ex->store, digest) != 1 ||
	    cas_store_read_blob(n->ex->store, digest, TREE_MAX, &data, NULL) < 0 ||
	    fs_tree_blob_new(buf_str(&data), data.len, &tree, NULL) < 0) {
		n->search.nr_unread++;
		return 0;
	}
	ret = fs_tree_blob_search(tree, &n->search.target, path);
	fs_tree_blob_unref(tree);
	return ret;
}

/* The streams and outputs of a result; 1: it names the blob, by *how. */
static int names_blob(struct needers *n, const struct fs_outcome *o, char **how)
{
	const struct cas_digest *target = &n->search.target;
	const char *plain = NULL;
	int ret = 0;

	if (o->out.has_digest && cas_digest_equal(&o->out.digest, target))
		plain = "standard output";
	if (o->error.has_digest && cas_digest_equal(&o->error.digest, target))
		plain = "standard error";
	for (size_t i = 0; ret == 0 && !plain && i < o->nr_nodes; i++) {
		const struct fs_outcome_node *node = &o->nodes[i];
		auto_free char *path = NULL;

		if (node->kind == FS_OUTCOME_DIR || node->kind == FS_OUTCOME_SYMLINK)
			continue;
		if (cas_digest_equal(&node->digest, target))
			ret = describe_output(o, node, "", how);
		else if (node->kind == FS_OUTCOME_ROOT)
			ret = fs_search_tree(&n->search, &node->digest, &path);
		else if (node->kind == FS_OUTCOME_TREE)
			ret = search_message(n, &node->digest, &path);
		if (path)
			ret = describe_output(o, node, path, how);
	}
	if (plain) {
		*how = strdup(plain);
		ret = *how ? 1 : -ENOMEM;
	}
	if (ret < 0)
		*how = NULL;
	return ret;
}

static int look_outcome(struct needers *n, const void *data, size_t len, char **how)
{
	struct fs_outcome *o;
	int ret = fs_outcome_new(data, len, &o, NULL);

	if (ret < 0)
		return ret == -ENOMEM ? ret : 0;
	ret = names_blob(n, o, how);
	fs_outcome_unref(o);
	return ret;
}

static int look_action(struct needers *n, const uint8_t hash[CAS_HASH_SZ])
{
	auto_buf struct buf data = {0};
	struct cas_digest action = {.size = 0};
	char text[CAS_HASH_HEX_SZ + 1];
	auto_free char *how = NULL;
	int ret;

	memcpy(action.hash, hash, CAS_HASH_SZ);
	cas_hash_format(hash, text);
	if (memcmp(hash, n->search.target.hash, CAS_HASH_SZ) == 0)
		ret = (how = strdup("its Action")) ? 1 : -ENOMEM;
	else if (cas_store_action_get(n->ex->store, &action, &data, NULL) < 0)
		ret = 0;
	else
		ret = look_outcome(n, buf_str(&data), data.len, &how);
	return ret <= 0 ? ret
			: add_needer(n->results, &n->nr_results,
				     json_pack("{s:s, s:s}", "action", text, "as", how));
}

static int look_results(struct needers *n, json_t *out, struct err *err)
{
	auto_free struct cas_action_age *newest = calloc(RESULTS_MAX, sizeof(*newest));
	size_t nr = 0;
	int ret = newest ? cas_store_action_newest(n->ex->store, newest, RESULTS_MAX, &nr, err)
			 : -ENOMEM;

	for (size_t i = 0; ret == 0 && i < nr; i++)
		ret = look_action(n, newest[i].hash);
	return ret == 0 ? fs_explain_set(out, "results_looked_at", json_integer((json_int_t)nr))
			: ret;
}

static int add_box(struct needers *n, const char *id, const char *as, const char *path)
{
	return add_needer(n->sandboxes, &n->nr_sandboxes,
			  json_pack("{s:s, s:s, s:s}", "sandbox", id, "as", as, "path", path));
}

static int look_box(struct needers *n, const char *id)
{
	struct fs_record rec = {0};
	auto_free char *path = NULL;
	auto_free char *how = NULL;
	auto_buf struct buf result = {0};
	auto_close int dir_fd = -1;
	int ret = fs_explain_record(n->ex->store, id, &rec, &dir_fd, NULL);

	if (ret < 0)
		return ret == -ENOMEM ? ret : 0;
	ret = fs_search_tree(&n->search, &rec.root, &path);
	if (ret == 1)
		ret = add_box(n, id, "input", path);
	if (ret == 0 && rec.state == FS_SANDBOX_FINISHED &&
	    io_read_file(dir_fd, FS_RESULT_NAME, RESULT_MAX, &result) == 0) {
		ret = look_outcome(n, buf_str(&result), result.len, &how);
		if (ret == 1)
			ret = add_box(n, id, "output", how);
	}
	fs_record_fini(&rec);
	return ret;
}

static int each_name(const struct needers *n, const char *below, struct needers *ctx,
		     int (*each)(struct needers *n, const char *name))
{
	int fd = openat(cas_store_dir_fd(n->ex->store), below, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_closedir DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *de;
	int ret = 0;

	if (fd >= 0 && !dir)
		(void)close(fd);
	while (ret == 0 && dir && (de = readdir(dir)) != NULL)
		if (de->d_name[0] != '.')
			ret = each(ctx, de->d_name);
	return ret;
}

static int add_needers(struct needers *n, json_t *out, struct err *err)
{
	int ret = n->pins && n->sandboxes && n->results ? 0 : -ENOMEM;

	if (ret == 0)
		ret = each_name(n, "pins", n, look_pin);
	if (ret == 0)
		ret = each_name(n, "sandboxes", n, look_box);
	if (ret == 0)
		ret = look_results(n, out, err);
	if (ret == 0)
		ret = fs_explain_set(out, "pins", json_incref(n->pins));
	if (ret == 0)
		ret = fs_explain_set(out, "sandboxes", json_incref(n->sandboxes));
	if (ret == 0)
		ret = fs_explain_set(out, "results", json_incref(n->results));
	if (ret == 0)
		ret = fs_explain_set(out, "nr_pins", json_integer((json_int_t)n->nr_pins));
	if (ret == 0)
		ret = fs_explain_set(out, "nr_sandboxes",
				     json_integer((json_int_t)n->nr_sandboxes));
	if (ret == 0)
		ret = fs_explain_set(out, "nr_results", json_integer((json_int_t)n->nr_results));
	if (ret == 0)
		ret = fs_explain_set(out, "directories_unread",
				     json_integer((json_int_t)n->search.nr_unread));
	return ret;
}

static int fill(const struct fs_explain *ex, const struct cas_digest *digest, json_t *out,
		struct err *err)
{
	struct needers n = {
		.ex = ex,
		.search = {.meta = ex->meta, .target = *digest},
		.pins = json_array(),
		.sandboxes = json_array(),
		.results = json_array(),
	};
	struct cas_fetch *fetch = cas_fetch_of(ex->store);
	int ret = fs_explain_set(out, "digest", fs_explain_digest(digest));

	if (ret == 0)
		ret = fs_explain_set(out, "size", json_integer((json_int_t)digest->size));
	if (ret == 0)
		ret = fs_explain_set(out, "empty", json_boolean(cas_digest_is_empty(digest)));
	if (ret == 0)
		ret = fs_explain_set(
			out, "tiers",
			json_integer(fetch ? (json_int_t)cas_fetch_nr_tiers(fetch) : 0));
	if (ret == 0)
		ret = add_place(ex, digest, out, err);
	if (ret == 0)
		ret = add_facts(ex, digest, out, err);
	if (ret == 0)
		ret = add_kind(ex, digest, out);
	if (ret == 0)
		ret = add_needers(&n, out, err);
	fs_search_fini(&n.search);
	json_decref(n.pins);
	json_decref(n.sandboxes);
	json_decref(n.results);
	return ret;
}

int fs_explain_blob(const struct fs_explain *ex, const struct cas_digest *digest, json_t **out,
		    struct err *err)
{
	json_t *obj = json_pack("{s:s}", "about", "blob");
	int ret = obj ? fill(ex, digest, obj, err) : -ENOMEM;

	if (ret < 0)
		json_decref(obj);
	else
		*out = obj;
	return ret == -ENOMEM ? err_set(err, ret, "no memory to explain a blob") : ret;
}
