/* fs/helper/helper_guard.c - let a killed daemon die that waits for itself */
#include "fs/helper/helper_guard.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/io.h"
#include "cas/base/mountinfo.h"
#include "fs/mount/mountfd.h"

#define PERIOD_S   1
#define NR_BASES   4
#define STACK_SZ   (256 << 10)
#define TIMES_SEEN 2 /* gone in part, in a row: a process that ends takes its moment */

struct fs_guard {
	pid_t daemon;
	/* Of the thread that notes; devices are 0 until known, and read by the watching one. */
	char bases[NR_BASES][PATH_MAX];
	unsigned nr_bases;
	_Atomic uint64_t devs[NR_BASES];
};

static dev_t mounted_at(const char *path)
{
	struct mountinfo mounts = {0};
	struct mountinfo_entry e;
	dev_t dev = 0;

	if (mountinfo_read_self(&mounts) < 0)
		return 0;
	/* Of several at one place the last is on top. */
	while (mountinfo_next(&mounts, &e)) {
		if (strcmp(e.path, path) == 0 && strcmp(e.type, FS_MOUNT_TYPE) == 0)
			dev = e.dev;
	}
	mountinfo_fini(&mounts);
	return dev;
}

void fs_guard_note(struct fs_guard *guard, const char *base, bool again)
{
	unsigned i = 0;

	if (guard == NULL)
		return;
	while (i < guard->nr_bases && strcmp(guard->bases[i], base) != 0)
		i++;
	if (i == NR_BASES || strlen(base) >= PATH_MAX)
		return;
	if (i < guard->nr_bases && (!again || atomic_load(&guard->devs[i]) != 0))
		return;
	if (i == guard->nr_bases) {
		(void)strcpy(guard->bases[i], base);
		guard->nr_bases++;
	}
	atomic_store(&guard->devs[i], mounted_at(base));
}

/* Has its first thread ended while it has others? */
static bool is_half_dead(pid_t daemon)
{
	auto_buf struct buf text = {0};
	char path[64];
	const char *name_end;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)daemon);
	if (io_read_file(AT_FDCWD, path, 4096, &text) < 0)
		return false;
	name_end = strrchr(buf_str(&text), ')');
	return name_end && name_end[1] == ' ' && name_end[2] == 'Z';
}

static void *watch(void *ctx)
{
	struct fs_guard *guard = ctx;
	int seen = 0;

	while (getppid() == guard->daemon && seen < TIMES_SEEN) {
		(void)sleep(PERIOD_S);
		seen = is_half_dead(guard->daemon) ? seen + 1 : 0;
	}
	for (unsigned i = 0; i < NR_BASES && getppid() == guard->daemon; i++) {
		uint64_t dev = atomic_load(&guard->devs[i]);

		if (dev != 0)
			(void)fs_mount_abort((dev_t)dev, NULL);
	}
	return NULL;
}

struct fs_guard *fs_guard_start(void)
{
	struct fs_guard *guard = calloc(1, sizeof(*guard));
	pthread_attr_t attr;
	pthread_t thread;
	sigset_t all;
	sigset_t old;
	int code;

	if (guard == NULL || pthread_attr_init(&attr) != 0) {
		free(guard);
		return NULL;
	}
	guard->daemon = getppid();
	(void)pthread_attr_setstacksize(&attr, STACK_SZ);
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_BLOCK, &all, &old);
	code = pthread_create(&thread, &attr, watch, guard);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&attr);
	if (code != 0)
		free(steal_ptr(&guard));
	return guard;
}
