/* cas/tier/curl_request.c - what a request consists of, as curl wants to be told */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/digest.h"
#include "cas/tier/curl.h"
#include "cas/tier/curl_i.h"
#include "cas/tier/secret.h"

#define AGENT "casbox/" CASBOX_VERSION

static int add_header(struct tier_transfer *t, const char *line)
{
	struct curl_slist *list = t->api->curl_slist_append(t->headers, line);

	if (list == NULL)
		return -ENOMEM;
	t->headers = list;
	return 0;
}

/* Credentials that end some time come with one. */
static int add_session_token(struct tier_transfer *t)
{
	auto_secret struct buf token = {0};
	auto_secret struct buf line = {0};
	int ret = tier_secret_read_key(t->curl->sign_file, "aws_session_token", &token, NULL);

	if (ret < 0)
		return ret == -ENOENT ? 0 : ret;
	ret = buf_reserve(&line, token.len + 40);
	if (ret == 0)
		ret = buf_printf(&line, "X-Amz-Security-Token: %s", token.data);
	return ret < 0 ? ret : add_header(t, line.data);
}

/*
 * The hash of the body is part of what is signed, and S3 wants to see it; libcurl 7.88
 * takes it from the header but does not make that. Who sends a body that he has not hashed
 * says so.
 */
static int add_body_hash(struct tier_transfer *t)
{
	static const char name[] = "X-Amz-Content-Sha256: ";
	char line[sizeof(name) + CAS_HASH_HEX_SZ];

	for (const char *const *h = t->req->headers; h && *h; h++) {
		if (strncmp(*h, name, sizeof(name) - 1) == 0)
			return 0;
	}
	(void)strcpy(line, name);
	if (t->req->size > 0)
		(void)strcat(line, "UNSIGNED-PAYLOAD");
	else
		cas_hash_format(cas_digest_empty.hash, line + strlen(line));
	return add_header(t, line);
}

static int set_credentials(struct tier_transfer *t)
{
	struct tier_curl *c = t->curl;
	auto_secret struct buf user = {0};
	auto_secret struct buf secret = {0};
	int ret = 0;

	if (c->token_file) {
		ret = tier_secret_read(c->token_file, &secret, &t->why);
		if (ret == 0) {
			(void)t->api->curl_easy_setopt(t->easy, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
			(void)t->api->curl_easy_setopt(t->easy, CURLOPT_XOAUTH2_BEARER,
						       secret.data);
		}
	} else if (c->user_file) {
		ret = tier_secret_read(c->user_file, &secret, &t->why);
		if (ret == 0) {
			(void)t->api->curl_easy_setopt(t->easy, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
			(void)t->api->curl_easy_setopt(t->easy, CURLOPT_USERPWD, secret.data);
		}
	} else if (c->sign_file) {
		ret = tier_secret_read_key(c->sign_file, "aws_access_key_id", &user, &t->why);
		if (ret == 0)
			ret = tier_secret_read_key(c->sign_file, "aws_secret_access_key", &secret,
						   &t->why);
		if (ret == 0) {
			(void)t->api->curl_easy_setopt(t->easy, CURLOPT_AWS_SIGV4, c->sign_as);
			(void)t->api->curl_easy_setopt(t->easy, CURLOPT_USERNAME, user.data);
			(void)t->api->curl_easy_setopt(t->easy, CURLOPT_PASSWORD, secret.data);
			ret = add_session_token(t);
			if (ret == 0)
				ret = add_body_hash(t);
		}
	}
	return ret;
}

static int set_headers(struct tier_transfer *t)
{
	int ret = set_credentials(t);

	for (const char *const *h = t->req->headers; h && *h && ret == 0; h++)
		ret = add_header(t, *h);
	if (t->headers)
		(void)t->api->curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers);
	return ret;
}

static void set_body(struct tier_transfer *t)
{
	struct tier_request *req = t->req;
	char range[64];

	if (strcmp(req->method, "HEAD") == 0) {
		(void)t->api->curl_easy_setopt(t->easy, CURLOPT_NOBODY, 1L);
	} else if (req->source || strcmp(req->method, "PUT") == 0) {
		(void)t->api->curl_easy_setopt(t->easy, CURLOPT_UPLOAD, 1L);
		(void)t->api->curl_easy_setopt(t->easy, CURLOPT_CUSTOMREQUEST, req->method);
		(void)t->api->curl_easy_setopt(t->easy, CURLOPT_INFILESIZE_LARGE,
					       (curl_off_t)req->size);
		(void)t->api->curl_easy_setopt(t->easy, CURLOPT_READFUNCTION, tier_curl_on_source);
		(void)t->api->curl_easy_setopt(t->easy, CURLOPT_READDATA, t);
		(void)t->api->curl_easy_setopt(t->easy, CURLOPT_SEEKFUNCTION, tier_curl_on_seek);
		(void)t->api->curl_easy_setopt(t->easy, CURLOPT_SEEKDATA, t);
	} else if (strcmp(req->method, "GET") != 0) {
		(void)t->api->curl_easy_setopt(t->easy, CURLOPT_CUSTOMREQUEST, req->method);
	}
	if (req->len > 0)
		(void)snprintf(range, sizeof(range), "%llu-%llu", (unsigned long long)req->offset,
			       (unsigned long long)(req->offset + req->len - 1));
	else
		(void)snprintf(range, sizeof(range), "%llu-", (unsigned long long)req->offset);
	if (req->offset > 0 || req->len > 0)
		(void)t->api->curl_easy_setopt(t->easy, CURLOPT_RANGE, range);
}

int tier_curl_set_up(struct tier_transfer *t)
{
	const struct tier_curl_api *api = t->api;
	CURL *easy = t->easy;
	const bool https = strncmp(t->req->url, "https://", 8) == 0;
	const char *protocols = https ? "https" : "http,https";
	/*
	 * Who is sent to another host does not take the credentials along, says curl; but the
	 * session token of a signed request is one of our headers, which it would repeat there.
	 */
	const bool follow = t->req->source == NULL && t->curl->sign_as == NULL;

	(void)api->curl_easy_setopt(easy, CURLOPT_PRIVATE, t);
	(void)api->curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	(void)api->curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, t->text);
	(void)api->curl_easy_setopt(easy, CURLOPT_USERAGENT, AGENT);
	(void)api->curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, protocols);
	(void)api->curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, protocols);
	(void)api->curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, follow ? 1L : 0L);
	(void)api->curl_easy_setopt(easy, CURLOPT_MAXREDIRS, 5L);
	(void)api->curl_easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	(void)api->curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 262144L);
	(void)api->curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, 262144L);
	(void)api->curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, tier_curl_on_body);
	(void)api->curl_easy_setopt(easy, CURLOPT_WRITEDATA, t);
	if (t->curl->ca_file)
		(void)api->curl_easy_setopt(easy, CURLOPT_CAINFO, t->curl->ca_file);
	if (t->curl->cert_file) {
		(void)api->curl_easy_setopt(easy, CURLOPT_SSLCERT, t->curl->cert_file);
		(void)api->curl_easy_setopt(easy, CURLOPT_SSLKEY, t->curl->key_file);
	}
	if (api->curl_easy_setopt(easy, CURLOPT_URL, t->req->url) != CURLE_OK)
		return -ENOMEM;
	set_body(t);
	return set_headers(t);
}
