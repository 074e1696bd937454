/* tools/cmd/client.c - speak to a mount through its control file */
#include "tools/cmd/client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/cli.h"
#include "tools/daemon.h"

#define ANSWER_MAX (256 << 20)
/*
 * Opening touches no data: whoever does not answer that in 15 s is told of by name, long
 * before the daemon's own watchdog (fs/serve/serve.c) gives the mount up.
 */
#define OPEN_MS 15000

struct client {
	char *mountpoint;
	int fd;
	int cancel_fd;
	pid_t hidden_in; /* 0: the mount is in our own namespace */
	bool broken;	 /* a call was given up: its thread may still use the descriptor */
};

/*
 * One touch of the mount, shared by the thread that makes it and the one that waits.
 * Whoever comes second frees it: @refs counts the two.
 */
struct call {
	_Atomic int refs;
	int done_fd; /* eventfd: written when ret and answer are final */
	char *path;  /* to open, or NULL: use fd */
	int fd;
	bool own_fd; /* the waiter left: close it */
	int ret;
	struct buf line;
	struct buf answer;
};

static void call_unref(struct call *call)
{
	if (atomic_fetch_sub(&call->refs, 1) != 1)
		return;
	if (call->own_fd && call->fd >= 0)
		(void)close(call->fd);
	(void)close(call->done_fd);
	free(call->path);
	buf_fini(&call->line);
	buf_fini(&call->answer);
	free(call);
}

static int read_answer(int fd, struct buf *out)
{
	for (;;) {
		ssize_t got;
		int ret = buf_reserve(out, 65536);

		if (ret)
			return ret;
		do {
			got = read(fd, out->data + out->len, 65535);
		} while (got < 0 && errno == EINTR);
		if (got < 0)
			return -errno;
		if (got == 0)
			return out->len ? 0 : -EPROTO;
		out->len += (size_t)got;
		out->data[out->len] = '\0';
		if (out->data[out->len - 1] == '\n')
			return 0;
		if (out->len > ANSWER_MAX)
			return -EFBIG;
	}
}

/* A command is one write: the daemon takes it whole. */
static int write_line(int fd, const struct buf *line)
{
	ssize_t done;

	do {
		done = write(fd, line->data, line->len);
	} while (done < 0 && errno == EINTR);
	if (done < 0)
		return -errno;
	return (size_t)done == line->len ? 0 : -EMSGSIZE;
}

static void *call_thread(void *arg)
{
	struct call *call = arg;
	uint64_t one = 1;
	int ret = 0;

	if (call->path) {
		call->fd = open(call->path, O_RDWR | O_CLOEXEC);
		ret = call->fd < 0 ? -errno : 0;
	} else {
		ret = write_line(call->fd, &call->line);
		if (ret == 0)
			ret = read_answer(call->fd, &call->answer);
	}
	call->ret = ret;
	(void)!write(call->done_fd, &one, sizeof(one));
	call_unref(call);
	return NULL;
}

static int call_start(struct call *call)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	int ret;

	atomic_store(&call->refs, 2);
	(void)pthread_attr_init(&attr);
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	(void)pthread_attr_setstacksize(&attr, 256 * 1024);
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_BLOCK, &all, &old);
	ret = pthread_create(&thread, &attr, call_thread, call);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&attr);
	if (ret)
		atomic_store(&call->refs, 1);
	return -ret;
}

/* 0 when the call is done, -ETIMEDOUT, or -EINTR when cancelled. */
static int call_wait(const struct call *call, int cancel_fd, int deadline_ms)
{
	unsigned long long end = lock_now_ns() + (unsigned long long)deadline_ms * 1000000;
	struct pollfd p[2] = {{call->done_fd, POLLIN, 0}, {cancel_fd, POLLIN, 0}};

	for (;;) {
		unsigned long long now = lock_now_ns();
		int left = -1;
		int nr;

		if (deadline_ms > 0)
			left = now < end ? (int)((end - now) / 1000000) + 1 : 0;
		nr = poll(p, 2, left);
		if (nr > 0 && p[0].revents) {
			uint64_t done;

			/* Not only polled: reading is what orders our reads after the thread's
			 * writes. */
			(void)!read(call->done_fd, &done, sizeof(done));
			return 0;
		}
		if (nr > 0)
			return -EINTR;
		if (nr == 0 && deadline_ms > 0)
			return -ETIMEDOUT;
		if (nr < 0 && errno != EINTR)
			return -errno;
	}
}

static int call_new(struct call **out)
{
	struct call *call = calloc(1, sizeof(*call));

	if (!call)
		return -ENOMEM;
	atomic_store(&call->refs, 1);
	call->fd = -1;
	call->done_fd = eventfd(0, EFD_CLOEXEC);
	if (call->done_fd < 0) {
		int ret = -errno;

		free(call);
		return ret;
	}
	*out = call;
	return 0;
}

/* Run @call; the descriptor is its own when the wait was given up. */
static int call_run(struct call *call, int cancel_fd, int deadline_ms)
{
	int ret = call_start(call);

	if (ret == 0)
		ret = call_wait(call, cancel_fd, deadline_ms);
	return ret;
}

static int open_error(const char *mountpoint, int ret, struct err *err)
{
	switch (-ret) {
	case ENOENT:
	case ENOTDIR:
		return err_set(err, ret, "no casbox is mounted at %s", mountpoint);
	case ENOTCONN:
	case ECONNABORTED:
		return err_set(err, -ENOTCONN,
			       "the daemon of %s is dead; 'casbox mount' or 'casbox umount' there "
			       "cleans up",
			       mountpoint);
	case EACCES:
	case EPERM:
		return err_set(err, -EACCES, "the mount at %s belongs to another user", mountpoint);
	case ETIMEDOUT:
		return err_set(err, ret,
			       "the mount at %s does not answer: its daemon is stopped or stuck; "
			       "'casbox umount --force' ends it",
			       mountpoint);
	case EINTR:
		return err_set(err, ret, "interrupted");
	default:
		return err_set(err, ret, "cannot open the control file of %s: %s", mountpoint,
			       strerror(-ret));
	}
}

int client_open(const char *mountpoint, int cancel_fd, struct client **out, struct err *err)
{
	struct client *client = calloc(1, sizeof(*client));
	struct call *call = NULL;
	int ret = client ? call_new(&call) : -ENOMEM;

	if (ret == 0 && asprintf(&call->path, "%s/.casbox/control", mountpoint) < 0) {
		call->path = NULL;
		ret = -ENOMEM;
	}
	if (ret == 0) {
		call->own_fd = true;
		ret = call_run(call, cancel_fd, OPEN_MS);
	}
	if (ret == 0)
		ret = call->ret;
	if (ret == 0) {
		client->mountpoint = strdup(mountpoint);
		ret = client->mountpoint ? 0 : -ENOMEM;
	}
	if (ret == 0) {
		client->fd = steal_fd(&call->fd);
		client->cancel_fd = cancel_fd;
		*out = client;
	} else {
		free(client);
	}
	if (call)
		call_unref(call);
	return ret ? open_error(mountpoint, ret, err) : 0;
}

void client_close(struct client *client)
{
	if (!client)
		return;
	/* A broken call's thread owns the descriptor. */
	if (!client->broken)
		(void)close(client->fd);
	free(client->mountpoint);
	free(client);
}

static bool is_plain(const char *word)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789-_=/.,:+@%";

	return *word && word[strspn(word, plain)] == '\0';
}

int client_quote(struct buf *line, const char *word)
{
	int ret;

	if (is_plain(word))
		return buf_append_str(line, word);
	ret = buf_append_char(line, '\'');
	for (; *word && ret == 0; word++)
		ret = *word == '\'' ? buf_append_str(line, "'\\''") : buf_append_char(line, *word);
	return ret ? ret : buf_append_char(line, '\'');
}

/* What no line of words can hold goes as an object. */
static int make_object(struct buf *line, const char *const *words, size_t nr, struct err *err)
{
	json_t *list = json_array();
	json_t *object = json_pack("{s:o}", "words", list);
	char *text = NULL;
	int ret = object ? 0 : -ENOMEM;

	for (size_t i = 0; ret == 0 && i < nr; i++)
		if (json_array_append_new(list, json_string(words[i])) < 0)
			ret = err_set(err, -EINVAL,
				      "a control command cannot hold a newline and "
				      "what is not UTF-8 at once");
	if (ret == 0)
		text = json_dumps(object, JSON_COMPACT);
	json_decref(object);
	if (ret < 0)
		return ret;
	ret = text ? buf_printf(line, "%s\n", text) : -ENOMEM;
	free(text);
	return ret ? err_set(err, ret, "out of memory") : 0;
}

static int make_line(struct buf *line, const char *const *words, size_t nr, struct err *err)
{
	int ret = 0;

	for (size_t i = 0; i < nr; i++)
		if (strchr(words[i], '\n'))
			return make_object(line, words, nr, err);
	for (size_t i = 0; i < nr && ret == 0; i++) {
		if (i > 0)
			ret = buf_append_char(line, ' ');
		if (ret == 0)
			ret = client_quote(line, words[i]);
	}
	if (ret == 0)
		ret = buf_append_char(line, '\n');
	return ret ? err_set(err, ret, "out of memory") : 0;
}

static int parse_answer(const struct client *client, const struct buf *text, json_t **answer,
			struct err *err)
{
	json_error_t why;
	json_t *value = json_loadb(text->data, text->len, 0, &why);

	if (!json_is_object(value)) {
		json_decref(value);
		return err_set(err, -EPROTO, "the daemon of %s answered with no JSON object",
			       client->mountpoint);
	}
	*answer = value;
	return 0;
}

static int call_error(const struct client *client, const char *command, int ret, struct err *err)
{
	if (ret == -ENOTCONN || ret == -ECONNABORTED || ret == -ENODEV)
		return err_set(err, -ENOTCONN, "the daemon of %s died during '%s'",
			       client->mountpoint, command);
	if (ret == -ETIMEDOUT)
		return err_set(err, ret, "the daemon of %s did not answer '%s' in time",
			       client->mountpoint, command);
	if (ret == -EINTR)
		return err_set(err, ret, "interrupted during '%s'", command);
	return err_set(err, ret, "cannot send '%s' to %s: %s", command, client->mountpoint,
		       strerror(-ret));
}

int client_call(struct client *client, const char *const *words, size_t nr, int deadline_ms,
		json_t **answer, struct err *err)
{
	struct call *call = NULL;
	int ret;

	if (client->broken)
		return err_set(err, -ENOTCONN, "the connection to %s was given up",
			       client->mountpoint);
	ret = call_new(&call);
	if (ret)
		return err_set(err, ret, "out of memory");
	call->fd = client->fd;
	ret = make_line(&call->line, words, nr, err);
	if (ret) {
		call_unref(call);
		return ret;
	}
	ret = call_run(call, client->cancel_fd, deadline_ms);
	if (ret == -ETIMEDOUT || ret == -EINTR) {
		client->broken = true;
		call->own_fd = true;
	} else if (ret == 0) {
		ret = call->ret;
	}
	if (ret)
		ret = call_error(client, words[0], ret, err);
	else
		ret = parse_answer(client, &call->answer, answer, err);
	call_unref(call);
	return ret;
}

/* The number behind "ENOENT"; EIO for a word that is none. */
static int code_of(const char *name)
{
	for (int code = 1; code < 256; code++) {
		if (strcmp(err_name(code), name) == 0)
			return code;
	}
	return EIO;
}

int client_check(const json_t *answer, struct err *err)
{
	const char *text = client_text(answer, "error");
	int code;

	if (json_is_true(json_object_get(answer, "ok")))
		return 0;
	code = code_of(client_text(answer, "errno"));
	return err_set(err, -code, "%s", *text ? text : strerror(code));
}

int client_ask(struct client *client, const char *const *words, size_t nr, int deadline_ms,
	       json_t **answer, struct err *err)
{
	json_t *got = NULL;
	int ret = client_call(client, words, nr, deadline_ms, &got, err);

	if (ret == 0)
		ret = client_check(got, err);
	if (ret == 0 && answer)
		*answer = json_incref(got);
	json_decref(got);
	return ret;
}

int client_open_daemon(const struct daemon *daemon, int cancel_fd, struct client **out,
		       struct err *err)
{
	auto_free char *path = NULL;
	int ret;

	if (daemon->stopped)
		return err_set(err, -ETIMEDOUT,
			       "the daemon of %s (pid %d) is stopped; 'kill -CONT %d' wakes it",
			       daemon->mountpoint, (int)daemon->pid, (int)daemon->pid);
	path = daemon_see(daemon, daemon->mountpoint);
	if (!path)
		return err_set(err, -ENOMEM, "out of memory");
	ret = client_open(path, cancel_fd, out, err);
	if (ret == 0)
		(*out)->hidden_in = daemon->hidden;
	return ret;
}

pid_t client_hidden_in(const struct client *client)
{
	return client->hidden_in;
}

int client_find(struct cli *cli, const char *mount, struct client **out, struct err *err)
{
	struct daemon daemon = {0};
	int ret;

	if (mount)
		return client_open(mount, -1, out, err);
	ret = daemon_find(cli->store, &daemon, err);
	if (ret == 0)
		ret = err_set(err, -ENOENT,
			      "no mount serves the store %s; 'casbox mount MNT' starts one",
			      cli->store);
	if (ret == 1)
		ret = client_open_daemon(&daemon, -1, out, err);
	daemon_fini(&daemon);
	return ret;
}

const char *client_text(const json_t *answer, const char *key)
{
	const char *text = json_string_value(json_object_get(answer, key));

	return text ? text : "";
}
