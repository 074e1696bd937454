/* fs/node/inode.h - the nodes that the kernel knows */
#ifndef FS_NODE_INODE_H
#define FS_NODE_INODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fs/view/view.h"

/*
 * One table a session. A node lives while the kernel holds lookups of it, or while a
 * directory below it lives. Who it is:
 *
 *   DIR      the name in its parent; what it shows (digest and properties) may be
 *            swapped, and it may be moved, without a change to anything below it
 *   top      a DIR of an entry with a serial, right below the root: the serial
 *   others   the entry's key: the same place in all trees with equal content is one node
 *
 * Invariants, on which reuse and adoption (design 6.4) rest:
 *   - whatever the kernel caches in a directory it learned from an answer to a request
 *     about the directory's node, and is what the digest says that the node has now, or
 *     is about to be invalidated by whoever changed the digest;
 *   - a directory that the kernel caches below a top has a node whose parents lead to
 *     that top, unless it is an orphan;
 *   - only directories below a RETIRED top are moved to another one, which is LIVE.
 */
struct fs_inode_table;

#define FS_INODE_ROOT 1

/* Bit of a serial: what it tops is for people to look at, and takes nothing from others. */
#define FS_SERIAL_SHOW (UINT64_C(1) << 63)

/* What an operation sees of a node: a copy, so that nothing changes under it. */
struct fs_inode {
	uint64_t id;	       /* from a counter, never reused; FS_INODE_ROOT is the root */
	struct fs_entry entry; /* a target stays while the kernel holds a lookup */
	struct fs_key up;      /* DIR: key of its parent, or its own */
	uint64_t dir;	       /* FILE: id of a directory that has it, or had it; else 0 */
};

/* The root has the view and identity of @root and never goes. */
int fs_inode_table_new(const struct fs_entry *root, struct fs_inode_table **out);
void fs_inode_table_free(struct fs_inode_table *table);
/* Directories of retired tops may be adopted from now on. */
void fs_inode_table_adopt(struct fs_inode_table *table, bool on);

/* False when the kernel names a node that it should have forgotten. */
bool fs_inode_get(struct fs_inode_table *table, uint64_t id, struct fs_inode *out);

/*
 * The node of @entry below the directory @dir: found, adopted or made, with one more
 * lookup. Takes entry->target, or a node of a layer, over in any case. -ENOMEM; -ESTALE: @dir is
 * gone, or the top shows something else by now; asking again finds what is true.
 */
int fs_inode_lookup(struct fs_inode_table *table, uint64_t dir, const char *name,
		    struct fs_entry *entry, struct fs_inode *out);

/* The text @id had @size bytes when it was made: those of one that takes long are told so. */
void fs_inode_made(struct fs_inode_table *table, uint64_t id, uint64_t size);

/* Take @nr lookups back; the node may be gone afterwards. */
void fs_inode_forget(struct fs_inode_table *table, uint64_t id, uint64_t nr);

/* The serial of the top that the directory is below, or is itself; 0: of none. */
uint64_t fs_inode_serial(struct fs_inode_table *table, uint64_t dir);

/*
 * Is this a directory of a tree that is not shown any more, or does it show another one than
 * @digest by now, the next sandbox's or a result?
 */
bool fs_inode_ended(struct fs_inode_table *table, uint64_t id, const struct cas_digest *digest);

size_t fs_inode_count(struct fs_inode_table *table);
/* Bytes that the table and its nodes take, names of directories estimated. */
size_t fs_inode_memory(struct fs_inode_table *table);

/* --- tops: what a slot is made of; fs/slot/slot.c is the only caller --- */

enum fs_top_state {
	FS_TOP_LIVE,	/* belongs to a sandbox */
	FS_TOP_RETIRED, /* proven idle: may be swapped, and given away in parts */
	FS_TOP_SWAPPED, /* being made into another sandbox's: hands off */
	FS_TOP_DROPPED, /* never used again; the kernel is told to forget it */
};

/*
 * Change the state; the top's id. 0: it is not @from, or the kernel has forgotten it or
 * never knew it (@to is set all the same). A new top is LIVE.
 */
uint64_t fs_inode_top_set(struct fs_inode_table *table, uint64_t serial, enum fs_top_state from,
			  enum fs_top_state to);

/* The top's id, whatever its state; 0: there is none. */
uint64_t fs_inode_top(struct fs_inode_table *table, uint64_t serial);

/* Does the kernel know it? */
bool fs_inode_top_known(struct fs_inode_table *table, uint64_t serial);

/* The name under which the kernel knows the top, malloc'ed; NULL: none, or no memory. */
char *fs_inode_top_name(struct fs_inode_table *table, uint64_t serial);

/* The directory that is known as @name in @dir; false: none is. */
bool fs_inode_child(struct fs_inode_table *table, uint64_t dir, const char *name,
		    struct fs_inode *out);

/* @id shows @entry (digest and properties) from now on. Nothing when it is gone. */
void fs_inode_swap(struct fs_inode_table *table, uint64_t id, const struct fs_entry *entry);

/* The directory known as @name in @dir is not part of the tree any more. */
void fs_inode_orphan(struct fs_inode_table *table, uint64_t dir, const char *name);

/*
 * Names that lost a directory to adoption since the last call, of the SWAPPED top @serial. The
 * kernel moves them to @to when it gets the answer, unless it fails to. Caller frees with
 * fs_inode_names_free.
 */
struct fs_inode_name {
	struct fs_inode_name *next;
	uint64_t dir;
	uint64_t to;
	unsigned long long when_ns; /* lock_now_ns */
	char name[];
};
struct fs_inode_name *fs_inode_given(struct fs_inode_table *table, uint64_t serial);
void fs_inode_names_free(struct fs_inode_name *names);

/* Directories adopted so far. */
uint64_t fs_inode_adopted(struct fs_inode_table *table);

/* --- what the kernel does not know yet: inode_ahead.c; for fs/slot/push.c --- */

/* The names from the root down to the directory @id, malloc'ed; NULL: none, or no memory. */
char *fs_inode_path(struct fs_inode_table *table, uint64_t id);

/*
 * The same from below the top of a sandbox, whose *serial it is, "" for the top itself; NULL:
 * it is in none.
 */
char *fs_inode_place(struct fs_inode_table *table, uint64_t id, uint64_t *serial);

/* A name of the directory was found that the kernel asked for. True once: list it now. */
bool fs_inode_asked(struct fs_inode_table *table, uint64_t dir);
/* It is being listed: true is never answered again. */
void fs_inode_listed(struct fs_inode_table *table, uint64_t dir);
/* It is not listed after all: count anew. */
void fs_inode_unlisted(struct fs_inode_table *table, uint64_t dir);

/*
 * The id of the file @entry, whose bytes are to be stored in the kernel's cache; 0: the
 * kernel does not know it, or was given them before.
 */
uint64_t fs_inode_store(struct fs_inode_table *table, const struct fs_entry *entry);

/* Is the top of @serial known to the kernel, and LIVE, or with @retired to be so again? */
bool fs_inode_top_in_use(struct fs_inode_table *table, uint64_t serial, bool retired);

#endif
