/* fs/report/fetch_stats.h - what came from tiers and went there, for `stats` */
#ifndef FS_REPORT_FETCH_STATS_H
#define FS_REPORT_FETCH_STATS_H

#include <jansson.h>

struct cas_fetch;
struct cas_store;
struct fs_learn;

/* Add "fetch", "tiers", "outbox" and "learned" to @out; nothing without a fetcher. 0 or -ENOMEM. */
int fs_fetch_report(struct cas_store *store, struct cas_fetch *fetch, struct fs_learn *learn,
		    json_t *out);

#endif
