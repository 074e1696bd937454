/* fs/report/events.c - what happened, a line of JSON each, for those who follow */

/*
 * The ring holds the bytes [start, end) of the stream; start is always the start of a
 * line, since whole lines make room for new ones. A follower that reads below start gets
 * the missed line, whose length is what it missed. It may take many reads, during which
 * more may go: what was announced is padded to where it was announced to end, and what
 * went after that is the next missed line. A read that ends within a line keeps the rest of
 * it for the next, so that who reads in sequence never has half a line.
 *
 * One lock; the kernel is told without it.
 */
#define FUSE_USE_VERSION 312
#include "fs/report/events.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"

#define LINE_MAX_SZ 16384
#define TIME_SZ	    32
#define MISSED_MAX  40 /* the words of a missed line, with any number in it */

struct fs_events {
	struct lock lock;
	char *ring;
	size_t cap;
	uint64_t start GUARDED_BY(lock);
	uint64_t end GUARDED_BY(lock);
	uint64_t nr_events GUARDED_BY(lock);
	struct timespec last GUARDED_BY(lock);
	size_t nr_followers GUARDED_BY(lock);
	struct fs_follower *followers GUARDED_BY(lock);
};

struct fs_follower {
	struct fs_events *events;
	struct fs_follower *prev; /* events->lock, as all that follows */
	struct fs_follower *next;
	uint64_t pos;	     /* where the last read ended */
	uint64_t hole_start; /* of the missed line that is being read, */
	uint64_t hole_end;   /* while this is above pos */
	struct buf rest;     /* of the line that the last read ended in, from pos on */
	struct fuse_pollhandle *ph;
};

NO_LOCK_CHECK int fs_events_new(size_t kept, struct fs_events **out)
{
	struct fs_events *ev = calloc(1, sizeof(*ev));

	if (!ev)
		return -ENOMEM;
	ev->cap = kept > 2 * LINE_MAX_SZ ? kept : 2 * LINE_MAX_SZ;
	ev->ring = malloc(ev->cap);
	if (!ev->ring) {
		free(ev);
		return -ENOMEM;
	}
	lock_init(&ev->lock, LOCK_RANK_LEAF, "events");
	(void)clock_gettime(CLOCK_REALTIME, &ev->last);
	*out = ev;
	return 0;
}

/* A session that ends does not release what is open in it. */
NO_LOCK_CHECK void fs_events_free(struct fs_events *ev)
{
	if (!ev)
		return;
	while (ev->followers)
		fs_follower_free(ev->followers);
	lock_fini(&ev->lock);
	free(ev->ring);
	free(ev);
}

static void copy_out_locked(const struct fs_events *ev, uint64_t from, size_t len, char *out)
	REQUIRES(ev->lock)
{
	size_t at = (size_t)(from % ev->cap);
	size_t first = len < ev->cap - at ? len : ev->cap - at;

	memcpy(out, ev->ring + at, first);
	memcpy(out + first, ev->ring, len - first);
}

/* Behind the newline that comes first at or after @from, which is kept; or the end. */
static uint64_t line_end_locked(const struct fs_events *ev, uint64_t from) REQUIRES(ev->lock)
{
	while (from < ev->end) {
		size_t at = (size_t)(from % ev->cap);
		size_t len = ev->cap - at;
		const char *found;

		if (len > ev->end - from)
			len = (size_t)(ev->end - from);
		found = memchr(ev->ring + at, '\n', len);
		if (found)
			return from + (uint64_t)(found - (ev->ring + at)) + 1;
		from += len;
	}
	return from;
}

static void append_locked(struct fs_events *ev, const char *line, size_t len) REQUIRES(ev->lock)
{
	size_t at = (size_t)(ev->end % ev->cap);
	size_t first = len < ev->cap - at ? len : ev->cap - at;

	while (ev->end + len - ev->start > ev->cap)
		ev->start = line_end_locked(ev, ev->start);
	memcpy(ev->ring + at, line, first);
	memcpy(ev->ring, line + first, len - first);
	ev->end += len;
	ev->nr_events++;
	(void)clock_gettime(CLOCK_REALTIME, &ev->last);
}

/* One that waits; NULL: none does. The caller tells and destroys it. */
static struct fuse_pollhandle *take_waiting_locked(struct fs_events *ev) REQUIRES(ev->lock)
{
	for (struct fs_follower *f = ev->followers; f; f = f->next) {
		struct fuse_pollhandle *ph = f->ph;

		f->ph = NULL;
		if (ph)
			return ph;
	}
	return NULL;
}

static void tell(struct fs_events *ev)
{
	struct fuse_pollhandle *ph;

	do {
		lock_take(&ev->lock);
		ph = take_waiting_locked(ev);
		lock_drop(&ev->lock);
		if (ph) {
			(void)fuse_lowlevel_notify_poll(ph);
			fuse_pollhandle_destroy(ph);
		}
	} while (ph);
}

static void format_time(char out[TIME_SZ])
{
	struct timespec now;
	struct tm tm;
	size_t len;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	(void)gmtime_r(&now.tv_sec, &tm);
	len = strftime(out, TIME_SZ, "%Y-%m-%dT%H:%M:%S", &tm);
	(void)snprintf(out + len, TIME_SZ - len, ".%03uZ",
		       (unsigned)(now.tv_nsec / 1000000) % 1000);
}

static int format_line(const char *name, json_t *members, struct buf *out)
{
	char when[TIME_SZ];
	json_t *o;
	char *text;
	int ret;

	format_time(when);
	o = json_pack("{s:s, s:s}", "time", when, "event", name);
	if (!o || (members && json_object_update(o, members) < 0)) {
		json_decref(o);
		return -ENOMEM;
	}
	text = json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII);
	json_decref(o);
	if (!text)
		return -ENOMEM;
	ret = strlen(text) < LINE_MAX_SZ ? buf_printf(out, "%s\n", text) : -E2BIG;
	free(text);
	return ret;
}

void fs_event(struct fs_events *ev, const char *name, const char *members, ...)
{
	auto_buf struct buf line = {0};
	json_t *o = NULL;
	va_list ap;
	int ret;

	if (!ev)
		return;
	if (members) {
		va_start(ap, members);
		o = json_vpack_ex(NULL, 0, members, ap);
		va_end(ap);
	}
	ret = format_line(name, o, &line);
	if (ret == -E2BIG) {
		buf_reset(&line);
		ret = format_line(name, NULL, &line);
	}
	json_decref(o);
	if (ret < 0)
		return;
	lock_take(&ev->lock);
	append_locked(ev, line.data, line.len);
	lock_drop(&ev->lock);
	tell(ev);
}

uint64_t fs_events_size(struct fs_events *ev, struct timespec *last)
{
	uint64_t size;

	lock_take(&ev->lock);
	size = ev->end;
	if (last)
		*last = ev->last;
	lock_drop(&ev->lock);
	return size;
}

int fs_follower_new(struct fs_events *ev, struct fs_follower **out)
{
	struct fs_follower *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->events = ev;
	lock_take(&ev->lock);
	f->next = ev->followers;
	if (f->next)
		f->next->prev = f;
	ev->followers = f;
	ev->nr_followers++;
	lock_drop(&ev->lock);
	*out = f;
	return 0;
}

void fs_follower_free(struct fs_follower *f)
{
	struct fs_events *ev = f->events;

	lock_take(&ev->lock);
	if (f->prev)
		f->prev->next = f->next;
	else
		ev->followers = f->next;
	if (f->next)
		f->next->prev = f->prev;
	ev->nr_followers--;
	lock_drop(&ev->lock);
	if (f->ph)
		fuse_pollhandle_destroy(f->ph);
	buf_fini(&f->rest);
	free(f);
}

/* After a read that ended at f->pos: without memory the rest is not kept, and may be missed. */
static void keep_rest_locked(struct fs_follower *f) REQUIRES(f->events->lock)
{
	size_t nr;

	if (f->pos <= f->events->start || f->pos >= f->events->end ||
	    f->events->ring[(f->pos - 1) % f->events->cap] == '\n')
		return;
	nr = (size_t)(line_end_locked(f->events, f->pos) - f->pos);
	if (buf_reserve(&f->rest, nr + 1) < 0)
		return;
	copy_out_locked(f->events, f->pos, nr, f->rest.data);
	f->rest.len = nr;
}

/* What of it is still to be read stays. */
static size_t read_rest_locked(struct fs_follower *f, size_t size, char *out)
	REQUIRES(f->events->lock)
{
	size_t nr = f->rest.len < size ? f->rest.len : size;

	memcpy(out, f->rest.data, nr);
	f->rest.len -= nr;
	memmove(f->rest.data, f->rest.data + nr, f->rest.len);
	return nr;
}

/* The missed line from @off to where a kept one begins. False: there is no room for it. */
static bool open_hole_locked(struct fs_follower *f, uint64_t off) REQUIRES(f->events->lock)
{
	uint64_t end = f->events->start;

	/* Too small a gap for the words takes the next line along. */
	while (end - off < MISSED_MAX && end < f->events->end)
		end = line_end_locked(f->events, end);
	if (end - off < MISSED_MAX)
		return false;
	f->hole_start = off;
	f->hole_end = end;
	return true;
}

static size_t read_hole_locked(struct fs_follower *f, uint64_t off, size_t size, char *out)
	REQUIRES(f->events->lock)
{
	bool goes_on = off == f->pos && f->hole_end > off;
	char text[MISSED_MAX];
	size_t done, len, nr;

	if (!goes_on && !open_hole_locked(f, off))
		return 0;
	len = (size_t)snprintf(text, sizeof(text), "{\"missed\":%" PRIu64 "}",
			       f->hole_end - f->hole_start);
	done = (size_t)(off - f->hole_start);
	nr = f->hole_end - off < size ? (size_t)(f->hole_end - off) : size;
	memset(out, ' ', nr);
	if (done < len)
		memcpy(out, text + done, len - done < nr ? len - done : nr);
	if (off + nr == f->hole_end)
		out[nr - 1] = '\n';
	return nr;
}

static size_t read_locked(struct fs_follower *f, uint64_t off, size_t size, char *out)
	REQUIRES(f->events->lock)
{
	size_t nr = 0;

	if (size > 0 && off == f->pos && off < f->events->start && f->rest.len > 0) {
		nr = read_rest_locked(f, size, out);
		f->pos = off + nr;
		return nr;
	}
	buf_reset(&f->rest);
	if (size > 0 && (off < f->events->start || (off == f->pos && off < f->hole_end))) {
		nr = read_hole_locked(f, off, size, out);
		f->pos = off + nr;
		return nr;
	}
	if (size > 0 && off < f->events->end) {
		nr = f->events->end - off < size ? (size_t)(f->events->end - off) : size;
		copy_out_locked(f->events, off, nr, out);
	}
	f->pos = off + nr;
	keep_rest_locked(f);
	return nr;
}

int fs_follower_read(struct fs_follower *f, uint64_t off, size_t size, struct buf *out)
{
	uint64_t end = fs_events_size(f->events, NULL);
	size_t nr;
	int ret = 0;

	/* What comes from here on is for the next read: there is room for no more. */
	if (off >= end)
		size = 0;
	else if (end - off < size)
		size = (size_t)(end - off);
	ret = size > 0 ? buf_reserve(out, size + 1) : 0;
	if (ret < 0)
		return ret;
	lock_take(&f->events->lock);
	nr = read_locked(f, off, size, out->data);
	lock_drop(&f->events->lock);
	out->len = nr;
	if (out->data)
		out->data[nr] = '\0';
	return 0;
}

unsigned fs_follower_poll(struct fs_follower *f, struct fuse_pollhandle *ph)
{
	struct fs_events *ev = f->events;
	struct fuse_pollhandle *old = NULL;
	unsigned events = 0;

	lock_take(&ev->lock);
	if (f->pos < ev->end)
		events = POLLIN | POLLRDNORM;
	if (ph) {
		old = f->ph;
		f->ph = ph;
	}
	lock_drop(&ev->lock);
	if (old)
		fuse_pollhandle_destroy(old);
	return events;
}

void fs_events_stats(struct fs_events *ev, struct fs_events_stats *out)
{
	lock_take(&ev->lock);
	*out = (struct fs_events_stats){ev->nr_events, ev->end, ev->nr_followers, ev->cap};
	lock_drop(&ev->lock);
}
