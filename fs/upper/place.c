/* fs/upper/place.c - directories of the tree in which outputs are made */

/*
 * Under the policy `outputs` a directory in which something may be made stays what it is to
 * the kernel: the tree's, with all that is cached below it, before, while and after there is
 * a layer. Only while there is one, it is the layer that answers for it. What the kernel
 * learns of it then is the tree's, too, but for names: those of nodes of the layer, and
 * those that the layer hides. They are written down, and forgotten when it ends.
 */
#include "fs/upper/place.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs/node/identity.h"

#define NAMES_MAX 256 /* above, all of the directory is forgotten */

struct fs_uplace *fs_uplace_find(const struct fs_upper *upper, const struct fs_key *key)
{
	struct fs_uplace *place;

	HASH_FIND(hh, upper->places, key, sizeof(*key), place);
	return place;
}

static int add_place(struct fs_upper *upper, const struct fs_key *key, const char *path,
		     struct fs_uplace **out)
{
	struct fs_uplace *place = fs_uplace_find(upper, key);

	*out = place;
	if (place)
		return 0;
	place = calloc(1, sizeof(*place));
	if (!place)
		return -ENOMEM;
	place->key = *key;
	place->path = strdup(path);
	if (place->path)
		HASH_ADD(hh, upper->places, key, sizeof(place->key), place);
	if (!place->path || !place->hh.tbl) {
		free(place->path);
		free(place);
		return -ENOMEM;
	}
	*out = place;
	return 0;
}

/* Is the directory at @path, or what is in it, an output, so that it may itself go? */
static bool is_free(const struct fs_outputs *outputs, const char *path)
{
	auto_free char *above = strdup(path);
	const struct fs_output *o = fs_outputs_find(outputs, path);
	char *slash;

	if (o && !o->premade)
		return true;
	while (above && (slash = strrchr(above, '/')) != NULL) {
		*slash = '\0';
		if (fs_outputs_find(outputs, above))
			return true;
	}
	return false;
}

/* The directory at @path and all above it; outputs are made in itself. */
static int add_area(struct fs_upper *upper, const char *path)
{
	struct fs_uplace *place = NULL;
	struct fs_key key = fs_key_zero;
	int ret = 0;

	for (size_t at = 0; ret == 0 && path[at];) {
		size_t len = strcspn(path + at, "/");
		auto_free char *above = strndup(path, at + len);
		struct fs_key next;

		if (!above)
			return -ENOMEM;
		ret = fs_key_of_path(&key, above + at, &next);
		if (ret == 0)
			ret = add_place(upper, &next, above, &place);
		key = next;
		at += len + (path[at + len] == '/');
	}
	if (ret == 0 && place)
		place->shared = true;
	return ret;
}

/* The directory in which the output is made; "" is the root. NULL: no memory. */
static char *area_of(const struct fs_output *o)
{
	char *path = strdup(o->path);
	char *slash = path ? strrchr(path, '/') : NULL;

	if (path && !o->premade)
		*(slash ? slash : path) = '\0';
	return path;
}

static int add_hidden(struct fs_upper *upper, const char *path)
{
	void *grown = realloc(upper->hidden, (upper->nr_hidden + 1) * sizeof(*upper->hidden));

	if (!grown)
		return -ENOMEM;
	upper->hidden = grown;
	upper->hidden[upper->nr_hidden] = strdup(path);
	if (!upper->hidden[upper->nr_hidden])
		return -ENOMEM;
	upper->nr_hidden++;
	return 0;
}

/*
 * What the tree has at an output is the layer's from the start, and what it has in one that
 * was made beforehand.
 */
static int hide(struct fs_upper *upper, const struct fs_output *o, const struct fs_entry *above,
		struct err *err)
{
	const struct fs_view *tree = &upper->all->tree.view;
	const char *slash = strrchr(o->path, '/');
	struct fs_entry entry = {0};
	struct fs_uplace *place;
	int ret = tree->ops->lookup(tree, above, slash ? slash + 1 : o->path, &entry, err);

	if (ret > 0 && entry.kind == FS_KIND_SYMLINK)
		free((char *)entry.target);
	if (ret <= 0)
		return ret;
	if (o->premade && entry.kind == FS_KIND_DIR &&
	    cas_digest_equal(&entry.digest, &cas_digest_empty))
		return 0;
	place = fs_uplace_find(upper, &entry.key);
	if (place && entry.kind == FS_KIND_DIR)
		place->whole = true;
	return add_hidden(upper, o->path);
}

/* The directory that @path is in, which is mostly that of the last. */
static int find_above(struct fs_upper *upper, const char *path, char **last, struct fs_entry *out,
		      struct err *err)
{
	const char *slash = strrchr(path, '/');
	auto_free char *above = strndup(path, slash ? (size_t)(slash - path) : 0);
	int ret;

	if (!above)
		return -ENOMEM;
	if (*last && strcmp(*last, above) == 0)
		return 1;
	ret = fs_upper_walk_lower(upper, above, out, err);
	if (ret > 0) {
		free(*last);
		*last = steal_ptr(&above);
	}
	return ret;
}

static int hide_all(struct fs_upper *upper, struct err *err)
{
	auto_free char *last = NULL;
	struct fs_entry above;
	int ret = 0;

	for (size_t i = 0; ret >= 0 && i < upper->outputs.nr; i++) {
		ret = find_above(upper, upper->outputs.out[i].path, &last, &above, err);
		if (ret > 0)
			ret = hide(upper, &upper->outputs.out[i], &above, err);
	}
	return ret < 0 ? ret : 0;
}

int fs_uplaces_make(struct fs_upper *upper, struct err *err)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < upper->outputs.nr; i++) {
		auto_free char *area = area_of(&upper->outputs.out[i]);

		if (!area)
			return -ENOMEM;
		if (!is_free(&upper->outputs, area))
			ret = add_area(upper, area);
	}
	if (ret == 0)
		ret = hide_all(upper, err);
	if (ret == 0 && upper->nr_hidden > 0)
		atomic_store(&upper->apart, true);
	return ret;
}

void fs_uplaces_fini(struct fs_upper *upper)
{
	struct fs_uplace *place;
	struct fs_uplace *next;

	HASH_ITER (hh, upper->places, place, next) {
		HASH_DEL(upper->places, place);
		for (size_t i = 0; i < place->nr_names; i++)
			free(place->names[i]);
		free(place->names);
		free(place->path);
		free(place);
	}
	for (size_t i = 0; i < upper->nr_hidden; i++)
		free(upper->hidden[i]);
	free(upper->hidden);
}

void fs_uplaces_end(struct fs_upper *upper)
{
	for (struct fs_uplace *place = upper->places; place; place = place->hh.next) {
		struct fs_unode *node = steal_ptr(&place->node);

		place->changed = node && node->has_upper;
		if (node)
			fs_unode_unref(node);
	}
}

void fs_uplace_settle(struct fs_unode *dir)
{
	struct fs_uplace *place;

	place = fs_uplace_is_tree(dir) ? fs_uplace_find(dir->upper, &dir->lower.key) : NULL;
	if (!place || place->node)
		return;
	fs_unode_ref(dir);
	place->node = dir;
	dir->place = place;
}

void fs_uplace_touch(struct fs_unode *dir, const char *name)
{
	struct fs_uplace *place = dir->place;
	char *copy = NULL;

	if (!place || place->whole)
		return;
	atomic_store(&dir->upper->apart, true);
	for (size_t i = place->nr_names; i-- > 0;) {
		if (strcmp(place->names[i], name) == 0)
			return;
	}
	if (!place->names)
		place->names = calloc(NAMES_MAX, sizeof(*place->names));
	if (place->names && place->nr_names < NAMES_MAX)
		copy = strdup(name);
	if (copy)
		place->names[place->nr_names++] = copy;
	else
		place->whole = true;
}

bool fs_uplace_is_tree(const struct fs_unode *node)
{
	return fs_unode_is_dir(node) && node->has_lower && !node->origin &&
	       fs_uplace_find(node->upper, &node->lower.key) != NULL;
}

const char *const *fs_upper_hidden(const struct fs_upper *upper, size_t *nr)
{
	*nr = upper->nr_hidden;
	return (const char *const *)upper->hidden;
}

int fs_upper_each_stale(const struct fs_upper *upper,
			int (*each)(void *ctx, const struct fs_upper_stale *stale), void *ctx)
{
	int ret = 0;

	for (const struct fs_uplace *p = upper->places; ret == 0 && p; p = p->hh.next) {
		const struct fs_upper_stale stale = {
			.dir = p->path,
			.whole = p->whole,
			.changed = p->changed,
			.names = (const char *const *)p->names,
			.nr = p->nr_names,
		};

		if (p->whole || p->changed || p->nr_names > 0)
			ret = each(ctx, &stale);
	}
	return ret;
}
