/* fs/trace/writes.c - what a sandbox wrote, by the files of its layers */
#include "fs/trace/writes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "fs/capture/capture.h"
#include "fs/sandbox/plan.h"
#include "fs/trace/trace.h"
#include "meta/meta.h"

struct walk {
	struct fs_trace *trace;
	struct meta *meta;
	const struct cas_digest *root;
	bool is_bind;
	int depth;
	struct buf path; /* of what is looked at, from the root */
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

static int walk_dir(struct walk *w, int fd);

static int walk_below(struct walk *w, int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	/* It may have gone since it was listed. */
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : -errno;
	return walk_dir(w, fd);
}

/* A character device 0:0 stands for a name that the overlay hides. */
static bool is_whiteout(const struct stat *st)
{
	return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

static int walk_name(struct walk *w, int dir_fd, const char *name)
{
	enum cas_node_kind kind = CAS_NODE_FILE;
	bool is_dir;
	bool had_dir;
	struct stat st;
	int known;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	known = w->is_bind ? 0
			   : fs_trace_in_tree(w->meta, w->root, buf_str(&w->path), &kind, w->err);
	if (known < 0)
		return known;
	is_dir = S_ISDIR(st.st_mode);
	had_dir = known && kind == CAS_NODE_DIRECTORY;
	if (is_whiteout(&st) && !w->is_bind) {
		if (known)
			fs_trace_note(w->trace, FS_TRACE_REMOVED, "", buf_str(&w->path));
		return 0;
	}
	if (!(is_dir && had_dir))
		fs_trace_note(w->trace,
			      (known ? FS_TRACE_REPLACED : FS_TRACE_MADE) |
				      (is_dir ? FS_TRACE_DIR : 0),
			      "", buf_str(&w->path));
	return is_dir ? walk_below(w, dir_fd, name) : 0;
}

/* Takes @fd over. */
static int walk_dir(struct walk *w, int fd)
{
	auto_closedir DIR *dir = fdopendir(fd);
	size_t len = w->path.len;
	struct dirent *de;
	int ret = 0;

	if (!dir) {
		(void)close(fd);
		return -ENOMEM;
	}
	if (w->depth >= FS_WALK_DEPTH_OPEN * 8)
		return -ELOOP;
	w->depth++;
	while (ret == 0 && (errno = 0, de = readdir(dir)) != NULL) {
		if (strcmp(de->d_name, ".") == 0 || strcmp(de->d_name, "..") == 0)
			continue;
		if (len > 0)
			ret = buf_append_char(&w->path, '/');
		if (ret == 0)
			ret = buf_append_str(&w->path, de->d_name);
		if (ret == 0)
			ret = walk_name(w, dirfd(dir), de->d_name);
		w->path.len = len;
		if (w->path.data)
			w->path.data[len] = '\0';
	}
	w->depth--;
	return ret;
}

int fs_trace_writes(struct fs_trace *trace, struct meta *meta, const struct cas_digest *root,
		    const struct fs_plan *plan, int dir_fd, struct err *err)
{
	struct walk w = {.trace = trace, .meta = meta, .root = root, .err = err};
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < plan->nr_layers; i++) {
		char upper[64];

		(void)snprintf(upper, sizeof(upper), "upper/%zu/u", i);
		w.is_bind = plan->layers[i].kind == FS_LAYER_BIND;
		buf_reset(&w.path);
		ret = buf_append_str(&w.path, plan->layers[i].path);
		if (ret == 0)
			ret = walk_below(&w, dir_fd, upper);
	}
	buf_fini(&w.path);
	return ret < 0 ? err_context(err, ret, "cannot list what a sandbox wrote") : 0;
}
