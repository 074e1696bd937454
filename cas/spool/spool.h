/* cas/spool/spool.h - accepted puts on their way to a slow blob directory */
#ifndef CAS_SPOOL_SPOOL_H
#define CAS_SPOOL_SPOOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct cas_store;
struct err;

/*
 * Where blobs live in a directory of their own (cas_store_options.blobs), which may be
 * slow, shared with other hosts, or away for a while: a put then ends when its bytes are
 * in STORE/spool/HH/HASH, and threads move them on. Readers find them there meanwhile.
 *
 * A spool file is accepted: complete, named by its hash, and the only record of the
 * intent to move it. It goes when its blob is in the blob directory for good.
 */

struct cas_spool_options {
	int nr_movers;	    /* at most; 0: 64, for they mostly wait */
	uint64_t max_bytes; /* a put that would exceed these waits; 0: 4 GiB */
	unsigned max_blobs; /* 0: 65536 */
	unsigned retry_ms;  /* after a first failure, then twice as long each time; 0: 100 */
	unsigned hold_ms;   /* see CAS_OWNER_HOLD_SEC; 0: that */
	/*
	 * Move whatever any process puts into the spool, until stopped. Others that find
	 * such a one at work on the same blob directory leave the moving to it.
	 */
	bool serve;
};

/*
 * From now on puts go through the spool. Does nothing for a store without a blob
 * directory of its own, or a read-only one. The catalog is set before and stays until
 * cas_spool_stop. -EBUSY: another process serves this spool already.
 */
int cas_spool_start(struct cas_store *store, const struct cas_spool_options *opts, struct err *err);

/* Ends the threads once each is done with its blob; the rest stays for the next start. */
void cas_spool_stop(struct cas_store *store);

enum cas_spool_whose {
	CAS_SPOOL_OWN, /* what this process accepted; nothing to do when another moves it */
	CAS_SPOOL_ALL, /* until the spool is empty, whoever moves */
};

/*
 * Wait. -EAGAIN: what is left could not be moved in several attempts; the message names
 * why. -ECANCELED: @cancel (may be NULL) became true.
 */
int cas_spool_drain(struct cas_store *store, enum cas_spool_whose whose, const _Atomic bool *cancel,
		    struct err *err);

/*
 * What waits to be moved, as this process knows it: no disk is looked at. Zero without a
 * spool.
 */
struct cas_spool_backlog {
	uint64_t blobs;
	uint64_t bytes;
	uint64_t oldest_ns; /* since the oldest of them was accepted; 0: none is known */
	uint64_t failing;   /* blobs whose last attempt failed */
};
void cas_spool_backlog(struct cas_store *store, struct cas_spool_backlog *out);

/*
 * What is in the spool on disk, by any process. What was damaged there is not moved: it is
 * kept under another name for two days.
 */
struct cas_spool_usage {
	uint64_t blobs;
	uint64_t results;
	uint64_t bytes;	    /* of both */
	uint64_t oldest_ns; /* since the oldest of them was accepted; 0: there is none */
	uint64_t damaged;
	uint64_t damaged_bytes;
};
int cas_spool_usage(struct cas_store *store, struct cas_spool_usage *out, struct err *err);

#endif
