/* cas/tier/curl_transfer.c - one request under way: its bytes, and what came of it */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/err.h"
#include "cas/tier/curl.h"
#include "cas/tier/curl_i.h"

#define ERROR_MAX 4096

/* ---- callbacks ---- */

/* The first byte of a good answer: does it start where we asked? */
static int begin_body(struct tier_transfer *t)
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

static int take_good(struct tier_transfer *t, const char *data, size_t len)
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

size_t tier_curl_on_body(char *data, size_t size, size_t nr, void *ctx)
{
	struct tier_transfer *t = ctx;
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

size_t tier_curl_on_source(char *data, size_t size, size_t nr, void *ctx)
{
	struct tier_transfer *t = ctx;
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

int tier_curl_on_seek(void *ctx, curl_off_t offset, int origin)
{
	struct tier_transfer *t = ctx;

	if (origin != SEEK_SET || offset < 0)
		return CURL_SEEKFUNC_CANTSEEK;
	t->sent = (uint64_t)offset;
	return CURL_SEEKFUNC_OK;
}

/* ---- begin and end ---- */

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

void tier_curl_settle(struct tier_transfer *t, CURLcode code)
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

void tier_curl_end(struct tier_worker *w, struct tier_transfer *t)
{
	struct tier_transfer **p = &w->running;

	while (*p && *p != t)
		p = &(*p)->next;
	if (*p)
		*p = t->next;
	(void)w->api->curl_multi_remove_handle(w->multi, t->easy);
	w->api->curl_easy_reset(t->easy);
	w->api->curl_slist_free_all(t->headers);
	*t = (struct tier_transfer){.easy = t->easy, .next = w->free};
	w->free = t;
}

int tier_curl_begin(struct tier_curl *curl, struct tier_worker *w, struct tier_request *req,
		    struct cas_call *call)
{
	struct tier_transfer *t = w->free;
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
	ret = tier_curl_set_up(t);
	if (ret == 0 && w->api->curl_multi_add_handle(w->multi, t->easy) == CURLM_OK) {
		t->next = w->running;
		w->running = t;
		return 0;
	}
	ret = ret < 0 ? ret : -ENOMEM;
	req->result = ret;
	if (req->err)
		*req->err = t->why;
	tier_curl_end(w, t);
	return ret;
}
