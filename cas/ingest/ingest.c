/* cas/ingest/ingest.c - a tree on disk becomes a root digest: the top, and what goes wrong */
#include "cas/ingest/ingest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/text_i.h"
#include "cas/catalog.h"
#include "cas/ingest/ingest_i.h"
#include "cas/reapi/directory.h"
#include "cas/store/store.h"

/* Paths for messages and for the caller's skip. */

static const char *dir_name(const struct ingest_dir *d)
{
	return d->parent->dir->nodes[d->index].name;
}

int ingest_rel_path(const struct ingest_dir *dir, const char *name, struct buf *out)
{
	size_t len = name ? strlen(name) : 0;
	size_t pos;
	int ret;

	for (const struct ingest_dir *d = dir; d && d->parent; d = d->parent)
		len += strlen(dir_name(d)) + (len > 0);
	ret = buf_reserve(out, len);
	if (ret < 0)
		return ret;
	pos = out->len + len;
	out->data[pos] = '\0';
	if (name) {
		pos -= strlen(name);
		memcpy(out->data + pos, name, strlen(name));
	}
	for (const struct ingest_dir *d = dir; d && d->parent; d = d->parent) {
		size_t part = strlen(dir_name(d));

		if (pos < out->len + len)
			out->data[--pos] = '/';
		pos -= part;
		memcpy(out->data + pos, dir_name(d), part);
	}
	out->len += len;
	return 0;
}

static void message_path(struct ingest *in, const struct ingest_dir *dir, const char *name,
			 struct buf *out)
{
	size_t top = strlen(in->top);

	(void)buf_append(out, in->top, top);
	if (dir == NULL || (dir->parent == NULL && name == NULL))
		return;
	if (top > 0 && in->top[top - 1] != '/')
		(void)buf_append_char(out, '/');
	(void)ingest_rel_path(dir, name, out);
}

/* Faults. */

/* "'PATH'@mark@text" becomes the fault unless there is one. */
static int fail(struct ingest *in, const struct ingest_dir *dir, const char *name, int code,
		const char *mark, const char *text)
{
	auto_buf struct buf path = {0};

	message_path(in, dir, name, &path);
	lock_take(&in->lock);
	if (in->code == 0) {
		in->code = code;
		(void)err_set(&in->err, code, "'%s'%s%.480s", CAS_TEXT(buf_str(&path)), mark, text);
	}
	lock_drop(&in->lock);
	atomic_store(&in->stop, true);
	return code;
}

int ingest_fail_err(struct ingest *in, const struct ingest_dir *dir, const char *name, int code,
		    struct err *err)
{
	return fail(in, dir, name, code, ": ", err_text(err, code));
}

int ingest_fail_why(struct ingest *in, const struct ingest_dir *dir, const char *name, int code,
		    const char *why)
{
	return fail(in, dir, name, code, " ", why);
}

int ingest_fail(struct ingest *in, const struct ingest_dir *dir, const char *name, int code,
		const char *what)
{
	struct err err = {0};

	(void)err_set(&err, code, "cannot %s: %s", what, strerrordesc_np(-code));
	return ingest_fail_err(in, dir, name, code, &err);
}

bool ingest_stopped(struct ingest *in)
{
	if (atomic_load_explicit(&in->progress->cancel, memory_order_relaxed) &&
	    !atomic_load_explicit(&in->stop, memory_order_relaxed))
		(void)ingest_fail_why(in, NULL, NULL, -ECANCELED, "stopped on request");
	return atomic_load_explicit(&in->stop, memory_order_relaxed);
}

/* The top. */

static int top_file(struct ingest *in, int path_fd, struct cas_ingest_result *out)
{
	auto_buf struct buf scratch = {0};
	struct ingest_traits traits;
	char proc[32];
	/* The very file that was looked at, whatever its path leads to by now. */
	struct ingest_file file = {.dir_fd = AT_FDCWD,
				   .name = proc,
				   .follow = true,
				   .traits = &traits,
				   .scratch = &scratch};
	struct err err = {0};
	int ret;

	(void)snprintf(proc, sizeof(proc), "/proc/self/fd/%d", path_fd);
	if (ingest_guard_in_meta(in->store, path_fd))
		return ingest_fail_why(in, NULL, NULL, -ELOOP, "belongs to the store itself");
	ingest_traits_get(path_fd, &traits);
	ret = ingest_stopped(in) ? -ECANCELED : ingest_file(in, &file, &err);
	if (ret == -ECANCELED && ingest_stopped(in))
		return ret;
	if (ret < 0)
		return ingest_fail_err(in, NULL, NULL, ret, &err);
	out->digest = file.digest;
	out->is_directory = false;
	out->executable = (file.st.st_mode & S_IXUSR) != 0;
	return 0;
}

static int top_directory(struct ingest *in, int path_fd, const struct stat *st,
			 struct cas_ingest_result *out)
{
	int fd = openat(path_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return ingest_fail(in, NULL, NULL, -errno, "open");
	(void)ingest_tree(in, fd, st);
	out->digest = in->root;
	out->is_directory = true;
	out->executable = false;
	return 0;
}

static void top_run(struct ingest *in, struct cas_ingest_result *out)
{
	auto_close int fd =
		open(in->top, O_PATH | O_CLOEXEC | (in->opts->follow_top ? 0 : O_NOFOLLOW));
	struct stat st;

	if (fd < 0)
		(void)ingest_fail(in, NULL, NULL, -errno, "open");
	else if (fstat(fd, &st) < 0)
		(void)ingest_fail(in, NULL, NULL, -errno, "stat");
	else if (S_ISLNK(st.st_mode))
		(void)ingest_fail_why(in, NULL, NULL, -ELOOP,
				      "is a symlink, which is not followed unless asked for");
	else if (S_ISDIR(st.st_mode))
		(void)top_directory(in, fd, &st, out);
	else if (S_ISREG(st.st_mode))
		(void)top_file(in, fd, out);
	else
		(void)ingest_fail_why(in, NULL, NULL, -EINVAL,
				      "is a socket, FIFO or device, which cannot be stored");
}

static int verdict(struct ingest *in, struct err *err)
{
	int code;

	lock_take(&in->lock);
	code = in->code;
	if (code < 0)
		(void)err_set(err, code, "%s", in->err.msg);
	lock_drop(&in->lock);
	return code;
}

int cas_ingest(struct cas_store *store, const char *path, const struct cas_ingest_options *opts,
	       struct cas_ingest_result *out, struct err *err)
{
	static const struct cas_ingest_options none;
	struct cas_ingest_progress own = {0};
	struct cas_ingest_result result = {0};
	struct ingest in = {.store = store, .opts = opts ? opts : &none, .top = path};
	int ret = ingest_guard_init(&in.guard, store, err);

	if (ret < 0)
		return ret;
	in.catalog = cas_store_catalog(store);
	in.progress = in.opts->progress ? in.opts->progress : &own;
	lock_init(&in.lock, LOCK_RANK_LEAF, "ingest.lock");
	cas_pool_init(&in.pool, in.opts->nr_threads);
	top_run(&in, &result);
	ret = verdict(&in, err);
	/* What was known is used now as well as what is new. */
	if (ret == 0 && result.is_directory)
		in.catalog->ops->tree_touch(in.catalog->ctx, &result.digest, false);
	else if (ret == 0)
		in.catalog->ops->blob_touch(in.catalog->ctx, &result.digest);
	cas_pool_fini(&in.pool);
	lock_fini(&in.lock);
	if (ret == 0)
		*out = result;
	return ret;
}
