/* cas/reapi/directory_plain.c - Directories as nearly all are, read without a library */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/arena_i.h"
#include "cas/base/auto.h"
#include "cas/reapi/directory.h"
#include "cas/reapi/directory_i.h"

/*
 * What a new sandbox waits for is mostly Directories that were changed, and of them mostly the
 * decoding: through protobuf-c each entry is allocated, encoded again and compared. A Directory
 * of plain entries has just one canonical form, so that to recognize it is to decode it: in
 * order files, directories and symlinks, in each the fields in order, each length and number
 * in as few bytes as it takes, no default value, no properties, nothing else.
 *
 * Whatever is not exactly so (a fault, properties, a field that a later version may add) is
 * for cas_directory_decode to judge: there is no answer from here but "this is it".
 *
 * Tags are "field << 3 | 2" for bytes and "field << 3" for numbers (protobuf.dev, encoding).
 */

#define TAG_FILE	  0x0a
#define TAG_DIRECTORY	  0x12
#define TAG_SYMLINK	  0x1a
#define TAG_NAME	  0x0a
#define TAG_DIGEST	  0x12
#define TAG_TARGET	  0x12
#define TAG_IS_EXECUTABLE 0x20
#define TAG_HASH	  0x0a
#define TAG_SIZE	  0x10

static const uint8_t tags[] = {
	[CAS_NODE_FILE] = TAG_FILE,
	[CAS_NODE_DIRECTORY] = TAG_DIRECTORY,
	[CAS_NODE_SYMLINK] = TAG_SYMLINK,
};

struct wire {
	const uint8_t *at;
	const uint8_t *end;
};

static bool take_tag(struct wire *w, uint8_t tag)
{
	if (w->at == w->end || *w->at != tag)
		return false;
	w->at++;
	return true;
}

/* A number in as few bytes as it takes. */
static bool take_number(struct wire *w, uint64_t *out)
{
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 63 && w->at < w->end; shift += 7) {
		uint8_t byte = *w->at++;

		value |= (uint64_t)(byte & 0x7f) << shift;
		if (byte & 0x80)
			continue;
		*out = value;
		return byte != 0 || shift == 0;
	}
	return false;
}

/* @tag, a length and so many bytes. */
static bool take_bytes(struct wire *w, uint8_t tag, struct wire *out)
{
	uint64_t len;

	if (!take_tag(w, tag) || !take_number(w, &len) || len > (uint64_t)(w->end - w->at))
		return false;
	*out = (struct wire){w->at, w->at + len};
	w->at += len;
	return true;
}

/* A text, which is not empty. NULL: not that, or no memory. */
static const char *take_text(struct wire *w, uint8_t tag, struct cas_arena *arena)
{
	struct wire text;
	size_t len;
	char *copy;

	if (!take_bytes(w, tag, &text) || text.at == text.end)
		return NULL;
	len = (size_t)(text.end - text.at);
	if (memchr(text.at, '\0', len))
		return NULL;
	copy = cas_arena_alloc(arena, len + 1);
	if (copy == NULL)
		return NULL;
	memcpy(copy, text.at, len);
	copy[len] = '\0';
	return copy;
}

static bool take_digest(struct wire *w, struct cas_digest *out)
{
	struct wire digest;
	struct wire hash;

	out->size = 0;
	if (!take_bytes(w, TAG_DIGEST, &digest) || !take_bytes(&digest, TAG_HASH, &hash) ||
	    cas_hash_parse((const char *)hash.at, (size_t)(hash.end - hash.at), out->hash) < 0)
		return false;
	if (take_tag(&digest, TAG_SIZE) && (!take_number(&digest, &out->size) || out->size == 0))
		return false;
	return digest.at == digest.end;
}

static bool take_entry(struct wire *w, struct cas_node *node, struct cas_arena *arena)
{
	struct wire entry;
	uint64_t flag = 0;

	if (!take_bytes(w, tags[node->kind], &entry))
		return false;
	node->name = take_text(&entry, TAG_NAME, arena);
	if (node->name == NULL)
		return false;
	if (node->kind == CAS_NODE_SYMLINK) {
		node->target = take_text(&entry, TAG_TARGET, arena);
		if (node->target == NULL)
			return false;
	} else if (!take_digest(&entry, &node->digest)) {
		return false;
	}
	if (node->kind == CAS_NODE_FILE && take_tag(&entry, TAG_IS_EXECUTABLE)) {
		if (!take_number(&entry, &flag) || flag != 1)
			return false;
		node->executable = true;
	}
	return entry.at == entry.end && cas_node_check(node, -EUCLEAN, NULL) == 0;
}

/* All entries, as they come: where each of the kinds ends. -1: not plain. */
static int take_entries(struct wire *w, struct cas_node *nodes, size_t max, struct cas_arena *arena,
			size_t ends[3])
{
	enum cas_node_kind kind = CAS_NODE_FILE;
	size_t nr = 0;

	while (w->at < w->end) {
		while (kind < CAS_NODE_SYMLINK && *w->at != tags[kind])
			ends[kind++] = nr;
		if (nr == max)
			return -1;
		nodes[nr] = (struct cas_node){.kind = kind};
		if (!take_entry(w, &nodes[nr], arena))
			return -1;
		nr++;
	}
	while (kind <= CAS_NODE_SYMLINK)
		ends[kind++] = nr;
	return 0;
}

/* The three lists into one; false: not sorted, or a name is there twice. */
static bool merge(const struct cas_node *nodes, const size_t ends[3], struct cas_node *out)
{
	size_t at[3] = {0, ends[0], ends[1]};

	for (size_t nr = 0; nr < ends[2]; nr++) {
		int best = -1;

		for (int i = 0; i < 3; i++) {
			if (at[i] < ends[i] &&
			    (best < 0 || strcmp(nodes[at[i]].name, nodes[at[best]].name) < 0))
				best = i;
		}
		out[nr] = nodes[at[best]++];
		if (nr > 0 && strcmp(out[nr - 1].name, out[nr].name) >= 0)
			return false;
	}
	return true;
}

/* The shortest entry is a symlink's with a name and a target of one byte each. */
#define ENTRY_MIN 8

int cas_directory_read_plain(const void *data, size_t len, struct cas_arena *arena,
			     struct cas_node **out, size_t *nr)
{
	struct wire w = {data, (const uint8_t *)data + len};
	size_t max = len / ENTRY_MIN + 1;
	auto_free struct cas_node *nodes = NULL;
	auto_free struct cas_node *merged = NULL;
	size_t ends[3];

	if (len == 0 || len > CAS_DIRECTORY_PLAIN_MAX)
		return 0;
	nodes = malloc(max * sizeof(*nodes));
	if (nodes == NULL || take_entries(&w, nodes, max, arena, ends) < 0)
		return 0;
	merged = malloc((ends[2] + 1) * sizeof(*merged));
	if (merged == NULL || !merge(nodes, ends, merged))
		return 0;
	*out = steal_ptr(&merged);
	*nr = ends[2];
	return 1;
}
