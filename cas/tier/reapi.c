/* cas/tier/reapi.c - grpc(s)://HOST[:PORT][/INSTANCE]: CAS and action cache of REAPI */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/store/layout.h"
#include "cas/tier/reapi_i.h"
#include "cas/tier/url.h"

/*
 * Here: opening, what the server can, action results. Blobs one at a time are in
 * reapi_stream.c, many at once in reapi_batch.c, whole trees in reapi_tree.c.
 *
 * Its capabilities are asked for with the first call and kept until it refuses something
 * that they allow. A server that does not know the question is taken for one that does
 * SHA-256 and nothing optional.
 */

/* gRPC servers take messages of 4 MiB unless told otherwise; this leaves room for names. */
#define BATCH_MAX ((4u << 20) - (256u << 10))

static void reapi_close(void *ctx)
{
	struct reapi *r = ctx;

	tier_grpc_close(r->grpc);
	free(r->name);
	free(r->instance);
	free(r->prefix);
	lock_fini(&r->lock);
	free(r);
}

/* Segments that would be taken for something else in a resource name. */
static int check_instance(const char *instance, const struct tier_url *url, struct err *err)
{
	static const char *const taken[] = {"blobs",	       "uploads",    "actions",
					    "actionResults",   "operations", "capabilities",
					    "compressed-blobs"};

	for (const char *p = instance; *p != '\0';) {
		size_t len = strcspn(p, "/");

		for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
			if (strlen(taken[i]) == len && memcmp(p, taken[i], len) == 0)
				return err_set(err, -EINVAL,
					       "tier %s: \"%s\" cannot be part of an instance name",
					       url->text, taken[i]);
		}
		p += len + (p[len] == '/');
	}
	return 0;
}

static int reapi_open(const struct tier_url *url, void **ctx, struct err *err)
{
	struct reapi *r;
	int ret = check_instance(url->path, url, err);

	if (ret < 0)
		return ret;
	r = calloc(1, sizeof(*r));
	if (r == NULL)
		return -ENOMEM;
	lock_init(&r->lock, LOCK_RANK_LEAF, "reapi.lock");
	*ctx = r;
	r->compress = true;
	r->name = strdup(url->text);
	r->instance = strdup(url->path);
	if (asprintf(&r->prefix, "%s%s", url->path, url->path[0] ? "/" : "") < 0)
		r->prefix = NULL;
	if (!r->name || !r->instance || !r->prefix)
		return -ENOMEM;
	ret = tier_url_flag(url, "compress", &r->compress, err);
	return ret == 0 ? tier_grpc_open(url, &r->grpc, err) : ret;
}

/* ---- capabilities ---- */

static bool has(const int32_t *list, size_t nr, int32_t wanted)
{
	for (size_t i = 0; i < nr; i++) {
		if (list[i] == wanted)
			return true;
	}
	return false;
}

static int read_caps(const struct reapi *r, const Reapi__CacheCapabilities *from,
		     struct reapi_caps *caps, struct err *err)
{
	if (from->n_digest_functions > 0 &&
	    !has(from->digest_functions, from->n_digest_functions, REAPI_SHA256))
		return err_set(err, -EOPNOTSUPP, "tier %s does not name blobs by SHA-256", r->name);
	caps->zstd = has(from->supported_compressors, from->n_supported_compressors, REAPI_ZSTD);
	caps->zstd_batch = has(from->supported_batch_update_compressors,
			       from->n_supported_batch_update_compressors, REAPI_ZSTD);
	caps->no_actions = from->action_cache_update_capabilities &&
			   !from->action_cache_update_capabilities->update_enabled;
	if (from->max_batch_total_size_bytes > 0 &&
	    (uint64_t)from->max_batch_total_size_bytes < caps->batch_max)
		caps->batch_max = (uint64_t)from->max_batch_total_size_bytes;
	if (from->max_cas_blob_size_bytes > 0)
		caps->blob_max = (uint64_t)from->max_cas_blob_size_bytes;
	return 0;
}

static int ask_caps(struct reapi *r, struct reapi_caps *caps, struct cas_call *call,
		    struct err *err)
{
	static const struct tier_rpc_to to = {
		.method = "/build.bazel.remote.execution.v2.Capabilities/GetCapabilities"};
	Reapi__GetCapabilitiesRequest request = REAPI__GET_CAPABILITIES_REQUEST__INIT;
	ProtobufCMessage *answer = NULL;
	const Reapi__ServerCapabilities *server;
	int ret;

	request.instance_name = r->instance;
	ret = tier_rpc_unary(r->grpc, &to, &request.base, &reapi__server_capabilities__descriptor,
			     &answer, call, err);
	if (ret == -EOPNOTSUPP)
		return 0;
	/* It is no blob that is not there. */
	if (ret == -ENOENT)
		return err_set(err, -EPROTO, "tier %s knows no instance \"%s\"", r->name,
			       r->instance);
	if (ret < 0)
		return ret;
	server = (const Reapi__ServerCapabilities *)answer;
	if (server->cache_capabilities)
		ret = read_caps(r, server->cache_capabilities, caps, err);
	else
		ret = err_set(err, -EOPNOTSUPP, "tier %s is no cache", r->name);
	protobuf_c_message_free_unpacked(answer, NULL);
	return ret;
}

int reapi_caps_get(struct reapi *r, struct reapi_caps *out, struct cas_call *call, struct err *err)
{
	struct reapi_caps caps;
	int ret;

	lock_take(&r->lock);
	caps = r->caps;
	lock_drop(&r->lock);
	if (!caps.known) {
		caps = (struct reapi_caps){.known = true, .batch_max = BATCH_MAX};
		ret = ask_caps(r, &caps, call, err);
		if (ret < 0)
			return ret;
		lock_take(&r->lock);
		r->caps = caps;
		lock_drop(&r->lock);
	}
	caps.zstd = caps.zstd && r->compress;
	caps.zstd_batch = caps.zstd_batch && r->compress;
	*out = caps;
	return 0;
}

void reapi_caps_forget(struct reapi *r)
{
	lock_take(&r->lock);
	r->caps.known = false;
	lock_drop(&r->lock);
}

/* ---- digests ---- */

void reapi_digest(const struct cas_digest *digest, char hash[CAS_HASH_HEX_SZ + 1],
		  Reapi__Digest *out)
{
	*out = (Reapi__Digest)REAPI__DIGEST__INIT;
	cas_hash_format(digest->hash, hash);
	out->hash = hash;
	out->size_bytes = (int64_t)digest->size;
}

int reapi_digest_take(const Reapi__Digest *message, struct cas_digest *out)
{
	if (message == NULL || message->size_bytes < 0)
		return -EINVAL;
	out->size = (uint64_t)message->size_bytes;
	return cas_hash_parse(message->hash, strlen(message->hash), out->hash);
}

/* ---- action results ---- */

#define ACTION_CACHE "/build.bazel.remote.execution.v2.ActionCache/"

/* The only answer that is a message to be kept as it is. */
static int receive_result(struct reapi *r, struct tier_rpc *rpc, struct buf *out, struct err *err)
{
	Reapi__ActionResult *result;
	const void *data;
	size_t len;
	int ret = tier_rpc_receive(rpc, &data, &len);

	if (ret != 1)
		return ret;
	result = reapi__action_result__unpack(NULL, len, data);
	if (result == NULL)
		return err_set(err, -EPROTO, "tier %s sent no ActionResult", r->name);
	reapi__action_result__free_unpacked(result, NULL);
	return buf_append(out, data, len);
}

static int reapi_action_get(void *ctx, const struct cas_digest *action, struct buf *out,
			    struct cas_call *call, struct err *err)
{
	struct reapi *r = ctx;
	const struct tier_rpc_to to = {.method = ACTION_CACHE "GetActionResult", .action = action};
	Reapi__GetActionResultRequest request = REAPI__GET_ACTION_RESULT_REQUEST__INIT;
	char hash[CAS_HASH_HEX_SZ + 1];
	struct reapi_caps caps;
	Reapi__Digest digest;
	struct tier_rpc *rpc;
	int ret = reapi_caps_get(r, &caps, call, err);

	if (ret == 0)
		ret = tier_rpc_begin(r->grpc, &to, call, &rpc, err);
	if (ret < 0)
		return ret;
	reapi_digest(action, hash, &digest);
	request.instance_name = r->instance;
	request.action_digest = &digest;
	request.digest_function = REAPI_SHA256;
	ret = tier_rpc_send(rpc, &request.base, true);
	if (ret == 0)
		ret = receive_result(r, rpc, out, err);
	return tier_rpc_end(rpc, ret, err);
}

static int reapi_action_put(void *ctx, const struct cas_digest *action, const void *data,
			    size_t len, struct cas_call *call, struct err *err)
{
	struct reapi *r = ctx;
	const struct tier_rpc_to to = {.method = ACTION_CACHE "UpdateActionResult",
				       .action = action};
	Reapi__UpdateActionResultRequest request = REAPI__UPDATE_ACTION_RESULT_REQUEST__INIT;
	char hash[CAS_HASH_HEX_SZ + 1];
	struct reapi_caps caps;
	Reapi__Digest digest;
	int ret = reapi_caps_get(r, &caps, call, err);

	if (ret < 0)
		return ret;
	if (caps.no_actions)
		return err_set(err, -EROFS, "tier %s takes no action results", r->name);
	reapi_digest(action, hash, &digest);
	request.instance_name = r->instance;
	request.action_digest = &digest;
	request.action_result.data = (uint8_t *)(uintptr_t)data;
	request.action_result.len = len;
	request.digest_function = REAPI_SHA256;
	return tier_rpc_unary(r->grpc, &to, &request.base, &reapi__action_result__descriptor, NULL,
			      call, err);
}

static const struct tier_transport reapi_ops = {
	.get = reapi_get,
	.get_many = reapi_get_many,
	.get_tree = reapi_get_tree,
	.find_missing = reapi_find_missing,
	.put = reapi_put,
	.put_many = reapi_put_many,
	.action_get = reapi_action_get,
	.action_put = reapi_action_put,
	.close = reapi_close,
};

static const char *const reapi_options[] = {TIER_GRPC_OPTIONS, "compress", NULL};

const struct tier_scheme tier_scheme_grpc = {
	.scheme = "grpc", .ops = &reapi_ops, .options = reapi_options, .open = reapi_open};
const struct tier_scheme tier_scheme_grpcs = {
	.scheme = "grpcs", .ops = &reapi_ops, .options = reapi_options, .open = reapi_open};
