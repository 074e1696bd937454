/* fs/sandbox/reaper.c - take away what is left of sandboxes, and prepare for new ones */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/put/tmp_pool.h"
#include "fs/engine/cgroup.h"
#include "fs/sandbox/sandbox_i.h"
#include "fs/slot/pool.h"

/*
 * What goes is first renamed to .gone-RANDOM, which no id can be, so that it is no
 * sandbox any more whatever happens next. One thread then makes it ready for another
 * sandbox, as long as there are not enough of those, or deletes it; what it does not get
 * to, the next start deletes. It also sees to it that a few are ready, and files for what
 * captures put into the store.
 *
 * Nobody waits for it, but it shares locks of the filesystem, and the processors, with
 * those who wait for an answer. So it lets work gather, and whoever brings some does not
 * wake it up as long as it will look by itself.
 */

#define READY_LOW 4 /* below, it hurries */
#define READY_MIN 12
#define READY_MAX 32
#define GOING_FDS 64 /* directories that wait with a descriptor */
#define DOZE_NS	  20000000ULL

static bool has_prefix(const char *name, const char *prefix)
{
	return strncmp(name, prefix, strlen(prefix)) == 0;
}

static void reap_name(struct fs_sandboxes *all, const char *name)
{
	struct err err = {0};
	int ret;

	fs_allowance_clear(all->dir_fd, name);
	ret = io_remove_tree(all->dir_fd, name, &err);

	if (ret < 0)
		log_warn("cannot remove the files of a sandbox (%s): %s", name,
			 err_text(&err, ret));
}

static void going_add(struct fs_sandboxes *all, struct fs_pooled *dir)
{
	int spare_fd = -1;

	lock_take(&all->reap_lock);
	dir->next = all->going;
	all->going = dir;
	/* Too many for all of them to be used again: these are only deleted. */
	if (++all->nr_going > GOING_FDS)
		spare_fd = steal_fd(&dir->dir_fd);
	if (!all->reap_dozing)
		(void)pthread_cond_signal(&all->reap_wake);
	lock_drop(&all->reap_lock);
	if (spare_fd >= 0)
		(void)close(spare_fd);
}

/* What an earlier daemon left, before there is anything of ours. */
static int find_old(struct fs_sandboxes *all, struct err *err)
{
	int fd = openat(all->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_closedir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;

	if (dir == NULL) {
		int code = -errno;

		if (fd >= 0)
			(void)close(fd);
		return err_set(err, code, "cannot look for removed sandboxes: %s",
			       strerrordesc_np(-code));
	}
	while ((de = readdir(dir)) != NULL) {
		struct fs_pooled *old;

		if (!has_prefix(de->d_name, FS_GONE_PREFIX) &&
		    !has_prefix(de->d_name, FS_POOL_PREFIX))
			continue;
		old = calloc(1, sizeof(*old));
		if (old == NULL || strlen(de->d_name) >= sizeof(old->name)) {
			free(old);
			continue;
		}
		(void)stpcpy(old->name, de->d_name);
		old->dir_fd = -1;
		going_add(all, old);
	}
	return 0;
}

static void ready_add(struct fs_sandboxes *all, struct fs_pooled *dir)
{
	lock_take(&all->reap_lock);
	dir->next = all->ready;
	all->ready = dir;
	all->nr_ready++;
	lock_drop(&all->reap_lock);
}

static int pool_make(struct fs_sandboxes *all, struct fs_pooled **out, struct err *err)
{
	int ret = fs_pool_make(all->dir_fd, out, err);

	if (ret == 0)
		fs_sandbox_give(all, all->dir_fd, (*out)->name);
	return ret;
}

static void reap_one(struct fs_sandboxes *all, struct fs_pooled *dir, bool again)
{
	struct err err = {0};

	if (dir->cgroup)
		fs_cgroup_remove(dir->cgroup);
	free(steal_ptr(&dir->cgroup));
	if (again && dir->dir_fd >= 0 && fs_pool_recycle(all->dir_fd, dir, &err) == 0) {
		ready_add(all, dir);
		return;
	}
	reap_name(all, dir->name);
	fs_pooled_free(dir);
}

/* Is there something to do? Not what has failed, unless somebody asks. */
static bool has_work_locked(const struct fs_sandboxes *all, bool failed) REQUIRES(all->reap_lock)
{
	return all->reap_stop || all->going || (!failed && all->nr_ready < READY_MIN);
}

static void doze_locked(struct fs_sandboxes *all) REQUIRES(all->reap_lock)
{
	unsigned long long end = lock_now_ns() + DOZE_NS;

	all->reap_dozing = true;
	while (!all->reap_stop && all->nr_ready >= READY_LOW &&
	       lock_wait(&all->reap_lock, &all->reap_wake, end) == 0)
		;
	all->reap_dozing = false;
}

/*
 * Wait for work. 1: *dir is to go, 0: one more is to be made ready, negative: the end.
 * @failed: the last task failed.
 */
static int next_task(struct fs_sandboxes *all, struct fs_pooled **dir, bool *again, bool failed)
{
	int ret = -ECANCELED;

	lock_take(&all->reap_lock);
	if (!has_work_locked(all, failed))
		doze_locked(all);
	if (!has_work_locked(all, failed)) {
		do
			(void)lock_wait(&all->reap_lock, &all->reap_wake, 0);
		while (!has_work_locked(all, false));
		doze_locked(all);
	}
	if (!all->reap_stop && all->going) {
		*dir = all->going;
		all->going = (*dir)->next;
		all->nr_going--;
		*again = all->nr_ready < READY_MAX;
		ret = 1;
	} else if (!all->reap_stop) {
		ret = 0;
	}
	lock_drop(&all->reap_lock);
	return ret;
}

static void *reaper_main(void *arg)
{
	struct fs_sandboxes *all = arg;
	struct fs_pooled *dir;
	bool failed = false;
	bool again;
	int task;

	while ((task = next_task(all, &dir, &again, failed)) >= 0) {
		/* Before its directory is made anew: an overlay must be gone by then. */
		fs_layers_sweep(all);
		failed = false;
		if (task > 0)
			reap_one(all, dir, again);
		else if (pool_make(all, &dir, NULL) == 0)
			ready_add(all, dir);
		else
			failed = true; /* whoever needs one learns why */
		cas_tmp_pool_fill(all->store);
	}
	return NULL;
}

int fs_reaper_start(struct fs_sandboxes *all, struct err *err)
{
	sigset_t every;
	sigset_t old;
	int code;
	int ret;

	lock_init(&all->reap_lock, LOCK_RANK_QUEUE, "fs_sandboxes.reap_lock");
	lock_cond_init(&all->reap_wake);
	all->reaper_inited = true;
	ret = find_old(all, err);
	if (ret < 0)
		return ret;
	if (cas_tmp_pool_new(all->store) < 0)
		return err_set(err, -ENOMEM, "no memory for sandboxes");
	/* Signals are for the thread that waits for them. */
	(void)sigfillset(&every);
	(void)pthread_sigmask(SIG_SETMASK, &every, &old);
	code = pthread_create(&all->reaper, NULL, reaper_main, all);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (code != 0)
		return err_set(err, -code, "cannot start the thread that removes sandboxes");
	all->reaper_runs = true;
	return 0;
}

/*
 * Nobody else is left. In somebody else's store root leaves nothing for the next start:
 * that may be the owner's, who cannot delete what is root's.
 */
static NO_LOCK_CHECK void drop_all(struct fs_sandboxes *all)
{
	struct fs_pooled *next;

	for (struct fs_pooled *dir = all->ready; dir; dir = next) {
		next = dir->next;
		(void)fs_pool_delete(all->dir_fd, dir, NULL);
	}
	for (struct fs_pooled *dir = all->going; dir; dir = next) {
		next = dir->next;
		if (dir->cgroup)
			fs_cgroup_remove(dir->cgroup);
		if (all->give)
			reap_name(all, dir->name);
		fs_pooled_free(dir);
	}
	all->ready = all->going = NULL;
}

void fs_reaper_stop(struct fs_sandboxes *all)
{
	if (!all->reaper_inited)
		return;
	lock_take(&all->reap_lock);
	all->reap_stop = true;
	(void)pthread_cond_signal(&all->reap_wake);
	lock_drop(&all->reap_lock);
	if (all->reaper_runs)
		(void)pthread_join(all->reaper, NULL);
	fs_layers_sweep(all);
	drop_all(all);
	(void)pthread_cond_destroy(&all->reap_wake);
	lock_fini(&all->reap_lock);
	all->reaper_inited = all->reaper_runs = false;
}

int fs_reaper_prepared(struct fs_sandboxes *all, struct fs_pooled **out, struct err *err)
{
	struct fs_pooled *dir;

	lock_take(&all->reap_lock);
	dir = all->ready;
	if (dir) {
		all->ready = dir->next;
		all->nr_ready--;
		if (all->nr_ready < READY_LOW)
			(void)pthread_cond_signal(&all->reap_wake);
	}
	lock_drop(&all->reap_lock);
	if (dir == NULL)
		return pool_make(all, out, err);
	*out = dir;
	return 0;
}

int fs_reaper_take(struct fs_sandboxes *all, const char *name, int dir_fd, size_t nr_layers,
		   const char *cgroup, struct err *err)
{
	struct fs_pooled *dir = calloc(1, sizeof(*dir));
	int ret = 0;

	if (dir == NULL) {
		if (dir_fd >= 0)
			(void)close(dir_fd);
		return err_set(err, -ENOMEM, "no memory to remove a sandbox");
	}
	dir->dir_fd = dir_fd;
	dir->nr_layers = nr_layers;
	/* Without memory an empty group stays. */
	dir->cgroup = cgroup ? strdup(cgroup) : NULL;
	ret = fs_pool_name(FS_GONE_PREFIX, dir, err);
	if (ret == 0 && renameat(all->dir_fd, name, all->dir_fd, dir->name) < 0)
		ret = errno == ENOENT ? 1
				      : err_set(err, -errno,
						"cannot remove the files of sandbox %s: %m", name);
	if (ret != 0) {
		fs_pooled_free(dir);
		return ret < 0 ? ret : 0;
	}
	going_add(all, dir);
	return 0;
}
