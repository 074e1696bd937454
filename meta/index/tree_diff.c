/* meta/index/tree_diff.c - what two trees do not have in common */
/*
 * Equal digests are equal trees, so only pairs of directories with different digests are
 * compared, and from them come the next pairs. A stack of our own holds what is still to be
 * compared: trees may be 10,000 deep. A directory that only one tree has is a pair with the
 * empty one. Changes are collected and sorted in the end, since the order of paths as bytes
 * ("a-b" before "a/b") is none of a walk.
 */
#include "meta/index/tree_diff.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"

#define MODE_MASK 0777

/* Two directories to be compared. */
struct pair {
	struct pair *next;
	struct cas_digest old;
	struct cas_digest new;
	bool lone; /* one of them is not there at all, rather than empty */
	char path[];
};

struct walk {
	struct meta *meta;
	bool whole;
	size_t max;
	struct meta_changes *out;
	struct pair *stack;
	const struct pair *at;
	size_t nr_below; /* entries of the pair at hand that differ */
	struct err *err;
};

static void side_of_entry(const struct meta_dirent *e, struct meta_change_side *out)
{
	*out = (struct meta_change_side){
		.kind = e->kind,
		.executable = e->executable,
		.has_mtime = e->has_mtime,
		.has_mode = e->has_mode,
		.mtime_nsec = e->has_mtime ? e->mtime_nsec : 0,
		.mtime_sec = e->has_mtime ? e->mtime_sec : 0,
		.mode = e->has_mode ? e->mode & MODE_MASK : 0,
		.digest = e->digest,
	};
}

static int side_of_dir(struct meta *meta, const struct cas_digest *digest,
		       struct meta_change_side *out, struct err *err)
{
	struct meta_dirinfo info;
	int ret = meta_dir_info(meta, digest, &info, err);

	if (ret < 0)
		return ret;
	*out = (struct meta_change_side){
		.kind = CAS_NODE_DIRECTORY,
		.has_mtime = info.props.has_mtime,
		.has_mode = info.props.has_mode,
		.mtime_nsec = info.props.has_mtime ? info.props.mtime_nsec : 0,
		.mtime_sec = info.props.has_mtime ? info.props.mtime_sec : 0,
		.mode = info.props.has_mode ? info.props.mode & MODE_MASK : 0,
		.digest = *digest,
	};
	return 0;
}

static int fill_side(struct walk *w, const struct meta_dirent *e, struct meta_change_side *out)
{
	int ret;

	side_of_entry(e, out);
	if (e->kind == CAS_NODE_DIRECTORY) {
		ret = side_of_dir(w->meta, &e->digest, out, w->err);
		/* What is in it is not told, so it may be anywhere. */
		return ret == -ENOENT && !w->whole ? 0 : ret;
	}
	if (e->kind != CAS_NODE_SYMLINK)
		return 0;
	out->target = strdup(e->target);
	return out->target ? 0 : -ENOMEM;
}

/* Room for one more; NULL: no memory. */
static struct meta_change *next_change(struct meta_changes *out)
{
	if (out->nr == out->cap) {
		size_t cap = out->cap ? 2 * out->cap : 64;
		void *grown = realloc(out->list, cap * sizeof(*out->list));

		if (grown == NULL)
			return NULL;
		out->list = grown;
		out->cap = cap;
	}
	out->list[out->nr] = (struct meta_change){0};
	return &out->list[out->nr];
}

static int join(const char *dir, const char *name, char **out)
{
	if (asprintf(out, "%s%s%s", dir, *dir && *name ? "/" : "", name) < 0) {
		*out = NULL;
		return -ENOMEM;
	}
	return 0;
}

static int add_pair(struct walk *w, const char *name, const struct cas_digest *old,
		    const struct cas_digest *new, bool lone)
{
	size_t len = w->at ? strlen(w->at->path) : 0;
	size_t name_len = strlen(name);
	struct pair *pair = malloc(sizeof(*pair) + len + name_len + 2);

	if (pair == NULL)
		return -ENOMEM;
	*pair = (struct pair){w->stack, *old, *new, lone};
	(void)sprintf(pair->path, "%s%s%s", w->at ? w->at->path : "", len > 0 ? "/" : "", name);
	w->stack = pair;
	return 0;
}

/* 1: there is room for no more. */
static int tell(struct walk *w, enum meta_change_kind kind, const struct meta_dirent *old,
		const struct meta_dirent *new)
{
	struct meta_change *change;
	int ret;

	if (w->max > 0 && w->out->nr == w->max) {
		w->out->cut = true;
		return 1;
	}
	change = next_change(w->out);
	if (change == NULL)
		return -ENOMEM;
	change->kind = kind;
	ret = join(w->at->path, old ? old->name : new->name, &change->path);
	/* From here on it is freed with the list. */
	if (ret == 0)
		w->out->nr++;
	if (ret == 0 && old)
		ret = fill_side(w, old, &change->old);
	if (ret == 0 && new)
		ret = fill_side(w, new, &change->new);
	return ret;
}

/* A directory that one tree alone has, by what is in it. */
static int below(struct walk *w, const struct meta_dirent *old, const struct meta_dirent *new)
{
	const struct meta_dirent *e = old ? old : new;

	if (!w->whole || e->kind != CAS_NODE_DIRECTORY)
		return 0;
	return add_pair(w, e->name, old ? &old->digest : &cas_digest_empty,
			new ? &new->digest : &cas_digest_empty, true);
}

static int differ(void *ctx, const struct meta_dirent *old, const struct meta_dirent *new)
{
	struct walk *w = ctx;
	int ret;

	w->nr_below++;
	if (old && new && old->kind == CAS_NODE_DIRECTORY &&new->kind == CAS_NODE_DIRECTORY)
		return add_pair(w, old->name, &old->digest, &new->digest, false);
	if (old && new)
		ret = tell(w, old->kind == new->kind ? META_CHANGE_MODIFIED : META_CHANGE_TYPE, old,
			   new);
	else
		ret = tell(w, old ? META_CHANGE_DELETED : META_CHANGE_ADDED, old, new);
	if (ret == 0 && (!old || !new || old->kind != new->kind)) {
		if (old)
			ret = below(w, old, NULL);
		if (ret == 0 && new)
			ret = below(w, NULL, new);
	}
	return ret;
}

static bool sides_equal(const struct meta_change_side *a, const struct meta_change_side *b)
{
	return a->has_mtime == b->has_mtime && a->has_mode == b->has_mode &&
	       a->mtime_sec == b->mtime_sec && a->mtime_nsec == b->mtime_nsec && a->mode == b->mode;
}

/* The directories themselves, when that is all in which they differ, or something more. */
static int tell_dir(struct walk *w)
{
	struct meta_change_side old;
	struct meta_change_side new;
	struct meta_change *change;
	bool other;
	int ret = side_of_dir(w->meta, &w->at->old, &old, w->err);

	if (ret == 0)
		ret = side_of_dir(w->meta, &w->at->new, &new, w->err);
	if (ret < 0)
		return ret;
	other = w->nr_below == 0 && sides_equal(&old, &new);
	if (!other && sides_equal(&old, &new))
		return 0;
	if (w->max > 0 && w->out->nr == w->max) {
		w->out->cut = true;
		return 1;
	}
	change = next_change(w->out);
	if (change == NULL)
		return -ENOMEM;
	*change = (struct meta_change){
		.kind = META_CHANGE_MODIFIED, .other = other, .old = old, .new = new};
	change->path = strdup(w->at->path);
	if (change->path == NULL)
		return -ENOMEM;
	w->out->nr++;
	return 0;
}

static int compare_pair(struct walk *w)
{
	int ret;

	w->nr_below = 0;
	w->out->nr_dirs += 2U - (unsigned)w->at->lone;
	ret = meta_dir_diff(w->meta, &w->at->old, &w->at->new, differ, w, NULL, w->err);
	/* Where differ() stopped for want of room, 0 is returned, and cut is set. */
	if (ret == 0 && !w->at->lone && !w->out->cut)
		ret = tell_dir(w);
	return ret < 0 ? ret : 0;
}

static int compare_paths(const void *a, const void *b)
{
	return strcmp(((const struct meta_change *)a)->path, ((const struct meta_change *)b)->path);
}

int meta_tree_diff(struct meta *meta, const struct cas_digest *old, const struct cas_digest *new,
		   bool whole, size_t max, struct meta_changes *out, struct err *err)
{
	struct meta_changes got = {0};
	struct walk w = {.meta = meta, .whole = whole, .max = max, .out = &got, .err = err};
	int ret = cas_digest_equal(old, new) ? 0 : add_pair(&w, "", old, new, false);

	while (ret == 0 && w.stack && !got.cut) {
		struct pair *pair = w.stack;

		w.stack = pair->next;
		w.at = pair;
		ret = compare_pair(&w);
		w.at = NULL;
		free(pair);
	}
	while (w.stack) {
		struct pair *next = w.stack->next;

		free(w.stack);
		w.stack = next;
	}
	if (ret < 0) {
		meta_changes_fini(&got);
		return ret == -ENOMEM ? err_set(err, ret, "no memory to compare two trees") : ret;
	}
	if (got.nr > 1)
		qsort(got.list, got.nr, sizeof(*got.list), compare_paths);
	*out = got;
	return 0;
}

void meta_changes_fini(struct meta_changes *changes)
{
	for (size_t i = 0; i < changes->nr; i++) {
		free(changes->list[i].path);
		free(changes->list[i].old.target);
		free(changes->list[i].new.target);
	}
	free(changes->list);
	*changes = (struct meta_changes){0};
}
