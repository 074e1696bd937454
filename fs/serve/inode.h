/* fs/serve/inode.h - the nodes that the kernel knows */
#ifndef FS_SERVE_INODE_H
#define FS_SERVE_INODE_H

#include <stddef.h>
#include <stdint.h>

#include "fs/view/view.h"

/*
 * One table a session. A node lives while the kernel holds lookups of it, or while a
 * directory below it lives. While a request about a node is being answered the kernel
 * holds a lookup, so that operations use nodes without a lock: everything but the
 * fields marked so is written once, before anyone else can see the node.
 */
struct fs_inode_table;

#define FS_INODE_ROOT 1

struct fs_node {
	uint64_t id; /* from a counter, never reused; FS_INODE_ROOT is the root */
	struct fs_entry entry;
	struct fs_node *parent;	  /* DIR but the root; kept alive by us */
	char *name;		  /* DIR: its last component */
	uint64_t nr_lookups;	  /* table lock: what the kernel holds */
	uint32_t nr_child_dirs;	  /* table lock: nodes whose parent this is */
	struct fs_node *next_id;  /* table lock */
	struct fs_node *next_key; /* table lock */
};

/* The root has the view and identity of @root and never goes. */
int fs_inode_table_new(const struct fs_entry *root, struct fs_inode_table **out);
void fs_inode_table_free(struct fs_inode_table *table);

/* NULL when the kernel names a node that it should have forgotten. */
struct fs_node *fs_inode_find(struct fs_inode_table *table, uint64_t id);

/*
 * The node of @entry below @dir, found or made, with one more lookup. Takes
 * entry->target over in any case. -ENOMEM.
 */
int fs_inode_lookup(struct fs_inode_table *table, struct fs_node *dir, const char *name,
		    struct fs_entry *entry, struct fs_node **out);

/* Take @nr lookups back; the node may be gone afterwards. */
void fs_inode_forget(struct fs_inode_table *table, uint64_t id, uint64_t nr);

size_t fs_inode_count(struct fs_inode_table *table);

#endif
