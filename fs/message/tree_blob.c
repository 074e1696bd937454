/* fs/message/tree_blob.c - a Tree, ready to be searched */
#include "fs/message/tree_blob.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/hash.h"
#include "cas/reapi/tree_read.h"
#include "meta/index/packed_dir.h"

struct tree_dir {
	struct cas_digest digest;
	struct meta_packed *packed;
	struct meta_packed_view view; /* of it */
};

struct fs_tree_blob {
	_Atomic unsigned refs;
	size_t size;
	size_t nr;
	size_t cap;
	struct tree_dir *dirs;
	uint32_t *order; /* of dirs, by digest */
};

/* While it is being made. */
struct maker {
	struct fs_tree_blob *blob;
	struct err *err;
};

static void blob_free(struct fs_tree_blob *blob)
{
	for (size_t i = 0; i < blob->nr; i++)
		meta_packed_unref(blob->dirs[i].packed);
	free(blob->dirs);
	free(blob->order);
	free(blob);
}

static int add_dir(struct fs_tree_blob *blob, const struct cas_digest *digest,
		   const struct cas_directory *dir)
{
	struct tree_dir *d;
	int ret;

	if (blob->nr == blob->cap) {
		size_t cap = blob->cap ? 2 * blob->cap : 16;
		void *grown = realloc(blob->dirs, cap * sizeof(*blob->dirs));

		if (grown == NULL)
			return -ENOMEM;
		blob->dirs = grown;
		blob->cap = cap;
	}
	d = &blob->dirs[blob->nr];
	ret = meta_packed_new(dir, digest, &d->packed);
	if (ret < 0)
		return ret;
	d->digest = *digest;
	blob->size += sizeof(*d) + sizeof(uint32_t) + d->packed->len;
	blob->nr++;
	return meta_packed_view_init(&d->view, digest, d->packed->data, d->packed->len);
}

static int add_empty(struct fs_tree_blob *blob)
{
	struct cas_directory *dir = NULL;
	int ret = cas_directory_new(&dir);

	if (ret == 0)
		ret = add_dir(blob, &cas_digest_empty, dir);
	cas_directory_free(dir);
	return ret;
}

/* The root comes first, wherever it is in the message. */
static void root_to_front(struct fs_tree_blob *blob)
{
	struct tree_dir root = blob->dirs[blob->nr - 1];

	blob->dirs[blob->nr - 1] = blob->dirs[0];
	blob->dirs[0] = root;
}

static int add_raw(void *ctx, bool is_root, const void *raw, size_t len)
{
	struct maker *m = ctx;
	struct cas_directory *dir = NULL;
	struct cas_digest digest;
	int ret = cas_hash_bytes(raw, len, &digest);

	if (ret == 0)
		ret = cas_directory_decode(raw, len, &dir, m->err);
	if (ret == -EUCLEAN)
		return err_context(m->err, ret, "its Directory %s", CAS_DIGEST_TEXT(&digest));
	if (ret == 0)
		ret = add_dir(m->blob, &digest, dir);
	if (ret == 0 && is_root)
		root_to_front(m->blob);
	cas_directory_free(dir);
	return ret;
}

static int compare_dirs(const void *a, const void *b, void *dirs)
{
	const struct tree_dir *list = dirs;

	return cas_digest_compare(&list[*(const uint32_t *)a].digest,
				  &list[*(const uint32_t *)b].digest);
}

static int sort_dirs(struct fs_tree_blob *blob)
{
	blob->order = malloc(blob->nr * sizeof(*blob->order));
	if (blob->order == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < blob->nr; i++)
		blob->order[i] = (uint32_t)i;
	qsort_r(blob->order, blob->nr, sizeof(*blob->order), compare_dirs, blob->dirs);
	return 0;
}

/* 0 and *out, or -EUCLEAN. */
static int find_dir(const struct fs_tree_blob *blob, const struct cas_digest *digest, uint64_t *out)
{
	size_t low = 0;
	size_t high = blob->nr;

	while (low < high) {
		size_t mid = low + (high - low) / 2;
		int order = cas_digest_compare(&blob->dirs[blob->order[mid]].digest, digest);

		if (order == 0) {
			*out = blob->order[mid];
			return 0;
		}
		if (order < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return -EUCLEAN;
}

static int child_of(const struct fs_tree_blob *blob, const struct meta_dirent *entry,
		    uint64_t *child)
{
	return entry->kind == CAS_NODE_DIRECTORY ? find_dir(blob, &entry->digest, child) : 0;
}

static int check_children(const struct fs_tree_blob *blob, const struct tree_dir *d,
			  struct err *err)
{
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < d->view.nr_entries; i++) {
		struct meta_dirent entry = {0};
		uint64_t child;

		ret = meta_packed_view_get(&d->view, i, &entry);
		if (ret == 0 && child_of(blob, &entry, &child) < 0)
			ret = err_set(err, -EUCLEAN,
				      "the Directory %s of '%.255s' is not in the Tree",
				      CAS_DIGEST_TEXT(&entry.digest), entry.name);
		meta_dirent_fini(&entry);
	}
	return ret;
}

int fs_tree_blob_new(const void *data, size_t len, struct fs_tree_blob **out, struct err *err)
{
	struct maker m = {.blob = calloc(1, sizeof(*m.blob)), .err = err};
	bool has_root = len > 0 && *(const char *)data == 0x0a;
	int ret = 0;

	if (m.blob == NULL)
		return err_set(err, -ENOMEM, "no memory for a Tree");
	atomic_init(&m.blob->refs, 1);
	m.blob->size = sizeof(*m.blob);
	/* First, so that it is the root unless another comes. */
	if (!has_root)
		ret = add_empty(m.blob);
	if (ret == 0)
		ret = cas_tree_each(data, len, add_raw, &m, err);
	if (ret == 0 && has_root)
		ret = add_empty(m.blob);
	if (ret == 0)
		ret = sort_dirs(m.blob);
	for (size_t i = 0; ret == 0 && i < m.blob->nr; i++)
		ret = check_children(m.blob, &m.blob->dirs[i], err);
	if (ret < 0) {
		blob_free(m.blob);
		return ret == -EUCLEAN ? ret : err_set(err, ret, "no memory for a Tree");
	}
	*out = m.blob;
	return 0;
}

struct fs_tree_blob *fs_tree_blob_ref(struct fs_tree_blob *blob)
{
	atomic_fetch_add_explicit(&blob->refs, 1, memory_order_relaxed);
	return blob;
}

void fs_tree_blob_unref(struct fs_tree_blob *blob)
{
	/* Partner: the same decrement of the other holders. */
	if (blob && atomic_fetch_sub_explicit(&blob->refs, 1, memory_order_acq_rel) == 1)
		blob_free(blob);
}

size_t fs_tree_blob_size(const struct fs_tree_blob *blob)
{
	return blob->size;
}

int fs_tree_blob_find(const struct fs_tree_blob *blob, uint64_t dir, const char *name,
		      struct meta_dirent *out, uint64_t *child)
{
	int ret;

	if (dir >= blob->nr)
		return -EUCLEAN;
	ret = meta_packed_view_find(&blob->dirs[dir].view, name, out);
	if (ret == 1 && child_of(blob, out, child) < 0) {
		meta_dirent_fini(out);
		return -EUCLEAN;
	}
	return ret;
}

int fs_tree_blob_get(const struct fs_tree_blob *blob, uint64_t dir, uint64_t index,
		     struct meta_dirent *out, uint64_t *child)
{
	int ret;

	if (dir >= blob->nr)
		return -EUCLEAN;
	if (index >= blob->dirs[dir].view.nr_entries)
		return 0;
	ret = meta_packed_view_get(&blob->dirs[dir].view, (uint32_t)index, out);
	if (ret == 0 && child_of(blob, out, child) < 0) {
		meta_dirent_fini(out);
		return -EUCLEAN;
	}
	return ret < 0 ? ret : 1;
}

/* How a directory was reached; @parent of the root is itself. */
struct reached {
	uint32_t parent;
	uint32_t index; /* of its entry there */
	bool yes;
};

struct search {
	const struct fs_tree_blob *blob;
	const struct cas_digest *target;
	struct reached *reached; /* one a directory */
	uint32_t *queue;
	size_t nr_queued;
};

/* The path of entry @index of @dir, from the end to the start. */
static int path_of(const struct search *s, uint32_t dir, uint32_t index, char **path)
{
	auto_free char *got = strdup("");
	bool more = got != NULL;

	while (more) {
		struct meta_dirent e = {0};
		char *longer;
		int ret = meta_packed_view_get(&s->blob->dirs[dir].view, index, &e);

		if (ret == 0 && asprintf(&longer, "%s%s%s", e.name, *got ? "/" : "", got) < 0)
			ret = -ENOMEM;
		meta_dirent_fini(&e);
		if (ret < 0)
			return ret;
		free(got);
		got = longer;
		more = dir != 0;
		index = s->reached[dir].index;
		dir = s->reached[dir].parent;
	}
	*path = steal_ptr(&got);
	return *path ? 1 : -ENOMEM;
}

/* The entries of @dir: the target, or directories to be looked into. */
static int search_dir(struct search *s, uint32_t dir, char **path)
{
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && i < s->blob->dirs[dir].view.nr_entries; i++) {
		struct meta_dirent e = {0};
		uint64_t child = 0;

		ret = meta_packed_view_get(&s->blob->dirs[dir].view, i, &e);
		if (ret == 0 && e.kind != CAS_NODE_SYMLINK &&
		    cas_digest_equal(&e.digest, s->target)) {
			ret = path_of(s, dir, i, path);
		} else if (ret == 0 && e.kind == CAS_NODE_DIRECTORY) {
			ret = child_of(s->blob, &e, &child);
			if (ret == 0 && !s->reached[child].yes) {
				s->reached[child] = (struct reached){dir, i, true};
				s->queue[s->nr_queued++] = (uint32_t)child;
			}
		}
		meta_dirent_fini(&e);
	}
	return ret;
}

int fs_tree_blob_search(const struct fs_tree_blob *blob, const struct cas_digest *target,
			char **path)
{
	auto_free struct reached *reached = calloc(blob->nr, sizeof(*reached));
	auto_free uint32_t *queue = calloc(blob->nr, sizeof(*queue));
	struct search s = {blob, target, reached, queue, 1};
	int ret = 0;

	if (!reached || !queue)
		return -ENOMEM;
	reached[0].yes = true;
	for (size_t i = 0; ret == 0 && i < s.nr_queued; i++)
		ret = search_dir(&s, queue[i], path);
	return ret;
}

int fs_tree_blob_info(const struct fs_tree_blob *blob, uint64_t dir, struct meta_dirinfo *out)
{
	if (dir >= blob->nr)
		return -EUCLEAN;
	*out = blob->dirs[dir].view.info;
	return 0;
}
