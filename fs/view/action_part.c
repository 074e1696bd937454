/* fs/view/action_part.c - what there is of one action: below ac/HASH[-SIZE]/ */
#include <errno.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/message/outcome.h"
#include "fs/node/identity.h"
#include "fs/view/action_i.h"
#include "fs/view/trees.h"

/* What there may be in ac/NAME, in the order in which it is listed. */
static const struct {
	const char *name;
	enum fs_ac_what what;
} ac_names[] = {
	{"action.json", FS_AC_ACTION_JSON},
	{"command.json", FS_AC_COMMAND_JSON},
	{"input", FS_AC_INPUT},
	{"outputs", FS_AC_OUTPUTS},
	{"result.json", FS_AC_RESULT_JSON},
	{"stderr", FS_AC_STDERR},
	{"stdout", FS_AC_STDOUT},
};
#define NR_AC_NAMES (sizeof(ac_names) / sizeof(ac_names[0]))

/* --- the Action, and what it names --- */

int fs_ac_read(struct fs_view_action *ac, const uint8_t hash[CAS_HASH_SZ], struct buf *data,
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

static void fill_text(const struct fs_view *view, const struct cas_digest *id, enum fs_ac_what what,
		      struct fs_entry *out)
{
	out->view = view;
	out->kind = FS_KIND_TEXT;
	out->digest = *id;
	out->tag = what;
	out->has_mode = true;
	out->mode = 0444;
}

static int look_action(struct fs_view_action *ac, const struct fs_entry *dir, enum fs_ac_what what,
		       struct fs_entry *out, struct err *err)
{
	auto_buf struct buf data = {0};
	struct cas_action action;
	int ret = fs_ac_read(ac, dir->digest.hash, &data, &action, err);

	if (ret <= 0)
		return ret;
	if (what == FS_AC_INPUT) {
		ret = fs_view_tree_root(&ac->tree, &action.root, &out->key, 0, out, err);
		return ret == -ENOENT || ret == -EUCLEAN ? 0 : ret < 0 ? ret : 1;
	}
	if (what == FS_AC_COMMAND_JSON) {
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
			const struct fs_outcome_stream *stream, enum fs_ac_what what,
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
	return FS_AC_OUTPUTS | (uint64_t)(node - outcome->nodes) << FS_AC_WHAT_BITS;
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
		fill_text(&ac->view, &dir->digest, FS_AC_OUTPUTS, out);
		out->tag = node_tag(outcome, node);
		out->mode = node->executable ? 0555 : 0444;
	}
	if (node->has_mode || node->has_mtime)
		take_props(node, out);
}

/* The result names it, so that it is not absent, but cannot be shown. */
static int missing_tree(const char *name, const struct fs_outcome_node *node, struct err *err)
{
	return err_set(err, -EIO, "output %s of a result: its tree %s is in no place to be had",
		       name, CAS_DIGEST_TEXT(&node->digest));
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
		return ret == 0 ? 1 : ret == -ENOENT ? missing_tree(name, node, err) : ret;
	case FS_OUTCOME_ROOT:
		ret = fs_view_tree_root(&ac->tree, &node->digest, &out->key, 0, out, err);
		return ret == 0 ? 1 : ret == -ENOENT ? missing_tree(name, node, err) : ret;
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

int fs_ac_lookup_output(struct fs_view_action *ac, const struct fs_entry *dir, const char *name,
			struct fs_entry *out, struct err *err)
{
	const struct fs_outcome_node *node;
	struct fs_outcome *outcome;
	int ret = fs_ac_outcome(ac, &dir->digest, &outcome, err);

	if (ret < 0)
		return ret;
	node = fs_outcome_find(outcome, (uint32_t)(dir->tag >> FS_AC_WHAT_BITS), name);
	if (node)
		ret = node_entry(ac, dir, name, outcome, node, false, out, err);
	if (ret == 1 && out->kind == FS_KIND_SYMLINK) {
		out->target = strdup(node->target);
		ret = out->target ? 1 : -ENOMEM;
	}
	fs_outcome_unref(outcome);
	return ret;
}

int fs_ac_list_outputs(struct fs_view_action *ac, const struct fs_entry *dir, uint64_t start,
		       fs_view_each_fn each, void *ctx, struct err *err)
{
	const struct fs_outcome_node *node;
	struct fs_outcome *outcome;
	int ret = fs_ac_outcome(ac, &dir->digest, &outcome, err);
	uint32_t at = (uint32_t)(dir->tag >> FS_AC_WHAT_BITS);

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
		       enum fs_ac_what what, struct fs_entry *out, struct err *err)
{
	struct fs_outcome *outcome;
	int ret;

	if (what == FS_AC_ACTION_JSON || what == FS_AC_COMMAND_JSON || what == FS_AC_INPUT)
		return look_action(ac, dir, what, out, err);
	ret = fs_ac_outcome(ac, &dir->digest, &outcome, err);
	if (ret < 0)
		return ret;
	ret = 1;
	if (what == FS_AC_RESULT_JSON)
		fill_text(&ac->view, &dir->digest, what, out);
	else if (what == FS_AC_OUTPUTS)
		ret = node_entry(ac, dir, name, outcome, &outcome->nodes[0], false, out, err);
	else
		fill_stream(ac, dir, what == FS_AC_STDOUT ? &outcome->out : &outcome->error, what,
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

int fs_ac_lookup_part(struct fs_view_action *ac, const struct fs_entry *dir, const char *name,
		      struct fs_entry *out, struct err *err)
{
	for (size_t i = 0; i < NR_AC_NAMES; i++)
		if (strcmp(ac_names[i].name, name) == 0)
			return lookup_at(ac, dir, i, out, err);
	return 0;
}

int fs_ac_list_parts(struct fs_view_action *ac, const struct fs_entry *dir, uint64_t start,
		     fs_view_each_fn each, void *ctx, struct err *err)
{
	int ret = 0;

	for (uint64_t i = start; ret == 0 && i < NR_AC_NAMES; i++) {
		struct err why = {0};
		struct fs_entry entry = {0};

		ret = lookup_at(ac, dir, i, &entry, &why);
		/* What cannot be read is told when it is looked up. */
		if (ret == -EUCLEAN || ret == -EBADMSG || ret == -EIO) {
			entry.partial = true;
			entry.kind =
				ac_names[i].what == FS_AC_INPUT || ac_names[i].what == FS_AC_OUTPUTS
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
