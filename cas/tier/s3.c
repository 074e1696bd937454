/* cas/tier/s3.c - s3://BUCKET/PREFIX: an S3 bucket */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/store/layout.h"
#include "cas/tier/http_i.h"
#include "cas/tier/secret.h"
#include "cas/tier/url.h"

/*
 * Objects PREFIX/cas/HASH and PREFIX/ac/HASH. Requests are those of the HTTP transport,
 * signed by libcurl (version 4). Options besides its own:
 *
 *   endpoint=URL            of a service; the bucket is the first part of its paths.
 *                           Without: https://BUCKET.s3.REGION.amazonaws.com
 *   region=NAME             us-east-1
 *   credentials-file=FILE   lines aws_access_key_id, aws_secret_access_key, and
 *                           aws_session_token if there is one, each "name = value", as in
 *                           ~/.aws/credentials. Without: requests are not signed
 *   part-size=BYTES         larger blobs are sent in parts of that size (128 MiB)
 *
 * A blob that goes in one piece is sent with its SHA-256, which the service compares. A
 * multipart upload that fails is taken back; what a killed process leaves of one is for
 * the bucket's own rules to clear away.
 *
 * Queries are written in sorted order and with "=", as "?uploads=": libcurl 7.88 signs
 * others wrongly.
 */

#define PART_SZ	   (128u << 20)
#define PARTS_MAX  10000
#define ANSWER_MAX 65536
#define ID_MAX	   2048

static int make_base(const struct tier_url *url, const char *region, struct http_tier *t)
{
	const char *endpoint = tier_url_get(url, "endpoint");
	const char *slash = url->path[0] ? "/" : "";
	int ret;

	if (endpoint) {
		size_t len = strlen(endpoint);

		while (len > 0 && endpoint[len - 1] == '/')
			len--;
		ret = asprintf(&t->base, "%.*s/%s%s%s", (int)len, endpoint, url->host, slash,
			       url->path);
	} else {
		ret = asprintf(&t->base, "https://%s.s3.%s.amazonaws.com%s%s", url->host, region,
			       slash, url->path);
	}
	if (ret < 0)
		t->base = NULL;
	return ret < 0 ? -ENOMEM : 0;
}

static int s3_open(const struct tier_url *url, void **ctx, struct err *err)
{
	const char *region = tier_url_get(url, "region");
	const char *endpoint = tier_url_get(url, "endpoint");
	auto_free char *secret = NULL;
	struct http_tier *t;
	int ret;

	if (url->host[0] == '\0' || url->port != 0)
		return err_set(err, -EINVAL, "tier %s: it is s3://BUCKET/PREFIX", url->text);
	if (endpoint && strncmp(endpoint, "http://", 7) != 0 &&
	    strncmp(endpoint, "https://", 8) != 0)
		return err_set(err, -EINVAL, "tier %s: endpoint is http(s)://HOST", url->text);
	if (endpoint && strchr(endpoint, '@'))
		return err_set(err, -EINVAL, "tier %s: no credentials in the endpoint", url->text);
	t = calloc(1, sizeof(*t));
	if (t == NULL)
		return -ENOMEM;
	*ctx = t;
	t->hashed = true;
	t->part_sz = PART_SZ;
	region = region ? region : "us-east-1";
	ret = tier_url_number(url, "part-size", 1, 5ULL << 30, &t->part_sz, err);
	if (ret == 0)
		ret = make_base(url, region, t);
	if (ret == 0)
		ret = tier_curl_new(url, &t->curl, err);
	if (ret == 0)
		ret = tier_secret_open(url, "credentials-file", &secret, err);
	if (ret == 0 && secret)
		ret = tier_curl_sign(t->curl, region, secret, err);
	return ret;
}

/* ---- in parts ---- */

struct upload {
	struct http_tier *t;
	const char *url;
	char id[ID_MAX];  /* percent-encoded */
	struct buf parts; /* of the list that completes it */
	struct cas_call *call;
	struct err *err;
};

/* The text between <@tag> and </@tag>, in @out. */
static bool xml_text(const char *xml, const char *tag, char *out, size_t out_sz)
{
	char open[40];
	const char *at;
	size_t len;

	(void)snprintf(open, sizeof(open), "<%s>", tag);
	at = strstr(xml, open);
	if (at == NULL)
		return false;
	at += strlen(open);
	len = strcspn(at, "<");
	if (len == 0 || len >= out_sz)
		return false;
	memcpy(out, at, len);
	out[len] = '\0';
	return true;
}

static bool encode(const char *text, char *out, size_t out_sz)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				    "0123456789-._~";
	size_t n = 0;

	for (; *text; text++) {
		if (n + 4 > out_sz)
			return false;
		if (strchr(plain, *text))
			out[n++] = *text;
		else
			n += (size_t)snprintf(out + n, 4, "%%%02X", (unsigned char)*text);
	}
	out[n] = '\0';
	return true;
}

/* One request about the upload; the answer's body is in @answer when that is not NULL. */
static int ask(struct upload *u, const char *method, const char *query,
	       const struct cas_source *source, uint64_t offset, uint64_t size, char etag[160],
	       struct buf *answer)
{
	auto_free char *url = NULL;
	struct tier_request req = {.method = method,
				   .source = source,
				   .source_offset = offset,
				   .size = size,
				   .answer_max = ANSWER_MAX};
	int ret;

	if (asprintf(&url, "%s?%s", u->url, query) < 0) {
		url = NULL;
		return -ENOMEM;
	}
	req.url = url;
	ret = tier_curl_run_one(u->t->curl, &req, u->call, u->err);
	if (ret == 0)
		ret = tier_curl_judge(&req, u->err);
	if (ret == 0 && etag)
		(void)snprintf(etag, 160, "%s", req.etag);
	if (ret == 0 && answer)
		ret = buf_append(answer, req.answer.data, req.answer.len);
	buf_fini(&req.answer);
	return ret;
}

static int begin_upload(struct upload *u)
{
	const struct cas_source nothing = {.fd = -1, .data = ""};
	auto_buf struct buf answer = {0};
	char id[ID_MAX / 3];
	int ret = ask(u, "POST", "uploads=", &nothing, 0, 0, NULL, &answer);

	if (ret < 0)
		return ret;
	if (!xml_text(buf_str(&answer), "UploadId", id, sizeof(id)) ||
	    !encode(id, u->id, sizeof(u->id)))
		return err_set(u->err, -EPROTO, "%s begins an upload without saying which", u->url);
	return 0;
}

static int send_part(struct upload *u, unsigned nr, const struct cas_source *source,
		     uint64_t offset, uint64_t size)
{
	char query[ID_MAX + 64];
	char etag[160];
	int ret;

	(void)snprintf(query, sizeof(query), "partNumber=%u&uploadId=%s", nr, u->id);
	ret = ask(u, "PUT", query, source, offset, size, etag, NULL);
	if (ret < 0)
		return ret;
	return buf_printf(&u->parts, "<Part><PartNumber>%u</PartNumber><ETag>%s</ETag></Part>", nr,
			  etag);
}

static int end_upload(struct upload *u)
{
	auto_buf struct buf answer = {0};
	struct cas_source list;
	char query[ID_MAX + 64];
	int ret = buf_append_str(&u->parts, "</CompleteMultipartUpload>");

	if (ret < 0)
		return ret;
	list = (struct cas_source){.fd = -1, .data = u->parts.data};
	(void)snprintf(query, sizeof(query), "uploadId=%s", u->id);
	ret = ask(u, "POST", query, &list, 0, u->parts.len, NULL, &answer);
	/* It may find out late, and says so with status 200. */
	if (ret == 0 && strstr(buf_str(&answer), "<Error"))
		ret = err_set(u->err, -EAGAIN, "%s cannot put the parts together", u->url);
	return ret;
}

static void take_back(struct upload *u)
{
	char query[ID_MAX + 64];
	struct err ignored = {0};
	struct err *err = u->err;

	(void)snprintf(query, sizeof(query), "uploadId=%s", u->id);
	u->err = &ignored;
	(void)ask(u, "DELETE", query, NULL, 0, 0, NULL, NULL);
	u->err = err;
}

static int put_parts(struct http_tier *t, const char *url, uint64_t size,
		     const struct cas_source *source, struct cas_call *call, struct err *err)
{
	struct upload u = {.t = t, .url = url, .call = call, .err = err};
	uint64_t part = t->part_sz;
	unsigned nr = 1;
	int ret;

	while (size / part >= PARTS_MAX)
		part *= 2;
	ret = begin_upload(&u);
	if (ret < 0)
		return ret;
	ret = buf_append_str(&u.parts, "<CompleteMultipartUpload>");
	for (uint64_t at = 0; at < size && ret == 0; at += part)
		ret = send_part(&u, nr++, source, at, size - at < part ? size - at : part);
	if (ret == 0)
		ret = end_upload(&u);
	if (ret < 0)
		take_back(&u);
	buf_fini(&u.parts);
	return ret;
}

static int s3_put(void *ctx, const struct cas_digest *digest, const struct cas_source *source,
		  struct cas_call *call, struct err *err)
{
	struct http_tier *t = ctx;
	auto_free char *url = NULL;

	if (digest->size <= t->part_sz)
		return tier_http_put(ctx, digest, source, call, err);
	url = tier_http_url(t, "cas", digest);
	return url ? put_parts(t, url, digest->size, source, call, err) : -ENOMEM;
}

static const struct tier_transport s3_ops = {
	.get = tier_http_get,
	.get_many = tier_http_get_many,
	.find_missing = tier_http_find_missing,
	.put = s3_put,
	.action_get = tier_http_action_get,
	.action_put = tier_http_action_put,
	.close = tier_http_close,
};

static const char *const s3_options[] = {"endpoint",  "region",	 "credentials-file",
					 "part-size", "ca-file", NULL};

const struct tier_scheme tier_scheme_s3 = {
	.scheme = "s3", .ops = &s3_ops, .options = s3_options, .open = s3_open};
