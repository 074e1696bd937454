/* fs/capture/early.c - outputs are hashed when their writer closes them */

/*
 * An event names a directory by handle and a name in it. It waits a little: a file is
 * often renamed or written to again right after it was closed, and one whose ctime is
 * younger than a tick of the clock could be changed without that being seen. Then
 *
 *   open, stat            a regular file, in a directory of a live sandbox's upper
 *   lease, given up       nobody has it open for writing, nor mapped so
 *   hash or put
 *   stat                  the same: the digest holds for what looks like this
 *
 * The lease is not kept: an action that opens the file again would wait for it. Who writes
 * later changes the ctime.
 *
 * An overlay opens and closes files of its upper without a word, but makes them as anybody
 * does: so what is new is looked at, too, and while its writer has it open again and again,
 * at growing intervals.
 */
#include "fs/capture/early.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define HASH_NONFATAL_OOM 1
#define HASH_FUNCTION	  HASH_FNV
#include <uthash.h>

#include "cas/base/watch.h"
#include "cas/cas.h"
#include "cas/put/copy.h"
#include "cas/store/lease.h"
#include "fs/backing/notices.h"
#include "fs/backing/probe.h"
#include "fs/capture/hints.h"
#include "fs/capture/same_file.h"

#define EVENTS_SZ     65536
#define PENDING_MAX   65536
#define DELAY_NS      30000000ULL
#define TRIES_MAX     9		  /* each waits twice as long as the one before: 15 s in all */
#define GATHER_NS     10000000ULL /* events are read together: the store's own names make many */
#define TICK_NS	      20000000LL  /* no kernel's clock ticks more slowly */
#define SPACE_MIN     (UINT64_C(256) << 20)
#define STRANGE_SLOTS 4096
#define PAUSE_MS      5

/* A file that something happened to. */
struct pending {
	TAILQ_ENTRY(pending) link;
	UT_hash_handle hh;
	uint64_t id; /* hash of directory and name */
	unsigned long long due_ns;
	unsigned nr_tries;
	char *name;
	struct file_handle handle; /* f_handle follows */
};

TAILQ_HEAD(pending_list, pending);

struct fs_early {
	struct fs_early_options opts;
	int notify_fd;
	int stop_fd;
	_Atomic bool stop;
	pthread_t thread;
	bool started;
	_Atomic int tid;
	_Atomic int nr_paused;

	/* The thread's. */
	struct pending_list queue;
	struct pending *pending;
	uint64_t strange[STRANGE_SLOTS]; /* directories that are no sandbox's */
	char *base;			 /* path of opts.dir_fd */
	struct fs_hints *hints;
};

static uint64_t hash_bytes(uint64_t h, const void *data, size_t len)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < len; i++)
		h = (h ^ p[i]) * 0x100000001b3ULL;
	return h;
}

/* --- what is known --- */

/* Of the thread; 0, when it has not begun, would be ourselves. */
static void set_nice(int tid, int nice)
{
	if (tid != 0)
		(void)setpriority(PRIO_PROCESS, (id_t)tid, nice);
}

/* It may be starved by others, and now somebody depends on it. */
static void hurry(void *ctx)
{
	const struct fs_early *early = ctx;

	set_nice(atomic_load(&early->tid), 0);
}

int fs_early_find(struct fs_early *early, const struct stat *st, struct fs_early_hint *out)
{
	return early ? fs_hints_find(early->hints, st, hurry, early, out) : 0;
}

void fs_early_forget(struct fs_early *early, const char *id)
{
	if (early)
		fs_hints_forget(early->hints, id);
}

void fs_early_pause(struct fs_early *early)
{
	if (early)
		(void)atomic_fetch_add(&early->nr_paused, 1);
}

void fs_early_resume(struct fs_early *early)
{
	if (early)
		(void)atomic_fetch_sub(&early->nr_paused, 1);
}

void fs_early_count(struct fs_early *early, struct fs_early_counts *out)
{
	*out = (struct fs_early_counts){0};
	if (early)
		fs_hints_count(early->hints, out);
}

/* --- one file --- */

static bool is_settled(const struct stat *st)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (int64_t)(now.tv_sec - st->st_ctim.tv_sec) * 1000000000 + now.tv_nsec -
		       st->st_ctim.tv_nsec >
	       TICK_NS;
}

static bool nobody_writes(int fd)
{
	int ret = cas_lease_take(fd);

	if (ret == 0)
		cas_lease_drop(fd);
	return ret == 0;
}

static bool has_space(const struct fs_early *early, off_t size)
{
	struct statvfs vfs;

	return fstatvfs(early->opts.dir_fd, &vfs) == 0 &&
	       (uint64_t)vfs.f_bavail * vfs.f_frsize > SPACE_MIN + 4 * (uint64_t)size;
}

static int put_file(struct fs_early *early, int fd, struct cas_digest *out)
{
	const struct watch watch = {.stop = &early->stop};
	struct cas_put *put;
	int ret = cas_put_new(early->opts.store, &put, NULL);

	if (ret < 0)
		return ret;
	cas_put_set_watch(put, &watch);
	ret = cas_put_copy_fd(put, fd, NULL);
	if (ret == 0)
		ret = cas_put_publish(put, NULL, out, NULL);
	cas_put_free(put);
	return ret;
}

/* It was @st before it was found that nobody writes. */
static void take_file(struct fs_early *early, const char *id, int fd, const struct stat *st,
		      enum fs_early_wish wish)
{
	struct fs_early_hint hint = {.known.st = *st, .is_put = wish == FS_EARLY_PUT};
	struct stat after;
	int ret;

	if (!fs_hints_begin(early->hints, id, fd, st))
		return;
	set_nice(atomic_load(&early->tid), PRIO_MAX);
	ret = hint.is_put ? put_file(early, fd, &hint.known.digest)
			  : cas_copy_probe_fd(fd, &hint.known.digest, &hint.known.shrinks);
	if (ret == 0 && (fstat(fd, &after) < 0 || !fs_same_file(st, &after)))
		ret = -EAGAIN;
	fs_hints_end(early->hints, st, ret == 0 ? &hint : NULL);
	/* It may have ended meanwhile, and was forgotten but for this. */
	if (!early->opts.is_due(early->opts.ctx, id))
		fs_hints_forget(early->hints, id);
}

/* BASE/ID/upper/N/u[/PATH], from the path of a directory; false: it is no such one. */
static bool parse_place(const struct fs_early *early, char *path, char **id, size_t *layer,
			char **below)
{
	size_t len = strlen(early->base);
	char *end;

	if (strncmp(path, early->base, len) != 0 || path[len] != '/')
		return false;
	*id = path + len + 1;
	end = strchr(*id, '/');
	if (!end || strncmp(end, "/upper/", 7) != 0)
		return false;
	*end = '\0';
	*layer = strtoul(end + 7, &end, 10);
	if (strncmp(end, "/u", 2) != 0 || (end[2] != '/' && end[2] != '\0'))
		return false;
	*below = end + 2 + (end[2] == '/');
	return true;
}

/* Of a directory that was no live sandbox's when a file before this one was looked at. */
static bool is_strange(const struct fs_early *early, const struct pending *p)
{
	uint64_t dir = hash_bytes(0, p->handle.f_handle, p->handle.handle_bytes);

	return early->strange[dir % STRANGE_SLOTS] == dir;
}

static int open_dir(const struct fs_early *early, struct pending *p)
{
	if (is_strange(early, p))
		return -1;
	return open_by_handle_at(early->opts.dir_fd, &p->handle, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* *id is a part of @path. */
static enum fs_early_wish wish_of(struct fs_early *early, struct pending *p, int dir_fd,
				  char path[PATH_MAX + 1], char **id)
{
	uint64_t dir = hash_bytes(0, p->handle.f_handle, p->handle.handle_bytes);
	char link[64];
	char file[PATH_MAX + CAS_NAME_MAX + 2];
	char *below;
	size_t layer;
	ssize_t len;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", dir_fd);
	len = readlink(link, path, PATH_MAX);
	if (len < 0)
		return FS_EARLY_NOTHING;
	path[len] = '\0';
	if (!parse_place(early, path, id, &layer, &below)) {
		early->strange[dir % STRANGE_SLOTS] = dir;
		return FS_EARLY_NOTHING;
	}
	(void)snprintf(file, sizeof(file), "%s%s%s", below, *below ? "/" : "", p->name);
	return early->opts.wish(early->opts.ctx, *id, layer, file);
}

/* True: look again later. */
static bool look_at(struct fs_early *early, struct pending *p)
{
	auto_close int dir_fd = open_dir(early, p);
	auto_close int fd = -1;
	char path[PATH_MAX + 1];
	enum fs_early_wish wish;
	struct stat st;
	char *id;

	if (dir_fd < 0)
		return false;
	wish = wish_of(early, p, dir_fd, path, &id);
	if (wish == FS_EARLY_NOTHING)
		return false;
	fd = openat(dir_fd, p->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
		return false;
	if (!is_settled(&st) || !nobody_writes(fd))
		return true;
	if (has_space(early, st.st_size))
		take_file(early, id, fd, &st, wish);
	return false;
}

/* --- events --- */

/* Most are due later than all that wait. */
static void enqueue(struct fs_early *early, struct pending *p, unsigned long long delay_ns)
{
	struct pending *before;

	p->due_ns = lock_now_ns() + delay_ns;
	before = TAILQ_LAST(&early->queue, pending_list);
	while (before && before->due_ns > p->due_ns)
		before = TAILQ_PREV(before, pending_list, link);
	if (before)
		TAILQ_INSERT_AFTER(&early->queue, before, p, link);
	else
		TAILQ_INSERT_HEAD(&early->queue, p, link);
}

static void pending_free(struct fs_early *early, struct pending *p)
{
	TAILQ_REMOVE(&early->queue, p, link);
	HASH_DEL(early->pending, p);
	free(p->name);
	free(p);
}

static void add_pending(struct fs_early *early, const struct file_handle *handle, const char *name)
{
	uint64_t id = hash_bytes(0, handle->f_handle, handle->handle_bytes);
	struct pending *p;

	if (early->strange[id % STRANGE_SLOTS] == id || HASH_COUNT(early->pending) >= PENDING_MAX)
		return;
	id = hash_bytes(id, name, strlen(name));
	HASH_FIND(hh, early->pending, &id, sizeof(id), p);
	if (p) {
		/* Something new: what it waits for may have come. */
		if (p->nr_tries > 0) {
			p->nr_tries = 0;
			TAILQ_REMOVE(&early->queue, p, link);
			enqueue(early, p, DELAY_NS);
		}
		return;
	}
	p = calloc(1, sizeof(*p) + handle->handle_bytes);
	if (!p)
		return;
	p->id = id;
	p->name = strdup(name);
	memcpy(&p->handle, handle, sizeof(*handle) + handle->handle_bytes);
	if (p->name)
		HASH_ADD(hh, early->pending, id, sizeof(p->id), p);
	if (!p->name || !p->hh.tbl) {
		free(p->name);
		free(p);
		return;
	}
	enqueue(early, p, DELAY_NS);
}

static void read_events(struct fs_early *early, char *bytes)
{
	for (;;) {
		ssize_t len = read(early->notify_fd, bytes, EVENTS_SZ);
		struct fs_notices notices = {bytes, len > 0 ? (size_t)len : 0};
		struct fs_notice notice;

		if (len <= 0)
			return;
		/* An overflow names nothing: what was lost is hashed at finish. */
		while (fs_notices_next(&notices, &notice)) {
			if (notice.name)
				add_pending(early, notice.dir, notice.name);
		}
	}
}

/* How long until something is to be done, or events may be read (0: now); -1: for ever. */
static int wait_ms(const struct fs_early *early, unsigned long long now, unsigned long long read_ns)
{
	const struct pending *p = TAILQ_FIRST(&early->queue);
	unsigned long long next = read_ns > now ? read_ns : 0;

	if (p && (next == 0 || p->due_ns < next))
		next = p->due_ns;
	if (next == 0)
		return -1;
	return next <= now ? 0 : (int)((next - now) / 1000000) + 1;
}

static void do_due(struct fs_early *early)
{
	struct pending *p = TAILQ_FIRST(&early->queue);

	if (!p || p->due_ns > lock_now_ns())
		return;
	if (look_at(early, p) && p->nr_tries < TRIES_MAX) {
		TAILQ_REMOVE(&early->queue, p, link);
		enqueue(early, p, DELAY_NS << p->nr_tries++);
	} else {
		pending_free(early, p);
	}
}

static void *early_main(void *arg)
{
	struct fs_early *early = arg;
	struct pollfd fds[] = {{early->stop_fd, POLLIN, 0}, {early->notify_fd, POLLIN, 0}};
	char *bytes = malloc(EVENTS_SZ);
	unsigned long long read_ns = 0;

	(void)pthread_setname_np(pthread_self(), "early");
	atomic_store(&early->tid, (int)gettid());
	set_nice((int)gettid(), PRIO_MAX);
	while (bytes && !atomic_load(&early->stop)) {
		unsigned long long now = lock_now_ns();

		/* Not even events: whoever captures is at the files himself. */
		if (atomic_load(&early->nr_paused) > 0) {
			(void)poll(fds, 1, PAUSE_MS);
			continue;
		}
		fds[1].revents = 0;
		(void)poll(fds, now < read_ns ? 1 : 2, wait_ms(early, now, read_ns));
		if (fds[1].revents) {
			read_events(early, bytes);
			read_ns = lock_now_ns() + GATHER_NS;
		}
		do_due(early);
	}
	free(bytes);
	return NULL;
}

/* --- life --- */

static const char *why_not(int code)
{
	switch (code) {
	case -EPERM:
		return "needs CAP_SYS_ADMIN outside of user namespaces";
	case -EINVAL:
	case -ENOSYS:
		return "the kernel is too old";
	default:
		return strerrordesc_np(-code);
	}
}

static int open_notify(const struct fs_early_options *opts, int *out)
{
	auto_close int fd = fanotify_init(
		FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK | FAN_REPORT_DFID_NAME, O_RDONLY);

	if (fd < 0 ||
	    fanotify_mark(fd, FAN_MARK_ADD | FAN_MARK_FILESYSTEM,
			  FAN_CLOSE_WRITE | FAN_MOVED_TO | FAN_CREATE, opts->dir_fd, ".") < 0)
		return -errno;
	*out = steal_fd(&fd);
	return 0;
}

static int start(struct fs_early *early)
{
	char link[64];
	char path[PATH_MAX + 1];
	ssize_t len;
	int ret;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", early->opts.dir_fd);
	len = readlink(link, path, PATH_MAX);
	if (len < 0)
		return -errno;
	early->base = strndup(path, (size_t)len);
	early->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!early->base || early->stop_fd < 0)
		return -ENOMEM;
	ret = open_notify(&early->opts, &early->notify_fd);
	if (ret < 0)
		return ret;
	ret = pthread_create(&early->thread, NULL, early_main, early);
	early->started = ret == 0;
	return -ret;
}

int fs_early_new(const struct fs_early_options *opts, struct fs_early **out)
{
	struct fs_early *early;
	int ret;

	*out = NULL;
	if (!opts->probes || fs_probes_is_off(opts->probes, FS_FEATURE_FANOTIFY))
		return 0;
	early = calloc(1, sizeof(*early));
	if (!early)
		return -ENOMEM;
	early->opts = *opts;
	early->notify_fd = -1;
	early->stop_fd = -1;
	TAILQ_INIT(&early->queue);
	ret = fs_hints_new(&early->hints);
	if (ret == 0)
		ret = start(early);
	fs_probes_set(opts->probes, FS_FEATURE_FANOTIFY, ret == 0, ret < 0 ? "%s" : NULL,
		      why_not(ret));
	if (ret < 0) {
		fs_early_free(early);
		return ret == -ENOMEM ? ret : 0;
	}
	*out = early;
	return 0;
}

void fs_early_free(struct fs_early *early)
{
	uint64_t one = 1;

	if (!early)
		return;
	if (early->started) {
		atomic_store(&early->stop, true);
		set_nice(atomic_load(&early->tid), 0);
		(void)!write(early->stop_fd, &one, sizeof(one));
		(void)pthread_join(early->thread, NULL);
	}
	while (!TAILQ_EMPTY(&early->queue))
		pending_free(early, TAILQ_FIRST(&early->queue));
	fs_hints_free(early->hints);
	if (early->notify_fd >= 0)
		(void)close(early->notify_fd);
	if (early->stop_fd >= 0)
		(void)close(early->stop_fd);
	free(early->base);
	free(early);
}
