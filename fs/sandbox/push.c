/* fs/sandbox/push.c - give the kernel what it does not know before anybody asks */

/*
 * Pushes take turns: each is at it for one message to the helper, then goes to the end of
 * the queue, so that the changes of a new sandbox do not wait for the warming of a tree.
 */
#define FUSE_USE_VERSION 312
#include "fs/sandbox/push.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/sandbox/missed.h"
#include "fs/serve/backing.h"
#include "fs/serve/helper.h"
#include "fs/serve/inode.h"
#include "fs/serve/probe.h"
#include "fs/serve/readdir.h"
#include "fs/serve/session.h"
#include "meta/meta.h"

#define MAX_WAITING  256
#define MAX_NAMES    256	 /* of one push */
#define MAX_DIRS     100000	 /* the same */
#define BATCH	     16		 /* steps of one message to the helper */
#define TRIES	     3		 /* of a path that changes while it is looked at */
#define FILE_SZ	     (64 << 10)	 /* larger ones are left to be asked for */
#define CHANGES_SZ   (4U << 20)	 /* of files, in all */
#define WARM_SZ	     (64U << 20) /* the same */
#define WARM_ENTRIES 200000
#define WANT_ENTRIES 1000      /* with more of them a directory is not listed unasked */
#define WANT_FILES   64	       /* the same for the bytes of its files */
#define LIST_SZ	     (1 << 20) /* of a listing at a time, in the kernel's form */

struct fs_push {
	struct fs_push *next;
	enum fs_push_kind kind;
	uint64_t serial; /* WANT: 0 */
	size_t bytes_left;
	size_t entries_left;
	size_t nr_names;
	size_t name_at; /* the next to be looked up */
	size_t nr_dirs;
	size_t dirs_cap;
	size_t dir_at; /* the next to be listed */
	uint64_t *dirs;
	size_t names_cap;
	struct push_name {
		uint64_t dir;
		char *name;
	} * names;
	bool foreseen; /* WARM: names have the missing ones */
};

struct fs_pusher {
	struct fs_pusher_options opts;
	struct fs_helper *helper;
	pthread_t thread;
	bool runs;	    /* thread is to be joined */
	char data[FILE_SZ]; /* the thread's */

	struct lock lock; /* rank QUEUE */
	pthread_cond_t wake;
	struct fs_push *first GUARDED_BY(lock);
	struct fs_push **last GUARDED_BY(lock);
	size_t nr_waiting GUARDED_BY(lock); /* and the one that has its turn */

	_Atomic bool stop;
	_Atomic bool refused; /* by the kernel: it will not be otherwise later */
	_Atomic uint64_t nr_names;
	_Atomic uint64_t nr_dirs;
	_Atomic uint64_t nr_files;
	_Atomic uint64_t nr_skipped; /* pushes */
};

struct fs_push *fs_push_new(enum fs_push_kind kind, uint64_t serial)
{
	struct fs_push *push = calloc(1, sizeof(*push));

	if (!push)
		return NULL;
	push->kind = kind;
	push->serial = serial;
	push->bytes_left = kind == FS_PUSH_WARM ? WARM_SZ : CHANGES_SZ;
	push->entries_left = WARM_ENTRIES;
	return push;
}

void fs_push_free(struct fs_push *push)
{
	if (!push)
		return;
	for (size_t i = 0; i < push->nr_names; i++)
		free(push->names[i].name);
	free(push->names);
	free(push->dirs);
	free(push);
}

/* Room for one more; false: there is none. */
static bool grow_names(struct fs_push *push)
{
	size_t cap = push->names_cap ? 2 * push->names_cap : BATCH;
	struct push_name *names;

	if (push->nr_names < push->names_cap)
		return true;
	if (push->kind != FS_PUSH_WARM && push->nr_names == MAX_NAMES)
		return false;
	names = realloc(push->names, cap * sizeof(*names));
	if (!names)
		return false;
	push->names = names;
	push->names_cap = cap;
	return true;
}

void fs_push_name(struct fs_push *push, uint64_t dir, const char *name)
{
	char *copy = grow_names(push) ? strdup(name) : NULL;

	if (copy)
		push->names[push->nr_names++] = (struct push_name){dir, copy};
}

void fs_push_list(struct fs_push *push, uint64_t dir)
{
	if (push->nr_dirs == push->dirs_cap) {
		size_t cap = push->dirs_cap ? 2 * push->dirs_cap : BATCH;
		uint64_t *dirs = cap <= MAX_DIRS ? realloc(push->dirs, cap * sizeof(*dirs)) : NULL;

		if (!dirs)
			return;
		push->dirs = dirs;
		push->dirs_cap = cap;
	}
	push->dirs[push->nr_dirs++] = dir;
}

/* --- the thread --- */

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
	    entry->digest.size > FILE_SZ || entry->digest.size > push->bytes_left)
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

/* Have the helper look at up to BATCH items; their count that it did look at. */
static size_t look_at(struct fs_pusher *p, struct item *items, size_t nr)
{
	struct fs_helper_step steps[BATCH];
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
	struct item items[BATCH];
	size_t from = push->name_at;
	size_t nr = 0;

	for (; nr < BATCH && push->name_at < push->nr_names; push->name_at++)
		items[nr++] = (struct item){push->names[push->name_at].dir,
					    push->names[push->name_at].name, NULL};
	look_batch(p, items, nr, &p->nr_names);
	for (size_t i = from; push->kind != FS_PUSH_WARM && i < push->name_at && is_wanted(p, push);
	     i++)
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

static void list_dirs(struct fs_pusher *p, struct fs_push *push)
{
	struct item items[BATCH];
	uint64_t follow[BATCH];
	size_t nr_follow = 0;
	size_t nr = 0;

	for (; nr < BATCH && push->dir_at < push->nr_dirs; push->dir_at++) {
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

/* One turn of @push. False: it is done. */
static bool run_push(struct fs_pusher *p, struct fs_push *push)
{
	if (!is_wanted(p, push))
		return false;
	if (push->dir_at < push->nr_dirs && push->entries_left > 0)
		list_dirs(p, push);
	else if (push->name_at < push->nr_names)
		look_up_names(p, push);
	else if (push->kind == FS_PUSH_WARM && !push->foreseen)
		foresee_names(p, push);
	else
		return false;
	return true;
}

static void queue_locked(struct fs_pusher *p, struct fs_push *push) REQUIRES(p->lock)
{
	push->next = NULL;
	*p->last = push;
	p->last = &push->next;
}

/* The next, NULL: the end. @last, if there was one, goes to the end of the queue or is over. */
static struct fs_push *next_push(struct fs_pusher *p, struct fs_push *last, bool more)
{
	struct fs_push *push = NULL;

	lock_take(&p->lock);
	if (last && more)
		queue_locked(p, last);
	p->nr_waiting -= last && !more;
	while (!p->first && !atomic_load(&p->stop))
		(void)lock_wait(&p->lock, &p->wake, 0);
	if (!atomic_load(&p->stop)) {
		push = p->first;
		p->first = push->next;
		if (!p->first)
			p->last = &p->first;
	}
	lock_drop(&p->lock);
	if (!more)
		fs_push_free(last);
	return push;
}

static void *pusher_thread(void *arg)
{
	struct fs_pusher *p = arg;
	struct fs_push *push = NULL;
	bool more = false;

	while ((push = next_push(p, push, more)) != NULL)
		more = run_push(p, push);
	return NULL;
}

int fs_pusher_new(const struct fs_pusher_options *opts, struct fs_pusher **out, struct err *err)
{
	struct fs_pusher *p = calloc(1, sizeof(*p));
	int ret;

	if (!p)
		return err_set(err, -ENOMEM, "no memory for the pusher");
	p->opts = *opts;
	lock_init(&p->lock, LOCK_RANK_QUEUE, "pusher");
	lock_cond_init(&p->wake);
	lock_take(&p->lock);
	p->last = &p->first;
	lock_drop(&p->lock);
	ret = fs_helper_new(opts->helper_program, &p->helper, err);
	if (ret == 0) {
		ret = -pthread_create(&p->thread, NULL, pusher_thread, p);
		p->runs = ret == 0;
		if (ret < 0)
			(void)err_set(err, ret, "cannot start a thread: %s", strerrordesc_np(-ret));
	}
	if (ret < 0) {
		fs_pusher_free(p);
		return ret;
	}
	(void)pthread_setname_np(p->thread, "pusher");
	*out = p;
	return 0;
}

void fs_pusher_stop(struct fs_pusher *p)
{
	if (!p)
		return;
	lock_take(&p->lock);
	atomic_store(&p->stop, true);
	(void)pthread_cond_signal(&p->wake);
	lock_drop(&p->lock);
	if (p->runs)
		(void)pthread_join(p->thread, NULL);
	p->runs = false;
	/* Its copy of the mount would keep session one from ending. */
	fs_helper_free(p->helper);
	p->helper = NULL;
}

NO_LOCK_CHECK void fs_pusher_free(struct fs_pusher *p)
{
	if (!p)
		return;
	fs_pusher_stop(p);
	while (p->first) {
		struct fs_push *push = p->first;

		p->first = push->next;
		fs_push_free(push);
	}
	(void)pthread_cond_destroy(&p->wake);
	lock_fini(&p->lock);
	free(p);
}

void fs_pusher_submit(struct fs_pusher *p, struct fs_push *push)
{
	bool wanted = push->nr_names + push->nr_dirs > 0;

	lock_take(&p->lock);
	if (wanted && !atomic_load(&p->stop) && !atomic_load(&p->refused) &&
	    p->nr_waiting < MAX_WAITING) {
		queue_locked(p, push);
		p->nr_waiting++;
		(void)pthread_cond_signal(&p->wake);
		push = NULL;
	}
	lock_drop(&p->lock);
	if (push && wanted)
		atomic_fetch_add(&p->nr_skipped, 1);
	fs_push_free(push);
}

/* The last in the queue, if it is one of these that takes one more. */
static struct fs_push *open_want_locked(struct fs_pusher *p) REQUIRES(p->lock)
{
	struct fs_push *push = p->first;

	while (push && push->next)
		push = push->next;
	return push && push->kind == FS_PUSH_WANT && push->dir_at == 0 && push->nr_dirs < BATCH
		       ? push
		       : NULL;
}

void fs_pusher_want(struct fs_pusher *p, uint64_t dir)
{
	struct fs_push *push;

	lock_take(&p->lock);
	push = open_want_locked(p);
	if (push)
		fs_push_list(push, dir);
	lock_drop(&p->lock);
	if (push)
		return;
	push = fs_push_new(FS_PUSH_WANT, 0);
	if (!push)
		return;
	fs_push_list(push, dir);
	fs_pusher_submit(p, push);
}

json_t *fs_pusher_describe(struct fs_pusher *p)
{
	size_t nr_waiting;

	lock_take(&p->lock);
	nr_waiting = p->nr_waiting;
	lock_drop(&p->lock);
	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "names",
			 (json_int_t)atomic_load(&p->nr_names), "directories",
			 (json_int_t)atomic_load(&p->nr_dirs), "blobs",
			 (json_int_t)atomic_load(&p->nr_files), "waiting", (json_int_t)nr_waiting,
			 "skipped", (json_int_t)atomic_load(&p->nr_skipped));
}
