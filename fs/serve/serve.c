/* fs/serve/serve.c - the life of a daemon */

/*
 * Up: store and its lock, place, helper (before any thread), index and ledger, sandbox
 * records, session two, session one on it, layers of sandboxes, record, ready.
 * Down, in the other order: no new commands, layers, session one, session two, threads.
 * The main thread only waits: for signals, for somebody who wants an end, for idleness.
 *
 * No thread of this process resolves a path below the mount point once session two is
 * attached: the helper does.
 */
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cas/cas.h"
#include "cas/landing/landing.h"
#include "fs/backing/await.h"
#include "fs/backing/backing.h"
#include "fs/backing/probe.h"
#include "fs/channel/channel.h"
#include "fs/control/control.h"
#include "fs/control/prefetch.h"
#include "fs/control/quota.h"
#include "fs/fs.h"
#include "fs/helper/helper.h"
#include "fs/learn/learn.h"
#include "fs/mount/fusermount.h"
#include "fs/mount/mountfd.h"
#include "fs/mount/place.h"
#include "fs/mount/record.h"
#include "fs/mount/watchdog.h"
#include "fs/mount/way.h"
#include "fs/node/inode.h"
#include "fs/node/invalidate.h"
#include "fs/report/events.h"
#include "fs/report/metrics.h"
#include "fs/report/report.h"
#include "fs/report/teller.h"
#include "fs/sandbox/sandbox.h"
#include "fs/serve/daemon_i.h"
#include "fs/serve/executor.h"
#include "fs/serve/session.h"
#include "fs/serve/upkeep.h"
#include "fs/slot/large.h"
#include "fs/slot/missed.h"
#include "fs/slot/push.h"
#include "fs/slot/slot.h"
#include "fs/trace/dirs.h"
#include "fs/trace/opens.h"
#include "fs/trace/trace.h"
#include "fs/upper/upper.h"
#include "meta/meta.h"

#define DEFAULT_THREADS	    2
#define MAX_THREADS	    64
#define EXECUTOR_THREADS    64
#define PATIENT_THREADS	    16
#define RUNNER_THREADS	    4 /* more that session two has, and those that help to capture */
#define OPENER_THREADS	    8
#define PUSHER_THREADS	    1
#define LEARN_THREADS	    3
#define LANDING_THREADS	    1
#define WATCHDOG_PERIOD_MS  5000  /* with the next, a wedged mount is broken in 65 s: */
#define WATCHDOG_TIMEOUT_MS 60000 /* CLIENT_QUICK_MS of tools/cmd/client.h is longer */
#define STOP_WAIT_MS	    30000 /* for running commands to end */
#define STOP_HURRY_MS	    2000
#define STOP_READ_MS	    1000 /* for the last answers to be read */
#define NS_PER_MS	    1000000ULL

static void on_session_ended(void *ctx)
{
	struct daemon *d = ctx;

	atomic_store(&d->stop, true);
	fs_daemon_wake(d);
}

static void on_wedged(void *ctx)
{
	struct daemon *d = ctx;

	atomic_store(&d->wedged, true);
	atomic_store(&d->hurry, true);
	atomic_store(&d->stop, true);
	fs_daemon_wake(d);
}

static void on_want(void *ctx, uint64_t dir)
{
	struct daemon *d = ctx;
	struct fs_pusher *pusher = atomic_load(&d->pusher);

	if (pusher)
		fs_pusher_want(pusher, dir);
}

/* A traced sandbox shows something else from now on, or nothing. */
static void on_counted(void *ctx, struct fs_box_counts *out)
{
	struct daemon *d = ctx;
	const struct fs_session *one = atomic_load(&d->one);

	out->nr_upcalls = one ? fs_wire_count(&one->wire, &out->upcalls_ns) : 0;
	fs_awaits_count(d->awaits, &out->nr_waits, &out->waited_ns);
}

static void on_traced(void *ctx, const char *id)
{
	struct daemon *d = ctx;
	struct fs_session *two = atomic_load(&d->two);
	struct fs_inode dir;
	int ret = 0;

	if (two && fs_inode_child(two->table, FS_INODE_ROOT, "traced", &dir))
		ret = fs_invalidate_name(two->se, dir.id, id);
	if (ret < 0)
		log_warn("cannot invalidate the traced sandbox %s: %s", id, strerrordesc_np(-ret));
}

static void on_missed(void *ctx, uint64_t dir, const char *name)
{
	struct daemon *d = ctx;
	auto_free char *above = fs_inode_path(d->one->table, dir);
	auto_free char *path = NULL;
	/* Without the sandbox's id. */
	const char *slash = above ? strchr(above, '/') : NULL;

	if (!above || asprintf(&path, "%s%s%s", slash ? slash + 1 : "", slash ? "/" : "", name) < 0)
		path = NULL;
	if (path)
		fs_missed_note(d->missed, path);
}

static void on_read(void *ctx, const struct fs_inode *file, bool waited)
{
	struct daemon *d = ctx;

	fs_learn_read(d->learn, d->one->table, file, waited);
}

static void on_pushed(void *ctx, const struct cas_digest *digest)
{
	struct daemon *d = ctx;

	fs_learn_pushed(d->learn, digest);
}

static int take_signals(struct daemon *d, struct err *err)
{
	sigset_t set;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	(void)sigaddset(&set, SIGINT);
	(void)sigaddset(&set, SIGHUP);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGXFSZ, SIG_IGN);
	d->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (d->signal_fd < 0 || d->wake_fd < 0)
		return err_set(err, -errno, "cannot watch signals: %s", strerror(errno));
	return 0;
}

/* Store, lock, place, and the helper, while the process has one thread. */
static int prepare(struct daemon *d, struct err *err)
{
	const struct fs_options *o = d->opts;
	struct cas_store_options store = {o->store, o->blobs, true,
					  (enum cas_durability)o->durability};
	int ret = cas_store_open(&store, &d->store, err);

	if (ret < 0)
		return ret;
	if (cas_store_is_read_only(d->store))
		return err_set(err, -EROFS, "the store %s cannot be written: it cannot be served",
			       cas_store_path(d->store));
	ret = fs_daemon_lock(d->store, err);
	if (ret == 0)
		ret = fs_detach_dead(o->mountpoint, err);
	if (ret >= 0)
		ret = fs_place_check(o->mountpoint, d->store, o->blobs, &d->mountpoint, err);
	if (ret == 0)
		ret = fs_way_base(d->way, o, d->mountpoint, d->store, &d->base, err);
	if (ret < 0)
		return ret;
	if (asprintf(&d->traced, "%s/traced", d->mountpoint) < 0) {
		d->traced = NULL;
		return -ENOMEM;
	}
	/* Nothing of ours may keep a directory busy that may become part of the mount. */
	if (chdir("/") < 0)
		return err_set(err, -errno, "cannot leave the working directory: %s",
			       strerror(errno));
	return fs_helper_new(o->helper_program, &d->helper, err);
}

static int make_large(struct daemon *d)
{
	const struct fs_large_options opts = {
		.meta = d->meta,
		.probes = d->probes,
		.executor = d->executor,
		.min_size = d->opts->large_min,
		.mountpoint = d->mountpoint,
	};

	return fs_large_new(&opts, &d->large);
}

static int make_metrics(struct daemon *d)
{
	const struct fs_metrics_sources sources = {
		.store = d->store,
		.sandboxes = d->sandboxes,
		.slots = d->slots,
		.backing = d->backing,
		.fetch = d->fetch,
		.prefetches = d->prefetches,
		.learn = d->learn,
		.events = d->events,
		.quota = &d->quota,
		.guard = &d->guard,
		.pusher = &d->pusher,
		.one = &d->one,
		.two = &d->two,
	};

	return fs_metrics_new(&sources, &d->metrics);
}

/* Where nothing can be mounted session one has to serve what actions write. */
static bool serves_layers(const struct daemon *d)
{
	return d->beside || d->opts->engine;
}

/*
 * Whoever may write to everything, as root, may change an input for all who share it: then
 * none is shared. A plain user may not write to inputs, which he is shown as root's.
 */
static int make_uppers(struct daemon *d, struct fs_sandboxes_options *boxes)
{
	const char *forced = d->opts->engine;
	const struct fs_uppers_options opts = {
		.meta = d->meta,
		.backing = d->backing,
		.unshared = d->opts->allow_other || (forced && strcmp(forced, "fuse") == 0),
	};

	int ret = fs_uppers_new(&opts, &d->uppers);

	boxes->uppers = d->uppers;
	boxes->serve_always = opts.unshared;
	return ret;
}

static int open_data(struct daemon *d, struct err *err)
{
	const struct meta_options meta = {.mode = META_WRITER,
					  .nr_readers = 4 * d->nr_threads + RUNNER_THREADS +
							EXECUTOR_THREADS + PATIENT_THREADS +
							OPENER_THREADS + PUSHER_THREADS +
							LEARN_THREADS + LANDING_THREADS};
	struct fs_sandboxes_options boxes = {
		.helper = d->helper,
		.store = d->store,
		.base = d->base,
		.traced = d->beside ? NULL : d->traced,
		.in_userns = d->in_userns,
		.no_mounts = d->beside,
		.events = {.traced = on_traced, .counted = on_counted, .ctx = d},
	};
	struct fs_slots_options slots = {
		.no_reuse = fs_probes_is_off(d->probes, FS_FEATURE_REUSE),
		.no_adopt = fs_probes_is_off(d->probes, FS_FEATURE_ADOPT),
	};
	int ret = fs_events_new(FS_EVENTS_KEPT, &d->events);

	if (ret == 0)
		ret = meta_open(d->store, &meta, &d->meta, err);
	if (ret < 0)
		return ret;
	(void)meta_clear_stale_readers(d->meta);
	cas_store_set_catalog(d->store, meta_catalog(d->meta));
	ret = cas_spool_start(d->store,
			      &(struct cas_spool_options){.max_bytes = d->opts->spool_max_bytes,
							  .max_blobs = d->opts->spool_max_blobs,
							  .serve = true},
			      err);
	if (ret == 0)
		ret = cas_landing_start(d->store, err);
	if (ret == 0 && d->opts->nr_tiers > 0)
		ret = cas_fetch_open(d->store, d->opts->tiers, d->opts->nr_tiers, &d->fetch, err);
	if (ret == 0)
		ret = cas_outbox_open(d->store, d->fetch, true, &d->outbox, err);
	if (ret < 0)
		return ret;
	if (d->fetch)
		ret = fs_learn_new(d->store, d->meta, d->fetch, &d->learn);
	if (ret < 0)
		return ret;
	slots.meta = d->meta;
	ret = fs_slots_new(&slots, &d->slots);
	if (ret == 0 && !fs_probes_is_off(d->probes, FS_FEATURE_PUSH))
		ret = fs_missed_new(d->store, &d->missed);
	if (ret == 0)
		ret = fs_executor_new(EXECUTOR_THREADS, &d->executor);
	if (ret == 0)
		ret = fs_executor_new(PATIENT_THREADS, &d->patient);
	if (ret == 0 && d->opts->large_min > 0)
		ret = make_large(d);
	boxes.meta = d->meta;
	boxes.slots = d->slots;
	boxes.large = d->large;
	boxes.probes = d->probes;
	boxes.learn = d->learn;
	if (ret == 0)
		ret = fs_tap_new(&d->tap_one);
	if (ret == 0)
		ret = fs_tap_new(&d->tap_two);
	if (ret == 0)
		ret = fs_opens_new(&(struct fs_opens_options){.probes = d->probes, .base = d->base},
				   &d->opens);
	if (ret == 0)
		ret = fs_dirs_new(&(struct fs_dirs_options){.meta = d->meta,
							    .helper = d->helper,
							    .probes = d->probes,
							    .base = d->base},
				  &d->dirs);
	boxes.tap_one = d->tap_one;
	boxes.tap_two = d->tap_two;
	boxes.dirs = d->dirs;
	boxes.opens = d->opens;
	if (ret == 0)
		ret = fs_backing_table_new(d->store, fs_backing_raise_limit(), &d->backing);
	if (ret == 0 && serves_layers(d))
		ret = make_uppers(d, &boxes);
	if (ret == 0)
		ret = fs_sandboxes_open(&boxes, &d->sandboxes, err);
	if (ret == 0)
		ret = fs_executor_new(OPENER_THREADS, &d->opener);
	if (ret == 0 && d->fetch)
		ret = fs_awaits_new(d->fetch, d->opener, &d->awaits);
	if (ret == 0 && d->fetch)
		ret = fs_prefetches_new(d->store, d->fetch, d->events, &d->prefetches);
	d->env = (struct control_env){
		.store = d->store,
		.meta = d->meta,
		.sandboxes = d->sandboxes,
		.mountpoint = d->mountpoint,
		.automatic = d->opts->automatic,
		.fetch = d->fetch,
		.prefetches = d->prefetches,
		.events = d->events,
		.quota = &d->opts->quota,
		.guard = &d->guard,
		.ending = &d->ending,
		.stop = fs_daemon_stop,
		.config = fs_daemon_config,
		.stats = fs_daemon_stats,
		.ctx = d,
	};
	d->quota.limit = d->opts->quota;
	if (ret == 0)
		ret = make_metrics(d);
	return ret < 0 ? ret : fs_channels_new(&d->env, d->executor, d->patient, &d->channels);
}

static int make_views(struct daemon *d)
{
	struct fs_views_options opts = {
		.store = d->store,
		.meta = d->meta,
		.sandboxes = d->sandboxes,
		.slots = d->slots,
		.large = d->large,
		.uppers = d->uppers,
		.config = fs_daemon_text_config,
		.help = fs_report_help,
		.version = fs_report_version,
		.metrics = fs_daemon_text_metrics,
		.log_level = fs_report_log_level,
		.set_log_level = fs_daemon_set_log_level,
		.text_ctx = d,
		.beside = d->beside ? d->base : NULL,
	};
	int ret = fs_view_sandboxes_new(&opts, &d->traces);

	opts.traces = d->traces;
	if (ret == 0)
		ret = fs_view_top_new(&opts, &d->top);
	return ret < 0 ? ret : fs_view_boxes_new(&opts, &d->boxes);
}

/* A file where blobs are, without a name; else one of the store. */
static int open_probe(const struct daemon *d)
{
	const char *dir = d->opts->blobs ? d->opts->blobs : cas_store_path(d->store);
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	return fd >= 0 ? fd : openat(cas_store_dir_fd(d->store), "VERSION", O_RDONLY | O_CLOEXEC);
}

static int make_session(struct daemon *d, bool one, struct err *err)
{
	auto_close int probe_fd = one ? -1 : open_probe(d);
	struct fs_mount *mount = one ? &d->mount_one : &d->mount_two;
	struct fs_session *session = NULL;
	struct fs_entry root = {0};
	struct fs_session_options opts = {
		.name = one ? "one" : "two",
		.root = &root,
		.store = d->store,
		.backing = d->backing,
		.opener = d->opener,
		.awaits = d->awaits,
		.channels = one ? NULL : d->channels,
		.executor = one ? NULL : d->executor,
		.events = d->events,
		.probes = d->probes,
		.no_opens = one && !fs_probes_is_off(d->probes, FS_FEATURE_NO_OPENS),
		.passthrough = !one && !fs_probes_is_off(d->probes, FS_FEATURE_PASSTHROUGH),
		.probe_fd = probe_fd,
		.xattr = d->opts->xattr,
		.nr_threads = d->nr_threads,
		.uid = geteuid(),
		.gid = getegid(),
		.inputs_of_root = one && d->beside,
		.uppers = one ? d->uppers : NULL,
		.ended = on_session_ended,
		.want = one ? on_want : NULL,
		.missed = one && d->missed ? on_missed : NULL,
		.read = one && d->learn ? on_read : NULL,
		.pushed = one && d->learn ? on_pushed : NULL,
		.ctx = d,
		.tap = one ? d->tap_one : d->tap_two,
	};
	bool read_only = one && !d->uppers;
	int ret = d->beside ? fs_fusermount(one ? d->base : d->mountpoint, read_only,
					    d->opts->allow_other, mount, err)
			    : fs_mount_new(read_only, d->opts->allow_other, mount, err);

	if (ret < 0)
		return ret;
	*(one ? &d->mounted_one : &d->attached) |= d->beside;
	if (one)
		fs_view_boxes_root(d->boxes, &root);
	else
		fs_view_top_root(d->top, &root);
	ret = fs_session_new(&opts, mount, &session, err);
	if (ret < 0)
		return ret;
	ret = fs_session_start(session, err);
	/* One that did not start is ended as the others are. */
	atomic_store(one ? &d->one : &d->two, session);
	return ret;
}

static int start_watchdog(struct daemon *d)
{
	const struct fs_watchdog_options opts = {
		.helper = d->helper,
		.paths = {d->mountpoint, d->base},
		.devs = {d->mount_two.dev, d->mount_one.dev},
		.period_ms = WATCHDOG_PERIOD_MS,
		.timeout_ms = WATCHDOG_TIMEOUT_MS,
		.wedged = on_wedged,
		.ctx = d,
	};

	return fs_watchdog_new(&opts, &d->watchdog);
}

/* Without it all works the same, but slower. */
static void start_pusher(struct daemon *d)
{
	const struct fs_pusher_options opts = {
		.meta = d->meta,
		.session = d->one,
		.missed = d->missed,
		.probes = d->probes,
		.helper_program = d->opts->helper_program,
		.base = d->base,
	};
	struct fs_pusher *pusher = NULL;
	struct err err = {0};
	int ret;

	if (fs_probes_is_off(d->probes, FS_FEATURE_PUSH) ||
	    !fs_probes_has(d->probes, FS_FEATURE_READDIRPLUS))
		return;
	ret = fs_pusher_new(&opts, &pusher, &err);
	fs_probes_set(d->probes, FS_FEATURE_PUSH, ret == 0, ret < 0 ? "%.100s" : NULL,
		      err_text(&err, ret));
	atomic_store(&d->pusher, pusher);
}

static void attach_slots(struct daemon *d)
{
	struct fs_slots_place place = {
		.session = d->one,
		.executor = d->executor,
		.helper = d->helper,
		.base = d->base,
	};

	start_pusher(d);
	place.pusher = d->pusher;
	fs_opens_attach(d->opens, d->mount_one.dev);
	fs_dirs_attach(d->dirs, place.session->table);

	fs_probes_set(d->probes, FS_FEATURE_REUSE, true, NULL);
	fs_probes_set(d->probes, FS_FEATURE_ADOPT, true, NULL);
	fs_slots_attach(d->slots, &place);
}

/* Large inputs are worth a mount only if that makes them faster. */
static void probe_large(struct daemon *d)
{
	bool passthrough = fs_probes_has(d->probes, FS_FEATURE_PASSTHROUGH);

	fs_probes_set(d->probes, FS_FEATURE_LARGE, d->large && passthrough,
		      passthrough ? (d->large ? NULL : "not wanted") : "needs passthrough");
}

static int mount_all(struct daemon *d, struct err *err)
{
	int ret = make_session(d, false, err);

	if (ret < 0)
		return ret;
	probe_large(d);
	/* The mount point is resolved before anything of ours hides it. */
	if (!d->attached)
		ret = fs_mount_attach(&d->mount_two, d->mountpoint, err);
	if (ret < 0)
		return ret;
	d->attached = true;
	ret = make_session(d, true, err);
	if (ret == 0)
		attach_slots(d);
	if (ret == 0 && !d->beside)
		ret = fs_helper_attach(d->helper, d->mount_one.mount_fd, d->base, err);
	return ret;
}

/* Attached mounts hold themselves; our descriptors would keep them busy. */
static void close_mount_fds(struct daemon *d)
{
	if (d->mount_one.mount_fd >= 0)
		(void)close(steal_fd(&d->mount_one.mount_fd));
	if (d->mount_two.mount_fd >= 0)
		(void)close(steal_fd(&d->mount_two.mount_fd));
}

static int warm_lanes(struct daemon *d, struct err *err)
{
	struct cas_digest root;
	struct meta_dirinfo info;
	int ret;

	if (!d->opts->warm)
		return 0;
	if (cas_digest_parse(d->opts->warm, &root) < 0)
		return err_set(err, -EINVAL, "%s is not a digest", d->opts->warm);
	ret = meta_dir_info(d->meta, &root, &info, err);
	for (int i = 0; ret == 0 && i < d->opts->lanes && i < FS_LANES_MAX; i++)
		ret = fs_slot_warm(d->slots, &root, err);
	return ret;
}

/* Who holds a secret lets nobody look at him; his helper has none. */
static pid_t joinable(struct daemon *d)
{
	return prctl(PR_GET_DUMPABLE) == 1 ? getpid() : fs_helper_pid(d->helper);
}

static int start(struct daemon *d, struct err *err)
{
	const struct fs_daemon_record record = {d->mountpoint,
						d->opts->automatic,
						d->mount_one.dev,
						d->mount_two.dev,
						d->beside ? d->base : NULL,
						d->way == FS_WAY_HIDDEN ? joinable(d) : 0};
	int ret = fs_sandboxes_restore(d->sandboxes, err);

	if (ret == 0)
		ret = warm_lanes(d, err);
	if (ret == 0)
		ret = start_watchdog(d);
	if (ret == 0)
		ret = fs_upkeep_new(&d->env, &d->quota, &d->upkeep);
	if (ret == 0)
		ret = fs_teller_new(d->events, d->fetch, d->prefetches, d->metrics, &d->teller);
	if (ret == 0)
		ret = fs_daemon_record_write(d->store, &record, err);
	if (ret < 0)
		return ret;
	fs_event(d->events, "mount", "{s:s, s:s, s:i, s:s}", "mountpoint", d->mountpoint, "store",
		 cas_store_path(d->store), "pid", (int)getpid(), "version", CASBOX_VERSION);
	fs_channels_open(d->channels);
	return 0;
}

/* Poll until somebody wants an end. */
static void serve(struct daemon *d)
{
	unsigned long long busy_ns = lock_now_ns();
	unsigned long long idle_ns = (unsigned long long)d->opts->idle_s * 1000 * NS_PER_MS;
	int tick = d->opts->idle_s > 0 ? 1000 : -1;
	struct pollfd fds[] = {{d->signal_fd, POLLIN, 0}, {d->wake_fd, POLLIN, 0}};

	while (!atomic_load(&d->stop)) {
		(void)poll(fds, 2, tick);
		if (fds[0].revents & POLLIN) {
			log_info("ending on a signal");
			atomic_store(&d->hurry, true);
			return;
		}
		if (tick < 0)
			continue;
		if (fs_sandboxes_count(d->sandboxes) > 0 || fs_channels_nr_pending(d->channels) > 0)
			busy_ns = lock_now_ns();
		else if (lock_now_ns() - busy_ns >= idle_ns && fs_daemon_shut_if_idle(d, 0)) {
			log_info("ending after %d s without sandboxes", d->opts->idle_s);
			return;
		}
	}
}

/* Unmount both sessions; whoever still uses them gets errors once we are gone. */
static void unmount_all(struct daemon *d)
{
	struct err err = {0};
	int ret = 0;

	if (d->beside && d->mounted_one)
		fs_way_unmount(d->base, d->mount_one.dev);
	else if (d->one && !atomic_load(&d->one->gone) && d->attached)
		ret = fs_helper_unmount(d->helper, d->mountpoint, "sandboxes", true, &err);
	if (ret < 0)
		log_warn("cannot unmount %s: %s", d->base, err_text(&err, ret));
	if (d->attached)
		fs_way_unmount(d->mountpoint, d->mount_two.dev);
	if (d->beside && d->base)
		(void)rmdir(d->base);
}

/* False when commands are still running: what they use must stay. */
static bool stop_commands(struct daemon *d)
{
	unsigned long long now = lock_now_ns();
	unsigned wait_ms = atomic_load(&d->hurry) ? STOP_HURRY_MS : STOP_WAIT_MS;
	bool done;

	if (!d->channels)
		return true;
	atomic_store(&d->ending, true);
	fs_prefetches_stop(d->prefetches);
	fs_channels_shut(d->channels);
	done = fs_channels_wait(d->channels, 0, now + wait_ms * NS_PER_MS);
	if (!done)
		log_warn("ending with %zu commands running", fs_channels_nr_pending(d->channels));
	(void)fs_channels_wait_read(d->channels, lock_now_ns() + STOP_READ_MS * NS_PER_MS);
	return done;
}

static int close_data(struct daemon *d, struct err *err)
{
	struct err save_err = {0};
	struct err sync_err = {0};
	int ret;

	fs_teller_free(d->teller);
	fs_prefetches_free(d->prefetches);
	cas_outbox_close(d->outbox);
	fs_awaits_stop(d->awaits);
	fs_learn_stop(d->learn);
	/* Whoever still waits for a blob is told. */
	cas_fetch_close(d->fetch);
	fs_large_stop(d->large);
	fs_executor_free(d->patient);
	fs_executor_free(d->executor);
	fs_executor_free(d->opener);
	fs_awaits_free(d->awaits);
	fs_upkeep_free(d->upkeep);
	fs_slots_free(d->slots);
	fs_pusher_free(d->pusher);
	if (d->missed && fs_missed_save(d->missed, d->store, &save_err) < 0)
		log_warn("%s", save_err.msg);
	fs_missed_free(d->missed);
	fs_learn_free(d->learn);
	fs_dirs_free(d->dirs);
	fs_session_free(d->one);
	fs_session_free(d->two);
	fs_channels_free(d->channels);
	fs_events_free(d->events);
	fs_metrics_free(d->metrics);
	fs_view_top_free(d->top);
	fs_view_boxes_free(d->boxes);
	fs_view_sandboxes_free(d->traces);
	fs_tap_free(d->tap_one);
	fs_tap_free(d->tap_two);
	fs_opens_free(d->opens);
	fs_uppers_free(d->uppers);
	fs_large_free(d->large);
	fs_backing_table_free(d->backing);
	fs_helper_free(d->helper);
	if (d->store) {
		cas_landing_stop(d->store);
		cas_spool_stop(d->store);
	}
	/* Captures whose sync was still to come: their rows need index and ledger open. */
	if (d->store && (ret = cas_store_sync(d->store, &sync_err)) < 0)
		log_error("%s", err_text(&sync_err, ret));
	ret = d->meta ? meta_close(d->meta, err) : 0;
	if (d->store)
		cas_store_set_catalog(d->store, &cas_catalog_null);
	return ret;
}

/* The daemon is freed, unless a command that still runs may look at it. */
static int stop(struct daemon *d, struct err *err)
{
	bool commands_ended = stop_commands(d);
	int ret = 0;

	if (d->attached)
		fs_event(d->events, "unmount", "{s:s}", "mountpoint", d->mountpoint);
	fs_watchdog_free(d->watchdog);
	fs_view_boxes_close(d->boxes);
	fs_view_sandboxes_close(d->traces);
	/*
	 * With a command running the process ends as it is: detaching takes the layers
	 * along, and the next daemon finds all as after a kill.
	 */
	if (commands_ended && d->sandboxes)
		fs_sandboxes_close(d->sandboxes);
	fs_pusher_stop(d->pusher);
	if (commands_ended && d->slots)
		fs_slots_unmount(d->slots);
	unmount_all(d);
	fs_session_stop(d->one);
	/* Its threads run commands. */
	if (commands_ended) {
		fs_session_stop(d->two);
		ret = close_data(d, err);
	}
	if (d->base)
		fs_daemon_record_remove(d->store);
	if (!commands_ended)
		return ret;
	cas_store_close(d->store);
	fs_probes_free(d->probes);
	(void)close(d->signal_fd);
	(void)close(d->wake_fd);
	free(d->mountpoint);
	free(d->base);
	free(d->traced);
	free(d);
	return ret;
}

static int run(struct daemon *d, void (*ready)(void *ctx), void *ready_ctx, struct err *err)
{
	struct err no_userns = {0};
	int ret = fs_probes_new(d->opts->without, &d->probes, err);

	if (ret == 0)
		ret = fs_way_choose(d->opts, &d->way, &no_userns, err);
	d->beside = d->way == FS_WAY_FUSERMOUNT3;
	d->in_userns |= d->way == FS_WAY_HIDDEN;
	if (ret == 0)
		ret = take_signals(d, err);
	if (ret == 0)
		ret = prepare(d, err);
	if (ret == 0)
		ret = open_data(d, err);
	if (ret == 0)
		ret = make_views(d);
	if (ret == 0)
		ret = mount_all(d, err);
	if (ret < 0 && no_userns.code && err) {
		struct err last = *err;

		ret = err_set(err, ret, "%.400s; and %.400s", no_userns.msg, last.msg);
	}
	close_mount_fds(d);
	if (ret == 0)
		ret = start(d, err);
	if (ret < 0)
		return ret;
	if (ready)
		ready(ready_ctx);
	serve(d);
	return atomic_load(&d->wedged) ? err_set(err, -EIO,
						 "the mount at %s did not answer and "
						 "was aborted",
						 d->mountpoint)
				       : 0;
}

int fs_serve(const struct fs_options *opts, void (*ready)(void *ctx), void *ready_ctx,
	     struct err *err)
{
	struct daemon *d = calloc(1, sizeof(*d));
	struct err end_err = {0};
	int end_ret;
	int ret;

	if (!d)
		return -ENOMEM;
	*d = (struct daemon){
		.opts = opts,
		.nr_threads = opts->nr_threads > 0 ? opts->nr_threads : DEFAULT_THREADS,
		.in_userns = fs_place_in_userns(),
		.mount_one = {-1, -1, 0},
		.mount_two = {-1, -1, 0},
		.signal_fd = -1,
		.wake_fd = -1,
	};
	if (d->nr_threads > MAX_THREADS)
		d->nr_threads = MAX_THREADS;
	ret = run(d, ready, ready_ctx, err);
	end_ret = stop(d, &end_err);
	if (ret == 0 && end_ret < 0)
		ret = err_set(err, end_ret, "%s", err_text(&end_err, end_ret));
	return ret;
}
