/* fs/node/inode_top.c - tops of trees, and directories that move from one to another */

/*
 * Adoption (design 6.4, 6.5). When a directory of a live top is asked for that has no node
 * yet, and below a retired top there is one of the same place and digest, that node is
 * the answer: the kernel moves its dentry with all that is cached below to where it
 * asked (d_splice_alias), and we move the node. The moves are not one step. Until the
 * kernel has done its part, and if it fails to, the retired top still has the dentry; so
 * the name is noted as given away, and whoever swaps that top waits for the lookup to be
 * over, and invalidates the name. Until then the directory that gave, and those above it,
 * stay where they are: the name would be invalidated in a live tree.
 * The kernel reports a failed move as ESTALE and asks again, and then gets the node that
 * was moved before.
 */
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/node/inode_i.h"

#define DEPTH_MAX 64 /* of directories that are adopted */

struct fs_node *fs_node_highest(struct fs_node *node)
{
	while (node->parent && !fs_node_is_top(node))
		node = node->parent;
	return node;
}

void fs_node_no_donor_locked(struct fs_inode_table *table, const struct fs_node *top)
{
	size_t kept = 0;

	for (size_t i = 0; i < table->nr_donors; i++) {
		if (table->donors[i] != top)
			table->donors[kept++] = table->donors[i];
	}
	table->nr_donors = kept;
}

static void add_donor_locked(struct fs_inode_table *table, struct fs_node *top)
	REQUIRES(table->lock)
{
	if (table->nr_donors == FS_DONORS_MAX)
		fs_node_no_donor_locked(table, table->donors[0]);
	table->donors[table->nr_donors++] = top;
}

/* The way from a live top down to @dir: names[nr - 1] is the first. False: not live. */
static bool path_from_top(const struct fs_node *dir, const char **names, size_t *nr)
{
	*nr = 0;
	for (; dir->parent && !fs_node_is_top(dir); dir = dir->parent) {
		if (*nr == DEPTH_MAX)
			return false;
		names[(*nr)++] = dir->name;
	}
	return fs_node_is_top(dir) && dir->top_state == FS_TOP_LIVE &&
	       !(dir->entry.serial & FS_SERIAL_SHOW);
}

static struct fs_node *find_donor_locked(struct fs_inode_table *table, const char **names,
					 size_t nr, const char *name, const struct fs_entry *entry,
					 struct fs_node **top) REQUIRES(table->lock)
{
	for (size_t i = table->nr_donors; i-- > 0;) {
		struct fs_node *node = table->donors[i];

		for (size_t n = nr; node && n-- > 0;)
			node = fs_node_child_locked(table, node, names[n]);
		if (node)
			node = fs_node_child_locked(table, node, name);
		if (node && node->nr_lookups > 0 && !node->gave &&
		    cas_digest_equal(&node->entry.digest, &entry->digest)) {
			*top = table->donors[i];
			return node;
		}
	}
	return NULL;
}

static void mark_gave(struct fs_node *dir, bool gave)
{
	for (; dir && !fs_node_is_top(dir); dir = dir->parent)
		dir->gave = gave;
}

static bool note_given_locked(struct fs_inode_table *table, const struct fs_node *node,
			      const struct fs_node *top, const struct fs_node *to)
	REQUIRES(table->lock)
{
	struct given *given = malloc(sizeof(*given));
	size_t len = strlen(node->name) + 1;
	struct fs_inode_name *name = malloc(sizeof(*name) + len);

	if (!given || !name) {
		free(given);
		free(name);
		return false;
	}
	name->next = NULL;
	name->dir = node->parent->id;
	name->to = to->id;
	name->when_ns = lock_now_ns();
	memcpy(name->name, node->name, len);
	*given = (struct given){table->given, top->entry.serial, name};
	table->given = given;
	mark_gave(node->parent, true);
	return true;
}

struct fs_node *fs_node_adopt_locked(struct fs_inode_table *table, struct fs_node *dir,
				     const char *name, const struct fs_entry *entry)
{
	const char *names[DEPTH_MAX];
	struct fs_node *top;
	struct fs_node *node;
	struct fs_node *old;
	size_t nr;

	if (!table->adopt || entry->apart || table->nr_donors == 0 ||
	    !path_from_top(dir, names, &nr))
		return NULL;
	node = find_donor_locked(table, names, nr, name, entry, &top);
	if (!node || !note_given_locked(table, node, top, dir))
		return NULL;
	old = node->parent;
	fs_node_unhash_locked(table, node);
	node->parent = dir;
	dir->nr_child_dirs++;
	fs_node_hash_locked(table, node);
	table->nr_adopted++;
	old->nr_child_dirs--;
	fs_node_reap_locked(table, old);
	return node;
}

void fs_inode_table_adopt(struct fs_inode_table *table, bool on)
{
	lock_take(&table->lock);
	table->adopt = on;
	lock_drop(&table->lock);
}

uint64_t fs_inode_adopted(struct fs_inode_table *table)
{
	uint64_t nr;

	lock_take(&table->lock);
	nr = table->nr_adopted;
	lock_drop(&table->lock);
	return nr;
}

uint64_t fs_inode_serial(struct fs_inode_table *table, uint64_t dir)
{
	struct fs_node *node;
	uint64_t serial = 0;

	lock_take(&table->lock);
	node = fs_node_find_locked(table, dir);
	if (node)
		serial = fs_node_highest(node)->entry.serial;
	lock_drop(&table->lock);
	return serial;
}

bool fs_inode_ended(struct fs_inode_table *table, uint64_t id, const struct cas_digest *digest)
{
	struct fs_node *node;
	bool ended = true;

	lock_take(&table->lock);
	node = fs_node_find_locked(table, id);
	if (node && cas_digest_equal(&node->entry.digest, digest)) {
		node = fs_node_highest(node);
		ended = node->orphan || (fs_node_is_top(node) && node->top_state != FS_TOP_LIVE);
	}
	lock_drop(&table->lock);
	return ended;
}

uint64_t fs_inode_top_set(struct fs_inode_table *table, uint64_t serial, enum fs_top_state from,
			  enum fs_top_state to)
{
	struct fs_node *top;
	uint64_t id = 0;

	lock_take(&table->lock);
	top = fs_node_top_locked(table, serial);
	if (top && top->top_state == from) {
		if (from == FS_TOP_RETIRED)
			fs_node_no_donor_locked(table, top);
		top->top_state = (uint8_t)to;
		if (to == FS_TOP_RETIRED)
			add_donor_locked(table, top);
		id = top->nr_lookups > 0 ? top->id : 0;
	}
	lock_drop(&table->lock);
	return id;
}

uint64_t fs_inode_top(struct fs_inode_table *table, uint64_t serial)
{
	const struct fs_node *top;
	uint64_t id;

	lock_take(&table->lock);
	top = fs_node_top_locked(table, serial);
	id = top ? top->id : 0;
	lock_drop(&table->lock);
	return id;
}

bool fs_inode_top_known(struct fs_inode_table *table, uint64_t serial)
{
	struct fs_node *top;
	bool known;

	lock_take(&table->lock);
	top = fs_node_top_locked(table, serial);
	known = top && top->nr_lookups > 0;
	lock_drop(&table->lock);
	return known;
}

char *fs_inode_top_name(struct fs_inode_table *table, uint64_t serial)
{
	struct fs_node *top;
	char *name = NULL;

	lock_take(&table->lock);
	top = fs_node_top_locked(table, serial);
	if (top)
		name = strdup(top->name);
	lock_drop(&table->lock);
	return name;
}

bool fs_inode_child(struct fs_inode_table *table, uint64_t dir, const char *name,
		    struct fs_inode *out)
{
	struct fs_node *parent;
	struct fs_node *node;

	lock_take(&table->lock);
	parent = fs_node_find_locked(table, dir);
	node = parent ? fs_node_child_locked(table, parent, name) : NULL;
	if (node)
		fs_node_show(node, out);
	lock_drop(&table->lock);
	return node != NULL;
}

void fs_inode_swap(struct fs_inode_table *table, uint64_t id, const struct fs_entry *entry)
{
	struct fs_node *node;

	lock_take(&table->lock);
	node = fs_node_find_locked(table, id);
	if (node && !node->orphan) {
		node->entry.digest = entry->digest;
		node->entry.mtime_sec = entry->mtime_sec;
		node->entry.mtime_nsec = entry->mtime_nsec;
		node->entry.mode = entry->mode;
		node->entry.has_mtime = entry->has_mtime;
		node->entry.has_mode = entry->has_mode;
	}
	lock_drop(&table->lock);
}

void fs_inode_orphan(struct fs_inode_table *table, uint64_t dir, const char *name)
{
	struct fs_node *parent;
	struct fs_node *node;

	lock_take(&table->lock);
	parent = fs_node_find_locked(table, dir);
	node = parent ? fs_node_child_locked(table, parent, name) : NULL;
	if (node) {
		fs_node_orphan_locked(table, node);
		fs_node_reap_locked(table, node);
	}
	lock_drop(&table->lock);
}

struct fs_inode_name *fs_inode_given(struct fs_inode_table *table, uint64_t serial)
{
	struct fs_inode_name *names = NULL;
	struct given **p;

	lock_take(&table->lock);
	p = &table->given;
	while (*p) {
		struct given *given = *p;

		if (given->serial != serial) {
			p = &given->next;
			continue;
		}
		*p = given->next;
		mark_gave(fs_node_find_locked(table, given->name->dir), false);
		given->name->next = names;
		names = given->name;
		free(given);
	}
	lock_drop(&table->lock);
	return names;
}

void fs_inode_names_free(struct fs_inode_name *names)
{
	while (names) {
		struct fs_inode_name *next = names->next;

		free(names);
		names = next;
	}
}
