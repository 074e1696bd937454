/* cas/put/put_i.h - what the files of the put share */
#ifndef CAS_PUT_PUT_I_H
#define CAS_PUT_PUT_I_H

#include <stdbool.h>
#include <stddef.h>

#include "cas/digest.h"
#include "cas/put/tmp.h"

struct cas_store;
struct err;
struct watch;

/* The bytes of a blob before it is published: in memory when @tmp has no file, else there. */
struct cas_put_bytes_at {
	const void *data;
	struct cas_tmp *tmp;
	bool moved;		   /* from the spool, whose file's lock we hold */
	const struct watch *watch; /* of a copy; may be NULL */
};

/*
 * Publish bytes that are known to hash to @digest, unless the right blob is there.
 * Names and descriptors of @from stay the caller's to release.
 */
int cas_publish(struct cas_store *store, const struct cas_digest *digest,
		const struct cas_put_bytes_at *from, struct err *err);

/* The same past the spool, into the blob directory itself. */
int cas_publish_direct(struct cas_store *store, const struct cas_digest *digest,
		       const struct cas_put_bytes_at *from, struct err *err);

/*
 * The last steps, for a file that has its mode, owner and bytes: durable as configured,
 * its name, its row. -EEXIST: something took the name meanwhile.
 */
int cas_publish_tmp(struct cas_store *store, const struct cas_digest *digest, struct cas_tmp *tmp,
		    struct err *err);

/* -EROFS with words, or 0. */
int cas_put_check_writable(const struct cas_store *store, struct err *err);

#endif
