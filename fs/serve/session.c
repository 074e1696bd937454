/* fs/serve/session.c - one FUSE connection with its threads */

/*
 * libfuse parses and formats; the threads are ours, since its own multi-threaded loop
 * starts and ends threads on demand. Nothing wakes a thread that waits in the kernel for
 * a request but the end of the connection or a signal: stop uses the latter, on a
 * handler that does nothing, until the thread has seen `stopping`.
 */
#define FUSE_USE_VERSION 312
#include "fs/serve/session.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "cas/cas.h"
#include "fs/backing/iobuf.h"
#include "fs/backing/passthrough.h"
#include "fs/backing/probe.h"
#include "fs/node/inode.h"
#include "fs/serve/executor.h"
#include "fs/serve/ops.h"
#include "fs/serve/seat.h"

#define WAKE_SIGNAL SIGUSR2
#define MAX_IO	    FS_IOBUF_SZ
/*
 * Reading a file of 12 MB takes as long with 256 KiB as with 1 MiB at a time, a third more with
 * 128; and a fault in a mapped program brings all of it: one of 1.4 MB starts in 1.30 ms, with
 * 1 MiB in 1.52 (Linux 6.18).
 */
#define READAHEAD_KIB	256
#define MAX_BACKGROUND	64
#define SESSION_RUNNERS 2 /* with as many threads more where there are commands */
/* Of reads that wait for a tier, lest the others wait with them. */
#define MAX_AWAITED 4096

static void session_init(void *userdata, struct fuse_conn_info *conn)
{
	struct fs_session *session = userdata;
	unsigned want = FUSE_CAP_ASYNC_READ | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_ASYNC_DIO |
			FUSE_CAP_READDIRPLUS | FUSE_CAP_CACHE_SYMLINKS |
			FUSE_CAP_EXPLICIT_INVAL_DATA;

	/*
	 * Not wanted: AUTO_INVAL_DATA (contents never change), READDIRPLUS_AUTO (it asks
	 * for attributes too late), ATOMIC_O_TRUNC (loses O_TRUNC silently without opens),
	 * locks (the kernel's own suffice), splice, writeback.
	 */
	if (session->opts.no_opens)
		want |= FUSE_CAP_NO_OPEN_SUPPORT | FUSE_CAP_NO_OPENDIR_SUPPORT;
	if (fs_probes_is_off(session->opts.probes, FS_FEATURE_READDIRPLUS))
		want &= ~(unsigned)FUSE_CAP_READDIRPLUS;
	conn->want = want & conn->capable;
	session->caps = conn->want;
	fs_wire_init(&session->wire, conn);
	conn->max_write = MAX_IO;
	conn->max_background = session->opts.awaits ? MAX_AWAITED : MAX_BACKGROUND;
	conn->congestion_threshold = conn->max_background * 3 / 4;
	if (conn->max_readahead > MAX_IO)
		conn->max_readahead = MAX_IO;
}

__attribute__((format(printf, 2, 0))) static void log_from_fuse(enum fuse_log_level level,
								const char *fmt, va_list ap)
{
	char line[512];

	(void)vsnprintf(line, sizeof(line), fmt, ap);
	line[strcspn(line, "\n")] = '\0';
	if (level <= FUSE_LOG_ERR)
		log_error("libfuse: %s", line);
	else
		log_debug("libfuse: %s", line);
}

static void wake_handler(int signal)
{
	(void)signal;
}

static int open_session(struct fs_session *session, int dev_fd, struct err *err)
{
	char *argv[] = {(char *)"casbox", NULL};
	struct fuse_args args = FUSE_ARGS_INIT(1, argv);
	struct fuse_lowlevel_ops ops = {.init = session_init};
	int ret;

	fuse_set_log_func(log_from_fuse);
	fs_ops_name(&ops);
	fs_ops_data(&ops);
	fs_ops_attr(&ops);
	fs_ops_seek(&ops);
	if (session->opts.xattr)
		fs_ops_xattr(&ops);
	fs_ops_upper(&ops);
	session->se = fuse_session_new(&args, &ops, sizeof(ops), session);
	fuse_opt_free_args(&args);
	if (!session->se)
		return err_set(err, -ENOMEM, "libfuse cannot make session %s", session->opts.name);
	/* From here on libfuse owns the descriptor. */
	ret = fs_wire_attach(session->se, dev_fd);
	return ret < 0 ? err_set(err, ret, "libfuse refuses descriptor %d", dev_fd) : 0;
}

int fs_session_new(const struct fs_session_options *opts, struct fs_mount *mount,
		   struct fs_session **out, struct err *err)
{
	auto_close int dev_fd = steal_fd(&mount->dev_fd);
	struct fs_session *session = calloc(1, sizeof(*session));
	int ret;

	if (!session)
		return -ENOMEM;
	session->opts = *opts;
	session->dev = mount->dev;
	session->wire.want_passthrough = opts->passthrough;
	session->wire.want_killpriv = opts->uppers && opts->xattr;
	if (opts->executor)
		session->opts.nr_threads += SESSION_RUNNERS;
	session->threads = calloc((size_t)session->opts.nr_threads + 1, sizeof(*session->threads));
	ret = session->threads ? fs_inode_table_new(opts->root, &session->table) : -ENOMEM;
	if (ret == 0)
		ret = fs_iobufs_new((size_t)session->opts.nr_threads, &session->iobufs);
	if (ret == 0)
		ret = open_session(session, dev_fd, err);
	if (ret < 0) {
		fs_session_free(session);
		return ret;
	}
	(void)steal_fd(&dev_fd);
	*out = session;
	return 0;
}

/* A request, or why there is none, as fuse_session_receive_buf. */
static int receive(struct fs_session *session, enum fs_seat_role role, struct fuse_buf *buf)
{
	int got;

	fs_seat_before(session->seat, role);
	if (role == FS_SEAT_WAITER)
		return fuse_session_receive_buf(session->se, buf);
	(void)atomic_fetch_add(&session->nr_waiting, 1);
	got = fuse_session_receive_buf(session->se, buf);
	(void)atomic_fetch_sub(&session->nr_waiting, 1);
	return got;
}

static void serve(struct fs_session *session, enum fs_seat_role role)
{
	struct fuse_buf buf = {.mem = NULL};

	cas_fetch_never_here(true);
	/* What is made has the mode that the kernel says. */
	if (session->opts.uppers && unshare(CLONE_FS) == 0)
		(void)umask(0);
	while (!atomic_load(&session->stopping)) {
		int got = receive(session, role, &buf);

		if (got == -EINTR || got == -EAGAIN)
			continue;
		if (got <= 0)
			break;
		fuse_session_process_buf(session->se, &buf);
	}
	free(buf.mem);
}

static void *session_thread(void *arg)
{
	struct fs_session *session = arg;

	serve(session, FS_SEAT_STAFF);
	if (!atomic_load(&session->stopping)) {
		atomic_store(&session->gone, true);
		session->opts.ended(session->opts.ctx);
	}
	return NULL;
}

static void *waiter_thread(void *arg)
{
	struct fs_session *session = arg;

	fs_seat_enter(session->seat);
	serve(session, FS_SEAT_WAITER);
	fs_seat_close(session->seat);
	return NULL;
}

/* Whoever finds no other thread waiting stays one that serves: there is always one. */
void fs_session_run(struct fs_session *session, struct fs_job *job)
{
	if (atomic_fetch_add(&session->nr_running, 1) < SESSION_RUNNERS &&
	    !fs_seat_is_taken(session->seat) && atomic_load(&session->nr_waiting) > 0) {
		cas_fetch_never_here(false);
		job->run(job);
		cas_fetch_never_here(true);
	} else {
		fs_executor_submit(session->opts.executor, job);
	}
	(void)atomic_fetch_sub(&session->nr_running, 1);
}

/* INIT, the first request of all, waits since the mount was made. */
static int answer_init(struct fs_session *session, struct err *err)
{
	struct fuse_buf buf = {.mem = NULL};
	int got;

	do {
		got = fuse_session_receive_buf(session->se, &buf);
	} while (got == -EINTR || got == -EAGAIN);
	if (got > 0)
		fuse_session_process_buf(session->se, &buf);
	free(buf.mem);
	if (got <= 0 || !session->wire.answered_init)
		return err_set(err, got < 0 ? got : -EIO,
			       "the kernel does not greet session %s: %s", session->opts.name,
			       got < 0 ? strerror(-got) : "no INIT");
	return 0;
}

static void report_cap(const struct fs_session *session, enum fs_feature feature, unsigned cap)
{
	bool has = (session->caps & cap) == cap;

	fs_probes_set(session->opts.probes, feature, has, has ? NULL : "kernel protocol 7.%u",
		      session->wire.minor);
}

static void make_seat(struct fs_session *session)
{
	const struct fs_seat_options opts = {
		.fd = fuse_session_fd(session->se),
		.name = session->opts.name,
		.heedless = fs_probes_is_off(session->opts.probes, FS_FEATURE_SEAT_HEEDS),
	};
	int ret;

	if (fs_probes_is_off(session->opts.probes, FS_FEATURE_SEAT))
		return;
	ret = fs_seat_new(&opts, &session->seat);
	fs_probes_set(session->opts.probes, FS_FEATURE_SEAT, ret == 0, ret < 0 ? "%s" : NULL,
		      ret == -ENOENT ? "one processor" : strerror(-ret));
}

static int tune(struct fs_session *session)
{
	struct fs_probes *probes = session->opts.probes;
	int ret;

	report_cap(session, FS_FEATURE_READDIRPLUS, FUSE_CAP_READDIRPLUS);
	if (session->opts.no_opens)
		report_cap(session, FS_FEATURE_NO_OPENS,
			   FUSE_CAP_NO_OPEN_SUPPORT | FUSE_CAP_NO_OPENDIR_SUPPORT);
	/* INIT can only make the kernel's default smaller. */
	ret = fs_probes_is_off(probes, FS_FEATURE_READAHEAD)
		      ? 0
		      : fs_mount_set_readahead(session->dev, READAHEAD_KIB);
	fs_probes_set(probes, FS_FEATURE_READAHEAD, ret == 0, ret < 0 ? "%s" : NULL,
		      strerror(-ret));
	make_seat(session);
	if (!session->opts.passthrough)
		return 0;
	return fs_passthrough_new(fuse_session_fd(session->se), session->opts.probe_fd,
				  &session->wire, session->opts.backing, probes,
				  &session->passthrough);
}

static int start_thread(struct fs_session *session, const char *name, void *(*run)(void *),
			struct err *err)
{
	pthread_t *thread = &session->threads[session->nr_started];
	int ret = pthread_create(thread, NULL, run, session);

	if (ret != 0)
		return err_set(err, -ret, "cannot start a thread: %s", strerror(ret));
	(void)pthread_setname_np(*thread, name);
	session->nr_started++;
	return 0;
}

int fs_session_start(struct fs_session *session, struct err *err)
{
	struct sigaction sa = {.sa_handler = wake_handler}; /* no SA_RESTART: read returns */
	char name[16];
	int ret = answer_init(session, err);

	if (ret == 0)
		ret = tune(session);
	if (ret < 0)
		return ret;
	(void)sigaction(WAKE_SIGNAL, &sa, NULL);
	(void)snprintf(name, sizeof(name), "session-%s", session->opts.name);
	for (int i = 0; ret == 0 && i < session->opts.nr_threads; i++)
		ret = start_thread(session, name, session_thread, err);
	if (ret == 0 && session->seat) {
		(void)snprintf(name, sizeof(name), "waiter-%s", session->opts.name);
		ret = start_thread(session, name, waiter_thread, err);
	}
	return ret;
}

void fs_session_stop(struct fs_session *session)
{
	const struct timespec pause = {0, 2 * 1000 * 1000};

	if (!session)
		return;
	atomic_store(&session->stopping, true);
	fs_seat_close(session->seat);
	for (int i = 0; i < session->nr_started; i++) {
		/* Again and again: a signal just before the read is lost. */
		while (pthread_tryjoin_np(session->threads[i], NULL) == EBUSY) {
			(void)pthread_kill(session->threads[i], WAKE_SIGNAL);
			(void)nanosleep(&pause, NULL);
		}
	}
	session->nr_started = 0;
}

void fs_session_free(struct fs_session *session)
{
	if (!session)
		return;
	fs_passthrough_free(session->passthrough);
	fs_seat_free(session->seat);
	session->seat = NULL;
	if (session->se)
		fuse_session_destroy(session->se);
	fs_iobufs_free(session->iobufs);
	fs_inode_table_free(session->table);
	free(session->threads);
	free(session);
}
