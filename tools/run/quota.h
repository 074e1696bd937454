/* tools/run/quota.h - keep the store as small as it was told to, where no daemon does */
#ifndef TOOLS_RUN_QUOTA_H
#define TOOLS_RUN_QUOTA_H

#include <stddef.h>
#include <stdint.h>

struct cas_ingest_result;
struct cas_store;
struct cli;
struct meta_stat;

/*
 * After a put: evict when the store is above its quota and no daemon serves it, which
 * would do so. What was put (@more, @nr) counts as needed, so that nothing that was just
 * acknowledged goes; what then is too much is told as a warning, like every failure.
 */
void quota_enforce(struct cli *cli, const struct cas_ingest_result *more, size_t nr);

/* Bytes above --max-size, variants that no checkout links included. */
uint64_t quota_excess(const struct cli *cli, struct cas_store *store, const struct meta_stat *stat);

#endif
