/* fs/trace/opens.c - what is opened in sandboxes of session one, heard by fanotify */

/*
 * Events with file handles instead of descriptors would be cheaper, but FUSE has no fsid, and
 * without one the kernel reports no handles for a whole filesystem. Marks of a mount would not
 * do: `run` has copies of it in a mount namespace of its own.
 *
 * Nearly all that is left to pay is asking for an event's path, so that is done once a file: an
 * inode number of session one stands for a path, whichever sandbox it is in, and a mount for a
 * sandbox. Mounts are known by the number that the kernel never gives again (6.8); before,
 * each event is asked for its path.
 *
 * An event of an overlay may be about a file that the action made. Inputs are told by the
 * highest bit of the inode number, where xino puts the layer; what was copied up keeps an
 * xattr in the upper that tells its origin.
 */
#include "fs/trace/opens.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/fanotify.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define HASH_NONFATAL_OOM 1
#define HASH_FUNCTION	  HASH_FNV
#include <uthash.h>
#include <utlist.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/lock.h"
#include "fs/backing/probe.h"
#include "fs/sandbox/outputs.h"
#include "fs/sandbox/sandbox.h"
#include "fs/trace/trace.h"

#define EVENTS_SZ  (64 * FAN_EVENT_METADATA_LEN) /* each opens a file */
#define DRAIN_MAX  32768			 /* events: more than the kernel keeps */
#define BATCH_NS   400000L
#define MOUNTS_MAX 16
#define PLACES	   16384
#define LOWER_BIT  (UINT64_C(1) << 63)
#define LOST_TEXT  "opens came faster than they could be told: some are missing"
#define GUESS_TEXT                                                                                 \
	"commands in namespaces of their own, at the same time: what they opened may be told of each"

#ifndef STATX_MNT_ID_UNIQUE
#define STATX_MNT_ID_UNIQUE 0x00004000U
#endif

/* An overlay in a watched sandbox. */
struct overlay {
	struct overlay *next;
	uint64_t dev;
	int upper_fd;
	char path[];
};

struct watched {
	UT_hash_handle hh;
	struct fs_trace *trace;	     /* counted */
	uint64_t mounts[MOUNTS_MAX]; /* in which it was seen; 0: none */
	unsigned nr_mounts;
	struct overlay *overlays;
	char id[];
};

/* A file of session one: what is at this place of some tree. */
struct place {
	uint64_t ino;
	char *path;
};

struct fs_opens {
	struct fs_opens_options opts;
	char *base;
	size_t base_len;
	int fds_fd; /* /proc/self/fd */
	int stop_fd;
	_Atomic bool stop;
	pthread_t thread;
	struct lock lock; /* rank QUEUE */
	bool started GUARDED_BY(lock);
	int notify_fd GUARDED_BY(lock); /* -1: nobody was watched so far */
	struct watched *by_id GUARDED_BY(lock);
	char *events GUARDED_BY(lock);
	struct place *places GUARDED_BY(lock); /* PLACES of them, by inode number */
	/* Mounts that show no watched sandbox, as long as none is added. */
	uint64_t nobody[MOUNTS_MAX] GUARDED_BY(lock);
	unsigned next_nobody GUARDED_BY(lock);
	_Atomic dev_t dev;
};

/* --- one event --- */

static void note(struct watched *w, const char *path)
{
	fs_trace_note(w->trace, FS_TRACE_READ, "", path);
}

/* Nobody says which sandbox it is in; with one there is no doubt. */
static void note_somewhere_locked(struct fs_opens *opens, const char *path) REQUIRES(opens->lock)
{
	bool many = HASH_COUNT(opens->by_id) > 1;

	for (struct watched *w = opens->by_id; w; w = w->hh.next) {
		note(w, path);
		if (many)
			fs_trace_remark(w->trace, GUESS_TEXT);
	}
}

/* What remains of @path below the directory @dir, or NULL. */
static const char *below(const char *path, const char *dir, size_t len)
{
	return strncmp(path, dir, len) == 0 && path[len] == '/' ? path + len + 1 : NULL;
}

/*
 * Is @fd of a mount that is no longer anywhere, since its namespace ended? The path is from
 * its root then. So it is for what overlays open in their lower layers, but theirs are
 * noatime.
 */
static bool is_detached(int fd)
{
	struct statvfs vfs;

	return fstatvfs(fd, &vfs) == 0 && !(vfs.f_flag & ST_NOATIME);
}

/* Where a file at @path below the base is: its sandbox, NULL if nobody watches that. */
static struct watched *find_box_locked(struct fs_opens *opens, const char **path)
	REQUIRES(opens->lock)
{
	const char *slash = strchr(*path, '/');
	struct watched *w = NULL;

	if (!slash)
		return NULL;
	HASH_FIND(hh, opens->by_id, *path, (size_t)(slash - *path), w);
	*path = slash + 1;
	return w;
}

/* @path of @fd, a file of session one. The sandbox and *path in it, if that is sure. */
static struct watched *note_input_locked(struct fs_opens *opens, int fd, const char **path)
	REQUIRES(opens->lock)
{
	const char *rest = below(*path, opens->base, opens->base_len);
	struct watched *w = NULL;

	if (rest) {
		w = find_box_locked(opens, &rest);
		if (w)
			note(w, rest);
		*path = rest;
	} else if (is_detached(fd)) {
		rest = below(*path, FS_SANDBOX_INSIDE, strlen(FS_SANDBOX_INSIDE));
		note_somewhere_locked(opens, rest ? rest : *path + 1);
	}
	return w;
}

/* Was it copied up, so that what is in it comes from an input? */
static bool has_origin(const struct overlay *o, const char *path)
{
	char link[64];
	auto_close int fd = openat(o->upper_fd, path, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return false;
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	return getxattr(link, "trusted.overlay.origin", NULL, 0) >= 0;
}

static void note_overlay(const struct fs_opens *opens, struct watched *w, const struct overlay *o,
			 uint64_t ino, char *path)
{
	const char *rest = below(path, opens->base, opens->base_len);
	char full[PATH_MAX];
	size_t len = o->path[0] ? strlen(o->path) : 0;

	/* ID/PATH... or PATH... */
	if (rest)
		rest = below(rest, w->id, strlen(w->id));
	else
		rest = below(path, FS_SANDBOX_INSIDE, strlen(FS_SANDBOX_INSIDE));
	if (rest && len > 0)
		rest = below(rest, o->path, len);
	/* From the root of a mount whose namespace ended. */
	if (!rest && path[0] == '/')
		rest = path + 1;
	if (!rest || (!(ino & LOWER_BIT) && !has_origin(o, rest)))
		return;
	if (snprintf(full, sizeof(full), "%s%s%s", o->path, len > 0 ? "/" : "", rest) <
	    (int)sizeof(full))
		note(w, full);
}

static struct overlay *overlay_locked(struct fs_opens *opens, uint64_t dev, struct watched **of)
	REQUIRES(opens->lock)
{
	for (struct watched *w = opens->by_id; w; w = w->hh.next) {
		struct overlay *o;

		LL_FOREACH (w->overlays, o) {
			if (o->dev == dev) {
				*of = w;
				return o;
			}
		}
	}
	return NULL;
}

/* A name that is gone is told with this at its end. */
static void strip_deleted(char *path)
{
	static const char tail[] = " (deleted)";
	size_t len = strlen(path);

	if (len > sizeof(tail) - 1 && strcmp(path + len - (sizeof(tail) - 1), tail) == 0)
		path[len - (sizeof(tail) - 1)] = '\0';
}

/* --- what is known of files and mounts --- */

static struct watched *find_mount_locked(struct fs_opens *opens, uint64_t mount)
	REQUIRES(opens->lock)
{
	for (struct watched *w = opens->by_id; w; w = w->hh.next) {
		for (unsigned i = 0; i < w->nr_mounts; i++) {
			if (w->mounts[i] == mount)
				return w;
		}
	}
	return NULL;
}

static bool is_nobodys_locked(const struct fs_opens *opens, uint64_t mount) REQUIRES(opens->lock)
{
	for (unsigned i = 0; i < MOUNTS_MAX; i++) {
		if (opens->nobody[i] == mount)
			return true;
	}
	return false;
}

static void learn_locked(struct fs_opens *opens, struct watched *w, uint64_t mount, uint64_t ino,
			 const char *path) REQUIRES(opens->lock)
{
	struct place *p = &opens->places[ino % PLACES];

	if (mount == 0)
		return;
	if (!w) {
		opens->nobody[opens->next_nobody++ % MOUNTS_MAX] = mount;
		return;
	}
	if (w->nr_mounts < MOUNTS_MAX && !find_mount_locked(opens, mount))
		w->mounts[w->nr_mounts++] = mount;
	if (p->ino == ino)
		return;
	free(p->path);
	p->path = strdup(path);
	p->ino = p->path ? ino : 0;
}

/* True: all is known, and noted. */
static bool note_known_locked(struct fs_opens *opens, uint64_t mount, uint64_t ino)
	REQUIRES(opens->lock)
{
	const struct place *p = &opens->places[ino % PLACES];
	struct watched *w;

	if (mount == 0)
		return false;
	if (is_nobodys_locked(opens, mount))
		return true;
	w = p->ino == ino ? find_mount_locked(opens, mount) : NULL;
	if (w)
		note(w, p->path);
	return w != NULL;
}

/* False: it cannot be told. */
static bool path_of(const struct fs_opens *opens, int fd, char path[PATH_MAX + 1])
{
	char name[16];
	ssize_t len;

	(void)snprintf(name, sizeof(name), "%d", fd);
	len = readlinkat(opens->fds_fd, name, path, PATH_MAX);
	if (len >= 0)
		path[len] = '\0';
	return len >= 0;
}

static void take_input_locked(struct fs_opens *opens, int fd, const struct statx *st)
	REQUIRES(opens->lock)
{
	uint64_t mount = st->stx_mask & STATX_MNT_ID_UNIQUE ? st->stx_mnt_id : 0;
	char path[PATH_MAX + 1];
	const char *rest = path;
	struct watched *w;

	if (note_known_locked(opens, mount, st->stx_ino) || !path_of(opens, fd, path))
		return;
	w = note_input_locked(opens, fd, &rest);
	if (w || rest != path || !is_detached(fd))
		learn_locked(opens, w, mount, st->stx_ino, rest);
}

static void take_open_locked(struct fs_opens *opens, int fd) REQUIRES(opens->lock)
{
	struct watched *w = NULL;
	struct overlay *o;
	char path[PATH_MAX + 1];
	struct statx st;
	uint64_t dev;

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
		  STATX_INO | STATX_NLINK | STATX_MNT_ID_UNIQUE, &st) < 0)
		return;
	dev = makedev(st.stx_dev_major, st.stx_dev_minor);
	if (dev == atomic_load(&opens->dev)) {
		take_input_locked(opens, fd, &st);
		return;
	}
	o = overlay_locked(opens, dev, &w);
	if (!o || !path_of(opens, fd, path))
		return;
	/* In an overlay names go; inputs of session one never do. */
	if (st.stx_nlink == 0)
		strip_deleted(path);
	note_overlay(opens, w, o, st.stx_ino, path);
}

static void remark_all_locked(struct fs_opens *opens, const char *text) REQUIRES(opens->lock)
{
	for (struct watched *w = opens->by_id; w; w = w->hh.next)
		fs_trace_remark(w->trace, text);
}

static int take_events_locked(struct fs_opens *opens, ssize_t len) REQUIRES(opens->lock)
{
	const struct fanotify_event_metadata *e = (const void *)opens->events;
	int nr = 0;

	for (; FAN_EVENT_OK(e, len); e = FAN_EVENT_NEXT(e, len)) {
		nr++;
		if (e->mask & FAN_Q_OVERFLOW)
			remark_all_locked(opens, LOST_TEXT);
		if (e->fd < 0)
			continue;
		take_open_locked(opens, e->fd);
		(void)close(e->fd);
	}
	return nr;
}

/* What is there, of @max events at least. True: there may be more. */
static bool read_events_locked(struct fs_opens *opens, int max) REQUIRES(opens->lock)
{
	for (int nr = 0; nr < max && opens->notify_fd >= 0;) {
		ssize_t len = read(opens->notify_fd, opens->events, EVENTS_SZ);

		if (len == 0 || (len < 0 && errno == EAGAIN))
			return false;
		/* An event whose file could not be opened is gone. */
		if (len < 0 && errno != EINTR)
			remark_all_locked(opens, LOST_TEXT);
		nr += len > 0 ? take_events_locked(opens, len) : 1;
	}
	return true;
}

/* --- the thread --- */

static void *opens_main(void *arg)
{
	struct fs_opens *opens = arg;
	const struct timespec batch = {0, BATCH_NS};
	bool full = false;

	(void)pthread_setname_np(pthread_self(), "opens");
	while (!atomic_load(&opens->stop)) {
		struct pollfd fds[2] = {{opens->stop_fd, POLLIN, 0}, {-1, POLLIN, 0}};
		int nr;

		lock_take(&opens->lock);
		fds[1].fd = opens->notify_fd;
		lock_drop(&opens->lock);
		nr = poll(fds, 2, -1);
		if (nr > 0 && fds[0].revents) {
			uint64_t count;

			(void)!read(opens->stop_fd, &count, sizeof(count));
		}
		if (nr <= 0 || !fds[1].revents)
			continue;
		if (!full)
			(void)nanosleep(&batch, NULL);
		lock_take(&opens->lock);
		full = read_events_locked(opens, 1);
		lock_drop(&opens->lock);
	}
	return NULL;
}

static void wake(struct fs_opens *opens)
{
	uint64_t one = 1;

	(void)!write(opens->stop_fd, &one, sizeof(one));
}

/* --- life --- */

NO_LOCK_CHECK int fs_opens_new(const struct fs_opens_options *opts, struct fs_opens **out)
{
	struct fs_opens *opens = calloc(1, sizeof(*opens));

	if (!opens)
		return -ENOMEM;
	opens->opts = *opts;
	opens->notify_fd = -1;
	opens->fds_fd = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	atomic_store(&opens->dev, opts->dev);
	opens->base = strdup(opts->base);
	opens->events = malloc(EVENTS_SZ);
	opens->places = calloc(PLACES, sizeof(*opens->places));
	opens->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	lock_init(&opens->lock, LOCK_RANK_QUEUE, "opens");
	if (!opens->base || !opens->events || !opens->places || opens->stop_fd < 0 ||
	    opens->fds_fd < 0) {
		fs_opens_free(opens);
		return -ENOMEM;
	}
	opens->base_len = strlen(opens->base);
	*out = opens;
	return 0;
}

static void watched_free(struct watched *w)
{
	struct overlay *o, *next;

	LL_FOREACH_SAFE(w->overlays, o, next)
	{
		(void)close(o->upper_fd);
		free(o);
	}
	fs_trace_unref(w->trace);
	free(w);
}

NO_LOCK_CHECK void fs_opens_free(struct fs_opens *opens)
{
	struct watched *w, *next;

	if (!opens)
		return;
	if (opens->started) {
		atomic_store(&opens->stop, true);
		wake(opens);
		(void)pthread_join(opens->thread, NULL);
	}
	HASH_ITER (hh, opens->by_id, w, next) {
		HASH_DEL(opens->by_id, w);
		watched_free(w);
	}
	if (opens->notify_fd >= 0)
		(void)close(opens->notify_fd);
	if (opens->stop_fd >= 0)
		(void)close(opens->stop_fd);
	if (opens->fds_fd >= 0)
		(void)close(opens->fds_fd);
	lock_fini(&opens->lock);
	for (size_t i = 0; opens->places && i < PLACES; i++)
		free(opens->places[i].path);
	free(opens->places);
	free(opens->events);
	free(opens->base);
	free(opens);
}

void fs_opens_attach(struct fs_opens *opens, dev_t dev)
{
	atomic_store(&opens->dev, dev);
}

/* --- who is watched --- */

static int start_locked(struct fs_opens *opens, struct err *err) REQUIRES(opens->lock)
{
	int fd;
	int ret;

	if (opens->notify_fd >= 0)
		return 0;
	fd = fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK,
			   O_RDONLY | O_LARGEFILE | O_CLOEXEC | O_NOATIME);
	if (fd < 0)
		return err_set(err, -errno, "fanotify: %s", strerror(errno));
	opens->notify_fd = fd;
	ret = -pthread_create(&opens->thread, NULL, opens_main, opens);
	if (ret < 0) {
		(void)close(steal_fd(&opens->notify_fd));
		return err_set(err, ret, "cannot start a thread: %s", strerror(-ret));
	}
	opens->started = true;
	return 0;
}

static int enter_locked(struct fs_opens *opens, const char *id, struct fs_trace *trace,
			struct err *err) REQUIRES(opens->lock)
{
	struct watched *w = calloc(1, sizeof(*w) + strlen(id) + 1);

	if (w) {
		(void)strcpy(w->id, id);
		w->trace = fs_trace_ref(trace);
		HASH_ADD_KEYPTR(hh, opens->by_id, w->id, strlen(w->id), w);
		/* A mount may be made into that of another sandbox. */
		memset(opens->nobody, 0, sizeof(opens->nobody));
		if (w->hh.tbl)
			return 0;
		watched_free(w);
	}
	return err_set(err, -ENOMEM, "no memory to watch sandbox %s", id);
}

int fs_opens_add(struct fs_opens *opens, const char *id, struct fs_trace *trace, int *group_fd,
		 struct err *err)
{
	int ret;

	if (opens->opts.probes && fs_probes_is_off(opens->opts.probes, FS_FEATURE_FANOTIFY))
		return err_set(err, -ENOSYS, "not wanted");
	lock_take(&opens->lock);
	ret = start_locked(opens, err);
	if (ret == 0)
		ret = enter_locked(opens, id, trace, err);
	if (ret == 0)
		*group_fd = opens->notify_fd;
	lock_drop(&opens->lock);
	return ret;
}

int fs_opens_add_overlay(struct fs_opens *opens, const char *id, const char *path, uint64_t dev,
			 int upper_fd, struct err *err)
{
	struct overlay *o = calloc(1, sizeof(*o) + strlen(path) + 1);
	struct watched *w = NULL;

	if (!o)
		return err_set(err, -ENOMEM, "no memory to watch sandbox %s", id);
	(void)strcpy(o->path, path);
	o->dev = dev;
	o->upper_fd = fcntl(upper_fd, F_DUPFD_CLOEXEC, 3);
	lock_take(&opens->lock);
	if (o->upper_fd >= 0)
		HASH_FIND_STR(opens->by_id, id, w);
	if (w)
		LL_PREPEND(w->overlays, o);
	lock_drop(&opens->lock);
	if (w)
		return 0;
	if (o->upper_fd >= 0)
		(void)close(o->upper_fd);
	free(o);
	return err_set(err, -ENOENT, "cannot watch sandbox %s", id);
}

void fs_opens_settle(struct fs_opens *opens)
{
	lock_take(&opens->lock);
	(void)read_events_locked(opens, DRAIN_MAX);
	lock_drop(&opens->lock);
}

void fs_opens_remove(struct fs_opens *opens, const char *id)
{
	struct watched *w;

	lock_take(&opens->lock);
	HASH_FIND_STR(opens->by_id, id, w);
	if (w) {
		(void)read_events_locked(opens, DRAIN_MAX);
		HASH_DEL(opens->by_id, w);
	}
	/* Nobody else pays any longer. The path says nothing, but has to be one. */
	if (w && HASH_COUNT(opens->by_id) == 0)
		(void)fanotify_mark(opens->notify_fd, FAN_MARK_FLUSH | FAN_MARK_FILESYSTEM, 0,
				    AT_FDCWD, "/");
	lock_drop(&opens->lock);
	if (w)
		watched_free(w);
}
