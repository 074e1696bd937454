/* fs/capture/capture.c - declared outputs of a frozen sandbox become blobs */
#include "fs/capture/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/hash.h"
#include "fs/capture/capture_i.h"
#include "fs/capture/derive.h"

/*
 * Outputs may overlap (d, d/f). Only those without a declared ancestor are walked;
 * whenever the walk passes a declared path, that output's answer is noted. A file moves
 * into the store when the walk meets it, once, so no output can find it missing.
 *
 * Files are put by several threads, some of a directory at a time, before the walk comes
 * to them: what becomes of each is then told in order, as if it had been put there.
 *
 * A function that captures returns 1 (node filled in), 0 (left out, and listed when it
 * should not be) or a negative errno that ends the capture.
 */

#define FILES_MAX 256 /* of one directory, put at once */

void fs_capture_fini(struct fs_capture *c)
{
	for (size_t i = 0; i < c->nr; i++)
		free((char *)c->captured[i].node.target);
	free(c->captured);
	fs_findings_fini(&c->failed);
	memset(c, 0, sizeof(*c));
}

int fs_capture_no_memory(struct fs_capture_walk *w)
{
	return err_set(w->err, -ENOMEM, "no memory to capture %s", buf_str(&w->path));
}

/* List the entry at hand as not captured. */
static int fail(struct fs_capture_walk *w, const char *why)
{
	return fs_findings_add(&w->out->failed, buf_str(&w->path), why) < 0
		       ? fs_capture_no_memory(w)
		       : 0;
}

/* List the place at hand if the action saw something else there than we can. 1: it did. */
static int fail_foreign(struct fs_capture_walk *w)
{
	const struct fs_finding *f =
		w->opts->foreign ? fs_findings_find(w->opts->foreign, buf_str(&w->path)) : NULL;

	/* On the way to several outputs it is met several times. */
	if (f == NULL || fs_findings_find(&w->out->failed, f->path))
		return f != NULL;
	return fail(w, f->text) < 0 ? -ENOMEM : 1;
}

int fs_capture_push(struct fs_capture_walk *w, const char *name)
{
	int ret = 0;

	if (w->path.len > 0)
		ret = buf_append_char(&w->path, '/');
	if (ret == 0)
		ret = buf_append_str(&w->path, name);
	return ret < 0 ? fs_capture_no_memory(w) : 0;
}

void fs_capture_pop(struct fs_capture_walk *w, size_t len)
{
	w->path.len = len;
	if (w->path.data)
		w->path.data[len] = '\0';
}

/* If @path is declared, this is its answer. */
static int note(struct fs_capture_walk *w, const char *path, const struct cas_node *node)
{
	const struct fs_output *o = fs_outputs_find(w->outputs, path);
	struct fs_captured *c;

	if (o == NULL)
		return 0;
	c = &w->out->captured[o - w->outputs->out];
	c->found = true;
	c->node = *node;
	c->node.name = NULL;
	c->node.target = NULL;
	memset(&c->node.props, 0, sizeof(c->node.props));
	if (node->kind == CAS_NODE_SYMLINK) {
		c->node.target = strdup(node->target);
		if (c->node.target == NULL)
			return fs_capture_no_memory(w);
	}
	return 0;
}

/* An untouched directory was taken by its digest: answer the outputs declared below it. */
static int note_below(struct fs_capture_walk *w, const char *top, const struct cas_digest *dir)
{
	for (size_t i = 0; i < w->outputs->nr; i++) {
		const char *path = w->outputs->out[i].path;
		struct cas_digest at = *dir;
		const char *rest;
		int ret = 0;

		if (!fs_path_within(path, top) || strcmp(path, top) == 0)
			continue;
		for (rest = fs_path_rest(path, top); ret == 0 && *rest != '\0';) {
			char name[CAS_NAME_MAX + 1];
			size_t len = strcspn(rest, "/");
			struct cas_directory *d;
			const struct cas_node *node;
			bool owned;

			memcpy(name, rest, len);
			name[len] = '\0';
			rest += len;
			rest += *rest == '/';
			ret = fs_merge_load(w->m, &at, &d, &owned, w->err);
			if (ret < 0)
				return ret;
			node = cas_directory_find(d, name);
			if (node && *rest == '\0')
				ret = note(w, path, node);
			else if (node == NULL || node->kind != CAS_NODE_DIRECTORY)
				rest = "";
			else
				at = node->digest;
			if (owned)
				cas_directory_free(d);
		}
		if (ret < 0)
			return ret;
	}
	return 0;
}

/* An untouched directory is taken by its digest, whatever was mounted in it: name that. */
static int name_foreign_below(struct fs_capture_walk *w)
{
	const struct fs_findings *f = w->opts->foreign;

	for (size_t i = 0; i < f->nr; i++) {
		const char *path = f->found[i].path;

		if (fs_path_within(path, buf_str(&w->path)) &&
		    !fs_findings_find(&w->out->failed, path) &&
		    fs_findings_add(&w->out->failed, path, f->found[i].text) < 0)
			return fs_capture_no_memory(w);
	}
	return 0;
}

static int capture_input(struct fs_capture_walk *w, const struct cas_node *input,
			 struct cas_node *node)
{
	int ret = 0;

	*node = *input;
	if (input->kind != CAS_NODE_DIRECTORY)
		return 1;
	if (w->opts->foreign && name_foreign_below(w) < 0)
		return -ENOMEM;
	if (w->derived)
		ret = fs_derived_publish(w->derived, w->m->store, &input->digest, w->err);
	if (ret == 0)
		ret = note_below(w, buf_str(&w->path), &input->digest);
	return ret < 0 ? ret : 1;
}

static int capture_file(struct fs_capture_walk *w, const struct fs_put_file *f,
			struct cas_node *node)
{
	const char *why = f->why ? f->why : strerrordesc_np(-f->ret);

	if (f->fatal)
		return err_set(w->err, f->ret, "cannot capture %s: %s", f->path, why);
	if (f->ret < 0)
		return fail(w, why);
	node->kind = CAS_NODE_FILE;
	node->digest = f->digest;
	node->executable = f->st.st_mode & S_IXUSR;
	return 1;
}

/* One that was not put ahead. */
static int put_and_capture(struct fs_capture_walk *w, const struct fs_merge_dir *dir,
			   const char *name, const struct stat *st, struct cas_node *node)
{
	struct fs_put_file f = {.name = name, .path = w->path.data, .st = *st};
	int ret = fs_put_announce(w, dir->fd, &f, 1);

	if (ret < 0)
		return ret;
	fs_put_file(w, dir->fd, &f);
	ret = capture_file(w, &f, node);
	free(f.why);
	return ret;
}

static int capture_symlink(struct fs_capture_walk *w, const struct fs_merge_dir *dir,
			   const char *name, struct cas_node *node)
{
	ssize_t len = readlinkat(dir->fd, name, w->target, CAS_TARGET_MAX + 1);

	if (len < 0)
		return fail(w, strerrordesc_np(errno));
	if (len == 0 || len > CAS_TARGET_MAX)
		return fail(w, "its target is longer than a tree can hold");
	w->target[len] = '\0';
	node->kind = CAS_NODE_SYMLINK;
	node->target = w->target;
	return 1;
}

static const char *other_name(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFSOCK:
		return "is a socket";
	case S_IFIFO:
		return "is a FIFO";
	case S_IFCHR:
	case S_IFBLK:
		return "is a device";
	default:
		return "is of a kind that no tree can hold";
	}
}

static int capture_dir(struct fs_capture_walk *w, struct fs_merge_dir *dir, struct cas_node *node);

/* Capture what was looked up at the path at hand, and answer for that path. */
static int capture_entry(struct fs_capture_walk *w, const struct fs_merge_dir *parent,
			 const char *name, struct fs_entry *entry, const struct fs_put_file *put,
			 struct cas_node *node)
{
	int ret = 0;

	memset(node, 0, sizeof(*node));
	ret = fail_foreign(w);
	if (ret != 0)
		return ret < 0 ? ret : 0;
	switch (entry->kind) {
	case FS_ENTRY_NONE:
		return 0;
	case FS_ENTRY_INPUT:
		ret = capture_input(w, entry->node, node);
		break;
	case FS_ENTRY_FILE:
		ret = put ? capture_file(w, put, node)
			  : put_and_capture(w, parent, name, &entry->st, node);
		break;
	case FS_ENTRY_SYMLINK:
		ret = capture_symlink(w, parent, name, node);
		break;
	case FS_ENTRY_DIR:
		ret = capture_dir(w, &entry->dir, node);
		break;
	case FS_ENTRY_OTHER:
		ret = fail(w, other_name(entry->st.st_mode));
		break;
	case FS_ENTRY_ERROR:
		ret = fail(w, strerrordesc_np(-entry->code));
		break;
	}
	if (ret > 0 && note(w, buf_str(&w->path), node) < 0)
		return -ENOMEM;
	return ret;
}

/* @put: it is a file, and that became of it; or NULL. */
static int capture_child(struct fs_capture_walk *w, struct fs_merge_dir *dir,
			 const struct fs_listing *list, const char *name,
			 const struct fs_put_file *put, struct cas_directory *out)
{
	struct fs_entry entry = {.kind = FS_ENTRY_FILE, .dir = {.fd = -1}};
	struct cas_node node;
	int ret = 0;
	bool park;

	if (put == NULL)
		ret = fs_merge_child(w->m, dir, list, buf_str(&w->path), name, &entry, w->err);
	park = ret == 0 && entry.kind == FS_ENTRY_DIR && w->depth > FS_WALK_DEPTH_OPEN;
	if (ret < 0)
		return ret;
	if (entry.kind != FS_ENTRY_NONE && cas_name_check(name, strlen(name)) < 0) {
		fs_entry_fini(&entry);
		return fail(w, "its name is not one that a tree can hold");
	}
	if (park)
		fs_merge_park(dir, &entry.dir);
	ret = capture_entry(w, dir, name, &entry, put, &node);
	if (ret >= 0 && park) {
		int back = fs_merge_unpark(dir, &entry.dir, w->err);

		ret = back < 0 ? back : ret;
	}
	if (ret > 0) {
		node.name = name;
		ret = cas_directory_add(out, &node);
	}
	fs_entry_fini(&entry);
	return ret;
}

/* Some names of a directory: their files at once, then all in order. */
static int capture_some(struct fs_capture_walk *w, struct fs_merge_dir *dir,
			const struct fs_listing *list, size_t from, size_t to,
			struct cas_directory *out)
{
	struct fs_put_files a = {.w = w, .dir_fd = dir->fd};
	size_t len = w->path.len;
	size_t at = 0;
	int ret = fs_put_files(&a, dir, list, from, to);

	for (size_t i = from; ret == 0 && i < to; i++) {
		const char *name = list->names[i].name;
		bool is_put = at < a.nr && a.files[at].name == name;

		ret = fs_capture_push(w, name);
		if (ret == 0)
			ret = capture_child(w, dir, list, name, is_put ? &a.files[at] : NULL, out);
		at += is_put;
		fs_capture_pop(w, len);
	}
	fs_put_files_fini(&a);
	return ret;
}

static int capture_children(struct fs_capture_walk *w, struct fs_merge_dir *dir,
			    struct cas_directory *out)
{
	struct fs_listing list = {0};
	int ret = fs_merge_list(w->m, dir, buf_str(&w->path), FS_LIST_ALL, &list, w->err);

	for (size_t i = 0; ret == 0 && i < list.nr; i += FILES_MAX) {
		size_t left = list.nr - i;

		ret = capture_some(w, dir, &list, i, i + (left < FILES_MAX ? left : FILES_MAX),
				   out);
	}
	fs_listing_fini(&list);
	return ret;
}

/* @raw is taken over; it is in the store when the capture is over. */
static int add_blob(struct fs_capture_walk *w, const struct cas_digest *digest, struct buf *raw)
{
	int ret = 0;

	if (fs_blobs_are_full(&w->blobs))
		ret = fs_blobs_put(&w->blobs, w->m->store, w->opts->crew, w->err);
	return ret < 0 ? ret : fs_blobs_add(&w->blobs, digest, raw);
}

static int add_dir(struct fs_capture_walk *w, struct cas_directory *dir, struct cas_digest *out)
{
	auto_buf struct buf raw = {0};
	int ret = cas_directory_encode(dir, &raw, out, w->err);

	return ret < 0 ? ret : add_blob(w, out, &raw);
}

static int capture_dir(struct fs_capture_walk *w, struct fs_merge_dir *dir, struct cas_node *node)
{
	struct cas_directory *out = NULL;
	int ret;

	if (w->depth >= FS_WALK_DEPTH_MAX)
		return fail(w, "nested too deeply");
	ret = cas_directory_new(&out);
	if (ret < 0)
		return fs_capture_no_memory(w);
	w->depth++;
	ret = capture_children(w, dir, out);
	w->depth--;
	if (ret == 0)
		ret = add_dir(w, out, &node->digest);
	cas_directory_free(out);
	node->kind = CAS_NODE_DIRECTORY;
	return ret < 0 ? ret : 1;
}

/* Look up one name of @dir, which is at the path at hand, and go there. */
static int step(struct fs_capture_walk *w, const struct fs_merge_dir *dir, const char *name,
		bool last, struct fs_entry *entry)
{
	struct fs_listing list = {0};
	struct cas_node node;
	int ret = fs_merge_list(w->m, dir, buf_str(&w->path), FS_LIST_NONE, &list, w->err);

	if (ret == 0)
		ret = fs_capture_push(w, name);
	if (ret == 0)
		ret = fs_merge_child(w->m, dir, &list, buf_str(&w->path), name, entry, w->err);
	if (ret == 0 && last) {
		ret = capture_entry(w, dir, name, entry, NULL, &node);
	} else if (ret == 0 && (ret = fail_foreign(w)) != 0) {
		fs_entry_fini(entry);
		*entry = (struct fs_entry){.kind = FS_ENTRY_NONE, .dir = {.fd = -1}};
	} else if (ret == 0 && entry->kind == FS_ENTRY_INPUT &&
		   entry->node->kind == CAS_NODE_DIRECTORY) {
		entry->kind = FS_ENTRY_DIR;
		entry->dir.has_lower = true;
		entry->dir.lower = entry->node->digest;
	} else if (ret == 0 && entry->kind == FS_ENTRY_ERROR) {
		ret = fail(w, strerrordesc_np(-entry->code));
	}
	fs_listing_fini(&list);
	return ret < 0 ? ret : 0;
}

/* Walk from the root @dir, which it ends, to the output and capture it. */
static int capture_at(struct fs_capture_walk *w, struct fs_merge_dir *dir, const char *path)
{
	struct fs_merge_dir at = *dir;
	int ret = 0;

	dir->fd = -1;
	while (ret == 0 && *path != '\0') {
		struct fs_entry entry = {.dir = {.fd = -1}};
		char name[CAS_NAME_MAX + 1];
		size_t len = strcspn(path, "/");

		memcpy(name, path, len);
		name[len] = '\0';
		path += len;
		path += *path == '/';
		ret = step(w, &at, name, *path == '\0', &entry);
		fs_merge_dir_fini(&at);
		if (ret < 0 || *path == '\0' || entry.kind != FS_ENTRY_DIR) {
			fs_entry_fini(&entry);
			break;
		}
		at = entry.dir;
	}
	fs_merge_dir_fini(&at);
	return ret;
}

static int capture_output(struct fs_capture_walk *w, const struct fs_output *o)
{
	struct fs_merge_dir dir;
	struct cas_node node = {0};
	int ret = fs_merge_root(w->m, &dir, w->err);

	if (ret < 0)
		return ret;
	fs_capture_pop(w, 0);
	w->depth = 0;
	ret = fail_foreign(w);
	if (ret != 0) {
		fs_merge_dir_fini(&dir);
		return ret < 0 ? ret : 0;
	}
	if (o->path[0] != '\0')
		return capture_at(w, &dir, o->path);
	ret = capture_dir(w, &dir, &node);
	fs_merge_dir_fini(&dir);
	if (ret > 0)
		ret = note(w, "", &node);
	return ret < 0 ? ret : 0;
}

static const struct buf *find_blob(void *ctx, const struct cas_digest *digest)
{
	const struct fs_capture_walk *w = ctx;

	return fs_blobs_find(&w->blobs, digest);
}

static int add_trees(struct fs_capture_walk *w)
{
	for (size_t i = 0; i < w->out->nr; i++) {
		struct fs_captured *c = &w->out->captured[i];
		auto_buf struct buf tree = {0};
		int ret;

		if (!c->found || c->node.kind != CAS_NODE_DIRECTORY)
			continue;
		ret = cas_tree_encode_with(w->m->store, &c->node.digest, find_blob, w, &tree,
					   w->err);
		if (ret == 0)
			ret = cas_hash_bytes(buf_str(&tree), tree.len, &c->tree);
		if (ret == 0)
			ret = add_blob(w, &c->tree, &tree);
		if (ret < 0)
			return ret;
	}
	return 0;
}

int fs_capture_run(const struct fs_merge *m, struct fs_derived *derived,
		   const struct fs_outputs *outputs, const struct fs_capture_options *opts,
		   struct fs_capture *out, struct err *err)
{
	struct fs_capture got = {0};
	struct fs_capture_walk w = {.m = m,
				    .derived = derived,
				    .outputs = outputs,
				    .opts = opts,
				    .out = &got,
				    .err = err};
	const char *last = NULL;
	int ret = 0;

	got.captured = calloc(outputs->nr ? outputs->nr : 1, sizeof(*got.captured));
	if (got.captured == NULL)
		return fs_capture_no_memory(&w);
	got.nr = outputs->nr;
	for (size_t i = 0; ret == 0 && i < outputs->nr; i++) {
		if (last && fs_path_within(outputs->out[i].path, last))
			continue;
		last = outputs->out[i].path;
		ret = capture_output(&w, &outputs->out[i]);
	}
	if (ret == 0)
		ret = add_trees(&w);
	if (ret == 0)
		ret = fs_blobs_put(&w.blobs, m->store, opts->crew, err);
	fs_blobs_fini(&w.blobs);
	buf_fini(&w.path);
	free(w.landing_dir);
	if (ret < 0) {
		fs_capture_fini(&got);
		return ret;
	}
	*out = got;
	return 0;
}
