/* fs/trace/writes.c - what a sandbox wrote, by the files of its layers */
#include "fs/trace/writes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "fs/capture/capture.h"
#include "fs/capture/merge.h"
#include "fs/sandbox/plan.h"
#include "fs/sandbox/sandbox_i.h"
#include "fs/trace/trace.h"
#include "meta/meta.h"

/*
 * Walks what a layer shows beside the inputs that were there. Where nothing was written
 * both are the same Directory, and only names that the layer decides about are looked at.
 */

struct walk {
	struct fs_trace *trace;
	struct fs_merge merge; /* of one layer */
	struct buf path;       /* of what is looked at, from the root */
	int depth;
	struct err *err;
};

int fs_trace_in_tree(struct meta *meta, const struct cas_digest *root, const char *path,
		     enum cas_node_kind *kind, struct err *err)
{
	struct cas_digest at = *root;

	*kind = CAS_NODE_DIRECTORY;
	while (*path != '\0') {
		char name[CAS_NAME_MAX + 1];
		size_t len = strcspn(path, "/");
		struct meta_dirent ent;
		int ret;

		if (*kind != CAS_NODE_DIRECTORY || len > CAS_NAME_MAX)
			return 0;
		memcpy(name, path, len);
		name[len] = '\0';
		path += len + (path[len] == '/');
		ret = meta_dir_find(meta, &at, name, &ent, err);
		if (ret <= 0)
			return ret;
		*kind = ent.kind;
		at = ent.digest;
		meta_dirent_fini(&ent);
	}
	return 1;
}

static void note(struct walk *w, unsigned what, bool is_dir)
{
	fs_trace_note(w->trace, what | (is_dir ? FS_TRACE_DIR : 0), "", buf_str(&w->path));
}

static int walk_dir(struct walk *w, struct fs_merge_dir *dir, const struct cas_digest *inputs);

/* @had: the input of that name; NULL: there was none. */
static int walk_entry(struct walk *w, struct fs_entry *entry, const struct cas_node *had)
{
	bool is_input = entry->kind == FS_ENTRY_INPUT;
	bool is_dir = entry->kind == FS_ENTRY_DIR ||
		      (is_input && entry->node->kind == CAS_NODE_DIRECTORY);
	bool had_dir = had && had->kind == CAS_NODE_DIRECTORY;

	/* It may have gone since it was listed. */
	if (entry->kind == FS_ENTRY_ERROR && (entry->code == -ENOENT || entry->code == -ENOTDIR))
		return 0;
	if (entry->kind == FS_ENTRY_NONE) {
		if (had)
			note(w, FS_TRACE_REMOVED, had_dir);
		return 0;
	}
	if (is_input && had && fs_merge_same_input(entry->node, had))
		return 0;
	if (!(is_dir && had_dir))
		note(w, had ? FS_TRACE_REPLACED : FS_TRACE_MADE, is_dir);
	if (!is_dir)
		return 0;
	if (is_input) {
		/* Of another place, with all in it. */
		entry->dir = (struct fs_merge_dir){
			.fd = -1, .has_lower = true, .lower = entry->node->digest};
		entry->kind = FS_ENTRY_DIR;
	}
	return walk_dir(w, &entry->dir, had_dir ? &had->digest : &cas_digest_empty);
}

static int walk_child(struct walk *w, struct fs_merge_dir *dir, const struct fs_listing *list,
		      const char *name, const struct cas_node *had)
{
	struct fs_entry entry;
	int ret = fs_merge_child(&w->merge, dir, list, buf_str(&w->path), name, &entry, w->err);
	bool park;

	if (ret < 0)
		return ret;
	park = entry.kind == FS_ENTRY_DIR && w->depth > FS_WALK_DEPTH_OPEN;
	if (park)
		fs_merge_park(dir, &entry.dir);
	ret = walk_entry(w, &entry, had);
	if (ret == 0 && park)
		ret = fs_merge_unpark(dir, &entry.dir, w->err);
	fs_entry_fini(&entry);
	return ret;
}

static int walk_name(struct walk *w, struct fs_merge_dir *dir, const struct fs_listing *list,
		     const char *name, const struct cas_node *had)
{
	size_t len = w->path.len;
	int ret = len > 0 ? buf_append_char(&w->path, '/') : 0;

	if (ret == 0)
		ret = buf_append_str(&w->path, name);
	if (ret == 0)
		ret = walk_child(w, dir, list, name, had);
	w->path.len = len;
	if (w->path.data)
		w->path.data[len] = '\0';
	return ret;
}

/* The names that are there, then, where the inputs are not those of @dir, the inputs' others. */
static int walk_names(struct walk *w, struct fs_merge_dir *dir, const struct fs_listing *list,
		      const struct cas_directory *inputs, bool same_inputs)
{
	size_t at = 0;
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < list->nr; i++)
		ret = walk_name(w, dir, list, list->names[i].name,
				cas_directory_find(inputs, list->names[i].name));
	for (size_t i = 0; !same_inputs && ret == 0 && i < inputs->nr_nodes; i++) {
		const struct cas_node *had = &inputs->nodes[i];

		while (at < list->nr && strcmp(list->names[at].name, had->name) < 0)
			at++;
		if (at == list->nr || strcmp(list->names[at].name, had->name) != 0)
			ret = walk_name(w, dir, list, had->name, had);
	}
	return ret;
}

static int walk_dir(struct walk *w, struct fs_merge_dir *dir, const struct cas_digest *inputs)
{
	bool same_inputs = dir->has_lower && cas_digest_equal(&dir->lower, inputs);
	struct fs_listing list = {0};
	struct cas_directory *want = NULL;
	bool owned = false;
	int ret;

	if (w->depth >= FS_WALK_DEPTH_MAX)
		return err_set(w->err, -ELOOP, "%s is too deep", buf_str(&w->path));
	ret = fs_merge_load(&w->merge, inputs, &want, &owned, w->err);
	if (ret < 0)
		return ret;
	w->depth++;
	ret = fs_merge_list(&w->merge, dir, buf_str(&w->path),
			    same_inputs ? FS_LIST_WRITTEN : FS_LIST_ALL, &list, w->err);
	if (ret == 0)
		ret = walk_names(w, dir, &list, want, same_inputs);
	w->depth--;
	fs_listing_fini(&list);
	if (owned)
		cas_directory_free(want);
	return ret;
}

/* The layer alone: none that lies below it has inputs, or shows what it wrote. */
static int walk_layer(struct walk *w, const char *path)
{
	struct fs_merge_dir none = {.fd = -1};
	struct fs_listing empty = {0};
	struct fs_entry top;
	int ret;

	buf_reset(&w->path);
	ret = buf_append_str(&w->path, path);
	if (ret == 0)
		ret = fs_merge_child(&w->merge, &none, &empty, path, path, &top, w->err);
	if (ret < 0)
		return ret;
	ret = walk_dir(w, &top.dir, top.dir.has_lower ? &top.dir.lower : &cas_digest_empty);
	fs_entry_fini(&top);
	return ret;
}

int fs_trace_writes(struct fs_trace *trace, const struct fs_sandboxes *all,
		    const struct cas_digest *root, const struct fs_plan *plan, int dir_fd,
		    struct err *err)
{
	struct fs_merge_layer layer;
	struct walk w = {
		.trace = trace,
		.merge = {.store = all->store,
			  .root = *root,
			  .nr_layers = 1,
			  .layers = &layer,
			  .userxattr = all->in_userns},
		.err = err,
	};
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < plan->nr_layers; i++) {
		char upper[64];
		auto_close int fd = -1;

		(void)snprintf(upper, sizeof(upper), "upper/%zu/u", i);
		fd = openat(dir_fd, upper, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 && errno != ENOENT)
			ret = err_set(err, -errno, "%s: %m", upper);
		if (fd < 0)
			continue;
		layer = (struct fs_merge_layer){
			.kind = plan->layers[i].kind, .path = plan->layers[i].path, .upper_fd = fd};
		ret = walk_layer(&w, plan->layers[i].path);
	}
	buf_fini(&w.path);
	return ret < 0 ? err_context(err, ret, "cannot list what a sandbox wrote") : 0;
}
