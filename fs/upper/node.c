/* fs/upper/node.c - nodes of served layers, their names, and who counts them */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/upper/limit.h"
#include "fs/upper/upper_i.h"

struct fs_unode *fs_unode_new(struct fs_upper *upper, mode_t type)
{
	struct fs_unode *node = calloc(1, sizeof(*node));

	if (!node)
		return NULL;
	node->upper = upper;
	node->number = atomic_fetch_add(&upper->all->next_number, 1) + 1;
	node->type = type & S_IFMT;
	node->fd = -1;
	node->nr_refs = 1;
	LIST_INSERT_HEAD(&upper->nodes, node, all_nodes);
	lock_take(&upper->all->refs_lock);
	upper->nr_refs++;
	lock_drop(&upper->all->refs_lock);
	return node;
}

void fs_unode_ref(struct fs_unode *node)
{
	struct fs_uppers *all = node->upper->all;

	lock_take(&all->refs_lock);
	node->nr_refs++;
	lock_drop(&all->refs_lock);
}

void fs_unode_unref(struct fs_unode *node)
{
	struct fs_uppers *all = node->upper->all;

	lock_take(&all->refs_lock);
	if (--node->nr_refs == 0 && !node->is_dead) {
		node->is_dead = true;
		node->next_dead = all->dead;
		all->dead = node;
	}
	lock_drop(&all->refs_lock);
}

bool fs_unode_is_used(struct fs_unode *node)
{
	struct fs_uppers *all = node->upper->all;
	bool used;

	lock_take(&all->refs_lock);
	used = node->nr_refs > 1;
	lock_drop(&all->refs_lock);
	return used;
}

struct fs_dent *fs_dent_find(const struct fs_unode *dir, const char *name)
{
	struct fs_dent *dent;

	HASH_FIND_STR(dir->children, name, dent);
	return dent;
}

int fs_dent_add(struct fs_unode *dir, const char *name, struct fs_unode *node)
{
	size_t len = strlen(name);
	struct fs_dent *dent = calloc(1, sizeof(*dent) + len + 1);

	if (!dent)
		return -ENOMEM;
	memcpy(dent->name, name, len + 1);
	HASH_ADD_KEYPTR(hh, dir->children, dent->name, len, dent);
	if (!dent->hh.tbl) {
		free(dent);
		return -ENOMEM;
	}
	dent->dir = dir;
	dent->node = node;
	dent->next = node->names;
	node->names = dent;
	return 0;
}

void fs_dent_remove(struct fs_dent *dent)
{
	struct fs_dent **p = &dent->node->names;
	struct fs_unode *dir = dent->dir;

	while (*p != dent)
		p = &(*p)->next;
	*p = dent->next;
	HASH_DEL(dir->children, dent);
	free(dent);
	/* It may be what kept the directory. */
	if (!dir->children) {
		fs_unode_ref(dir);
		fs_unode_unref(dir);
	}
}

/* Room for the path of @dir and @extra bytes more; *at is where it ends. */
static char *path_room(const struct fs_unode *dir, size_t extra, size_t *at)
{
	size_t len = 0;
	char *path;

	for (const struct fs_unode *d = dir; d->names; d = d->names->dir)
		len += strlen(d->names->name) + 1;
	path = malloc(len + extra + 2);
	if (!path)
		return NULL;
	*at = len > 0 ? len - 1 : 0;
	for (const struct fs_unode *d = dir; d->names; d = d->names->dir) {
		size_t n = strlen(d->names->name);

		len -= n + 1;
		memcpy(path + len, d->names->name, n);
		path[len + n] = '/';
	}
	path[*at] = '\0';
	return path;
}

char *fs_unode_path(const struct fs_unode *dir, const char *name)
{
	size_t extra = name ? strlen(name) : 0;
	size_t at;
	char *path = path_room(dir, extra, &at);

	if (path && name) {
		if (at > 0)
			path[at++] = '/';
		memcpy(path + at, name, extra + 1);
	}
	return path;
}

char *fs_unode_origin(const struct fs_unode *dir)
{
	auto_free char *above = NULL;
	char *path = NULL;

	if (dir->origin)
		return strdup(dir->origin);
	if (!dir->names)
		return strdup("");
	above = fs_unode_origin(dir->names->dir);
	if (!above || asprintf(&path, "%s%s%s", above, above[0] ? "/" : "", dir->names->name) < 0)
		return NULL;
	return path;
}

int fs_unode_by_ino_add(struct fs_unode *node, ino_t ino)
{
	if (node->in_by_ino)
		return 0;
	node->disk_ino = ino;
	HASH_ADD(hh_ino, node->upper->by_ino, disk_ino, sizeof(ino_t), node);
	if (!node->hh_ino.tbl)
		return -ENOMEM;
	node->in_by_ino = true;
	return 0;
}

struct fs_unode *fs_unode_by_ino(struct fs_upper *upper, ino_t ino)
{
	struct fs_unode *node;

	HASH_FIND(hh_ino, upper->by_ino, &ino, sizeof(ino_t), node);
	return node;
}

/* Both halves of the key are needed: the first is what is shown, the second is the node's. */
void fs_unode_entry(struct fs_unode *node, struct fs_entry *out)
{
	*out = (struct fs_entry){
		.view = &node->upper->all->view,
		.kind = FS_KIND_UPPER,
		.mode = (uint16_t)node->type,
	};
	memcpy(out->key.bytes, &node->ino, sizeof(node->ino));
	memcpy(out->key.bytes + sizeof(node->ino), &node->number, sizeof(node->number));
	out->tag = (uint64_t)(uintptr_t)node;
}

static void node_free(struct fs_unode *node)
{
	while (node->names)
		fs_dent_remove(node->names);
	if (node->in_by_ino)
		HASH_DELETE(hh_ino, node->upper->by_ino, node);
	fs_ufd_close(node);
	if (node->orphan && !node->upper->ended) {
		char name[FS_WORK_NAME_SZ];

		fs_disk_orphan_name(node, name);
		fs_disk_drop(node->upper, name);
	}
	fs_upper_list_drop(node);
	fs_ulimit_freed(node);
	if (S_ISLNK(node->type) && node->has_lower)
		free((char *)node->lower.target);
	free(node->origin);
	LIST_REMOVE(node, all_nodes);
	free(node);
}

/* One that nobody counted a moment ago. */
static void reap_one(struct fs_unode *node)
{
	struct fs_upper *upper = node->upper;
	struct fs_uppers *all = upper->all;
	bool gone;

	fs_upper_lock(upper);
	lock_take(&all->refs_lock);
	gone = node->nr_refs == 0 && !node->is_dead && !node->children;
	lock_drop(&all->refs_lock);
	if (gone)
		node_free(node);
	fs_upper_unlock(upper);
	if (gone)
		fs_upper_unref(upper);
}

static struct fs_unode *next_dead(struct fs_uppers *all)
{
	struct fs_unode *node;

	lock_take(&all->refs_lock);
	node = all->dead;
	if (node) {
		all->dead = node->next_dead;
		node->is_dead = false;
	}
	lock_drop(&all->refs_lock);
	return node;
}

/* One thread at a time: what two have taken off the list would be freed twice. */
void fs_uppers_reap(struct fs_uppers *all)
{
	struct fs_unode *node;

	if (atomic_flag_test_and_set(&all->reaping))
		return;
	while ((node = next_dead(all)) != NULL)
		reap_one(node);
	atomic_flag_clear(&all->reaping);
}
