/* fs/sandbox/sandbox.c - the table of sandboxes */
#include "fs/sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/log.h"
#include "cas/store/store.h"
#include "fs/capture/early.h"
#include "fs/learn/learn.h"
#include "fs/sandbox/sandbox_i.h"
#include "fs/sandbox/times.h"
#include "fs/slot/slot.h"
#include "fs/upper/upper.h"
#include "meta/meta.h"

#define LIST_BATCH 32
#define DIRS_MAX   1024
#define FREEZE_NS  50000000ULL /* for captures to end */

int64_t fs_sandbox_now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

void fs_sandbox_free(struct fs_sandbox *sb)
{
	if (sb == NULL)
		return;
	fs_derived_free(sb->view);
	fs_outputs_fini(&sb->outputs);
	fs_large_inputs_fini(&sb->large);
	fs_record_fini(&sb->rec);
	if (sb->dir_fd >= 0)
		(void)close(sb->dir_fd);
	if (sb->upper)
		fs_upper_end(sb->upper);
	fs_upper_unref(sb->upper);
	free(sb->moved);
	free(sb->keys);
	fs_findings_fini(&sb->foreign);
	fs_trace_unref(sb->trace);
	free(sb);
}

static int not_found(const char *id, struct err *err)
{
	return err_set(err, -ENOENT, "no sandbox %s", id);
}

int fs_sandbox_claim(struct fs_sandboxes *all, const char *id, struct fs_sandbox **out,
		     struct err *err)
{
	struct fs_sandbox *sb = NULL;
	bool gone = false;
	bool last = false;

	lock_take(&all->lock);
	HASH_FIND_STR(all->by_id, id, sb);
	if (sb) {
		sb->nr_refs++;
		while (sb->busy)
			(void)lock_wait(&all->lock, &all->idle, 0);
		sb->nr_refs--;
		gone = sb->gone;
		last = gone && sb->nr_refs == 0;
		sb->busy = !gone;
	}
	lock_drop(&all->lock);
	if (last)
		fs_sandbox_free(sb);
	if (sb == NULL || gone)
		return not_found(id, err);
	*out = sb;
	return 0;
}

void fs_sandbox_unclaim(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	bool last;

	lock_take(&all->lock);
	sb->busy = false;
	last = sb->gone && sb->nr_refs == 0;
	(void)pthread_cond_broadcast(&all->idle);
	lock_drop(&all->lock);
	if (last)
		fs_sandbox_free(sb);
}

int fs_sandbox_enter(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	struct fs_sandbox *other;
	int ret = -EEXIST;

	lock_take(&all->lock);
	while (all->nr_freezes > 0)
		(void)lock_wait(&all->lock, &all->idle, 0);
	HASH_FIND_STR(all->by_id, sb->rec.id, other);
	if (other == NULL) {
		HASH_ADD_KEYPTR(hh, all->by_id, sb->rec.id, strlen(sb->rec.id), sb);
		ret = sb->hh.tbl ? 0 : -ENOMEM;
	}
	if (ret == 0) {
		sb->busy = true;
		sb->pos = ++all->next_pos;
		DL_APPEND(all->in_order, sb);
	}
	lock_drop(&all->lock);
	return ret;
}

static void view_drop(struct fs_sandboxes *all, struct fs_derived *view)
{
	if (view)
		fs_derived_release(view, all->meta);
	fs_derived_free(view);
}

/* Session two has no slots. */
static bool has_slot(const struct fs_sandboxes *all, const struct fs_sandbox *sb)
{
	return all->slots && sb->rec.trace != FS_TRACE_EXACT;
}

static void tell_changed(struct fs_sandboxes *all, const struct fs_sandbox *sb)
{
	void (*told)(void *ctx, const char *id) =
		sb->rec.trace == FS_TRACE_EXACT ? all->events.traced : all->events.changed;

	if (told)
		told(all->events.ctx, sb->rec.id);
}

/* Whoever looks from now on must not find what the kernel knew of the name. */
static void forget_shown(struct fs_sandboxes *all, const struct fs_sandbox *sb,
			 const struct fs_slot_end *end, bool listed)
{
	if (has_slot(all, sb)) {
		fs_slot_end(all->slots, end);
		if (listed)
			fs_slots_listing(all->slots);
		return;
	}
	tell_changed(all, sb);
	view_drop(all, end->view);
}

void fs_sandbox_hide(struct fs_sandboxes *all, struct fs_sandbox *sb, bool lazy)
{
	struct fs_slot_end end = {.id = sb->rec.id};
	bool was_visible;
	bool was_lazy;

	if (sb->idle_proven)
		end.parked = steal_ptr(&sb->parking);
	lock_take(&all->lock);
	was_visible = sb->visible;
	was_lazy = sb->lazy;
	end.serial = sb->serial;
	end.root = sb->view_root;
	end.input = sb->rec.root;
	end.view = steal_ptr(&sb->view);
	end.bind = sb->bind;
	sb->visible = sb->covered = false;
	sb->lazy = lazy;
	sb->result_shown = false;
	lock_drop(&all->lock);
	if (was_visible)
		forget_shown(all, sb, &end, !lazy && !sb->rec.unlisted);
	if (all->slots)
		fs_slot_unpark(all->slots, steal_ptr(&sb->parking));
	if (!was_visible && was_lazy && !lazy && !sb->rec.unlisted && has_slot(all, sb))
		fs_slots_listing(all->slots);
}

static bool set_covered(struct fs_sandboxes *all, struct fs_sandbox *sb, bool covered)
{
	bool can;

	lock_take(&all->lock);
	can = sb->visible && !sb->result_shown;
	sb->covered = can && covered;
	lock_drop(&all->lock);
	return can;
}

void fs_sandbox_cover(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	/*
	 * Without a bind that can be told from others nothing could be proven there; where there
	 * can be none somebody has to know.
	 */
	bool provable =
		all->no_mounts ? sb->vouched || sb->group_ended : sb->bound && sb->bind.id != 0;

	if (set_covered(all, sb, true) && has_slot(all, sb) && provable)
		sb->parking = fs_slot_park(all->slots, sb->serial, &sb->view_root);
}

void fs_sandbox_uncover(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	(void)set_covered(all, sb, false);
	if (sb->parking == NULL)
		return;
	/* From now on anybody may come in unseen. */
	sb->idle_proven = false;
	fs_slot_unpark(all->slots, steal_ptr(&sb->parking));
}

void fs_sandbox_leave(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	fs_learn_end(all->learn, sb->rec.id);
	/* First: another sandbox of that name would be hit by the invalidation. */
	fs_sandbox_hide(all, sb, false);
	lock_take(&all->lock);
	HASH_DEL(all->by_id, sb);
	DL_DELETE(all->in_order, sb);
	sb->gone = true;
	lock_drop(&all->lock);
	fs_early_forget(all->early, sb->rec.id);
}

int fs_sandbox_show_view(struct fs_sandboxes *all, struct fs_sandbox *sb, struct fs_derived *view,
			 struct err *err)
{
	const struct cas_digest *root = fs_derived_root(view);
	int ret = fs_derived_hold(view, all->meta, err);
	struct cas_digest former = {.size = 0};
	uint64_t serial = 0;

	if (ret < 0)
		return ret;
	if (all->slots && fs_sandbox_is_apart(all, sb))
		serial = fs_slot_for_result(all->slots);
	else if (has_slot(all, sb))
		serial = fs_slot_begin(all->slots, root, &sb->bind, &former);
	ret = fs_sandbox_begin_upper(all, sb, serial, root, err);
	if (ret < 0) {
		fs_derived_release(view, all->meta);
		return ret;
	}
	lock_take(&all->lock);
	fs_sandbox_times_began(sb, &former);
	sb->view = view;
	sb->view_root = *root;
	sb->serial = has_slot(all, sb) ? serial : ++all->next_serial;
	sb->visible = true;
	lock_drop(&all->lock);
	sb->bound = sb->bind.id != 0;
	fs_sandbox_trace_begin(all, sb);
	tell_changed(all, sb);
	return 0;
}

int fs_sandbox_show_lazy(struct fs_sandboxes *all, struct fs_sandbox *sb, struct fs_derived *view,
			 struct err *err)
{
	int ret = fs_derived_hold(view, all->meta, err);
	bool shown = false;

	if (ret < 0) {
		fs_derived_free(view);
		return ret;
	}
	lock_take(&all->lock);
	if (sb->lazy) {
		sb->view = view;
		sb->view_root = *fs_derived_root(view);
		sb->serial =
			has_slot(all, sb) ? fs_slot_for_result(all->slots) : ++all->next_serial;
		sb->visible = shown = true;
		sb->result_shown = true;
		sb->lazy = false;
	}
	lock_drop(&all->lock);
	if (!shown)
		view_drop(all, view);
	return 0;
}

void fs_sandbox_tell_added(struct fs_sandboxes *all, const struct fs_sandbox *sb)
{
	if (has_slot(all, sb) && !sb->rec.unlisted)
		fs_slots_listing(all->slots);
	if (all->events.added)
		all->events.added(all->events.ctx, sb->rec.id);
}

void fs_sandbox_set_state(struct fs_sandboxes *all, struct fs_sandbox *sb,
			  enum fs_sandbox_state state)
{
	lock_take(&all->lock);
	sb->rec.state = state;
	lock_drop(&all->lock);
}

int fs_sandbox_open_dir(struct fs_sandboxes *all, const char *id, struct err *err)
{
	int fd = openat(all->dir_fd, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? err_set(err, -errno, "cannot open the files of sandbox %s: %m", id) : fd;
}

int fs_sandbox_dir(struct fs_sandboxes *all, struct fs_sandbox *sb, struct err *err)
{
	int fd = sb->dir_fd;

	if (fd >= 0)
		return fd;
	fd = fs_sandbox_open_dir(all, sb->rec.id, err);
	if (fd >= 0) {
		sb->dir_fd = fd;
		(void)atomic_fetch_add(&all->nr_dirs, 1);
	}
	return fd;
}

int fs_sandbox_dir_steal(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	if (sb->dir_fd >= 0)
		(void)atomic_fetch_sub(&all->nr_dirs, 1);
	return steal_fd(&sb->dir_fd);
}

void fs_sandbox_dir_settle(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	int fd = atomic_load(&all->nr_dirs) > DIRS_MAX ? fs_sandbox_dir_steal(all, sb) : -1;

	if (fd >= 0)
		(void)close(fd);
}

void fs_sandbox_give(const struct fs_sandboxes *all, int dir_fd, const char *name)
{
	if (all->give && fchownat(dir_fd, name, all->uid, all->gid, AT_SYMLINK_NOFOLLOW) < 0)
		log_warn("cannot give %s of a sandbox to the owner of the store: %m", name);
}

int fs_sandbox_save(struct fs_sandboxes *all, struct fs_sandbox *sb, struct err *err)
{
	int fd = fs_sandbox_dir(all, sb, err);
	int ret = fd < 0 ? fd : fs_record_write(&sb->rec, fd, all->durable, err);

	if (ret == 0)
		fs_sandbox_give(all, fd, FS_RECORD_NAME);
	fs_sandbox_dir_settle(all, sb);
	return ret;
}

void fs_sandbox_history(struct fs_sandboxes *all, const struct fs_sandbox *sb, const char *state)
{
	char root[CAS_DIGEST_STR_SZ];
	struct meta_sandbox_row row = {
		.id = sb->rec.id,
		.root = cas_digest_format(&sb->rec.root, '/', root),
		.state = state,
		.created_ns = sb->rec.created_ns,
		.finished_ns = sb->rec.finished_ns,
		.exit_code = sb->rec.exit_code,
	};

	meta_sandbox_record(all->meta, &row);
}

static bool find_shown_locked(struct fs_sandbox *sb, struct cas_digest *root, uint64_t *serial)
{
	if (!sb || !sb->visible || sb->covered)
		return false;
	*root = sb->view_root;
	*serial = sb->serial;
	return true;
}

static void unref(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	bool last;

	lock_take(&all->lock);
	sb->nr_refs--;
	last = sb->gone && !sb->busy && sb->nr_refs == 0;
	lock_drop(&all->lock);
	if (last)
		fs_sandbox_free(sb);
}

static int lookup(struct fs_sandboxes *all, const char *id, bool traced, struct cas_digest *root,
		  uint64_t *serial)
{
	struct fs_sandbox *sb;
	struct err err = {0};
	bool lazy;
	bool shown;
	int ret;

	lock_take(&all->lock);
	HASH_FIND_STR(all->by_id, id, sb);
	if (sb && (sb->rec.trace == FS_TRACE_EXACT) != traced)
		sb = NULL;
	shown = find_shown_locked(sb, root, serial);
	lazy = sb && sb->lazy;
	sb = lazy ? sb : NULL;
	if (sb)
		sb->nr_refs++;
	lock_drop(&all->lock);
	if (!sb)
		return shown;
	ret = fs_sandbox_show_result(all, sb, &err);
	lock_take(&all->lock);
	shown = find_shown_locked(sb, root, serial);
	lock_drop(&all->lock);
	if (ret < 0)
		log_warn("sandbox %s: cannot show the outputs: %s", id, err_text(&err, ret));
	unref(all, sb);
	return ret < 0 ? ret : shown;
}

int fs_sandboxes_lookup(struct fs_sandboxes *all, const char *id, struct cas_digest *root,
			uint64_t *serial)
{
	return lookup(all, id, false, root, serial);
}

int fs_sandboxes_lookup_traced(struct fs_sandboxes *all, const char *id, struct cas_digest *root,
			       uint64_t *serial)
{
	return lookup(all, id, true, root, serial);
}

uint64_t fs_sandboxes_pos(struct fs_sandboxes *all, const char *id)
{
	struct fs_sandbox *sb;
	uint64_t pos;

	lock_take(&all->lock);
	HASH_FIND_STR(all->by_id, id, sb);
	pos = sb && sb->rec.state != FS_SANDBOX_CREATING ? sb->pos : 0;
	lock_drop(&all->lock);
	return pos;
}

char *fs_sandboxes_id(struct fs_sandboxes *all, uint64_t pos)
{
	struct fs_sandbox *sb;
	char *id = NULL;

	lock_take(&all->lock);
	DL_FOREACH (all->in_order, sb) {
		if (sb->pos == pos)
			break;
	}
	if (sb)
		id = strdup(sb->rec.id);
	lock_drop(&all->lock);
	return id;
}

static bool is_listed(const struct fs_sandbox *sb, enum fs_sandboxes_which which)
{
	if (sb->rec.state == FS_SANDBOX_CREATING)
		return false;
	return which == FS_SANDBOXES_ALL ||
	       ((sb->visible || sb->lazy) && !sb->rec.unlisted &&
		(sb->rec.trace == FS_TRACE_EXACT) == (which == FS_SANDBOXES_TRACED));
}

struct list_entry {
	uint64_t pos;
	char id[FS_SANDBOX_ID_MAX + 1];
};

static size_t list_batch(struct fs_sandboxes *all, enum fs_sandboxes_which which, uint64_t start,
			 struct list_entry *out)
{
	struct fs_sandbox *sb;
	size_t nr = 0;

	lock_take(&all->lock);
	DL_FOREACH (all->in_order, sb) {
		if (sb->pos < start || !is_listed(sb, which))
			continue;
		out[nr].pos = sb->pos;
		(void)stpncpy(out[nr].id, sb->rec.id, FS_SANDBOX_ID_MAX);
		out[nr].id[FS_SANDBOX_ID_MAX] = '\0';
		if (++nr == LIST_BATCH)
			break;
	}
	lock_drop(&all->lock);
	return nr;
}

void fs_sandboxes_list(struct fs_sandboxes *all, enum fs_sandboxes_which which, uint64_t start,
		       int (*each)(void *ctx, uint64_t pos, const char *id), void *ctx)
{
	struct list_entry batch[LIST_BATCH];
	size_t nr;

	/* The callback runs without the lock: it may fill a reply, or ask here again. */
	do {
		nr = list_batch(all, which, start, batch);
		for (size_t i = 0; i < nr; i++) {
			if (each(ctx, batch[i].pos, batch[i].id) != 0)
				return;
			start = batch[i].pos + 1;
		}
	} while (nr == LIST_BATCH);
}

size_t fs_sandboxes_count(struct fs_sandboxes *all)
{
	size_t nr;

	lock_take(&all->lock);
	nr = HASH_COUNT(all->by_id);
	lock_drop(&all->lock);
	return nr;
}

void fs_sandboxes_count_states(struct fs_sandboxes *all, struct fs_sandbox_counts *out)
{
	*out = (struct fs_sandbox_counts){0};
	lock_take(&all->lock);
	for (const struct fs_sandbox *sb = all->by_id; sb; sb = sb->hh.next) {
		switch (sb->rec.state) {
		case FS_SANDBOX_CREATING:
			out->creating++;
			break;
		case FS_SANDBOX_LIVE:
			out->live++;
			break;
		case FS_SANDBOX_FINISHING:
			out->finishing++;
			break;
		case FS_SANDBOX_FINISHED:
			out->finished++;
			break;
		case FS_SANDBOX_LOST:
			out->lost++;
			break;
		}
	}
	lock_drop(&all->lock);
}

int fs_sandboxes_freeze(struct fs_sandboxes *all, uint64_t *nr)
{
	unsigned long long end = lock_now_ns() + FREEZE_NS;
	int ret = 0;

	lock_take(&all->lock);
	all->nr_freezes++;
	while (all->nr_captures > 0 && ret == 0)
		ret = lock_wait(&all->lock, &all->idle, end);
	if (all->nr_captures == 0) {
		*nr = all->next_pos + all->nr_captured;
		ret = 0;
	} else {
		all->nr_freezes--;
		(void)pthread_cond_broadcast(&all->idle);
		ret = -EBUSY;
	}
	lock_drop(&all->lock);
	return ret;
}

void fs_sandboxes_capture_begin(struct fs_sandboxes *all)
{
	lock_take(&all->lock);
	while (all->nr_freezes > 0)
		(void)lock_wait(&all->lock, &all->idle, 0);
	all->nr_captures++;
	lock_drop(&all->lock);
}

void fs_sandboxes_capture_end(struct fs_sandboxes *all)
{
	lock_take(&all->lock);
	all->nr_captures--;
	all->nr_captured++;
	(void)pthread_cond_broadcast(&all->idle);
	lock_drop(&all->lock);
}

void fs_sandboxes_thaw(struct fs_sandboxes *all)
{
	lock_take(&all->lock);
	all->nr_freezes--;
	(void)pthread_cond_broadcast(&all->idle);
	lock_drop(&all->lock);
}

static json_t *describe(struct fs_sandboxes *all, const struct fs_sandbox *sb)
{
	json_t *obj = fs_record_describe(&sb->rec);

	if (obj) {
		json_t *path = json_sprintf("%s/%s", fs_sandbox_base(all, sb), sb->rec.id);

		/* A base that is not UTF-8 has no place in JSON. */
		(void)json_object_set_new(obj, "path", path ? path : json_null());
	}
	return obj;
}

int fs_sandbox_show(struct fs_sandboxes *all, const char *id, json_t **out, struct err *err)
{
	struct fs_sandbox *sb;
	enum fs_trace_kind trace = FS_TRACE_OFF;
	json_t *obj = NULL;

	lock_take(&all->lock);
	HASH_FIND_STR(all->by_id, id, sb);
	if (sb) {
		obj = describe(all, sb);
		trace = sb->rec.trace;
	}
	lock_drop(&all->lock);
	fs_sandbox_trace_settle(all, trace);
	if (sb == NULL)
		return not_found(id, err);
	if (obj == NULL)
		return err_set(err, -ENOMEM, "no memory to show sandbox %s", id);
	*out = obj;
	return 0;
}

int fs_sandboxes_describe(struct fs_sandboxes *all, json_t **out, struct err *err)
{
	json_t *array = json_array();
	struct fs_sandbox *sb;

	if (array == NULL)
		return err_set(err, -ENOMEM, "no memory to list sandboxes");
	lock_take(&all->lock);
	DL_FOREACH (all->in_order, sb)
		(void)json_array_append_new(array, describe(all, sb));
	lock_drop(&all->lock);
	*out = array;
	return 0;
}
