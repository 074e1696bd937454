/* fs/trace/opens.c - what is opened in sandboxes of session one, heard by fanotify */

/*
 * Events with file handles instead of descriptors would be cheaper, but FUSE has no fsid, and
 * without one the kernel reports no handles for a whole filesystem. Marks of a mount would not
 * do: `run` has copies of it in a mount namespace of its own.
 */
#include "fs/trace/opens.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "fs/backing/probe.h"
#include "fs/trace/opens_i.h"
#include "fs/trace/trace.h"

#define DRAIN_MAX 32768 /* events: more than the kernel keeps */
#define BATCH_NS  400000L

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
		full = fs_opens_read_locked(opens, 1);
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
	opens->events = malloc(FS_OPENS_EVENTS_SZ);
	opens->places = calloc(FS_OPENS_PLACES, sizeof(*opens->places));
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

static void watched_free(struct fs_opens_watched *w)
{
	struct fs_opens_overlay *o, *next;

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
	struct fs_opens_watched *w, *next;

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
	for (size_t i = 0; opens->places && i < FS_OPENS_PLACES; i++)
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
	struct fs_opens_watched *w = calloc(1, sizeof(*w) + strlen(id) + 1);

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
	struct fs_opens_overlay *o = calloc(1, sizeof(*o) + strlen(path) + 1);
	struct fs_opens_watched *w = NULL;

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
	(void)fs_opens_read_locked(opens, DRAIN_MAX);
	lock_drop(&opens->lock);
}

void fs_opens_remove(struct fs_opens *opens, const char *id)
{
	struct fs_opens_watched *w;

	lock_take(&opens->lock);
	HASH_FIND_STR(opens->by_id, id, w);
	if (w) {
		(void)fs_opens_read_locked(opens, DRAIN_MAX);
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
