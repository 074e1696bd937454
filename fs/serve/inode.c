/* fs/serve/inode.c - the nodes that the kernel knows */

/*
 * Two chained hash tables, threaded through the nodes: by id and by identity. Nodes are
 * many (a million is an ordinary day), so there is nothing else in them; the tables
 * double when they hold as many nodes as buckets and never shrink.
 *
 * One lock guards everything. It is held for a few chain steps, and a session has a
 * handful of threads: shards would cost more than they save until measured otherwise.
 * A doubling re-links all nodes under it, about 30 ns each.
 *
 * A node is freed when its lookups and its child directories are both gone. A child
 * directory goes through its parent's count, never by walking down.
 */
#include "fs/serve/inode.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/serve/identity.h"

#define FIRST_BUCKETS 1024

struct fs_inode_table {
	struct lock lock;
	size_t nr_buckets GUARDED_BY(lock); /* a power of two, of both tables */
	size_t nr_nodes GUARDED_BY(lock);
	uint64_t next_id GUARDED_BY(lock);
	struct fs_node **by_id GUARDED_BY(lock);
	struct fs_node **by_key GUARDED_BY(lock);
	struct fs_node *root; /* never changes */
};

static size_t id_bucket(uint64_t id, size_t nr_buckets)
{
	return (size_t)((id * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & (nr_buckets - 1);
}

static size_t key_bucket(const struct fs_entry *entry, size_t nr_buckets)
{
	uint64_t v;

	/* The key is a hash already, but for the zero of roots, which the serial tells apart. */
	memcpy(&v, entry->key.bytes, sizeof(v));
	v ^= entry->serial * UINT64_C(0x9e3779b97f4a7c15);
	return (size_t)(v ^ (v >> 32)) & (nr_buckets - 1);
}

static void link_node(struct fs_node *node, struct fs_node **by_id, struct fs_node **by_key,
		      size_t nr_buckets)
{
	struct fs_node **id_head = &by_id[id_bucket(node->id, nr_buckets)];
	struct fs_node **key_head = &by_key[key_bucket(&node->entry, nr_buckets)];

	node->next_id = *id_head;
	*id_head = node;
	node->next_key = *key_head;
	*key_head = node;
}

static void unlink_node_locked(struct fs_inode_table *table, struct fs_node *node)
	REQUIRES(table->lock)
{
	struct fs_node **p = &table->by_id[id_bucket(node->id, table->nr_buckets)];

	while (*p != node)
		p = &(*p)->next_id;
	*p = node->next_id;
	p = &table->by_key[key_bucket(&node->entry, table->nr_buckets)];
	while (*p != node)
		p = &(*p)->next_key;
	*p = node->next_key;
	table->nr_nodes--;
}

/* A table that cannot grow gets longer chains; that is no failure. */
static void grow_locked(struct fs_inode_table *table) REQUIRES(table->lock)
{
	size_t nr = table->nr_buckets * 2;
	auto_free struct fs_node **by_id = calloc(nr, sizeof(struct fs_node *));
	auto_free struct fs_node **by_key = calloc(nr, sizeof(struct fs_node *));

	if (!by_id || !by_key)
		return;
	for (size_t i = 0; i < table->nr_buckets; i++) {
		struct fs_node *node = table->by_id[i];

		while (node) {
			struct fs_node *next = node->next_id;

			link_node(node, by_id, by_key, nr);
			node = next;
		}
	}
	free(table->by_id);
	free(table->by_key);
	table->by_id = steal_ptr(&by_id);
	table->by_key = steal_ptr(&by_key);
	table->nr_buckets = nr;
}

static void free_node(struct fs_node *node)
{
	if (node->entry.kind == FS_KIND_SYMLINK)
		free((char *)node->entry.target);
	free(node->name);
	free(node);
}

static int alloc_node(struct fs_node *dir, const char *name, const struct fs_entry *entry,
		      struct fs_node **out)
{
	struct fs_node *node = calloc(1, sizeof(*node));

	if (!node)
		return -ENOMEM;
	if (entry->kind == FS_KIND_DIR) {
		node->name = strdup(name);
		if (!node->name) {
			free(node);
			return -ENOMEM;
		}
		node->parent = dir;
	}
	node->entry = *entry;
	*out = node;
	return 0;
}

static void insert_locked(struct fs_inode_table *table, struct fs_node *node) REQUIRES(table->lock)
{
	node->id = table->next_id++;
	if (node->parent)
		node->parent->nr_child_dirs++;
	if (table->nr_nodes >= table->nr_buckets)
		grow_locked(table);
	link_node(node, table->by_id, table->by_key, table->nr_buckets);
	table->nr_nodes++;
}

NO_LOCK_CHECK int fs_inode_table_new(const struct fs_entry *root, struct fs_inode_table **out)
{
	struct fs_inode_table *table = calloc(1, sizeof(*table));

	if (!table)
		return -ENOMEM;
	lock_init(&table->lock, LOCK_RANK_INODE_TABLE, "inode table");
	table->nr_buckets = FIRST_BUCKETS;
	table->next_id = FS_INODE_ROOT;
	table->by_id = calloc(FIRST_BUCKETS, sizeof(struct fs_node *));
	table->by_key = calloc(FIRST_BUCKETS, sizeof(struct fs_node *));
	if (!table->by_id || !table->by_key || alloc_node(NULL, "", root, &table->root) < 0) {
		free(table->by_id);
		free(table->by_key);
		lock_fini(&table->lock);
		free(table);
		return -ENOMEM;
	}
	table->root->nr_lookups = 1;
	insert_locked(table, table->root);
	*out = table;
	return 0;
}

NO_LOCK_CHECK void fs_inode_table_free(struct fs_inode_table *table)
{
	if (!table)
		return;
	for (size_t i = 0; i < table->nr_buckets; i++) {
		struct fs_node *node = table->by_id[i];

		while (node) {
			struct fs_node *next = node->next_id;

			free_node(node);
			node = next;
		}
	}
	free(table->by_id);
	free(table->by_key);
	lock_fini(&table->lock);
	free(table);
}

static struct fs_node *find_id_locked(struct fs_inode_table *table, uint64_t id)
	REQUIRES(table->lock)
{
	struct fs_node *node = table->by_id[id_bucket(id, table->nr_buckets)];

	while (node && node->id != id)
		node = node->next_id;
	return node;
}

struct fs_node *fs_inode_find(struct fs_inode_table *table, uint64_t id)
{
	struct fs_node *node;

	if (id == FS_INODE_ROOT)
		return table->root;
	lock_take(&table->lock);
	node = find_id_locked(table, id);
	lock_drop(&table->lock);
	return node;
}

static struct fs_node *find_key_locked(struct fs_inode_table *table, const struct fs_entry *entry)
	REQUIRES(table->lock)
{
	struct fs_node *node = table->by_key[key_bucket(entry, table->nr_buckets)];

	while (node && !(node->entry.kind == entry->kind && node->entry.serial == entry->serial &&
			 fs_key_equal(&node->entry.key, &entry->key)))
		node = node->next_key;
	return node;
}

int fs_inode_lookup(struct fs_inode_table *table, struct fs_node *dir, const char *name,
		    struct fs_entry *entry, struct fs_node **out)
{
	auto_free char *target = entry->kind == FS_KIND_SYMLINK ? (char *)entry->target : NULL;
	struct fs_node *node;

	lock_take(&table->lock);
	node = find_key_locked(table, entry);
	if (!node && alloc_node(dir, name, entry, &node) == 0) {
		target = NULL;
		insert_locked(table, node);
	}
	if (node)
		node->nr_lookups++;
	lock_drop(&table->lock);
	if (!node)
		return -ENOMEM;
	*out = node;
	return 0;
}

void fs_inode_forget(struct fs_inode_table *table, uint64_t id, uint64_t nr)
{
	struct fs_node *node;

	if (id == FS_INODE_ROOT)
		return;
	lock_take(&table->lock);
	node = find_id_locked(table, id);
	if (node) {
		assert(node->nr_lookups >= nr);
		node->nr_lookups -= nr;
	}
	while (node && node != table->root && node->nr_lookups == 0 && node->nr_child_dirs == 0) {
		struct fs_node *parent = node->parent;

		unlink_node_locked(table, node);
		free_node(node);
		if (parent)
			parent->nr_child_dirs--;
		node = parent;
	}
	lock_drop(&table->lock);
}

size_t fs_inode_count(struct fs_inode_table *table)
{
	size_t nr;

	lock_take(&table->lock);
	nr = table->nr_nodes;
	lock_drop(&table->lock);
	return nr;
}
