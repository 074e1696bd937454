/* cas/store/store_missed.c - blobs that were wanted lately and not to be had */
#include <time.h>

#include "cas/store/store_i.h"

void cas_store_note_missed(struct cas_store *store, const struct cas_digest *digest)
{
	struct cas_missed *place = &store->missed[0];
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	lock_take(&store->missed_lock);
	/* In the place of the same, or of the oldest. */
	for (size_t i = 0; i < CAS_STORE_MISSED_MAX; i++) {
		struct cas_missed *m = &store->missed[i];

		if (m->when_ns && cas_digest_equal(&m->digest, digest)) {
			place = m;
			break;
		}
		if (m->when_ns < place->when_ns)
			place = m;
	}
	place->digest = *digest;
	place->when_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
	lock_drop(&store->missed_lock);
}

size_t cas_store_missed_since(struct cas_store *store, int64_t since_ns,
			      struct cas_digest out[CAS_STORE_MISSED_MAX])
{
	size_t nr = 0;

	lock_take(&store->missed_lock);
	for (size_t i = 0; i < CAS_STORE_MISSED_MAX; i++) {
		if (store->missed[i].when_ns && store->missed[i].when_ns >= since_ns)
			out[nr++] = store->missed[i].digest;
	}
	lock_drop(&store->missed_lock);
	return nr;
}
