/* tools/run/tee.c - pass a stream on unchanged, and keep it as a blob */
#include "tools/run/tee.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cas/cas.h"

#define TEE_CHUNK 65536
#define TEE_DRAIN (1 << 20) /* bytes a pipe can hold at most for a plain user */

struct tee {
	pthread_t thread;
	int from_fd;
	int to_fd;   /* borrowed; -1 once nobody reads it */
	int stop_fd; /* eventfd: pass on what is there, then end */
	int done_fd; /* eventfd: the thread has ended */
	struct cas_put *put;
	int ret;  /* of the put; the thread's until done_fd */
	bool cut; /* the same: not all was read */
	struct err err;
};

/* Write all; waits where the descriptor is non-blocking. */
static int pass_on(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t done = write(fd, data, len);

		if (done >= 0) {
			data += done;
			len -= (size_t)done;
		} else if (errno == EAGAIN) {
			struct pollfd p = {.fd = fd, .events = POLLOUT};

			(void)poll(&p, 1, -1);
		} else if (errno != EINTR) {
			return -errno;
		}
	}
	return 0;
}

/* 1: there is something to read (or the end of it). 0: told to stop and nothing there. */
static int wait_readable(const struct tee *tee, bool *stopping)
{
	for (;;) {
		struct pollfd p[2] = {{tee->from_fd, POLLIN, 0}, {tee->stop_fd, POLLIN, 0}};
		int nr = poll(p, *stopping ? 1 : 2, *stopping ? 0 : -1);

		if (nr < 0 && errno == EINTR)
			continue;
		if (p[0].revents)
			return 1;
		if (*stopping || nr < 0)
			return 0;
		*stopping = true;
	}
}

static void *tee_thread(void *arg)
{
	struct tee *tee = arg;
	char data[TEE_CHUNK];
	size_t drained = 0;
	bool stopping = false;
	uint64_t one = 1;

	while (drained < TEE_DRAIN && wait_readable(tee, &stopping)) {
		ssize_t got = read(tee->from_fd, data, sizeof(data));

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		if (stopping)
			drained += (size_t)got;
		if (tee->ret == 0)
			tee->ret = cas_put_write(tee->put, data, (size_t)got, &tee->err);
		/* Whoever read our output is gone: let the command notice, as without us. */
		tee->cut = pass_on(tee->to_fd, data, (size_t)got) < 0;
		if (tee->cut)
			break;
	}
	(void)close(steal_fd(&tee->from_fd));
	(void)!write(tee->done_fd, &one, sizeof(one));
	return NULL;
}

static void tee_free(struct tee *tee)
{
	if (!tee)
		return;
	cas_put_free(tee->put);
	if (tee->from_fd >= 0)
		(void)close(tee->from_fd);
	if (tee->stop_fd >= 0)
		(void)close(tee->stop_fd);
	if (tee->done_fd >= 0)
		(void)close(tee->done_fd);
	free(tee);
}

static int start_thread(struct tee *tee)
{
	sigset_t all, old;
	int ret;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_BLOCK, &all, &old);
	ret = pthread_create(&tee->thread, NULL, tee_thread, tee);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -ret;
}

int tee_begin(struct cas_store *store, int to_fd, struct tee **out, int *write_fd, struct err *err)
{
	struct tee *tee = calloc(1, sizeof(*tee));
	int fds[2] = {-1, -1};
	int ret;

	if (!tee)
		return err_set(err, -ENOMEM, "out of memory");
	tee->to_fd = to_fd;
	tee->from_fd = -1;
	tee->stop_fd = eventfd(0, EFD_CLOEXEC);
	tee->done_fd = eventfd(0, EFD_CLOEXEC);
	if (tee->stop_fd < 0 || tee->done_fd < 0 || pipe2(fds, O_CLOEXEC)) {
		ret = err_set(err, -errno, "cannot make a pipe: %s", strerror(errno));
		tee_free(tee);
		return ret;
	}
	tee->from_fd = fds[0];
	ret = cas_put_new(store, &tee->put, err);
	if (ret == 0) {
		ret = start_thread(tee);
		if (ret)
			(void)err_set(err, ret, "cannot start a thread: %s", strerror(-ret));
	}
	if (ret) {
		(void)close(fds[1]);
		tee_free(tee);
		return ret;
	}
	*write_fd = fds[1];
	*out = tee;
	return 0;
}

int tee_end(struct tee *tee, int cancel_fd, struct cas_digest *out, bool *cut, struct err *err)
{
	uint64_t one = 1;
	int ret;

	if (!tee)
		return 0;
	(void)!write(tee->stop_fd, &one, sizeof(one));
	for (;;) {
		struct pollfd p[2] = {{tee->done_fd, POLLIN, 0}, {cancel_fd, POLLIN, 0}};

		if (poll(p, 2, -1) < 0)
			continue;
		if (p[0].revents)
			break;
		/* The thread sits in a write that may never end: it keeps @tee. */
		return err_set(err, -EINTR, "interrupted while passing the output on");
	}
	(void)pthread_join(tee->thread, NULL);
	if (tee->cut)
		*cut = true;
	ret = tee->ret;
	if (ret)
		(void)err_set(err, ret, "cannot store the command's output: %s",
			      err_text(&tee->err, ret));
	else
		ret = cas_put_publish(tee->put, NULL, out, err);
	tee_free(tee);
	return ret;
}
