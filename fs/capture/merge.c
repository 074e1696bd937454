/* fs/capture/merge.c - what a frozen sandbox shows, read from its layers and its tree */
#include "fs/capture/merge.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "fs/capture/derive.h"
#include "fs/sandbox/outputs.h"

/*
 * The kernel's overlay, as its documentation and an upper directory tell it, for one
 * lower layer:
 *
 *   character device 0/0               whiteout: the name is gone. So is an empty file
 *                                      with xattr overlay.whiteout.
 *   directory, overlay.opaque = "y"    shows nothing of the lower one
 *   directory, overlay.redirect        its lower is elsewhere: "/a/b" from the root of
 *                                      the lower layer, "b" beside it in its lower parent
 *   directory                          merged with a lower directory of that name
 *   anything else                      replaces
 *
 * Metacopy is never on, so a file is whole or absent. Other overlay.* xattrs are hints.
 */

#define ENTRIES_SZ (16 << 10)

void fs_merge_dir_fini(struct fs_merge_dir *dir)
{
	if (dir->fd >= 0)
		(void)close(dir->fd);
	dir->fd = -1;
}

void fs_entry_fini(struct fs_entry *entry)
{
	if (entry->kind == FS_ENTRY_DIR)
		fs_merge_dir_fini(&entry->dir);
	entry->kind = FS_ENTRY_NONE;
}

void fs_listing_fini(struct fs_listing *list)
{
	for (size_t i = 0; i < list->nr; i++)
		free(list->names[i].name);
	free(list->names);
	if (list->lower_owned)
		cas_directory_free(list->lower);
	memset(list, 0, sizeof(*list));
}

/* No more than these, so that the capture of a large tree does not keep all of it. */
#define LOADED_MAX 32

struct fs_merge_loaded {
	size_t nr;
	struct {
		struct cas_digest digest;
		struct cas_directory *dir;
	} dirs[LOADED_MAX];
};

struct fs_merge_loaded *fs_merge_loaded_new(void)
{
	return calloc(1, sizeof(struct fs_merge_loaded));
}

void fs_merge_loaded_free(struct fs_merge_loaded *loaded)
{
	for (size_t i = 0; loaded && i < loaded->nr; i++)
		cas_directory_free(loaded->dirs[i].dir);
	free(loaded);
}

static struct cas_directory *loaded_find(const struct fs_merge_loaded *loaded,
					 const struct cas_digest *digest)
{
	for (size_t i = 0; loaded && i < loaded->nr; i++) {
		if (cas_digest_equal(&loaded->dirs[i].digest, digest))
			return loaded->dirs[i].dir;
	}
	return NULL;
}

/* Whether it is kept, and so not the caller's. */
static bool loaded_keep(struct fs_merge_loaded *loaded, const struct cas_digest *digest,
			struct cas_directory *dir)
{
	if (loaded == NULL || loaded->nr == LOADED_MAX)
		return false;
	loaded->dirs[loaded->nr].digest = *digest;
	loaded->dirs[loaded->nr++].dir = dir;
	return true;
}

int fs_merge_load(const struct fs_merge *m, const struct cas_digest *digest,
		  struct cas_directory **out, bool *owned, struct err *err)
{
	struct cas_directory *dir = m->derived ? fs_derived_find(m->derived, digest) : NULL;
	int ret;

	*owned = false;
	if (dir == NULL)
		dir = loaded_find(m->loaded, digest);
	if (dir) {
		*out = dir;
		return 0;
	}
	ret = cas_directory_load(m->store, digest, out, err);
	if (ret == 0)
		*owned = !loaded_keep(m->loaded, digest, *out);
	return ret;
}

/* 1 and the digest of the directory at @path below @from, 0: none there. */
static int lower_walk(const struct fs_merge *m, const struct cas_digest *from, const char *path,
		      struct cas_digest *out, struct err *err)
{
	struct cas_digest at = *from;

	while (*path != '\0') {
		char name[CAS_NAME_MAX + 1];
		size_t len = strcspn(path, "/");
		struct cas_directory *dir;
		const struct cas_node *node;
		bool owned;
		bool found;
		int ret;

		if (len > CAS_NAME_MAX)
			return 0;
		memcpy(name, path, len);
		name[len] = '\0';
		ret = fs_merge_load(m, &at, &dir, &owned, err);
		if (ret < 0)
			return ret;
		node = cas_directory_find(dir, name);
		found = node && node->kind == CAS_NODE_DIRECTORY;
		if (found)
			at = node->digest;
		if (owned)
			cas_directory_free(dir);
		if (!found)
			return 0;
		path += len;
		path += strspn(path, "/");
	}
	*out = at;
	return 1;
}

static const struct fs_merge_layer *layer_at(const struct fs_merge *m, const char *path)
{
	for (size_t i = 0; i < m->nr_layers; i++) {
		if (m->layers[i].upper_fd >= 0 && strcmp(m->layers[i].path, path) == 0)
			return &m->layers[i];
	}
	return NULL;
}

static bool layer_below(const struct fs_merge *m, const char *path)
{
	for (size_t i = 0; i < m->nr_layers; i++) {
		if (m->layers[i].upper_fd >= 0 && strcmp(m->layers[i].path, path) != 0 &&
		    fs_path_within(m->layers[i].path, path))
			return true;
	}
	return false;
}

/* The root directory of a layer. */
static int layer_open(const struct fs_merge *m, const struct fs_merge_layer *layer,
		      struct fs_merge_dir *out, struct err *err)
{
	struct fs_merge_dir dir = {.fd = -1};
	int ret = 0;

	if (layer->kind != FS_LAYER_BIND) {
		dir.layer = layer;
		ret = lower_walk(m, &m->root, layer->path, &dir.lower, err);
		if (ret < 0)
			return ret;
		dir.has_lower = ret == 1;
	}
	dir.fd = openat(layer->upper_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir.fd < 0)
		return err_set(err, -errno, "cannot open the layer at \"%s\": %m", layer->path);
	*out = dir;
	return 0;
}

int fs_merge_root(const struct fs_merge *m, struct fs_merge_dir *out, struct err *err)
{
	const struct fs_merge_layer *layer = layer_at(m, "");
	struct fs_merge_dir dir = {.fd = -1, .has_lower = true, .lower = m->root};

	if (layer)
		return layer_open(m, layer, out, err);
	*out = dir;
	return 0;
}

static int name_compare(const void *a, const void *b)
{
	return strcmp(((const struct fs_listed *)a)->name, ((const struct fs_listed *)b)->name);
}

static int add_name(struct fs_listing *list, size_t *cap, const char *name, unsigned char type)
{
	if (list->nr == *cap) {
		size_t more = *cap ? *cap * 2 : 16;
		struct fs_listed *grown = realloc(list->names, more * sizeof(*grown));

		if (grown == NULL)
			return -ENOMEM;
		list->names = grown;
		*cap = more;
	}
	list->names[list->nr] = (struct fs_listed){strdup(name), type};
	if (list->names[list->nr].name == NULL)
		return -ENOMEM;
	list->nr++;
	return 0;
}

/* The system call itself: opendir asks three things more, and wants memory. */
static int list_upper(int fd, struct fs_listing *list, size_t *cap)
{
	/* A description of its own: the directory's offset is not shared. */
	auto_close int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_Alignas(struct dirent64) char entries[ENTRIES_SZ];
	ssize_t len = own < 0 ? -1 : getdents64(own, entries, sizeof(entries));
	int ret = 0;

	for (; ret == 0 && len > 0; len = getdents64(own, entries, sizeof(entries))) {
		for (ssize_t at = 0; ret == 0 && at < len;) {
			const struct dirent64 *de = (const void *)(entries + at);

			at += de->d_reclen;
			if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
				ret = add_name(list, cap, de->d_name, de->d_type);
		}
		if (ret < 0)
			return ret;
	}
	return len < 0 ? -errno : 0;
}

static void drop_twice(struct fs_listing *list)
{
	size_t kept = 0;

	if (list->nr > 1)
		qsort(list->names, list->nr, sizeof(*list->names), name_compare);
	for (size_t i = 0; i < list->nr; i++) {
		struct fs_listed *last = kept > 0 ? &list->names[kept - 1] : NULL;

		if (last && strcmp(last->name, list->names[i].name) == 0) {
			if (last->type == DT_UNKNOWN)
				last->type = list->names[i].type;
			free(list->names[i].name);
		} else {
			list->names[kept++] = list->names[i];
		}
	}
	list->nr = kept;
}

/* The names through which layers below @path are reached. */
static int list_layers(const struct fs_merge *m, const char *path, struct fs_listing *list,
		       size_t *cap)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < m->nr_layers; i++) {
		const char *at = m->layers[i].path;
		char name[CAS_NAME_MAX + 1];
		size_t len;

		if (m->layers[i].upper_fd < 0 || strcmp(at, path) == 0 || !fs_path_within(at, path))
			continue;
		at = fs_path_rest(at, path);
		len = strcspn(at, "/");
		memcpy(name, at, len);
		name[len] = '\0';
		ret = add_name(list, cap, name, DT_UNKNOWN);
	}
	return ret;
}

int fs_merge_list(const struct fs_merge *m, const struct fs_merge_dir *dir, const char *path,
		  enum fs_list_names which, struct fs_listing *out, struct err *err)
{
	struct fs_listing list = {0};
	size_t cap = 0;
	int ret = 0;

	if (dir->has_lower)
		ret = fs_merge_load(m, &dir->lower, &list.lower, &list.lower_owned, err);
	if (ret < 0)
		return ret;
	if (which != FS_LIST_NONE && dir->fd >= 0)
		ret = list_upper(dir->fd, &list, &cap);
	if (which != FS_LIST_NONE && ret == 0)
		ret = list_layers(m, path, &list, &cap);
	for (size_t i = 0;
	     which == FS_LIST_ALL && ret == 0 && list.lower && i < list.lower->nr_nodes; i++)
		ret = add_name(&list, &cap, list.lower->nodes[i].name, DT_UNKNOWN);
	if (ret < 0) {
		fs_listing_fini(&list);
		return err_set(err, ret, "cannot list %s: %s", path[0] ? path : "the root",
			       strerrordesc_np(-ret));
	}
	drop_twice(&list);
	*out = list;
	return 0;
}

#define KEY_SZ 64

static const char *xattr_key(const struct fs_merge *m, const struct fs_merge_layer *layer,
			     const char *name, char key[KEY_SZ])
{
	const char *prefix = layer->kind == FS_LAYER_SERVED ? "user.casbox."
			     : m->userxattr		    ? "user.overlay."
							    : "trusted.overlay.";

	(void)stpcpy(stpcpy(key, prefix), name);
	return key;
}

/* The value of overlay.@name on an open file; its length, or 0 when it is not there. */
static size_t overlay_xattr(const struct fs_merge *m, const struct fs_merge_layer *layer, int fd,
			    const char *name, char *out, size_t sz)
{
	char key[KEY_SZ];
	ssize_t len;

	len = fgetxattr(fd, xattr_key(m, layer, name, key), out, sz - 1);
	if (len < 0)
		len = 0;
	out[len] = '\0';
	return (size_t)len;
}

static bool is_whiteout(const struct fs_merge *m, const struct fs_merge_layer *layer, int dir_fd,
			const char *name, const struct stat *st)
{
	auto_close int fd = -1;
	char key[KEY_SZ];

	if (S_ISCHR(st->st_mode))
		return st->st_rdev == makedev(0, 0);
	if (!S_ISREG(st->st_mode) || st->st_size != 0)
		return false;
	fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return false;
	return fgetxattr(fd, xattr_key(m, layer, "whiteout", key), NULL, 0) >= 0;
}

/* What the upper directory @out->fd, seen as @name of @dir, merges with. */
static int find_lower(const struct fs_merge *m, const struct fs_merge_dir *dir,
		      const struct fs_listing *list, const char *name, struct fs_merge_dir *out,
		      struct err *err)
{
	char value[PATH_MAX];
	const struct cas_node *node;
	struct cas_digest top;
	int ret;

	out->layer = dir->layer;
	if (overlay_xattr(m, out->layer, out->fd, "opaque", value, sizeof(value)) == 1 &&
	    value[0] == 'y')
		return 0;
	if (overlay_xattr(m, out->layer, out->fd, "redirect", value, sizeof(value)) > 0) {
		if (value[0] == '/') {
			ret = lower_walk(m, &m->root, dir->layer->path, &top, err);
			if (ret > 0)
				ret = lower_walk(m, &top, value + 1, &out->lower, err);
			out->has_lower = ret == 1;
			return ret < 0 ? ret : 0;
		}
		name = value;
	}
	node = list->lower ? cas_directory_find(list->lower, name) : NULL;
	out->has_lower = node && node->kind == CAS_NODE_DIRECTORY;
	if (out->has_lower)
		out->lower = node->digest;
	return 0;
}

static int child_dir(const struct fs_merge *m, const struct fs_merge_dir *dir,
		     const struct fs_listing *list, const char *name, struct fs_entry *out,
		     struct err *err)
{
	int fd = openat(dir->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int ret = 0;

	if (fd < 0) {
		out->kind = FS_ENTRY_ERROR;
		out->code = -errno;
		return 0;
	}
	out->dir.fd = fd;
	if (dir->layer)
		ret = find_lower(m, dir, list, name, &out->dir, err);
	if (ret < 0)
		fs_merge_dir_fini(&out->dir);
	else
		out->kind = FS_ENTRY_DIR;
	return ret;
}

/* 1: the upper decides about the name, 0: it does not have it. */
static int child_upper(const struct fs_merge *m, const struct fs_merge_dir *dir,
		       const struct fs_listing *list, const char *name, struct fs_entry *out,
		       struct err *err)
{
	int ret = 0;

	if (fstatat(dir->fd, name, &out->st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno == ENOENT)
			return 0;
		out->kind = FS_ENTRY_ERROR;
		out->code = -errno;
		return 1;
	}
	if (dir->layer && is_whiteout(m, dir->layer, dir->fd, name, &out->st))
		out->kind = FS_ENTRY_NONE;
	else if (S_ISDIR(out->st.st_mode))
		ret = child_dir(m, dir, list, name, out, err);
	else if (S_ISREG(out->st.st_mode))
		out->kind = FS_ENTRY_FILE;
	else if (S_ISLNK(out->st.st_mode))
		out->kind = FS_ENTRY_SYMLINK;
	else
		out->kind = FS_ENTRY_OTHER;
	return ret < 0 ? ret : 1;
}

int fs_merge_child(const struct fs_merge *m, const struct fs_merge_dir *dir,
		   const struct fs_listing *list, const char *path, const char *name,
		   struct fs_entry *out, struct err *err)
{
	const struct fs_merge_layer *layer = layer_at(m, path);
	struct fs_entry entry = {.kind = FS_ENTRY_NONE, .dir = {.fd = -1}};
	int ret = 0;

	if (layer) {
		entry.kind = FS_ENTRY_DIR;
		ret = layer_open(m, layer, &entry.dir, err);
	} else {
		if (dir->fd >= 0)
			ret = child_upper(m, dir, list, name, &entry, err);
		if (ret == 0 && list->lower)
			entry.node = cas_directory_find(list->lower, name);
	}
	if (ret < 0)
		return ret;
	if (entry.node && entry.node->kind == CAS_NODE_DIRECTORY && layer_below(m, path)) {
		entry.kind = FS_ENTRY_DIR;
		entry.dir.has_lower = true;
		entry.dir.lower = entry.node->digest;
		entry.dir.layer = dir->layer;
	} else if (entry.node) {
		entry.kind = FS_ENTRY_INPUT;
	}
	*out = entry;
	return 0;
}

bool fs_merge_same_input(const struct cas_node *got, const struct cas_node *node)
{
	if (got->kind != node->kind)
		return false;
	if (node->kind == CAS_NODE_SYMLINK)
		return strcmp(got->target, node->target) == 0;
	return cas_digest_equal(&got->digest, &node->digest) &&
	       (node->kind == CAS_NODE_DIRECTORY || got->executable == node->executable);
}

/*
 * The child's ".." is its parent only when both are in one upper directory; then the
 * parent's descriptor can be had back from it.
 */
void fs_merge_park(struct fs_merge_dir *parent, const struct fs_merge_dir *dir)
{
	struct stat st;
	struct stat up;

	if (parent->fd < 0 || dir->fd < 0 || fstat(parent->fd, &st) < 0 ||
	    fstatat(dir->fd, "..", &up, AT_SYMLINK_NOFOLLOW) < 0 || st.st_dev != up.st_dev ||
	    st.st_ino != up.st_ino)
		return;
	parent->dev = st.st_dev;
	parent->ino = st.st_ino;
	fs_merge_dir_fini(parent);
}

int fs_merge_unpark(struct fs_merge_dir *parent, const struct fs_merge_dir *dir, struct err *err)
{
	auto_close int fd = -1;
	struct stat st;

	if (parent->fd >= 0 || dir->fd < 0 || parent->ino == 0)
		return 0;
	fd = openat(dir->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_set(err, -errno, "cannot return to a parent directory: %m");
	if (st.st_dev != parent->dev || st.st_ino != parent->ino)
		return err_set(err, -ESTALE, "a directory was moved while it was captured");
	parent->fd = steal_fd(&fd);
	return 0;
}
