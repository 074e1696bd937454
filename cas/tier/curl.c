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
#define POLL_MS	     1000

static void worker_free(struct tier_worker *w)
{
	if (w == NULL)
		return;
	while (w->free) {
		struct tier_transfer *t = w->free;

		w->free = t->next;
		w->api->curl_easy_cleanup(t->easy);
		free(t);
	}
	if (w->multi)
		(void)w->api->curl_multi_cleanup(w->multi);
	free(w);
}

static int worker_take(struct tier_curl *curl, struct tier_worker **out)
{
	struct tier_worker *w;

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

static void worker_give(struct tier_curl *curl, struct tier_worker *w)
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
		struct tier_worker *w = curl->idle;

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

/* ---- many ---- */

struct run {
	struct tier_curl *curl;
	struct tier_worker *worker;
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

		if (tier_curl_begin(r->curl, r->worker, req, r->call) == 0)
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
		struct tier_transfer *t = NULL;
		struct tier_request *req;

		if (msg->msg != CURLMSG_DONE)
			continue;
		(void)api->curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &t);
		req = t->req;
		tier_curl_settle(t, msg->data.result);
		tier_curl_end(r->worker, t);
		r->nr_running--;
		ret = report(r, req);
	}
	return ret;
}

static void wake(void *ctx)
{
	struct tier_worker *w = ctx;

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
		tier_curl_end(r.worker, r.worker->running);
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
