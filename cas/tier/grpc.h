/* cas/tier/grpc.h - calls over gRPC, for the transport that speaks it */
#ifndef CAS_TIER_GRPC_H
#define CAS_TIER_GRPC_H

#include <stdbool.h>
#include <stddef.h>

#include <protobuf-c/protobuf-c.h>

#include "cas/reapi.pb-c.h"
#include "cas/tier/transport.h"

struct err;
struct tier_url;

/* A service at one host, over one connection. Any number of threads make calls. */
struct tier_grpc;

/*
 * Options of the URL: token-file (a bearer token), ca-file (instead of the system's
 * authorities), cert-file and key-file (who we are), see TIER_GRPC_OPTIONS. The scheme
 * ends in 's' for TLS. Connects with the first call.
 * -EINVAL: a token without TLS, unless the host is this machine.
 */
int tier_grpc_open(const struct tier_url *url, struct tier_grpc **out, struct err *err);
void tier_grpc_close(struct tier_grpc *grpc);
#define TIER_GRPC_OPTIONS "token-file", "ca-file", "cert-file", "key-file"

/*
 * One call, driven by one thread: begun, messages sent and received, ended. It waits no
 * longer than its cas_call allows, and a cancelled one ends at once.
 */
struct tier_rpc;

/*
 * Begin a call of @method ("/package.Service/Method"). @action (may be NULL): the action
 * it is for. @sends_blobs: RESOURCE_EXHAUSTED and INVALID_ARGUMENT are about what we send.
 */
struct tier_rpc_to {
	const char *method;
	const struct cas_digest *action;
	bool sends_blobs;
};
int tier_rpc_begin(struct tier_grpc *grpc, const struct tier_rpc_to *to, struct cas_call *call,
		   struct tier_rpc **out, struct err *err);

/*
 * Send a message; @last: and no more of them. May return before it is on its way.
 * -EPIPE: the call is over, tier_rpc_end tells why.
 */
int tier_rpc_send(struct tier_rpc *rpc, const ProtobufCMessage *message, bool last);
/* Wait until what was sent is on its way. -EPIPE. */
int tier_rpc_flush(struct tier_rpc *rpc);
/* Is there something to receive already, or the end of it? Does not wait. */
bool tier_rpc_has_answer(struct tier_rpc *rpc);

/* 1 and a message, which is valid until the next call of this; 0 when there is none left. */
int tier_rpc_receive(struct tier_rpc *rpc, const void **data, size_t *len);
/* The same decoded, to be freed. -EPROTO: it is no such message. */
int tier_rpc_receive_message(struct tier_rpc *rpc, const ProtobufCMessageDescriptor *type,
			     ProtobufCMessage **out, struct err *err);

/*
 * End the call and free it. @ret not 0: give it up and return @ret. 0: wait for how it
 * ended, and return that as cas/tier.h has it, with call->retry_after_ms.
 */
int tier_rpc_end(struct tier_rpc *rpc, int ret, struct err *err);

/* One message out, one back. @out NULL: nobody wants it. -EPROTO: none came. */
int tier_rpc_unary(struct tier_grpc *grpc, const struct tier_rpc_to *to,
		   const ProtobufCMessage *request, const ProtobufCMessageDescriptor *type,
		   ProtobufCMessage **out, struct cas_call *call, struct err *err);

/* A random UUID. */
#define TIER_UUID_SZ 37
int tier_uuid_new(char out[TIER_UUID_SZ]);

/* What a google.rpc.Status means; 0 for OK. -EEXIST: of a blob that was sent. */
int tier_status_judge(int code, bool sends_blobs, bool may_retry);
/* Its RetryInfo: milliseconds, 0 when there is none. */
unsigned tier_status_retry_ms(const Reapi__Status *status);
/* The first blob that its PreconditionFailure calls missing ("blobs/HASH/SIZE"), or NULL; to be
 * freed. */
char *tier_status_missing(const Reapi__Status *status);
/* "NOT_FOUND", or "code N". */
const char *tier_status_name(int code, char out[16]);

#endif
