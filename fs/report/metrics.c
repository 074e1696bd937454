/* fs/report/metrics.c - what was counted, for Prometheus */

/*
 * Names are casbox_SUBSYSTEM_WHAT, ending in _seconds, _bytes or _total where they are
 * that; tests/mount/metrics-lint.sh holds them to it. README lists what they mean.
 */
#include "fs/report/metrics.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cas/cas.h"
#include "cas/landing/landing.h"
#include "fs/backing/backing.h"
#include "fs/capture/early.h"
#include "fs/control/control.h"
#include "fs/control/prefetch.h"
#include "fs/control/quota.h"
#include "fs/learn/learn.h"
#include "fs/node/inode.h"
#include "fs/report/events.h"
#include "fs/report/prom.h"
#include "fs/sandbox/sandbox.h"
#include "fs/serve/session.h"
#include "fs/slot/push.h"
#include "fs/slot/slot.h"

/* What has to be waited for, of one moment. */
struct sample {
	bool store_known;
	struct cas_usage store;
	struct cas_spool_backlog spool;
	struct cas_landing_backlog landing;
};

struct fs_metrics {
	struct fs_metrics_sources from;
	int64_t start_s;
	struct lock lock; /* rank LEAF */
	struct sample latest GUARDED_BY(lock);
};

int fs_metrics_new(const struct fs_metrics_sources *sources, struct fs_metrics **out)
{
	struct fs_metrics *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->from = *sources;
	m->start_s = (int64_t)time(NULL);
	lock_init(&m->lock, LOCK_RANK_LEAF, "metrics");
	*out = m;
	return 0;
}

void fs_metrics_free(struct fs_metrics *m)
{
	if (!m)
		return;
	lock_fini(&m->lock);
	free(m);
}

void fs_metrics_sample(struct fs_metrics *m)
{
	const struct cas_catalog *catalog = cas_store_catalog(m->from.store);
	struct cas_spool_backlog spool;
	struct cas_landing_backlog landing;
	struct cas_usage usage;
	bool known = catalog->ops->usage(catalog->ctx, &usage) == 1;

	cas_spool_backlog(m->from.store, &spool);
	cas_landing_backlog(m->from.store, &landing);
	lock_take(&m->lock);
	if (known)
		m->latest.store = usage;
	m->latest.store_known |= known;
	m->latest.spool = spool;
	m->latest.landing = landing;
	lock_drop(&m->lock);
}

/* Samples by session and kind; @times selects the family. */
static void write_op(struct prom *p, const struct fs_session *session, size_t op, bool times)
{
	const char *name = fs_wire_op_name(op);
	uint64_t nr = atomic_load_explicit(&session->wire.nr[op], memory_order_relaxed);
	char labels[80];

	if (!name || nr == 0)
		return;
	(void)snprintf(labels, sizeof(labels), "session=\"%s\",operation=\"%s\"",
		       session->opts.name, name);
	for (size_t i = strlen(labels) - strlen(name) - 1; labels[i]; i++)
		labels[i] = (char)tolower((unsigned char)labels[i]);
	if (times)
		prom_histogram_write(p, labels, &session->wire.times[op]);
	else
		prom_value(p, labels, nr);
}

static void write_ops(struct prom *p, const struct fs_session *session, bool times)
{
	for (size_t op = 0; session && op < FS_WIRE_NR_OPS; op++)
		write_op(p, session, op, times);
}

static void write_nodes(struct prom *p, struct fs_session *session, bool bytes)
{
	char labels[32];

	if (!session)
		return;
	(void)snprintf(labels, sizeof(labels), "session=\"%s\"", session->opts.name);
	prom_value(p, labels,
		   bytes ? fs_inode_memory(session->table) : fs_inode_count(session->table));
}

static void write_fuse(struct prom *p, const struct fs_metrics *m)
{
	struct fs_session *one = atomic_load(m->from.one);
	struct fs_session *two = atomic_load(m->from.two);

	prom_family(p, PROM_COUNTER, "casbox_fuse_requests_total",
		    "Requests of the kernel, by kind.");
	write_ops(p, one, false);
	write_ops(p, two, false);
	prom_family(p, PROM_HISTOGRAM, "casbox_fuse_request_seconds",
		    "From taking a request to its answer.");
	write_ops(p, one, true);
	write_ops(p, two, true);
	prom_family(p, PROM_GAUGE, "casbox_node_table_nodes", "Nodes that the kernel knows.");
	write_nodes(p, one, false);
	write_nodes(p, two, false);
	prom_family(p, PROM_GAUGE, "casbox_node_table_bytes", "Memory of the tables of nodes.");
	write_nodes(p, one, true);
	write_nodes(p, two, true);
}

static uint64_t member(const json_t *o, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(o, key));
}

static void write_dropped(struct prom *p, json_t *dropped)
{
	const char *key;
	json_t *value;

	prom_family(p, PROM_COUNTER, "casbox_slot_dropped_total",
		    "Retired roots that were not used again, by reason.");
	json_object_foreach(dropped, key, value)
	{
		auto_buf struct buf label = {0};

		if (p->ret == 0)
			p->ret = buf_append_str(&label, "reason=\"");
		if (p->ret == 0)
			p->ret = prom_escape(&label, key);
		if (p->ret == 0)
			p->ret = buf_append_char(&label, '"');
		prom_value(p, buf_str(&label), (uint64_t)json_integer_value(value));
	}
}

/* What a new root did not have to be asked for again, or was given unasked. */
static void write_slots(struct prom *p, const struct fs_metrics *m)
{
	struct fs_pusher *pusher = atomic_load(m->from.pusher);
	json_t *slots = fs_slots_describe(m->from.slots);
	json_t *push = pusher ? fs_pusher_describe(pusher) : NULL;

	prom_family(p, PROM_COUNTER, "casbox_slot_sandboxes_total",
		    "Sandboxes that got a new root, or the warm one of another.");
	prom_value(p, "root=\"fresh\"", member(slots, "fresh"));
	prom_value(p, "root=\"reused\"", member(slots, "reused"));
	prom_one(p, PROM_GAUGE, "casbox_slot_retired_roots", "Warm roots that wait for a sandbox.",
		 member(slots, "retired"));
	prom_one(p, PROM_COUNTER, "casbox_slot_adopted_directories_total",
		 "Directories that moved to another root with all that the kernel knows of them.",
		 member(slots, "adopted_directories"));
	prom_family(p, PROM_COUNTER, "casbox_slot_invalidations_total",
		    "What the kernel was told to forget between two roots.");
	prom_value(p, "what=\"name\"", member(slots, "invalidated_names"));
	prom_value(p, "what=\"directory\"", member(slots, "invalidated_nodes"));
	write_dropped(p, json_object_get(slots, "dropped"));
	prom_family(p, PROM_COUNTER, "casbox_fuse_upcalls_saved_total",
		    "Requests that did not come, since the answer was given unasked.");
	prom_value(p, "operation=\"lookup\"", member(push, "names"));
	prom_value(p, "operation=\"readdirplus\"", member(push, "directories"));
	prom_value(p, "operation=\"read\"", member(push, "blobs"));
	json_decref(push);
	json_decref(slots);
}

static void write_sandboxes(struct prom *p, const struct fs_metrics *m)
{
	struct fs_sandbox_counts n;
	struct fs_early_counts early;

	fs_sandboxes_count_states(m->from.sandboxes, &n);
	fs_sandboxes_count_early(m->from.sandboxes, &early);
	prom_family(p, PROM_GAUGE, "casbox_sandbox_sandboxes", "Sandboxes, by state.");
	prom_value(p, "state=\"creating\"", n.creating);
	prom_value(p, "state=\"live\"", n.live);
	prom_value(p, "state=\"finishing\"", n.finishing);
	prom_value(p, "state=\"finished\"", n.finished);
	prom_value(p, "state=\"lost\"", n.lost);
	prom_family(p, PROM_COUNTER, "casbox_sandbox_early_outputs_total",
		    "Outputs hashed before their sandbox was finished, and those of use then.");
	prom_value(p, "state=\"hashed\"", early.nr_hashed);
	prom_value(p, "state=\"used\"", early.nr_used);
}

static void write_quota(struct prom *p, const struct cas_quota *quota)
{
	uint64_t low =
		quota->low_bytes != CAS_QUOTA_NONE ? quota->low_bytes : quota->max_bytes / 10 * 9;

	prom_family(p, PROM_GAUGE, "casbox_store_watermark_bytes",
		    "Above the high mark the store is brought down to the low one.");
	if (quota->max_bytes != CAS_QUOTA_NONE) {
		prom_value(p, "mark=\"high\"", quota->max_bytes);
		prom_value(p, "mark=\"low\"", low);
	}
	prom_family(p, PROM_GAUGE, "casbox_store_watermark_blobs", "The same for their number.");
	if (quota->max_blobs != CAS_QUOTA_NONE)
		prom_value(p, "mark=\"high\"", quota->max_blobs);
}

static void write_store(struct prom *p, const struct fs_metrics *m, const struct sample *at)
{
	const struct control_quota *quota = m->from.quota;
	struct cas_store_counts puts;

	cas_store_counts(m->from.store, &puts);
	if (at->store_known) {
		prom_one(p, PROM_GAUGE, "casbox_store_blobs", "Blobs in the store.",
			 at->store.blobs);
		prom_one(p, PROM_GAUGE, "casbox_store_size_bytes", "Bytes in these blobs.",
			 at->store.bytes);
		prom_one(p, PROM_GAUGE, "casbox_store_disk_bytes",
			 "What they take on the disk, which the watermarks are about.",
			 at->store.disk);
	}
	write_quota(p, &quota->limit);
	prom_one(p, PROM_GAUGE, "casbox_store_excess_bytes",
		 "Above the high mark, and needed by sandboxes, pins or puts.",
		 atomic_load(&quota->excess_bytes));
	prom_one(p, PROM_COUNTER, "casbox_put_blobs_total", "Blobs that the daemon wrote.",
		 puts.nr_puts);
	prom_one(p, PROM_COUNTER, "casbox_put_written_bytes_total", "Bytes of these.",
		 puts.put_bytes);
	prom_one(p, PROM_COUNTER, "casbox_put_copy_skips_total",
		 "Puts of the daemon that found their blob in the store, and copied nothing.",
		 puts.nr_known);
	prom_one(p, PROM_GAUGE, "casbox_backing_descriptors", "Descriptors of blobs kept open.",
		 fs_backing_count(m->from.backing));
	prom_one(p, PROM_GAUGE, "casbox_backing_kernel_files",
		 "Blobs that the kernel reads by itself.", fs_backing_count_ids(m->from.backing));
}

static void write_evictions(struct prom *p, const struct control_guard *guard)
{
	static const char *const labels[CONTROL_NR_REASONS] = {
		[CONTROL_EVICT_QUOTA] = "reason=\"quota\"",
		[CONTROL_EVICT_COMMAND] = "reason=\"command\"",
	};

	prom_family(p, PROM_COUNTER, "casbox_evict_runs_total", "Evictions, by reason.");
	for (int i = 0; i < CONTROL_NR_REASONS; i++)
		prom_value(p, labels[i], atomic_load(&guard->evicted[i].runs));
	prom_family(p, PROM_COUNTER, "casbox_evict_blobs_total", "Blobs that went.");
	for (int i = 0; i < CONTROL_NR_REASONS; i++)
		prom_value(p, labels[i], atomic_load(&guard->evicted[i].blobs));
	prom_family(p, PROM_COUNTER, "casbox_evict_freed_bytes_total", "Bytes that they freed.");
	for (int i = 0; i < CONTROL_NR_REASONS; i++)
		prom_value(p, labels[i], atomic_load(&guard->evicted[i].bytes));
}

static void write_landing(struct prom *p, const struct cas_landing_backlog *landing)
{
	prom_one(p, PROM_GAUGE, "casbox_landing_backlog_blobs",
		 "Outputs in landing/ that wait to be moved to their shards.", landing->blobs);
	prom_one(p, PROM_GAUGE, "casbox_landing_backlog_bytes", "Bytes of these.", landing->bytes);
	prom_one(p, PROM_GAUGE, "casbox_landing_failing_blobs",
		 "Those among them whose last move failed.", landing->failing);
}

static void write_spool(struct prom *p, const struct cas_spool_backlog *spool)
{
	prom_one(p, PROM_GAUGE, "casbox_spool_backlog_blobs",
		 "Blobs that wait to be moved to their directory.", spool->blobs);
	prom_one(p, PROM_GAUGE, "casbox_spool_backlog_bytes", "Bytes of these.", spool->bytes);
	prom_family(p, PROM_GAUGE, "casbox_spool_oldest_seconds",
		    "Since the oldest of them was accepted.");
	prom_seconds(p, NULL, spool->oldest_ns);
	prom_one(p, PROM_GAUGE, "casbox_spool_failing_blobs",
		 "Those among them whose last move failed.", spool->failing);
}

static void write_fetch(struct prom *p, struct cas_fetch *fetch)
{
	struct cas_fetch_stats s = {0};

	if (fetch)
		cas_fetch_stats(fetch, &s);
	prom_one(p, PROM_COUNTER, "casbox_fetch_wanted_total",
		 "Blobs that were wanted and not in the store.", s.nr_asked);
	prom_one(p, PROM_COUNTER, "casbox_fetch_single_flight_waits_total",
		 "Those of them that found the same download under way.", s.nr_joined);
	prom_one(p, PROM_COUNTER, "casbox_fetch_blobs_total", "Blobs that were brought.",
		 s.nr_fetched);
	prom_one(p, PROM_COUNTER, "casbox_fetch_received_bytes_total", "Bytes of these.", s.bytes);
	prom_one(p, PROM_COUNTER, "casbox_fetch_failures_total", "Downloads that failed.",
		 s.nr_failed);
	prom_one(p, PROM_COUNTER, "casbox_fetch_refused_total",
		 "Answers of tiers that were not the blob.", s.nr_refused);
	prom_one(p, PROM_GAUGE, "casbox_fetch_running", "Downloads under way.", s.nr_flights);
}

enum tier_family { TIER_REQUESTS, TIER_ERRORS, TIER_BLOBS, TIER_BYTES, TIER_PAUSED, NR_TIER };

static void write_tier(struct prom *p, struct cas_tier *tier, enum tier_family family)
{
	auto_buf struct buf tier_label = {0};
	auto_buf struct buf in = {0};
	auto_buf struct buf out = {0};
	struct cas_tier_stats s;
	int ret = buf_append_str(&tier_label, "tier=\"");

	cas_tier_stats(tier, &s);
	if (ret == 0)
		ret = prom_escape(&tier_label, cas_tier_name(tier));
	if (ret == 0)
		ret = buf_append_char(&tier_label, '"');
	if (ret == 0)
		ret = buf_printf(&in, "%s,direction=\"in\"", buf_str(&tier_label));
	if (ret == 0)
		ret = buf_printf(&out, "%s,direction=\"out\"", buf_str(&tier_label));
	if (ret < 0)
		p->ret = ret;
	if (family == TIER_REQUESTS)
		prom_value(p, buf_str(&tier_label), s.nr_requests);
	if (family == TIER_ERRORS)
		prom_value(p, buf_str(&tier_label), s.nr_failures);
	if (family == TIER_PAUSED)
		prom_value(p, buf_str(&tier_label), s.broken);
	if (family == TIER_BLOBS || family == TIER_BYTES) {
		prom_value(p, buf_str(&in), family == TIER_BLOBS ? s.nr_blobs_in : s.bytes_in);
		prom_value(p, buf_str(&out), family == TIER_BLOBS ? s.nr_blobs_out : s.bytes_out);
	}
}

static void write_tiers(struct prom *p, struct cas_fetch *fetch)
{
	static const struct {
		enum prom_type type;
		const char *name;
		const char *help;
	} families[NR_TIER] = {
		[TIER_REQUESTS] = {PROM_COUNTER, "casbox_tier_requests_total",
				   "Requests to a tier, retries included."},
		[TIER_ERRORS] = {PROM_COUNTER, "casbox_tier_errors_total",
				 "Those of them that failed."},
		[TIER_BLOBS] = {PROM_COUNTER, "casbox_tier_blobs_total", "Blobs that moved."},
		[TIER_BYTES] = {PROM_COUNTER, "casbox_tier_moved_bytes_total", "Bytes of these."},
		[TIER_PAUSED] = {PROM_GAUGE, "casbox_tier_paused",
				 "1 while it is given a rest after failures."},
	};

	for (int i = 0; i < NR_TIER; i++) {
		prom_family(p, families[i].type, families[i].name, families[i].help);
		for (size_t t = 0; fetch && t < cas_fetch_nr_tiers(fetch); t++)
			write_tier(p, cas_fetch_tier(fetch, t), (enum tier_family)i);
	}
}

static void write_prefetches(struct prom *p, struct fs_prefetches *all)
{
	struct fs_prefetch_stats s = {0};

	if (all)
		fs_prefetches_stats(all, &s);
	prom_family(p, PROM_COUNTER, "casbox_prefetch_commands_total",
		    "Trees and blobs that were to be prefetched, by how that ended.");
	prom_value(p, "state=\"done\"", s.nr_done);
	prom_value(p, "state=\"failed\"", s.nr_failed);
	prom_one(p, PROM_GAUGE, "casbox_prefetch_running", "Those under way.", s.nr_running);
	prom_one(p, PROM_COUNTER, "casbox_prefetch_blobs_total", "Blobs that these brought.",
		 s.nr_blobs);
	prom_one(p, PROM_COUNTER, "casbox_prefetch_received_bytes_total", "Bytes of these.",
		 s.bytes);
}

/* What was fetched for a habit: how much of it was of use, how much of what was needed. */
static void write_learn(struct prom *p, struct fs_learn *learn)
{
	struct fs_learn_stats s = {0};

	if (learn)
		fs_learn_stats(learn, &s);
	prom_one(p, PROM_GAUGE, "casbox_prefetch_habits", "Kinds of actions that are known.",
		 s.nr_habits);
	prom_family(
		p, PROM_COUNTER, "casbox_prefetch_learned_total",
		"Blobs fetched since similar actions read them, and those they did not tell of.");
	prom_value(p, "state=\"fetched\"", s.nr_foreseen);
	prom_value(p, "state=\"used\"", s.nr_used);
	prom_value(p, "state=\"unused\"", s.nr_unused);
	prom_value(p, "state=\"unforeseen\"", s.nr_unforeseen);
	prom_family(p, PROM_GAUGE, "casbox_prefetch_precision_ratio",
		    "Of the blobs that were fetched so: the part that was read.");
	prom_ratio(p, NULL, s.nr_used, s.nr_used + s.nr_unused);
	prom_family(p, PROM_GAUGE, "casbox_prefetch_recall_ratio",
		    "Of the blobs that were read and not here: the part that was fetched so.");
	prom_ratio(p, NULL, s.nr_used, s.nr_used + s.nr_unforeseen);
}

static void write_self(struct prom *p, const struct fs_metrics *m)
{
	struct fs_events_stats events;
	uint64_t now = (uint64_t)time(NULL);

	fs_events_stats(m->from.events, &events);
	prom_family(p, PROM_GAUGE, "casbox_daemon_info", "Always 1; the label says who it is.");
	prom_value(p, "version=\"" CASBOX_VERSION "\"", 1);
	prom_one(p, PROM_GAUGE, "casbox_daemon_uptime_seconds", "Since the mount began.",
		 now > (uint64_t)m->start_s ? now - (uint64_t)m->start_s : 0);
	prom_one(p, PROM_COUNTER, "casbox_events_total", "Lines of .casbox/events.",
		 events.nr_events);
	prom_one(p, PROM_COUNTER, "casbox_events_written_bytes_total", "Bytes of these.",
		 events.bytes);
	prom_one(p, PROM_GAUGE, "casbox_events_followers", "Opens of .casbox/events.",
		 events.nr_followers);
	prom_one(p, PROM_GAUGE, "casbox_events_kept_bytes", "How much of it can be read.",
		 events.kept_bytes);
}

int fs_metrics_write(struct fs_metrics *m, struct buf *out)
{
	struct prom p = {.out = out};
	struct sample at;

	lock_take(&m->lock);
	at = m->latest;
	lock_drop(&m->lock);
	write_self(&p, m);
	write_fuse(&p, m);
	write_slots(&p, m);
	write_sandboxes(&p, m);
	write_store(&p, m, &at);
	write_evictions(&p, m->from.guard);
	write_spool(&p, &at.spool);
	write_landing(&p, &at.landing);
	write_fetch(&p, m->from.fetch);
	write_tiers(&p, m->from.fetch);
	write_prefetches(&p, m->from.prefetches);
	write_learn(&p, m->from.learn);
	return p.ret;
}
