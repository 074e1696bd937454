/* fs/slot/push.h - give the kernel what it does not know before anybody asks */
#ifndef FS_SLOT_PUSH_H
#define FS_SLOT_PUSH_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct fs_missed;
struct fs_probes;
struct fs_session;
struct meta;

/*
 * What is to be pushed of one tree: directories that are listed, then names that are
 * looked up, and whose bytes are stored when they are small files. A list of wishes: by
 * the time they are looked at any may have come true or be void, and is passed over.
 */
struct fs_push;

enum fs_push_kind {
	FS_PUSH_CHANGES, /* of a tree that became a sandbox's: as long as it is that */
	FS_PUSH_WARM,	 /* of a retired tree, its top alone: all below, the small files, and
			    names that are missing */
	FS_PUSH_WANT,	 /* of any: with the small files when they are few */
};

/* NULL: no memory, so nothing is pushed. @serial is that of the tree's top. */
struct fs_push *fs_push_new(enum fs_push_kind kind, uint64_t serial);
void fs_push_free(struct fs_push *push);
/* Ids of directories. Those that are too many are left out. */
void fs_push_name(struct fs_push *push, uint64_t dir, const char *name);
void fs_push_list(struct fs_push *push, uint64_t dir);

/*
 * A thread that serves nothing, with a mount helper of its own. The helper looks at names
 * and directories, so that answers fill the kernel's caches; then the thread stores the
 * small files among them in its page cache (a file's node is its content: they can not be
 * another tree's).
 *
 * The helper goes by the names that the kernel has for them, parked or not, in a copy of
 * session one's own mount, where the one that is bound over each sandbox is not. So a push
 * under way never makes a sandbox look busy, and nobody has to wait for it; if the tree is
 * swapped meanwhile, the helper is a walker like others. What the kernel does not know
 * below the root it does not find, or it would have results of finished sandboxes made.
 * (open_by_handle_at would do without names, but makes the kernel ask for each directory
 * again.)
 */
struct fs_pusher;

struct fs_pusher_options {
	struct meta *meta;
	struct fs_session *session; /* one; its threads serve until fs_pusher_stop */
	struct fs_missed *missed;   /* what warmed trees are looked up for, too */
	struct fs_probes *probes;   /* is told when it turns out to be impossible */
	const char *helper_program; /* as fs_helper_new */
	const char *base;	    /* absolute path of session one; outlives it */
};

int fs_pusher_new(const struct fs_pusher_options *opts, struct fs_pusher **out, struct err *err);

/* End the push under way, the thread and the helper; what is submitted later is dropped. */
void fs_pusher_stop(struct fs_pusher *pusher);
void fs_pusher_free(struct fs_pusher *pusher);

/*
 * Takes @push over; any thread, does not block. Dropped when too many are waiting. It may wait
 * until the next wake: to wake up a thread takes a while.
 */
void fs_pusher_submit(struct fs_pusher *pusher, struct fs_push *push);
void fs_pusher_wake(struct fs_pusher *pusher);

/*
 * Somebody is going through the directory @dir name by name: list it, and look up what was
 * missed in it, if there is a processor to spare. As submit.
 */
void fs_pusher_want(struct fs_pusher *pusher, uint64_t dir);

/* Counters, as a new object; NULL: no memory. Any thread. */
json_t *fs_pusher_describe(struct fs_pusher *pusher);

#endif
