/* fs/sandbox/plan.c - which layers a sandbox needs, and where (design 6.6) */
#include "fs/sandbox/plan.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"

/*
 * A writable area is PATH for an output given as PATH/, else the parent of PATH.
 *
 *   area absent in the tree      bind at its topmost absent directory (PATH/: at PATH)
 *   area an empty directory      bind there
 *   area a directory with inputs overlay there
 *   policies dirs and all        overlay at the root
 *
 * A layer covers the areas below it; only PATH/ without inputs gets a bind of its own
 * on top, since a mount point cannot be removed. A bind never covers inputs, so an
 * overlay is never wanted below one.
 */

struct planner {
	const struct fs_outputs *outputs;
	const struct fs_plan_tree *tree;
	struct fs_plan plan;
	struct err *err;
};

static int add_dir(struct fs_plan *plan, const char *path)
{
	char **grown;

	for (size_t i = 0; i < plan->nr_dirs; i++) {
		if (strcmp(plan->dirs[i], path) == 0)
			return 0;
	}
	grown = realloc(plan->dirs, (plan->nr_dirs + 1) * sizeof(*grown));
	if (grown == NULL)
		return -ENOMEM;
	plan->dirs = grown;
	grown[plan->nr_dirs] = strdup(path);
	if (grown[plan->nr_dirs] == NULL)
		return -ENOMEM;
	plan->nr_dirs++;
	return 0;
}

static int add_layer(struct fs_plan *plan, enum fs_layer_kind kind, const char *path)
{
	struct fs_layer *grown;

	if (fs_plan_layer_at(plan, path) >= 0)
		return 0;
	grown = realloc(plan->layers, (plan->nr_layers + 1) * sizeof(*grown));
	if (grown == NULL)
		return -ENOMEM;
	plan->layers = grown;
	grown[plan->nr_layers].kind = kind;
	grown[plan->nr_layers].path = strdup(path);
	if (grown[plan->nr_layers].path == NULL)
		return -ENOMEM;
	plan->nr_layers++;
	return 0;
}

static int layer_compare(const void *a, const void *b)
{
	return fs_path_compare(((const struct fs_layer *)a)->path,
			       ((const struct fs_layer *)b)->path);
}

static int dir_compare(const void *a, const void *b)
{
	return fs_path_compare(*(char *const *)a, *(char *const *)b);
}

int fs_plan_layer_at(const struct fs_plan *plan, const char *path)
{
	for (size_t i = 0; i < plan->nr_layers; i++) {
		if (strcmp(plan->layers[i].path, path) == 0)
			return (int)i;
	}
	return -1;
}

/* The kind of the area at @path and the topmost directory that the tree lacks on the way. */
struct area {
	char path[PATH_MAX];
	char topmost[PATH_MAX]; /* valid when kind is ABSENT */
	enum fs_plan_kind kind;
};

static int not_a_dir(struct planner *p, const char *output, const char *path,
		     enum fs_plan_kind kind)
{
	return err_set(p->err, -ENOTDIR, "output %s: %s is a %s in the input tree", output, path,
		       kind == FS_PLAN_FILE ? "file" : "symlink");
}

static int area_of(struct planner *p, const struct fs_output *o, struct area *a)
{
	char part[PATH_MAX];
	char *slash;
	size_t end = 0;

	(void)stpcpy(a->path, o->path);
	slash = strrchr(a->path, '/');
	if (!o->premade)
		*(slash ? slash : a->path) = '\0';
	a->topmost[0] = '\0';
	a->kind = FS_PLAN_DIR;
	if (a->path[0] == '\0')
		return p->tree->look(p->tree->ctx, "", &a->kind, p->err);
	while (a->path[end] != '\0') {
		end += strcspn(a->path + end + (end > 0), "/") + (end > 0);
		memcpy(part, a->path, end);
		part[end] = '\0';
		if (a->kind != FS_PLAN_ABSENT) {
			int ret = p->tree->look(p->tree->ctx, part, &a->kind, p->err);

			if (ret < 0)
				return ret;
			if (a->kind == FS_PLAN_FILE || a->kind == FS_PLAN_SYMLINK)
				return not_a_dir(p, o->path, part, a->kind);
			if (a->kind == FS_PLAN_ABSENT)
				(void)stpcpy(a->topmost, part);
		}
		if (a->kind == FS_PLAN_ABSENT && add_dir(&p->plan, part) < 0)
			return err_set(p->err, -ENOMEM, "no memory for a plan");
	}
	return 0;
}

static int plan_area(struct planner *p, const struct fs_output *o, enum fs_writable policy)
{
	struct area a;
	int ret = area_of(p, o, &a);

	if (ret < 0 || policy != FS_WRITABLE_OUTPUTS)
		return ret;
	if (a.kind == FS_PLAN_ABSENT)
		ret = add_layer(&p->plan, FS_LAYER_BIND, o->premade ? a.path : a.topmost);
	else
		ret = add_layer(&p->plan,
				a.kind == FS_PLAN_EMPTY_DIR ? FS_LAYER_BIND : FS_LAYER_OVERLAY,
				a.path);
	return ret < 0 ? err_set(p->err, ret, "no memory for a plan") : 0;
}

/* Drop layers below another one. Sorted, so what covers a layer was kept before it. */
static void drop_covered(struct fs_plan *plan)
{
	size_t kept = 0;

	for (size_t i = 0; i < plan->nr_layers; i++) {
		if (kept > 0 && fs_path_within(plan->layers[i].path, plan->layers[kept - 1].path))
			free(plan->layers[i].path);
		else
			plan->layers[kept++] = plan->layers[i];
	}
	plan->nr_layers = kept;
}

/* Outputs given as PATH/ that hold no inputs become mount points, so that they stay. */
static int add_premade(struct planner *p)
{
	for (size_t i = 0; i < p->outputs->nr; i++) {
		const struct fs_output *o = &p->outputs->out[i];
		struct area a;
		int ret;

		if (!o->premade || o->path[0] == '\0')
			continue;
		ret = area_of(p, o, &a);
		if (ret < 0)
			return ret;
		if (a.kind != FS_PLAN_DIR && add_layer(&p->plan, FS_LAYER_BIND, o->path) < 0)
			return err_set(p->err, -ENOMEM, "no memory for a plan");
	}
	return 0;
}

int fs_plan_make(const struct fs_outputs *outputs, enum fs_writable policy,
		 const struct fs_plan_tree *tree, struct fs_plan *out, struct err *err)
{
	struct planner p = {.outputs = outputs, .tree = tree, .err = err};
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < outputs->nr; i++)
		ret = plan_area(&p, &outputs->out[i], policy);
	if (ret == 0 && policy != FS_WRITABLE_OUTPUTS &&
	    add_layer(&p.plan, FS_LAYER_OVERLAY, "") < 0)
		ret = err_set(err, -ENOMEM, "no memory for a plan");
	if (ret == 0 && p.plan.nr_layers > 1) {
		qsort(p.plan.layers, p.plan.nr_layers, sizeof(*p.plan.layers), layer_compare);
		drop_covered(&p.plan);
	}
	if (ret == 0)
		ret = add_premade(&p);
	if (ret < 0) {
		fs_plan_fini(&p.plan);
		return ret;
	}
	if (p.plan.nr_layers > 1)
		qsort(p.plan.layers, p.plan.nr_layers, sizeof(*p.plan.layers), layer_compare);
	if (p.plan.nr_dirs > 1)
		qsort(p.plan.dirs, p.plan.nr_dirs, sizeof(*p.plan.dirs), dir_compare);
	*out = p.plan;
	return 0;
}

int fs_plan_serve(struct fs_plan *plan, bool always)
{
	if (plan->nr_layers == 0 && !always)
		return 0;
	for (size_t i = 0; i < plan->nr_layers; i++)
		free(plan->layers[i].path);
	plan->nr_layers = 0;
	return add_layer(plan, FS_LAYER_SERVED, "");
}

bool fs_plan_is_served(const struct fs_plan *plan)
{
	return plan->nr_layers == 1 && plan->layers[0].kind == FS_LAYER_SERVED;
}

void fs_plan_fini(struct fs_plan *plan)
{
	for (size_t i = 0; i < plan->nr_layers; i++)
		free(plan->layers[i].path);
	for (size_t i = 0; i < plan->nr_dirs; i++)
		free(plan->dirs[i]);
	free(plan->layers);
	free(plan->dirs);
	memset(plan, 0, sizeof(*plan));
}
