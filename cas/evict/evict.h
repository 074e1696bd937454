/* cas/evict/evict.h - make room, never at the cost of what is needed */
#ifndef CAS_EVICT_EVICT_H
#define CAS_EVICT_EVICT_H

#include <stdbool.h>
#include <stdint.h>

#include "cas/digest.h"

struct cas_store;
struct err;

/*
 * Who is needed: @each calls @root for each live input root, pinned root and result, with
 * is_directory telling whether the closure below counts too. May block.
 *
 * Blobs go in small batches, each between @freeze and @thaw; no root may be added
 * meanwhile. @freeze sets *changed when roots may have been added since the last call, or
 * for the first one since the eviction began: @each is then asked again. It returns 0, or
 * -EBUSY at once when somebody adds one slowly: nothing is frozen, and it is asked again a
 * little later. Both are NULL where nobody adds any.
 */
struct cas_evict_roots {
	int (*each)(void *ctx,
		    int (*root)(void *arg, const struct cas_digest *d, bool is_directory),
		    void *arg, struct err *err);
	int (*freeze)(void *ctx, bool *changed);
	void (*thaw)(void *ctx);
	void *ctx;
};

struct cas_evict_options {
	uint64_t max_bytes; /* target: bytes on disk (blocks) of cas/ and unlinked variants */
	uint64_t max_blobs; /* 0: as many as there are */
	bool dry_run;
	bool quick; /* pass over temporaries and what was moved aside: no shard is listed */
};

struct cas_evict_result {
	uint64_t before_bytes;
	uint64_t after_bytes;
	uint64_t after_blobs;
	uint64_t freed_bytes;
	uint64_t freed_blobs;
	uint64_t kept_live_bytes;   /* would have gone, but is needed */
	uint64_t freed_temporaries; /* stale temporaries and link variants removed */
};

/*
 * Link variants first, then ActionResults that would dangle, then blobs by last use.
 * Holds the writer's lock through the caller and each shard's exclusively for one
 * unlink at a time; a busy shard is skipped. Above the target afterwards is no error.
 * One at a time in a process.
 */
int cas_evict(struct cas_store *store, const struct cas_evict_options *opts,
	      const struct cas_evict_roots *roots, struct cas_evict_result *out, struct err *err);

/*
 * A number that has changed when blobs were evicted, by any process, since it was asked
 * for before. Whoever stores a tree asks before, and again when its use is recorded: if it
 * changed, something that was found to be there may be gone, and the tree has to be
 * stored once more. Waits for removals that are under way, half a second at most; what
 * cannot be waited for counts as a change. Not while another thread bars eviction.
 */
uint64_t cas_evict_epoch(struct cas_store *store);

/*
 * From here to the drop no process evicts a blob; for who stored a tree several times over
 * and always lost something. -EBUSY: an eviction has been at it for seconds.
 */
int cas_evict_bar(struct cas_store *store);
void cas_evict_unbar(struct cas_store *store);

#endif
