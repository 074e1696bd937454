/* cas/tier/transport.h - what one kind of tier implements */
#ifndef CAS_TIER_TRANSPORT_H
#define CAS_TIER_TRANSPORT_H

#include <stdint.h>

#include "cas/tier.h"

struct tier_url;

/*
 * A transport makes one attempt of one operation. It must not try again, wait for a slot,
 * or look at policy: cas/tier.c does, and never hands it the empty blob.
 *
 * Each operation returns what cas/tier.h lists, blocks no longer than @call allows
 * (cas_call_left_ms before each wait, with cas_call_register for what cancels it), and
 * says in @err what was asked of whom, without a credential. On -EAGAIN it may leave the
 * server's wish (Retry-After, RetryInfo) in call->retry_after_ms.
 *
 * Any number of threads call at the same time. An operation that is NULL is not there
 * (-EOPNOTSUPP, or done in terms of others). Those of a digest are for blobs of up to
 * INT64_MAX bytes: stream, hold no more than a few hundred KiB.
 */
struct tier_transport {
	/* Bytes from @offset on, @len of them or (0) to the end. Fewer is -EAGAIN. */
	int (*get)(void *ctx, const struct cas_digest *digest, uint64_t offset, uint64_t len,
		   const struct cas_sink *sink, struct cas_call *call, struct err *err);
	/* NULL: one get each. What was not reported when it fails is tried again. */
	int (*get_many)(void *ctx, const struct cas_digest *digests, size_t nr,
			cas_tier_each_fn each, void *each_ctx, struct cas_call *call,
			struct err *err);
	/* NULL: not known; the caller asks for one level after the other. */
	int (*get_tree)(void *ctx, const struct cas_digest *root,
			int (*each)(void *each_ctx, const void *data, size_t len), void *each_ctx,
			struct cas_call *call, struct err *err);
	int (*find_missing)(void *ctx, const struct cas_digest *digests, size_t nr, bool *missing,
			    struct cas_call *call, struct err *err);
	/* -EEXIST is not an error here: 0 when the tier has it, by us or before. */
	int (*put)(void *ctx, const struct cas_digest *digest, const struct cas_source *source,
		   struct cas_call *call, struct err *err);
	/* NULL: one put each. As get_many. */
	int (*put_many)(void *ctx, const struct cas_digest *digests,
			const struct cas_source *sources, size_t nr, cas_tier_each_fn each,
			void *each_ctx, struct cas_call *call, struct err *err);
	int (*action_get)(void *ctx, const struct cas_digest *action, struct buf *out,
			  struct cas_call *call, struct err *err);
	int (*action_put)(void *ctx, const struct cas_digest *action, const void *data, size_t len,
			  struct cas_call *call, struct err *err);
	/* No operation is running. */
	void (*close)(void *ctx);
};

/* A scheme, and how to open it. @options: names of the URL's options that it reads, NULL last. */
struct tier_scheme {
	const char *scheme;
	const struct tier_transport *ops;
	const char *const *options;
	/* Parse, read files of credentials, make tables; speak to nobody. @url is borrowed. */
	int (*open)(const struct tier_url *url, void **ctx, struct err *err);
};

extern const struct tier_scheme tier_scheme_file;
extern const struct tier_scheme tier_scheme_http; /* with libcurl */
extern const struct tier_scheme tier_scheme_https;
extern const struct tier_scheme tier_scheme_s3;
extern const struct tier_scheme tier_scheme_grpc; /* with gRPC core */
extern const struct tier_scheme tier_scheme_grpcs;

/* Read up to @len bytes at @offset of a source; the count, 0 at the end, negative. */
int64_t tier_source_read(const struct cas_source *source, uint64_t size, uint64_t offset,
			 void *data, size_t len);

#endif
