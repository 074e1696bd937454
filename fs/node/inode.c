/* fs/node/inode.c - the nodes that the kernel knows */

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
#include "fs/node/inode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/node/identity.h"
#include "fs/node/inode_i.h"

/* With what malloc adds, and a short name for one in eight. */
#define NODE_BYTES    (sizeof(struct fs_node) + 12)
#define FIRST_BUCKETS 1024
#define GOLDEN	      UINT64_C(0x9e3779b97f4a7c15)

static size_t fold(uint64_t v, size_t nr_buckets)
{
	v *= GOLDEN;
	return (size_t)(v ^ (v >> 32)) & (nr_buckets - 1);
}

static uint64_t word_of(const void *bytes)
{
	uint64_t v;

	memcpy(&v, bytes, sizeof(v));
	return v;
}

static size_t id_bucket(uint64_t id, size_t nr_buckets)
{
	return (size_t)((id * GOLDEN) >> 20) & (nr_buckets - 1);
}

static size_t name_bucket(uint64_t dir, const char *name, size_t nr_buckets)
{
	uint64_t h = dir;

	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
	return fold(h, nr_buckets);
}

static size_t serial_bucket(uint64_t serial, size_t nr_buckets)
{
	return fold(~serial, nr_buckets);
}

/* Keys and digests are hashes already. */
static size_t key_bucket(const struct fs_key *key, size_t nr_buckets)
{
	return fold(word_of(key->bytes), nr_buckets);
}

bool fs_node_is_top(const struct fs_node *node)
{
	return node->entry.serial != 0;
}

static size_t identity_bucket(const struct fs_node *node, size_t nr_buckets)
{
	if (fs_node_is_top(node))
		return serial_bucket(node->entry.serial, nr_buckets);
	if (node->parent)
		return name_bucket(node->parent->id, node->name, nr_buckets);
	return key_bucket(&node->entry.key, nr_buckets);
}

static void push_key(struct fs_node *node, struct fs_node **by_key, size_t nr_buckets)
{
	struct fs_node **head = &by_key[identity_bucket(node, nr_buckets)];

	node->next_key = *head;
	*head = node;
}

static void push_id(struct fs_node *node, struct fs_node **by_id, size_t nr_buckets)
{
	struct fs_node **head = &by_id[id_bucket(node->id, nr_buckets)];

	node->next_id = *head;
	*head = node;
}

void fs_node_hash_locked(struct fs_inode_table *table, struct fs_node *node)
{
	push_key(node, table->by_key, table->nr_buckets);
}

void fs_node_unhash_locked(struct fs_inode_table *table, struct fs_node *node)
{
	struct fs_node **p = &table->by_key[identity_bucket(node, table->nr_buckets)];

	while (*p != node)
		p = &(*p)->next_key;
	*p = node->next_key;
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

			push_id(node, by_id, nr);
			if (!node->orphan)
				push_key(node, by_key, nr);
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
	else if (node->entry.kind == FS_KIND_UPPER)
		node->entry.view->ops->let_go(node->entry.view, &node->entry);
	if (node->entry.kind == FS_KIND_DIR)
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
	push_id(node, table->by_id, table->nr_buckets);
	fs_node_hash_locked(table, node);
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
	while (table->given) {
		struct given *given = table->given;

		table->given = given->next;
		free(given->name);
		free(given);
	}
	free(table->by_id);
	free(table->by_key);
	lock_fini(&table->lock);
	free(table);
}

struct fs_node *fs_node_find_locked(struct fs_inode_table *table, uint64_t id)
{
	struct fs_node *node = table->by_id[id_bucket(id, table->nr_buckets)];

	while (node && node->id != id)
		node = node->next_id;
	return node;
}

struct fs_node *fs_node_top_locked(struct fs_inode_table *table, uint64_t serial)
{
	struct fs_node *node = table->by_key[serial_bucket(serial, table->nr_buckets)];

	while (node && node->entry.serial != serial)
		node = node->next_key;
	return node;
}

struct fs_node *fs_node_child_locked(struct fs_inode_table *table, const struct fs_node *dir,
				     const char *name)
{
	struct fs_node *node = table->by_key[name_bucket(dir->id, name, table->nr_buckets)];

	while (node &&
	       !(node->parent == dir && !fs_node_is_top(node) && strcmp(node->name, name) == 0))
		node = node->next_key;
	return node;
}

struct fs_node *fs_node_leaf_locked(struct fs_inode_table *table, const struct fs_entry *entry)
{
	struct fs_node *node = table->by_key[key_bucket(&entry->key, table->nr_buckets)];

	while (node && !(node->entry.kind == entry->kind && node->entry.kind != FS_KIND_DIR &&
			 fs_key_equal(&node->entry.key, &entry->key)))
		node = node->next_key;
	return node;
}

void fs_node_show(const struct fs_node *node, struct fs_inode *out)
{
	*out = (struct fs_inode){
		.id = node->id,
		.entry = node->entry,
		.up = node->parent ? node->parent->entry.key : node->entry.key,
		.dir = node->entry.kind == FS_KIND_FILE ? node->dir : 0,
	};
}

bool fs_inode_get(struct fs_inode_table *table, uint64_t id, struct fs_inode *out)
{
	struct fs_node *node;

	lock_take(&table->lock);
	node = id == FS_INODE_ROOT ? table->root : fs_node_find_locked(table, id);
	if (node)
		fs_node_show(node, out);
	lock_drop(&table->lock);
	return node != NULL;
}

/* The kernel sees this name next; telling it to forget the top needs to know it. */
static int rename_top_locked(struct fs_node *top, const char *name)
{
	char *copy;

	if (strcmp(top->name, name) == 0)
		return 0;
	copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	free(top->name);
	top->name = copy;
	return 0;
}

/* 1: *out; 0: there is none yet; -ESTALE. */
static int find_top_locked(struct fs_inode_table *table, const char *name,
			   const struct fs_entry *entry, struct fs_node **out) REQUIRES(table->lock)
{
	struct fs_node *top = fs_node_top_locked(table, entry->serial);
	int ret;

	if (!top)
		return 0;
	/* Asked for before it was swapped or dropped, answered after. */
	if (top->top_state != FS_TOP_LIVE || !cas_digest_equal(&top->entry.digest, &entry->digest))
		return -ESTALE;
	ret = rename_top_locked(top, name);
	if (ret < 0)
		return ret;
	*out = top;
	return 1;
}

static int find_dir_locked(struct fs_inode_table *table, struct fs_node *dir, const char *name,
			   const struct fs_entry *entry, struct fs_node **out) REQUIRES(table->lock)
{
	struct fs_node *node;

	if (entry->serial != 0)
		return find_top_locked(table, name, entry, out);
	node = fs_node_child_locked(table, dir, name);
	/*
	 * Somebody who had no business there looked while @dir was swapped, and so made a
	 * node that shows what was there before. His entry is invalidated by the swap.
	 */
	if (node && !cas_digest_equal(&node->entry.digest, &entry->digest)) {
		fs_node_orphan_locked(table, node);
		fs_node_reap_locked(table, node);
		node = NULL;
	}
	if (!node)
		node = fs_node_adopt_locked(table, dir, name, entry);
	*out = node;
	return node != NULL;
}

static int lookup_locked(struct fs_inode_table *table, uint64_t dir_id, const char *name,
			 struct fs_entry *entry, struct fs_inode *out) REQUIRES(table->lock)
{
	struct fs_node *dir = fs_node_find_locked(table, dir_id);
	struct fs_node *node = NULL;
	int ret = 0;

	if (!dir)
		return -ESTALE;
	if (entry->kind == FS_KIND_DIR)
		ret = find_dir_locked(table, dir, name, entry, &node);
	else
		node = fs_node_leaf_locked(table, entry);
	if (ret >= 0 && !node) {
		ret = alloc_node(dir, name, entry, &node);
		if (ret == 0) {
			if (entry->kind == FS_KIND_SYMLINK)
				entry->target = NULL;
			else if (entry->kind == FS_KIND_UPPER)
				entry->tag = 0;
			insert_locked(table, node);
		}
	}
	if (ret < 0)
		return ret;
	node->nr_lookups++;
	if (node->entry.kind == FS_KIND_FILE)
		node->dir = dir_id;
	fs_node_show(node, out);
	return 0;
}

int fs_inode_lookup(struct fs_inode_table *table, uint64_t dir, const char *name,
		    struct fs_entry *entry, struct fs_inode *out)
{
	int ret;

	lock_take(&table->lock);
	ret = lookup_locked(table, dir, name, entry, out);
	lock_drop(&table->lock);
	if (entry->kind == FS_KIND_SYMLINK) {
		free((char *)entry->target);
		entry->target = NULL;
	} else if (entry->kind == FS_KIND_UPPER && entry->tag) {
		entry->view->ops->let_go(entry->view, entry);
	}
	return ret;
}

void fs_node_orphan_locked(struct fs_inode_table *table, struct fs_node *node)
{
	struct fs_node *parent = node->parent;

	fs_node_unhash_locked(table, node);
	node->orphan = true;
	node->parent = NULL;
	parent->nr_child_dirs--;
	fs_node_reap_locked(table, parent);
}

void fs_node_reap_locked(struct fs_inode_table *table, struct fs_node *node)
{
	while (node && node != table->root && node->nr_lookups == 0 && node->nr_child_dirs == 0) {
		struct fs_node **p = &table->by_id[id_bucket(node->id, table->nr_buckets)];
		struct fs_node *parent = node->parent;

		while (*p != node)
			p = &(*p)->next_id;
		*p = node->next_id;
		if (!node->orphan)
			fs_node_unhash_locked(table, node);
		if (fs_node_is_top(node))
			fs_node_no_donor_locked(table, node);
		table->nr_nodes--;
		free_node(node);
		if (parent)
			parent->nr_child_dirs--;
		node = parent;
	}
}

void fs_inode_forget(struct fs_inode_table *table, uint64_t id, uint64_t nr)
{
	struct fs_node *node;

	if (id == FS_INODE_ROOT)
		return;
	lock_take(&table->lock);
	node = fs_node_find_locked(table, id);
	if (node) {
		/* The kernel's number: ours to check, and not to believe. */
		if (nr > node->nr_lookups) {
			log_warn("node %llu: the kernel forgets %llu of %llu lookups",
				 (unsigned long long)id, (unsigned long long)nr,
				 (unsigned long long)node->nr_lookups);
			nr = node->nr_lookups;
		}
		node->nr_lookups -= nr;
		fs_node_reap_locked(table, node);
	}
	lock_drop(&table->lock);
}

size_t fs_inode_memory(struct fs_inode_table *table)
{
	size_t bytes;

	lock_take(&table->lock);
	bytes = sizeof(*table) + 2 * table->nr_buckets * sizeof(struct fs_node *) +
		table->nr_nodes * NODE_BYTES;
	lock_drop(&table->lock);
	return bytes;
}

size_t fs_inode_count(struct fs_inode_table *table)
{
	size_t nr;

	lock_take(&table->lock);
	nr = table->nr_nodes;
	lock_drop(&table->lock);
	return nr;
}
