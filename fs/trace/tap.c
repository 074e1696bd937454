/* fs/trace/tap.c - which recorder an upcall belongs to */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#define HASH_FUNCTION	  HASH_FNV
#include <uthash.h>

#include "cas/base/auto.h"
#include "cas/base/lock.h"
#include "fs/node/inode.h"
#include "fs/trace/trace_i.h"

struct tapped {
	UT_hash_handle hh;
	uint64_t serial;
	struct fs_trace *trace; /* counted */
};

/* The lock is held while a recorder is told: whoever was dropped hears nothing more. */
struct fs_tap {
	_Atomic size_t nr;
	struct lock lock; /* rank QUEUE */
	struct tapped *by_serial GUARDED_BY(lock);
};

int fs_tap_new(struct fs_tap **out)
{
	struct fs_tap *tap = calloc(1, sizeof(*tap));

	if (!tap)
		return -ENOMEM;
	lock_init(&tap->lock, LOCK_RANK_QUEUE, "traced sandboxes");
	*out = tap;
	return 0;
}

NO_LOCK_CHECK void fs_tap_free(struct fs_tap *tap)
{
	struct tapped *t, *next;

	if (!tap)
		return;
	HASH_ITER (hh, tap->by_serial, t, next) {
		HASH_DEL(tap->by_serial, t);
		fs_trace_unref(t->trace);
		free(t);
	}
	lock_fini(&tap->lock);
	free(tap);
}

int fs_tap_add(struct fs_tap *tap, uint64_t serial, struct fs_trace *trace)
{
	struct tapped *t = calloc(1, sizeof(*t));
	bool added;

	if (!t)
		return -ENOMEM;
	t->serial = serial;
	t->trace = fs_trace_ref(trace);
	lock_take(&tap->lock);
	HASH_ADD(hh, tap->by_serial, serial, sizeof(t->serial), t);
	added = t->hh.tbl != NULL;
	lock_drop(&tap->lock);
	if (!added) {
		fs_trace_unref(t->trace);
		free(t);
		return -ENOMEM;
	}
	(void)atomic_fetch_add(&tap->nr, 1);
	return 0;
}

void fs_tap_drop(struct fs_tap *tap, uint64_t serial)
{
	struct tapped *t;

	lock_take(&tap->lock);
	HASH_FIND(hh, tap->by_serial, &serial, sizeof(serial), t);
	if (t)
		HASH_DEL(tap->by_serial, t);
	lock_drop(&tap->lock);
	if (!t)
		return;
	(void)atomic_fetch_sub(&tap->nr, 1);
	fs_trace_unref(t->trace);
	free(t);
}

static bool is_idle(struct fs_tap *tap)
{
	return !tap || atomic_load_explicit(&tap->nr, memory_order_relaxed) == 0;
}

static struct fs_trace *find_locked(struct fs_tap *tap, uint64_t serial) REQUIRES(tap->lock)
{
	struct tapped *t;

	HASH_FIND(hh, tap->by_serial, &serial, sizeof(serial), t);
	return t ? t->trace : NULL;
}

/* Where the directory @dir is, and in whose tree; NULL when nobody listens, or it is gone. */
static char *place_of(struct fs_tap *tap, struct fs_inode_table *table, uint64_t dir,
		      uint64_t *serial)
{
	return is_idle(tap) ? NULL : fs_inode_place(table, dir, serial);
}

void fs_tap_looked(struct fs_tap *tap, struct fs_inode_table *table, uint64_t dir, const char *name,
		   uint64_t node, bool leaf, pid_t pid)
{
	uint64_t serial;
	auto_free char *path = place_of(tap, table, dir, &serial);
	struct fs_trace *trace;

	if (!path)
		return;
	lock_take(&tap->lock);
	trace = find_locked(tap, serial);
	if (trace)
		fs_trace_looked(trace, path, name, node, leaf, pid);
	lock_drop(&tap->lock);
}

void fs_tap_listed(struct fs_tap *tap, struct fs_inode_table *table, uint64_t dir)
{
	uint64_t serial;
	auto_free char *path = place_of(tap, table, dir, &serial);
	struct fs_trace *trace;

	if (!path)
		return;
	lock_take(&tap->lock);
	trace = find_locked(tap, serial);
	if (trace)
		fs_trace_note(trace, FS_TRACE_LISTED, path, "");
	lock_drop(&tap->lock);
}

void fs_tap_read(struct fs_tap *tap, uint64_t node, pid_t pid)
{
	struct tapped *t;

	if (is_idle(tap))
		return;
	lock_take(&tap->lock);
	for (t = tap->by_serial; t; t = t->hh.next)
		fs_trace_read(t->trace, node, pid);
	lock_drop(&tap->lock);
}
