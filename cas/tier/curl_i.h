/* cas/tier/curl_i.h - what the files of requests over HTTP share */
#ifndef CAS_TIER_CURL_I_H
#define CAS_TIER_CURL_I_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cas/base/err.h"
#include "cas/base/lock.h"

/* Its checks of argument types cannot be had where functions are called by pointers. */
#define CURL_DISABLE_TYPECHECK 1
#include <curl/curl.h>

/* By its names there: it is loaded when it is needed. */
#define TIER_CURL_API(X)                                                                           \
	X(curl_easy_cleanup)                                                                       \
	X(curl_easy_getinfo)                                                                       \
	X(curl_easy_header)                                                                        \
	X(curl_easy_init)                                                                          \
	X(curl_easy_reset)                                                                         \
	X(curl_easy_setopt)                                                                        \
	X(curl_easy_strerror)                                                                      \
	X(curl_global_cleanup)                                                                     \
	X(curl_global_init)                                                                        \
	X(curl_multi_add_handle)                                                                   \
	X(curl_multi_cleanup)                                                                      \
	X(curl_multi_info_read)                                                                    \
	X(curl_multi_init)                                                                         \
	X(curl_multi_perform)                                                                      \
	X(curl_multi_poll)                                                                         \
	X(curl_multi_remove_handle)                                                                \
	X(curl_multi_setopt)                                                                       \
	X(curl_multi_wakeup)                                                                       \
	X(curl_slist_append)                                                                       \
	X(curl_slist_free_all)

struct tier_curl_api {
#define FIELD(name) __typeof__(&name) name;
	TIER_CURL_API(FIELD)
#undef FIELD
};

struct cas_call;
struct tier_request;

struct tier_worker {
	const struct tier_curl_api *api;
	CURLM *multi;
	struct tier_transfer *free; /* with an easy handle */
	struct tier_transfer *running;
	struct tier_worker *next;
};

struct tier_transfer {
	const struct tier_curl_api *api;
	CURL *easy;
	struct tier_curl *curl;
	struct tier_request *req;
	struct cas_call *call;
	struct curl_slist *headers;
	uint64_t sent;
	uint64_t skip; /* bytes of the answer that were not asked for */
	uint64_t taken;
	bool begun; /* the body has */
	bool full;  /* as many as were asked for have come */
	int failed; /* what a callback returned */
	struct err why;
	char text[CURL_ERROR_SIZE];
	struct tier_transfer *next;
};

struct tier_curl {
	struct tier_curl_api api;
	char *ca_file;
	char *cert_file; /* with key_file, or neither */
	char *key_file;
	char *token_file;
	char *user_file;
	char *sign_file;
	char *sign_as; /* "aws:amz:REGION:s3" */
	bool https_only;
	struct lock lock; /* a leaf; guards the rest */
	struct tier_worker *idle;
	unsigned nr_idle;
};

/*
 * Start @req in a worker: it is among those running then. -ENOMEM, or why the credentials
 * cannot be read, which the request's result and error say as well.
 */
int tier_curl_begin(struct tier_curl *curl, struct tier_worker *w, struct tier_request *req,
		    struct cas_call *call);
/* The transfer ended: fill in the request. */
void tier_curl_settle(struct tier_transfer *t, CURLcode code);
/* It leaves those running; its handle waits for the next. */
void tier_curl_end(struct tier_worker *w, struct tier_transfer *t);

/* Tell curl all about the request, credentials too. As tier_curl_begin. */
int tier_curl_set_up(struct tier_transfer *t);

/* curl calls these with a transfer: bytes came; bytes are wanted; */
size_t tier_curl_on_body(char *data, size_t size, size_t nr, void *ctx);
size_t tier_curl_on_source(char *data, size_t size, size_t nr, void *ctx);
/* it rewinds, when a kept connection turns out to be dead. */
int tier_curl_on_seek(void *ctx, curl_off_t offset, int origin);

#endif
