/* cas/fetch/push.h - send blobs, trees and results to a tier, and bring them all from there */
#ifndef CAS_FETCH_PUSH_H
#define CAS_FETCH_PUSH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct cas_digest;
struct cas_fetch;
struct cas_store;
struct cas_tier;
struct err;

enum cas_push_kind {
	CAS_PUSH_BLOB,
	CAS_PUSH_TREE,	  /* a Directory and all below it */
	CAS_PUSH_ACTION,  /* the result of an action, and before it all that it names */
	CAS_PUSH_OUTPUTS, /* all that the ActionResult in that blob names */
};

/* Counted while it goes on; any thread may read. */
struct cas_push_progress {
	_Atomic uint64_t blobs; /* that moved, or were there already */
	_Atomic uint64_t bytes; /* that moved */
	_Atomic uint64_t total; /* bytes that are known to have to move */
	_Atomic uint64_t known; /* blobs that were there already */
	_Atomic bool cancel;	/* set by who wants an end: -ECANCELED */
};

/*
 * Send what the tier does not have: it is asked first, so what was interrupted goes on
 * where it ended. Files go before the Directories that name them, these from below to the
 * root, and a result goes last: whoever finds a name there finds what it stands for.
 * Errors as cas/tier.h for the tier, and as cas_store_open_blob for what is to be sent.
 */
int cas_push(struct cas_store *store, struct cas_tier *tier, enum cas_push_kind kind,
	     const struct cas_digest *digest, struct cas_push_progress *progress, struct err *err);

/*
 * Bring a blob, or a Directory and all below it, into the store. What is here already is
 * not asked for. Errors as cas_fetch_wait; what could be brought stays.
 */
int cas_pull(struct cas_store *store, struct cas_fetch *fetch, bool is_tree,
	     const struct cas_digest *digest, struct cas_push_progress *progress, struct err *err);

#endif
