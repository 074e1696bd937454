/* tools/bench/bench_slow.c - a directory shown through the slow filesystem */
#include "tools/bench/bench_slow.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/bench/bench_env.h"

#define MOUNT_TRIES 500

static int await_mount(const char *program, const char *at, struct err *err)
{
	const struct timespec nap = {.tv_nsec = 10000000};
	auto_free char *counts = bench_text("%s/.counts", at);

	for (int i = 0; counts && i < MOUNT_TRIES; i++) {
		if (access(counts, F_OK) == 0)
			return 0;
		(void)nanosleep(&nap, NULL);
	}
	return err_set(err, -ETIMEDOUT, "%s did not mount %s", program, at);
}

int bench_slow_mount(const struct bench_env *env, const char *dir, const char *back, int latency_ms,
		     struct bench_slow *out, struct err *err)
{
	auto_free char *from = bench_text("%s/%s", dir, back);
	auto_free char *at = bench_text("%s/slow", dir);
	auto_free char *us = bench_text("%d", latency_ms * 1000);
	char *argv[] = {
		(char *)(uintptr_t)env->latfs, (char[]){"--mutation-us"}, us, from, at, NULL};
	int ret;

	if (!from || !at || !us)
		return err_set(err, -ENOMEM, "out of memory");
	ret = bench_mkdir(AT_FDCWD, at, err);
	if (ret < 0)
		return ret;
	ret = -posix_spawn(&out->pid, argv[0], NULL, NULL, argv, environ);
	if (ret < 0) {
		out->pid = 0;
		return err_set(err, ret, "starting %s: %s", argv[0], strerror(-ret));
	}
	out->at = steal_ptr(&at);
	return await_mount(argv[0], out->at, err);
}

void bench_slow_unmount(struct bench_slow *slow)
{
	if (slow->pid <= 0)
		return;
	/* It unmounts, unless it died. */
	(void)kill(slow->pid, SIGTERM);
	while (waitpid(slow->pid, NULL, 0) < 0 && errno == EINTR)
		;
	(void)umount2(slow->at, MNT_DETACH);
	free(slow->at);
	*slow = (struct bench_slow){0};
}
