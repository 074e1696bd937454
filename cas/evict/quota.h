/* cas/evict/quota.h - how large a store may become, and when it is too large */
#ifndef CAS_EVICT_QUOTA_H
#define CAS_EVICT_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

struct cas_evict_options;
struct cas_evict_result;
struct cas_evict_roots;
struct cas_store;
struct err;

#define CAS_QUOTA_NONE UINT64_MAX

/*
 * Above a high mark the store is brought down to the low one: bytes on the disk, or a
 * number of blobs. CAS_QUOTA_NONE: no limit; a low mark of that is nine tenths of the high
 * one. With a limit the filesystem's inodes count, too: below a hundredth of them free, a
 * tenth of the blobs goes.
 */
struct cas_quota {
	uint64_t max_bytes;
	uint64_t low_bytes;
	uint64_t max_blobs;
};

bool cas_quota_is_set(const struct cas_quota *quota);

/* The high marks themselves as what to come down to. */
void cas_quota_target(const struct cas_quota *quota, struct cas_evict_options *out);

/*
 * 1 and *out filled in when something has to go, 0 when nothing or when nobody knows. Asks
 * the catalog for the sums. @extra_bytes is what takes room beside the blobs (variants).
 */
int cas_quota_exceeded(struct cas_store *store, const struct cas_quota *quota, uint64_t extra_bytes,
		       struct cas_evict_options *out);

/* Bytes of variants that no checkout links: they count as the store's. */
int cas_quota_variants(struct cas_store *store, uint64_t *bytes, struct err *err);

/*
 * What is needed may be more than fits; it stays then, in excess for a while. Bytes that
 * the store is above its high mark after an eviction.
 */
uint64_t cas_quota_excess(const struct cas_quota *quota, uint64_t disk);

#endif
