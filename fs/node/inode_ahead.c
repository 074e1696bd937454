/* fs/node/inode_ahead.c - what the kernel does not know yet, and may want to */
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/node/inode_i.h"

/* The names from below @above down to @node, @len bytes in all with slashes between them. */
static char *join(const struct fs_node *node, const struct fs_node *above, size_t len)
{
	char *path = malloc(len + 1);

	if (!path)
		return NULL;
	path[len] = '\0';
	for (; node != above; node = node->parent) {
		size_t part = strlen(node->name);

		len -= part;
		memcpy(path + len, node->name, part);
		if (len > 0)
			path[--len] = '/';
	}
	return path;
}

char *fs_inode_path(struct fs_inode_table *table, uint64_t id)
{
	struct fs_node *node;
	struct fs_node *up;
	size_t len = 0;
	char *path = NULL;

	lock_take(&table->lock);
	node = fs_node_find_locked(table, id);
	if (node && node->entry.kind != FS_KIND_DIR)
		node = NULL;
	/* Nodes of layers, and all below them, are at no place. */
	for (up = node; up && up->name && up != table->root; up = up->parent)
		len += strlen(up->name) + (len > 0);
	if (up == table->root && len > 0)
		path = join(node, table->root, len);
	lock_drop(&table->lock);
	return path;
}

char *fs_inode_place(struct fs_inode_table *table, uint64_t id, uint64_t *serial)
{
	struct fs_node *node;
	struct fs_node *up;
	size_t len = 0;
	char *path = NULL;

	lock_take(&table->lock);
	node = fs_node_find_locked(table, id);
	if (node && node->entry.kind != FS_KIND_DIR)
		node = NULL;
	for (up = node; up && up->name && up != table->root && !fs_node_is_top(up); up = up->parent)
		len += strlen(up->name) + (len > 0);
	if (up && fs_node_is_top(up)) {
		*serial = up->entry.serial;
		path = join(node, up, len);
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

void fs_inode_made(struct fs_inode_table *table, uint64_t id, uint64_t size)
{
	struct fs_node *node;

	lock_take(&table->lock);
	node = fs_node_find_locked(table, id);
	if (node)
		node->entry.digest.size = size;
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
