/* cas/tier/curl.h - requests over HTTP, for the transports that speak it */
#ifndef CAS_TIER_CURL_H
#define CAS_TIER_CURL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cas/base/buf.h"
#include "cas/tier/transport.h"

struct err;
struct tier_curl;
struct tier_url;

/*
 * One request and its answer. The caller fills in the first part, zero elsewhere, and
 * frees @answer. Bodies of answers other than 2xx are kept in @answer up to some KiB.
 */
struct tier_request {
	const char *method; /* "GET", "HEAD", "PUT", "POST", "DELETE" */
	const char *url;
	const char *const *headers; /* "Name: value", NULL last; may be NULL */
	/* Of a GET: bytes from @offset, @len (0: all) of them, into @sink, else @answer. */
	uint64_t offset;
	uint64_t len;
	const struct cas_sink *sink;
	size_t answer_max; /* without a sink; more is -EPROTO */
	/* Of a PUT or POST. */
	const struct cas_source *source;
	uint64_t source_offset;
	uint64_t size;

	int result; /* 0: @status is valid. Else as cas/tier.h */
	long status;
	struct buf answer;
	char etag[160];	 /* of the answer, "" when there is none */
	struct err *err; /* why @result; may be NULL */
};

/*
 * Connections are kept open and used again. Options of the URL: token-file (a bearer
 * token) or user-file ("user:password"), ca-file, and cert-file with key-file, which say who
 * we are (https, PEM); see TIER_CURL_OPTIONS.
 * -EINVAL: there is no libcurl to load.
 */
int tier_curl_new(const struct tier_url *url, struct tier_curl **out, struct err *err);
void tier_curl_free(struct tier_curl *curl);
#define TIER_CURL_OPTIONS "token-file", "user-file", "ca-file", "cert-file", "key-file"

/* As user and secret of AWS's signature, version 4, instead of token or password. */
int tier_curl_sign(struct tier_curl *curl, const char *region, const char *credentials_file,
		   struct err *err);

/*
 * Make @nr requests, some at a time, and fill in what came of each; @done (may be NULL) is
 * called as each ends, its non-zero result stops the rest and is returned. Else 0, or
 * -ECANCELED, -ETIMEDOUT (for those that were not done), -ENOMEM.
 */
int tier_curl_run(struct tier_curl *curl, struct tier_request *requests, size_t nr,
		  int (*done)(void *ctx, struct tier_request *request), void *ctx,
		  struct cas_call *call, struct err *err);

/* One, and its result. */
int tier_curl_run_one(struct tier_curl *curl, struct tier_request *request, struct cas_call *call,
		      struct err *err);

/*
 * What the status of an answer means: 0 for 2xx, else as cas/tier.h, with a message that
 * names method and URL.
 */
int tier_curl_judge(const struct tier_request *request, struct err *err);

#endif
