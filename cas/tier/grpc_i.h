/* cas/tier/grpc_i.h - a connection over gRPC, for the files that make calls */
#ifndef CAS_TIER_GRPC_I_H
#define CAS_TIER_GRPC_I_H

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>

#include "cas/base/buf.h"
#include "cas/base/lock.h"
#include "cas/tier/grpc.h"

/* What is used of gRPC core, by its names there: it is loaded when it is needed. */
#define TIER_GRPC_API(X)                                                                           \
	X(gpr_inf_future)                                                                          \
	X(gpr_now)                                                                                 \
	X(gpr_set_log_function)                                                                    \
	X(gpr_time_add)                                                                            \
	X(gpr_time_from_millis)                                                                    \
	X(grpc_byte_buffer_destroy)                                                                \
	X(grpc_byte_buffer_reader_destroy)                                                         \
	X(grpc_byte_buffer_reader_init)                                                            \
	X(grpc_byte_buffer_reader_readall)                                                         \
	X(grpc_call_cancel)                                                                        \
	X(grpc_call_start_batch)                                                                   \
	X(grpc_call_unref)                                                                         \
	X(grpc_channel_create)                                                                     \
	X(grpc_channel_create_call)                                                                \
	X(grpc_channel_credentials_release)                                                        \
	X(grpc_channel_destroy)                                                                    \
	X(grpc_completion_queue_create_for_next)                                                   \
	X(grpc_completion_queue_destroy)                                                           \
	X(grpc_completion_queue_next)                                                              \
	X(grpc_completion_queue_shutdown)                                                          \
	X(grpc_empty_slice)                                                                        \
	X(grpc_init)                                                                               \
	X(grpc_insecure_credentials_create)                                                        \
	X(grpc_metadata_array_destroy)                                                             \
	X(grpc_metadata_array_init)                                                                \
	X(grpc_raw_byte_buffer_create)                                                             \
	X(grpc_shutdown_blocking)                                                                  \
	X(grpc_slice_from_copied_buffer)                                                           \
	X(grpc_slice_from_static_string)                                                           \
	X(grpc_slice_malloc)                                                                       \
	X(grpc_slice_str_cmp)                                                                      \
	X(grpc_slice_unref)                                                                        \
	X(grpc_ssl_credentials_create)

struct tier_grpc_api {
#define FIELD(name) __typeof__(&name) name;
	TIER_GRPC_API(FIELD)
#undef FIELD
};

struct tier_channel {
	grpc_channel *grpc;
	unsigned nr_refs; /* under tier_grpc.lock */
};

struct tier_grpc {
	struct tier_grpc_api api;
	char *name;   /* for messages */
	char *target; /* for gRPC */
	bool has_tls;
	char *token_file;
	char *ca_file;
	char *cert_file;
	char *key_file;
	char invocation[TIER_UUID_SZ];
	struct lock lock;	      /* a leaf; guards the rest */
	bool has_run;		      /* gRPC was started */
	struct tier_channel *channel; /* for new calls; NULL: to be made */
};

/* The connection, to be given back. */
int tier_channel_take(struct tier_grpc *g, struct tier_channel **out, struct err *err);
void tier_channel_give(struct tier_grpc *g, struct tier_channel *c);
/* It may be dead: new calls do not use it. */
void tier_channel_doubt(struct tier_grpc *g, struct tier_channel *c);

#endif
