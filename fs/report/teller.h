/* fs/report/teller.h - events that nobody else is there to tell of */
#ifndef FS_REPORT_TELLER_H
#define FS_REPORT_TELLER_H

struct cas_fetch;
struct fs_events;
struct fs_metrics;
struct fs_prefetches;

/*
 * A thread that looks once a second: at the tiers, of which it tells when requests fail,
 * when one is given a rest and when it answers again; at the progress of prefetches; and
 * at what metrics only sample.
 */
struct fs_teller;

/* All outlive it; @fetch and @prefetches may be NULL. */
int fs_teller_new(struct fs_events *events, struct cas_fetch *fetch,
		  struct fs_prefetches *prefetches, struct fs_metrics *metrics,
		  struct fs_teller **out);
/* NULL is fine. */
void fs_teller_free(struct fs_teller *teller);

#endif
