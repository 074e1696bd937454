/* cas/reapi/directory.c - a Directory in memory: build, decode, validate, look up */
#include "cas/reapi/directory.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/arena_i.h"
#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/text_i.h"
#include "cas/reapi.pb-c.h"
#include "cas/reapi/directory_i.h"

/*
 * Decoding is strict because a Directory is named by its bytes: two encodings of one
 * tree would be two digests, and whatever a lenient decoder overlooks (a repeated
 * field, a NUL inside a name, an unknown field) is a difference between what we show and
 * what another tool shows. protobuf-c accepts all of these. So after the fields were
 * looked at one by one, for a message that names the fault, the nodes are packed again,
 * and anything but the same bytes is refused. This also proves that our structs lose
 * nothing.
 *
 * Strings of a decoded directory stay where protobuf-c put them: in the arena that
 * also holds the copies made by cas_directory_add. The arena bounds what a hostile
 * message of millions of two-byte fields may cost.
 */

#define DECODE_FACTOR 32
#define DECODE_SLACK  (size_t)(64 << 10)
#define DECODE_MAX    (size_t)(2U << 30)

struct directory_priv {
	struct cas_arena arena;
	size_t cap; /* of nodes */
};

int cas_directory_new(struct cas_directory **out)
{
	auto_free struct cas_directory *dir = calloc(1, sizeof(*dir));

	if (dir == NULL)
		return -ENOMEM;
	dir->priv = calloc(1, sizeof(struct directory_priv));
	if (dir->priv == NULL)
		return -ENOMEM;
	*out = steal_ptr(&dir);
	return 0;
}

void cas_directory_free(struct cas_directory *dir)
{
	struct directory_priv *priv;

	if (dir == NULL)
		return;
	priv = dir->priv;
	cas_arena_fini(&priv->arena);
	free(priv);
	free(dir->nodes);
	free(dir);
}

int cas_name_check(const char *name, size_t len)
{
	if (len == 0 || len > CAS_NAME_MAX)
		return -EINVAL;
	if (name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')))
		return -EINVAL;
	if (memchr(name, '/', len) || memchr(name, '\0', len) || !cas_utf8_valid(name, len))
		return -EINVAL;
	return 0;
}

static int name_fault(const char *name, int code, struct err *err)
{
	size_t len = strlen(name);
	const char *why = "is not UTF-8";

	if (len == 0)
		return err_set(err, code, "an entry has an empty name");
	if (len > CAS_NAME_MAX)
		why = "is longer than 255 bytes";
	else if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		why = "is reserved";
	else if (strchr(name, '/'))
		why = "holds a slash";
	return err_set(err, code, "name '%s' %s", CAS_TEXT(name), why);
}

static int target_check(const struct cas_node *node, int code, struct err *err)
{
	size_t len = node->target ? strlen(node->target) : 0;
	const char *why = NULL;

	if (len == 0)
		why = "is empty";
	else if (len > CAS_TARGET_MAX)
		why = "is longer than 4095 bytes";
	else if (!cas_utf8_valid(node->target, len))
		why = "is not UTF-8";
	return why ? err_set(err, code, "the target of symlink '%s' %s", CAS_TEXT(node->name), why)
		   : 0;
}

static int digest_check(const struct cas_node *node, int code, struct err *err)
{
	bool empty_hash = memcmp(node->digest.hash, cas_digest_empty.hash, CAS_HASH_SZ) == 0;

	if (node->digest.size > INT64_MAX)
		return err_set(err, code, "the size of '%s' is out of range", CAS_TEXT(node->name));
	if (empty_hash != (node->digest.size == 0))
		return err_set(err, code, "the size of '%s' does not belong to its hash (%s)",
			       CAS_TEXT(node->name), CAS_DIGEST_TEXT(&node->digest));
	return 0;
}

static int props_check(const struct cas_properties *props, const char *name, int code,
		       struct err *err)
{
	if (props->has_mtime && (props->mtime_nsec < 0 || props->mtime_nsec > 999999999))
		return err_set(err, code, "the mtime of '%s' has nanoseconds out of range",
			       CAS_TEXT(name));
	for (size_t i = 0; i < props->nr_other; i++) {
		const struct cas_property *p = &props->other[i];

		if (!cas_utf8_valid(p->name, strlen(p->name)) ||
		    !cas_utf8_valid(p->value, strlen(p->value)))
			return err_set(err, code, "a property of '%s' is not UTF-8",
				       CAS_TEXT(name));
		if (i > 0 && strcmp(p[-1].name, p->name) > 0)
			return err_set(err, code, "the properties of '%s' are not sorted",
				       CAS_TEXT(name));
	}
	return 0;
}

int cas_node_check(const struct cas_node *node, int code, struct err *err)
{
	int ret = 0;

	if (node->name == NULL || cas_name_check(node->name, strlen(node->name)) < 0)
		return name_fault(node->name ? node->name : "", code, err);
	if (node->kind == CAS_NODE_SYMLINK)
		ret = target_check(node, code, err);
	else
		ret = digest_check(node, code, err);
	if (ret == 0 && node->kind != CAS_NODE_DIRECTORY)
		ret = props_check(&node->props, node->name, code, err);
	return ret;
}

/* Building. */

static int nodes_grow(struct cas_directory *dir)
{
	struct directory_priv *priv = dir->priv;
	size_t cap = priv->cap ? priv->cap * 2 : 16;
	struct cas_node *nodes;

	if (dir->nr_nodes < priv->cap)
		return 0;
	nodes = reallocarray(dir->nodes, cap, sizeof(*nodes));
	if (nodes == NULL)
		return -ENOMEM;
	dir->nodes = nodes;
	priv->cap = cap;
	return 0;
}

/* Insertion keeps equal names in their order, and costs nothing when they came sorted. */
static int props_copy(struct cas_arena *arena, struct cas_properties *props)
{
	struct cas_property *other;

	if (props->nr_other == 0)
		return 0;
	other = cas_arena_zalloc(arena, props->nr_other, sizeof(*other));
	if (other == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < props->nr_other; i++) {
		struct cas_property p;
		size_t at = i;

		p.name = cas_arena_strdup(arena, props->other[i].name);
		p.value = cas_arena_strdup(arena, props->other[i].value);
		if (p.name == NULL || p.value == NULL)
			return -ENOMEM;
		for (; at > 0 && strcmp(other[at - 1].name, p.name) > 0; at--)
			other[at] = other[at - 1];
		other[at] = p;
	}
	props->other = other;
	return 0;
}

int cas_directory_add(struct cas_directory *dir, const struct cas_node *node)
{
	struct directory_priv *priv = dir->priv;
	struct cas_node copy = *node;
	int ret = nodes_grow(dir);

	if (ret < 0)
		return ret;
	copy.name = cas_arena_strdup(&priv->arena, node->name);
	if (node->target)
		copy.target = cas_arena_strdup(&priv->arena, node->target);
	if (copy.name == NULL || (node->target && copy.target == NULL))
		return -ENOMEM;
	ret = props_copy(&priv->arena, &copy.props);
	if (ret == 0)
		dir->nodes[dir->nr_nodes++] = copy;
	return ret;
}

static int find_compare(const void *name, const void *node)
{
	return strcmp(name, ((const struct cas_node *)node)->name);
}

const struct cas_node *cas_directory_find(const struct cas_directory *dir, const char *name)
{
	if (dir->nr_nodes == 0)
		return NULL;
	return bsearch(name, dir->nodes, dir->nr_nodes, sizeof(*dir->nodes), find_compare);
}

/* Decoding. */

static void *arena_alloc(void *arena, size_t len)
{
	return cas_arena_alloc(arena, len);
}

static void arena_keep(void *arena, void *p)
{
	(void)arena;
	(void)p;
}

static int unknown_fault(const ProtobufCMessage *msg, struct err *err)
{
	if (msg->n_unknown_fields == 0)
		return 0;
	return err_set(err, -EUCLEAN, "%s has an unknown field %u", msg->descriptor->short_name,
		       msg->unknown_fields[0].tag);
}

static int decode_digest(const Reapi__Digest *msg, const char *name, struct cas_digest *out,
			 struct err *err)
{
	if (msg == NULL)
		return err_set(err, -EUCLEAN, "'%s' has no digest", CAS_TEXT(name));
	if (cas_hash_parse(msg->hash, strlen(msg->hash), out->hash) < 0)
		return err_set(err, -EUCLEAN,
			       "the hash of '%s' is not 64 lower-case hexadecimal digits",
			       CAS_TEXT(name));
	if (msg->size_bytes < 0)
		return err_set(err, -EUCLEAN, "the size of '%s' is negative", CAS_TEXT(name));
	out->size = (uint64_t)msg->size_bytes;
	return unknown_fault(&msg->base, err);
}

static int decode_props(const Reapi__NodeProperties *msg, struct cas_arena *arena,
			struct cas_properties *out, struct err *err)
{
	struct cas_property *other;

	if (msg == NULL)
		return 0;
	if (unknown_fault(&msg->base, err) < 0)
		return -EUCLEAN;
	if (msg->mtime) {
		out->has_mtime = true;
		out->mtime_sec = msg->mtime->seconds;
		out->mtime_nsec = msg->mtime->nanos;
	}
	if (msg->unix_mode) {
		out->has_mode = true;
		out->mode = msg->unix_mode->value;
	}
	out->bare = !msg->mtime && !msg->unix_mode && msg->n_properties == 0;
	if (msg->n_properties == 0)
		return 0;
	other = cas_arena_zalloc(arena, msg->n_properties, sizeof(*other));
	if (other == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < msg->n_properties; i++) {
		other[i].name = msg->properties[i]->name;
		other[i].value = msg->properties[i]->value;
	}
	out->nr_other = msg->n_properties;
	out->other = other;
	return 0;
}

static int decode_file(const Reapi__FileNode *msg, struct cas_arena *arena, struct cas_node *out,
		       struct err *err)
{
	int ret;

	*out = (struct cas_node){.kind = CAS_NODE_FILE, .name = msg->name};
	out->executable = msg->is_executable;
	ret = decode_digest(msg->digest, msg->name, &out->digest, err);
	if (ret == 0)
		ret = unknown_fault(&msg->base, err);
	return ret < 0 ? ret : decode_props(msg->node_properties, arena, &out->props, err);
}

static int decode_subdir(const Reapi__DirectoryNode *msg, struct cas_node *out, struct err *err)
{
	int ret;

	*out = (struct cas_node){.kind = CAS_NODE_DIRECTORY, .name = msg->name};
	ret = decode_digest(msg->digest, msg->name, &out->digest, err);
	return ret < 0 ? ret : unknown_fault(&msg->base, err);
}

static int decode_symlink(const Reapi__SymlinkNode *msg, struct cas_arena *arena,
			  struct cas_node *out, struct err *err)
{
	int ret = unknown_fault(&msg->base, err);

	*out = (struct cas_node){.kind = CAS_NODE_SYMLINK, .name = msg->name};
	out->target = msg->target;
	return ret < 0 ? ret : decode_props(msg->node_properties, arena, &out->props, err);
}

/* The list (0 files, 1 directories, 2 symlinks) whose next name comes first; -1 at the end. */
static int merge_next(const Reapi__Directory *msg, const size_t at[3])
{
	const char *name[3] = {
		at[0] < msg->n_files ? msg->files[at[0]]->name : NULL,
		at[1] < msg->n_directories ? msg->directories[at[1]]->name : NULL,
		at[2] < msg->n_symlinks ? msg->symlinks[at[2]]->name : NULL,
	};
	int best = -1;

	for (int i = 0; i < 3; i++) {
		if (name[i] && (best < 0 || strcmp(name[i], name[best]) < 0))
			best = i;
	}
	return best;
}

static int order_fault(const struct cas_node *before, const struct cas_node *node, struct err *err)
{
	int order = strcmp(before->name, node->name);

	if (order < 0)
		return 0;
	if (order == 0)
		return err_set(err, -EUCLEAN, "name '%s' is there twice", CAS_TEXT(node->name));
	return err_set(err, -EUCLEAN, "names are not sorted: '%s' comes after '%s'",
		       CAS_TEXT(node->name), CAS_TEXT(before->name));
}

/* Merge the three lists; when one is unsorted, so is the merged list. */
static int decode_nodes(const Reapi__Directory *msg, struct cas_directory *dir, struct err *err)
{
	struct directory_priv *priv = dir->priv;
	size_t at[3] = {0};
	int from;

	dir->nodes = calloc(msg->n_files + msg->n_directories + msg->n_symlinks + 1,
			    sizeof(*dir->nodes));
	if (dir->nodes == NULL)
		return -ENOMEM;
	priv->cap = msg->n_files + msg->n_directories + msg->n_symlinks + 1;
	while ((from = merge_next(msg, at)) >= 0) {
		struct cas_node *node = &dir->nodes[dir->nr_nodes];
		size_t i = at[from]++;
		int ret;

		if (from == 0)
			ret = decode_file(msg->files[i], &priv->arena, node, err);
		else if (from == 1)
			ret = decode_subdir(msg->directories[i], node, err);
		else
			ret = decode_symlink(msg->symlinks[i], &priv->arena, node, err);
		if (ret == 0)
			ret = cas_node_check(node, -EUCLEAN, err);
		if (ret == 0 && dir->nr_nodes > 0)
			ret = order_fault(node - 1, node, err);
		if (ret < 0)
			return ret;
		dir->nr_nodes++;
	}
	return 0;
}

static int decode_message(const Reapi__Directory *msg, struct cas_directory *dir, const void *data,
			  size_t len, struct err *err)
{
	struct directory_priv *priv = dir->priv;
	auto_buf struct buf again = {0};
	int ret = unknown_fault(&msg->base, err);

	if (ret == 0)
		ret = decode_nodes(msg, dir, err);
	if (ret == 0)
		ret = decode_props(msg->node_properties, &priv->arena, &dir->props, err);
	if (ret == 0)
		ret = props_check(&dir->props, ".", -EUCLEAN, err);
	if (ret == 0)
		ret = cas_directory_pack(dir, &again);
	if (ret < 0)
		return ret;
	if (again.len != len || (len > 0 && memcmp(again.data, data, len) != 0))
		return err_set(err, -EUCLEAN,
			       "not in canonical form: fields unknown, repeated or out of order, "
			       "a default value or a NUL on the wire, or an overlong number");
	return 0;
}

int cas_directory_decode_any(const void *data, size_t len, struct cas_directory **out,
			     struct err *err)
{
	struct cas_directory *dir = NULL;
	struct directory_priv *priv;
	ProtobufCAllocator allocator = {arena_alloc, arena_keep, NULL};
	Reapi__Directory *msg;
	int ret;

	if (len > CAS_DIRECTORY_MAX)
		return err_set(err, -EUCLEAN, "larger than the %d bytes a Directory may have",
			       CAS_DIRECTORY_MAX);
	ret = cas_directory_new(&dir);
	if (ret < 0)
		return ret;
	priv = dir->priv;
	priv->arena.limit = len * DECODE_FACTOR + DECODE_SLACK;
	if (priv->arena.limit > DECODE_MAX)
		priv->arena.limit = DECODE_MAX;
	allocator.allocator_data = &priv->arena;
	msg = reapi__directory__unpack(&allocator, len, len ? data : (const void *)"");
	if (msg == NULL && priv->arena.no_memory)
		ret = -ENOMEM;
	else if (msg == NULL)
		ret = err_set(err, -EUCLEAN, "not a Directory message: %s",
			      priv->arena.over ? "out of all proportion"
					       : "malformed or truncated");
	else
		ret = decode_message(msg, dir, data, len, err);
	if (ret < 0) {
		cas_directory_free(dir);
		return ret;
	}
	priv->arena.limit = 0;
	*out = dir;
	return 0;
}

int cas_directory_decode(const void *data, size_t len, struct cas_directory **out, struct err *err)
{
	struct cas_directory *dir = NULL;
	struct directory_priv *priv;
	int ret = cas_directory_new(&dir);

	if (ret < 0)
		return ret;
	priv = dir->priv;
	if (cas_directory_read_plain(data, len, &priv->arena, &dir->nodes, &dir->nr_nodes) == 1) {
		priv->cap = dir->nr_nodes;
		*out = dir;
		return 0;
	}
	cas_directory_free(dir);
	return cas_directory_decode_any(data, len, out, err);
}
