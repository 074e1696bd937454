/* fs/node/readdir.c - directory buffers and stable offsets */
#define FUSE_USE_VERSION 312
#include "fs/node/readdir.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/node/inode.h"

#define NR_DOTS 2

struct collect {
	struct fs_dirlist *list;
	size_t cap;
	size_t left; /* bytes of the kernel's buffer */
	bool plus;
};

static size_t item_size(const char *name, bool plus)
{
	return plus ? fuse_add_direntry_plus(NULL, NULL, 0, name, NULL, 0)
		    : fuse_add_direntry(NULL, NULL, 0, name, NULL, 0);
}

static struct fs_diritem *next_item(struct collect *c)
{
	if (c->list->nr == c->cap) {
		size_t cap = c->cap ? 2 * c->cap : 32;
		void *items = realloc(c->list->items, cap * sizeof(struct fs_diritem));

		if (!items)
			return NULL;
		c->list->items = items;
		c->cap = cap;
	}
	return &c->list->items[c->list->nr];
}

/* 0 to go on, 1 when @name does not fit any more, or negative. */
static int add_item(struct collect *c, uint64_t next_off, const char *name,
		    const struct fs_entry *entry, bool is_dot)
{
	size_t sz = item_size(name, c->plus);
	struct fs_diritem *item;

	if (sz > c->left)
		return 1;
	item = next_item(c);
	if (!item)
		return -ENOMEM;
	*item = (struct fs_diritem){next_off, strdup(name), is_dot, *entry};
	if (entry->kind == FS_KIND_SYMLINK)
		item->entry.target = c->plus && !is_dot ? strdup(entry->target) : NULL;
	if (!item->name || (entry->kind == FS_KIND_SYMLINK && c->plus && !item->entry.target)) {
		free(item->name);
		return -ENOMEM;
	}
	c->left -= sz;
	c->list->nr++;
	return 0;
}

static int collect_one(void *ctx, uint64_t pos, const char *name, const struct fs_entry *entry)
{
	return add_item(ctx, pos + NR_DOTS + 1, name, entry, false);
}

static int collect_dots(struct collect *c, const struct fs_inode *dir, uint64_t off)
{
	const struct fs_entry up = {.kind = FS_KIND_DIR, .key = dir->up};
	int ret = 0;

	if (off < 1)
		ret = add_item(c, 1, ".", &dir->entry, true);
	if (ret == 0 && off < 2)
		ret = add_item(c, 2, "..", &up, true);
	return ret;
}

int fs_dirlist_collect(const struct fs_inode *dir, uint64_t off, size_t size, bool plus,
		       struct fs_dirlist *out, struct err *err)
{
	const struct fs_view *view = dir->entry.view;
	struct collect c = {out, 0, size, plus};
	uint64_t start = off > NR_DOTS ? off - NR_DOTS : 0;
	int ret;

	*out = (struct fs_dirlist){0};
	ret = collect_dots(&c, dir, off);
	if (ret == 0)
		ret = view->ops->list(view, &dir->entry, start, collect_one, &c, err);
	if (ret < 0) {
		fs_dirlist_fini(out);
		return ret;
	}
	return 0;
}

void fs_dirlist_fini(struct fs_dirlist *list)
{
	for (size_t i = 0; i < list->nr; i++) {
		free(list->items[i].name);
		if (list->items[i].entry.kind == FS_KIND_SYMLINK)
			free((char *)list->items[i].entry.target);
	}
	free(list->items);
	*list = (struct fs_dirlist){0};
}
