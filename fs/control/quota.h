/* fs/control/quota.h - a daemon keeps its store as small as it was told to */
#ifndef FS_CONTROL_QUOTA_H
#define FS_CONTROL_QUOTA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cas/evict/quota.h"

struct control_env;
struct cas_evict_options;
struct cas_evict_result;
struct err;

/*
 * What the background has done about the quota, and what it still knows. @excess_bytes
 * and the counts may be read by any thread; the rest is the caller's of control_quota.
 */
struct control_quota {
	struct cas_quota limit;
	_Atomic uint64_t excess_bytes; /* that live sandboxes and pins need above the limit */
	_Atomic uint64_t evictions;
	_Atomic uint64_t evicted_blobs;
	_Atomic uint64_t evicted_bytes;
	uint64_t variant_bytes;
	unsigned long long variants_ns; /* when they were looked at; 0: never */
	unsigned long long again_ns;	/* in excess, or failed: not before, */
	size_t nr_sandboxes;		/* unless another number of them lives */
};

/* Look, and evict when there is too much. May block for long; one thread calls it. */
void control_quota(const struct control_env *env, struct control_quota *quota);

/*
 * One eviction at a time, with everything that the daemon knows to be needed. -EBUSY with
 * @wait false: there is one already.
 */
int control_evict(const struct control_env *env, const struct cas_evict_options *opts, bool wait,
		  struct cas_evict_result *out, struct err *err);

#endif
