/* fs/view/action.c - the action cache: ac/HASH[-SIZE]/ */
/*
 * A node of ours has as digest the hash of its action, and in place of the size the first 63
 * bits of the hash of the result: which result of which action it is of. So a node that was
 * made for a result that was replaced since is told from one of the new result, nothing is
 * held by nodes, and everything is found again from the files. The tag tells what of it the
 * node is: AC_OUTPUTS has the place in the outcome above WHAT_BITS. Results that were looked
 * into last are kept, parsed.
 *
 * A listing is of the moment when somebody last began one: who is in the middle of another
 * goes on in that, and may miss a name or see it twice if results came meanwhile.
 */
#include "fs/view/action.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/message/outcome.h"
#include "fs/message/proto_json.h"
#include "fs/node/identity.h"
#include "fs/view/fixed.h"
#include "fs/view/trees.h"
#include "meta/meta.h"

#define NR_KEPT	      16
#define WHAT_BITS     8
#define WHAT_MASK     ((UINT64_C(1) << WHAT_BITS) - 1)
#define RESULT_BITS   (UINT64_C(0x7fffffffffffffff))
#define KEPT_SIZE_MAX (size_t)(1 << 20)
#define HUGE_SIZE_MAX (size_t)(64 << 20) /* larger results are parsed each time */

enum ac_what {
	AC_TOP,
	AC_DIR, /* ac/NAME */
	AC_ACTION_JSON,
	AC_COMMAND_JSON,
	AC_INPUT,
	AC_RESULT_JSON,
	AC_OUTPUTS, /* a directory of outputs, or an output that came along */
	AC_STDOUT,
	AC_STDERR,
};

struct kept {
	struct cas_digest id; /* as a node's digest */
	struct fs_outcome *outcome;
	uint64_t used;
};

struct fs_view_action {
	struct fs_view view;
	struct fs_view_tree tree; /* inputs, and outputs that are Directories */
	struct fs_view_trees *trees;
	struct cas_store *store;
	struct meta *meta;
	struct fs_entry root;
	struct lock lock;
	uint64_t clock GUARDED_BY(lock);
	/* The first is for one above KEPT_SIZE_MAX, lest each name in it parse it again. */
	struct kept kept[NR_KEPT] GUARDED_BY(lock);
	struct lock
		list_lock; /* held while the newest are looked for: nothing waits but listings */
	size_t nr_listed GUARDED_BY(list_lock);
	struct cas_action_age *listed GUARDED_BY(list_lock);
};

static const struct fs_fixed ac_top = {"ac", AC_TOP, 0711, FS_KIND_DIR};

/* What there may be in ac/NAME, in the order in which it is listed. */
static const struct {
	const char *name;
	enum ac_what what;
} ac_names[] = {
	{"action.json", AC_ACTION_JSON}, {"command.json", AC_COMMAND_JSON}, {"input", AC_INPUT},
	{"outputs", AC_OUTPUTS},	 {"result.json", AC_RESULT_JSON},   {"stderr", AC_STDERR},
	{"stdout", AC_STDOUT},
};
#define NR_AC_NAMES (sizeof(ac_names) / sizeof(ac_names[0]))

/* --- results --- */

static struct fs_outcome *find_kept(struct fs_view_action *ac, const struct cas_digest *id)
{
	struct fs_outcome *outcome = NULL;

	lock_take(&ac->lock);
	for (size_t i = 0; outcome == NULL && i < NR_KEPT; i++) {
		struct kept *k = &ac->kept[i];

		if (k->outcome && cas_digest_equal(&k->id, id)) {
			k->used = ++ac->clock;
			outcome = fs_outcome_ref(k->outcome);
		}
	}
	lock_drop(&ac->lock);
	return outcome;
}

static void keep(struct fs_view_action *ac, const struct cas_digest *id, struct fs_outcome *outcome)
{
	bool large = outcome->data_len > KEPT_SIZE_MAX;
	struct kept *k;

	if (outcome->data_len > HUGE_SIZE_MAX)
		return;
	lock_take(&ac->lock);
	k = &ac->kept[large ? 0 : 1];
	for (size_t i = 2; !large && i < NR_KEPT; i++)
		if (ac->kept[i].used < k->used)
			k = &ac->kept[i];
	fs_outcome_unref(k->outcome);
	*k = (struct kept){*id, fs_outcome_ref(outcome), ++ac->clock};
	lock_drop(&ac->lock);
}

/* The result of an action as it is now, and what its nodes are known by. */
static int load(struct fs_view_action *ac, const uint8_t hash[CAS_HASH_SZ], struct cas_digest *id,
		struct fs_outcome **out, struct err *err)
{
	auto_buf struct buf data = {0};
	struct cas_digest action = {.size = 0};
	struct cas_digest result;
	int ret;

	memcpy(action.hash, hash, CAS_HASH_SZ);
	ret = cas_store_action_get(ac->store, &action, &data, err);
	if (ret == 0)
		ret = cas_hash_bytes(buf_str(&data), data.len, &result);
	if (ret < 0)
		return ret;
	*id = action;
	memcpy(&id->size, result.hash, sizeof(id->size));
	id->size &= RESULT_BITS;
	*out = find_kept(ac, id);
	if (*out)
		return 0;
	ret = fs_outcome_new(buf_str(&data), data.len, out, err);
	if (ret == -EUCLEAN)
		return err_context(err, ret, "the result of action %s", CAS_DIGEST_TEXT(&action));
	if (ret == 0)
		keep(ac, id, *out);
	return ret;
}

/* That of a node; -ESTALE: it was replaced, or is gone. */
static int outcome_of(struct fs_view_action *ac, const struct cas_digest *id,
		      struct fs_outcome **out, struct err *err)
{
	struct cas_digest now;
	int ret = 0;

	*out = find_kept(ac, id);
	if (*out)
		return 0;
	ret = load(ac, id->hash, &now, out, err);
	if (ret == -ENOENT)
		return -ESTALE;
	if (ret == 0 && !cas_digest_equal(&now, id)) {
		fs_outcome_unref(*out);
		*out = NULL;
		return -ESTALE;
	}
	return ret;
}

/* --- the Action, and what it names --- */

/* 1 and its bytes; 0: it is not to be had, or is none, and @err may name what is missing. */
static int read_action(struct fs_view_action *ac, const uint8_t hash[CAS_HASH_SZ], struct buf *data,
		       struct cas_action *out, struct err *err)
{
	struct cas_digest digest;
	int ret = cas_store_resolve(ac->store, hash, &digest);

	if (ret == 1)
		ret = cas_store_read_blob(ac->store, &digest, CAS_ACTION_MAX, data, err) == 0;
	if (ret == 1)
		ret = cas_action_decode(buf_str(data), data->len, out, err) == 0;
	return ret;
}

static void fill_text(const struct fs_view *view, const struct cas_digest *id, enum ac_what what,
		      struct fs_entry *out)
{
	out->view = view;
	out->kind = FS_KIND_TEXT;
	out->digest = *id;
	out->tag = what;
	out->has_mode = true;
	out->mode = 0444;
}

static int look_action(struct fs_view_action *ac, const struct fs_entry *dir, enum ac_what what,
		       struct fs_entry *out, struct err *err)
{
	auto_buf struct buf data = {0};
	struct cas_action action;
	int ret = read_action(ac, dir->digest.hash, &data, &action, err);

	if (ret <= 0)
		return ret;
	if (what == AC_INPUT) {
		ret = fs_view_tree_root(&ac->tree, &action.root, &out->key, 0, out, err);
		return ret == -ENOENT || ret == -EUCLEAN ? 0 : ret < 0 ? ret : 1;
	}
	if (what == AC_COMMAND_JSON) {
		buf_reset(&data);
		ret = cas_store_read_blob(ac->store, &action.command, CAS_ACTION_MAX, &data, err);
		if (ret < 0)
			return 0;
	}
	fill_text(&ac->view, &dir->digest, what, out);
	return 1;
}

static void fill_file(const struct fs_view *view, const struct cas_digest *digest,
		      struct fs_entry *out)
{
	out->view = view;
	out->kind = FS_KIND_FILE;
	out->digest = *digest;
}

static void fill_stream(struct fs_view_action *ac, const struct fs_entry *dir,
			const struct fs_outcome_stream *stream, enum ac_what what,
			struct fs_entry *out)
{
	if (stream->raw_len > 0)
		fill_text(&ac->view, &dir->digest, what, out);
	else
		fill_file(&ac->view, &stream->digest, out);
}

/* --- outputs --- */

static uint64_t node_tag(const struct fs_outcome *outcome, const struct fs_outcome_node *node)
{
	return AC_OUTPUTS | (uint64_t)(node - outcome->nodes) << WHAT_BITS;
}

static void take_props(const struct fs_outcome_node *node, struct fs_entry *out)
{
	out->has_mtime = node->has_mtime;
	out->has_mode = node->has_mode;
	out->mtime_sec = node->mtime_sec;
	out->mtime_nsec = node->mtime_nsec;
	out->mode = (uint16_t)node->mode;
}

/* A file is there by its name; a file that came along needs no blob. */
static void fill_output(struct fs_view_action *ac, const struct fs_entry *dir,
			const struct fs_outcome *outcome, const struct fs_outcome_node *node,
			struct fs_entry *out)
{
	fill_file(&ac->view, &node->digest, out);
	out->executable = node->executable;
	if (node->contents_len > 0 && node->contents_len == node->digest.size &&
	    cas_store_has(ac->store, &node->digest) != 1) {
		fill_text(&ac->view, &dir->digest, AC_OUTPUTS, out);
		out->tag = node_tag(outcome, node);
		out->mode = node->executable ? 0555 : 0444;
	}
	if (node->has_mode || node->has_mtime)
		take_props(node, out);
}

/*
 * The entry of @node, known as @name in @dir. out->target is borrowed from the outcome.
 * @plain: kind and key alone, where more would have to be looked for. 1, 0, or negative.
 */
static int node_entry(struct fs_view_action *ac, const struct fs_entry *dir, const char *name,
		      const struct fs_outcome *outcome, const struct fs_outcome_node *node,
		      bool plain, struct fs_entry *out, struct err *err)
{
	int ret = fs_key_of_path(&dir->key, name, &out->key);

	if (ret < 0)
		return ret;
	if (plain && (node->kind == FS_OUTCOME_TREE || node->kind == FS_OUTCOME_ROOT)) {
		out->kind = FS_KIND_DIR;
		out->partial = true;
		return 1;
	}
	switch (node->kind) {
	case FS_OUTCOME_TREE:
		ret = fs_view_trees_root(ac->trees, &node->digest, &out->key, out, err);
		return ret == 0 ? 1 : ret == -ENOENT ? 0 : ret;
	case FS_OUTCOME_ROOT:
		ret = fs_view_tree_root(&ac->tree, &node->digest, &out->key, 0, out, err);
		return ret == 0 ? 1 : ret == -ENOENT ? 0 : ret;
	case FS_OUTCOME_DIR:
		out->view = &ac->view;
		out->kind = FS_KIND_DIR;
		out->digest = dir->digest;
		out->tag = node_tag(outcome, node);
		return 1;
	case FS_OUTCOME_FILE:
		fill_output(ac, dir, outcome, node, out);
		break;
	case FS_OUTCOME_SYMLINK:
		out->view = &ac->view;
		out->kind = FS_KIND_SYMLINK;
		out->target = node->target;
		take_props(node, out);
		break;
	}
	if (out->kind == FS_KIND_TEXT)
		return 1;
	ret = fs_key_of_leaf(&dir->key, name, out, &out->key);
	return ret < 0 ? ret : 1;
}

static int lookup_output(struct fs_view_action *ac, const struct fs_entry *dir, const char *name,
			 struct fs_entry *out, struct err *err)
{
	const struct fs_outcome_node *node;
	struct fs_outcome *outcome;
	int ret = outcome_of(ac, &dir->digest, &outcome, err);

	if (ret < 0)
		return ret;
	node = fs_outcome_find(outcome, (uint32_t)(dir->tag >> WHAT_BITS), name);
	if (node)
		ret = node_entry(ac, dir, name, outcome, node, false, out, err);
	if (ret == 1 && out->kind == FS_KIND_SYMLINK) {
		out->target = strdup(node->target);
		ret = out->target ? 1 : -ENOMEM;
	}
	fs_outcome_unref(outcome);
	return ret;
}

static int list_outputs(struct fs_view_action *ac, const struct fs_entry *dir, uint64_t start,
			fs_view_each_fn each, void *ctx, struct err *err)
{
	const struct fs_outcome_node *node;
	struct fs_outcome *outcome;
	int ret = outcome_of(ac, &dir->digest, &outcome, err);
	uint32_t at = (uint32_t)(dir->tag >> WHAT_BITS);

	if (ret < 0)
		return ret;
	for (uint64_t i = start; ret == 0 && (node = fs_outcome_child(outcome, at, i)) != NULL;
	     i++) {
		struct fs_entry entry = {0};

		ret = node_entry(ac, dir, node->name, outcome, node, true, &entry, err);
		if (ret > 0)
			ret = each(ctx, i, node->name, &entry);
	}
	fs_outcome_unref(outcome);
	return ret < 0 ? ret : 0;
}

/* --- ac/NAME --- */

/* 1 and *out, 0 or negative; out->key is set already. */
static int lookup_part(struct fs_view_action *ac, const struct fs_entry *dir, const char *name,
		       enum ac_what what, struct fs_entry *out, struct err *err)
{
	struct fs_outcome *outcome;
	int ret;

	if (what == AC_ACTION_JSON || what == AC_COMMAND_JSON || what == AC_INPUT)
		return look_action(ac, dir, what, out, err);
	ret = outcome_of(ac, &dir->digest, &outcome, err);
	if (ret < 0)
		return ret;
	ret = 1;
	if (what == AC_RESULT_JSON)
		fill_text(&ac->view, &dir->digest, what, out);
	else if (what == AC_OUTPUTS)
		ret = node_entry(ac, dir, name, outcome, &outcome->nodes[0], false, out, err);
	else
		fill_stream(ac, dir, what == AC_STDOUT ? &outcome->out : &outcome->error, what,
			    out);
	fs_outcome_unref(outcome);
	return ret;
}

static int lookup_at(struct fs_view_action *ac, const struct fs_entry *dir, size_t i,
		     struct fs_entry *out, struct err *err)
{
	int ret = fs_key_of_path(&dir->key, ac_names[i].name, &out->key);

	return ret < 0 ? ret : lookup_part(ac, dir, ac_names[i].name, ac_names[i].what, out, err);
}

static int list_parts(struct fs_view_action *ac, const struct fs_entry *dir, uint64_t start,
		      fs_view_each_fn each, void *ctx, struct err *err)
{
	int ret = 0;

	for (uint64_t i = start; ret == 0 && i < NR_AC_NAMES; i++) {
		struct err why = {0};
		struct fs_entry entry = {0};

		ret = lookup_at(ac, dir, i, &entry, &why);
		/* What cannot be read is told when it is looked up. */
		if (ret == -EUCLEAN || ret == -EBADMSG) {
			entry.partial = true;
			entry.kind = ac_names[i].what == AC_INPUT || ac_names[i].what == AC_OUTPUTS
					     ? FS_KIND_DIR
					     : FS_KIND_TEXT;
			ret = 1;
		}
		if (ret > 0)
			ret = each(ctx, i, ac_names[i].name, &entry);
		else if (ret < 0 && err)
			*err = why;
	}
	return ret < 0 ? ret : 0;
}

/* --- ac/ --- */

/* 1, or 0 for a name that is no digest, or not that of an action with this hash. */
static int parse_name(struct fs_view_action *ac, const char *name, uint8_t hash[CAS_HASH_SZ])
{
	struct cas_digest digest;
	struct cas_digest known;

	if (cas_hash_parse(name, strlen(name), hash) == 0)
		return 1;
	if (cas_digest_parse(name, &digest) < 0)
		return 0;
	memcpy(hash, digest.hash, CAS_HASH_SZ);
	return cas_store_resolve(ac->store, hash, &known) != 1 || known.size == digest.size;
}

static int lookup_result(struct fs_view_action *ac, const char *name, struct fs_entry *out,
			 struct err *err)
{
	struct fs_outcome *outcome;
	uint8_t hash[CAS_HASH_SZ];
	int ret = parse_name(ac, name, hash);

	if (ret <= 0)
		return ret;
	ret = load(ac, hash, &out->digest, &outcome, err);
	if (ret < 0)
		return ret == -ENOENT ? 0 : ret;
	fs_outcome_unref(outcome);
	out->view = &ac->view;
	out->kind = FS_KIND_DIR;
	out->tag = AC_DIR;
	/* Another result may be here next time. */
	out->fleeting = true;
	ret = fs_key_of_label(name, &out->digest, &out->key);
	return ret < 0 ? ret : 1;
}

static int look_newest_locked(struct fs_view_action *ac, struct err *err) REQUIRES(ac->list_lock)
{
	if (ac->listed == NULL)
		ac->listed = calloc(FS_ACTIONS_LISTED, sizeof(*ac->listed));
	if (ac->listed == NULL)
		return -ENOMEM;
	return cas_store_action_newest(ac->store, ac->listed, FS_ACTIONS_LISTED, &ac->nr_listed,
				       err);
}

/* The result at @at of the list, which is made anew for the first. 1, or 0: its end. */
static int listed_at(struct fs_view_action *ac, uint64_t at, uint8_t hash[CAS_HASH_SZ],
		     struct err *err)
{
	int ret = 0;

	lock_take(&ac->list_lock);
	if (ac->listed == NULL || at == 0)
		ret = look_newest_locked(ac, err);
	if (ret == 0 && at < ac->nr_listed) {
		memcpy(hash, ac->listed[at].hash, CAS_HASH_SZ);
		ret = 1;
	}
	lock_drop(&ac->list_lock);
	return ret;
}

static int list_results(struct fs_view_action *ac, uint64_t start, fs_view_each_fn each, void *ctx,
			struct err *err)
{
	int ret = 0;

	for (uint64_t i = start; ret == 0; i++) {
		struct fs_entry entry = {.view = &ac->view, .kind = FS_KIND_DIR, .partial = true};
		struct cas_digest action = {.size = 0};
		char name[CAS_HASH_HEX_SZ + 1];

		ret = listed_at(ac, i, action.hash, err);
		if (ret <= 0)
			break;
		cas_hash_format(action.hash, name);
		ret = fs_key_of_label(name, &action, &entry.key);
		if (ret == 0)
			ret = each(ctx, i, name, &entry);
	}
	return ret < 0 ? ret : 0;
}

/* --- the view --- */

static int ac_lookup(const struct fs_view *view, const struct fs_entry *dir, const char *name,
		     struct fs_entry *out, struct err *err)
{
	struct fs_view_action *ac = view->ctx;

	if (dir->tag == AC_TOP)
		return lookup_result(ac, name, out, err);
	if (dir->tag != AC_DIR)
		return lookup_output(ac, dir, name, out, err);
	for (size_t i = 0; i < NR_AC_NAMES; i++)
		if (strcmp(ac_names[i].name, name) == 0)
			return lookup_at(ac, dir, i, out, err);
	return 0;
}

static int ac_list(const struct fs_view *view, const struct fs_entry *dir, uint64_t start,
		   fs_view_each_fn each, void *ctx, struct err *err)
{
	struct fs_view_action *ac = view->ctx;

	if (dir->tag == AC_TOP)
		return list_results(ac, start, each, ctx, err);
	if (dir->tag == AC_DIR)
		return list_parts(ac, dir, start, each, ctx, err);
	return list_outputs(ac, dir, start, each, ctx, err);
}

static int text_of_action(struct fs_view_action *ac, const struct fs_entry *entry, struct buf *out)
{
	auto_buf struct buf data = {0};
	struct cas_action action;
	int ret = read_action(ac, entry->digest.hash, &data, &action, NULL);

	if (ret <= 0)
		return ret < 0 ? ret : -ESTALE;
	if (entry->tag == AC_ACTION_JSON)
		return fs_message_text(FS_MESSAGE_ACTION, buf_str(&data), data.len, out, NULL);
	buf_reset(&data);
	ret = cas_store_read_blob(ac->store, &action.command, CAS_ACTION_MAX, &data, NULL);
	if (ret < 0)
		return ret == -ENOENT ? -ESTALE : ret;
	return fs_message_text(FS_MESSAGE_COMMAND, buf_str(&data), data.len, out, NULL);
}

static int text_of_result(const struct fs_outcome *outcome, const struct fs_entry *entry,
			  struct buf *out)
{
	const struct fs_outcome_stream *stream =
		entry->tag == AC_STDOUT ? &outcome->out : &outcome->error;
	uint64_t node = entry->tag >> WHAT_BITS;

	if (entry->tag == AC_RESULT_JSON)
		return fs_message_text(FS_MESSAGE_RESULT, outcome->data, outcome->data_len, out,
				       NULL);
	if ((entry->tag & WHAT_MASK) != AC_OUTPUTS)
		return buf_append(out, stream->raw, stream->raw_len);
	if (node >= outcome->nr_nodes)
		return -ESTALE;
	return buf_append(out, outcome->nodes[node].contents, outcome->nodes[node].contents_len);
}

static int ac_text(const struct fs_view *view, const struct fs_entry *entry, struct buf *out)
{
	struct fs_view_action *ac = view->ctx;
	struct fs_outcome *outcome;
	int ret;

	if (entry->tag == AC_ACTION_JSON || entry->tag == AC_COMMAND_JSON)
		return text_of_action(ac, entry, out);
	ret = outcome_of(ac, &entry->digest, &outcome, NULL);
	if (ret < 0)
		return ret;
	ret = text_of_result(outcome, entry, out);
	fs_outcome_unref(outcome);
	return ret;
}

static const struct fs_view_ops ac_ops = {
	.lookup = ac_lookup,
	.list = ac_list,
	.text = ac_text,
};

int fs_view_action_new(struct cas_store *store, struct meta *meta, struct fs_view_trees *trees,
		       struct fs_view_action **out)
{
	struct fs_view_action *ac = calloc(1, sizeof(*ac));
	int ret;

	if (ac == NULL)
		return -ENOMEM;
	ac->view = (struct fs_view){&ac_ops, ac};
	ac->store = store;
	ac->meta = meta;
	ac->trees = trees;
	fs_view_tree_init(&ac->tree, meta);
	lock_init(&ac->lock, LOCK_RANK_LEAF, "results");
	lock_init(&ac->list_lock, LOCK_RANK_INODE, "listing of results");
	ret = fs_fixed_entry(&ac->view, &ac_top, "ac", &ac->root);
	/* The list of names is another one each time. */
	ac->root.fleeting = true;
	if (ret < 0) {
		fs_view_action_free(ac);
		return ret;
	}
	*out = ac;
	return 0;
}

NO_LOCK_CHECK void fs_view_action_free(struct fs_view_action *ac)
{
	if (ac == NULL)
		return;
	for (size_t i = 0; i < NR_KEPT; i++)
		fs_outcome_unref(ac->kept[i].outcome);
	free(ac->listed);
	lock_fini(&ac->list_lock);
	lock_fini(&ac->lock);
	free(ac);
}

void fs_view_action_root(struct fs_view_action *action, struct fs_entry *out)
{
	*out = action->root;
}
