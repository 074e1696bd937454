/* fs/upper/look.c - what a name in a layer stands for, and what may be done to it */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/node/identity.h"
#include "fs/upper/limit.h"
#include "fs/upper/place.h"
#include "fs/upper/upper_i.h"

int fs_upper_check(const struct fs_upper *upper)
{
	return upper->ended ? -ESTALE : 0;
}

void fs_found_end(struct fs_found *found)
{
	if (found->node)
		fs_unode_unref(found->node);
	else if (found->entry.kind == FS_KIND_SYMLINK)
		free((char *)found->entry.target);
	*found = (struct fs_found){0};
}

int fs_upper_look_lower(const struct fs_unode *dir, const char *name, struct fs_entry *out,
			struct err *err)
{
	const struct fs_view *tree = &dir->upper->all->tree.view;

	*out = (struct fs_entry){0};
	if (!dir->has_lower || cas_digest_equal(&dir->lower.digest, &cas_digest_empty))
		return 0;
	return tree->ops->lookup(tree, &dir->lower, name, out, err);
}

int fs_upper_hides(const struct fs_unode *dir, const char *name, struct err *err)
{
	struct fs_entry entry;
	int ret = fs_upper_look_lower(dir, name, &entry, err);

	if (ret > 0 && entry.kind == FS_KIND_SYMLINK)
		free((char *)entry.target);
	return ret > 0 && entry.kind == FS_KIND_DIR ? 2 : ret;
}

int fs_upper_may_make(const struct fs_unode *dir)
{
	bool may = dir->free || dir->area || dir->upper->writable != FS_WRITABLE_OUTPUTS;

	return may ? 0 : -EROFS;
}

int fs_upper_may_change(const struct fs_found *found)
{
	const struct fs_unode *node = found->node;

	if (node && node->fixed)
		return -EBUSY;
	return node && node->free ? 0 : -EROFS;
}

/* Is @path an output, or within one? Not one made beforehand itself: it is not to go. */
static bool is_output(const struct fs_outputs *outputs, const char *path, bool *fixed)
{
	for (size_t i = 0; i < outputs->nr; i++) {
		const struct fs_output *o = &outputs->out[i];

		if (!fs_path_within(path, o->path))
			continue;
		if (!o->premade || strcmp(path, o->path) != 0)
			return true;
		*fixed = true;
	}
	return false;
}

/* May outputs be made in the directory at @path? */
static bool is_area(const struct fs_outputs *outputs, const char *path)
{
	size_t len = strlen(path);

	for (size_t i = 0; i < outputs->nr; i++) {
		const char *at = outputs->out[i].path;
		const char *slash = strrchr(at, '/');

		if (outputs->out[i].premade
			    ? strcmp(at, path) == 0
			    : (slash ? (size_t)(slash - at) == len && strncmp(at, path, len) == 0
				     : len == 0 && at[0]))
			return true;
	}
	return false;
}

/* What the policy says about a node that the tree has at @name in @dir. */
static int classify(struct fs_unode *node, const struct fs_unode *dir, const char *name)
{
	const struct fs_upper *upper = node->upper;
	bool all = upper->writable == FS_WRITABLE_ALL;
	auto_free char *path = NULL;

	node->free = dir->free || all;
	/* Below what is no input there are no outputs to look for either. */
	if (dir->free && !all)
		return 0;
	if (upper->outputs.nr == 0 || !(dir->near || dir->area))
		return 0;
	path = fs_unode_path(dir, name);
	if (!path)
		return -ENOMEM;
	if (is_output(&upper->outputs, path, &(bool){false}))
		node->free = true;
	if (fs_unode_is_dir(node)) {
		bool fixed = false;

		(void)is_output(&upper->outputs, path, &fixed);
		node->fixed = fixed;
		node->area = is_area(&upper->outputs, path);
		node->near = fs_outputs_below(&upper->outputs, path);
	}
	return 0;
}

/* Is it to be a node of the layer, rather than one that other sandboxes share? */
static bool is_ours(const struct fs_unode *node)
{
	const struct fs_upper *upper = node->upper;

	if (node->free || node->area || node->near || upper->all->opts.unshared)
		return true;
	return fs_unode_is_dir(node) && upper->writable != FS_WRITABLE_OUTPUTS;
}

static mode_t type_of(const struct fs_entry *entry)
{
	return entry->kind == FS_KIND_DIR	? S_IFDIR
	       : entry->kind == FS_KIND_SYMLINK ? S_IFLNK
						: S_IFREG;
}

/* The node is done: known by its name from now on. Its count is the caller's. */
static int settle(struct fs_unode *dir, const char *name, struct fs_unode *node,
		  struct fs_found *out)
{
	int ret = fs_dent_add(dir, name, node);

	if (ret < 0) {
		fs_unode_unref(node);
		return ret;
	}
	out->node = node;
	return 1;
}

static void take_lower(struct fs_unode *node, const struct fs_entry *entry)
{
	node->has_lower = true;
	node->lower = *entry;
	node->ino = fs_key_ino(&entry->key);
}

/* The tree has it, and nothing of the layer is there. Takes over entry->target. */
static int found_lower(struct fs_unode *dir, const char *name, struct fs_entry *entry,
		       struct fs_found *out)
{
	struct fs_unode *node = fs_unode_new(dir->upper, type_of(entry));
	int ret = node ? classify(node, dir, name) : -ENOMEM;

	if (ret == 0 && is_ours(node)) {
		take_lower(node, entry);
		ret = settle(dir, name, node, out);
		if (ret > 0)
			fs_uplace_settle(node);
		return ret;
	}
	if (node)
		fs_unode_unref(node);
	if (ret == 0)
		out->entry = *entry;
	else if (entry->kind == FS_KIND_SYMLINK)
		free((char *)entry->target);
	return ret < 0 ? ret : 1;
}

int fs_upper_walk_lower(struct fs_upper *upper, const char *path, struct fs_entry *out,
			struct err *err)
{
	const struct fs_view *tree = &upper->all->tree.view;
	struct fs_entry at = upper->root->lower;

	while (*path) {
		char name[CAS_NAME_MAX + 1];
		size_t len = strcspn(path, "/");
		struct fs_entry next = {0};
		int ret;

		if (len > CAS_NAME_MAX)
			return 0;
		memcpy(name, path, len);
		name[len] = '\0';
		path += len + (path[len] == '/');
		ret = tree->ops->lookup(tree, &at, name, &next, err);
		if (ret > 0 && next.kind == FS_KIND_SYMLINK)
			free((char *)next.target);
		if (ret <= 0 || next.kind != FS_KIND_DIR)
			return ret < 0 ? ret : 0;
		at = next;
	}
	*out = at;
	return 1;
}

/* What of the tree the directory of the layer @node shows. */
static int find_lower(struct fs_unode *node, const struct fs_unode *dir, const char *name,
		      struct err *err)
{
	struct fs_entry entry = {0};
	int fd = node->odd ? fs_disk_open(node) : -1;
	int ret = 0;

	if (node->odd && fd < 0)
		return fd;
	if (node->odd && !fs_disk_is_opaque(fd))
		ret = fs_disk_redirect(fd, &node->origin);
	else if (node->odd)
		ret = 2;
	if (fd >= 0)
		fs_ufd_unref(node);
	if (ret == 0)
		ret = fs_upper_look_lower(dir, name, &entry, err);
	else if (ret == 1)
		ret = fs_upper_walk_lower(node->upper, node->origin, &entry, err);
	else if (ret == 2)
		return 0;
	if (ret > 0 && entry.kind == FS_KIND_SYMLINK)
		free((char *)entry.target);
	if (ret > 0 && entry.kind == FS_KIND_DIR)
		take_lower(node, &entry);
	return ret < 0 ? ret : 0;
}

static void take_disk(struct fs_unode *node, const struct fs_disk *disk)
{
	node->has_upper = true;
	node->odd = disk->odd;
	node->shown_mode = disk->has_stat;
	node->mode = disk->mode;
	if (disk->has_stat)
		node->ino = disk->ino;
	else if (node->ino == 0)
		node->ino = fs_disk_ino(disk->st.st_ino);
	if (disk->odd)
		node->upper->any_odd = true;
}

/* The layer has it. */
static int found_upper(struct fs_unode *dir, const char *name, const struct fs_disk *disk,
		       struct fs_found *out, struct err *err)
{
	struct fs_upper *upper = dir->upper;
	struct fs_unode *node = NULL;
	int ret;

	if (!S_ISDIR(disk->st.st_mode) && disk->st.st_nlink > 1)
		node = fs_unode_by_ino(upper, disk->st.st_ino);
	if (node) {
		fs_unode_ref(node);
		return settle(dir, name, node, out);
	}
	node = fs_unode_new(upper, disk->st.st_mode);
	if (!node)
		return -ENOMEM;
	node->odd = disk->odd;
	/* Placed first: its descriptor is found by its name. */
	ret = settle(dir, name, node, out);
	if (ret < 0)
		return ret;
	ret = fs_unode_is_dir(node) ? find_lower(node, dir, name, err) : 0;
	take_disk(node, disk);
	fs_ulimit_met(node, &disk->st);
	/* What the tree does not have is the action's. */
	node->free = true;
	if (ret == 0 && node->has_lower && !node->origin)
		ret = classify(node, dir, name);
	if (ret == 0 && !fs_unode_is_dir(node) && disk->st.st_nlink > 1)
		ret = fs_unode_by_ino_add(node, disk->st.st_ino);
	if (ret < 0) {
		fs_dent_remove(node->names);
		fs_found_end(out);
		return ret;
	}
	fs_uplace_settle(node);
	return 1;
}

static int look_upper(struct fs_unode *dir, const char *name, struct fs_disk *disk)
{
	int fd = fs_disk_dir(dir);
	int ret;

	if (fd < 0)
		return fd;
	ret = fs_disk_look(fd, name, disk);
	fs_ufd_unref(dir);
	return ret;
}

int fs_upper_look(struct fs_unode *dir, const char *name, struct fs_found *out, struct err *err)
{
	const struct fs_dent *dent = fs_dent_find(dir, name);
	struct fs_entry entry;
	struct fs_disk disk;
	int ret = 0;

	*out = (struct fs_found){0};
	if (dent) {
		fs_unode_ref(dent->node);
		out->node = dent->node;
		return 1;
	}
	if (dir->removed)
		return 0;
	if (dir->has_upper)
		ret = look_upper(dir, name, &disk);
	if (ret > 0 && disk.whiteout)
		return 0;
	if (ret > 0)
		return found_upper(dir, name, &disk, out, err);
	if (ret == 0)
		ret = fs_upper_look_lower(dir, name, &entry, err);
	return ret > 0 ? found_lower(dir, name, &entry, out) : ret;
}
