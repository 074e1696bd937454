/* cas/put/tmp_pool.h - files without a name that are ready for blobs to come */
#ifndef CAS_PUT_TMP_POOL_H
#define CAS_PUT_TMP_POOL_H

#include <stdbool.h>

struct cas_store;
struct cas_tmp;

/*
 * For a process that puts small blobs while somebody waits: files that were made beforehand,
 * by whoever has the time. Empty where there are no unnamed files. Before other threads use
 * the store; it ends with the store. -ENOMEM.
 */
int cas_tmp_pool_new(struct cas_store *store);
/* Make as many as it holds. Any thread; nothing happens without a pool. */
void cas_tmp_pool_fill(struct cas_store *store);

/* For the put: true and one, not yet dressed, that may turn out not to be linkable. */
bool cas_tmp_pool_take(const struct cas_store *store, struct cas_tmp *out);
/* By the store as it is closed. */
void cas_tmp_pool_free(struct cas_store *store);

#endif
