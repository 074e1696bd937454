/* fs/trace/opens_event.c - of what file in which sandbox an event is */

/*
 * Nearly all that is left to pay is asking for an event's path, so that is done once a file: an
 * inode number of session one stands for a path, whichever sandbox it is in, and a mount for a
 * sandbox. Mounts are known by the number that the kernel never gives again (6.8); before,
 * each event is asked for its path.
 *
 * An event of an overlay may be about a file that the action made. Inputs are told by the
 * highest bit of the inode number, where xino puts the layer; what was copied up keeps an
 * xattr in the upper that tells its origin.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "fs/sandbox/outputs.h"
#include "fs/sandbox/sandbox.h"
#include "fs/trace/opens_i.h"
#include "fs/trace/trace.h"

#define LOWER_BIT (UINT64_C(1) << 63)
#define LOST_TEXT "opens came faster than they could be told: some are missing"
#define GUESS_TEXT                                                                                 \
	"commands in namespaces of their own, at the same time: what they opened may be told of each"

#ifndef STATX_MNT_ID_UNIQUE
#define STATX_MNT_ID_UNIQUE 0x00004000U
#endif

/* --- one event --- */

static void note(struct fs_opens_watched *w, const char *path)
{
	fs_trace_note(w->trace, FS_TRACE_READ, "", path);
}

/* Nobody says which sandbox it is in; with one there is no doubt. */
static void note_somewhere_locked(struct fs_opens *opens, const char *path) REQUIRES(opens->lock)
{
	bool many = HASH_COUNT(opens->by_id) > 1;

	for (struct fs_opens_watched *w = opens->by_id; w; w = w->hh.next) {
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
static struct fs_opens_watched *find_box_locked(struct fs_opens *opens, const char **path)
	REQUIRES(opens->lock)
{
	const char *slash = strchr(*path, '/');
	struct fs_opens_watched *w = NULL;

	if (!slash)
		return NULL;
	HASH_FIND(hh, opens->by_id, *path, (size_t)(slash - *path), w);
	*path = slash + 1;
	return w;
}

/* @path of @fd, a file of session one. The sandbox and *path in it, if that is sure. */
static struct fs_opens_watched *note_input_locked(struct fs_opens *opens, int fd, const char **path)
	REQUIRES(opens->lock)
{
	const char *rest = below(*path, opens->base, opens->base_len);
	struct fs_opens_watched *w = NULL;

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
static bool has_origin(const struct fs_opens_overlay *o, const char *path)
{
	char link[64];
	auto_close int fd = openat(o->upper_fd, path, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return false;
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	return getxattr(link, "trusted.overlay.origin", NULL, 0) >= 0;
}

static void note_overlay(const struct fs_opens *opens, struct fs_opens_watched *w,
			 const struct fs_opens_overlay *o, uint64_t ino, char *path)
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

static struct fs_opens_overlay *overlay_locked(struct fs_opens *opens, uint64_t dev,
					       struct fs_opens_watched **of) REQUIRES(opens->lock)
{
	for (struct fs_opens_watched *w = opens->by_id; w; w = w->hh.next) {
		struct fs_opens_overlay *o;

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

static struct fs_opens_watched *find_mount_locked(struct fs_opens *opens, uint64_t mount)
	REQUIRES(opens->lock)
{
	for (struct fs_opens_watched *w = opens->by_id; w; w = w->hh.next) {
		for (unsigned i = 0; i < w->nr_mounts; i++) {
			if (w->mounts[i] == mount)
				return w;
		}
	}
	return NULL;
}

static bool is_nobodys_locked(const struct fs_opens *opens, uint64_t mount) REQUIRES(opens->lock)
{
	for (unsigned i = 0; i < FS_OPENS_MOUNTS_MAX; i++) {
		if (opens->nobody[i] == mount)
			return true;
	}
	return false;
}

static void learn_locked(struct fs_opens *opens, struct fs_opens_watched *w, uint64_t mount,
			 uint64_t ino, const char *path) REQUIRES(opens->lock)
{
	struct fs_opens_place *p = &opens->places[ino % FS_OPENS_PLACES];

	if (mount == 0)
		return;
	if (!w) {
		opens->nobody[opens->next_nobody++ % FS_OPENS_MOUNTS_MAX] = mount;
		return;
	}
	if (w->nr_mounts < FS_OPENS_MOUNTS_MAX && !find_mount_locked(opens, mount))
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
	const struct fs_opens_place *p = &opens->places[ino % FS_OPENS_PLACES];
	struct fs_opens_watched *w;

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
	struct fs_opens_watched *w;

	if (note_known_locked(opens, mount, st->stx_ino) || !path_of(opens, fd, path))
		return;
	w = note_input_locked(opens, fd, &rest);
	if (w || rest != path || !is_detached(fd))
		learn_locked(opens, w, mount, st->stx_ino, rest);
}

static void take_open_locked(struct fs_opens *opens, int fd) REQUIRES(opens->lock)
{
	struct fs_opens_watched *w = NULL;
	struct fs_opens_overlay *o;
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

static void lose_all_locked(struct fs_opens *opens, const char *text) REQUIRES(opens->lock)
{
	for (struct fs_opens_watched *w = opens->by_id; w; w = w->hh.next)
		fs_trace_lose(w->trace, text);
}

static int take_events_locked(struct fs_opens *opens, ssize_t len) REQUIRES(opens->lock)
{
	const struct fanotify_event_metadata *e = (const void *)opens->events;
	int nr = 0;

	for (; FAN_EVENT_OK(e, len); e = FAN_EVENT_NEXT(e, len)) {
		nr++;
		if (e->mask & FAN_Q_OVERFLOW)
			lose_all_locked(opens, LOST_TEXT);
		if (e->fd < 0)
			continue;
		take_open_locked(opens, e->fd);
		(void)close(e->fd);
	}
	return nr;
}

bool fs_opens_read_locked(struct fs_opens *opens, int max) REQUIRES(opens->lock)
{
	for (int nr = 0; nr < max && opens->notify_fd >= 0;) {
		ssize_t len = read(opens->notify_fd, opens->events, FS_OPENS_EVENTS_SZ);

		if (len == 0 || (len < 0 && errno == EAGAIN))
			return false;
		/* An event whose file could not be opened is gone. */
		if (len < 0 && errno != EINTR)
			lose_all_locked(opens, LOST_TEXT);
		nr += len > 0 ? take_events_locked(opens, len) : 1;
	}
	return true;
}
