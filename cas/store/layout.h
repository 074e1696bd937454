/* cas/store/layout.h - names on disk, store version 1 (design section 5) */
#ifndef CAS_STORE_LAYOUT_H
#define CAS_STORE_LAYOUT_H

#include "cas/digest.h"

#define CAS_LAYOUT_VERSION_LINE "casbox-store 1 sha256\n"
#define CAS_LAYOUT_NR_SHARDS	256
/* "HH/" and 64 digits, NUL */
#define CAS_LAYOUT_PATH_SZ (3 + CAS_HASH_HEX_SZ + 1)

/* HH/HASH, relative to cas/, ac/, spool/ or links/0444. */
void cas_layout_path(const uint8_t hash[CAS_HASH_SZ], char out[CAS_LAYOUT_PATH_SZ]);

/* The shard of a hash: its first byte, 0 to 255. */
static inline unsigned cas_layout_shard(const uint8_t hash[CAS_HASH_SZ])
{
	return hash[0];
}

/* Lock file bytes (OFD locks): 0 is the writer's, 1 + shard is publish against evict. */
#define CAS_LAYOUT_LOCK_WRITER	     0
#define CAS_LAYOUT_LOCK_SHARD(shard) (1 + (shard))
#define CAS_LAYOUT_LOCK_LINKS	     (1 + CAS_LAYOUT_NR_SHARDS) /* clearing links/ after a boot */
#define CAS_LAYOUT_LOCK_LEASE	     (2 + CAS_LAYOUT_NR_SHARDS) /* shared: no eviction */

#endif
