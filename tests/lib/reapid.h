/* tests/lib/reapid.h - what the files of the small REAPI server share */
#ifndef TESTS_LIB_REAPID_H
#define TESTS_LIB_REAPID_H

#include <grpc/grpc.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

#include "cas/base/buf.h"
#include "cas/digest.h"
#include "cas/reapi.pb-c.h"

enum fault {
	FAULT_NONE,
	FAULT_HANG,	 /* no answer at all */
	FAULT_SILENT,	 /* headers, and nothing else */
	FAULT_DRIP,	 /* a byte each 20 ms */
	FAULT_RESET,	 /* the connection is reset instead of an answer */
	FAULT_HALF,	 /* it is reset after half of the bytes */
	FAULT_TRUNCATE,	 /* it ends after half of the bytes */
	FAULT_CHUNKS,	 /* half of the bytes, and OK */
	FAULT_SHORT,	 /* one byte less, and OK */
	FAULT_LONG,	 /* one byte more */
	FAULT_EMPTY,	 /* none */
	FAULT_WRONG,	 /* other bytes */
	FAULT_HTML,	 /* a page that says sorry */
	FAULT_JUNK,	 /* a message that is none */
	FAULT_GARBAGE,	 /* compressed, but not quite */
	FAULT_ABSENT,	 /* NOT_FOUND */
	FAULT_ERROR,	 /* INTERNAL */
	FAULT_BUSY,	 /* UNAVAILABLE, and when to come again */
	FAULT_EXHAUSTED, /* RESOURCE_EXHAUSTED, and when to come again */
	FAULT_GATEWAY,	 /* UNAVAILABLE */
	FAULT_DELAY,	 /* 100 ms, then the answer */
	FAULT_CUT,	 /* of a write: the connection ends in the middle */
	FAULT_FULL,	 /* of a write: RESOURCE_EXHAUSTED */
};

/* One call, served by a thread of its own. */
struct call {
	grpc_call *call;
	grpc_completion_queue *cq;
	grpc_call_details details;
	grpc_metadata_array headers;
	char method[64]; /* after the last slash */
	bool closed;	 /* it was */
	int cancelled;
	bool begun;
};

extern const char *dir; /* where everything lies */

/* DIR/NAME. */
const char *dir_path(const char *name, char out[600]);
bool dir_has(const char *name);
bool offers_zstd(void);
bool is_far(void); /* $REAPID_DELAY_MS */
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

void log_put(const char *instance, const struct cas_digest *d, const char *how);

/* What goes wrong this time; @write: with what is written. */
enum fault next_fault(bool write);

/* A message of this type; NULL when there is none left. Never returns one that is malformed. */
ProtobufCMessage *receive(struct call *c, const ProtobufCMessageDescriptor *type);
/* False: nobody listens any more. */
bool send_message(struct call *c, const ProtobufCMessage *message);
bool send_bytes(struct call *c, const void *data, size_t len);
/* The end of the call. @retry_ms > 0: as RetryInfo. */
void send_status(struct call *c, int code, const char *text, unsigned retry_ms);
/* The end of the connection. */
void drop_connection(struct call *c, bool with_reset);
/* Until the caller gives up, or the fault is another. */
void hang(struct call *c);
/* Faults that are no matter of bytes. True: it is dealt with. */
bool fail(struct call *c, enum fault fault);

/* The file of a blob or ("ac") result of an instance. */
const char *blob_path(const char *instance, const char *kind, const struct cas_digest *d,
		      char out[1200]);
/* Read it, as far as the fault lets it be; false: it is not there. */
bool load(const char *instance, const char *kind, const struct cas_digest *d, struct buf *out);
bool store(const char *instance, const char *kind, const struct cas_digest *d, const void *data,
	   size_t len);
/* What a fault makes of bytes. */
void spoil(enum fault fault, struct buf *data);
void parse_digest(const Reapi__Digest *message, struct cas_digest *out);

/* Methods; those of ByteStream are in reapid_stream.c, the others in reapid_cas.c. */
void serve_capabilities(struct call *c);
void serve_find_missing(struct call *c);
void serve_batch_read(struct call *c);
void serve_batch_update(struct call *c);
void serve_tree(struct call *c);
void serve_action_get(struct call *c);
void serve_action_put(struct call *c);
void serve_read(struct call *c);
void serve_write(struct call *c);
void serve_query(struct call *c);

#endif
