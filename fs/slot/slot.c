/* fs/slot/slot.c - sandbox roots that outlive their sandbox, kernel caches included */

/*
 * A LIVE slot is nothing but a serial; what is here are the RETIRED ones, oldest first.
 * Whoever takes one off the list owns it: to swap it, or to let it go.
 */
#include "fs/slot/slot.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "cas/cas.h"
#include "fs/capture/derive.h"
#include "fs/helper/helper.h"
#include "fs/node/inode.h"
#include "fs/node/invalidate.h"
#include "fs/serve/executor.h"
#include "fs/serve/session.h"
#include "fs/slot/push.h"
#include "fs/slot/swap.h"

#define MAX_SLOTS      64
#define MAX_NODES      1000000
#define MAX_CANDIDATES 8   /* that are compared with a new root, latest first */
#define MAX_BINDS      256 /* that are unmounted in the end */
#define PARK_MS	       10000
#define PARK_PREFIX    ".slot-" /* as no id begins */
#define OFF_PREFIX     ".off-"

enum drop_reason {
	DROP_BUSY,	/* not proven idle */
	DROP_FORGOTTEN, /* by the kernel */
	DROP_UNTOLD,	/* the kernel could not be told what changed */
	DROP_UNREAD,	/* the old tree is not readable any more */
	DROP_DIFFERENT,
	DROP_OLD,
	NR_DROP_REASONS,
};

static const char *const drop_names[NR_DROP_REASONS] = {"busy",	  "forgotten", "untold",
							"unread", "different", "old"};

struct fs_slot {
	TAILQ_ENTRY(fs_slot) link;
	uint64_t serial;
	struct cas_digest root;
	struct cas_digest input;
	struct fs_derived *view; /* held in meta; may be NULL */
	struct fs_mount_key bind;
	char place[sizeof(PARK_PREFIX) + 32];
};

TAILQ_HEAD(slot_list, fs_slot);

struct fs_slots {
	struct fs_slots_options opts;
	char off[sizeof(OFF_PREFIX) + 32];    /* constant */
	struct fs_slots_place place;	      /* set before any sandbox is shown */
	_Atomic bool attached;		      /* place is set */
	_Atomic unsigned long long listed_ns; /* when the root was last listed; 0: not since told */
	_Atomic uint64_t next_serial;

	struct lock lock; /* rank QUEUE */
	struct slot_list retired GUARDED_BY(lock);
	size_t nr_retired GUARDED_BY(lock);
	struct slot_list parking GUARDED_BY(lock); /* being moved to their places */

	_Atomic uint64_t nr_fresh;
	_Atomic uint64_t nr_reused;
	_Atomic uint64_t nr_names;
	_Atomic uint64_t nr_nodes;
	_Atomic uint64_t nr_dropped[NR_DROP_REASONS];
};

int fs_slots_new(const struct fs_slots_options *opts, struct fs_slots **out)
{
	struct fs_slots *slots = calloc(1, sizeof(*slots));
	char rnd[33];

	if (!slots)
		return -ENOMEM;
	if (io_random_hex(rnd, 16) < 0) {
		free(slots);
		return -EIO;
	}
	(void)snprintf(slots->off, sizeof(slots->off), "%s%s", OFF_PREFIX, rnd);
	slots->opts = *opts;
	if (slots->opts.max_slots == 0)
		slots->opts.max_slots = MAX_SLOTS;
	if (slots->opts.max_nodes == 0)
		slots->opts.max_nodes = MAX_NODES;
	lock_init(&slots->lock, LOCK_RANK_QUEUE, "retired slots");
	lock_take(&slots->lock);
	TAILQ_INIT(&slots->retired);
	TAILQ_INIT(&slots->parking);
	lock_drop(&slots->lock);
	*out = slots;
	return 0;
}

static void slot_free(struct fs_slots *slots, struct fs_slot *slot)
{
	if (slot->view) {
		fs_derived_release(slot->view, slots->opts.meta);
		fs_derived_free(slot->view);
	}
	free(slot);
}

NO_LOCK_CHECK void fs_slots_free(struct fs_slots *slots)
{
	struct fs_slot *slot;

	if (!slots)
		return;
	while ((slot = TAILQ_FIRST(&slots->retired)) != NULL) {
		TAILQ_REMOVE(&slots->retired, slot, link);
		slot_free(slots, slot);
	}
	lock_fini(&slots->lock);
	free(slots);
}

void fs_slots_attach(struct fs_slots *slots, const struct fs_slots_place *place)
{
	slots->place = *place;
	atomic_store(&slots->attached, true);
	fs_inode_table_adopt(place->session->table, !slots->opts.no_adopt);
}

const char *fs_slots_off(const struct fs_slots *slots)
{
	return slots->off;
}

int fs_slots_lookup(struct fs_slots *slots, const char *name, struct cas_digest *root,
		    uint64_t *serial)
{
	struct fs_slot *slot;

	if (strncmp(name, PARK_PREFIX, strlen(PARK_PREFIX)) != 0)
		return 0;
	lock_take(&slots->lock);
	TAILQ_FOREACH(slot, &slots->parking, link)
	{
		if (strcmp(slot->place, name) == 0)
			break;
	}
	if (slot) {
		*root = slot->root;
		*serial = slot->serial;
	}
	lock_drop(&slots->lock);
	return slot != NULL;
}

static uint64_t next_serial(struct fs_slots *slots)
{
	return atomic_fetch_add(&slots->next_serial, 1) + 1;
}

uint64_t fs_slot_for_result(struct fs_slots *slots)
{
	return next_serial(slots) | FS_SERIAL_SHOW;
}

/* --- letting go --- */

struct going {
	struct fs_job job;
	struct fs_slots *slots;
	char *name;
};

static void invalidate_name(struct fs_slots *slots, const char *name)
{
	int ret = fs_invalidate_name(slots->place.session->se, FS_INODE_ROOT, name);

	/* What the kernel keeps is not used again; it costs memory. */
	if (ret < 0)
		log_warn("cannot invalidate the name %s: %s", name, strerrordesc_np(-ret));
}

static void run_going(struct fs_job *job)
{
	struct going *g = (struct going *)job;

	invalidate_name(g->slots, g->name);
	free(g->name);
	free(g);
}

/* Have the kernel forget @name in the background. Takes it over. */
static void submit_going(struct fs_slots *slots, char *name)
{
	struct going *g = calloc(1, sizeof(*g));

	if (!g) {
		free(name);
		return;
	}
	g->job.run = run_going;
	g->slots = slots;
	g->name = name;
	fs_executor_submit(slots->place.executor, &g->job);
}

/* @slot, which is in nobody else's hands and whose top is in state @from, is over. */
static void drop(struct fs_slots *slots, struct fs_slot *slot, enum fs_top_state from,
		 enum drop_reason reason, const char *why)
{
	struct fs_inode_table *table = slots->place.session->table;
	auto_free char *name = NULL;

	(void)fs_inode_top_set(table, slot->serial, from, FS_TOP_DROPPED);
	fs_inode_names_free(fs_inode_given(table, slot->serial));
	name = fs_inode_top_name(table, slot->serial);
	/* Where a sandbox is, or was, its own end sees to the name: it may be another's soon. */
	if (name && strncmp(name, PARK_PREFIX, strlen(PARK_PREFIX)) == 0)
		submit_going(slots, steal_ptr(&name));
	atomic_fetch_add(&slots->nr_dropped[reason], 1);
	log_debug("slot %llu: dropped, %s%s%s", (unsigned long long)slot->serial,
		  drop_names[reason], *why ? ": " : "", why);
	slot_free(slots, slot);
}

/* --- a sandbox begins --- */

struct candidate {
	uint64_t serial;
	struct cas_digest root;
	uint64_t distance;
};

/* An equal one alone, or the latest. */
static size_t candidates(struct fs_slots *slots, const struct cas_digest *root,
			 struct candidate *out)
{
	struct fs_slot *slot;
	size_t nr = 0;

	lock_take(&slots->lock);
	TAILQ_FOREACH_REVERSE(slot, &slots->retired, slot_list, link)
	{
		bool equal = cas_digest_equal(&slot->root, root);

		if (!equal && nr == MAX_CANDIDATES)
			continue;
		nr = equal ? 0 : nr;
		out[nr++] = (struct candidate){.serial = slot->serial, .root = slot->root};
		if (equal)
			break;
	}
	lock_drop(&slots->lock);
	return nr;
}

static struct fs_slot *take(struct fs_slots *slots, uint64_t serial)
{
	struct fs_slot *slot;

	lock_take(&slots->lock);
	TAILQ_FOREACH(slot, &slots->retired, link)
	{
		if (slot->serial == serial)
			break;
	}
	if (slot) {
		TAILQ_REMOVE(&slots->retired, slot, link);
		slots->nr_retired--;
	}
	lock_drop(&slots->lock);
	return slot;
}

/* The one that has most in common with @root, off the list; NULL: none has anything. */
static struct fs_slot *choose(struct fs_slots *slots, const struct cas_digest *root)
{
	struct candidate found[MAX_CANDIDATES];
	size_t nr = candidates(slots, root, found);

	for (size_t i = 0; i < nr; i++) {
		if (!cas_digest_equal(&found[i].root, root) &&
		    fs_swap_distance(slots->opts.meta, &found[i].root, root, &found[i].distance,
				     NULL) < 0)
			found[i].distance = UINT64_MAX;
	}
	for (;;) {
		struct candidate *best = NULL;
		struct fs_slot *slot;

		for (size_t i = 0; i < nr; i++) {
			if (found[i].distance < (best ? best->distance : UINT64_MAX))
				best = &found[i];
		}
		if (!best)
			return NULL;
		slot = take(slots, best->serial);
		if (slot)
			return slot;
		best->distance = UINT64_MAX; /* somebody else was faster */
	}
}

static enum drop_reason reason_of(int ret)
{
	switch (ret) {
	case -E2BIG:
		return DROP_DIFFERENT;
	case -ENOENT:
	case -EUCLEAN:
		return DROP_UNREAD;
	default:
		return DROP_UNTOLD;
	}
}

/* 0: @slot is LIVE and shows @root. Else it is dropped. */
static int reuse(struct fs_slots *slots, struct fs_slot *slot, const struct cas_digest *root)
{
	struct fs_inode_table *table = slots->place.session->table;
	struct fs_swap swap = {
		.session = slots->place.session,
		.meta = slots->opts.meta,
		.serial = slot->serial,
	};
	struct err err = {0};
	int ret;

	swap.top = fs_inode_top_set(table, slot->serial, FS_TOP_RETIRED, FS_TOP_SWAPPED);
	if (swap.top == 0) {
		drop(slots, slot, FS_TOP_SWAPPED, DROP_FORGOTTEN, "");
		return -ESTALE;
	}
	if (slots->place.pusher)
		swap.push = fs_push_new(FS_PUSH_CHANGES, slot->serial);
	ret = fs_swap_run(&swap, &slot->root, root, &err);
	atomic_fetch_add(&slots->nr_names, swap.nr_names);
	atomic_fetch_add(&slots->nr_nodes, swap.nr_nodes);
	if (ret == 0 && fs_inode_top_set(table, slot->serial, FS_TOP_SWAPPED, FS_TOP_LIVE) == 0)
		ret = -ESTALE;
	if (ret < 0) {
		drop(slots, slot, FS_TOP_SWAPPED, ret == -ESTALE ? DROP_FORGOTTEN : reason_of(ret),
		     err.msg);
		fs_push_free(swap.push);
		return ret;
	}
	if (swap.push)
		fs_pusher_submit(slots->place.pusher, swap.push);
	log_debug("slot %llu: reused, %zu names and %zu nodes invalidated",
		  (unsigned long long)slot->serial, swap.nr_names, swap.nr_nodes);
	slot_free(slots, slot);
	return 0;
}

uint64_t fs_slot_begin(struct fs_slots *slots, const struct cas_digest *root,
		       struct fs_mount_key *bind, struct cas_digest *former)
{
	struct fs_slot *slot;

	while (!slots->opts.no_reuse && (slot = choose(slots, root)) != NULL) {
		uint64_t serial = slot->serial;
		struct cas_digest input = slot->input;

		*bind = slot->bind;
		if (reuse(slots, slot, root) == 0) {
			*former = input;
			atomic_fetch_add(&slots->nr_reused, 1);
			return serial;
		}
	}
	*bind = (struct fs_mount_key){0};
	atomic_fetch_add(&slots->nr_fresh, 1);
	return next_serial(slots);
}

void fs_slots_push(struct fs_slots *slots)
{
	if (atomic_load(&slots->attached) && slots->place.pusher)
		fs_pusher_wake(slots->place.pusher);
}

/* From the top of @serial down @path, but for @last; false: the kernel has not got that far. */
static bool walk_known(struct fs_slots *slots, uint64_t serial, const char *path, const char *last,
		       struct fs_inode *at)
{
	struct fs_inode_table *table = slots->place.session->table;

	at->id = fs_inode_top(table, serial);
	while (at->id != 0 && path < last) {
		char name[CAS_NAME_MAX + 1];
		size_t len = strcspn(path, "/");

		if (len > CAS_NAME_MAX)
			return false;
		memcpy(name, path, len);
		name[len] = '\0';
		path += len + (path[len] == '/');
		if (!fs_inode_child(table, at->id, name, at))
			return false;
	}
	return at->id != 0;
}

static int forget_name(struct fs_slots *slots, uint64_t dir, const char *name)
{
	struct fs_session *session = slots->place.session;

	fs_inode_orphan(session->table, dir, name);
	return fs_invalidate_name(session->se, dir, name);
}

int fs_slot_forget(struct fs_slots *slots, uint64_t serial, const char *path)
{
	const char *slash = strrchr(path, '/');
	const char *last = slash ? slash + 1 : path;
	struct fs_inode at;

	return walk_known(slots, serial, path, last, &at) ? forget_name(slots, at.id, last) : 0;
}

int fs_slot_forget_in(struct fs_slots *slots, uint64_t serial, const char *dir,
		      const char *const *names, size_t nr, bool changed)
{
	struct fs_inode at;
	int ret = 0;

	if (!walk_known(slots, serial, dir, dir + strlen(dir), &at))
		return 0;
	for (size_t i = 0; ret == 0 && i < nr; i++)
		ret = forget_name(slots, at.id, names[i]);
	if (ret == 0 && changed)
		ret = fs_invalidate_node(slots->place.session->se, at.id);
	return ret;
}

/* --- a sandbox ends --- */

/* One of those that are too many; NULL: none is. */
static struct fs_slot *too_many(struct fs_slots *slots)
{
	size_t nr_nodes = fs_inode_count(slots->place.session->table);
	struct fs_slot *slot = NULL;

	lock_take(&slots->lock);
	if (slots->nr_retired > slots->opts.max_slots ||
	    (nr_nodes > slots->opts.max_nodes && slots->nr_retired > 1)) {
		slot = TAILQ_FIRST(&slots->retired);
		TAILQ_REMOVE(&slots->retired, slot, link);
		slots->nr_retired--;
	}
	lock_drop(&slots->lock);
	return slot;
}

static void retire(struct fs_slots *slots, struct fs_slot *slot)
{
	lock_take(&slots->lock);
	TAILQ_INSERT_TAIL(&slots->retired, slot, link);
	slots->nr_retired++;
	lock_drop(&slots->lock);
	slot = too_many(slots);
	if (slot)
		drop(slots, slot, FS_TOP_RETIRED, DROP_OLD, "");
}

/* Whoever looks its place up finds it; NULL: no memory, or no name. */
static struct fs_slot *begin_parking(struct fs_slots *slots, uint64_t serial,
				     const struct cas_digest *root)
{
	struct fs_slot *slot = calloc(1, sizeof(*slot));
	char rnd[33];

	if (!slot || io_random_hex(rnd, 16) < 0) {
		free(slot);
		return NULL;
	}
	slot->serial = serial;
	slot->root = *root;
	slot->input = *root;
	(void)snprintf(slot->place, sizeof(slot->place), "%s%s", PARK_PREFIX, rnd);
	lock_take(&slots->lock);
	TAILQ_INSERT_TAIL(&slots->parking, slot, link);
	lock_drop(&slots->lock);
	return slot;
}

/*
 * First lookups of the old name that may still be answered with the top must be over: they
 * would move it back.
 */
struct fs_slot *fs_slot_park(struct fs_slots *slots, uint64_t serial, const struct cas_digest *root)
{
	if (slots->opts.no_reuse || !fs_inode_top_known(slots->place.session->table, serial) ||
	    fs_invalidate_barrier(slots->place.session->se, FS_INODE_ROOT) < 0)
		return NULL;
	return begin_parking(slots, serial, root);
}

const char *fs_slot_place(const struct fs_slot *slot)
{
	return slot->place;
}

bool fs_slot_is_parked(struct fs_slots *slots, const struct fs_slot *slot)
{
	auto_free char *name = fs_inode_top_name(slots->place.session->table, slot->serial);

	return name && strcmp(name, slot->place) == 0;
}

char *fs_slot_parked_name(struct fs_slots *slots, uint64_t serial)
{
	auto_free char *name = fs_inode_top_name(slots->place.session->table, serial);
	bool parked = name && strncmp(name, PARK_PREFIX, strlen(PARK_PREFIX)) == 0;

	return parked ? steal_ptr(&name) : NULL;
}

static void end_parking(struct fs_slots *slots, struct fs_slot *slot)
{
	lock_take(&slots->lock);
	TAILQ_REMOVE(&slots->parking, slot, link);
	lock_drop(&slots->lock);
}

void fs_slot_unpark(struct fs_slots *slots, struct fs_slot *slot)
{
	if (!slot)
		return;
	end_parking(slots, slot);
	free(slot);
}

/* It is parked, and nobody is in it: for the next. */
static void end_parked(struct fs_slots *slots, struct fs_slot *slot)
{
	end_parking(slots, slot);
	if (fs_inode_top_set(slots->place.session->table, slot->serial, FS_TOP_LIVE,
			     FS_TOP_RETIRED) == 0)
		drop(slots, slot, FS_TOP_RETIRED, DROP_FORGOTTEN, "");
	else
		retire(slots, slot);
}

/* The kernel learns the top's id from the lookup that parks it. */
static uint64_t top_id(struct fs_slots *slots, uint64_t serial)
{
	return fs_inode_top_set(slots->place.session->table, serial, FS_TOP_LIVE, FS_TOP_LIVE);
}

static int look_at_place(struct fs_slots *slots, const struct fs_slot *slot, struct err *err)
{
	auto_free char *path = NULL;

	if (asprintf(&path, "%s/%s", slots->place.base, slot->place) < 0) {
		path = NULL;
		return err_set(err, -ENOMEM, "no memory for a name");
	}
	return fs_helper_ping(slots->place.helper, path, PARK_MS, err);
}

int fs_slot_warm(struct fs_slots *slots, const struct cas_digest *root, struct err *err)
{
	struct fs_push *push;
	struct fs_slot *slot;
	int ret;

	if (slots->opts.no_reuse)
		return 0;
	slot = begin_parking(slots, next_serial(slots), root);
	if (!slot)
		return err_set(err, -ENOMEM, "no memory for a slot");
	push = slots->place.pusher ? fs_push_new(FS_PUSH_WARM, slot->serial) : NULL;
	ret = look_at_place(slots, slot, err);
	if (ret < 0) {
		fs_push_free(push);
		fs_slot_unpark(slots, slot);
		return ret;
	}
	if (push)
		fs_push_list(push, top_id(slots, slot->serial));
	end_parked(slots, slot);
	if (push) {
		fs_pusher_submit(slots->place.pusher, push);
		fs_pusher_wake(slots->place.pusher);
	}
	return 0;
}

void fs_slot_end(struct fs_slots *slots, const struct fs_slot_end *end)
{
	struct fs_inode_table *table = slots->place.session->table;
	struct fs_slot *slot;

	if (end->parked) {
		end->parked->input = end->input;
		end->parked->view = end->view;
		end->parked->bind = end->bind;
		end_parked(slots, end->parked);
		return;
	}
	slot = calloc(1, sizeof(*slot));
	if (slot) {
		*slot = (struct fs_slot){
			.serial = end->serial, .root = end->root, .view = end->view};
		/* Nobody looked, or the kernel needed the memory. */
		drop(slots, slot, FS_TOP_LIVE,
		     fs_inode_top_known(table, end->serial) ? DROP_BUSY : DROP_FORGOTTEN, "");
	} else {
		(void)fs_inode_top_set(table, end->serial, FS_TOP_LIVE, FS_TOP_DROPPED);
		if (end->view)
			fs_derived_release(end->view, slots->opts.meta);
		fs_derived_free(end->view);
	}
	invalidate_name(slots, end->id);
}

/* One message for as many as it holds; what stays goes with session one. */
void fs_slots_unmount(struct fs_slots *slots)
{
	struct fs_helper_step steps[MAX_BINDS] = {0};
	struct fs_slot *slot;
	struct err err = {0};
	size_t nr = 0;

	lock_take(&slots->lock);
	TAILQ_FOREACH(slot, &slots->retired, link)
	{
		if (nr < MAX_BINDS && slot->bind.id != 0)
			steps[nr++] = (struct fs_helper_step){.op = FS_HELPER_DETACH,
							      .target = slot->place};
	}
	lock_drop(&slots->lock);
	if (nr > 0 &&
	    fs_helper_run(slots->place.helper, slots->place.base, steps, nr, true, &err) < 0)
		log_debug("retired slots: %s", err.msg);
}

/*
 * Who changed the table before he looked at the time is seen by whoever sets it after. The
 * kernel forgets the root's attributes with its listing, so that each needless word costs
 * a request. It may keep a listing some time after it was read for it, and so after a word
 * that came in between: only a listing this old is surely forgotten with it.
 */
#define LISTED_NS 1000000000ULL

void fs_slots_listed(struct fs_slots *slots)
{
	atomic_store(&slots->listed_ns, lock_now_ns());
}

void fs_slots_listing(struct fs_slots *slots)
{
	unsigned long long when = atomic_load(&slots->listed_ns);
	bool old = lock_now_ns() - when > LISTED_NS;
	int ret = 0;

	if (when)
		ret = fs_invalidate_node(slots->place.session->se, FS_INODE_ROOT);
	if (ret < 0)
		log_warn("cannot invalidate the list of sandboxes: %s", strerrordesc_np(-ret));
	else if (when && old)
		(void)atomic_compare_exchange_strong(&slots->listed_ns, &when, 0);
}

json_t *fs_slots_describe(struct fs_slots *slots)
{
	json_t *dropped = json_object();
	bool attached = atomic_load(&slots->attached);
	uint64_t nr_adopted = attached ? fs_inode_adopted(slots->place.session->table) : 0;
	size_t nr_retired;

	lock_take(&slots->lock);
	nr_retired = slots->nr_retired;
	lock_drop(&slots->lock);
	for (size_t i = 0; dropped && i < NR_DROP_REASONS; i++)
		(void)json_object_set_new(
			dropped, drop_names[i],
			json_integer((json_int_t)atomic_load(&slots->nr_dropped[i])));
	return json_pack("{s:I, s:I, s:I, s:o, s:I, s:I, s:I}", "fresh",
			 (json_int_t)atomic_load(&slots->nr_fresh), "reused",
			 (json_int_t)atomic_load(&slots->nr_reused), "retired",
			 (json_int_t)nr_retired, "dropped", dropped, "adopted_directories",
			 (json_int_t)nr_adopted, "invalidated_names",
			 (json_int_t)atomic_load(&slots->nr_names), "invalidated_nodes",
			 (json_int_t)atomic_load(&slots->nr_nodes));
}
