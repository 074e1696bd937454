/* fs/report/metrics.h - what was counted, for Prometheus */
#ifndef FS_REPORT_METRICS_H
#define FS_REPORT_METRICS_H

struct buf;
struct cas_fetch;
struct cas_store;
struct control_guard;
struct control_quota;
struct fs_backing_table;
struct fs_events;
struct fs_learn;
struct fs_prefetches;
struct fs_pusher;
struct fs_sandboxes;
struct fs_session;
struct fs_slots;

/*
 * Counters are read where they are kept, without waiting for anybody; what only the disk
 * or the ledger knows (the store's size, the spool) is sampled in the background.
 */
struct fs_metrics;

/* All outlive it. Sessions and pusher are NULL until they are started. */
struct fs_metrics_sources {
	struct cas_store *store;
	struct fs_sandboxes *sandboxes;
	struct fs_slots *slots;
	struct fs_backing_table *backing;
	struct cas_fetch *fetch;	  /* may be NULL */
	struct fs_prefetches *prefetches; /* NULL with it */
	struct fs_learn *learn;		  /* as well */
	struct fs_events *events;
	const struct control_quota *quota;
	const struct control_guard *guard;
	struct fs_pusher *_Atomic *pusher;
	struct fs_session *_Atomic *one;
	struct fs_session *_Atomic *two;
};

int fs_metrics_new(const struct fs_metrics_sources *sources, struct fs_metrics **out);
void fs_metrics_free(struct fs_metrics *metrics);

/* Look at what has to be waited for. One thread, now and then. */
void fs_metrics_sample(struct fs_metrics *metrics);

/* Append all of them. Any thread; does not wait. -ENOMEM. */
int fs_metrics_write(struct fs_metrics *metrics, struct buf *out);

#endif
