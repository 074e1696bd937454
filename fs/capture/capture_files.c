/* fs/capture/capture_files.c - files of the uppers become blobs */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/landing/landing.h"
#include "cas/put/put.h"
#include "cas/store/store.h"
#include "fs/capture/capture_i.h"
#include "fs/capture/crew.h"
#include "fs/capture/early.h"

#define MOVED_MAX 32 /* to land takes as long as to move so many */

/* Errors that no other output would be spared, or no file as large: they are not the file's. */
static bool is_fatal(int code)
{
	return code == -ENOSPC || code == -EDQUOT || code == -EFBIG || code == -EROFS ||
	       code == -ENOMEM || code == -EMFILE || code == -ENFILE;
}

/* Whoever asked for the outputs is gone: to go on would keep the sandbox from who comes next. */
static bool is_left(const struct fs_capture_options *opts)
{
	return opts->left && atomic_load_explicit(opts->left, memory_order_relaxed);
}

/* Those that @list has room for, which is all. */
static size_t list_movable(const struct fs_put_file *files, size_t nr, struct fs_moving *list)
{
	size_t nr_listed = 0;

	for (size_t i = 0; i < nr; i++) {
		if (files[i].st.st_nlink == 1)
			list[nr_listed++] = (struct fs_moving){files[i].name, &files[i].st};
	}
	return nr_listed;
}

/* The files of @dir_fd are to land, if they can be named. */
static bool begin_landing(struct fs_capture_walk *w, int dir_fd, size_t nr)
{
	free(steal_ptr(&w->landing_dir));
	w->nr_moving += nr;
	if (w->opts->landing && w->nr_moving > MOVED_MAX)
		w->landing_dir = cas_landing_list_path(w->opts->landing, dir_fd);
	return w->landing_dir != NULL;
}

/* One line of a journal at a time took a fifth of the time that a small file takes. */
int fs_put_announce(struct fs_capture_walk *w, int dir_fd, struct fs_put_file *files, size_t nr)
{
	const struct fs_capture_options *opts = w->opts;
	auto_free struct fs_moving *list = NULL;
	size_t nr_listed;
	int ret = 0;

	if (!opts->may_move || nr == 0 || begin_landing(w, dir_fd, nr))
		return 0;
	list = calloc(nr, sizeof(*list));
	if (list == NULL)
		return err_set(w->err, -ENOMEM, "no memory to capture %zu files", nr);
	nr_listed = list_movable(files, nr, list);
	if (opts->moving && nr_listed > 0)
		ret = opts->moving(opts->moving_ctx, dir_fd, list, nr_listed, w->err);
	for (size_t i = 0; ret == 0 && i < nr; i++)
		files[i].may_move = files[i].st.st_nlink == 1;
	return ret < 0 ? ret : 0;
}

static int put_or_list(const struct fs_capture_walk *w, int dir_fd, struct fs_put_file *f,
		       const struct cas_put_known *known, struct err *err)
{
	bool moved;
	int ret = 0;

	if (w->landing_dir)
		ret = cas_landing_offer(w->opts->landing, dir_fd, w->landing_dir, f->name, known,
					&f->digest, err);
	if (ret != 0)
		return ret < 0 ? ret : 0;
	return cas_put_take_known(w->m->store, dir_fd, f->name, f->may_move, known, &f->digest,
				  &moved, err);
}

void fs_put_file(const struct fs_capture_walk *w, int dir_fd, struct fs_put_file *f)
{
	struct fs_early_hint hint;
	bool known = fs_early_find(w->opts->early, &f->st, &hint) == 1;
	struct err err = {0};

	if (is_left(w->opts)) {
		f->fatal = true;
		f->ret = -ECANCELED;
		f->why = strdup("who asked for it has gone");
		return;
	}
	if (known && hint.is_put && cas_store_has(w->m->store, &hint.known.digest) == 1) {
		f->digest = hint.known.digest;
		return;
	}
	f->ret = put_or_list(w, dir_fd, f, known ? &hint.known : NULL, &err);
	f->fatal = f->ret < 0 && is_fatal(f->ret);
	f->why = f->ret < 0 ? strdup(err_text(&err, f->ret)) : NULL;
}

static void put_one(void *ctx, size_t i)
{
	struct fs_put_files *a = ctx;

	fs_put_file(a->w, a->dir_fd, &a->files[i]);
}

void fs_put_files_fini(struct fs_put_files *a)
{
	for (size_t i = 0; i < a->nr; i++) {
		free(a->files[i].path);
		free(a->files[i].why);
	}
	free(a->files);
}

/* A file of the upper, as it seems. */
static bool is_file(int dir_fd, const struct fs_listed *listed)
{
	struct stat st;

	if (listed->type != DT_UNKNOWN)
		return listed->type == DT_REG;
	return fstatat(dir_fd, listed->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

/* If it is a file of the upper, put it with the others. The path at hand is its own. */
static int add_ahead(struct fs_put_files *a, const struct fs_merge_dir *dir,
		     const struct fs_listing *list, const struct fs_listed *listed)
{
	struct fs_put_file *f = &a->files[a->nr];
	struct fs_capture_walk *w = a->w;
	const char *name = listed->name;
	struct fs_entry entry;
	int ret;

	if (!is_file(dir->fd, listed) || cas_name_check(name, strlen(name)) < 0)
		return 0;
	ret = fs_merge_child(w->m, dir, list, buf_str(&w->path), name, &entry, w->err);
	if (ret < 0)
		return ret;
	if (entry.kind == FS_ENTRY_FILE) {
		*f = (struct fs_put_file){
			.name = name, .path = strdup(buf_str(&w->path)), .st = entry.st};
		if (f->path == NULL)
			return fs_capture_no_memory(w);
		a->nr++;
	}
	fs_entry_fini(&entry);
	return 0;
}

int fs_put_files(struct fs_put_files *a, const struct fs_merge_dir *dir,
		 const struct fs_listing *list, size_t from, size_t to)
{
	struct fs_capture_walk *w = a->w;
	size_t len = w->path.len;
	int ret = 0;

	/* What is hidden by another mount must not leave its place. */
	if (dir->fd < 0 || (w->opts->foreign && w->opts->foreign->nr > 0))
		return 0;
	a->files = calloc(to - from, sizeof(*a->files));
	if (a->files == NULL)
		return fs_capture_no_memory(w);
	for (size_t i = from; ret == 0 && i < to; i++) {
		ret = fs_capture_push(w, list->names[i].name);
		if (ret == 0)
			ret = add_ahead(a, dir, list, &list->names[i]);
		fs_capture_pop(w, len);
	}
	if (ret == 0)
		ret = fs_put_announce(w, dir->fd, a->files, a->nr);
	if (ret == 0)
		fs_crew_run(w->opts->crew, a->nr, put_one, a);
	return ret;
}
