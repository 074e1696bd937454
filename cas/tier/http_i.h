/* cas/tier/http_i.h - the transport over HTTP, for those that are like it */
#ifndef CAS_TIER_HTTP_I_H
#define CAS_TIER_HTTP_I_H

#include <stdbool.h>

#include "cas/tier/curl.h"
#include "cas/tier/transport.h"

struct http_tier {
	struct tier_curl *curl;
	char *base;	  /* URL of what cas/ and ac/ are below; no slash at its end */
	bool hashed;	  /* blobs are sent with their hash in a header, as S3 signs it */
	uint64_t part_sz; /* S3: larger blobs go in parts */
};

/* The URL of a blob ("cas") or a result ("ac"), to be freed; NULL: no memory. */
char *tier_http_url(const struct http_tier *t, const char *kind, const struct cas_digest *digest);

/* As struct tier_transport; @ctx is a struct http_tier, which close frees. */
int tier_http_get(void *ctx, const struct cas_digest *digest, uint64_t offset, uint64_t len,
		  const struct cas_sink *sink, struct cas_call *call, struct err *err);
int tier_http_get_many(void *ctx, const struct cas_digest *digests, size_t nr,
		       cas_tier_each_fn each, void *each_ctx, struct cas_call *call,
		       struct err *err);
int tier_http_find_missing(void *ctx, const struct cas_digest *digests, size_t nr, bool *missing,
			   struct cas_call *call, struct err *err);
int tier_http_put(void *ctx, const struct cas_digest *digest, const struct cas_source *source,
		  struct cas_call *call, struct err *err);
int tier_http_action_get(void *ctx, const struct cas_digest *action, struct buf *out,
			 struct cas_call *call, struct err *err);
int tier_http_action_put(void *ctx, const struct cas_digest *action, const void *data, size_t len,
			 struct cas_call *call, struct err *err);
void tier_http_close(void *ctx);

#endif
