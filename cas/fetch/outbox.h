/* cas/fetch/outbox.h - what has still to be sent to the writable tiers */
#ifndef CAS_FETCH_OUTBOX_H
#define CAS_FETCH_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>

#include "cas/fetch/push.h"

struct cas_digest;
struct cas_fetch;
struct cas_outbox;
struct cas_store;
struct err;

/*
 * A file STORE/outbox/KIND-HASH-SIZE for each tree, blob, result or set of outputs on its
 * way, made when that is stored and removed when every writable tier has it. So what a
 * killed process has left is sent by whoever comes next, and while a tier is away things
 * wait here. Eviction leaves alone what they need.
 *
 * A daemon serves it: a thread sends, and tries again later what failed. Another process
 * sends its own before it ends.
 */

/* Attach to @store. *out is NULL when no tier of @fetch is writable. */
int cas_outbox_open(struct cas_store *store, struct cas_fetch *fetch, bool serve,
		    struct cas_outbox **out, struct err *err);
/* What is being sent is cut off and stays. */
void cas_outbox_close(struct cas_outbox *outbox);

/* The store's, or NULL: there is nothing to do. */
struct cas_outbox *cas_outbox_of(const struct cas_store *store);

/* To be sent from now on. NULL is fine. */
int cas_outbox_add(struct cas_outbox *outbox, enum cas_push_kind kind,
		   const struct cas_digest *digest, struct err *err);
/* All that the ActionResult @data names; it is stored as a blob to know it by. */
int cas_outbox_add_outputs(struct cas_outbox *outbox, const void *data, size_t len,
			   struct err *err);

/*
 * Send all of it now, leftovers of others included; for who does not serve. 0, or why the
 * first of those that failed did; they stay unless another try cannot help.
 */
int cas_outbox_send(struct cas_outbox *outbox, struct cas_push_progress *progress, struct err *err);

/* How many wait, by any process. */
size_t cas_outbox_count(struct cas_store *store);

/* As cas_evict_roots.each: what those that wait need. Without an outbox open, too. */
int cas_outbox_roots(struct cas_store *store,
		     int (*root)(void *arg, const struct cas_digest *d, bool is_directory),
		     void *arg, struct err *err);

#endif
