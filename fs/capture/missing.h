/* fs/capture/missing.h - inputs that a sandbox wanted and could not have */
#ifndef FS_CAPTURE_MISSING_H
#define FS_CAPTURE_MISSING_H

#include <jansson.h>
#include <stdint.h>

struct cas_digest;
struct cas_store;
struct meta;

/*
 * Which blobs of the tree @root did somebody want in vain since @since_ns
 * (CLOCK_REALTIME)? An array as REAPI's PreconditionFailure tells it, perhaps empty:
 * {"type": "MISSING", "subject": "blobs/HASH/SIZE"}. NULL: no memory. Costs nothing while
 * nothing is missing; else the tree is walked, as far as it is here.
 */
json_t *fs_missing_list(struct cas_store *store, struct meta *meta, const struct cas_digest *root,
			int64_t since_ns);

#endif
