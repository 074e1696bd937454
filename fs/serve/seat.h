/* fs/serve/seat.h - to serve on the processor of whoever asks */
#ifndef FS_SERVE_SEAT_H
#define FS_SERVE_SEAT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Whoever walks a tree for the first time asks for one thing after the other and sleeps in
 * between. When the thread that serves him sits on another processor, each of the two wakes the
 * other there, often on one that sleeps as well; that takes longer than to answer. On one
 * processor they take turns.
 *
 * So a session has one thread more, the waiter. While requests come in such a stream, one at a
 * time, and a processor is free besides, it alone serves, on the processor that the stream comes
 * from, and the others, the staff, stand by. Its policy is SCHED_IDLE: whoever is woken goes to a
 * processor that is idle, and one that runs nothing but threads of that policy is idle to the
 * kernel (sched_idle_cpu); another policy would drive whoever waits for the answer elsewhere.
 *
 * An usher decides: a thread that sleeps while there is no stream, and else looks every
 * millisecond at where the stream comes from, whether it goes on, and whether anyone else wants
 * to run. Then the staff serves again, and the waiter stands by: at once where it may have its own
 * policy back (CAP_SYS_NICE); else after one more request, in which it is of no priority. That
 * makes it late, by a time slice or so of whoever else runs there; not starved.
 *
 * Both stay within the processors that the usher has been given, which nobody here changes.
 */
struct fs_seat;

struct fs_seat_options {
	int fd;		  /* of the connection; borrowed */
	const char *name; /* of the session */
	bool heedless;	  /* for tests: whether a processor is free does not matter */
};

enum fs_seat_role {
	FS_SEAT_STAFF,
	FS_SEAT_WAITER, /* one thread of a session */
};

/*
 * -ENOENT: there is one processor only, or too many to name. Others: the system tells no load, or
 * starts no thread.
 */
int fs_seat_new(const struct fs_seat_options *opts, struct fs_seat **out);

/*
 * Nobody stands by any more, and there are no more streams; for good. NULL is fine, here and in
 * all of the following: everybody serves, always.
 */
void fs_seat_close(struct fs_seat *seat);
/* When the threads that serve are no more. */
void fs_seat_free(struct fs_seat *seat);

/* By the waiter, first of all; before it ends it closes the seat. */
void fs_seat_enter(struct fs_seat *seat);

/* Before the thread waits for a request: stand by as long as others serve. */
void fs_seat_before(struct fs_seat *seat, enum fs_seat_role role);

/*
 * A request that is to be answered was read; it is of the thread @tid, 0: of nobody in particular.
 * @bulk: of so many bytes that to be asked for the next ones meanwhile would pay.
 */
void fs_seat_asked(struct fs_seat *seat, uint32_t tid, bool bulk);
void fs_seat_answered(struct fs_seat *seat);

/* Serves the waiter alone? Then nobody else would if it did something that takes long. */
bool fs_seat_is_taken(const struct fs_seat *seat);

#endif
