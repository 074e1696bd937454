/* fs/capture/changes.c - what an action did outside its declared outputs */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/hash.h"
#include "fs/capture/capture.h"

/*
 * Walks the tree that was expected beside the merged one. Where nothing was written
 * both are the same digest, and the walk turns back. An input that was copied up by an
 * open or a touch, or moved away and back, is compared by content and is no change.
 */

struct differ {
	const struct fs_merge *m;
	const struct fs_outputs *outputs;
	enum fs_writable policy;
	char *const *absent;
	size_t nr_absent;
	struct fs_changes *out;
	struct buf path;
	int depth;
	struct err *err;
};

static int diff_dir(struct differ *d, const struct cas_digest *expected, struct fs_merge_dir *dir);

static int found(struct differ *d, struct fs_findings *list)
{
	if (fs_findings_add(list, buf_str(&d->path), NULL) < 0)
		return err_set(d->err, -ENOMEM, "no memory to compare %s", buf_str(&d->path));
	return 0;
}

/* A directory that the tree has only because outputs need it. */
static bool is_synthesized(const struct differ *d)
{
	for (size_t i = 0; i < d->nr_absent; i++) {
		if (strcmp(d->absent[i], buf_str(&d->path)) == 0)
			return true;
	}
	return false;
}

/* 1: the written file is what the tree says. */
static int same_file(const struct fs_merge_dir *dir, const char *name, const struct stat *st,
		     const struct cas_node *node)
{
	struct cas_digest got;
	auto_close int fd = -1;

	if ((uint64_t)st->st_size != node->digest.size ||
	    ((st->st_mode & S_IXUSR) != 0) != node->executable)
		return 0;
	fd = openat(dir->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || cas_hash_fd(fd, &got) < 0)
		return 0;
	return cas_digest_equal(&got, &node->digest);
}

static int same_symlink(const struct fs_merge_dir *dir, const char *name,
			const struct cas_node *node)
{
	auto_free char *target = malloc(CAS_TARGET_MAX + 2);
	ssize_t len = target ? readlinkat(dir->fd, name, target, CAS_TARGET_MAX + 1) : -1;

	return len >= 0 && (size_t)len == strlen(node->target) &&
	       memcmp(target, node->target, (size_t)len) == 0;
}

/* The tree has nothing here, or something that is no input. */
static int diff_new(struct differ *d, struct fs_entry *entry)
{
	if (entry->kind == FS_ENTRY_NONE || d->policy != FS_WRITABLE_OUTPUTS)
		return 0;
	if (entry->kind == FS_ENTRY_DIR && fs_outputs_below(d->outputs, buf_str(&d->path)))
		return diff_dir(d, &cas_digest_empty, &entry->dir);
	return found(d, &d->out->stray);
}

/* The tree has @node here; what does the sandbox show? */
static int diff_known(struct differ *d, struct fs_merge_dir *dir, const char *name,
		      const struct cas_node *node, struct fs_entry *entry)
{
	int same = 0;

	if (entry->kind == FS_ENTRY_INPUT) {
		same = fs_merge_same_input(entry->node, node);
	} else if (entry->kind == FS_ENTRY_FILE && node->kind == CAS_NODE_FILE) {
		same = same_file(dir, name, &entry->st, node);
	} else if (entry->kind == FS_ENTRY_SYMLINK && node->kind == CAS_NODE_SYMLINK) {
		same = same_symlink(dir, name, node);
	} else if (entry->kind == FS_ENTRY_DIR && node->kind == CAS_NODE_DIRECTORY) {
		return diff_dir(d, &node->digest, &entry->dir);
	}
	if (same)
		return 0;
	return is_synthesized(d) ? diff_new(d, entry) : found(d, &d->out->changed);
}

static int diff_child(struct differ *d, struct fs_merge_dir *dir, const struct fs_listing *list,
		      const struct cas_directory *expected, const char *name)
{
	const struct cas_node *node = cas_directory_find(expected, name);
	struct fs_entry entry;
	bool park;
	int ret;

	if (fs_outputs_find(d->outputs, buf_str(&d->path)))
		return 0;
	ret = fs_merge_child(d->m, dir, list, buf_str(&d->path), name, &entry, d->err);
	if (ret < 0)
		return ret;
	park = entry.kind == FS_ENTRY_DIR && d->depth > FS_WALK_DEPTH_OPEN;
	if (park)
		fs_merge_park(dir, &entry.dir);
	ret = node ? diff_known(d, dir, name, node, &entry) : diff_new(d, &entry);
	if (ret == 0 && park)
		ret = fs_merge_unpark(dir, &entry.dir, d->err);
	fs_entry_fini(&entry);
	return ret;
}

static int diff_name(struct differ *d, struct fs_merge_dir *dir, const struct fs_listing *list,
		     const struct cas_directory *expected, const char *name)
{
	size_t len = d->path.len;
	int ret = 0;

	if (len > 0)
		ret = buf_append_char(&d->path, '/');
	if (ret == 0)
		ret = buf_append_str(&d->path, name);
	if (ret == 0)
		ret = diff_child(d, dir, list, expected, name);
	d->path.len = len;
	d->path.data[len] = '\0';
	return ret;
}

/*
 * The names that were listed, then, unless @same_inputs, names of the tree that were
 * not: those are no longer there.
 */
static int diff_names(struct differ *d, struct fs_merge_dir *dir, const struct fs_listing *list,
		      const struct cas_directory *expected, bool same_inputs)
{
	size_t at = 0;
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < list->nr; i++)
		ret = diff_name(d, dir, list, expected, list->names[i].name);
	for (size_t i = 0; !same_inputs && ret == 0 && i < expected->nr_nodes; i++) {
		const char *name = expected->nodes[i].name;

		while (at < list->nr && strcmp(list->names[at].name, name) < 0)
			at++;
		if (at == list->nr || strcmp(list->names[at].name, name) != 0)
			ret = diff_name(d, dir, list, expected, name);
	}
	return ret;
}

static int diff_dir(struct differ *d, const struct cas_digest *expected, struct fs_merge_dir *dir)
{
	struct fs_listing list = {0};
	struct cas_directory *want = NULL;
	/* Then only what was written in it can differ. */
	bool same_inputs = dir->has_lower && cas_digest_equal(&dir->lower, expected);
	bool owned = false;
	int ret;

	if (d->depth >= FS_WALK_DEPTH_MAX)
		return found(d, &d->out->stray);
	ret = fs_merge_load(d->m, expected, &want, &owned, d->err);
	if (ret < 0)
		return ret;
	d->depth++;
	ret = fs_merge_list(d->m, dir, buf_str(&d->path),
			    same_inputs ? FS_LIST_WRITTEN : FS_LIST_ALL, &list, d->err);
	if (ret == 0)
		ret = diff_names(d, dir, &list, want, same_inputs);
	d->depth--;
	fs_listing_fini(&list);
	if (owned)
		cas_directory_free(want);
	return ret;
}

int fs_changes_find(const struct fs_merge *m, const struct fs_outputs *outputs,
		    enum fs_writable policy, char *const *absent, size_t nr_absent,
		    struct fs_changes *out, struct err *err)
{
	struct fs_changes got = {0};
	struct differ d = {.m = m,
			   .outputs = outputs,
			   .policy = policy,
			   .absent = absent,
			   .nr_absent = nr_absent,
			   .out = &got,
			   .err = err};
	struct fs_merge_dir root;
	int ret = 0;

	if (policy != FS_WRITABLE_ALL && m->nr_layers > 0 && fs_outputs_find(outputs, "") == NULL) {
		ret = fs_merge_root(m, &root, err);
		if (ret == 0) {
			ret = diff_dir(&d, &m->root, &root);
			fs_merge_dir_fini(&root);
		}
	}
	buf_fini(&d.path);
	if (ret < 0) {
		fs_changes_fini(&got);
		return ret;
	}
	*out = got;
	return 0;
}

void fs_changes_fini(struct fs_changes *c)
{
	fs_findings_fini(&c->stray);
	fs_findings_fini(&c->changed);
}
