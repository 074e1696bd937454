/* fs/upper/list.c - what a directory of a layer shows */

/*
 * A position is a hash of the name, so that it means the same whatever comes and goes.
 * The names are put together when a listing starts and kept for its later parts, whose
 * readers may then be told of a name that went meanwhile; never of one twice.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fs/node/identity.h"
#include "fs/upper/upper_i.h"
#include "fs/view/attr.h"

#define POS_BITS 61

struct fs_ulist_item {
	uint64_t pos;
	uint64_t ino;
	char *name;
	uint16_t mode; /* S_IFMT bits; 0: a whiteout */
};

struct names {
	struct fs_unode *dir;
	struct fs_ulist_item *items;
	size_t nr;
	size_t cap;
	size_t nr_upper; /* sorted by name */
};

static void items_free(struct fs_ulist_item *items, size_t nr)
{
	for (size_t i = 0; i < nr; i++)
		free(items[i].name);
	free(items);
}

void fs_upper_list_drop(struct fs_unode *dir)
{
	items_free(dir->list, dir->nr_list);
	dir->list = NULL;
	dir->nr_list = 0;
}

static int add(struct names *n, const char *name, uint64_t ino, mode_t mode)
{
	if (n->nr == n->cap) {
		size_t cap = n->cap ? 2 * n->cap : 64;
		void *items = realloc(n->items, cap * sizeof(*n->items));

		if (!items)
			return -ENOMEM;
		n->items = items;
		n->cap = cap;
	}
	n->items[n->nr] =
		(struct fs_ulist_item){.ino = ino, .name = strdup(name), .mode = mode & S_IFMT};
	if (!n->items[n->nr].name)
		return -ENOMEM;
	n->nr++;
	return 0;
}

/* One name of the layer's directory. */
static int add_upper(struct names *n, int dir_fd, const struct dirent *de)
{
	const struct fs_dent *dent = fs_dent_find(n->dir, de->d_name);
	struct fs_disk disk;
	int ret;

	if (dent)
		return add(n, de->d_name, dent->node->ino, dent->node->type);
	/* Only where something of the tree is can there be more to a file than itself. */
	if (de->d_type != DT_UNKNOWN && !n->dir->upper->any_odd && !n->dir->has_lower)
		return add(n, de->d_name, fs_disk_ino(de->d_ino), DTTOIF(de->d_type));
	ret = fs_disk_look(dir_fd, de->d_name, &disk);
	if (ret <= 0)
		return ret;
	if (disk.whiteout)
		return add(n, de->d_name, 0, 0);
	if (S_ISDIR(disk.st.st_mode) && n->dir->has_lower && !disk.has_stat) {
		struct fs_entry lower;

		ret = fs_upper_look_lower(n->dir, de->d_name, &lower, NULL);
		if (ret > 0 && lower.kind == FS_KIND_SYMLINK)
			free((char *)lower.target);
		else if (ret > 0 && lower.kind == FS_KIND_DIR && !disk.odd)
			return add(n, de->d_name, fs_key_ino(&lower.key), S_IFDIR);
	}
	return add(n, de->d_name, disk.has_stat ? disk.ino : fs_disk_ino(disk.st.st_ino),
		   disk.st.st_mode);
}

static int list_upper(struct names *n)
{
	int dir_fd = fs_disk_dir(n->dir);
	auto_close int fd =
		dir_fd < 0 ? -1 : openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_closedir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *de;
	int ret = dir ? 0 : dir_fd < 0 ? dir_fd : -errno;

	if (dir)
		(void)steal_fd(&fd);
	while (ret >= 0 && (errno = 0, de = readdir(dir)) != NULL) {
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			ret = add_upper(n, dir_fd, de);
	}
	if (ret >= 0 && errno != 0)
		ret = -errno;
	if (dir_fd >= 0)
		fs_ufd_unref(n->dir);
	return ret < 0 ? ret : 0;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct fs_ulist_item *)a)->name,
		      ((const struct fs_ulist_item *)b)->name);
}

static int add_lower(void *ctx, uint64_t pos, const char *name, const struct fs_entry *entry)
{
	struct names *n = ctx;
	const struct fs_ulist_item key = {.name = (char *)name};

	if (n->nr_upper > 0 &&
	    bsearch(&key, n->items, n->nr_upper, sizeof(*n->items), by_name) != NULL)
		return 0;
	return add(n, name, fs_key_ino(&entry->key), fs_attr_mode(entry));
}

/* All names, whiteouts among them. */
static int collect(struct names *n, struct err *err)
{
	struct fs_unode *dir = n->dir;
	const struct fs_view *tree = &dir->upper->all->tree.view;
	int ret = dir->has_upper && !dir->removed ? list_upper(n) : 0;

	if (ret < 0 || !dir->has_lower || dir->removed ||
	    cas_digest_equal(&dir->lower.digest, &cas_digest_empty))
		return ret;
	if (n->nr > 1)
		qsort(n->items, n->nr, sizeof(*n->items), by_name);
	n->nr_upper = n->nr;
	return tree->ops->list(tree, &dir->lower, 0, add_lower, n, err);
}

static uint64_t hash(const char *name)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
	h ^= h >> 32;
	return h & ((UINT64_C(1) << POS_BITS) - 1);
}

static int by_pos(const void *a, const void *b)
{
	const struct fs_ulist_item *x = a;
	const struct fs_ulist_item *y = b;

	if (x->pos != y->pos)
		return x->pos < y->pos ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* Make the directory's list anew. */
static int list_make(struct fs_unode *dir, struct err *err)
{
	struct names n = {.dir = dir};
	int ret = collect(&n, err);
	size_t kept = 0;

	if (ret < 0) {
		items_free(n.items, n.nr);
		return ret;
	}
	for (size_t i = 0; i < n.nr; i++) {
		if (n.items[i].mode == 0) {
			free(n.items[i].name);
			continue;
		}
		n.items[kept] = n.items[i];
		n.items[kept].pos = hash(n.items[kept].name);
		kept++;
	}
	if (kept > 1)
		qsort(n.items, kept, sizeof(*n.items), by_pos);
	for (size_t i = 1; i < kept; i++) {
		if (n.items[i].pos <= n.items[i - 1].pos)
			n.items[i].pos = n.items[i - 1].pos + 1;
	}
	fs_upper_list_drop(dir);
	dir->list = n.items;
	dir->nr_list = kept;
	return 0;
}

static size_t first_from(const struct fs_unode *dir, uint64_t start)
{
	size_t low = 0;
	size_t high = dir->nr_list;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (dir->list[mid].pos < start)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Only kind and number: who wants more looks the name up. */
static int tell(const struct fs_unode *dir, const struct fs_ulist_item *item, fs_view_each_fn each,
		void *ctx)
{
	struct fs_entry entry = {
		.view = &dir->upper->all->view,
		.kind = FS_KIND_UPPER,
		.mode = item->mode,
		.partial = true,
	};

	memcpy(entry.key.bytes, &item->ino, sizeof(item->ino));
	return each(ctx, item->pos, item->name, &entry);
}

int fs_upper_list(const struct fs_view *view, const struct fs_entry *entry, uint64_t start,
		  fs_view_each_fn each, void *ctx, struct err *err)
{
	struct fs_unode *dir = fs_unode_of(entry);
	int ret;

	fs_upper_lock(dir->upper);
	ret = fs_upper_check(dir->upper);
	if (ret == 0 && (start == 0 || !dir->list))
		ret = list_make(dir, err);
	for (size_t i = ret == 0 ? first_from(dir, start) : 0; ret == 0 && i < dir->nr_list; i++)
		ret = tell(dir, &dir->list[i], each, ctx);
	/* The end was reached: nobody goes on from here, or he has it made again. */
	if (ret == 0)
		fs_upper_list_drop(dir);
	fs_upper_unlock(dir->upper);
	return ret < 0 ? ret : 0;
}

int fs_upper_is_empty(struct fs_unode *dir, struct err *err)
{
	struct names n = {.dir = dir};
	int ret = collect(&n, err);
	bool empty = true;

	for (size_t i = 0; ret == 0 && i < n.nr; i++)
		empty = empty && n.items[i].mode == 0;
	items_free(n.items, n.nr);
	return ret < 0 ? ret : empty;
}
