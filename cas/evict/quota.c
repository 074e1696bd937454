/* cas/evict/quota.c - how large a store may become, and when it is too large */
#include "cas/evict/quota.h"

#include <sys/statvfs.h>

#include "cas/catalog.h"
#include "cas/evict/evict.h"
#include "cas/store/store_i.h"

#define INODES_SHARE 100 /* one in so many should be free */
#define BLOBS_SHARE  10	 /* one in so many goes otherwise */

bool cas_quota_is_set(const struct cas_quota *quota)
{
	return quota->max_bytes != CAS_QUOTA_NONE || quota->max_blobs != CAS_QUOTA_NONE;
}

void cas_quota_target(const struct cas_quota *quota, struct cas_evict_options *out)
{
	out->max_bytes = quota->max_blobs == 0 ? 0 : quota->max_bytes;
	/* No limit is 0 there. */
	out->max_blobs = quota->max_blobs == CAS_QUOTA_NONE ? 0 : quota->max_blobs;
}

/* Nine tenths, without overflow. */
static uint64_t below(uint64_t max)
{
	return max - max / 10;
}

static uint64_t low_bytes(const struct cas_quota *quota)
{
	if (quota->low_bytes == CAS_QUOTA_NONE)
		return below(quota->max_bytes);
	return quota->low_bytes < quota->max_bytes ? quota->low_bytes : quota->max_bytes;
}

static bool inodes_are_short(struct cas_store *store)
{
	struct statvfs fs;

	/* Filesystems that make inodes as they need them tell of none. */
	return fstatvfs(store->cas_fd, &fs) == 0 && fs.f_files > 0 &&
	       fs.f_ffree < fs.f_files / INODES_SHARE;
}

int cas_quota_exceeded(struct cas_store *store, const struct cas_quota *quota, uint64_t extra_bytes,
		       struct cas_evict_options *out)
{
	const struct cas_catalog *cat = store->catalog;
	struct cas_usage usage;
	struct cas_evict_options opts = {.max_bytes = CAS_QUOTA_NONE, .quick = true};
	bool exceeded = false;

	if (!cas_quota_is_set(quota) || cat->ops->usage(cat->ctx, &usage) != 1)
		return 0;
	if (usage.disk + extra_bytes > quota->max_bytes) {
		opts.max_bytes = low_bytes(quota);
		exceeded = true;
	}
	if (usage.blobs > quota->max_blobs) {
		opts.max_blobs = below(quota->max_blobs);
		/* No limit is 0 there. */
		if (quota->max_blobs == 0)
			opts.max_bytes = 0;
		exceeded = true;
	} else if (usage.blobs > BLOBS_SHARE && inodes_are_short(store)) {
		opts.max_blobs = usage.blobs - usage.blobs / BLOBS_SHARE;
		exceeded = true;
	}
	if (exceeded)
		*out = opts;
	return exceeded;
}

static int add_variant(void *ctx, const struct cas_walk_item *item)
{
	uint64_t *bytes = ctx;

	if (item->kind == CAS_WALK_ENTRY && item->st.st_nlink == 1)
		*bytes += (uint64_t)item->st.st_blocks * 512;
	return 0;
}

int cas_quota_variants(struct cas_store *store, uint64_t *bytes, struct err *err)
{
	static const char *const tops[2] = {"links/0444", "links/0555"};
	uint64_t sum = 0;
	int ret = 0;

	for (unsigned i = 0; i < 2 * CAS_LAYOUT_NR_SHARDS && ret == 0; i++) {
		if (store->link_fd[i % 2] >= 0)
			ret = cas_walk_shard(store->link_fd[i % 2], tops[i % 2], i / 2, add_variant,
					     &sum, err);
	}
	if (ret == 0)
		*bytes = sum;
	return ret;
}

uint64_t cas_quota_excess(const struct cas_quota *quota, uint64_t disk)
{
	return disk > quota->max_bytes ? disk - quota->max_bytes : 0;
}
