/* cas/tier.h - other places that blobs come from and go to */
#ifndef CAS_TIER_H
#define CAS_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cas/base/call.h"
#include "cas/digest.h"

struct buf;
struct err;

/*
 * One tier: a transport that speaks to a shared directory or a service
 * (cas/tier/transport.h), and around it what all of them need: an overall deadline,
 * retries with backoff and jitter, a limit of requests at a time, and a circuit breaker.
 * Any number of threads may use one.
 *
 * It is named by a URL, and everything after the '?' is ours, none of it is sent:
 *
 *   write=yes        may be written to; otherwise it is only read
 *   deadline=30s     without progress, an operation ends after that long, retries included
 *   tries=4          attempts of one operation, at most
 *   parallel=32      requests at a time; half of them for work that nobody waits for
 *
 * and what the transport's file adds. Credentials are given as paths of files.
 *
 * The empty blob is never asked for, nor sent: every tier has it.
 *
 * Nothing that comes from a tier is believed: a get streams what the tier sends, and
 * whoever publishes it compares the hash (cas/put/put.h). An answer that is shorter or longer
 * than the digest says is refused here.
 *
 * What an operation may return, besides 0; nothing else is returned by any tier:
 *
 *   -ENOENT       the tier answered, and does not have it
 *   -EAGAIN       it failed in a way that another time may not: no connection, a reset, an
 *                 answer that ended early, a server error, or the breaker is open
 *   -ETIMEDOUT    the deadline is over
 *   -ECANCELED    the call was cancelled
 *   -EACCES       it wants other credentials, or does not allow this with them
 *   -EROFS        it is read-only: as configured, or as it says itself
 *   -ENOSPC       it has no room (or its quota is used up)
 *   -EFBIG        it takes no blob of this size
 *   -EBADMSG      what it sent cannot be the blob; for a put: it says so of what we sent
 *   -EPROTO       an answer that this kind of service does not give
 *   -EOPNOTSUPP   it does not know the operation
 *   -ENOMEM, or an errno of the sink or the source: ours, not the tier's
 *
 * All functions may block until the call's deadline, hold no lock while they do, and take
 * none of the store's; they must not be called by threads that answer the kernel.
 */
struct cas_tier;

/*
 * -EINVAL: a URL that no transport understands, an unknown or malformed option, or
 * credentials inside the URL. -ENOENT, -EACCES: a file of credentials. Nobody is asked
 * yet. The message never holds what a file of credentials contains.
 */
int cas_tier_open(const char *url, struct cas_tier **out, struct err *err);
/* No operation may be running. */
void cas_tier_close(struct cas_tier *tier);

/* The URL without its options. */
const char *cas_tier_name(const struct cas_tier *tier);
bool cas_tier_is_writable(const struct cas_tier *tier);
/* Can it do get_many, put_many, or get_tree, in fewer round trips than one a blob? */
bool cas_tier_gets_batches(const struct cas_tier *tier);
bool cas_tier_puts_batches(const struct cas_tier *tier);
bool cas_tier_has_trees(const struct cas_tier *tier);

/* Takes bytes in order; non-zero stops the transfer and is returned. May block. */
struct cas_sink {
	int (*write)(void *ctx, const void *data, size_t len, struct err *err);
	/* Forget what was written: it starts anew. NULL: the sink cannot. */
	int (*restart)(void *ctx, struct err *err);
	void *ctx;
};

/* Bytes to send: of the file @fd (by pread, its offset does not matter), or in memory. */
struct cas_source {
	int fd; /* -1: @data */
	const void *data;
};

/*
 * Stream a blob into @sink. An attempt that ends early is taken up where it ended.
 * -EBADMSG: more bytes came than the blob has.
 */
int cas_tier_get(struct cas_tier *tier, const struct cas_digest *digest,
		 const struct cas_sink *sink, struct cas_call *call, struct err *err);

/*
 * @len bytes from @offset on, which must lie inside the blob. Nobody can tell whether they
 * are right: never publish or serve them. -EOPNOTSUPP: this tier sends whole blobs only.
 */
int cas_tier_get_range(struct cas_tier *tier, const struct cas_digest *digest, uint64_t offset,
		       uint64_t len, const struct cas_sink *sink, struct cas_call *call,
		       struct err *err);

/*
 * One blob of a batch: @status 0 and its bytes, or why it did not come (as above). @index
 * is the one in the request. Called from the thread that called get_many, once for each.
 */
typedef int (*cas_tier_each_fn)(void *ctx, size_t index, int status, const void *data, size_t len);

/*
 * Many small blobs in as few round trips as the tier can; it splits by its own limits,
 * and a blob above them is reported as -EFBIG. Non-zero from @each stops and is returned.
 * 0 says only that each was reported.
 */
int cas_tier_get_many(struct cas_tier *tier, const struct cas_digest *digests, size_t nr,
		      cas_tier_each_fn each, void *ctx, struct cas_call *call, struct err *err);

/*
 * All Directories below @root that the tier has, itself included, in any order, each
 * perhaps more than once; what is missing is left out in silence. @each gets the encoded
 * message, whose digest it must find out itself. -ENOENT: the root is not there.
 * -EOPNOTSUPP: this tier cannot.
 */
int cas_tier_get_tree(struct cas_tier *tier, const struct cas_digest *root,
		      int (*each)(void *ctx, const void *data, size_t len), void *ctx,
		      struct cas_call *call, struct err *err);

/* Which of these does it lack? Fills in missing[nr]; the others are kept for a while. */
int cas_tier_find_missing(struct cas_tier *tier, const struct cas_digest *digests, size_t nr,
			  bool *missing, struct cas_call *call, struct err *err);

/* Store a blob; the tier may have it already. */
int cas_tier_put(struct cas_tier *tier, const struct cas_digest *digest,
		 const struct cas_source *source, struct cas_call *call, struct err *err);

/* As get_many: @status of each blob goes to @each, without bytes. */
int cas_tier_put_many(struct cas_tier *tier, const struct cas_digest *digests,
		      const struct cas_source *sources, size_t nr, cas_tier_each_fn each, void *ctx,
		      struct cas_call *call, struct err *err);

/* An encoded ActionResult by the digest of its Action. get appends to @out. */
int cas_tier_action_get(struct cas_tier *tier, const struct cas_digest *action, struct buf *out,
			struct cas_call *call, struct err *err);
int cas_tier_action_put(struct cas_tier *tier, const struct cas_digest *action, const void *data,
			size_t len, struct cas_call *call, struct err *err);

/* What happened so far, for stat and metrics. */
struct cas_tier_stats {
	uint64_t nr_requests; /* attempts that reached the transport */
	uint64_t nr_failures; /* of them; refused credentials count, too */
	uint64_t nr_blobs_in;
	uint64_t bytes_in;
	uint64_t nr_blobs_out;
	uint64_t bytes_out;
	bool broken; /* the breaker is open */
};
void cas_tier_stats(struct cas_tier *tier, struct cas_tier_stats *out);

/* Bytes of one ActionResult that we accept. */
#define CAS_TIER_ACTION_MAX (16u << 20)

#endif
