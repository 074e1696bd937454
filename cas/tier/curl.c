/* cas/tier/curl.c - requests over HTTP, for the transports that speak it */
#include "cas/tier/curl.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/lock.h"
#include "cas/tier/curl_i.h"
#include "cas/tier/secret.h"
#include "cas/tier/url.h"

/*
 * A worker is a curl multi handle with its own connections, and the easy handles of the
 * requests that are under way in it. Who makes requests takes an idle worker, or makes one,
 * and puts it back: connections stay open with it. A worker is driven by one thread, which
 * waits in curl_multi_poll; a cancelled call ends that wait by curl_multi_wakeup.
 *
 * curl_easy handles keep copies of what was set, credentials too: they are reset after each
 * request.
 */

#define AT_ONCE	     16
#define WORKERS_IDLE 64
#define ERROR_MAX    4096
#define POLL_MS	     1000
#define AGENT	     "casbox/" CASBOX_VERSION

struct worker {
	const struct tier_curl_api *api;
	CURLM *multi;
	struct transfer *free; /* with an easy handle */
	struct transfer *running;
	struct worker *next;
};

struct transfer {
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
	struct transfer *next;
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
	struct worker *idle;
	unsigned nr_idle;
};

static void worker_free(struct worker *w)
{
	if (w == NULL)
		return;
	while (w->free) {
		struct transfer *t = w->free;

		w->free = t->next;
		w->api->curl_easy_cleanup(t->easy);
		free(t);
	}
	if (w->multi)
		(void)w->api->curl_multi_cleanup(w->multi);
	free(w);
}

static int worker_take(struct tier_curl *curl, struct worker **out)
{
	struct worker *w;

	lock_take(&curl->lock);
	w = curl->idle;
	if (w) {
		curl->idle = w->next;
		curl->nr_idle--;
	}
	lock_drop(&curl->lock);
	if (w == NULL) {
		w = calloc(1, sizeof(*w));
		if (w == NULL)
			return -ENOMEM;
		w->api = &curl->api;
		w->multi = w->api->curl_multi_init();
		if (w->multi == NULL) {
			free(w);
			return -ENOMEM;
		}
		(void)w->api->curl_multi_setopt(w->multi, CURLMOPT_MAX_HOST_CONNECTIONS,
						(long)AT_ONCE);
	}
	*out = w;
	return 0;
}

static void worker_give(struct tier_curl *curl, struct worker *w)
{
	lock_take(&curl->lock);
	if (curl->nr_idle < WORKERS_IDLE) {
		w->next = curl->idle;
		curl->idle = w;
		curl->nr_idle++;
		w = NULL;
	}
	lock_drop(&curl->lock);
	worker_free(w);
}

/*
 * libcurl brings thirty libraries along, which cost more of a process's start than all
 * others: they are loaded by those that use them, and stay for the life of the process.
 */
static int load_api(struct tier_curl_api *api, const struct tier_url *url, struct err *err)
{
	void *lib = dlopen(TIER_CURL_LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (lib == NULL)
		return err_set(err, -EINVAL, "tier %s: cannot load libcurl: %s", url->text,
			       dlerror());
#define LOAD(fn)                                                                                   \
	*(void **)&api->fn = dlsym(lib, #fn);                                                      \
	if (api->fn == NULL)                                                                       \
		return err_set(err, -EINVAL, "tier %s: libcurl lacks %s", url->text, #fn);
	TIER_CURL_API(LOAD)
#undef LOAD
	return 0;
}

/* The path that an option gives, of a file that can be read; NULL without it. */
static int take_file(const struct tier_url *url, const char *option, char **out, struct err *err)
{
	const char *path = tier_url_get(url, option);

	if (path == NULL)
		return 0;
	if (access(path, R_OK) < 0)
		return err_set(err, -errno, "tier %s: cannot read %s: %m", url->text, path);
	*out = strdup(path);
	return *out ? 0 : -ENOMEM;
}

/* Who we are, for servers that want to know it. */
static int take_identity(struct tier_curl *c, const struct tier_url *url, struct err *err)
{
	int ret = take_file(url, "cert-file", &c->cert_file, err);

	if (ret == 0)
		ret = tier_secret_open(url, "key-file", &c->key_file, err);
	if (ret == 0 && (c->cert_file == NULL) != (c->key_file == NULL))
		ret = err_set(err, -EINVAL, "tier %s: cert-file and key-file go together",
			      url->text);
	if (ret == 0 && c->cert_file && !c->https_only)
		ret = err_set(err, -EINVAL, "tier %s: cert-file is for https://", url->text);
	return ret;
}

int tier_curl_new(const struct tier_url *url, struct tier_curl **out, struct err *err)
{
	struct tier_curl *c;
	int ret;

	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return -ENOMEM;
	ret = load_api(&c->api, url, err);
	if (ret == 0 && c->api.curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		ret = err_set(err, -ENOMEM, "libcurl does not start");
	if (ret < 0) {
		free(c);
		return ret;
	}
	lock_init(&c->lock, LOCK_RANK_LEAF, "tier_curl.lock");
	c->https_only = strcmp(url->scheme, "https") == 0;
	ret = take_file(url, "ca-file", &c->ca_file, err);
	if (ret == 0)
		ret = take_identity(c, url, err);
	if (ret == 0)
		ret = tier_secret_open(url, "token-file", &c->token_file, err);
	if (ret == 0)
		ret = tier_secret_open(url, "user-file", &c->user_file, err);
	if (ret < 0) {
		tier_curl_free(c);
		return ret;
	}
	*out = c;
	return 0;
}

void tier_curl_free(struct tier_curl *curl)
{
	if (curl == NULL)
		return;
	while (curl->idle) {
		struct worker *w = curl->idle;

		curl->idle = w->next;
		worker_free(w);
	}
	free(curl->ca_file);
	free(curl->cert_file);
	free(curl->key_file);
	free(curl->token_file);
	free(curl->user_file);
	free(curl->sign_file);
	free(curl->sign_as);
	lock_fini(&curl->lock);
	curl->api.curl_global_cleanup();
	free(curl);
}

int tier_curl_sign(struct tier_curl *curl, const char *region, const char *credentials_file,
		   struct err *err)
{
	curl->sign_file = credentials_file ? strdup(credentials_file) : NULL;
	if ((credentials_file && curl->sign_file == NULL) ||
	    asprintf(&curl->sign_as, "aws:amz:%s:s3", region) < 0) {
		curl->sign_as = NULL;
		return -ENOMEM;
	}
	return 0;
}

/* ---- callbacks ---- */

/* The first byte of a good answer: does it start where we asked? */
static int begin_body(struct transfer *t)
{
	struct curl_header *range;
	long status = 0;
	uint64_t from;

	t->begun = true;
	(void)t->api->curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
	t->req->status = status;
	if (t->req->offset == 0 && t->req->len == 0)
		return 0;
	if (status != 206) {
		t->skip = t->req->offset;
		return 0;
	}
	if (t->api->curl_easy_header(t->easy, "Content-Range", 0, CURLH_HEADER, -1, &range) !=
		    CURLHE_OK ||
	    strncmp(range->value, "bytes ", 6) != 0)
		return err_set(&t->why, -EPROTO, "%s answers a part without saying which",
			       t->req->url);
	from = strtoull(range->value + 6, NULL, 10);
	if (from != t->req->offset)
		return err_set(&t->why, -EPROTO, "%s sends bytes from %llu on, asked for %llu",
			       t->req->url, (unsigned long long)from,
			       (unsigned long long)t->req->offset);
	return 0;
}

static int take_good(struct transfer *t, const char *data, size_t len)
{
	struct tier_request *req = t->req;
	int ret;

	if (t->skip > 0) {
		size_t drop = t->skip < len ? (size_t)t->skip : len;

		t->skip -= drop;
		data += drop;
		len -= drop;
		cas_call_progress(t->call, drop);
	}
	if (req->len > 0 && len > req->len - t->taken) {
		/* The server ignores ranges; there is nothing more to wait for. */
		len = (size_t)(req->len - t->taken);
		t->full = true;
	}
	t->taken += len;
	if (len == 0)
		return 0;
	if (req->sink)
		return req->sink->write(req->sink->ctx, data, len, &t->why);
	if (req->answer.len + len > req->answer_max)
		return err_set(&t->why, -EPROTO, "%s sends more than %zu bytes", req->url,
			       req->answer_max);
	ret = buf_append(&req->answer, data, len);
	cas_call_progress(t->call, len);
	return ret;
}

static size_t on_body(char *data, size_t size, size_t nr, void *ctx)
{
	struct transfer *t = ctx;
	size_t len = size * nr;
	int ret = 0;

	if (!t->begun)
		ret = begin_body(t);
	if (ret == 0 && t->req->status / 100 == 2)
		ret = take_good(t, data, len);
	else if (ret == 0 && t->req->answer.len < ERROR_MAX)
		ret = buf_append(&t->req->answer, data,
				 len < ERROR_MAX - t->req->answer.len
					 ? len
					 : ERROR_MAX - t->req->answer.len);
	t->failed = ret;
	return ret != 0 || t->full ? 0 : len;
}

static size_t on_source(char *data, size_t size, size_t nr, void *ctx)
{
	struct transfer *t = ctx;
	const struct tier_request *req = t->req;
	size_t len = size * nr;
	int64_t got;

	if (len > req->size - t->sent)
		len = (size_t)(req->size - t->sent);
	got = tier_source_read(req->source, req->source_offset + req->size,
			       req->source_offset + t->sent, data, len);
	if (got < 0) {
		t->failed = (int)got;
		return CURL_READFUNC_ABORT;
	}
	t->sent += (uint64_t)got;
	cas_call_progress(t->call, (uint64_t)got);
	return (size_t)got;
}

/* curl rewinds when a kept connection turns out to be dead. */
static int on_seek(void *ctx, curl_off_t offset, int origin)
{
	struct transfer *t = ctx;

	if (origin != SEEK_SET || offset < 0)
		return CURL_SEEKFUNC_CANTSEEK;
	t->sent = (uint64_t)offset;
	return CURL_SEEKFUNC_OK;
}

/* ---- one request ---- */

static int add_header(struct transfer *t, const char *line)
{
	struct curl_slist *list = t->api->curl_slist_append(t->headers, line);

	if (list == NULL)
		return -ENOMEM;
	t->headers = list;
	return 0;
}

/* Credentials that end some time come with one. */
static int add_session_token(struct transfer *t)
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
static int add_body_hash(struct transfer *t)
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

static int set_credentials(struct transfer *t)
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

static int set_headers(struct transfer *t)
{
	int ret = set_credentials(t);

	for (const char *const *h = t->req->headers; h && *h && ret == 0; h++)
		ret = add_header(t, *h);
	if (t->headers)
		(void)t->api->curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers);
	return ret;
}

static void set_body(struct transfer *t)
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
		(void)t->api->curl_easy_setopt(t->easy, CURLOPT_READFUNCTION, on_source);
		(void)t->api->curl_easy_setopt(t->easy, CURLOPT_READDATA, t);
		(void)t->api->curl_easy_setopt(t->easy, CURLOPT_SEEKFUNCTION, on_seek);
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

static int set_up(struct transfer *t)
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
	(void)api->curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
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

/* What curl says, in our words (cas/tier.h). */
static int translate(CURLcode code)
{
	switch ((int)code) {
	case CURLE_OK:
		return 0;
	case CURLE_OUT_OF_MEMORY:
		return -ENOMEM;
	case CURLE_OPERATION_TIMEDOUT:
		return -ETIMEDOUT;
	case CURLE_COULDNT_RESOLVE_PROXY:
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_CONNECT:
	case CURLE_PARTIAL_FILE:
	case CURLE_GOT_NOTHING:
	case CURLE_SEND_ERROR:
	case CURLE_RECV_ERROR:
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_HTTP2:
	case CURLE_HTTP2_STREAM:
	case CURLE_SEND_FAIL_REWIND:
	case CURLE_AGAIN:
		return -EAGAIN;
	default:
		return -EPROTO;
	}
}

/* The transfer ended: fill in the request. */
static void settle(struct transfer *t, CURLcode code)
{
	struct tier_request *req = t->req;
	struct curl_header *etag;
	curl_off_t wait = 0;

	(void)t->api->curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &req->status);
	if (t->api->curl_easy_getinfo(t->easy, CURLINFO_RETRY_AFTER, &wait) == CURLE_OK && wait > 0)
		t->call->retry_after_ms = wait < 3600 ? (unsigned)wait * 1000 : 3600000;
	if (t->api->curl_easy_header(t->easy, "ETag", 0, CURLH_HEADER, -1, &etag) == CURLHE_OK)
		(void)snprintf(req->etag, sizeof(req->etag), "%s", etag->value);
	req->result = t->failed != 0 ? t->failed : t->full ? 0 : translate(code);
	/* An answer that came before all was sent is an answer. */
	if (req->result == -EAGAIN && code == CURLE_SEND_ERROR && req->status >= 400)
		req->result = 0;
	if (req->result == 0 || req->err == NULL)
		return;
	if (t->why.code != 0)
		*req->err = t->why;
	else
		(void)err_set(req->err, req->result, "%s %s: %s", req->method, req->url,
			      t->text[0] ? t->text : t->api->curl_easy_strerror(code));
}

static void transfer_end(struct worker *w, struct transfer *t)
{
	struct transfer **p = &w->running;

	while (*p && *p != t)
		p = &(*p)->next;
	if (*p)
		*p = t->next;
	(void)w->api->curl_multi_remove_handle(w->multi, t->easy);
	w->api->curl_easy_reset(t->easy);
	w->api->curl_slist_free_all(t->headers);
	*t = (struct transfer){.easy = t->easy, .next = w->free};
	w->free = t;
}

static int transfer_begin(struct tier_curl *curl, struct worker *w, struct tier_request *req,
			  struct cas_call *call)
{
	struct transfer *t = w->free;
	int ret;

	if (t) {
		w->free = t->next;
	} else {
		t = calloc(1, sizeof(*t));
		if (t == NULL)
			return -ENOMEM;
		t->easy = w->api->curl_easy_init();
		if (t->easy == NULL) {
			free(t);
			return -ENOMEM;
		}
	}
	t->api = w->api;
	t->curl = curl;
	t->req = req;
	t->call = call;
	ret = set_up(t);
	if (ret == 0 && w->api->curl_multi_add_handle(w->multi, t->easy) == CURLM_OK) {
		t->next = w->running;
		w->running = t;
		return 0;
	}
	ret = ret < 0 ? ret : -ENOMEM;
	req->result = ret;
	if (req->err)
		*req->err = t->why;
	transfer_end(w, t);
	return ret;
}

/* ---- many ---- */

struct run {
	struct tier_curl *curl;
	struct worker *worker;
	struct tier_request *requests;
	size_t nr;
	size_t next;
	size_t nr_running;
	int (*done)(void *ctx, struct tier_request *request);
	void *ctx;
	struct cas_call *call;
};

static int report(struct run *r, struct tier_request *req)
{
	return r->done ? r->done(r->ctx, req) : 0;
}

static int start_some(struct run *r)
{
	int ret = 0;

	while (ret == 0 && r->next < r->nr && r->nr_running < AT_ONCE) {
		struct tier_request *req = &r->requests[r->next++];

		if (transfer_begin(r->curl, r->worker, req, r->call) == 0)
			r->nr_running++;
		else
			ret = report(r, req);
	}
	return ret;
}

static int finish_some(struct run *r)
{
	const struct tier_curl_api *api = r->worker->api;
	CURLMsg *msg;
	int left;
	int ret = 0;

	while (ret == 0 && (msg = api->curl_multi_info_read(r->worker->multi, &left)) != NULL) {
		struct transfer *t = NULL;
		struct tier_request *req;

		if (msg->msg != CURLMSG_DONE)
			continue;
		(void)api->curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &t);
		req = t->req;
		settle(t, msg->data.result);
		transfer_end(r->worker, t);
		r->nr_running--;
		ret = report(r, req);
	}
	return ret;
}

static void wake(void *ctx)
{
	struct worker *w = ctx;

	(void)w->api->curl_multi_wakeup(w->multi);
}

/* What OpenSSL writes to a connection that is gone must not end the process. */
static void hold_sigpipe(sigset_t *old)
{
	sigset_t pipe;

	(void)sigemptyset(&pipe);
	(void)sigaddset(&pipe, SIGPIPE);
	(void)pthread_sigmask(SIG_BLOCK, &pipe, old);
}

static void release_sigpipe(const sigset_t *old)
{
	const struct timespec now = {0};
	sigset_t pipe;

	(void)sigemptyset(&pipe);
	(void)sigaddset(&pipe, SIGPIPE);
	if (sigismember(old, SIGPIPE) == 0)
		(void)sigtimedwait(&pipe, NULL, &now);
	(void)pthread_sigmask(SIG_SETMASK, old, NULL);
}

static int drive(struct run *r)
{
	const struct tier_curl_api *api = r->worker->api;
	int running;
	int ret = start_some(r);

	while (ret == 0 && (r->nr_running > 0 || r->next < r->nr)) {
		if (api->curl_multi_perform(r->worker->multi, &running) != CURLM_OK)
			return -ENOMEM;
		ret = finish_some(r);
		if (ret == 0)
			ret = start_some(r);
		if (ret == 0)
			ret = cas_call_check(r->call);
		if (ret == 0 && r->nr_running > 0)
			(void)api->curl_multi_poll(r->worker->multi, NULL, 0,
						   (int)cas_call_left_ms(r->call, POLL_MS), NULL);
	}
	return ret;
}

int tier_curl_run(struct tier_curl *curl, struct tier_request *requests, size_t nr,
		  int (*done)(void *ctx, struct tier_request *request), void *ctx,
		  struct cas_call *call, struct err *err)
{
	struct run r = {.curl = curl,
			.requests = requests,
			.nr = nr,
			.done = done,
			.ctx = ctx,
			.call = call};
	sigset_t old;
	int ret = worker_take(curl, &r.worker);

	if (ret < 0)
		return ret;
	hold_sigpipe(&old);
	for (size_t i = 0; i < nr; i++)
		requests[i].result = -ECANCELED;
	cas_call_register(call, wake, r.worker);
	ret = drive(&r);
	cas_call_unregister(call);
	/* Those that were cut off lose their connections. */
	while (r.worker->running)
		transfer_end(r.worker, r.worker->running);
	worker_give(curl, r.worker);
	release_sigpipe(&old);
	return ret;
}

int tier_curl_run_one(struct tier_curl *curl, struct tier_request *request, struct cas_call *call,
		      struct err *err)
{
	int ret;

	request->err = err;
	ret = tier_curl_run(curl, request, 1, NULL, NULL, call, err);
	return ret < 0 ? ret : request->result;
}

int tier_curl_judge(const struct tier_request *request, struct err *err)
{
	int ret = -EPROTO;

	switch (request->status) {
	case 401:
	case 403:
		ret = -EACCES;
		break;
	case 404:
	case 410:
		ret = -ENOENT;
		break;
	case 405:
	case 501:
		ret = -EOPNOTSUPP;
		break;
	case 408:
	case 409:
	case 425:
	case 429:
	case 500:
	case 502:
	case 503:
	case 504:
		ret = -EAGAIN;
		break;
	case 413:
		ret = -EFBIG;
		break;
	case 416:
		/* What has no such part may still be had from the start. */
		ret = request->offset > 0 ? -EOPNOTSUPP : -EPROTO;
		break;
	case 507:
		ret = -ENOSPC;
		break;
	default:
		if (request->status / 100 == 2)
			return 0;
		break;
	}
	return err_set(err, ret, "%s %s answers with status %ld", request->method, request->url,
		       request->status);
}
