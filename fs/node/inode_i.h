/* fs/node/inode_i.h - nodes and their tables, for the files that share them */
#ifndef FS_NODE_INODE_I_H
#define FS_NODE_INODE_I_H

#include "cas/base/lock.h"
#include "fs/node/inode.h"

/*
 * All fields are guarded by the table's lock, but for id and what fs_inode_swap leaves
 * alone in entry, which never change. An orphan has no parent and is in by_id alone.
 */
struct fs_node {
	uint64_t id;
	struct fs_entry entry;
	struct fs_node *parent; /* DIR but the root and orphans; kept alive by us */
	union {
		char *name;   /* DIR: its last component */
		uint64_t dir; /* FILE: id of the directory it was last looked up in */
	};
	uint64_t nr_lookups;	/* what the kernel holds */
	uint32_t nr_child_dirs; /* nodes whose parent this is */
	uint8_t top_state;	/* enum fs_top_state, of a top */
	uint8_t nr_asked;	/* DIR: names asked for one by one, up to FS_ASKED_ENOUGH */
	bool orphan : 1;	/* DIR: has no identity any more */
	bool gave : 1;		/* DIR: a directory below was given away: see inode_top.c */
	bool stored : 1;	/* FILE: its bytes were given to the kernel unasked */
	struct fs_node *next_id;
	struct fs_node *next_key;
};

#define FS_ASKED_ENOUGH 2 /* it is worth while to have the kernel know all the others */

/* Only so many tops are looked through for a directory to adopt: those retired last. */
#define FS_DONORS_MAX 16

struct fs_inode_table {
	struct lock lock;
	size_t nr_buckets GUARDED_BY(lock); /* a power of two, of both tables */
	size_t nr_nodes GUARDED_BY(lock);
	uint64_t next_id GUARDED_BY(lock);
	struct fs_node **by_id GUARDED_BY(lock);
	struct fs_node **by_key GUARDED_BY(lock);
	bool adopt GUARDED_BY(lock);
	size_t nr_donors GUARDED_BY(lock);
	struct fs_node *donors[FS_DONORS_MAX] GUARDED_BY(lock); /* RETIRED tops, oldest first */
	uint64_t nr_adopted GUARDED_BY(lock);
	struct given *given GUARDED_BY(lock);
	struct fs_node *root; /* never changes */
};

/* A directory that left the top @serial. */
struct given {
	struct given *next;
	uint64_t serial;
	struct fs_inode_name *name;
};

/* inode.c */

struct fs_node *fs_node_find_locked(struct fs_inode_table *table, uint64_t id)
	REQUIRES(table->lock);
struct fs_node *fs_node_top_locked(struct fs_inode_table *table, uint64_t serial)
	REQUIRES(table->lock);
struct fs_node *fs_node_child_locked(struct fs_inode_table *table, const struct fs_node *dir,
				     const char *name) REQUIRES(table->lock);
struct fs_node *fs_node_leaf_locked(struct fs_inode_table *table, const struct fs_entry *entry)
	REQUIRES(table->lock);
bool fs_node_is_top(const struct fs_node *node);
/* The ancestor, or itself, that has no parent or is a top. */
struct fs_node *fs_node_highest(struct fs_node *node);
/* In and out of the table of identities. */
void fs_node_hash_locked(struct fs_inode_table *table, struct fs_node *node) REQUIRES(table->lock);
void fs_node_unhash_locked(struct fs_inode_table *table, struct fs_node *node)
	REQUIRES(table->lock);
/* No identity and no parent from now on. */
void fs_node_orphan_locked(struct fs_inode_table *table, struct fs_node *node)
	REQUIRES(table->lock);
/* Free @node and its parents as far as nothing holds them. */
void fs_node_reap_locked(struct fs_inode_table *table, struct fs_node *node) REQUIRES(table->lock);
void fs_node_show(const struct fs_node *node, struct fs_inode *out);

/* inode_top.c */

void fs_node_no_donor_locked(struct fs_inode_table *table, const struct fs_node *top)
	REQUIRES(table->lock);
/* A node for @entry in @dir, taken from a retired top; NULL: none fits. */
struct fs_node *fs_node_adopt_locked(struct fs_inode_table *table, struct fs_node *dir,
				     const char *name, const struct fs_entry *entry)
	REQUIRES(table->lock);

#endif
