/* cas/tier/reapi_i.h - a REAPI service, for the files that speak to it */
#ifndef CAS_TIER_REAPI_I_H
#define CAS_TIER_REAPI_I_H

#include "cas/base/lock.h"
#include "cas/tier/grpc.h"
#include "cas/tier/transport.h"

#define REAPI_SHA256 1
#define REAPI_ZSTD   1
/* Below this, compressing saves nothing that is worth it. */
#define REAPI_ZSTD_MIN 1024
#define REAPI_UPLOADS  32

#define REAPI_CAS "/build.bazel.remote.execution.v2.ContentAddressableStorage/"

/* What the server says it can. */
struct reapi_caps {
	bool known;
	bool zstd;	    /* of streams */
	bool zstd_batch;    /* of blobs that are sent in batches; it says nothing of the others */
	bool no_actions;    /* takes no results */
	uint64_t batch_max; /* bytes of a batch, of our own limit too */
	uint64_t blob_max;  /* 0: no limit */
};

/* An upload that ended early, to be taken up again. */
struct reapi_upload {
	struct cas_digest digest;
	char uuid[TIER_UUID_SZ]; /* "": none that could be */
	bool used;
};

struct reapi {
	struct tier_grpc *grpc;
	char *name;	/* for messages */
	char *instance; /* "" or its name */
	char *prefix;	/* of resource names: "" or "INSTANCE/" */
	bool compress;
	_Atomic bool no_unzstd; /* what it compressed could not be read once */
	_Atomic bool no_trees;
	struct lock lock; /* a leaf; guards the rest */
	struct reapi_caps caps;
	struct reapi_upload uploads[REAPI_UPLOADS];
	unsigned next_upload; /* which is replaced when all are used */
};

/* What it can; asks with the first call. -EOPNOTSUPP: it knows no SHA-256. */
int reapi_caps_get(struct reapi *r, struct reapi_caps *out, struct cas_call *call, struct err *err);
/* It refused what it said it can: ask again. */
void reapi_caps_forget(struct reapi *r);

/* A Digest message of @digest, as long as @hash lives. */
void reapi_digest(const struct cas_digest *digest, char hash[CAS_HASH_HEX_SZ + 1],
		  Reapi__Digest *out);
/* -EINVAL: it is none of ours. */
int reapi_digest_take(const Reapi__Digest *message, struct cas_digest *out);

/* ByteStream. */
int reapi_get(void *ctx, const struct cas_digest *digest, uint64_t offset, uint64_t len,
	      const struct cas_sink *sink, struct cas_call *call, struct err *err);
int reapi_put(void *ctx, const struct cas_digest *digest, const struct cas_source *source,
	      struct cas_call *call, struct err *err);

/* Batches. */
int reapi_get_many(void *ctx, const struct cas_digest *digests, size_t nr, cas_tier_each_fn each,
		   void *each_ctx, struct cas_call *call, struct err *err);
int reapi_put_many(void *ctx, const struct cas_digest *digests, const struct cas_source *sources,
		   size_t nr, cas_tier_each_fn each, void *each_ctx, struct cas_call *call,
		   struct err *err);
int reapi_find_missing(void *ctx, const struct cas_digest *digests, size_t nr, bool *missing,
		       struct cas_call *call, struct err *err);

/* Trees. */
int reapi_get_tree(void *ctx, const struct cas_digest *root,
		   int (*each)(void *each_ctx, const void *data, size_t len), void *each_ctx,
		   struct cas_call *call, struct err *err);

#endif
