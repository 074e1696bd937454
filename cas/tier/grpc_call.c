/* cas/tier/grpc_call.c - calls over gRPC */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/store/layout.h"
#include "cas/tier/grpc_i.h"
#include "cas/tier/secret.h"

/*
 * A call has a completion queue of its own, which the thread that makes the call waits at,
 * and whoever waits there does the reading and writing. So there is no thread of ours, no
 * hand-over, and nothing between a call and its cancellation but grpc_call_cancel, after
 * which all that is pending completes at once. Deadlines move while bytes do (cas/base/call.h),
 * so gRPC is told of none.
 */

#define HEADERS_MAX 2
#define DETAIL_MAX  300
#define LONG_MS	    3600000

/* What is pending at a call, or failed: bits, and the tags of the completion queue. */
#define OP_STATUS  1u
#define OP_SEND	   2u
#define OP_RECEIVE 4u

struct tier_rpc {
	const struct tier_grpc_api *api; /* the owner's */
	struct tier_grpc *owner;
	struct tier_channel *channel;
	const char *method;
	bool sends_blobs;
	struct cas_call *limit;
	grpc_completion_queue *cq;
	grpc_call *call;
	unsigned pending;
	unsigned failed;
	bool begun;	/* the headers went with the first message */
	bool receiving; /* a receive was started whose message nobody took */
	bool answered;	/* a message came */
	int given_up;	/* -ECANCELED or -ETIMEDOUT: we cancelled it */
	size_t nr_headers;
	grpc_metadata headers[HEADERS_MAX];
	grpc_byte_buffer *sending;
	grpc_byte_buffer *received;
	grpc_slice message; /* the last one received */
	grpc_metadata_array head;
	grpc_metadata_array tail;
	grpc_status_code code;
	grpc_slice details;
};

static void add_header(struct tier_rpc *rpc, const char *name, const void *value, size_t len)
{
	grpc_metadata *m = &rpc->headers[rpc->nr_headers++];

	m->key = rpc->api->grpc_slice_from_static_string(name);
	m->value = rpc->api->grpc_slice_from_copied_buffer(value, len);
}

static int add_metadata(struct tier_rpc *rpc, const struct cas_digest *action)
{
	Reapi__ToolDetails tool = REAPI__TOOL_DETAILS__INIT;
	Reapi__RequestMetadata metadata = REAPI__REQUEST_METADATA__INIT;
	char hash[CAS_HASH_HEX_SZ + 1] = "";
	uint8_t packed[512];

	tool.tool_name = (char *)(uintptr_t) "casbox";
	tool.tool_version = (char *)(uintptr_t)CASBOX_VERSION;
	metadata.tool_details = &tool;
	if (action)
		cas_hash_format(action->hash, hash);
	metadata.action_id = hash;
	metadata.tool_invocation_id = rpc->owner->invocation;
	if (reapi__request_metadata__get_packed_size(&metadata) > sizeof(packed))
		return -EPROTO;
	add_header(rpc, "build.bazel.remote.execution.v2.requestmetadata-bin", packed,
		   reapi__request_metadata__pack(&metadata, packed));
	return 0;
}

static int add_token(struct tier_rpc *rpc, struct err *err)
{
	auto_secret struct buf secret = {0};
	auto_secret struct buf value = {0};
	int ret;

	if (rpc->owner->token_file == NULL)
		return 0;
	ret = tier_secret_read(rpc->owner->token_file, &secret, err);
	if (ret == 0)
		ret = buf_reserve(&value, secret.len + sizeof("Bearer "));
	if (ret == 0)
		ret = buf_append_str(&value, "Bearer ");
	if (ret == 0)
		ret = buf_append(&value, secret.data, secret.len);
	if (ret == 0)
		add_header(rpc, "authorization", value.data, value.len);
	return ret;
}

/* ---- waiting ---- */

static gpr_timespec in_ms(const struct tier_rpc *rpc, unsigned ms)
{
	return rpc->api->gpr_time_add(rpc->api->gpr_now(GPR_CLOCK_MONOTONIC),
				      rpc->api->gpr_time_from_millis(ms, GPR_TIMESPAN));
}

/* One event, if it comes in time. */
static void poll_once(struct tier_rpc *rpc, unsigned ms)
{
	grpc_event ev = rpc->api->grpc_completion_queue_next(rpc->cq, in_ms(rpc, ms), NULL);

	if (ev.type != GRPC_OP_COMPLETE)
		return;
	rpc->pending &= ~(unsigned)(uintptr_t)ev.tag;
	if (!ev.success)
		rpc->failed |= (unsigned)(uintptr_t)ev.tag;
}

/* Until none of @ops is pending. A call that takes too long is cancelled meanwhile. */
static void await(struct tier_rpc *rpc, unsigned ops)
{
	while (rpc->pending & ops) {
		if (rpc->given_up == 0) {
			rpc->given_up = cas_call_check(rpc->limit);
			if (rpc->given_up < 0)
				(void)rpc->api->grpc_call_cancel(rpc->call, NULL);
		}
		poll_once(rpc, rpc->given_up ? LONG_MS : cas_call_left_ms(rpc->limit, LONG_MS));
	}
}

static int start(struct tier_rpc *rpc, const grpc_op *ops, size_t nr, unsigned op)
{
	if (rpc->api->grpc_call_start_batch(rpc->call, ops, nr, (void *)(uintptr_t)op, NULL) !=
	    GRPC_CALL_OK)
		return -EIO;
	rpc->pending |= op;
	return 0;
}

static void wake(void *ctx)
{
	const struct tier_rpc *rpc = ctx;

	(void)rpc->api->grpc_call_cancel(rpc->call, NULL);
}

/* ---- the life of a call ---- */

static void rpc_free(struct tier_rpc *rpc)
{
	if (rpc->call) {
		cas_call_unregister(rpc->limit);
		await(rpc, ~0u);
		rpc->api->grpc_call_unref(rpc->call);
	}
	if (rpc->cq) {
		rpc->api->grpc_completion_queue_shutdown(rpc->cq);
		while (rpc->api->grpc_completion_queue_next(rpc->cq, in_ms(rpc, LONG_MS), NULL)
			       .type != GRPC_QUEUE_SHUTDOWN) {
		}
		rpc->api->grpc_completion_queue_destroy(rpc->cq);
	}
	for (size_t i = 0; i < rpc->nr_headers; i++)
		rpc->api->grpc_slice_unref(rpc->headers[i].value);
	if (rpc->sending)
		rpc->api->grpc_byte_buffer_destroy(rpc->sending);
	if (rpc->received)
		rpc->api->grpc_byte_buffer_destroy(rpc->received);
	rpc->api->grpc_slice_unref(rpc->message);
	rpc->api->grpc_slice_unref(rpc->details);
	rpc->api->grpc_metadata_array_destroy(&rpc->head);
	rpc->api->grpc_metadata_array_destroy(&rpc->tail);
	tier_channel_give(rpc->owner, rpc->channel);
	free(rpc);
}

static int begin_call(struct tier_rpc *rpc, const struct tier_rpc_to *to, struct err *err)
{
	grpc_op ops[2] = {{.op = GRPC_OP_RECV_INITIAL_METADATA,
			   .data.recv_initial_metadata.recv_initial_metadata = &rpc->head},
			  {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
			   .data.recv_status_on_client = {.trailing_metadata = &rpc->tail,
							  .status = &rpc->code,
							  .status_details = &rpc->details}}};
	int ret = add_metadata(rpc, to->action);

	if (ret == 0)
		ret = add_token(rpc, err);
	if (ret == 0)
		ret = tier_channel_take(rpc->owner, &rpc->channel, err);
	if (ret < 0)
		return ret;
	rpc->cq = rpc->api->grpc_completion_queue_create_for_next(NULL);
	rpc->call = rpc->api->grpc_channel_create_call(
		rpc->channel->grpc, NULL, GRPC_PROPAGATE_DEFAULTS, rpc->cq,
		rpc->api->grpc_slice_from_static_string(to->method), NULL,
		rpc->api->gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
	if (rpc->call == NULL)
		return -ENOMEM;
	cas_call_register(rpc->limit, wake, rpc);
	return start(rpc, ops, 2, OP_STATUS);
}

int tier_rpc_begin(struct tier_grpc *grpc, const struct tier_rpc_to *to, struct cas_call *call,
		   struct tier_rpc **out, struct err *err)
{
	struct tier_rpc *rpc = calloc(1, sizeof(*rpc));
	int ret;

	if (rpc == NULL)
		return -ENOMEM;
	rpc->api = &grpc->api;
	rpc->owner = grpc;
	rpc->method = to->method;
	rpc->sends_blobs = to->sends_blobs;
	rpc->limit = call;
	rpc->message = rpc->api->grpc_empty_slice();
	rpc->details = rpc->api->grpc_empty_slice();
	rpc->api->grpc_metadata_array_init(&rpc->head);
	rpc->api->grpc_metadata_array_init(&rpc->tail);
	ret = begin_call(rpc, to, err);
	if (ret < 0) {
		rpc_free(rpc);
		return ret;
	}
	*out = rpc;
	return 0;
}

int tier_rpc_flush(struct tier_rpc *rpc)
{
	await(rpc, OP_SEND);
	if (rpc->sending)
		rpc->api->grpc_byte_buffer_destroy(rpc->sending);
	rpc->sending = NULL;
	return rpc->failed & OP_SEND ? -EPIPE : 0;
}

int tier_rpc_send(struct tier_rpc *rpc, const ProtobufCMessage *message, bool last)
{
	grpc_op ops[3] = {{.op = GRPC_OP_SEND_MESSAGE}};
	size_t nr = 1;
	grpc_slice bytes;
	int ret = tier_rpc_flush(rpc);

	if (ret < 0)
		return ret;
	bytes = rpc->api->grpc_slice_malloc(protobuf_c_message_get_packed_size(message));
	(void)protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(bytes));
	rpc->sending = rpc->api->grpc_raw_byte_buffer_create(&bytes, 1);
	rpc->api->grpc_slice_unref(bytes);
	ops[0].data.send_message.send_message = rpc->sending;
	if (!rpc->begun) {
		ops[nr].op = GRPC_OP_SEND_INITIAL_METADATA;
		ops[nr].data.send_initial_metadata.count = rpc->nr_headers;
		ops[nr++].data.send_initial_metadata.metadata = rpc->headers;
		rpc->begun = true;
	}
	if (last)
		ops[nr++].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
	return start(rpc, ops, nr, OP_SEND);
}

static int start_receiving(struct tier_rpc *rpc)
{
	grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &rpc->received};
	int ret = rpc->receiving ? 0 : start(rpc, &op, 1, OP_RECEIVE);

	rpc->receiving = ret == 0;
	return ret;
}

bool tier_rpc_has_answer(struct tier_rpc *rpc)
{
	if (start_receiving(rpc) < 0)
		return true;
	if (rpc->pending & OP_RECEIVE)
		poll_once(rpc, 0);
	return !(rpc->pending & OP_RECEIVE);
}

int tier_rpc_receive(struct tier_rpc *rpc, const void **data, size_t *len)
{
	grpc_byte_buffer_reader reader;
	int ret = start_receiving(rpc);

	if (ret < 0)
		return ret;
	await(rpc, OP_RECEIVE);
	rpc->receiving = false;
	if (rpc->received == NULL)
		return 0;
	rpc->answered = true;
	rpc->api->grpc_slice_unref(rpc->message);
	rpc->message = rpc->api->grpc_empty_slice();
	if (rpc->api->grpc_byte_buffer_reader_init(&reader, rpc->received)) {
		rpc->message = rpc->api->grpc_byte_buffer_reader_readall(&reader);
		rpc->api->grpc_byte_buffer_reader_destroy(&reader);
	}
	rpc->api->grpc_byte_buffer_destroy(rpc->received);
	rpc->received = NULL;
	*data = GRPC_SLICE_START_PTR(rpc->message);
	*len = GRPC_SLICE_LENGTH(rpc->message);
	return 1;
}

int tier_rpc_receive_message(struct tier_rpc *rpc, const ProtobufCMessageDescriptor *type,
			     ProtobufCMessage **out, struct err *err)
{
	const void *data;
	size_t len;
	int ret = tier_rpc_receive(rpc, &data, &len);

	if (ret != 1)
		return ret;
	*out = protobuf_c_message_unpack(type, NULL, len, data);
	return *out ? 1
		    : err_set(err, -EPROTO, "tier %s: what %s answers is no %s", rpc->owner->name,
			      rpc->method, type->short_name);
}

/* ---- how it ended ---- */

/* The google.rpc.Status that came with it, or NULL. */
static Reapi__Status *status_of(const struct tier_rpc *rpc)
{
	for (size_t i = 0; i < rpc->tail.count; i++) {
		const grpc_metadata *m = &rpc->tail.metadata[i];

		if (rpc->api->grpc_slice_str_cmp(m->key, "grpc-status-details-bin") == 0)
			return reapi__status__unpack(NULL, GRPC_SLICE_LENGTH(m->value),
						     GRPC_SLICE_START_PTR(m->value));
	}
	return NULL;
}

/* What the server says, as far as it is fit to be printed. */
static void copy_details(const struct tier_rpc *rpc, char out[DETAIL_MAX])
{
	const unsigned char *text = GRPC_SLICE_START_PTR(rpc->details);
	size_t len = GRPC_SLICE_LENGTH(rpc->details);

	if (len > DETAIL_MAX - 1)
		len = DETAIL_MAX - 1;
	for (size_t i = 0; i < len; i++)
		out[i] = text[i] < ' ' || text[i] == 0x7f ? '?' : (char)text[i];
	out[len] = '\0';
}

static int judge(struct tier_rpc *rpc, struct err *err)
{
	Reapi__Status *status = status_of(rpc);
	unsigned retry_ms = status ? tier_status_retry_ms(status) : 0;
	auto_free char *missing = status ? tier_status_missing(status) : NULL;
	int ret = tier_status_judge((int)rpc->code, rpc->sends_blobs, retry_ms > 0);
	char details[DETAIL_MAX];
	char name[16];

	if (status)
		reapi__status__free_unpacked(status, NULL);
	rpc->limit->retry_after_ms = retry_ms;
	if (missing && ret == -EPROTO)
		return err_set(err, -ENOENT, "tier %s: %s misses %.200s", rpc->owner->name,
			       rpc->method, missing);
	if (ret == 0)
		return 0;
	copy_details(rpc, details);
	return err_set(err, ret, "tier %s: %s: %s: %s", rpc->owner->name, rpc->method,
		       tier_status_name((int)rpc->code, name), details);
}

/* Is nobody at the other end? On a new channel, gRPC does not wait before it connects. */
static bool is_dead(const struct tier_rpc *rpc)
{
	if (rpc->answered)
		return false;
	return rpc->given_up == -ETIMEDOUT ||
	       (rpc->given_up == 0 && rpc->code == GRPC_STATUS_UNAVAILABLE && rpc->tail.count == 0);
}

int tier_rpc_end(struct tier_rpc *rpc, int ret, struct err *err)
{
	if (ret != 0 && ret != -EPIPE)
		(void)rpc->api->grpc_call_cancel(rpc->call, NULL);
	await(rpc, ~0u);
	if (rpc->given_up == 0 && rpc->code == GRPC_STATUS_CANCELLED)
		rpc->given_up = cas_call_check(rpc->limit);
	if (is_dead(rpc))
		tier_channel_doubt(rpc->owner, rpc->channel);
	if (rpc->given_up == -ETIMEDOUT) {
		ret = err_set(err, -ETIMEDOUT, "tier %s: %s: no answer in time", rpc->owner->name,
			      rpc->method);
	} else if (rpc->given_up < 0) {
		ret = rpc->given_up;
	} else if (ret == 0 || ret == -EPIPE) {
		ret = judge(rpc, err);
	}
	rpc_free(rpc);
	return ret;
}

int tier_rpc_unary(struct tier_grpc *grpc, const struct tier_rpc_to *to,
		   const ProtobufCMessage *request, const ProtobufCMessageDescriptor *type,
		   ProtobufCMessage **out, struct cas_call *call, struct err *err)
{
	ProtobufCMessage *answer = NULL;
	struct tier_rpc *rpc;
	int ret = tier_rpc_begin(grpc, to, call, &rpc, err);

	if (ret < 0)
		return ret;
	ret = tier_rpc_send(rpc, request, true);
	if (ret == 0)
		ret = tier_rpc_receive_message(rpc, type, &answer, err);
	ret = tier_rpc_end(rpc, ret < 0 ? ret : 0, err);
	if (ret == 0 && answer == NULL)
		ret = err_set(err, -EPROTO, "%s gave no answer", to->method);
	if (ret == 0 && out)
		*out = steal_ptr(&answer);
	if (answer)
		protobuf_c_message_free_unpacked(answer, NULL);
	return ret;
}
