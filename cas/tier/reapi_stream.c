/* cas/tier/reapi_stream.c - one blob at a time, through ByteStream */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/tier/reapi_i.h"
#include "cas/tier/zstd.h"

/*
 * A read that ended early is taken up by cas/tier/ops.c, which asks for the rest: offsets
 * are of the original, compressed or not. A write that did is remembered here, by the
 * random name that the server knows it by; the next attempt asks how far it came.
 * Compressed uploads are not taken up, servers do not agree on where that would be; the
 * attempt after one that failed sends the blob as it is.
 */

#define BYTE_STREAM "/google.bytestream.ByteStream/"
#define CHUNK	    (256u << 10)

/* ---- reading ---- */

struct reading {
	struct reapi *r;
	const struct cas_digest *digest;
	const struct cas_sink *sink;
	struct tier_unzstd *unzstd; /* NULL: it comes as it is */
	bool begun;		    /* the sink has bytes, of this attempt or an earlier one */
};

/* What is decompressed, on to the sink. */
static int take_plain(void *ctx, const void *data, size_t len, struct err *err)
{
	struct reading *in = ctx;

	in->begun = true;
	return in->sink->write(in->sink->ctx, data, len, err);
}

static int take_data(struct reading *in, const void *data, size_t len, struct err *err)
{
	const struct cas_sink plain = {.write = take_plain, .ctx = in};
	struct err why = {0};
	int ret;

	if (in->unzstd == NULL)
		return len > 0 ? in->sink->write(in->sink->ctx, data, len, err) : 0;
	ret = tier_unzstd_feed(in->unzstd, data, len, &plain, &why);
	if (ret == 0)
		return 0;
	if (ret != -EUCLEAN) {
		if (err)
			*err = why;
		return ret;
	}
	/* Next time without; and anew, for nobody knows where it began to be wrong. */
	in->r->no_unzstd = true;
	return err_set(err, in->begun ? -EOPNOTSUPP : -EAGAIN,
		       "tier %s: blob %s came compressed: %.300s", in->r->name,
		       CAS_DIGEST_TEXT(in->digest), why.msg);
}

static int read_stream(struct reading *in, struct tier_rpc *rpc, struct err *err)
{
	ProtobufCMessage *message;
	int ret;

	while ((ret = tier_rpc_receive_message(rpc, &reapi__read_response__descriptor, &message,
					       err)) == 1) {
		const Reapi__ReadResponse *part = (const Reapi__ReadResponse *)message;

		ret = take_data(in, part->data.data, part->data.len, err);
		protobuf_c_message_free_unpacked(message, NULL);
		if (ret != 0)
			break;
	}
	return ret;
}

static int read_blob(struct reading *in, const Reapi__ReadRequest *request, struct cas_call *call,
		     struct err *err)
{
	static const struct tier_rpc_to to = {.method = BYTE_STREAM "Read"};
	struct tier_rpc *rpc;
	int ret = tier_rpc_begin(in->r->grpc, &to, call, &rpc, err);

	if (ret < 0)
		return ret;
	ret = tier_rpc_send(rpc, &request->base, true);
	if (ret == 0)
		ret = read_stream(in, rpc, err);
	return tier_rpc_end(rpc, ret, err);
}

int reapi_get(void *ctx, const struct cas_digest *digest, uint64_t offset, uint64_t len,
	      const struct cas_sink *sink, struct cas_call *call, struct err *err)
{
	struct reading in = {.r = ctx, .digest = digest, .sink = sink, .begun = offset > 0};
	Reapi__ReadRequest request = REAPI__READ_REQUEST__INIT;
	auto_free char *name = NULL;
	struct reapi_caps caps;
	bool zstd;
	int ret = reapi_caps_get(in.r, &caps, call, err);

	if (ret < 0)
		return ret;
	/* A part cannot be asked for compressed. */
	zstd = caps.zstd && !in.r->no_unzstd && len == 0 && digest->size >= REAPI_ZSTD_MIN;
	if (asprintf(&name, "%s%s%s", in.r->prefix, zstd ? "compressed-blobs/zstd/" : "blobs/",
		     CAS_DIGEST_TEXT(digest)) < 0) {
		name = NULL;
		return -ENOMEM;
	}
	if (zstd)
		ret = tier_unzstd_new(&in.unzstd);
	request.resource_name = name;
	request.read_offset = (int64_t)offset;
	request.read_limit = (int64_t)len;
	if (ret == 0)
		ret = read_blob(&in, &request, call, err);
	tier_unzstd_free(in.unzstd);
	if (ret == -EOPNOTSUPP || ret == -EPROTO)
		reapi_caps_forget(in.r);
	return ret;
}

/* ---- uploads that ended early ---- */

/* Take it out of the table. False: there is none. */
static bool upload_take(struct reapi *r, const struct cas_digest *digest, struct reapi_upload *out)
{
	bool found = false;

	lock_take(&r->lock);
	for (size_t i = 0; i < REAPI_UPLOADS && !found; i++) {
		struct reapi_upload *u = &r->uploads[i];

		found = u->used && cas_digest_equal(&u->digest, digest);
		if (found) {
			*out = *u;
			u->used = false;
		}
	}
	lock_drop(&r->lock);
	return found;
}

static void upload_keep(struct reapi *r, const struct reapi_upload *upload)
{
	struct reapi_upload *to = NULL;

	lock_take(&r->lock);
	for (size_t i = 0; i < REAPI_UPLOADS && to == NULL; i++) {
		if (!r->uploads[i].used)
			to = &r->uploads[i];
	}
	if (to == NULL)
		to = &r->uploads[r->next_upload++ % REAPI_UPLOADS];
	*to = *upload;
	to->used = true;
	lock_drop(&r->lock);
}

/* ---- writing ---- */

struct writing {
	struct reapi *r;
	const struct cas_digest *digest;
	const struct cas_source *source;
	struct cas_call *call;
	struct tier_rpc *rpc;
	char *name;
	struct tier_zstd *zstd; /* NULL: it goes as it is */
	uint64_t offset;	/* what has been read of the source */
	uint64_t sent;		/* the offset of the next message */
	char *chunk;
	struct buf packed;
};

/* Another part of what is to be sent; *last. */
static int next_part(struct writing *w, const void **data, size_t *len, bool *last)
{
	int64_t got = tier_source_read(w->source, w->digest->size, w->offset, w->chunk, CHUNK);
	int ret;

	if (got < 0)
		return (int)got;
	w->offset += (uint64_t)got;
	*last = w->offset >= w->digest->size;
	*data = w->chunk;
	*len = (size_t)got;
	if (w->zstd == NULL)
		return 0;
	buf_reset(&w->packed);
	ret = tier_zstd_feed(w->zstd, w->chunk, (size_t)got, *last, &w->packed);
	*data = w->packed.data;
	*len = w->packed.len;
	return ret;
}

/* -EPIPE: the server wants no more of it. */
static int send_parts(struct writing *w)
{
	bool last = false;
	bool first = true;

	while (!last) {
		Reapi__WriteRequest request = REAPI__WRITE_REQUEST__INIT;
		const void *data = NULL;
		size_t len = 0;
		int ret = next_part(w, &data, &len, &last);

		if (ret < 0)
			return ret;
		/* The compressor wants more before it has any. */
		if (len == 0 && !last)
			continue;
		if (tier_rpc_has_answer(w->rpc))
			return -EPIPE;
		if (first)
			request.resource_name = w->name;
		request.write_offset = (int64_t)w->sent;
		request.finish_write = last;
		request.data.data = (uint8_t *)(uintptr_t)data;
		request.data.len = len;
		ret = tier_rpc_send(w->rpc, &request.base, last);
		if (ret < 0)
			return ret;
		first = false;
		w->sent += len;
		cas_call_progress(w->call, len);
	}
	return tier_rpc_flush(w->rpc);
}

/* Send it from w->offset on; what the server has then. */
static int write_stream(struct writing *w, int64_t *committed, struct err *err)
{
	static const struct tier_rpc_to to = {.method = BYTE_STREAM "Write", .sends_blobs = true};
	ProtobufCMessage *answer = NULL;
	int ret = tier_rpc_begin(w->r->grpc, &to, w->call, &w->rpc, err);
	int got;

	if (ret < 0)
		return ret;
	ret = send_parts(w);
	if (ret == 0 || ret == -EPIPE) {
		got = tier_rpc_receive_message(w->rpc, &reapi__write_response__descriptor, &answer,
					       err);
		if (got < 0)
			ret = got;
	}
	ret = tier_rpc_end(w->rpc, ret, err);
	if (ret == -EEXIST) {
		*committed = (int64_t)w->digest->size;
		ret = 0;
	} else if (ret == 0 && answer == NULL) {
		ret = err_set(err, -EPROTO, "tier %s does not say what it wrote", w->r->name);
	} else if (ret == 0)
		*committed = ((const Reapi__WriteResponse *)answer)->committed_size;
	if (answer)
		protobuf_c_message_free_unpacked(answer, NULL);
	return ret;
}

/* How far did it come? 1: all of it is there. */
static int ask_status(struct writing *w, struct err *err)
{
	static const struct tier_rpc_to to = {.method = BYTE_STREAM "QueryWriteStatus"};
	Reapi__QueryWriteStatusRequest request = REAPI__QUERY_WRITE_STATUS_REQUEST__INIT;
	const Reapi__QueryWriteStatusResponse *status;
	ProtobufCMessage *answer;
	int ret;

	request.resource_name = w->name;
	ret = tier_rpc_unary(w->r->grpc, &to, &request.base,
			     &reapi__query_write_status_response__descriptor, &answer, w->call,
			     err);
	if (ret < 0)
		return ret;
	status = (const Reapi__QueryWriteStatusResponse *)answer;
	if (status->complete)
		ret = 1;
	else if (status->committed_size > 0 && (uint64_t)status->committed_size < w->digest->size)
		w->offset = w->sent = (uint64_t)status->committed_size;
	protobuf_c_message_free_unpacked(answer, NULL);
	return ret;
}

static int name_upload(struct writing *w, struct reapi_upload *upload)
{
	int ret = upload->uuid[0] ? 0 : tier_uuid_new(upload->uuid);

	free(w->name);
	w->name = NULL;
	if (ret == 0 && asprintf(&w->name, "%suploads/%s/%s%s", w->r->prefix, upload->uuid,
				 w->zstd ? "compressed-blobs/zstd/" : "blobs/",
				 CAS_DIGEST_TEXT(w->digest)) < 0) {
		w->name = NULL;
		ret = -ENOMEM;
	}
	return ret;
}

/* Take up an upload that ended early, or begin one. 1: it was complete. */
static int prepare(struct writing *w, const struct reapi_caps *caps, struct reapi_upload *upload,
		   struct err *err)
{
	bool is_second = upload_take(w->r, w->digest, upload);
	int ret = 0;

	w->chunk = malloc(CHUNK);
	if (w->chunk == NULL)
		return -ENOMEM;
	upload->digest = *w->digest;
	if (!is_second && caps->zstd && w->digest->size >= REAPI_ZSTD_MIN)
		ret = tier_zstd_new(&w->zstd);
	if (ret == 0 && is_second && upload->uuid[0]) {
		ret = name_upload(w, upload);
		if (ret == 0)
			ret = ask_status(w, err);
		/* It knows nothing of it. */
		if (ret == -ENOENT || ret == -EOPNOTSUPP || ret == -EPROTO) {
			upload->uuid[0] = '\0';
			ret = 0;
		}
	}
	return ret == 0 ? name_upload(w, upload) : ret;
}

static void writing_fini(struct writing *w)
{
	tier_zstd_free(w->zstd);
	free(w->name);
	free(w->chunk);
	buf_fini(&w->packed);
}

int reapi_put(void *ctx, const struct cas_digest *digest, const struct cas_source *source,
	      struct cas_call *call, struct err *err)
{
	struct writing w = {.r = ctx, .digest = digest, .source = source, .call = call};
	struct reapi_upload upload = {0};
	struct reapi_caps caps;
	int64_t committed = 0;
	int ret = reapi_caps_get(w.r, &caps, call, err);

	if (ret == 0 && caps.blob_max > 0 && digest->size > caps.blob_max)
		ret = err_set(err, -EFBIG, "tier %s takes no blob of %llu bytes", w.r->name,
			      (unsigned long long)digest->size);
	if (ret < 0)
		return ret;
	ret = prepare(&w, &caps, &upload, err);
	if (ret == 0)
		ret = write_stream(&w, &committed, err);
	else if (ret == 1) {
		committed = (int64_t)digest->size;
		ret = 0;
	}
	if (ret == 0 && w.zstd == NULL && committed != (int64_t)digest->size)
		ret = err_set(err, -EAGAIN, "tier %s has %lld bytes of blob %s", w.r->name,
			      (long long)committed, CAS_DIGEST_TEXT(digest));
	if (ret == -EOPNOTSUPP || ret == -EPROTO)
		reapi_caps_forget(w.r);
	/* Perhaps it only could not decompress it. */
	if (ret == -EBADMSG && w.zstd)
		ret = -EAGAIN;
	if (ret == -EAGAIN || ret == -ETIMEDOUT) {
		if (w.zstd)
			upload.uuid[0] = '\0';
		upload_keep(w.r, &upload);
	}
	writing_fini(&w);
	return ret;
}
