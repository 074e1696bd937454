/* tools/cmd/roots.h - what live sandboxes, their results and pins need */
#ifndef TOOLS_CMD_ROOTS_H
#define TOOLS_CMD_ROOTS_H

#include <stddef.h>
#include <stdint.h>

#include "cas/evict/evict.h"

struct cas_ingest_result;
struct cas_store;

/*
 * Roots read from STORE/sandboxes and STORE/pins, for an eviction without a daemon, and a
 * few more; @more lives as long as the eviction. A record that cannot be read fails the
 * walk: what it needs is unknown, so nothing may go.
 */
struct roots_more {
	struct cas_store *store;
	const struct cas_ingest_result *more;
	size_t nr;
	int64_t pins_ns; /* ours */
};
struct cas_evict_roots roots_and_more(struct roots_more *more);

/*
 * As control_pin_add, between two batches of an eviction. -EBUSY: one has been at it for
 * seconds. -EROFS: a read-only store.
 */
int roots_pin(struct cas_store *store, const struct cas_digest *digest, struct err *err);

#endif
