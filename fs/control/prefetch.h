/* fs/control/prefetch.h - blobs that are brought from the tiers before anybody asks */
#ifndef FS_CONTROL_PREFETCH_H
#define FS_CONTROL_PREFETCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct cas_digest;
struct cas_fetch;
struct cas_store;
struct err;
struct fs_events;

/*
 * Whole trees, or blobs, in the background two at a time. Each tells of its progress by
 * events. Any thread.
 */
struct fs_prefetches;

/* All outlive it; @events may be NULL. */
int fs_prefetches_new(struct cas_store *store, struct cas_fetch *fetch, struct fs_events *events,
		      struct fs_prefetches **out);
/* No more are begun, and those that run end soon. NULL is fine, as for the next. */
void fs_prefetches_stop(struct fs_prefetches *all);
void fs_prefetches_free(struct fs_prefetches *all);

/* In the background: *id is how events name it. -ENOMEM, -ECANCELED: the daemon ends. */
int fs_prefetch_begin(struct fs_prefetches *all, const struct cas_digest *digest, bool is_tree,
		      uint64_t *id);
/* At once, by this thread, and into @answer what moved. As cas_pull. */
int fs_prefetch_now(struct fs_prefetches *all, const struct cas_digest *digest, bool is_tree,
		    json_t *answer, struct err *err);

/* Tell of those that run. Called now and then, by one thread. */
void fs_prefetches_tick(struct fs_prefetches *all);

struct fs_prefetch_stats {
	uint64_t nr_begun;
	uint64_t nr_done;
	uint64_t nr_failed;
	uint64_t nr_blobs; /* that had to come */
	uint64_t bytes;	   /* of them */
	uint64_t nr_running;
};
void fs_prefetches_stats(struct fs_prefetches *all, struct fs_prefetch_stats *out);

#endif
