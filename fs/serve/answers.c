/* fs/serve/answers.c - what a daemon says of itself, and when it ends */
#include <errno.h>
#include <unistd.h>

#include "cas/cas.h"
#include "cas/landing/landing.h"
#include "fs/backing/backing.h"
#include "fs/backing/probe.h"
#include "fs/capture/early.h"
#include "fs/channel/channel.h"
#include "fs/fs.h"
#include "fs/report/fetch_stats.h"
#include "fs/report/metrics.h"
#include "fs/report/report.h"
#include "fs/sandbox/sandbox.h"
#include "fs/serve/daemon_i.h"
#include "fs/serve/session.h"
#include "fs/slot/push.h"
#include "fs/slot/slot.h"

void fs_daemon_wake(struct daemon *d)
{
	uint64_t one = 1;

	(void)!write(d->wake_fd, &one, sizeof(one));
}

bool fs_daemon_shut_if_idle(struct daemon *d, size_t nr)
{
	if (fs_sandboxes_count(d->sandboxes) > 0 || !fs_channels_shut_if(d->channels, nr))
		return false;
	if (fs_sandboxes_count(d->sandboxes) == 0)
		return true;
	fs_channels_reopen(d->channels);
	return false;
}

int fs_daemon_stop(void *ctx, bool if_idle, bool force, struct err *err)
{
	struct daemon *d = ctx;

	/* This command itself is one of those that run. */
	if (if_idle && !fs_daemon_shut_if_idle(d, 1))
		return err_set(err, -EBUSY, "the mount at %s is in use: %zu sandboxes",
			       d->mountpoint, fs_sandboxes_count(d->sandboxes));
	if (force)
		atomic_store(&d->hurry, true);
	atomic_store(&d->stop, true);
	fs_daemon_wake(d);
	return 0;
}

int fs_daemon_config(void *ctx, json_t *out)
{
	struct daemon *d = ctx;
	const struct fs_session *two = d->two;
	json_t *o = json_pack("{s:s, s:s, s:b, s:b, s:i, s:i, s:b, s:s, s:s, s:i, s:I, s:I, s:I}",
			      "store", cas_store_path(d->store), "mountpoint", d->mountpoint,
			      "automatic", (int)d->opts->automatic, "allow_other",
			      (int)d->opts->allow_other, "threads", d->nr_threads, "idle_s",
			      d->opts->idle_s, "user_namespace", (int)d->in_userns, "mounting",
			      fs_way_name(d->way), "libfuse", fs_wire_libfuse(),
			      "fuse_protocol_minor", two ? (int)two->wire.minor : 0, "nodes_one",
			      fs_report_nodes(d->one), "nodes_two", fs_report_nodes(two),
			      "open_blobs", (json_int_t)fs_backing_count(d->backing));
	json_t *slots = fs_slots_describe(d->slots);
	int ret = o && slots && json_object_update(out, o) == 0 ? 0 : -ENOMEM;

	if (ret == 0)
		ret = json_object_set(out, "slots", slots) == 0 ? 0 : -ENOMEM;
	if (ret == 0)
		ret = json_object_set_new(out, "xattr", json_boolean(d->opts->xattr));
	json_decref(slots);

	json_decref(o);
	return ret < 0 ? ret : fs_probes_report(d->probes, out);
}

int fs_daemon_stats(void *ctx, json_t *out)
{
	struct daemon *d = ctx;
	struct fs_early_counts early;
	struct cas_landing_backlog landing;
	json_t *o;
	int ret;

	fs_sandboxes_count_early(d->sandboxes, &early);
	cas_landing_backlog(d->store, &landing);
	o = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
		      "landing_blobs", (json_int_t)landing.blobs, "landing_bytes",
		      (json_int_t)landing.bytes, "landed", (json_int_t)landing.landed, "open_blobs",
		      (json_int_t)fs_backing_count(d->backing), "backing_ids",
		      (json_int_t)fs_backing_count_ids(d->backing), "excess_bytes",
		      (json_int_t)atomic_load(&d->quota.excess_bytes), "evictions",
		      (json_int_t)atomic_load(&d->quota.evictions), "evicted_blobs",
		      (json_int_t)atomic_load(&d->quota.evicted_blobs), "evicted_bytes",
		      (json_int_t)atomic_load(&d->quota.evicted_bytes), "early_hashed",
		      (json_int_t)early.nr_hashed, "early_used", (json_int_t)early.nr_used,
		      "early_known", (json_int_t)early.nr_known);
	ret = o && json_object_update(out, o) == 0 ? 0 : -ENOMEM;

	json_decref(o);
	if (ret == 0 && d->pusher &&
	    json_object_set_new(out, "push", fs_pusher_describe(d->pusher)) < 0)
		ret = -ENOMEM;
	if (ret == 0)
		ret = fs_fetch_report(d->store, d->fetch, d->learn, out);
	if (ret == 0)
		ret = fs_report_session(d->one, out);
	return ret < 0 ? ret : fs_report_session(d->two, out);
}

int fs_daemon_text_config(void *ctx, struct buf *out)
{
	json_t *o = json_object();
	int ret = o ? fs_daemon_config(ctx, o) : -ENOMEM;

	if (ret == 0)
		ret = fs_report_lines(o, out);
	json_decref(o);
	return ret;
}

int fs_daemon_text_metrics(void *ctx, struct buf *out)
{
	const struct daemon *d = ctx;

	return fs_metrics_write(d->metrics, out);
}

int fs_daemon_set_log_level(void *ctx, const char *data, size_t len)
{
	const struct daemon *d = ctx;

	return fs_report_set_log_level(d->events, data, len);
}
