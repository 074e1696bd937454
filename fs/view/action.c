/* fs/view/action.c - the action cache: ac/HASH[-SIZE]/ */
/*
 * A node of ours has as digest the hash of its action, and in place of the size the first 63
 * bits of the hash of the result: which result of which action it is of. So a node that was
 * made for a result that was replaced since is told from one of the new result, nothing is
 * held by nodes, and everything is found again from the files. The tag tells what of it the
 * node is: FS_AC_OUTPUTS has the place in the outcome above FS_AC_WHAT_BITS. Results that were
 * looked into last are kept, parsed.
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
#include "fs/view/action_i.h"
#include "fs/view/fixed.h"

#define KEPT_SIZE_MAX (size_t)(1 << 20)
#define RESULT_BITS   (UINT64_C(0x7fffffffffffffff))
#define HUGE_SIZE_MAX (size_t)(64 << 20) /* larger results are parsed each time */

static const struct fs_fixed ac_top = {"ac", FS_AC_TOP, 0711, FS_KIND_DIR};

/* --- results --- */

static struct fs_outcome *find_kept(struct fs_view_action *ac, const struct cas_digest *id)
{
	struct fs_outcome *outcome = NULL;

	lock_take(&ac->lock);
	for (size_t i = 0; outcome == NULL && i < FS_AC_NR_KEPT; i++) {
		struct fs_ac_kept *k = &ac->kept[i];

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
	struct fs_ac_kept *k;

	if (outcome->data_len > HUGE_SIZE_MAX)
		return;
	lock_take(&ac->lock);
	k = &ac->kept[large ? 0 : 1];
	for (size_t i = 2; !large && i < FS_AC_NR_KEPT; i++)
		if (ac->kept[i].used < k->used)
			k = &ac->kept[i];
	fs_outcome_unref(k->outcome);
	*k = (struct fs_ac_kept){*id, fs_outcome_ref(outcome), ++ac->clock};
	lock_drop(&ac->lock);
}

int fs_ac_load(struct fs_view_action *ac, const uint8_t hash[CAS_HASH_SZ], struct cas_digest *id,
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

int fs_ac_outcome(struct fs_view_action *ac, const struct cas_digest *id, struct fs_outcome **out,
		  struct err *err)
{
	struct cas_digest now;
	int ret = 0;

	*out = find_kept(ac, id);
	if (*out)
		return 0;
	ret = fs_ac_load(ac, id->hash, &now, out, err);
	if (ret == -ENOENT)
		return -ESTALE;
	if (ret == 0 && !cas_digest_equal(&now, id)) {
		fs_outcome_unref(*out);
		*out = NULL;
		return -ESTALE;
	}
	return ret;
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
	ret = fs_ac_load(ac, hash, &out->digest, &outcome, err);
	if (ret < 0)
		return ret == -ENOENT ? 0 : ret;
	fs_outcome_unref(outcome);
	out->view = &ac->view;
	out->kind = FS_KIND_DIR;
	out->tag = FS_AC_DIR;
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

	if (dir->tag == FS_AC_TOP)
		return lookup_result(ac, name, out, err);
	if (dir->tag != FS_AC_DIR)
		return fs_ac_lookup_output(ac, dir, name, out, err);
	return fs_ac_lookup_part(ac, dir, name, out, err);
}

static int ac_list(const struct fs_view *view, const struct fs_entry *dir, uint64_t start,
		   fs_view_each_fn each, void *ctx, struct err *err)
{
	struct fs_view_action *ac = view->ctx;

	if (dir->tag == FS_AC_TOP)
		return list_results(ac, start, each, ctx, err);
	if (dir->tag == FS_AC_DIR)
		return fs_ac_list_parts(ac, dir, start, each, ctx, err);
	return fs_ac_list_outputs(ac, dir, start, each, ctx, err);
}

static int text_of_action(struct fs_view_action *ac, const struct fs_entry *entry, struct buf *out)
{
	auto_buf struct buf data = {0};
	struct cas_action action;
	int ret = fs_ac_read(ac, entry->digest.hash, &data, &action, NULL);

	if (ret <= 0)
		return ret < 0 ? ret : -ESTALE;
	if (entry->tag == FS_AC_ACTION_JSON)
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
		entry->tag == FS_AC_STDOUT ? &outcome->out : &outcome->error;
	uint64_t node = entry->tag >> FS_AC_WHAT_BITS;

	if (entry->tag == FS_AC_RESULT_JSON)
		return fs_message_text(FS_MESSAGE_RESULT, outcome->data, outcome->data_len, out,
				       NULL);
	if ((entry->tag & FS_AC_WHAT_MASK) != FS_AC_OUTPUTS)
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

	if (entry->tag == FS_AC_ACTION_JSON || entry->tag == FS_AC_COMMAND_JSON)
		return text_of_action(ac, entry, out);
	ret = fs_ac_outcome(ac, &entry->digest, &outcome, NULL);
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
	for (size_t i = 0; i < FS_AC_NR_KEPT; i++)
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
