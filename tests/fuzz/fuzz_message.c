/* tests/fuzz/fuzz_message.c - any bytes: refused, or a message that can be shown */
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/reapi/action.h"
#include "fs/message/outcome.h"
#include "fs/message/proto_json.h"
#include "fs/message/script.h"
#include "fs/message/tree_blob.h"

/* What is shown as text is JSON, and can be read again. */
static void check_json(const uint8_t *data, size_t size)
{
	static const enum fs_message kinds[] = {FS_MESSAGE_ACTION, FS_MESSAGE_COMMAND,
						FS_MESSAGE_RESULT};

	for (size_t i = 0; i < 3; i++) {
		auto_buf struct buf text = {0};
		struct err err = {0};
		int ret = fs_message_text(kinds[i], data, size, &text, &err);
		json_t *obj;

		FUZZ_CHECK(ret == 0 || (ret == -EUCLEAN && err.msg[0] != '\0'));
		if (ret < 0)
			continue;
		obj = json_loadb(text.data, text.len, 0, NULL);
		FUZZ_CHECK(json_is_object(obj));
		json_decref(obj);
	}
}

/* Every quote is closed, and nothing but words is outside of quotes. */
static void check_script(const uint8_t *data, size_t size)
{
	struct cas_command command = {0};
	auto_buf struct buf text = {0};
	bool quoted = false;
	const char *p;

	if (cas_command_decode(data, size, &command, NULL) < 0)
		return;
	FUZZ_CHECK(fs_command_script(&command, &cas_digest_empty, &text) == 0);
	cas_command_fini(&command);
	/* After the comments. */
	p = buf_str(&text);
	while (*p == '#')
		p = strchr(p, '\n') + 1;
	for (; *p != '\0'; p++) {
		if (*p == '\'')
			quoted = !quoted;
		else if (!quoted && *p == '\\')
			p++;
		else if (!quoted)
			FUZZ_CHECK(
				strchr("abcdefghijklmnopqrstuvwxyz0123456789 \t\n./|-$()=\"", *p));
	}
	FUZZ_CHECK(!quoted);
}

/* All of it can be walked, names are names, and each is found where it is listed. */
static void walk_tree(const struct fs_tree_blob *blob, uint64_t dir, int depth)
{
	for (uint64_t i = 0; depth < 8; i++) {
		struct meta_dirent entry = {0};
		struct meta_dirent found = {0};
		uint64_t child = 0;
		uint64_t again = 0;
		int ret = fs_tree_blob_get(blob, dir, i, &entry, &child);

		FUZZ_CHECK(ret >= 0);
		if (ret == 0)
			return;
		FUZZ_CHECK(entry.name[0] != '\0' && !strchr(entry.name, '/'));
		FUZZ_CHECK(strcmp(entry.name, ".") != 0 && strcmp(entry.name, "..") != 0);
		FUZZ_CHECK(fs_tree_blob_find(blob, dir, entry.name, &found, &again) == 1);
		FUZZ_CHECK(child == again && found.kind == entry.kind);
		if (entry.kind == CAS_NODE_DIRECTORY)
			walk_tree(blob, child, depth + 1);
		meta_dirent_fini(&found);
		meta_dirent_fini(&entry);
	}
}

static void check_tree(const uint8_t *data, size_t size)
{
	struct fs_tree_blob *blob;
	struct meta_dirinfo info;
	struct err err = {0};
	int ret = fs_tree_blob_new(data, size, &blob, &err);

	FUZZ_CHECK(ret == 0 || (ret == -EUCLEAN && err.msg[0] != '\0') || ret == -ENOMEM);
	if (ret < 0)
		return;
	FUZZ_CHECK(fs_tree_blob_info(blob, 0, &info) == 0);
	FUZZ_CHECK(fs_tree_blob_info(blob, UINT64_MAX, &info) == -EUCLEAN);
	/* A small message may be many trees: each Directory in each of the others. */
	if (size < 4096)
		walk_tree(blob, 0, 0);
	fs_tree_blob_unref(blob);
}

static void check_outcome(const uint8_t *data, size_t size)
{
	struct fs_outcome *o;
	struct err err = {0};
	int ret = fs_outcome_new(data, size, &o, &err);
	size_t nr_seen = 1;

	FUZZ_CHECK(ret == 0 || (ret == -EUCLEAN && err.msg[0] != '\0') || ret == -ENOMEM);
	if (ret < 0)
		return;
	FUZZ_CHECK(o->nr_nodes >= 1 && o->nodes[0].name[0] == '\0');
	for (uint32_t dir = 0; dir < o->nr_nodes; dir++) {
		const char *before = "";

		for (uint64_t i = 0;; i++) {
			const struct fs_outcome_node *node = fs_outcome_child(o, dir, i);

			if (!node)
				break;
			FUZZ_CHECK(o->nodes[dir].kind == FS_OUTCOME_DIR && node->parent == dir);
			FUZZ_CHECK(strcmp(before, node->name) < 0 && !strchr(node->name, '/'));
			FUZZ_CHECK(strcmp(node->name, ".") != 0 && strcmp(node->name, "..") != 0);
			FUZZ_CHECK(fs_outcome_find(o, dir, node->name) == node);
			before = node->name;
			nr_seen++;
		}
	}
	FUZZ_CHECK(nr_seen == o->nr_nodes);
	fs_outcome_unref(o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_json(data, size);
	check_script(data, size);
	check_tree(data, size);
	check_outcome(data, size);
	return 0;
}
