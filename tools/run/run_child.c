/* tools/run/run_child.c - one command of `run`, from its start to the last of its processes */
#include "tools/run/run_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/run/cgroup.h"
#include "tools/run/limits.h"
#include "tools/run/run_mounts.h"
#include "tools/run/spawn.h"
#include "tools/run/tee.h"

/*
 * The command stays in our process group, so that a terminal's signals reach it without
 * us and job control works. What only we got (kill PID) is passed on; the kernel tells
 * the two apart: a terminal's signals have si_code SI_KERNEL.
 */

#define TERM_GRACE_MS 5000 /* from SIGTERM at the timeout to SIGKILL */
#define KILL_MS	      10000
#define CHILDREN_MAX  (1 << 20)

static const int fatal_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, 0};
static const int other_signals[] = {SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT, SIGTSTP, 0};

/* The signals of @list that are not ignored. */
static sigset_t wanted(const int *list)
{
	struct sigaction act;
	sigset_t set;

	(void)sigemptyset(&set);
	for (; *list; list++) {
		if (sigaction(*list, NULL, &act) == 0 && act.sa_handler != SIG_IGN)
			(void)sigaddset(&set, *list);
	}
	return set;
}

int run_signals_init(struct run_signals *signals, struct err *err)
{
	sigset_t fatal = wanted(fatal_signals);
	sigset_t other = wanted(other_signals);

	(void)pthread_sigmask(SIG_BLOCK, &fatal, &signals->inherited);
	(void)pthread_sigmask(SIG_BLOCK, &other, NULL);
	signals->fatal_fd = signalfd(-1, &fatal, SFD_CLOEXEC | SFD_NONBLOCK);
	signals->other_fd = signalfd(-1, &other, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals->fatal_fd < 0 || signals->other_fd < 0)
		return err_set(err, -errno, "cannot watch signals: %s", strerror(errno));
	return 0;
}

bool run_signals_pending(const struct run_signals *signals)
{
	struct pollfd p = {.fd = signals->fatal_fd, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

int run_signals_take(const struct run_signals *signals)
{
	struct signalfd_siginfo info;

	if (read(signals->fatal_fd, &info, sizeof(info)) != sizeof(info))
		return 0;
	return (int)info.ssi_signo;
}

struct running {
	const struct run_child_options *opts;
	const struct run_signals *signals;
	struct spawn_child child;
	unsigned long long term_ns; /* when to send SIGTERM; 0: never */
	unsigned long long kill_ns; /* when to send SIGKILL; 0: not yet decided */
	bool timed_out;
	int namespace_fd; /* a process of the namespaces to join; 0: none */
};

/* The children of @pid, space separated; "" when that is not to be had. */
static void list_children(pid_t pid, struct buf *out)
{
	char path[64];

	buf_reset(out);
	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	if (io_read_file(AT_FDCWD, path, CHILDREN_MAX, out))
		buf_reset(out);
}

/* To the children of the only child of @child, an init that takes no signals itself. */
static bool send_below_init(pid_t child, int signum)
{
	auto_buf struct buf text = {0};
	char *save = NULL;
	bool sent = false;

	list_children(child, &text);
	list_children((pid_t)strtol(buf_str(&text), NULL, 10), &text);
	if (text.len == 0)
		return false;
	for (char *w = strtok_r(text.data, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		pid_t pid = (pid_t)strtol(w, NULL, 10);

		if (pid > 1)
			sent |= kill(pid, signum) == 0;
	}
	return sent;
}

static void send_child(const struct running *r, int signum)
{
	if (r->opts->in_init && signum != SIGKILL && send_below_init(r->child.pid, signum))
		return;
	(void)syscall(SYS_pidfd_send_signal, r->child.pidfd, signum, NULL, 0);
}

static void pass_signals(struct running *r, int fd)
{
	struct signalfd_siginfo info;

	while (read(fd, &info, sizeof(info)) == sizeof(info)) {
		int signum = (int)info.ssi_signo;

		if (info.ssi_code != SI_KERNEL)
			send_child(r, signum);
		/* Stopped by the terminal or by us, the command stands still: so do we. */
		if (signum == SIGTSTP)
			(void)kill(getpid(), SIGSTOP);
		if (signum == SIGCONT)
			send_child(r, SIGCONT);
	}
}

static int time_left(const struct running *r, unsigned long long now)
{
	unsigned long long end = r->kill_ns ? r->kill_ns : r->term_ns;

	if (end == 0)
		return -1;
	return end > now ? (int)((end - now) / 1000000) + 1 : 0;
}

static void keep_time(struct running *r, unsigned long long now)
{
	if (r->kill_ns && now >= r->kill_ns) {
		send_child(r, SIGKILL);
		r->kill_ns = now + KILL_MS * 1000000ULL;
	} else if (r->term_ns && !r->kill_ns && now >= r->term_ns) {
		r->timed_out = true;
		send_child(r, SIGTERM);
		send_child(r, SIGCONT);
		r->kill_ns = now + TERM_GRACE_MS * 1000000ULL;
	}
}

/* Until the command itself has ended. */
static void supervise(struct running *r)
{
	for (;;) {
		struct pollfd p[3] = {{r->child.pidfd, POLLIN, 0},
				      {r->signals->fatal_fd, POLLIN, 0},
				      {r->signals->other_fd, POLLIN, 0}};
		int nr = poll(p, 3, time_left(r, lock_now_ns()));

		if (nr > 0 && p[0].revents)
			return;
		if (nr > 0) {
			pass_signals(r, r->signals->fatal_fd);
			pass_signals(r, r->signals->other_fd);
		}
		keep_time(r, lock_now_ns());
	}
}

static int64_t realtime_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* As a shell puts it. */
static int exit_status(const siginfo_t *info)
{
	return info->si_code == CLD_EXITED ? info->si_status : 128 + info->si_status;
}

static int kill_rest(const struct run_child_options *opts, struct err *err)
{
	int ret = 0;

	if (opts->cgroup_fd >= 0) {
		struct cgroup group = {(char *)(uintptr_t)opts->cgroup, opts->cgroup_fd};

		ret = cgroup_kill(&group, KILL_MS, err);
	}
	/* Without a group; and what left it, by asking a service manager for instance, is ours. */
	if (ret == 0 && cgroup_kill_children(KILL_MS))
		ret = err_set(err, -ETIMEDOUT,
			      "processes of the command did not end within %d s of SIGKILL",
			      KILL_MS / 1000);
	return ret;
}

static int hold_namespace(struct running *r, struct err *err)
{
	if (r->opts->hidden_in == 0)
		return 0;
	r->namespace_fd = (int)syscall(SYS_pidfd_open, r->opts->hidden_in, 0);
	return r->namespace_fd < 0 ? err_set(err, -ENOTCONN, "the daemon of the mount is gone: %s",
					     strerror(errno))
				   : 0;
}

static int spawn(struct running *r, const int stdio[3], struct run_child_result *out,
		 struct err *err)
{
	const struct run_child_options *o = r->opts;
	struct spawn_options opts = {
		.argv = o->argv,
		.env = o->env,
		.cwd = o->cwd,
		.stdio = {stdio[0], stdio[1], stdio[2]},
		.keep_fd = o->keep_fd,
		.only_these = o->keep_fd > 0,
		.join_fds = o->limits ? o->limits->join_fds : NULL,
		.resources = o->limits ? o->limits->resources : NULL,
		.rlimits = o->limits ? o->limits->rlimits : NULL,
		.cgroup_fd = o->cgroup_fd,
		.namespace_fd = r->namespace_fd,
		.own_mounts = true,
		.under_quota = o->under_quota,
		.die_with_parent = true,
		.plain_umask = o->same_for_all,
		.sigmask = &r->signals->inherited,
		.default_signals = o->default_signals,
	};
	int ret;

	out->start_ns = realtime_ns();
	ret = spawn_start(&opts, &r->child, &out->exec_failed, err);
	if (ret && !out->exec_failed && opts.cgroup_fd >= 0) {
		/* A group that may be made but not joined: do without. */
		opts.cgroup_fd = -1;
		ret = o->leave_group ? o->leave_group(o->ctx, err) : 0;
		if (ret == 0)
			ret = spawn_start(&opts, &r->child, &out->exec_failed, err);
	}
	if (ret && out->exec_failed)
		out->status = ret == -ENOENT || ret == -ENOTDIR ? 127 : 126;
	return ret;
}

static int live(struct running *r, struct run_child_result *out, struct err *err)
{
	auto_close int mounts_fd = r->opts->top ? run_mounts_hold(r->child.pid) : -1;
	siginfo_t info = {0};
	int ret;

	/* Of one that has ended already nobody can tell. */
	if (r->opts->top && mounts_fd < 0 && mounts_fd != -EINVAL && mounts_fd != -ENOENT)
		log_warn("cannot see what the command mounts: %s", strerror(-mounts_fd));
	if (r->opts->timeout_ms)
		r->term_ns = lock_now_ns() + r->opts->timeout_ms * 1000000;
	supervise(r);
	while (waitid(P_PID, (id_t)r->child.pid, &info, WEXITED) && errno == EINTR)
		continue;
	out->end_ns = realtime_ns();
	out->status = exit_status(&info);
	out->timed_out = r->timed_out;
	(void)close(r->child.pidfd);
	ret = kill_rest(r->opts, err);
	if (r->opts->settle && ret == 0)
		ret = r->opts->settle(r->opts->ctx, err);
	if (mounts_fd >= 0 && ret == 0)
		ret = run_mounts_find(mounts_fd, r->opts->hidden_in, r->opts->top, r->opts->foreign,
				      err);
	return ret;
}

/* Two tees, or none. */
struct streams {
	struct tee *out;
	struct tee *err;
	int stdio[3];
};

static int streams_begin(const struct run_child_options *opts, struct streams *s, struct err *err)
{
	struct cas_store *store = opts->store;
	int ret;

	*s = (struct streams){.stdio = {-1, -1, -1}};
	if (opts->same_for_all) {
		s->stdio[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
		if (s->stdio[0] < 0)
			return err_set(err, -errno, "cannot open /dev/null: %s", strerror(errno));
	}
	if (!store)
		return 0;
	ret = tee_begin(store, STDOUT_FILENO, &s->out, &s->stdio[1], err);
	if (ret == 0)
		ret = tee_begin(store, STDERR_FILENO, &s->err, &s->stdio[2], err);
	return ret;
}

static void streams_started(struct streams *s)
{
	for (int i = 0; i < 3; i++) {
		if (s->stdio[i] >= 0)
			(void)close(steal_fd(&s->stdio[i]));
	}
}

static int streams_end(struct streams *s, int cancel_fd, struct run_child_result *out,
		       struct err *err)
{
	int ret, second;

	if (!s->out && !s->err)
		return 0;
	ret = tee_end(s->out, cancel_fd, &out->stdout_digest, &out->cut, err);
	second = tee_end(s->err, cancel_fd, &out->stderr_digest, &out->cut, ret ? NULL : err);
	out->has_streams = ret == 0 && second == 0;
	return ret ? ret : second;
}

int run_child(const struct run_child_options *opts, const struct run_signals *signals,
	      struct run_child_result *out, struct err *err)
{
	struct running r = {.opts = opts, .signals = signals, .child = {-1, -1}};
	struct streams streams;
	int ret, ended;

	*out = (struct run_child_result){0};
	ret = cgroup_adopt_orphans();
	if (ret)
		return err_set(err, ret, "cannot become the parent of orphans: %s", strerror(-ret));
	ret = streams_begin(opts, &streams, err);
	if (ret == 0)
		ret = hold_namespace(&r, err);
	if (ret == 0)
		ret = spawn(&r, streams.stdio, out, err);
	if (r.namespace_fd > 0)
		(void)close(r.namespace_fd);
	streams_started(&streams);
	if (ret == 0)
		ret = live(&r, out, err);
	ended = streams_end(&streams, signals->fatal_fd, out, ret ? NULL : err);
	return ret ? ret : ended;
}
