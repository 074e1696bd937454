/* cas/reapi/directory_encode.c - a Directory to its canonical bytes, through protobuf-c */
#include "cas/reapi/directory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/arena_i.h"
#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/text_i.h"
#include "cas/hash.h"
#include "cas/reapi.pb-c.h"
#include "cas/reapi/directory_i.h"

/*
 * The message is built in an arena, with strings borrowed from the nodes: protobuf-c
 * does not write to them, its structs merely lack the const.
 */
static char *borrow(const char *s)
{
	return (char *)(uintptr_t)s;
}

static Reapi__Digest *message_digest(struct cas_arena *arena, const struct cas_digest *digest)
{
	Reapi__Digest *msg = cas_arena_alloc(arena, sizeof(*msg));
	char *hex = cas_arena_alloc(arena, CAS_HASH_HEX_SZ + 1);

	if (msg == NULL || hex == NULL)
		return NULL;
	reapi__digest__init(msg);
	cas_hash_format(digest->hash, hex);
	msg->hash = hex;
	msg->size_bytes = (int64_t)digest->size;
	return msg;
}

static int message_other(struct cas_arena *arena, const struct cas_properties *props,
			 Reapi__NodeProperties *msg)
{
	Reapi__NodeProperty *all = cas_arena_zalloc(arena, props->nr_other, sizeof(*all));

	msg->properties = cas_arena_zalloc(arena, props->nr_other, sizeof(*msg->properties));
	if (all == NULL || msg->properties == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < props->nr_other; i++) {
		reapi__node_property__init(&all[i]);
		all[i].name = borrow(props->other[i].name);
		all[i].value = borrow(props->other[i].value);
		msg->properties[i] = &all[i];
	}
	msg->n_properties = props->nr_other;
	return 0;
}

static int message_props(struct cas_arena *arena, const struct cas_properties *props,
			 Reapi__NodeProperties **out)
{
	Reapi__NodeProperties *msg;

	if (!props->has_mtime && !props->has_mode && props->nr_other == 0 && !props->bare)
		return 0;
	msg = cas_arena_alloc(arena, sizeof(*msg));
	if (msg == NULL)
		return -ENOMEM;
	reapi__node_properties__init(msg);
	if (props->has_mtime) {
		msg->mtime = cas_arena_alloc(arena, sizeof(*msg->mtime));
		if (msg->mtime == NULL)
			return -ENOMEM;
		reapi__timestamp__init(msg->mtime);
		msg->mtime->seconds = props->mtime_sec;
		msg->mtime->nanos = props->mtime_nsec;
	}
	if (props->has_mode) {
		msg->unix_mode = cas_arena_alloc(arena, sizeof(*msg->unix_mode));
		if (msg->unix_mode == NULL)
			return -ENOMEM;
		reapi__uint32_value__init(msg->unix_mode);
		msg->unix_mode->value = props->mode;
	}
	*out = msg;
	return props->nr_other ? message_other(arena, props, msg) : 0;
}

static int message_file(struct cas_arena *arena, const struct cas_node *node, Reapi__FileNode **out)
{
	Reapi__FileNode *msg = cas_arena_alloc(arena, sizeof(*msg));

	if (msg == NULL)
		return -ENOMEM;
	reapi__file_node__init(msg);
	msg->name = borrow(node->name);
	msg->is_executable = node->executable;
	msg->digest = message_digest(arena, &node->digest);
	*out = msg;
	return msg->digest ? message_props(arena, &node->props, &msg->node_properties) : -ENOMEM;
}

static int message_subdir(struct cas_arena *arena, const struct cas_node *node,
			  Reapi__DirectoryNode **out)
{
	Reapi__DirectoryNode *msg = cas_arena_alloc(arena, sizeof(*msg));

	if (msg == NULL)
		return -ENOMEM;
	reapi__directory_node__init(msg);
	msg->name = borrow(node->name);
	msg->digest = message_digest(arena, &node->digest);
	*out = msg;
	return msg->digest ? 0 : -ENOMEM;
}

static int message_symlink(struct cas_arena *arena, const struct cas_node *node,
			   Reapi__SymlinkNode **out)
{
	Reapi__SymlinkNode *msg = cas_arena_alloc(arena, sizeof(*msg));

	if (msg == NULL)
		return -ENOMEM;
	reapi__symlink_node__init(msg);
	msg->name = borrow(node->name);
	msg->target = borrow(node->target);
	*out = msg;
	return message_props(arena, &node->props, &msg->node_properties);
}

static int message_build(struct cas_arena *arena, const struct cas_directory *dir,
			 Reapi__Directory *msg)
{
	size_t nr = dir->nr_nodes + 1;

	msg->files = cas_arena_alloc(arena, nr * sizeof(*msg->files));
	msg->directories = cas_arena_alloc(arena, nr * sizeof(*msg->directories));
	msg->symlinks = cas_arena_alloc(arena, nr * sizeof(*msg->symlinks));
	if (!msg->files || !msg->directories || !msg->symlinks)
		return -ENOMEM;
	for (size_t i = 0; i < dir->nr_nodes; i++) {
		const struct cas_node *node = &dir->nodes[i];
		int ret;

		if (node->kind == CAS_NODE_FILE)
			ret = message_file(arena, node, &msg->files[msg->n_files++]);
		else if (node->kind == CAS_NODE_DIRECTORY)
			ret = message_subdir(arena, node, &msg->directories[msg->n_directories++]);
		else
			ret = message_symlink(arena, node, &msg->symlinks[msg->n_symlinks++]);
		if (ret < 0)
			return ret;
	}
	return message_props(arena, &dir->props, &msg->node_properties);
}

int cas_directory_pack(const struct cas_directory *dir, struct buf *out)
{
	struct cas_arena arena = {0};
	Reapi__Directory msg = REAPI__DIRECTORY__INIT;
	int ret = message_build(&arena, dir, &msg);

	if (ret == 0) {
		size_t len = reapi__directory__get_packed_size(&msg);

		ret = buf_reserve(out, len);
		if (ret == 0) {
			(void)reapi__directory__pack(&msg, (uint8_t *)out->data + out->len);
			out->len += len;
			out->data[out->len] = '\0';
		}
	}
	cas_arena_fini(&arena);
	return ret;
}

static int node_compare(const void *a, const void *b)
{
	return strcmp(((const struct cas_node *)a)->name, ((const struct cas_node *)b)->name);
}

int cas_directory_encode(struct cas_directory *dir, struct buf *out, struct cas_digest *digest,
			 struct err *err)
{
	size_t start = out->len;
	int ret;

	for (size_t i = 0; i < dir->nr_nodes; i++) {
		ret = cas_node_check(&dir->nodes[i], -EINVAL, err);
		if (ret < 0)
			return ret;
	}
	if (dir->nr_nodes > 1)
		qsort(dir->nodes, dir->nr_nodes, sizeof(*dir->nodes), node_compare);
	for (size_t i = 1; i < dir->nr_nodes; i++) {
		if (strcmp(dir->nodes[i - 1].name, dir->nodes[i].name) == 0)
			return err_set(err, -EEXIST, "name '%s' is there twice",
				       CAS_TEXT(dir->nodes[i].name));
	}
	ret = cas_directory_pack(dir, out);
	if (ret < 0)
		return err_set(err, ret, "cannot encode a Directory of %zu entries", dir->nr_nodes);
	ret = cas_hash_bytes(out->data ? out->data + start : "", out->len - start, digest);
	if (ret == 0 && out->len - start > CAS_DIRECTORY_MAX)
		ret = err_set(err, -EINVAL, "a Directory of %zu bytes is too large",
			      out->len - start);
	if (ret < 0 && out->data) {
		out->len = start;
		out->data[start] = '\0';
	}
	return ret;
}
