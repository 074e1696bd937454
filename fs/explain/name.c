/* fs/explain/name.c - why a name is, or is not, found in a tree */
/*
 * The path is followed as the kernel would, in the Directories: links inside of the tree are
 * followed, what leads out of it is another place's business. Where a name is missing, names
 * that may have been meant are looked for: beside it, and anywhere in the tree.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HASH_NONFATAL_OOM	     1
#define HASH_FUNCTION(key, len, out) ((void)(len), memcpy(&(out), (key), sizeof(out)))
#include <uthash.h>

#include "cas/cas.h"
#include "fs/explain/explain_i.h"
#include "fs/explain/spot.h"
#include "fs/sandbox/outputs.h"
#include "fs/trace/trace.h"
#include "meta/meta.h"

#define LINKS_MAX   40 /* as the kernel */
#define DEPTH_MAX   4096
#define NEAR_MAX    2
#define ELSEWHERE   5
#define ENTRIES_MAX 500000 /* of the tree, looked through for the name */

/* Where the walk is: the directories from the root down. */
struct place {
	struct cas_digest digest;
	char name[CAS_NAME_MAX + 1];
};

struct walk {
	const struct fs_explain *ex;
	struct place *at;
	size_t depth; /* at[0] is the root */
	char *rest;   /* of the path */
	unsigned nr_links;
	json_t *links;
	json_t *out;
	struct err *err;
};

static char *place_text(const struct walk *w)
{
	struct buf b = {0};

	for (size_t i = 1; i <= w->depth; i++) {
		if (buf_printf(&b, "%s%s", i > 1 ? "/" : "", w->at[i].name) < 0) {
			buf_fini(&b);
			return NULL;
		}
	}
	return b.data ? buf_steal(&b) : strdup("");
}

/* What was found out: a word, and the directory where it was. */
static int verdict(struct walk *w, const char *why, const char *name)
{
	auto_free char *dir = place_text(w);
	int ret = dir ? fs_explain_set(w->out, "why", json_string(why)) : -ENOMEM;

	if (ret == 0)
		ret = fs_explain_set(w->out, "in", json_string(dir));
	if (ret == 0)
		ret = fs_explain_set(w->out, "in_digest",
				     fs_explain_digest(&w->at[w->depth].digest));
	if (ret == 0 && name)
		ret = fs_explain_set(w->out, "name", json_string(name));
	return ret < 0 ? ret : 1;
}

/* --- names that may have been meant --- */

static size_t distance(const char *a, const char *b)
{
	size_t row[CAS_NAME_MAX + 2];
	size_t len = strlen(b);

	for (size_t j = 0; j <= len; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1] != '\0'; i++) {
		size_t corner = row[0];

		row[0] = i;
		for (size_t j = 1; j <= len; j++) {
			size_t best = corner + (a[i - 1] != b[j - 1]);

			corner = row[j];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[len];
}

struct near {
	const char *name;
	json_t *by_case;
	json_t *near;
};

static int look_near(void *ctx, uint64_t index, const struct meta_dirent *e)
{
	struct near *n = ctx;
	size_t len = strlen(n->name);
	size_t e_len = e->name_len;
	json_t *list = NULL;

	(void)index;
	if (strcasecmp(e->name, n->name) == 0)
		list = n->by_case;
	else if (len > 3 && json_array_size(n->near) < EXPLAIN_LISTED &&
		 (len > e_len ? len - e_len : e_len - len) <= NEAR_MAX &&
		 distance(n->name, e->name) <= (len < 6 ? 1 : NEAR_MAX))
		list = n->near;
	return list && json_array_append_new(list, json_string(e->name)) < 0 ? -ENOMEM : 0;
}

static int add_near(struct walk *w, const char *name)
{
	struct near n = {name, json_array(), json_array()};
	int ret = n.by_case && n.near ? 0 : -ENOMEM;

	if (ret == 0)
		ret = meta_dir_list(w->ex->meta, &w->at[w->depth].digest, 0, look_near, &n, NULL);
	if (ret == 0 && json_array_size(n.by_case) > 0)
		ret = fs_explain_set(w->out, "other_case", json_incref(n.by_case));
	if (ret == 0 && json_array_size(n.near) > 0)
		ret = fs_explain_set(w->out, "similar", json_incref(n.near));
	json_decref(n.by_case);
	json_decref(n.near);
	return ret;
}

/* A directory that waits to be looked through, or was. */
struct todo {
	uint8_t hash[CAS_HASH_SZ];
	UT_hash_handle hh;
	struct todo *next;
	struct cas_digest digest;
	char path[];
};

struct elsewhere {
	const char *name;
	struct todo *all;
	struct todo *stack;
	const struct todo *at;
	uint64_t nr_entries;
	json_t *found;
};

static int push(struct elsewhere *e, const char *dir, const char *name,
		const struct cas_digest *digest)
{
	struct todo *t;

	HASH_FIND(hh, e->all, digest->hash, CAS_HASH_SZ, t);
	if (t)
		return 0;
	t = malloc(sizeof(*t) + strlen(dir) + strlen(name) + 2);
	if (!t)
		return -ENOMEM;
	memcpy(t->hash, digest->hash, CAS_HASH_SZ);
	t->digest = *digest;
	(void)sprintf(t->path, "%s%s%s", dir, *dir && *name ? "/" : "", name);
	HASH_ADD(hh, e->all, hash, CAS_HASH_SZ, t);
	if (!t->hh.tbl) {
		free(t);
		return -ENOMEM;
	}
	t->next = e->stack;
	e->stack = t;
	return 0;
}

static int look_elsewhere(void *ctx, uint64_t index, const struct meta_dirent *entry)
{
	struct elsewhere *e = ctx;

	(void)index;
	if (++e->nr_entries > ENTRIES_MAX)
		return 1;
	if (strcmp(entry->name, e->name) == 0) {
		json_t *path =
			json_sprintf("%s%s%s", e->at->path, *e->at->path ? "/" : "", entry->name);

		if (json_array_append_new(e->found, path) < 0)
			return -ENOMEM;
		if (json_array_size(e->found) >= ELSEWHERE)
			return 1;
	}
	return entry->kind == CAS_NODE_DIRECTORY ? push(e, e->at->path, entry->name, &entry->digest)
						 : 0;
}

static int add_elsewhere(struct walk *w, const char *name)
{
	struct elsewhere e = {.name = name, .found = json_array()};
	struct todo *t;
	struct todo *next;
	int ret = e.found ? push(&e, "", "", &w->at[0].digest) : -ENOMEM;

	while (ret == 0 && e.stack && e.nr_entries <= ENTRIES_MAX &&
	       json_array_size(e.found) < ELSEWHERE) {
		e.at = e.stack;
		e.stack = e.stack->next;
		ret = meta_dir_list(w->ex->meta, &e.at->digest, 0, look_elsewhere, &e, NULL);
		/* What cannot be read is not looked through. */
		ret = ret == -ENOMEM ? ret : 0;
	}
	HASH_ITER (hh, e.all, t, next) {
		HASH_DEL(e.all, t);
		free(t);
	}
	if (ret == 0 && json_array_size(e.found) > 0)
		ret = fs_explain_set(w->out, "elsewhere", json_incref(e.found));
	json_decref(e.found);
	return ret;
}

static int missing(struct walk *w, const char *name)
{
	int ret = verdict(w, "missing", name);

	if (ret > 0)
		ret = add_near(w, name);
	if (ret == 0)
		ret = add_elsewhere(w, name);
	return ret < 0 ? ret : 1;
}

/* --- the walk --- */

static int found(struct walk *w, const struct meta_dirent *e)
{
	struct meta_change_side side = {
		.kind = e->kind,
		.executable = e->executable,
		.has_mode = e->has_mode,
		.mode = e->mode & 0777,
		.digest = e->digest,
		.target = e->target,
	};
	int ret = verdict(w, "found", e->name);

	if (ret > 0)
		ret = fs_explain_set(w->out, "entry", fs_side_describe(&side));
	if (ret == 0)
		ret = fs_explain_set(w->out, "shown_mode", json_integer(fs_side_mode(&side)));
	if (ret == 0 && e->kind == CAS_NODE_FILE)
		ret = fs_explain_set(w->out, "present",
				     json_boolean(cas_store_has(w->ex->store, &e->digest) == 1));
	return ret < 0 ? ret : 1;
}

/* Each link is told once, however often a loop comes by. */
static int add_link(struct walk *w, const char *name, const char *target)
{
	auto_free char *dir = place_text(w);
	json_t *at = dir ? json_sprintf("%s%s%s", dir, *dir ? "/" : "", name) : NULL;
	json_t *told;
	size_t i;

	json_array_foreach(w->links, i, told)
	{
		if (at && json_equal(json_object_get(told, "link"), at)) {
			json_decref(at);
			return 0;
		}
	}
	return at && json_array_append_new(
			     w->links, json_pack("{s:o, s:s}", "link", at, "target", target)) == 0
		       ? 0
		       : -ENOMEM;
}

/* The link @name leads to @target, and the walk goes on from there. */
static int follow(struct walk *w, const char *name, const char *target, const char *rest)
{
	char *joined;

	if (add_link(w, name, target) < 0)
		return -ENOMEM;
	if (++w->nr_links > LINKS_MAX)
		return verdict(w, "loop", name);
	if (target[0] == '/')
		return verdict(w, "link-outside", name);
	/* @rest begins with a slash, or is empty: then the link's target may be a file. */
	if (asprintf(&joined, "%s%s", target, rest) < 0)
		return -ENOMEM;
	free(w->rest);
	w->rest = joined;
	return 0;
}

static int enter(struct walk *w, const struct meta_dirent *e)
{
	if (w->depth + 1 >= DEPTH_MAX)
		return verdict(w, "too-deep", e->name);
	w->depth++;
	w->at[w->depth].digest = e->digest;
	(void)strcpy(w->at[w->depth].name, e->name);
	return 0;
}

/* One component, with what comes after it. 1: all is said. */
static int step(struct walk *w, const char *name, const char *rest)
{
	struct meta_dirent e = {0};
	bool last = rest[strspn(rest, "/")] == '\0';
	int ret;

	if (strcmp(name, "..") == 0) {
		if (w->depth == 0)
			return verdict(w, "outside", NULL);
		w->depth--;
		return 0;
	}
	if (strlen(name) > CAS_NAME_MAX)
		return verdict(w, "name-too-long", NULL);
	ret = meta_dir_find(w->ex->meta, &w->at[w->depth].digest, name, &e, w->err);
	if (ret == -ENOENT || ret == -EUCLEAN)
		return verdict(w, ret == -ENOENT ? "directory-missing" : "directory-broken", name);
	if (ret <= 0)
		return ret < 0 ? ret : missing(w, name);
	if (e.kind == CAS_NODE_SYMLINK)
		ret = follow(w, name, e.target, rest);
	else if (e.kind == CAS_NODE_DIRECTORY && !last)
		ret = enter(w, &e);
	else if (e.kind == CAS_NODE_DIRECTORY || *rest == '\0')
		ret = found(w, &e);
	else
		ret = verdict(w, "not-a-directory", name);
	meta_dirent_fini(&e);
	return ret;
}

static int run(struct walk *w)
{
	int ret = 0;

	while (ret == 0) {
		char *rest = w->rest + strspn(w->rest, "/");
		auto_free char *name = NULL;
		auto_free char *after = NULL;
		unsigned links = w->nr_links;

		if (*rest == '\0') {
			ret = verdict(w, "found-directory", NULL);
			break;
		}
		name = strndup(rest, strcspn(rest, "/"));
		after = strdup(rest + strcspn(rest, "/"));
		if (!name || !after)
			return -ENOMEM;
		ret = strcmp(name, ".") == 0 ? 0 : step(w, name, after);
		/* A link has put what it leads to before it. */
		if (ret == 0 && w->nr_links == links) {
			free(w->rest);
			w->rest = steal_ptr(&after);
		}
	}
	return ret < 0 ? ret : 0;
}

/* --- what the sandbox itself adds --- */

/* Is @path an output, below one, or above? */
static int add_outputs(struct walk *w, const struct fs_record *rec, const char *path)
{
	size_t len = strlen(path);

	for (size_t i = 0; i < rec->nr_given; i++) {
		auto_free char *out = strdup(rec->given[i]);
		size_t out_len = out ? strlen(out) : 0;

		if (!out)
			return -ENOMEM;
		while (out_len > 0 && out[out_len - 1] == '/')
			out[--out_len] = '\0';
		if (strncmp(path, out, out_len) == 0 &&
		    (path[out_len] == '/' || path[out_len] == '\0' || out_len == 0))
			return fs_explain_set(w->out, "output", json_string(rec->given[i]));
		if (len > 0 && strncmp(out, path, len) == 0 && out[len] == '/')
			return fs_explain_set(w->out, "above_output", json_string(rec->given[i]));
	}
	return 0;
}

/* Does the text of a trace have the line @path? */
static bool has_line(const struct buf *text, const char *path)
{
	size_t len = strlen(path);

	for (const char *p = buf_str(text); *p != '\0'; p += strcspn(p, "\n"), p += *p == '\n')
		if (strncmp(p, path, len) == 0 && (p[len] == '\n' || p[len] == '\0'))
			return true;
	return false;
}

static int add_trace(struct walk *w, const char *id, const char *path)
{
	static const struct {
		enum fs_trace_text text;
		const char *key;
	} texts[] = {
		{FS_TRACE_TEXT_FAILED, "looked_for_in_vain"},
		{FS_TRACE_TEXT_READ, "read"},
	};
	int ret = 0;

	for (size_t i = 0; w->ex->sandboxes && ret == 0 && i < 2; i++) {
		auto_buf struct buf text = {0};

		if (fs_trace_text(w->ex->sandboxes, id, texts[i].text, &text, NULL) == 0 &&
		    has_line(&text, path))
			ret = fs_explain_set(w->out, texts[i].key, json_true());
	}
	return ret;
}

static int add_sandbox(struct walk *w, const char *id, const char *path)
{
	struct fs_record rec = {0};
	auto_close int dir_fd = -1;
	int ret = fs_explain_set(w->out, "sandbox", json_string(id));

	if (ret == 0 && fs_explain_record(w->ex->store, id, &rec, &dir_fd, NULL) == 0)
		ret = add_outputs(w, &rec, path);
	fs_record_fini(&rec);
	return ret == 0 ? add_trace(w, id, path) : ret;
}

int fs_explain_name(const struct fs_explain *ex, const struct cas_digest *root, const char *id,
		    const char *path, json_t **out, struct err *err)
{
	struct walk w = {.ex = ex, .err = err};
	json_t *text = json_string(path);
	int ret;

	if (!text)
		return err_set(err, -EINVAL, "the path is not UTF-8, as all names in trees are");
	json_decref(text);
	w.links = json_array();
	w.at = calloc(DEPTH_MAX, sizeof(*w.at));
	w.rest = strdup(path);
	w.out = json_pack("{s:s, s:s, s:o}", "about", "name", "path", path, "root",
			  fs_explain_digest(root));
	ret = w.at && w.rest && w.links && w.out ? 0 : -ENOMEM;
	if (ret == 0 && path[0] == '/') {
		w.at[0].digest = *root;
		ret = verdict(&w, "absolute", NULL) < 0 ? -ENOMEM : 0;
	} else if (ret == 0) {
		w.at[0].digest = *root;
		ret = run(&w);
	}
	if (ret == 0 && json_array_size(w.links) > 0)
		ret = fs_explain_set(w.out, "links", json_incref(w.links));
	if (ret == 0 && id)
		ret = add_sandbox(&w, id, path);
	free(w.at);
	free(w.rest);
	json_decref(w.links);
	if (ret < 0)
		json_decref(w.out);
	else
		*out = w.out;
	return ret == -ENOMEM ? err_set(err, ret, "no memory to explain a name") : ret;
}
