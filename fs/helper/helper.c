/* fs/helper/helper.c - the daemon's side of the mount helper */
#include "fs/helper/helper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/lock.h"
#include "cas/base/log.h"
#include "fs/helper/helper_i.h"

/*
 * Callers queue by ticket: the lock is held for a moment only, never while the helper
 * works, so that it can be a leaf. Whoever has the turn owns all fields below `turn`.
 *
 * A helper that misses its deadline may sit in an uninterruptible sleep on one of our
 * mounts. It gets SIGKILL and is left to die when it can: `dying` remembers it to be
 * reaped later, and the next call spawns another one.
 */

#define CALL_TIMEOUT_MS 20000
#define END_TIMEOUT_MS	1000
#define CANCEL_MS	100
#define NR_DYING	16

struct fs_helper {
	char *program;
	struct lock lock;
	pthread_cond_t turn;
	uint64_t next_ticket GUARDED_BY(lock);
	uint64_t now_serving GUARDED_BY(lock);

	/* Owned by the holder of the turn. */
	int sock;	/* -1: no helper runs */
	int aside_sock; /* these and pid are valid while sock is */
	int bell;
	pid_t pid;
	cpu_set_t cpus; /* where it may run; none: nobody has said */
	uint64_t seq;
	int nr_dying;
	pid_t dying[NR_DYING];
};

static void turn_take(struct fs_helper *h)
{
	uint64_t ticket;

	lock_take(&h->lock);
	ticket = h->next_ticket++;
	while (h->now_serving != ticket)
		(void)lock_wait(&h->lock, &h->turn, 0);
	lock_drop(&h->lock);
}

static void turn_drop(struct fs_helper *h)
{
	lock_take(&h->lock);
	h->now_serving++;
	(void)pthread_cond_broadcast(&h->turn);
	lock_drop(&h->lock);
}

static void reap_dying(struct fs_helper *h)
{
	int kept = 0;

	for (int i = 0; i < h->nr_dying; i++) {
		if (waitpid(h->dying[i], NULL, WNOHANG) == 0)
			h->dying[kept++] = h->dying[i];
	}
	h->nr_dying = kept;
}

static void ends_close(struct fs_helper *h)
{
	(void)close(steal_fd(&h->sock));
	(void)close(steal_fd(&h->aside_sock));
	(void)close(steal_fd(&h->bell));
}

/* Kill the helper without waiting for it. */
static void helper_abandon(struct fs_helper *h)
{
	if (h->sock < 0)
		return;
	ends_close(h);
	(void)kill(h->pid, SIGKILL);
	reap_dying(h);
	if (waitpid(h->pid, NULL, WNOHANG) != 0)
		return;
	if (h->nr_dying < NR_DYING)
		h->dying[h->nr_dying++] = h->pid;
	else
		log_warn("mount helper: process %d cannot be remembered", (int)h->pid);
}

static int spawn_attr_init(posix_spawnattr_t *attr)
{
	sigset_t none;
	sigset_t all;
	int code = posix_spawnattr_init(attr);

	if (code != 0)
		return -code;
	(void)sigemptyset(&none);
	(void)sigfillset(&all);
	code = posix_spawnattr_setsigmask(attr, &none);
	if (code == 0)
		code = posix_spawnattr_setsigdefault(attr, &all);
	/* A session of its own: the terminal's Ctrl-C is the daemon's business. */
	if (code == 0)
		code = posix_spawnattr_setflags(
			attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
	if (code != 0)
		(void)posix_spawnattr_destroy(attr);
	return -code;
}

/* Nothing but these reaches the helper: no FUSE descriptor, no terminal, no lock. */
static int spawn_actions_init(posix_spawn_file_actions_t *actions, const int fds[HELPER_NR_FDS])
{
	int code = posix_spawn_file_actions_init(actions);

	if (code != 0)
		return -code;
	for (int i = 0; code == 0 && i < HELPER_NR_FDS; i++)
		code = posix_spawn_file_actions_adddup2(actions, fds[i], HELPER_FD + i);
	for (int fd = 0; code == 0 && fd < HELPER_FD; fd++)
		code = posix_spawn_file_actions_addopen(actions, fd, "/dev/null", O_RDWR, 0);
	if (code == 0)
		code = posix_spawn_file_actions_addclosefrom_np(actions, HELPER_FD + HELPER_NR_FDS);
	if (code != 0)
		(void)posix_spawn_file_actions_destroy(actions);
	return -code;
}

static int helper_exec(struct fs_helper *h, const int fds[HELPER_NR_FDS], pid_t *pid)
{
	char arg[] = HELPER_ARG;
	char name[] = "casbox";
	char *argv[] = {name, arg, NULL};
	posix_spawnattr_t attr;
	posix_spawn_file_actions_t actions;
	int ret = spawn_attr_init(&attr);

	if (ret < 0)
		return ret;
	ret = spawn_actions_init(&actions, fds);
	if (ret == 0) {
		ret = -posix_spawn(pid, h->program, &actions, &attr, argv, environ);
		(void)posix_spawn_file_actions_destroy(&actions);
	}
	(void)posix_spawnattr_destroy(&attr);
	return ret;
}

static int socket_pair(int *ours, int *theirs)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	*ours = pair[0];
	*theirs = pair[1];
	return 0;
}

/* Clear of the numbers that the file actions overwrite before the dup. */
static int move_up(int *fd)
{
	int up = fcntl(*fd, F_DUPFD_CLOEXEC, HELPER_FD + HELPER_NR_FDS);

	if (up < 0)
		return -errno;
	(void)close(*fd);
	*fd = up;
	return 0;
}

static int helper_spawn(struct fs_helper *h, struct err *err)
{
	auto_close int theirs = -1;
	auto_close int theirs_aside = -1;
	auto_close int ours = -1;
	auto_close int ours_aside = -1;
	auto_close int bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int ret = bell < 0 ? -errno : 0;

	reap_dying(h);
	if (ret == 0)
		ret = socket_pair(&ours, &theirs);
	if (ret == 0)
		ret = socket_pair(&ours_aside, &theirs_aside);
	if (ret < 0)
		return err_set(err, ret, "cannot make sockets for the mount helper: %s",
			       strerrordesc_np(-ret));
	ret = move_up(&theirs);
	if (ret == 0)
		ret = move_up(&theirs_aside);
	if (ret == 0)
		ret = move_up(&bell);
	if (ret == 0)
		ret = helper_exec(h, (const int[]){theirs, theirs_aside, bell}, &h->pid);
	if (ret < 0)
		return err_set(err, ret, "cannot start the mount helper %s: %s", h->program,
			       strerrordesc_np(-ret));
	CPU_ZERO(&h->cpus);
	h->sock = steal_fd(&ours);
	h->aside_sock = steal_fd(&ours_aside);
	h->bell = steal_fd(&bell);
	return 0;
}

/* What to do while the helper works, once. */
struct meanwhile {
	void (*fn)(void *ctx); /* NULL: nothing, or no more */
	void *ctx;
};

/* A request as it is put together. */
struct message {
	struct helper_request req;
	int fds[HELPER_MAX_FDS];
	int nr_fds;
};

/* @aside: the caller does not wait. */
static int send_request(struct fs_helper *h, struct message *m, bool aside)
{
	const uint64_t one = 1;
	union {
		char bytes[CMSG_SPACE(HELPER_MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = {.iov_base = &m->req,
			    .iov_len = offsetof(struct helper_request, text) + m->req.text_len};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	m->req.seq = ++h->seq;
	if (m->nr_fds > 0) {
		size_t len = (size_t)m->nr_fds * sizeof(int);
		struct cmsghdr *c;

		memset(&control, 0, CMSG_SPACE(len));
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(len);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(len);
		memcpy(CMSG_DATA(c), m->fds, len);
	}
	while (sendmsg(aside ? h->aside_sock : h->sock, &msg, MSG_NOSIGNAL) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return aside && write(h->bell, &one, sizeof(one)) < 0 ? -errno : 0;
}

static bool is_canceled(const _Atomic bool *cancel)
{
	return cancel && atomic_load(cancel);
}

static int wait_reply(struct fs_helper *h, struct helper_reply *reply, int timeout_ms,
		      const _Atomic bool *cancel)
{
	unsigned long long end = lock_now_ns() + (unsigned long long)timeout_ms * 1000000ULL;

	for (;;) {
		struct pollfd p = {.fd = h->sock, .events = POLLIN};
		unsigned long long now = lock_now_ns();
		int left = now >= end ? 0 : (int)((end - now) / 1000000ULL) + 1;
		int ready = poll(&p, 1, cancel && left > CANCEL_MS ? CANCEL_MS : left);
		ssize_t got;

		if (ready < 0 && errno != EINTR)
			return -errno;
		if (ready == 0 && is_canceled(cancel))
			return -ECANCELED;
		if (ready == 0 && left == 0)
			return -ETIMEDOUT;
		if (ready <= 0)
			continue;
		reply->msg[0] = '\0';
		got = recv(h->sock, reply, sizeof(*reply), 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if ((size_t)got < offsetof(struct helper_reply, msg) || reply->seq != h->seq)
			return -EPIPE;
		reply->msg[sizeof(reply->msg) - 1] = '\0';
		return 0;
	}
}

/*
 * It runs where its caller may: one of the crew keeps off the processor of whoever it helps, and
 * there the kernel may let the helper wait until that one is done.
 */
static void go_along(struct fs_helper *h)
{
	cpu_set_t ours;

	if (sched_getaffinity(0, sizeof(ours), &ours) < 0 || CPU_EQUAL(&ours, &h->cpus))
		return;
	if (sched_setaffinity(h->pid, sizeof(ours), &ours) == 0)
		h->cpus = ours;
}

/* One exchange; a helper found dead before it took the request is replaced once. */
static int exchange(struct fs_helper *h, struct message *m, int timeout_ms,
		    const _Atomic bool *cancel, struct meanwhile *meanwhile,
		    struct helper_reply *reply, struct err *err)
{
	int ret = 0;

	for (int attempt = 0; attempt < 2; attempt++) {
		if (h->sock < 0)
			ret = helper_spawn(h, err);
		if (ret < 0)
			return ret;
		go_along(h);
		ret = send_request(h, m, meanwhile && meanwhile->fn);
		if (ret == 0)
			break;
		helper_abandon(h);
	}
	if (ret == 0 && meanwhile && meanwhile->fn)
		steal_ptr (&meanwhile->fn)(meanwhile->ctx);
	if (ret == 0)
		ret = wait_reply(h, reply, timeout_ms, cancel);
	if (ret < 0) {
		helper_abandon(h);
		return err_set(err, ret, "the mount helper did not answer about %s/%s: %s",
			       m->req.text, m->req.text + m->req.steps[0].target,
			       strerrordesc_np(-ret));
	}
	return 0;
}

static int call(struct fs_helper *h, struct message *m, int timeout_ms, const _Atomic bool *cancel,
		struct meanwhile *meanwhile, struct helper_reply *reply, struct err *err)
{
	int ret;

	turn_take(h);
	ret = exchange(h, m, timeout_ms, cancel, meanwhile, reply, err);
	turn_drop(h);
	return ret;
}

/* -ENAMETOOLONG: it would not go into one message. */
static int add_text(struct message *m, const char *text)
{
	size_t len = strlen(text) + 1;

	if (len > PATH_MAX || m->req.text_len + len > sizeof(m->req.text))
		return -ENAMETOOLONG;
	memcpy(m->req.text + m->req.text_len, text, len);
	m->req.text_len += (uint32_t)len;
	return 0;
}

static int begin_message(struct message *m, const char *base, bool go_on, struct err *err)
{
	memset(&m->req, 0, offsetof(struct helper_request, text));
	m->req.go_on = go_on;
	m->nr_fds = 0;
	if (add_text(m, base) < 0)
		return err_set(err, -ENAMETOOLONG, "path too long for the mount helper: %.200s",
			       base);
	return 0;
}

static int add_step(struct message *m, enum helper_op op, uint32_t flags, const char *target,
		    const int *fds, int nr_fds)
{
	struct helper_step step = {.op = op, .flags = flags, .target = m->req.text_len};
	int ret = add_text(m, target);

	if (ret < 0)
		return ret;
	m->req.steps[m->req.nr++] = step;
	for (int i = 0; i < nr_fds; i++)
		m->fds[m->nr_fds++] = fds[i];
	return 0;
}

static int add_source_step(struct message *m, const struct fs_helper_step *s, enum helper_op op,
			   uint32_t flags)
{
	uint32_t source = m->req.text_len;
	int ret = add_text(m, s->source);

	if (ret == 0)
		ret = add_step(m, op, flags, s->target, NULL, 0);
	if (ret == 0)
		m->req.steps[m->req.nr - 1].source = source;
	else
		m->req.text_len = source;
	return ret;
}

static int add_dirs_step(struct message *m, const struct fs_helper_step *s, uint32_t flags)
{
	uint32_t source = m->req.text_len;
	int ret = 0;

	for (size_t at = 0; ret == 0 && at < s->source_len; at += strlen(s->source + at) + 1)
		ret = add_text(m, s->source + at);
	if (ret == 0)
		ret = add_text(m, "");
	if (ret == 0)
		ret = add_step(m, HELPER_WATCH_DIRS, flags, s->target, s->fd, 1);
	if (ret == 0)
		m->req.steps[m->req.nr - 1].source = source;
	else
		m->req.text_len = source;
	return ret;
}

static int add_public_step(struct message *m, const struct fs_helper_step *s)
{
	uint32_t flags = s->may ? HELPER_FLAG_MAY : 0;

	switch (s->op) {
	case FS_HELPER_BIND:
		return add_step(m, HELPER_BIND, flags, s->target, s->fd, 1);
	case FS_HELPER_BIND_FILE:
		return add_source_step(m, s, HELPER_FILE, flags);
	case FS_HELPER_OVERLAY:
		flags |= s->in_userns ? HELPER_FLAG_USERNS : 0;
		return add_step(m, HELPER_OVERLAY, flags, s->target, s->fd, 2);
	case FS_HELPER_BIND_SELF:
		flags |= s->writable ? HELPER_FLAG_WRITE : 0;
		return add_step(m, HELPER_SELF, flags, s->target, NULL, 0);
	case FS_HELPER_UNMOUNT:
		flags |= s->detach ? HELPER_FLAG_DETACH : 0;
		return add_step(m, HELPER_UNMOUNT, flags, s->target, NULL, 0);
	case FS_HELPER_DETACH:
		return add_step(m, HELPER_DETACH, 0, s->target, NULL, 0);
	case FS_HELPER_LIST:
		return add_step(m, HELPER_LIST, 0, s->target, NULL, 0);
	case FS_HELPER_LOOK:
		return add_step(m, HELPER_LOOK, 0, s->target, NULL, 0);
	case FS_HELPER_IDLE:
		return add_step(m, HELPER_IDLE, 0, s->target, NULL, 0);
	case FS_HELPER_WATCH:
		return add_step(m, HELPER_WATCH, flags, s->target, s->fd, 1);
	case FS_HELPER_WATCH_DIRS:
		return add_dirs_step(m, s, flags);
	case FS_HELPER_AWAY:
		return add_source_step(m, s, HELPER_AWAY, flags);
	case FS_HELPER_VISIT:
		return add_step(m, HELPER_VISIT, flags, s->target, NULL, 0);
	}
	return -EINVAL;
}

/* Put as many of @steps into the message as it holds. */
static void add_steps(struct message *m, const struct fs_helper_step *steps, size_t nr)
{
	for (size_t i = 0; i < nr && i < HELPER_MAX_STEPS; i++) {
		if (add_public_step(m, &steps[i]) < 0)
			return;
		m->req.steps[i].key = steps[i].key;
		if (steps[i].if_clean)
			m->req.steps[i].flags |= HELPER_FLAG_CLEAN;
	}
}

/*
 * Send as many of @steps as one message holds: that many, or the negative that all got.
 * Those before them are @done.
 */
static int run_some(struct fs_helper *h, struct message *m, const char *base,
		    struct fs_helper_step *steps, size_t nr, size_t done, bool go_on,
		    struct meanwhile *meanwhile, struct err *err)
{
	struct helper_reply reply;
	int failed = 0;
	int ret = begin_message(m, base, go_on, err);

	for (size_t i = 1; i <= done; i++)
		m->req.unclean |= steps[-(ptrdiff_t)i].code != 0;
	if (ret == 0)
		add_steps(m, steps, nr);
	if (ret == 0 && m->req.nr == 0)
		ret = err_set(err, -ENAMETOOLONG, "path too long for the mount helper: %.200s",
			      steps[0].target);
	if (ret == 0)
		ret = call(h, m, CALL_TIMEOUT_MS, NULL, meanwhile, &reply, err);
	if (ret < 0) {
		for (size_t i = 0; i < (m->req.nr ? m->req.nr : 1); i++)
			steps[i].code = ret;
		return ret;
	}
	for (size_t i = 0; i < m->req.nr; i++) {
		steps[i].code = reply.code[i];
		steps[i].key = reply.key[i];
		if (failed == 0 && !steps[i].may)
			failed = steps[i].code < 0 ? steps[i].code : 0;
	}
	return failed < 0 ? err_set(err, failed, "%s", reply.msg) : (int)m->req.nr;
}

int fs_helper_run(struct fs_helper *helper, const char *base, struct fs_helper_step *steps,
		  size_t nr, bool go_on, struct err *err)
{
	return fs_helper_run_while(helper, base, steps, nr, go_on, NULL, NULL, err);
}

int fs_helper_run_while(struct fs_helper *helper, const char *base, struct fs_helper_step *steps,
			size_t nr, bool go_on, void (*fn)(void *ctx), void *ctx, struct err *err)
{
	struct meanwhile meanwhile = {fn, ctx};
	auto_free struct message *m = malloc(sizeof(*m));
	struct err later = {0};
	size_t done = 0;
	int first = 0;

	for (size_t i = 0; i < nr; i++)
		steps[i].code = -ECANCELED;
	if (m == NULL)
		return err_set(err, -ENOMEM, "no memory to ask the mount helper");
	while (done < nr) {
		int ret = run_some(helper, m, base, steps + done, nr - done, done, go_on,
				   &meanwhile, first ? &later : err);

		if (ret < 0 && first == 0)
			first = ret;
		if (ret < 0 && !go_on)
			break;
		done += m->req.nr ? m->req.nr : 1;
	}
	return first;
}

int fs_helper_new(const char *program, struct fs_helper **out, struct err *err)
{
	struct fs_helper *h = calloc(1, sizeof(*h));
	int ret;

	if (h == NULL)
		return err_set(err, -ENOMEM, "no memory for the mount helper");
	h->sock = h->aside_sock = h->bell = -1;
	lock_init(&h->lock, LOCK_RANK_LEAF, "fs_helper.lock");
	lock_cond_init(&h->turn);
	h->program = strdup(program ? program : "/proc/self/exe");
	ret = h->program ? helper_spawn(h, err) : -ENOMEM;
	if (ret < 0) {
		fs_helper_free(h);
		return ret;
	}
	*out = h;
	return 0;
}

pid_t fs_helper_pid(struct fs_helper *h)
{
	pid_t pid;

	turn_take(h);
	pid = h->sock >= 0 ? h->pid : 0;
	turn_drop(h);
	return pid;
}

/* Give the helpers, the last and those killed before, a moment to end. */
static void helpers_wait(struct fs_helper *h)
{
	const struct timespec pause = {.tv_nsec = 2000000L};

	for (int left = END_TIMEOUT_MS / 2; h->nr_dying > 0 && left > 0; left--) {
		reap_dying(h);
		if (h->nr_dying > 0)
			(void)nanosleep(&pause, NULL);
	}
}

void fs_helper_free(struct fs_helper *h)
{
	if (h == NULL)
		return;
	if (h->sock >= 0) {
		/* The end of the socket ends it; nobody has to kill it as a rule. */
		ends_close(h);
		reap_dying(h);
		if (h->nr_dying < NR_DYING)
			h->dying[h->nr_dying++] = h->pid;
	}
	helpers_wait(h);
	for (int i = 0; i < h->nr_dying; i++)
		(void)kill(h->dying[i], SIGKILL);
	reap_dying(h);
	(void)pthread_cond_destroy(&h->turn);
	lock_fini(&h->lock);
	free(h->program);
	free(h);
}

/* A request that is about a path of its own. */
static int call_path(struct fs_helper *h, enum helper_op op, const char *path, const int *fds,
		     int nr_fds, int timeout_ms, const _Atomic bool *cancel, struct err *err)
{
	auto_free struct message *m = malloc(sizeof(*m));
	struct helper_reply reply;
	int ret = m ? begin_message(m, path, false, err) : -ENOMEM;

	if (ret == 0)
		ret = add_step(m, op, 0, "", fds, nr_fds);
	if (ret == 0)
		ret = call(h, m, timeout_ms, cancel, NULL, &reply, err);
	if (ret < 0)
		return ret;
	return reply.code[0] < 0 ? err_set(err, reply.code[0], "%s", reply.msg) : reply.code[0];
}

int fs_helper_attach(struct fs_helper *helper, int mount_fd, const char *path, struct err *err)
{
	return call_path(helper, HELPER_ATTACH, path, &mount_fd, 1, CALL_TIMEOUT_MS, NULL, err);
}

int fs_helper_ping(struct fs_helper *helper, const char *path, int timeout_ms, struct err *err)
{
	return fs_helper_ping_unless(helper, path, timeout_ms, NULL, err);
}

int fs_helper_ping_unless(struct fs_helper *helper, const char *path, int timeout_ms,
			  const _Atomic bool *cancel, struct err *err)
{
	return call_path(helper, HELPER_PING, path, NULL, 0, timeout_ms, cancel, err);
}

static int run_one(struct fs_helper *h, const char *base, struct fs_helper_step *step,
		   struct err *err)
{
	int ret = fs_helper_run(h, base, step, 1, false, err);

	return ret < 0 ? ret : step->code;
}

int fs_helper_bind(struct fs_helper *helper, int source_fd, const char *base, const char *target,
		   struct err *err)
{
	struct fs_helper_step step = {
		.op = FS_HELPER_BIND, .target = target, .fd = {source_fd, -1}};

	return run_one(helper, base, &step, err);
}

int fs_helper_overlay(struct fs_helper *helper, int upper_fd, int work_fd, const char *base,
		      const char *target, bool in_userns, struct err *err)
{
	struct fs_helper_step step = {.op = FS_HELPER_OVERLAY,
				      .target = target,
				      .fd = {upper_fd, work_fd},
				      .in_userns = in_userns};

	return run_one(helper, base, &step, err);
}

int fs_helper_unmount(struct fs_helper *helper, const char *base, const char *target, bool detach,
		      struct err *err)
{
	struct fs_helper_step step = {.op = FS_HELPER_UNMOUNT, .target = target, .detach = detach};

	return run_one(helper, base, &step, err);
}
