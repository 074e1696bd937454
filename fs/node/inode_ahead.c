/* fs/node/inode_ahead.c - what the kernel does not know yet, and may want to */
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/node/inode_i.h"

/* Of a directory that is not the root: its length without a final NUL; 0: an orphan's. */
static size_t path_length(const struct fs_inode_table *table, const struct fs_node *node)
{
	size_t len = 0;

	for (; node && node != table->root; node = node->parent)
		len += strlen(node->name) + (len > 0);
	return node ? len : 0;
}

char *fs_inode_path(struct fs_inode_table *table, uint64_t id)
{
	struct fs_node *node;
	size_t at;
	char *path = NULL;

	lock_take(&table->lock);
	node = fs_node_find_locked(table, id);
	at = node && node->entry.kind == FS_KIND_DIR ? path_length(table, node) : 0;
	if (at > 0)
		path = malloc(at + 1);
	if (path)
		path[at] = '\0';
	for (; path && node != table->root; node = node->parent) {
		size_t len = strlen(node->name);

		at -= len;
		memcpy(path + at, node->name, len);
		if (at > 0)
			path[--at] = '/';
	}
	lock_drop(&table->lock);
	return path;
}

bool fs_inode_asked(struct fs_inode_table *table, uint64_t dir)
{
	struct fs_node *node;
	bool enough = false;

	lock_take(&table->lock);
	node = fs_node_find_locked(table, dir);
	if (node && node->nr_asked < FS_ASKED_ENOUGH)
		enough = ++node->nr_asked == FS_ASKED_ENOUGH;
	lock_drop(&table->lock);
	return enough;
}

static void set_asked(struct fs_inode_table *table, uint64_t dir, uint8_t nr)
{
	struct fs_node *node;

	lock_take(&table->lock);
	node = fs_node_find_locked(table, dir);
	if (node)
		node->nr_asked = nr;
	lock_drop(&table->lock);
}

void fs_inode_listed(struct fs_inode_table *table, uint64_t dir)
{
	set_asked(table, dir, FS_ASKED_ENOUGH);
}

void fs_inode_unlisted(struct fs_inode_table *table, uint64_t dir)
{
	set_asked(table, dir, 0);
}

uint64_t fs_inode_store(struct fs_inode_table *table, const struct fs_entry *entry)
{
	struct fs_node *node;
	uint64_t id = 0;

	lock_take(&table->lock);
	node = fs_node_leaf_locked(table, entry);
	if (node && node->nr_lookups > 0 && !node->stored) {
		node->stored = true;
		id = node->id;
	}
	lock_drop(&table->lock);
	return id;
}

bool fs_inode_top_in_use(struct fs_inode_table *table, uint64_t serial, bool retired)
{
	struct fs_node *top;
	bool in_use;

	lock_take(&table->lock);
	top = fs_node_top_locked(table, serial);
	in_use = top && top->nr_lookups > 0 &&
		 (top->top_state == FS_TOP_LIVE || (retired && top->top_state != FS_TOP_DROPPED));
	lock_drop(&table->lock);
	return in_use;
}
