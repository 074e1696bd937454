/* tests/lib/reapid_cas.c - batches, trees and action results of the small REAPI server */
#include <fcntl.h>
#include <grpc/status.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "cas/base/io.h"
#include "cas/hash.h"
#include "tests/lib/reapid.h"

#define PAGE	 3   /* Directories of a message of GetTree, and two messages a call */
#define FAR_PAGE 500 /* the same of a server that is far away, and all in one call */

static void answer(struct call *c, const ProtobufCMessage *message)
{
	if (send_message(c, message))
		send_status(c, GRPC_STATUS_OK, "", 0);
}

void serve_capabilities(struct call *c)
{
	Reapi__ServerCapabilities server = REAPI__SERVER_CAPABILITIES__INIT;
	Reapi__CacheCapabilities cache = REAPI__CACHE_CAPABILITIES__INIT;
	Reapi__ActionCacheUpdateCapabilities update = REAPI__ACTION_CACHE_UPDATE_CAPABILITIES__INIT;
	ProtobufCMessage *request = receive(c, &reapi__get_capabilities_request__descriptor);
	struct buf batch = {0};
	int32_t sha256[] = {2, 1};
	int32_t zstd[] = {1};
	char path[600];

	if (request == NULL)
		return;
	protobuf_c_message_free_unpacked(request, NULL);
	log_line("CAPABILITIES");
	server.cache_capabilities = &cache;
	cache.action_cache_update_capabilities = &update;
	update.update_enabled = true;
	cache.n_digest_functions = dir_has("no-sha256") ? 1 : 2;
	cache.digest_functions = sha256;
	if (io_read_file(AT_FDCWD, dir_path("batch", path), 100, &batch) == 0)
		cache.max_batch_total_size_bytes = atoll(batch.data);
	if (offers_zstd()) {
		cache.n_supported_compressors = cache.n_supported_batch_update_compressors = 1;
		cache.supported_compressors = cache.supported_batch_update_compressors = zstd;
	}
	answer(c, &server.base);
	buf_fini(&batch);
}

void serve_find_missing(struct call *c)
{
	Reapi__FindMissingBlobsResponse response = REAPI__FIND_MISSING_BLOBS_RESPONSE__INIT;
	ProtobufCMessage *message = receive(c, &reapi__find_missing_blobs_request__descriptor);
	const Reapi__FindMissingBlobsRequest *request =
		(const Reapi__FindMissingBlobsRequest *)message;

	if (request == NULL)
		return;
	log_line("MISSING %zu", request->n_blob_digests);
	response.missing_blob_digests =
		calloc(request->n_blob_digests + 1, sizeof(Reapi__Digest *));
	for (size_t i = 0; response.missing_blob_digests && i < request->n_blob_digests; i++) {
		struct cas_digest d;
		char path[1200];

		parse_digest(request->blob_digests[i], &d);
		if (access(blob_path(request->instance_name, "cas", &d, path), F_OK) < 0)
			response.missing_blob_digests[response.n_missing_blob_digests++] =
				request->blob_digests[i];
	}
	answer(c, &response.base);
	free(response.missing_blob_digests);
	protobuf_c_message_free_unpacked(message, NULL);
}

/* ---- batches ---- */

static uint64_t batch_max(void)
{
	struct buf text = {0};
	char path[600];
	uint64_t max = 4u << 20;

	if (io_read_file(AT_FDCWD, dir_path("batch", path), 100, &text) == 0)
		max = strtoull(text.data, NULL, 10);
	buf_fini(&text);
	return max;
}

/* Compressed, where that makes it smaller. */
static bool compress(struct buf *data)
{
	size_t room = ZSTD_compressBound(data->len);
	struct buf to = {0};

	if (buf_reserve(&to, room) < 0)
		abort();
	to.len = ZSTD_compress(to.data, room, data->data, data->len, 3);
	buf_fini(data);
	*data = to;
	return true;
}

static void read_one(const Reapi__BatchReadBlobsRequest *request, size_t i, enum fault fault,
		     Reapi__BatchReadBlob *blob, Reapi__Status *status)
{
	struct cas_digest d;
	struct buf data = {0};
	char hash[CAS_HASH_HEX_SZ + 1];

	reapi__batch_read_blob__init(blob);
	reapi__status__init(status);
	blob->digest = request->digests[i];
	blob->status = status;
	parse_digest(request->digests[i], &d);
	cas_hash_format(d.hash, hash);
	log_line("GET /%s/cas/%s batch", request->instance_name, hash);
	if (!load(request->instance_name, "cas", &d, &data)) {
		status->code = GRPC_STATUS_NOT_FOUND;
		return;
	}
	if (fault != FAULT_CHUNKS) /* some are not answered at all */
		spoil(fault, &data);
	if (offers_zstd() && request->n_acceptable_compressors > 0 && compress(&data))
		blob->compressor = 1;
	if (fault == FAULT_GARBAGE && blob->compressor == 1)
		memset(data.data + data.len / 2, 0x55, data.len - data.len / 2);
	blob->data.len = data.len;
	blob->data.data = (uint8_t *)data.data;
}

static void batch_read(struct call *c, const Reapi__BatchReadBlobsRequest *request)
{
	Reapi__BatchReadBlobsResponse response = REAPI__BATCH_READ_BLOBS_RESPONSE__INIT;
	size_t nr = request->n_digests;
	Reapi__BatchReadBlob *blobs = calloc(nr + 1, sizeof(*blobs));
	Reapi__BatchReadBlob **list = calloc(nr + 1, sizeof(Reapi__BatchReadBlob *));
	Reapi__Status *statuses = calloc(nr + 1, sizeof(*statuses));
	enum fault fault = next_fault(false);
	uint64_t total = 0;

	if (!blobs || !list || !statuses)
		abort();
	for (size_t i = 0; i < nr; i++)
		total += (uint64_t)request->digests[i]->size_bytes;
	for (size_t i = 0; i < nr && total <= batch_max(); i++) {
		read_one(request, i, fault, &blobs[i], &statuses[i]);
		/* In another order than they were asked for. */
		list[nr - 1 - i] = &blobs[i];
	}
	response.n_responses = fault == FAULT_CHUNKS ? nr / 2 : nr;
	response.responses = list;
	if (total > batch_max())
		send_status(c, GRPC_STATUS_INVALID_ARGUMENT, "too much at once", 0);
	else if (!fail(c, fault)) {
		if (fault == FAULT_HALF || fault == FAULT_TRUNCATE)
			drop_connection(c, fault == FAULT_HALF);
		else if (fault == FAULT_JUNK && send_bytes(c, "\xff\xff\xff", 3))
			send_status(c, GRPC_STATUS_OK, "", 0);
		else
			answer(c, &response.base);
	}
	for (size_t i = 0; i < nr; i++)
		free(blobs[i].data.data);
	free(blobs);
	free(list);
	free(statuses);
}

void serve_batch_read(struct call *c)
{
	ProtobufCMessage *request = receive(c, &reapi__batch_read_blobs_request__descriptor);

	if (request == NULL)
		return;
	log_line("BATCH-READ %zu", ((Reapi__BatchReadBlobsRequest *)request)->n_digests);
	batch_read(c, (const Reapi__BatchReadBlobsRequest *)request);
	protobuf_c_message_free_unpacked(request, NULL);
}

static int update_one(const char *instance, const Reapi__BatchUpdateBlob *blob)
{
	struct cas_digest want;
	struct cas_digest got;
	struct buf data = {0};
	int code = GRPC_STATUS_OK;

	parse_digest(blob->digest, &want);
	log_put(instance, &want, "batch");
	if (buf_reserve(&data, want.size + 1) < 0)
		abort();
	if (blob->compressor == 1) {
		size_t len = ZSTD_decompress(data.data, want.size, blob->data.data, blob->data.len);

		data.len = ZSTD_isError(len) ? 0 : len;
	} else if (buf_append(&data, blob->data.data, blob->data.len) < 0) {
		abort();
	}
	if (cas_hash_bytes(data.data, data.len, &got) < 0 || !cas_digest_equal(&want, &got))
		code = GRPC_STATUS_INVALID_ARGUMENT;
	else
		(void)store(instance, "cas", &want, data.data, data.len);
	buf_fini(&data);
	return code;
}

static void batch_update(struct call *c, const Reapi__BatchUpdateBlobsRequest *request)
{
	Reapi__BatchUpdateBlobsResponse response = REAPI__BATCH_UPDATE_BLOBS_RESPONSE__INIT;
	size_t nr = request->n_requests;
	Reapi__BatchUpdatedBlob *blobs = calloc(nr + 1, sizeof(*blobs));
	Reapi__BatchUpdatedBlob **list = calloc(nr + 1, sizeof(Reapi__BatchUpdatedBlob *));
	Reapi__Status *statuses = calloc(nr + 1, sizeof(*statuses));
	enum fault fault = next_fault(true);

	if (!blobs || !list || !statuses)
		abort();
	for (size_t i = 0; i < nr; i++) {
		reapi__batch_updated_blob__init(&blobs[i]);
		reapi__status__init(&statuses[i]);
		blobs[i].digest = request->requests[i]->digest;
		blobs[i].status = &statuses[i];
		/* Some have no room. */
		if (fault == FAULT_FULL && i % 2 == 1)
			statuses[i].code = GRPC_STATUS_RESOURCE_EXHAUSTED;
		else
			statuses[i].code = update_one(request->instance_name, request->requests[i]);
		list[i] = &blobs[i];
	}
	response.n_responses = nr;
	response.responses = list;
	if (fault == FAULT_CUT)
		drop_connection(c, false);
	else if (fault == FAULT_FULL || !fail(c, fault))
		answer(c, &response.base);
	free(blobs);
	free(list);
	free(statuses);
}

void serve_batch_update(struct call *c)
{
	ProtobufCMessage *request = receive(c, &reapi__batch_update_blobs_request__descriptor);

	if (request == NULL)
		return;
	log_line("BATCH-UPDATE %zu", ((Reapi__BatchUpdateBlobsRequest *)request)->n_requests);
	batch_update(c, (const Reapi__BatchUpdateBlobsRequest *)request);
	protobuf_c_message_free_unpacked(request, NULL);
}

/* ---- trees ---- */

#define SEEN_SZ 65536 /* a power of two */

struct tree {
	struct cas_digest *digests; /* found so far, the root first */
	size_t nr;
	uint32_t seen[SEEN_SZ]; /* open hash of them: index + 1 */
	struct buf *bodies;
};

static void add_children(struct tree *t, const struct buf *body)
{
	Reapi__Directory *d =
		reapi__directory__unpack(NULL, body->len, (const uint8_t *)body->data);

	for (size_t i = 0; d && i < d->n_directories; i++) {
		struct cas_digest child;
		size_t k;

		parse_digest(d->directories[i]->digest, &child);
		k = (child.hash[0] | child.hash[1] << 8) % SEEN_SZ;
		while (t->seen[k] && !cas_digest_equal(&t->digests[t->seen[k] - 1], &child))
			k = (k + 1) % SEEN_SZ;
		if (t->seen[k])
			continue;
		t->seen[k] = (uint32_t)t->nr + 1;
		t->digests = reallocarray(t->digests, t->nr + 1, sizeof(*t->digests));
		if (t->digests == NULL)
			abort();
		t->digests[t->nr++] = child;
	}
	if (d)
		reapi__directory__free_unpacked(d, NULL);
}

/* A message of Directories @from on, and the name of the next. False: nobody listens. */
static bool send_page(struct call *c, const struct tree *t, size_t from, bool spoiled)
{
	Reapi__GetTreeResponse page = REAPI__GET_TREE_RESPONSE__INIT;
	size_t most = is_far() ? FAR_PAGE : PAGE;
	ProtobufCBinaryData bodies[FAR_PAGE];
	char token[24] = "";

	page.directories = bodies;
	for (size_t i = from; i < t->nr && page.n_directories < most; i++) {
		bodies[page.n_directories].data = (uint8_t *)t->bodies[i].data;
		bodies[page.n_directories++].len = t->bodies[i].len / (spoiled ? 2 : 1);
	}
	if (from + most < t->nr)
		(void)snprintf(token, sizeof(token), "%zu", from + most);
	page.next_page_token = token;
	return send_message(c, &page.base);
}

static void send_tree(struct call *c, const Reapi__GetTreeRequest *request, struct tree *t,
		      enum fault fault)
{
	size_t from = strtoul(request->page_token, NULL, 10);

	/* Two messages a call, so that somebody must come again. */
	for (size_t nr = 0; from < t->nr && (nr < 2 || is_far());
	     nr++, from += is_far() ? FAR_PAGE : PAGE) {
		if (nr == 1 && (fault == FAULT_HALF || fault == FAULT_TRUNCATE)) {
			(void)usleep(50000);
			drop_connection(c, fault == FAULT_HALF);
			return;
		}
		if (!send_page(c, t, from, fault == FAULT_WRONG))
			return;
	}
	send_status(c, GRPC_STATUS_OK, "", 0);
}

static void turn_round(struct tree *t)
{
	for (size_t i = 0; i < t->nr / 2; i++) {
		struct buf first = t->bodies[i];

		t->bodies[i] = t->bodies[t->nr - 1 - i];
		t->bodies[t->nr - 1 - i] = first;
	}
}

static void get_tree(struct call *c, const Reapi__GetTreeRequest *request)
{
	enum fault fault = next_fault(false);
	struct tree *t = calloc(1, sizeof(*t));

	if (t == NULL || (t->digests = calloc(1, sizeof(*t->digests))) == NULL)
		abort();
	t->nr = 1;
	parse_digest(request->root_digest, &t->digests[0]);
	for (size_t i = 0; i < t->nr; i++) {
		t->bodies = reallocarray(t->bodies, i + 1, sizeof(*t->bodies));
		if (t->bodies == NULL)
			abort();
		t->bodies[i] = (struct buf){0};
		if (!load(request->instance_name, "cas", &t->digests[i], &t->bodies[i]) && i == 0)
			fault = FAULT_ABSENT;
		add_children(t, &t->bodies[i]);
	}
	if (dir_has("leaves-first"))
		turn_round(t);
	if (!fail(c, fault))
		send_tree(c, request, t, fault);
	for (size_t i = 0; i < t->nr; i++)
		buf_fini(&t->bodies[i]);
	free(t->bodies);
	free(t->digests);
	free(t);
}

void serve_tree(struct call *c)
{
	ProtobufCMessage *request = receive(c, &reapi__get_tree_request__descriptor);

	if (request == NULL)
		return;
	log_line("TREE %s", ((Reapi__GetTreeRequest *)request)->page_token);
	if (dir_has("no-trees"))
		send_status(c, GRPC_STATUS_UNIMPLEMENTED, "no trees", 0);
	else
		get_tree(c, (const Reapi__GetTreeRequest *)request);
	protobuf_c_message_free_unpacked(request, NULL);
}

/* ---- action results ---- */

void serve_action_get(struct call *c)
{
	ProtobufCMessage *message = receive(c, &reapi__get_action_result_request__descriptor);
	const Reapi__GetActionResultRequest *request =
		(const Reapi__GetActionResultRequest *)message;
	struct buf data = {0};
	struct cas_digest d;

	if (request == NULL)
		return;
	log_line("RESULT %s", request->action_digest->hash);
	parse_digest(request->action_digest, &d);
	if (!load(request->instance_name, "ac", &d, &data))
		send_status(c, GRPC_STATUS_NOT_FOUND, "no result", 0);
	else if (send_bytes(c, data.data, data.len))
		send_status(c, GRPC_STATUS_OK, "", 0);
	buf_fini(&data);
	protobuf_c_message_free_unpacked(message, NULL);
}

void serve_action_put(struct call *c)
{
	ProtobufCMessage *message = receive(c, &reapi__update_action_result_request__descriptor);
	const Reapi__UpdateActionResultRequest *request =
		(const Reapi__UpdateActionResultRequest *)message;
	struct cas_digest d;

	if (request == NULL)
		return;
	log_line("UPDATE-RESULT %s", request->action_digest->hash);
	parse_digest(request->action_digest, &d);
	if (store(request->instance_name, "ac", &d, request->action_result.data,
		  request->action_result.len) &&
	    send_bytes(c, request->action_result.data, request->action_result.len))
		send_status(c, GRPC_STATUS_OK, "", 0);
	protobuf_c_message_free_unpacked(message, NULL);
}
