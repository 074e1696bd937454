/* cas/store/blob_place.h - where a blob lies, for people */
#ifndef CAS_STORE_BLOB_PLACE_H
#define CAS_STORE_BLOB_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "cas/digest.h"

struct cas_store;

/* Paths are absolute and owned; NULL: it is not there. End with cas_blob_place_fini. */
struct cas_blob_place {
	char *path;	 /* in cas/ */
	uint64_t blocks; /* of 512 bytes */
	uint32_t mode;
	int64_t mtime_ns;
	bool hashed;	 /* it looks as it did when it was last hashed */
	char *spool;	 /* accepted, and on its way to cas/ */
	char *link_0444; /* what hardlink checkouts link */
	char *link_0555;
};

/* Hashes nothing, fetches nothing, counts as no use. -ENOMEM, or as a look at the files says. */
int cas_store_place(struct cas_store *store, const struct cas_digest *digest,
		    struct cas_blob_place *out);
void cas_blob_place_fini(struct cas_blob_place *place);

#endif
