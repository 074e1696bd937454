/* fs/report/events.h - what happened, a line of JSON each, for those who follow */
#ifndef FS_REPORT_EVENTS_H
#define FS_REPORT_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct buf;
struct fuse_pollhandle;

/*
 * A file that only grows, of which the latest lines are kept in memory: a position in it
 * means the same bytes for ever. What is not kept any more reads as one line,
 * {"missed":BYTES} and blanks, which ends where the next kept line begins. Any thread.
 *
 * Every line is an object with "time" (UTC) and "event" first. Events never hold
 * credentials, nor what a file of them contains: tiers are told by cas_tier_name.
 */
struct fs_events;

#define FS_EVENTS_KEPT (1U << 20) /* bytes */

int fs_events_new(size_t kept, struct fs_events **out);
/* Nobody uses it or a follower any more, which go with it. NULL is fine. */
void fs_events_free(struct fs_events *events);

/*
 * Append one: members as jansson's json_pack takes them ("{s:s, s:I}", ...). What does not
 * fit in a line, or is no UTF-8, is left out but for its name. Does nothing without @events.
 * May tell the kernel, so no lock is held.
 */
void fs_event(struct fs_events *events, const char *name, const char *members, ...);

/* The bytes so far, and when the last came. */
uint64_t fs_events_size(struct fs_events *events, struct timespec *last);

/* One open of the file. */
struct fs_follower;
int fs_follower_new(struct fs_events *events, struct fs_follower **out);
void fs_follower_free(struct fs_follower *follower);

/*
 * Up to @size bytes from @off on into @out, which is empty; none at the end. Who reads in sequence
 * has whole lines, whatever goes between two reads. -ENOMEM.
 */
int fs_follower_read(struct fs_follower *follower, uint64_t off, size_t size, struct buf *out);

/* POLLIN when there is more than was read; else @ph, or NULL, is told when there is. */
unsigned fs_follower_poll(struct fs_follower *follower, struct fuse_pollhandle *ph);

struct fs_events_stats {
	uint64_t nr_events;
	uint64_t bytes;
	uint64_t nr_followers;
	uint64_t kept_bytes; /* what the memory holds at most */
};
void fs_events_stats(struct fs_events *events, struct fs_events_stats *out);

#endif
