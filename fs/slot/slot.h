/* fs/slot/slot.h - sandbox roots that outlive their sandbox, kernel caches included */
#ifndef FS_SLOT_SLOT_H
#define FS_SLOT_SLOT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cas/digest.h"
#include "fs/helper/helper.h"

struct err;
struct fs_derived;
struct fs_executor;
struct fs_pusher;
struct fs_session;
struct meta;

/*
 * A slot is the topmost node of a tree in session one, with all that the kernel has
 * cached below it (design 6.4). It has a serial, which is what the table of sandboxes
 * says that a name shows, and is
 *
 *   LIVE      of one sandbox: what it shows does not change
 *   RETIRED   its sandbox ended and was proven idle (6.5): it is parked under a name
 *             that nobody looks up, its tree stays readable; it waits to become another's
 *   SWAPPED   in the hands of one thread, which compares trees and tells the kernel
 *   DROPPED   never used again: a process was left in it, the kernel could not be told
 *             something, it was too different or too old. Its name is invalidated.
 *
 * Parking: the helper looks up a random name, the answer is the slot's node, and so the
 * kernel moves it there from the sandbox's name with all that it has cached. (Expiring
 * the sandbox's name would leave it there; then whoever looks at that name while the slot
 * is being reused makes the kernel throw away what is mounted on the new sandbox.)
 *
 * The mount that is the proof, the sandbox's directory bound over itself, moves with it:
 * it is looked at where it is parked, where nobody comes any more, and is there for the
 * next sandbox. Making and unmounting one costs more than all else about a slot.
 *
 * One whose topmost node the kernel has forgotten vanishes. Only RETIRED slots are
 * swapped, or give directories away.
 */
struct fs_slots;

struct fs_slots_options {
	struct meta *meta;
	bool no_reuse;	  /* every sandbox gets a new slot */
	bool no_adopt;	  /* directories never move */
	size_t max_slots; /* retired ones that are kept; 0: 64 */
	size_t max_nodes; /* nodes of the session with which one is let go; 0: a million */
};

int fs_slots_new(const struct fs_slots_options *opts, struct fs_slots **out);
/* Session one is gone, and nothing that was submitted runs any more. */
void fs_slots_free(struct fs_slots *slots);

/* Before any sandbox is shown. */
struct fs_slots_place {
	struct fs_session *session;   /* one */
	struct fs_executor *executor; /* lets slots go */
	struct fs_helper *helper;
	const char *base;	  /* absolute path of session one; outlives the slots */
	struct fs_pusher *pusher; /* NULL: nothing is pushed */
};
void fs_slots_attach(struct fs_slots *slots, const struct fs_slots_place *place);

/*
 * The name of a directory in session one, unlisted and not to be guessed, onto which mounts
 * are put that are to go. It is there as long as session one is.
 */
const char *fs_slots_off(const struct fs_slots *slots);

/* For threads that answer the kernel: 1 and what a parking place shows; 0: none. */
int fs_slots_lookup(struct fs_slots *slots, const char *name, struct cas_digest *root,
		    uint64_t *serial);

/* The serial of a new slot for the result of a finished sandbox. Any thread. */
uint64_t fs_slot_for_result(struct fs_slots *slots);

/* The rest blocks, and is called without a lock, by threads that serve nothing. */

/*
 * The serial of the slot for a sandbox that is about to show @root: a retired one, made
 * to show it, whose bind is @bind, or a new one, without (id 0). @root must be readable.
 * *former is the input root of the sandbox that had it last; a new one leaves it alone.
 */
uint64_t fs_slot_begin(struct fs_slots *slots, const struct cas_digest *root,
		       struct fs_mount_key *bind, struct cas_digest *former);

/*
 * Now is the time for what fs_slot_begin left to be done in the background: whoever waits for
 * a sandbox need not wait for that to start.
 */
void fs_slots_push(struct fs_slots *slots);

/* One that is being parked. */
struct fs_slot;

/*
 * Begin to park the slot @serial, which shows @root at a name that the table of sandboxes
 * tells no more. Whoever asked before has got his answer when this returns: from now on
 * the helper may look its place up. NULL: that cannot be.
 */
struct fs_slot *fs_slot_park(struct fs_slots *slots, uint64_t serial,
			     const struct cas_digest *root);
/* The name in session one. */
const char *fs_slot_place(const struct fs_slot *slot);
/* Was it looked up? Then it is there. */
bool fs_slot_is_parked(struct fs_slots *slots, const struct fs_slot *slot);
/*
 * The name below session one that the kernel has for the top of @serial, when that is a parking
 * place still: it is the sandbox's once somebody looks that up. Malloc'ed; NULL: it is not.
 */
char *fs_slot_parked_name(struct fs_slots *slots, uint64_t serial);

/* It goes on as its sandbox's; who looks for that gets it back. NULL is fine. */
void fs_slot_unpark(struct fs_slots *slots, struct fs_slot *slot);

/*
 * Add a RETIRED slot that shows @root, for a sandbox to come, and have the kernel know all
 * of it in the background. The tree is read as it is walked. As fs_helper_ping.
 */
int fs_slot_warm(struct fs_slots *slots, const struct cas_digest *root, struct err *err);

/* A sandbox that stopped showing a tree. */
struct fs_slot_end {
	const char *id;
	uint64_t serial;
	struct cas_digest root;
	struct cas_digest input; /* of which @root was made, for outputs' parents */
	struct fs_derived *view; /* taken over; held in meta. NULL: @root is in the store */
	/* Taken over: it is parked, and @bind proved there that nobody is in it. NULL: not so. */
	struct fs_slot *parked;
	struct fs_mount_key bind;
};

/*
 * The table of sandboxes shows it no more, but still has the id, so that no other can
 * have it. The kernel has forgotten the name when this returns.
 */
void fs_slot_end(struct fs_slots *slots, const struct fs_slot_end *end);

/*
 * What the kernel knows at @path below the slot @serial does not mean what it did. Blocks,
 * as what follows. 0, or negative: it may know it still.
 */
int fs_slot_forget(struct fs_slots *slots, uint64_t serial, const char *path);
/* The same of @nr names in the directory @dir; @changed: of its attributes and listing, too. */
int fs_slot_forget_in(struct fs_slots *slots, uint64_t serial, const char *dir,
		      const char *const *names, size_t nr, bool changed);

/* Take the binds of all that are retired off: session one is about to be unmounted. */
void fs_slots_unmount(struct fs_slots *slots);

/*
 * The listing of the root is about to be read for the kernel, which may keep it; and it
 * changed, of which the kernel is told when it may have kept it. The first before the
 * table is looked at, the second after it was changed. Any thread.
 */
void fs_slots_listed(struct fs_slots *slots);
void fs_slots_listing(struct fs_slots *slots);

/* Counters, as a new object; NULL: no memory. Any thread. */
json_t *fs_slots_describe(struct fs_slots *slots);

#endif
