/* cas/tier/http.c - http(s)://HOST/PREFIX: Bazel's HTTP cache protocol */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/store/layout.h"
#include "cas/tier/curl.h"
#include "cas/tier/http_i.h"
#include "cas/tier/transport.h"
#include "cas/tier/url.h"

/*
 * PREFIX/cas/HASH and PREFIX/ac/HASH, with GET, PUT and HEAD. Many blobs at once are as
 * many requests, some at a time, which is one round trip for a level of small Directories
 * as long as they are not too many.
 */

void tier_http_close(void *ctx)
{
	struct http_tier *t = ctx;

	tier_curl_free(t->curl);
	free(t->base);
	free(t);
}

static int http_open(const struct tier_url *url, void **ctx, struct err *err)
{
	struct http_tier *t;
	size_t len = strlen(url->text);
	int ret;

	if (url->host[0] == '\0')
		return err_set(err, -EINVAL, "tier %s: it names no host", url->text);
	t = calloc(1, sizeof(*t));
	if (t == NULL)
		return -ENOMEM;
	*ctx = t;
	while (len > 0 && url->text[len - 1] == '/')
		len--;
	t->base = strndup(url->text, len);
	ret = t->base ? tier_curl_new(url, &t->curl, err) : -ENOMEM;
	return ret;
}

/* The URL of a blob or an action's result, to be freed. */
char *tier_http_url(const struct http_tier *t, const char *kind, const struct cas_digest *digest)
{
	char hash[CAS_HASH_HEX_SZ + 1];
	char *url = NULL;

	cas_hash_format(digest->hash, hash);
	return asprintf(&url, "%s/%s/%s", t->base, kind, hash) < 0 ? NULL : url;
}

static int run_one(struct http_tier *t, const char *kind, const struct cas_digest *digest,
		   struct tier_request *req, struct cas_call *call, struct err *err)
{
	auto_free char *url = tier_http_url(t, kind, digest);
	int ret;

	if (url == NULL)
		return -ENOMEM;
	req->url = url;
	ret = tier_curl_run_one(t->curl, req, call, err);
	return ret == 0 ? tier_curl_judge(req, err) : ret;
}

int tier_http_get(void *ctx, const struct cas_digest *digest, uint64_t offset, uint64_t len,
		  const struct cas_sink *sink, struct cas_call *call, struct err *err)
{
	struct tier_request req = {.method = "GET", .offset = offset, .len = len, .sink = sink};
	int ret = run_one(ctx, "cas", digest, &req, call, err);

	buf_fini(&req.answer);
	return ret;
}

/* Requests for many blobs; the caller's part is filled in by digest. */
struct many {
	struct tier_request *requests;
	const struct cas_digest *digests;
	size_t nr;
	cas_tier_each_fn each;
	void *each_ctx;
	bool *missing;
	struct err *err;
};

static void many_fini(struct many *m)
{
	for (size_t i = 0; m->requests && i < m->nr; i++) {
		free((char *)m->requests[i].url);
		buf_fini(&m->requests[i].answer);
	}
	free(m->requests);
}

static int many_init(struct http_tier *t, struct many *m, const char *method)
{
	m->requests = calloc(m->nr, sizeof(*m->requests));
	if (m->requests == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < m->nr; i++) {
		struct tier_request *req = &m->requests[i];

		req->method = method;
		req->url = tier_http_url(t, "cas", &m->digests[i]);
		req->answer_max = m->digests[i].size;
		if (req->url == NULL)
			return -ENOMEM;
	}
	return 0;
}

static int got_one(void *ctx, struct tier_request *req)
{
	struct many *m = ctx;
	size_t i = (size_t)(req - m->requests);
	struct err why = {0};
	int ret = req->result;

	if (ret == 0)
		ret = tier_curl_judge(req, &why);
	if (ret == -EAGAIN && m->err && m->err->code == 0)
		*m->err = why;
	ret = m->each(m->each_ctx, i, ret, req->answer.data, req->answer.len);
	buf_fini(&req->answer);
	return ret;
}

int tier_http_get_many(void *ctx, const struct cas_digest *digests, size_t nr,
		       cas_tier_each_fn each, void *each_ctx, struct cas_call *call,
		       struct err *err)
{
	struct http_tier *t = ctx;
	struct many m = {
		.digests = digests, .nr = nr, .each = each, .each_ctx = each_ctx, .err = err};
	int ret = many_init(t, &m, "GET");

	if (ret == 0)
		ret = tier_curl_run(t->curl, m.requests, nr, got_one, &m, call, err);
	many_fini(&m);
	return ret;
}

static int looked_up_one(void *ctx, struct tier_request *req)
{
	struct many *m = ctx;
	struct err why = {0};
	int ret = req->result;

	if (ret == 0)
		ret = tier_curl_judge(req, &why);
	if (ret == 0 || ret == -ENOENT) {
		m->missing[req - m->requests] = ret == -ENOENT;
		return 0;
	}
	if (m->err && why.code != 0)
		*m->err = why;
	return ret;
}

int tier_http_find_missing(void *ctx, const struct cas_digest *digests, size_t nr, bool *missing,
			   struct cas_call *call, struct err *err)
{
	struct http_tier *t = ctx;
	struct many m = {.digests = digests, .nr = nr, .missing = missing, .err = err};
	int ret = many_init(t, &m, "HEAD");

	for (size_t i = 0; ret == 0 && i < nr; i++)
		m.requests[i].err = err;
	if (ret == 0)
		ret = tier_curl_run(t->curl, m.requests, nr, looked_up_one, &m, call, err);
	many_fini(&m);
	return ret;
}

static int http_store(struct http_tier *t, const char *kind, const struct cas_digest *digest,
		      const struct cas_source *source, uint64_t size, struct cas_call *call,
		      struct err *err)
{
	char hash[CAS_HASH_HEX_SZ + 40] = "X-Amz-Content-Sha256: ";
	const char *const headers[] = {"Content-Type: application/octet-stream",
				       t->hashed && strcmp(kind, "cas") == 0 ? hash : NULL, NULL};
	struct tier_request req = {
		.method = "PUT", .headers = headers, .source = source, .size = size};
	int ret;

	cas_hash_format(digest->hash, hash + strlen(hash));
	ret = run_one(t, kind, digest, &req, call, err);

	buf_fini(&req.answer);
	if (ret == -EOPNOTSUPP)
		ret = err_set(err, -EROFS, "%s takes no PUT", t->base);
	/* Some say so of bytes that they find wrong. */
	if (ret == -EPROTO && req.status == 400)
		ret = -EBADMSG;
	return ret;
}

int tier_http_put(void *ctx, const struct cas_digest *digest, const struct cas_source *source,
		  struct cas_call *call, struct err *err)
{
	return http_store(ctx, "cas", digest, source, digest->size, call, err);
}

int tier_http_action_get(void *ctx, const struct cas_digest *action, struct buf *out,
			 struct cas_call *call, struct err *err)
{
	struct tier_request req = {.method = "GET", .answer_max = CAS_TIER_ACTION_MAX};
	int ret = run_one(ctx, "ac", action, &req, call, err);

	if (ret == 0)
		ret = buf_append(out, req.answer.data, req.answer.len);
	buf_fini(&req.answer);
	return ret;
}

int tier_http_action_put(void *ctx, const struct cas_digest *action, const void *data, size_t len,
			 struct cas_call *call, struct err *err)
{
	const struct cas_source source = {.fd = -1, .data = data};

	return http_store(ctx, "ac", action, &source, len, call, err);
}

static const struct tier_transport http_ops = {
	.get = tier_http_get,
	.get_many = tier_http_get_many,
	.find_missing = tier_http_find_missing,
	.put = tier_http_put,
	.action_get = tier_http_action_get,
	.action_put = tier_http_action_put,
	.close = tier_http_close,
};

static const char *const http_options[] = {TIER_CURL_OPTIONS, NULL};

const struct tier_scheme tier_scheme_http = {
	.scheme = "http", .ops = &http_ops, .options = http_options, .open = http_open};
const struct tier_scheme tier_scheme_https = {
	.scheme = "https", .ops = &http_ops, .options = http_options, .open = http_open};
