/* fs/sandbox/reaper.c - remove the files of sandboxes in the background */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "fs/sandbox/sandbox_i.h"

/*
 * What goes is first renamed to .gone-RANDOM, which no id can be, so that it is no
 * sandbox any more whatever happens next; such names are reaped, also at the next start.
 */

#define GONE_PREFIX ".gone-"

static bool stop_wanted(struct fs_sandboxes *all)
{
	bool stop;

	lock_take(&all->reap_lock);
	stop = all->reap_stop;
	lock_drop(&all->reap_lock);
	return stop;
}

static void reap_all(struct fs_sandboxes *all)
{
	int fd = openat(all->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_closedir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *de;

	if (dir == NULL) {
		log_warn("cannot look for removed sandboxes: %m");
		if (fd >= 0)
			(void)close(fd);
		return;
	}
	while (!stop_wanted(all) && (de = readdir(dir)) != NULL) {
		struct err err = {0};
		int ret;

		if (strncmp(de->d_name, GONE_PREFIX, strlen(GONE_PREFIX)) != 0)
			continue;
		ret = io_remove_tree(all->dir_fd, de->d_name, &err);
		if (ret < 0)
			log_warn("cannot remove the files of a sandbox (%s): %s", de->d_name,
				 err_text(&err, ret));
	}
}

static void *reaper_main(void *arg)
{
	struct fs_sandboxes *all = arg;
	bool stop = false;

	while (!stop) {
		lock_take(&all->reap_lock);
		while (!all->reap_wanted && !all->reap_stop)
			(void)lock_wait(&all->reap_lock, &all->reap_wake, 0);
		all->reap_wanted = false;
		stop = all->reap_stop;
		lock_drop(&all->reap_lock);
		if (!stop)
			reap_all(all);
	}
	return NULL;
}

static void reaper_wake(struct fs_sandboxes *all, bool stop)
{
	lock_take(&all->reap_lock);
	all->reap_wanted = true;
	all->reap_stop |= stop;
	(void)pthread_cond_signal(&all->reap_wake);
	lock_drop(&all->reap_lock);
}

int fs_reaper_start(struct fs_sandboxes *all, struct err *err)
{
	sigset_t every;
	sigset_t old;
	int code;

	lock_init(&all->reap_lock, LOCK_RANK_QUEUE, "fs_sandboxes.reap_lock");
	lock_cond_init(&all->reap_wake);
	/* Signals are for the thread that waits for them. */
	(void)sigfillset(&every);
	(void)pthread_sigmask(SIG_SETMASK, &every, &old);
	code = pthread_create(&all->reaper, NULL, reaper_main, all);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (code != 0)
		return err_set(err, -code, "cannot start the thread that removes sandboxes");
	all->reaper_runs = true;
	reaper_wake(all, false);
	return 0;
}

void fs_reaper_stop(struct fs_sandboxes *all)
{
	if (all->reaper_runs) {
		reaper_wake(all, true);
		(void)pthread_join(all->reaper, NULL);
		(void)pthread_cond_destroy(&all->reap_wake);
		lock_fini(&all->reap_lock);
		all->reaper_runs = false;
	}
}

int fs_reaper_take(struct fs_sandboxes *all, const char *id, struct err *err)
{
	char gone[64];
	char rnd[33];
	int ret = io_random_hex(rnd, 16);

	if (ret < 0)
		return err_set(err, ret, "no random bytes");
	(void)snprintf(gone, sizeof(gone), "%s%s", GONE_PREFIX, rnd);
	if (renameat(all->dir_fd, id, all->dir_fd, gone) < 0 && errno != ENOENT)
		return err_set(err, -errno, "cannot remove the files of sandbox %s: %m", id);
	if (all->reaper_runs)
		reaper_wake(all, false);
	return 0;
}
