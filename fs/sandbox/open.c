/* fs/sandbox/open.c - sandboxes across the daemon's life: open, restore, close */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/store/store.h"
#include "fs/capture/crew.h"
#include "fs/capture/early.h"
#include "fs/capture/syncer.h"
#include "fs/engine/cgroup.h"
#include "fs/engine/meter.h"
#include "fs/sandbox/journal.h"
#include "fs/sandbox/land.h"
#include "fs/sandbox/sandbox_i.h"
#include "fs/slot/slot.h"

static int options_copy(const struct fs_sandboxes_options *opts, struct fs_sandboxes *all,
			struct err *err)
{
	all->store = opts->store;
	all->meta = opts->meta;
	all->helper = opts->helper;
	all->slots = opts->slots;
	all->large = opts->large;
	all->tap_one = opts->tap_one;
	all->tap_two = opts->tap_two;
	all->dirs = opts->dirs;
	all->opens = opts->opens;
	all->events = opts->events;
	all->learn = opts->learn;
	all->in_userns = opts->in_userns;
	all->no_mounts = opts->no_mounts;
	all->uppers = opts->uppers;
	all->serve_always = opts->serve_always;
	all->durable = cas_store_durability(opts->store) == CAS_DURABILITY_FULL;
	all->base = strdup(opts->base);
	all->traced = opts->traced ? strdup(opts->traced) : NULL;
	if (all->base == NULL || (opts->traced && all->traced == NULL))
		return err_set(err, -ENOMEM, "no memory for sandboxes");
	return fs_boot_id(&all->boot_id, err);
}

static int open_dir(struct fs_sandboxes *all, struct err *err)
{
	int store_fd = cas_store_dir_fd(all->store);
	struct stat st;

	if (mkdirat(store_fd, "sandboxes", 0700) < 0 && errno != EEXIST)
		return err_set(err, -errno, "cannot make %s/sandboxes: %m",
			       cas_store_path(all->store));
	all->dir_fd = openat(store_fd, "sandboxes", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (all->dir_fd < 0 || fstat(all->dir_fd, &st) < 0)
		return err_set(err, -errno, "cannot open %s/sandboxes: %m",
			       cas_store_path(all->store));
	all->give = geteuid() == 0 && st.st_uid != 0;
	all->uid = st.st_uid;
	all->gid = st.st_gid;
	return 0;
}

/* One name of STORE/sandboxes: a sandbox, a leftover of a crash, or something broken. */
static int read_one(struct fs_sandboxes *all, const char *name, struct fs_sandbox **out)
{
	struct fs_sandbox *sb = NULL;
	struct err err = {0};
	auto_close int fd = -1;
	int ret;

	if (fs_sandbox_id_check(name, NULL) < 0)
		return 0;
	fd = fs_sandbox_open_dir(all, name, &err);
	ret = fd < 0 ? fd : 0;
	sb = ret == 0 ? calloc(1, sizeof(*sb)) : NULL;
	if (sb == NULL) {
		ret = ret < 0 ? ret : -ENOMEM;
	} else {
		sb->dir_fd = -1;
		ret = fs_record_read(fd, &sb->rec, &err);
	}
	if (sb && ret == -ENOENT) {
		/* Its creation was not answered, so nobody knows of it. */
		log_info("sandbox %s: made incompletely before a crash, removed", name);
		(void)fs_reaper_take(all, name, -1, 0, NULL, NULL);
	} else if (ret == 0 && strcmp(sb->rec.id, name) != 0) {
		ret = err_set(&err, -EUCLEAN, "the record is that of %s", sb->rec.id);
	}
	if (ret == 0)
		ret = fs_outputs_parse((const char *const *)sb->rec.given, sb->rec.nr_given,
				       &sb->outputs, &err);
	if (ret < 0 && ret != -ENOENT)
		log_error("sandbox %s: left alone: %s", name, err_text(&err, ret));
	if (ret < 0) {
		fs_sandbox_free(sb);
		return ret == -ENOMEM ? ret : 0;
	}
	*out = sb;
	return 1;
}

static int by_creation(const void *a, const void *b)
{
	const struct fs_sandbox *x = *(struct fs_sandbox *const *)a;
	const struct fs_sandbox *y = *(struct fs_sandbox *const *)b;

	if (x->rec.created_ns != y->rec.created_ns)
		return x->rec.created_ns < y->rec.created_ns ? -1 : 1;
	return strcmp(x->rec.id, y->rec.id);
}

static int read_records(struct fs_sandboxes *all, struct fs_sandbox ***out, size_t *nr,
			struct err *err)
{
	auto_close int fd = openat(all->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_closedir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct fs_sandbox **found = NULL;
	struct dirent *de;
	int ret = 0;

	*nr = 0;
	if (dir == NULL)
		return err_set(err, -errno, "cannot list %s/sandboxes: %m",
			       cas_store_path(all->store));
	(void)steal_fd(&fd);
	while (ret >= 0 && (errno = 0, de = readdir(dir)) != NULL) {
		struct fs_sandbox **grown = realloc(found, (*nr + 1) * sizeof(*found));

		ret = grown ? 0 : -ENOMEM;
		found = grown ? grown : found;
		if (ret == 0)
			ret = read_one(all, de->d_name, &found[*nr]);
		*nr += ret > 0;
	}
	/* A list cut short would leave live sandboxes without their mounts. */
	if (ret >= 0 && errno != 0)
		ret = -errno;
	if (*nr > 1)
		qsort(found, *nr, sizeof(*found), by_creation);
	*out = found;
	return ret < 0 ? err_set(err, ret, "cannot list the sandboxes of %s: %s",
				 cas_store_path(all->store), strerrordesc_np(-ret))
		       : 0;
}

static int enter_all(struct fs_sandboxes *all, struct err *err)
{
	struct fs_sandbox **found = NULL;
	size_t nr = 0;
	int ret = read_records(all, &found, &nr, err);

	for (size_t i = 0; i < nr; i++) {
		if (ret < 0) {
			fs_sandbox_free(found[i]);
			continue;
		}
		(void)fs_sandbox_enter(all, found[i]);
		fs_sandbox_unclaim(all, found[i]);
	}
	free(found);
	return ret;
}

/* Declared outputs in layers that are mounted, of sandboxes that are not finished yet. */
static enum fs_early_wish wish_locked(struct fs_sandbox *sb, size_t n, const char *below)
{
	const struct fs_plan *plan = &sb->rec.plan;
	char path[2 * PATH_MAX];

	if (sb->rec.state != FS_SANDBOX_LIVE || n >= plan->nr_layers ||
	    plan->layers[n].kind == FS_LAYER_SERVED || sb->rec.allowance.keeper != FS_KEEPER_NONE)
		return FS_EARLY_NOTHING;
	(void)snprintf(path, sizeof(path), "%s%s%s", plan->layers[n].path,
		       plan->layers[n].path[0] ? "/" : "", below);
	for (size_t i = 0; i < sb->outputs.nr; i++) {
		if (fs_path_within(path, sb->outputs.out[i].path))
			return sb->rec.cgroup ? FS_EARLY_HASH : FS_EARLY_PUT;
	}
	return FS_EARLY_NOTHING;
}

static enum fs_early_wish wish(void *ctx, const char *id, size_t layer, const char *path)
{
	struct fs_sandboxes *all = ctx;
	enum fs_early_wish w = FS_EARLY_NOTHING;
	struct fs_sandbox *sb;

	lock_take(&all->lock);
	HASH_FIND_STR(all->by_id, id, sb);
	if (sb)
		w = wish_locked(sb, layer, path);
	lock_drop(&all->lock);
	return w;
}

/* What is finished is captured no more. */
static bool is_due(void *ctx, const char *id)
{
	struct fs_sandboxes *all = ctx;
	struct fs_sandbox *sb;
	bool due;

	lock_take(&all->lock);
	HASH_FIND_STR(all->by_id, id, sb);
	due = sb && (sb->rec.state == FS_SANDBOX_LIVE || sb->rec.state == FS_SANDBOX_FINISHING);
	lock_drop(&all->lock);
	return due;
}

void fs_sandboxes_count_early(struct fs_sandboxes *all, struct fs_early_counts *out)
{
	fs_early_count(all->early, out);
}

static int start_early(struct fs_sandboxes *all, struct fs_probes *probes, struct err *err)
{
	const struct fs_early_options opts = {
		.store = all->store,
		.dir_fd = all->dir_fd,
		.probes = probes,
		.wish = wish,
		.is_due = is_due,
		.ctx = all,
	};
	int ret = fs_early_new(&opts, &all->early);

	return ret < 0 ? err_set(err, ret, "no memory to hash outputs early") : 0;
}

int fs_sandboxes_open(const struct fs_sandboxes_options *opts, struct fs_sandboxes **out,
		      struct err *err)
{
	struct fs_sandboxes *all = calloc(1, sizeof(*all));
	int ret;

	if (all == NULL)
		return err_set(err, -ENOMEM, "no memory for sandboxes");
	all->dir_fd = -1;
	lock_init(&all->lock, LOCK_RANK_SANDBOX, "fs_sandboxes.lock");
	lock_cond_init(&all->idle);
	ret = options_copy(opts, all, err);
	if (ret == 0)
		ret = open_dir(all, err);
	if (ret == 0)
		ret = fs_syncer_new(all->store, &all->syncer, err);
	if (ret == 0)
		ret = fs_crew_new(&all->crew, err);
	if (ret == 0 && fs_meters_new(&all->meters) < 0)
		ret = err_set(err, -ENOMEM, "no memory for sandboxes");
	if (ret == 0)
		ret = fs_reaper_start(all, err);
	if (ret == 0)
		ret = enter_all(all, err);
	if (ret == 0)
		ret = start_early(all, opts->probes, err);
	if (ret < 0) {
		fs_sandboxes_close(all);
		return ret;
	}
	*out = all;
	return 0;
}

/* Not @for_good: its record stays as it is, and the next start tries again. */
static void mark_lost(struct fs_sandboxes *all, struct fs_sandbox *sb, bool for_good,
		      const char *why)
{
	struct err err = {0};

	log_error("sandbox %s: lost%s: %s", sb->rec.id,
		  for_good ? "" : " until the daemon is started again", why);
	fs_sandbox_set_state(all, sb, FS_SANDBOX_LOST);
	fs_sandbox_hide(all, sb, false);
	if (!for_good)
		return;
	if (fs_sandbox_save(all, sb, &err) < 0)
		log_error("%s", err.msg);
	fs_sandbox_history(all, sb, "lost");
}

/* With room again, or more descriptors, the next start finds everything in its place. */
static bool is_passing(int code)
{
	return code == -ENOSPC || code == -EDQUOT || code == -ENOMEM || code == -EMFILE ||
	       code == -ENFILE;
}

/* A sandbox that was live or in the middle of finish: as it was, with its outputs. */
static int restore_live(struct fs_sandboxes *all, struct fs_sandbox *sb, int dir_fd,
			struct err *err)
{
	bool same_boot = strcmp(sb->rec.boot_id, all->boot_id) == 0;
	struct fs_derived *view = NULL;
	int ret;

	if (sb->rec.cgroup && fs_cgroup_kill(sb->rec.cgroup, err) < 0)
		log_warn("sandbox %s: %s", sb->rec.id, err->msg);
	if (!same_boot && sb->rec.plan.nr_layers > 0)
		return err_set(err, -ESTALE, "the machine was booted since it was made");
	ret = fs_land_undo(dir_fd, err);
	if (ret == 0)
		ret = fs_journal_undo(all->store, dir_fd, err);
	if (ret == 0)
		ret = fs_sandbox_plan(all, sb, err);
	if (ret == 0)
		ret = fs_sandbox_derive(all, sb, &view, err);
	if (ret == 0)
		ret = fs_sandbox_show_view(all, sb, view, err);
	if (ret < 0) {
		fs_derived_free(view);
		return ret;
	}
	if (all->slots)
		fs_slots_push(all->slots);
	ret = fs_layers_mount(all, sb, dir_fd, true, err);
	if (ret == 0)
		ret = fs_allowance_restore(all, sb, dir_fd, err);
	if (ret == 0 && sb->rec.state == FS_SANDBOX_FINISHING) {
		fs_sandbox_set_state(all, sb, FS_SANDBOX_LIVE);
		ret = fs_sandbox_save(all, sb, err);
	}
	return ret;
}

/* Whoever made it as a part of its conversation learned that this broke, and is gone. */
static int drop_attached(struct fs_sandboxes *all, struct fs_sandbox *sb, struct err *err)
{
	int ret = 0;

	if (sb->rec.cgroup)
		ret = fs_cgroup_kill(sb->rec.cgroup, err);
	/* Its mounts in another namespace may live on: nothing of it is used again. */
	sb->leftover = true;
	if (ret == 0)
		ret = fs_sandbox_drop_files(all, sb, err);
	if (ret == 0) {
		fs_sandbox_drop(all, sb);
		log_info("sandbox %s: its run ended with the daemon before, removed", sb->rec.id);
	}
	return ret;
}

static void restore_one(struct fs_sandboxes *all, struct fs_sandbox *sb)
{
	struct err err = {0};
	int dir_fd = fs_sandbox_dir(all, sb, &err);
	int ret = dir_fd < 0 ? dir_fd : 0;

	switch (sb->rec.state) {
	case FS_SANDBOX_FINISHED:
		if (ret == 0 && fs_land(all->store, dir_fd, &err) < 0)
			log_error("sandbox %s: %s", sb->rec.id, err.msg);
		fs_sandbox_hide(all, sb, true);
		break;
	case FS_SANDBOX_LIVE:
	case FS_SANDBOX_FINISHING:
		if (ret == 0)
			ret = restore_live(all, sb, dir_fd, &err);
		if (ret < 0)
			mark_lost(all, sb, !is_passing(ret), err_text(&err, ret));
		break;
	case FS_SANDBOX_CREATING:
	case FS_SANDBOX_LOST:
		break;
	}
	fs_sandbox_dir_settle(all, sb);
	if (ret == 0 && (sb->visible || sb->lazy))
		fs_sandbox_tell_added(all, sb);
}

/* The ids as they are now; the table may change while each is restored. */
static char **ids_copy(struct fs_sandboxes *all, size_t *nr)
{
	struct fs_sandbox *sb;
	char **ids;

	*nr = 0;
	lock_take(&all->lock);
	ids = calloc(HASH_COUNT(all->by_id) + 1, sizeof(*ids));
	DL_FOREACH (all->in_order, sb) {
		if (ids && (ids[*nr] = strdup(sb->rec.id)) != NULL)
			(*nr)++;
	}
	lock_drop(&all->lock);
	return ids;
}

int fs_sandboxes_restore(struct fs_sandboxes *all, struct err *err)
{
	size_t nr;
	char **ids = ids_copy(all, &nr);

	if (ids == NULL)
		return err_set(err, -ENOMEM, "no memory to restore sandboxes");
	for (size_t i = 0; i < nr; i++) {
		struct fs_sandbox *sb;
		struct err why = {0};

		if (fs_sandbox_claim(all, ids[i], &sb, NULL) == 0) {
			/* Created since the start: not ours to restore. */
			if (sb->rec.attached && !sb->visible && drop_attached(all, sb, &why) < 0)
				log_error("sandbox %s: %s", ids[i], why.msg);
			else if (!sb->rec.attached && !sb->visible)
				restore_one(all, sb);
			fs_sandbox_unclaim(all, sb);
		}
		free(ids[i]);
	}
	free(ids);
	return 0;
}

/* Layers go while names still resolve, and without the lock that resolving them takes. */
static void unmount_all(struct fs_sandboxes *all)
{
	size_t nr;
	char **ids = ids_copy(all, &nr);

	for (size_t i = 0; ids && i < nr; i++) {
		struct fs_sandbox *sb;

		if (fs_sandbox_claim(all, ids[i], &sb, NULL) == 0) {
			fs_layers_unmount(all, sb);
			fs_sandbox_trace_keep(all, sb, -1, false);
			fs_sandbox_unclaim(all, sb);
		}
		free(ids[i]);
	}
	free(ids);
}

/* Nobody else uses the table any more. */
static NO_LOCK_CHECK void free_all(struct fs_sandboxes *all)
{
	struct fs_sandbox *sb;
	struct fs_sandbox *tmp;

	HASH_ITER (hh, all->by_id, sb, tmp) {
		if (sb->view)
			fs_derived_release(sb->view, all->meta);
		HASH_DEL(all->by_id, sb);
		fs_meter_free(all->meters, sb->meter);
		fs_sandbox_free(sb);
	}
}

void fs_sandboxes_close(struct fs_sandboxes *all)
{
	if (all == NULL)
		return;
	fs_early_free(all->early);
	fs_reaper_stop(all);
	fs_syncer_free(all->syncer);
	fs_crew_free(all->crew);
	unmount_all(all);
	free_all(all);
	fs_meters_free(all->meters);
	if (all->dir_fd >= 0)
		(void)close(all->dir_fd);
	(void)pthread_cond_destroy(&all->idle);
	lock_fini(&all->lock);
	free(all->boot_id);
	free(all->base);
	free(all->traced);
	free(all);
}
