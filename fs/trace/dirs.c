/* fs/trace/dirs.c - what is opened in directories of session one, by marks on those */

/*
 * A group has the marks of many sandboxes, and the ids of the nodes it has marked. Since
 * those are never forgotten meanwhile, the group is let go when it has become large, or was
 * not used for a while: what is live stays in it, and sandboxes to come use another.
 */
#include "fs/trace/dirs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <time.h>
#include <unistd.h>

#define HASH_NONFATAL_OOM 1
#define HASH_FUNCTION	  HASH_FNV
#include <uthash.h>
#include <utlist.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/lock.h"
#include "cas/digest.h"
#include "fs/backing/notices.h"
#include "fs/backing/probe.h"
#include "fs/helper/helper.h"
#include "fs/node/inode.h"
#include "fs/trace/trace.h"
#include "meta/meta.h"

#define EVENTS_SZ  32768
#define DRAIN_MAX  32768 /* events: more than the kernel keeps */
#define BATCH_NS   500000L
#define IDLE_MS	   10000
#define DIRS_MAX   1024	 /* of one tree */
#define MARKS_MAX  16384 /* of one group */
#define GROUPS_MAX 4
#define LOST_TEXT  "opens came faster than they could be told: some are missing"

struct marked {
	UT_hash_handle hh;
	uint64_t id;
};

struct group {
	struct group *next;
	int fd;
	unsigned nr_users;
	struct marked *marked;
};

struct watched {
	UT_hash_handle hh;
	uint64_t serial;
	struct fs_trace *trace; /* counted */
	struct group *group;
};

struct fs_dirs {
	struct fs_dirs_options opts;
	struct fs_inode_table *table; /* set before any sandbox is shown */
	int stop_fd;
	_Atomic bool stop;
	pthread_t thread;
	struct lock lock; /* rank SESSION: nodes are looked up under it */
	bool started GUARDED_BY(lock);
	struct group *groups GUARDED_BY(lock); /* the first is for those to come */
	unsigned nr_groups GUARDED_BY(lock);
	struct watched *by_serial GUARDED_BY(lock);
	char *events GUARDED_BY(lock);
};

/* --- events --- */

static void take_open_locked(struct fs_dirs *dirs, const struct file_handle *handle,
			     const char *name) REQUIRES(dirs->lock)
{
	auto_free char *path = NULL;
	struct watched *w = NULL;
	uint64_t serial;
	uint32_t id[2]; /* the high half first: so the kernel's FUSE tells its nodes */

	if (handle->handle_bytes < sizeof(id))
		return;
	memcpy(id, handle->f_handle, sizeof(id));
	path = fs_inode_place(dirs->table, (uint64_t)id[0] << 32 | id[1], &serial);
	if (path)
		HASH_FIND(hh, dirs->by_serial, &serial, sizeof(serial), w);
	if (w)
		fs_trace_note(w->trace, FS_TRACE_READ, path, name);
}

static void take_event_locked(struct fs_dirs *dirs, const struct fs_notice *notice)
	REQUIRES(dirs->lock)
{
	struct watched *w;

	for (w = dirs->by_serial; w && notice->mask & FAN_Q_OVERFLOW; w = w->hh.next)
		fs_trace_lose(w->trace, LOST_TEXT);
	if (notice->name)
		take_open_locked(dirs, notice->dir, notice->name);
}

static void drain_locked(struct fs_dirs *dirs) REQUIRES(dirs->lock)
{
	struct group *g;

	LL_FOREACH (dirs->groups, g) {
		for (int nr = 0; nr < DRAIN_MAX;) {
			ssize_t len = read(g->fd, dirs->events, EVENTS_SZ);
			struct fs_notices notices = {dirs->events, len > 0 ? (size_t)len : 0};
			struct fs_notice notice;

			if (len <= 0)
				break;
			for (; fs_notices_next(&notices, &notice); nr++)
				take_event_locked(dirs, &notice);
		}
	}
}

/* --- groups --- */

/* Closing waits for the kernel to be done with its marks: by the thread, without the lock. */
static void group_free(struct group *g)
{
	struct marked *m, *next;

	HASH_ITER (hh, g->marked, m, next) {
		HASH_DEL(g->marked, m);
		free(m);
	}
	if (g->fd >= 0)
		(void)close(g->fd);
	free(g);
}

/* One that nobody needs any more, with @idle the first, too; NULL: there is none. */
static struct group *take_unused(struct fs_dirs *dirs, bool idle)
{
	struct group *g;

	lock_take(&dirs->lock);
	g = dirs->groups;
	if (g && !idle)
		g = g->next;
	while (g && g->nr_users > 0)
		g = g->next;
	if (g) {
		LL_DELETE(dirs->groups, g);
		dirs->nr_groups--;
	}
	lock_drop(&dirs->lock);
	return g;
}

static nfds_t poll_fds(struct fs_dirs *dirs, struct pollfd *fds)
{
	struct group *g;
	nfds_t nr = 1;

	fds[0] = (struct pollfd){dirs->stop_fd, POLLIN, 0};
	lock_take(&dirs->lock);
	LL_FOREACH (dirs->groups, g)
		fds[nr++] = (struct pollfd){g->fd, POLLIN, 0};
	lock_drop(&dirs->lock);
	return nr;
}

static void *dirs_main(void *arg)
{
	struct fs_dirs *dirs = arg;
	const struct timespec batch = {0, BATCH_NS};
	struct pollfd fds[1 + GROUPS_MAX];
	struct group *g;

	(void)pthread_setname_np(pthread_self(), "dirs");
	while (!atomic_load(&dirs->stop)) {
		nfds_t nr = poll_fds(dirs, fds);
		int got = poll(fds, nr, nr > 1 ? IDLE_MS : -1);
		uint64_t count;

		if (got > 0 && fds[0].revents)
			(void)!read(dirs->stop_fd, &count, sizeof(count));
		else if (got > 0)
			(void)nanosleep(&batch, NULL);
		lock_take(&dirs->lock);
		drain_locked(dirs);
		lock_drop(&dirs->lock);
		while ((g = take_unused(dirs, got == 0)) != NULL)
			group_free(g);
	}
	return NULL;
}

static void wake(struct fs_dirs *dirs)
{
	uint64_t one = 1;

	(void)!write(dirs->stop_fd, &one, sizeof(one));
}

static int start_locked(struct fs_dirs *dirs, struct err *err) REQUIRES(dirs->lock)
{
	int ret = dirs->started ? 0 : -pthread_create(&dirs->thread, NULL, dirs_main, dirs);

	if (ret < 0)
		return err_set(err, ret, "cannot start a thread: %s", strerror(-ret));
	dirs->started = true;
	return 0;
}

/* The group for a sandbox to come, with one user more. */
static int group_use_locked(struct fs_dirs *dirs, struct group **out, struct err *err)
	REQUIRES(dirs->lock)
{
	struct group *g = dirs->groups;

	if (!g || HASH_COUNT(g->marked) >= MARKS_MAX) {
		if (dirs->nr_groups == GROUPS_MAX)
			return err_set(err, -EOPNOTSUPP, "too many marks");
		g = calloc(1, sizeof(*g));
		if (!g)
			return err_set(err, -ENOMEM, "no memory to watch a sandbox");
		g->fd = fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK |
					      FAN_REPORT_DFID_NAME,
				      O_RDONLY);
		if (g->fd < 0) {
			free(g);
			return err_set(err, -errno, "fanotify: %s", strerror(errno));
		}
		LL_PREPEND(dirs->groups, g);
		dirs->nr_groups++;
		wake(dirs);
	}
	g->nr_users++;
	*out = g;
	return 0;
}

/* --- the directories of a tree --- */

struct walk {
	struct fs_dirs *dirs;
	struct group *group;
	struct buf path;
	struct buf list; /* of paths to mark, each with a NUL */
	uint64_t node;	 /* of the directory that is listed; 0: the kernel does not know it */
	size_t nr;
	bool record; /* they are marked now: remember their nodes */
};

static bool is_marked(const struct group *g, uint64_t id)
{
	struct marked *m;

	HASH_FIND(hh, g->marked, &id, sizeof(id), m);
	return m != NULL;
}

/* Forgetting one costs a mark that is set again. */
static void remember(struct group *g, uint64_t id)
{
	struct marked *m = is_marked(g, id) ? NULL : calloc(1, sizeof(*m));

	if (!m)
		return;
	m->id = id;
	HASH_ADD(hh, g->marked, id, sizeof(m->id), m);
	if (!m->hh.tbl)
		free(m);
}

static int walk_dir(struct walk *w, const struct cas_digest *digest, uint64_t node);

static int walk_entry(void *ctx, uint64_t index, const struct meta_dirent *entry)
{
	struct walk *w = ctx;
	uint64_t node = w->node;
	size_t len = w->path.len;
	struct fs_inode child = {0};
	int ret = 0;

	(void)index;
	if (entry->kind != CAS_NODE_DIRECTORY)
		return 0;
	if (len > 0)
		ret = buf_append_char(&w->path, '/');
	if (ret == 0)
		ret = buf_append_str(&w->path, entry->name);
	if (node == 0 || !fs_inode_child(w->dirs->table, node, entry->name, &child))
		child.id = 0;
	if (ret == 0)
		ret = walk_dir(w, &entry->digest, child.id);
	w->node = node;
	w->path.len = len;
	if (w->path.data)
		w->path.data[len] = '\0';
	return ret;
}

static int walk_dir(struct walk *w, const struct cas_digest *digest, uint64_t node)
{
	struct meta_dirinfo info;
	int ret = meta_dir_info(w->dirs->opts.meta, digest, &info, NULL);

	if (ret == 0 && ++w->nr > DIRS_MAX)
		ret = -EOPNOTSUPP;
	if (ret == 0 && w->record && node != 0)
		remember(w->group, node);
	else if (ret == 0 && !w->record && (node == 0 || !is_marked(w->group, node)))
		ret = buf_append(&w->list, w->path.len ? buf_str(&w->path) : ".",
				 (w->path.len ? w->path.len : 1) + 1);
	if (ret < 0 || info.nr_subdirs == 0)
		return ret;
	w->node = node;
	return meta_dir_list(w->dirs->opts.meta, digest, 0, walk_entry, w, NULL);
}

/* Both passes; sets of marked nodes are the group's, so under the lock. */
static int walk_tree(struct walk *w, uint64_t serial, const struct cas_digest *root)
{
	struct fs_dirs *dirs = w->dirs;
	uint64_t top = fs_inode_top(dirs->table, serial);
	int ret;

	w->nr = 0;
	lock_take(&dirs->lock);
	ret = walk_dir(w, root, top);
	lock_drop(&dirs->lock);
	return ret;
}

/* As many of @list as a message holds, in turn. */
static int mark_all(struct fs_dirs *dirs, const char *id, int group_fd, const struct buf *list,
		    struct err *err)
{
	for (size_t at = 0; at < list->len;) {
		size_t len = 0;
		struct fs_helper_step step = {.op = FS_HELPER_WATCH_DIRS,
					      .target = id,
					      .source = list->data + at,
					      .fd = {group_fd, -1}};
		int ret;

		while (at + len < list->len) {
			size_t next = strlen(list->data + at + len) + 1;

			if (len > 0 && len + next > FS_HELPER_DIRS_MAX)
				break;
			len += next;
		}
		step.source_len = len;
		ret = fs_helper_run(dirs->opts.helper, dirs->opts.base, &step, 1, false, err);
		if (ret < 0)
			return ret;
		at += len;
	}
	return 0;
}

static int mark_tree(struct fs_dirs *dirs, const char *id, uint64_t serial,
		     const struct cas_digest *root, struct group *g, struct err *err)
{
	struct walk w = {.dirs = dirs, .group = g};
	int ret = walk_tree(&w, serial, root);

	if (ret < 0)
		(void)err_set(err, ret, "cannot list the directories of sandbox %s: %s", id,
			      strerrordesc_np(-ret));
	if (ret == 0 && w.list.len > 0) {
		ret = mark_all(dirs, id, g->fd, &w.list, err);
		/* FUSE has no id of a filesystem, without which older kernels do not go. */
		ret = ret == -ENODEV || ret == -EINVAL ? -EOPNOTSUPP : ret;
		w.record = true;
		if (ret == 0)
			ret = walk_tree(&w, serial, root);
	}
	buf_fini(&w.path);
	buf_fini(&w.list);
	return ret;
}

/* --- who is watched --- */

static int enter(struct fs_dirs *dirs, uint64_t serial, struct fs_trace *trace, struct group **g,
		 struct err *err)
{
	struct watched *w = calloc(1, sizeof(*w));
	int ret;

	if (!w)
		return err_set(err, -ENOMEM, "no memory to watch a sandbox");
	w->serial = serial;
	lock_take(&dirs->lock);
	ret = start_locked(dirs, err);
	if (ret == 0)
		ret = group_use_locked(dirs, &w->group, err);
	if (ret == 0) {
		HASH_ADD(hh, dirs->by_serial, serial, sizeof(w->serial), w);
		if (!w->hh.tbl) {
			w->group->nr_users--;
			ret = err_set(err, -ENOMEM, "no memory to watch a sandbox");
		}
	}
	if (ret == 0) {
		w->trace = fs_trace_ref(trace);
		*g = w->group;
	}
	lock_drop(&dirs->lock);
	if (ret < 0)
		free(w);
	return ret;
}

int fs_dirs_add(struct fs_dirs *dirs, const char *id, uint64_t serial,
		const struct cas_digest *root, struct fs_trace *trace, struct err *err)
{
	struct group *g = NULL;
	int ret;

	if (dirs->opts.probes && fs_probes_is_off(dirs->opts.probes, FS_FEATURE_FANOTIFY))
		return err_set(err, -EOPNOTSUPP, "not wanted");
	ret = enter(dirs, serial, trace, &g, err);
	if (ret < 0)
		return ret;
	ret = mark_tree(dirs, id, serial, root, g, err);
	if (ret < 0)
		fs_dirs_remove(dirs, serial);
	return ret;
}

bool fs_dirs_has(struct fs_dirs *dirs, uint64_t serial)
{
	struct watched *w;

	lock_take(&dirs->lock);
	HASH_FIND(hh, dirs->by_serial, &serial, sizeof(serial), w);
	lock_drop(&dirs->lock);
	return w != NULL;
}

void fs_dirs_settle(struct fs_dirs *dirs)
{
	lock_take(&dirs->lock);
	drain_locked(dirs);
	lock_drop(&dirs->lock);
}

void fs_dirs_remove(struct fs_dirs *dirs, uint64_t serial)
{
	struct watched *w;

	lock_take(&dirs->lock);
	HASH_FIND(hh, dirs->by_serial, &serial, sizeof(serial), w);
	if (w) {
		drain_locked(dirs);
		HASH_DEL(dirs->by_serial, w);
		w->group->nr_users--;
	}
	lock_drop(&dirs->lock);
	if (!w)
		return;
	fs_trace_unref(w->trace);
	free(w);
}

/* --- life --- */

NO_LOCK_CHECK int fs_dirs_new(const struct fs_dirs_options *opts, struct fs_dirs **out)
{
	struct fs_dirs *dirs = calloc(1, sizeof(*dirs));

	if (!dirs)
		return -ENOMEM;
	dirs->opts = *opts;
	dirs->events = malloc(EVENTS_SZ);
	dirs->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	lock_init(&dirs->lock, LOCK_RANK_SESSION, "marks of directories");
	if (!dirs->events || dirs->stop_fd < 0) {
		fs_dirs_free(dirs);
		return -ENOMEM;
	}
	*out = dirs;
	return 0;
}

NO_LOCK_CHECK void fs_dirs_free(struct fs_dirs *dirs)
{
	struct watched *w, *next;
	struct group *g, *next_group;

	if (!dirs)
		return;
	if (dirs->started) {
		atomic_store(&dirs->stop, true);
		wake(dirs);
		(void)pthread_join(dirs->thread, NULL);
	}
	HASH_ITER (hh, dirs->by_serial, w, next) {
		HASH_DEL(dirs->by_serial, w);
		fs_trace_unref(w->trace);
		free(w);
	}
	LL_FOREACH_SAFE(dirs->groups, g, next_group)
	group_free(g);
	if (dirs->stop_fd >= 0)
		(void)close(dirs->stop_fd);
	lock_fini(&dirs->lock);
	free(dirs->events);
	free(dirs);
}

void fs_dirs_attach(struct fs_dirs *dirs, struct fs_inode_table *table)
{
	dirs->table = table;
}
