/* fs/slot/push_turn.c - what is done in one turn of a push */
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/backing/backing.h"
#include "fs/backing/probe.h"
#include "fs/helper/helper.h"
#include "fs/node/inode.h"
#include "fs/node/readdir.h"
#include "fs/serve/session.h"
#include "fs/slot/missed.h"
#include "fs/slot/push_i.h"
#include "meta/meta.h"

#define TRIES	     3	  /* of a path that changes while it is looked at */
#define WANT_ENTRIES 1000 /* with more of them a directory is not listed unasked */
#define WANT_FILES   64	  /* the same for the bytes of its files */
#define WANT_MISSED  64	  /* missing names that are looked up in it */
#define CROWDED_NS   50000000ULL
#define LIST_SZ	     (1 << 20) /* of a listing at a time, in the kernel's form */

static bool is_wanted(struct fs_pusher *p, const struct fs_push *push)
{
	return !atomic_load(&p->stop) && !atomic_load(&p->refused) &&
	       (push->kind == FS_PUSH_WANT ||
		fs_inode_top_in_use(p->opts.session->table, push->serial,
				    push->kind == FS_PUSH_WARM));
}

/* Store the bytes of the file @entry if it is small, and the kernel knows it. */
static void store_file(struct fs_pusher *p, struct fs_push *push, const struct fs_entry *entry)
{
	struct fs_session *one = p->opts.session;
	struct fuse_bufvec bytes = FUSE_BUFVEC_INIT(entry->digest.size);
	struct fs_backing *backing;
	ssize_t got;
	uint64_t id;

	if (entry->kind != FS_KIND_FILE || entry->digest.size == 0 ||
	    entry->digest.size > FS_PUSH_FILE_SZ || entry->digest.size > push->bytes_left)
		return;
	id = fs_inode_store(one->table, entry);
	if (id == 0 || fs_backing_ref(one->opts.backing, &entry->digest, &backing, NULL) < 0)
		return;
	got = fs_backing_read(backing, p->data, entry->digest.size, 0);
	fs_backing_unref(one->opts.backing, backing);
	if (got != (ssize_t)entry->digest.size)
		return;
	bytes.buf[0].mem = p->data;
	/* -ENOENT: the kernel forgot it meanwhile. Whatever it refuses it asks for. */
	if (fuse_lowlevel_notify_store(one->se, id, 0, &bytes, 0) < 0)
		return;
	push->bytes_left -= entry->digest.size;
	atomic_fetch_add(&p->nr_files, 1);
	if (one->opts.pushed)
		one->opts.pushed(one->opts.ctx, &entry->digest);
}

/* One of the things that the helper is asked to look at. */
struct item {
	uint64_t dir;
	const char *name; /* NULL: the directory itself is listed */
	char *path;	  /* NULL: it has none */
};

static char *item_path(struct fs_pusher *p, const struct item *item)
{
	char *dir = fs_inode_path(p->opts.session->table, item->dir);
	char *path = NULL;

	if (!dir || !item->name)
		return dir;
	if (asprintf(&path, "%s/%s", dir, item->name) < 0)
		path = NULL;
	free(dir);
	return path;
}

static void run_steps(struct fs_pusher *p, struct fs_helper_step *steps, size_t nr)
{
	struct err err = {0};
	int ret;

	atomic_store(&p->opts.session->walker, fs_helper_pid(p->helper));
	ret = fs_helper_run(p->helper, p->opts.base, steps, nr, true, &err);
	if (ret < 0)
		log_debug("push: %s", err_text(&err, ret));
	if (ret == -EPERM || ret == -ENOSYS) {
		atomic_store(&p->refused, true);
		fs_probes_set(p->opts.probes, FS_FEATURE_PUSH, false, "%.100s", err.msg);
	}
}

/* True: the kernel has it under another name than when it was looked at, and not found. */
static bool has_moved(struct fs_pusher *p, struct item *item, const struct fs_helper_step *step)
{
	char *path;
	bool moved;

	if (step->code != -ENOENT)
		return false;
	path = item_path(p, item);
	moved = path && strcmp(path, item->path) != 0;
	free(item->path);
	item->path = path;
	return moved;
}

/* Have the helper look at up to FS_PUSH_BATCH items; their count that it did look at. */
static size_t look_at(struct fs_pusher *p, struct item *items, size_t nr)
{
	struct fs_helper_step steps[FS_PUSH_BATCH];
	size_t nr_done = 0;
	size_t left = nr;

	for (int tries = TRIES; left > 0 && tries > 0; tries--) {
		size_t nr_again = 0;

		for (size_t i = 0; i < left; i++)
			steps[i] = (struct fs_helper_step){
				.op = items[i].name ? FS_HELPER_LOOK : FS_HELPER_LIST,
				.target = items[i].path,
				.fd = {-1, -1},
			};
		run_steps(p, steps, left);
		for (size_t i = 0; i < left; i++) {
			nr_done += steps[i].code == 0;
			if (!has_moved(p, &items[i], &steps[i]))
				continue;
			struct item again = items[i];

			items[i] = items[nr_again];
			items[nr_again++] = again;
		}
		left = nr_again;
	}
	return nr_done;
}

static void look_batch(struct fs_pusher *p, struct item *items, size_t nr, _Atomic uint64_t *count)
{
	size_t kept = 0;

	for (size_t i = 0; i < nr; i++) {
		items[i].path = item_path(p, &items[i]);
		if (items[i].path)
			items[kept++] = items[i];
	}
	if (kept > 0)
		atomic_fetch_add(count, look_at(p, items, kept));
	for (size_t i = 0; i < kept; i++)
		free(items[i].path);
}

static void store_name(struct fs_pusher *p, struct fs_push *push, const struct push_name *name)
{
	struct fs_entry entry = {0};
	struct fs_inode dir;

	if (!fs_inode_get(p->opts.session->table, name->dir, &dir) ||
	    dir.entry.view->ops->lookup(dir.entry.view, &dir.entry, name->name, &entry, NULL) != 1)
		return;
	store_file(p, push, &entry);
	if (entry.kind == FS_KIND_SYMLINK)
		free((char *)entry.target);
}

static void look_up_names(struct fs_pusher *p, struct fs_push *push)
{
	struct item items[FS_PUSH_BATCH];
	size_t from = push->name_at;
	size_t nr = 0;

	for (; nr < FS_PUSH_BATCH && push->name_at < push->nr_names; push->name_at++)
		items[nr++] = (struct item){push->names[push->name_at].dir,
					    push->names[push->name_at].name, NULL};
	look_batch(p, items, nr, &p->nr_names);
	for (size_t i = from;
	     push->kind == FS_PUSH_CHANGES && i < push->name_at && is_wanted(p, push); i++)
		store_name(p, push, &push->names[i]);
}

/* What came with the listing of the directory @id: files to store, directories to list. */
static void follow_up(struct fs_pusher *p, struct fs_push *push, uint64_t id)
{
	struct fs_inode_table *table = p->opts.session->table;
	struct fs_dirlist list = {.nr = 1};
	struct fs_inode dir;
	uint64_t off = 0;

	while (list.nr > 0 && push->entries_left > 0 && is_wanted(p, push) &&
	       fs_inode_get(table, id, &dir) &&
	       fs_dirlist_collect(&dir, off, LIST_SZ, true, &list, NULL) == 0) {
		for (size_t i = 0; i < list.nr; i++) {
			const struct fs_diritem *item = &list.items[i];
			struct fs_inode child;

			off = item->next_off;
			store_file(p, push, &item->entry);
			if (push->kind == FS_PUSH_WARM && !item->is_dot &&
			    item->entry.kind == FS_KIND_DIR &&
			    fs_inode_child(table, id, item->name, &child))
				fs_push_list(push, child.id);
		}
		push->entries_left -= list.nr < push->entries_left ? list.nr : push->entries_left;
		fs_dirlist_fini(&list);
	}
}

/* How many entries the directory @id has; more than any: it is not there. */
static uint64_t nr_entries(struct fs_pusher *p, uint64_t id)
{
	struct meta_dirinfo info;
	struct fs_inode dir;

	return fs_inode_get(p->opts.session->table, id, &dir) &&
			       meta_dir_info(p->opts.meta, &dir.entry.digest, &info, NULL) == 0
		       ? info.nr_entries
		       : UINT64_MAX;
}

/* Directories whose files are stored, too, and looked at further. */
static bool is_followed(const struct fs_push *push, uint64_t nr)
{
	return push->kind == FS_PUSH_WARM || (push->kind == FS_PUSH_WANT && nr <= WANT_FILES);
}

/* What was missed in a directory will be again. */
static void foresee_in(struct fs_pusher *p, struct fs_push *push, uint64_t id)
{
	auto_free char *path = p->opts.missed ? fs_inode_path(p->opts.session->table, id) : NULL;
	/* Without the sandbox's id. */
	const char *slash = path ? strchr(path, '/') : NULL;
	char *names[WANT_MISSED];
	size_t nr;

	if (!path)
		return;
	nr = fs_missed_in(p->opts.missed, slash ? slash + 1 : "", names, WANT_MISSED);
	for (size_t i = 0; i < nr; i++) {
		fs_push_name(push, id, names[i]);
		free(names[i]);
	}
}

static void list_dirs(struct fs_pusher *p, struct fs_push *push)
{
	struct item items[FS_PUSH_BATCH];
	uint64_t follow[FS_PUSH_BATCH];
	size_t nr_follow = 0;
	size_t from = push->dir_at;
	size_t nr = 0;

	for (; nr < FS_PUSH_BATCH && push->dir_at < push->nr_dirs; push->dir_at++) {
		uint64_t id = push->dirs[push->dir_at];
		uint64_t size = nr_entries(p, id);

		if (size > (push->kind == FS_PUSH_WARM ? push->entries_left : WANT_ENTRIES))
			continue;
		items[nr++] = (struct item){.dir = id};
		if (is_followed(push, size))
			follow[nr_follow++] = id;
	}
	look_batch(p, items, nr, &p->nr_dirs);
	for (size_t i = 0; i < nr_follow; i++)
		follow_up(p, push, follow[i]);
	for (; push->kind == FS_PUSH_WANT && from < push->dir_at; from++)
		foresee_in(p, push, push->dirs[from]);
}

/* The directory that has the name at the end of @path, from @top on; *name is that. */
static uint64_t find_parent(struct fs_pusher *p, uint64_t top, char *path, const char **name)
{
	struct fs_inode dir = {.id = top};
	char *slash;

	while ((slash = strchr(path, '/')) != NULL) {
		*slash = '\0';
		if (!fs_inode_child(p->opts.session->table, dir.id, path, &dir))
			return 0;
		path = slash + 1;
	}
	*name = path;
	return dir.id;
}

/* What sandboxes looked for in vain will not be found in this tree either, most of it. */
static void foresee_names(struct fs_pusher *p, struct fs_push *push)
{
	char *path;

	push->foreseen = true;
	for (size_t i = 0; p->opts.missed && (path = fs_missed_get(p->opts.missed, i)); i++) {
		const char *name;
		uint64_t dir = find_parent(p, push->dirs[0], path, &name);

		if (dir != 0 && name[0] != '\0')
			fs_push_name(push, dir, name);
		free(path);
	}
}

/*
 * Are there as many who want to run as processors, ourselves left out? Then whoever goes
 * through a directory is faster without us: we would do more than he needs, at his expense.
 */
static bool is_crowded(void)
{
	auto_buf struct buf text = {0};
	long nr_running = 0;
	const char *at;

	if (io_read_file(AT_FDCWD, "/proc/loadavg", 256, &text) < 0)
		return false;
	at = strchr(buf_str(&text), '/');
	while (at && at > text.data && at[-1] >= '0' && at[-1] <= '9')
		at--;
	if (at)
		nr_running = strtol(at, NULL, 10);
	return nr_running > sysconf(_SC_NPROCESSORS_ONLN) + 1;
}

/* Later, when they are gone through still. */
static void put_off(struct fs_pusher *p, struct fs_push *push)
{
	for (; push->dir_at < push->nr_dirs; push->dir_at++)
		fs_inode_unlisted(p->opts.session->table, push->dirs[push->dir_at]);
	atomic_store(&p->crowded_ns, lock_now_ns() + CROWDED_NS);
	atomic_fetch_add(&p->nr_skipped, 1);
}

bool fs_push_turn(struct fs_pusher *p, struct fs_push *push)
{
	if (!is_wanted(p, push))
		return false;
	if (push->kind == FS_PUSH_WANT && push->dir_at < push->nr_dirs && is_crowded())
		put_off(p, push);
	else if (push->dir_at < push->nr_dirs && push->entries_left > 0)
		list_dirs(p, push);
	else if (push->name_at < push->nr_names)
		look_up_names(p, push);
	else if (push->kind == FS_PUSH_WARM && !push->foreseen)
		foresee_names(p, push);
	else
		return false;
	return true;
}
