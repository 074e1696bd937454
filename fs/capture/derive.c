/* fs/capture/derive.c - input trees with entries added, replaced or dropped, in memory */
#include "fs/capture/derive.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/store/store.h"
#include "meta/meta.h"

/* @orig lends its properties to @dir. */
struct derived_dir {
	struct cas_digest digest;
	struct cas_directory *dir;
	struct cas_directory *orig;
};

struct fs_derived {
	struct cas_digest root;
	size_t nr;
	size_t nr_held;
	struct derived_dir *dirs;
};

struct deriver {
	struct meta *meta;
	struct fs_derived *out;
	struct err *err;
};

/* The grafts at and below one name of a directory. */
struct group {
	char name[CAS_NAME_MAX + 1];
	const struct fs_graft *grafts;
	size_t nr;
	bool leaf; /* the first one is at the name itself */
};

static int derive_dir(struct deriver *d, const struct cas_digest *from,
		      const struct fs_graft *grafts, size_t nr, size_t off, struct cas_digest *out);

static void group_next(const struct fs_graft *grafts, size_t nr, size_t off, struct group *g)
{
	const char *first = grafts[0].path + off;
	size_t len = strcspn(first, "/");

	if (len > CAS_NAME_MAX)
		len = CAS_NAME_MAX;
	memcpy(g->name, first, len);
	g->name[len] = '\0';
	g->grafts = grafts;
	g->leaf = first[len] == '\0';
	for (g->nr = 1; g->nr < nr; g->nr++) {
		const char *p = grafts[g->nr].path + off;

		if (strncmp(p, g->name, len) != 0 || (p[len] != '\0' && p[len] != '/'))
			break;
	}
}

static bool group_only_drops(const struct group *g)
{
	for (size_t i = 0; i < g->nr; i++) {
		if (g->grafts[i].op != FS_GRAFT_DROP)
			return false;
	}
	return true;
}

static bool group_sets(const struct group *g)
{
	for (size_t i = 0; i < g->nr; i++) {
		if (g->grafts[i].op == FS_GRAFT_SET)
			return true;
	}
	return false;
}

/* The group leads below its name: add a directory that holds the rest of the grafts. */
static int add_descent(struct deriver *d, const struct group *g, const struct cas_node *old,
		       size_t off, struct cas_directory *dir)
{
	bool is_dir = old && old->kind == CAS_NODE_DIRECTORY;
	size_t skip = g->leaf ? 1 : 0;
	struct cas_node node = {.kind = CAS_NODE_DIRECTORY, .name = g->name};
	int ret;

	if (!is_dir && group_only_drops(g))
		return old ? cas_directory_add(dir, old) : 0;
	if (old && !is_dir && !group_sets(g))
		return err_set(d->err, -ENOTDIR, "%s is no directory in the input tree",
			       g->grafts[0].path);
	ret = derive_dir(d, is_dir ? &old->digest : NULL, g->grafts + skip, g->nr - skip,
			 off + strlen(g->name) + 1, &node.digest);
	return ret < 0 ? ret : cas_directory_add(dir, &node);
}

static int add_group(struct deriver *d, const struct group *g, const struct cas_node *old,
		     size_t off, struct cas_directory *dir)
{
	struct cas_node node;

	if (!g->leaf || g->grafts[0].op == FS_GRAFT_DIR)
		return add_descent(d, g, old, off, dir);
	if (g->grafts[0].op == FS_GRAFT_DROP)
		return 0;
	node = g->grafts[0].node;
	node.name = g->name;
	return cas_directory_add(dir, &node);
}

static int fill_dir(struct deriver *d, const struct derived_dir *dd, const struct fs_graft *grafts,
		    size_t nr, size_t off)
{
	size_t nr_old = dd->orig->nr_nodes;
	auto_free bool *replaced = calloc(nr_old ? nr_old : 1, sizeof(*replaced));
	int ret = replaced ? 0 : -ENOMEM;

	for (size_t i = 0; ret == 0 && i < nr;) {
		struct group g;
		const struct cas_node *old;

		group_next(grafts + i, nr - i, off, &g);
		old = cas_directory_find(dd->orig, g.name);
		if (old)
			replaced[old - dd->orig->nodes] = true;
		ret = add_group(d, &g, old, off, dd->dir);
		i += g.nr;
	}
	for (size_t i = 0; ret == 0 && i < nr_old; i++) {
		if (!replaced[i])
			ret = cas_directory_add(dd->dir, &dd->orig->nodes[i]);
	}
	return ret;
}

static void dir_fini(struct derived_dir *dd)
{
	cas_directory_free(dd->dir);
	cas_directory_free(dd->orig);
}

/* Keep @dd unless the store has it anyhow; takes ownership. */
static int keep(struct deriver *d, struct derived_dir *dd, const struct cas_digest *from)
{
	struct derived_dir *grown;

	if (cas_digest_is_empty(&dd->digest) || (from && cas_digest_equal(&dd->digest, from)) ||
	    fs_derived_find(d->out, &dd->digest)) {
		dir_fini(dd);
		return 0;
	}
	grown = realloc(d->out->dirs, (d->out->nr + 1) * sizeof(*grown));
	if (grown == NULL) {
		dir_fini(dd);
		return -ENOMEM;
	}
	d->out->dirs = grown;
	grown[d->out->nr++] = *dd;
	return 0;
}

/* @from NULL: a directory that the tree lacks. */
static int derive_dir(struct deriver *d, const struct cas_digest *from,
		      const struct fs_graft *grafts, size_t nr, size_t off, struct cas_digest *out)
{
	struct derived_dir dd = {0};
	auto_buf struct buf bytes = {0};
	int ret = meta_dir_load(d->meta, from ? from : &cas_digest_empty, &dd.orig, d->err);

	if (ret < 0)
		return ret;
	ret = cas_directory_new(&dd.dir);
	if (ret == 0) {
		dd.dir->props = dd.orig->props;
		ret = fill_dir(d, &dd, grafts, nr, off);
	}
	if (ret == 0)
		ret = cas_directory_encode(dd.dir, &bytes, &dd.digest, d->err);
	if (ret < 0) {
		dir_fini(&dd);
		return ret;
	}
	*out = dd.digest;
	return keep(d, &dd, from);
}

int fs_derive(struct meta *meta, const struct cas_digest *root, const struct fs_graft *grafts,
	      size_t nr, struct fs_derived **out, struct err *err)
{
	struct deriver d = {.meta = meta, .out = calloc(1, sizeof(*d.out)), .err = err};
	int ret = 0;

	if (d.out == NULL)
		return err_set(err, -ENOMEM, "no memory for a derived root");
	d.out->root = *root;
	if (nr > 0 && grafts[0].path[0] == '\0') {
		if (grafts[0].op == FS_GRAFT_SET) {
			d.out->root = grafts[0].node.digest;
			nr = 1;
		}
		grafts++;
		nr--;
	}
	if (nr > 0)
		ret = derive_dir(&d, root, grafts, nr, 0, &d.out->root);
	if (ret < 0) {
		fs_derived_free(d.out);
		return ret == -ENOMEM ? err_set(err, ret, "no memory for a derived root") : ret;
	}
	*out = d.out;
	return 0;
}

void fs_derived_free(struct fs_derived *d)
{
	if (d == NULL)
		return;
	for (size_t i = 0; i < d->nr; i++)
		dir_fini(&d->dirs[i]);
	free(d->dirs);
	free(d);
}

const struct cas_digest *fs_derived_root(const struct fs_derived *d)
{
	return &d->root;
}

struct cas_directory *fs_derived_find(const struct fs_derived *d, const struct cas_digest *digest)
{
	for (size_t i = 0; i < d->nr; i++) {
		if (cas_digest_equal(&d->dirs[i].digest, digest))
			return d->dirs[i].dir;
	}
	return NULL;
}

int fs_derived_publish(struct fs_derived *d, struct cas_store *store,
		       const struct cas_digest *digest, struct err *err)
{
	struct cas_directory *dir = fs_derived_find(d, digest);
	struct cas_digest got;

	if (dir == NULL)
		return 0;
	for (size_t i = 0; i < dir->nr_nodes; i++) {
		int ret = 0;

		if (dir->nodes[i].kind == CAS_NODE_DIRECTORY)
			ret = fs_derived_publish(d, store, &dir->nodes[i].digest, err);
		if (ret < 0)
			return ret;
	}
	return cas_directory_put(store, dir, &got, err);
}

int fs_derived_hold(struct fs_derived *d, struct meta *meta, struct err *err)
{
	for (size_t i = 0; i < d->nr; i++) {
		struct cas_digest got;
		int ret = meta_dir_hold(meta, d->dirs[i].dir, &got, err);

		if (ret < 0) {
			fs_derived_release(d, meta);
			return ret;
		}
		d->nr_held = i + 1;
	}
	return 0;
}

void fs_derived_release(struct fs_derived *d, struct meta *meta)
{
	for (size_t i = 0; i < d->nr_held; i++)
		meta_dir_release(meta, &d->dirs[i].digest);
	d->nr_held = 0;
}
