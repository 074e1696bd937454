/* cas/tier/reapi_batch.c - many blobs at once */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/tier/reapi_i.h"
#include "cas/tier/zstd.h"

/*
 * A request is cut into parts that the server takes; a part is one round trip. Answers name
 * blobs by digest, in any order, so a part is kept sorted. The same blob twice in a part is
 * asked for once.
 */

#define NAMES_MAX 8192 /* digests in a part: some 600 KiB */

struct entry {
	const struct cas_digest *digest;
	size_t index;
};

struct part {
	struct reapi *r;
	const struct reapi_caps *caps;
	struct cas_call *call;
	const struct cas_digest *digests; /* of the whole request */
	const struct cas_source *sources;
	bool *missing;
	cas_tier_each_fn each;
	void *each_ctx;
	size_t nr;
	uint64_t bytes;
	size_t nr_unique;
	struct entry *entries; /* [NAMES_MAX], the first @nr sorted */
	size_t *unique;	       /* [NAMES_MAX] the entries with the first of each digest */
	char (*hashes)[CAS_HASH_HEX_SZ + 1];
	Reapi__Digest *messages;
	Reapi__Digest **list; /* of messages */
};

static void part_fini(struct part *p)
{
	free(p->entries);
	free(p->unique);
	free(p->hashes);
	free(p->messages);
	free(p->list);
}

static int part_init(struct part *p, size_t nr)
{
	if (nr > NAMES_MAX)
		nr = NAMES_MAX;
	p->entries = calloc(nr, sizeof(*p->entries));
	p->unique = calloc(nr, sizeof(*p->unique));
	p->hashes = calloc(nr, sizeof(*p->hashes));
	p->messages = calloc(nr, sizeof(*p->messages));
	p->list = calloc(nr, sizeof(Reapi__Digest *));
	return p->entries && p->unique && p->hashes && p->messages && p->list ? 0 : -ENOMEM;
}

static int compare(const void *a, const void *b)
{
	return cas_digest_compare(((const struct entry *)a)->digest,
				  ((const struct entry *)b)->digest);
}

/* Put what was collected in order, and into messages. */
static void part_seal(struct part *p)
{
	qsort(p->entries, p->nr, sizeof(*p->entries), compare);
	p->nr_unique = 0;
	for (size_t i = 0; i < p->nr; i++) {
		size_t n = p->nr_unique;

		if (i > 0 && compare(&p->entries[i - 1], &p->entries[i]) == 0)
			continue;
		reapi_digest(p->entries[i].digest, p->hashes[n], &p->messages[n]);
		p->list[n] = &p->messages[n];
		p->unique[n] = i;
		p->nr_unique++;
	}
}

/* The first entry of this digest, and how many there are. */
static size_t part_find(const struct part *p, const Reapi__Digest *message, size_t *first)
{
	size_t low = 0;
	size_t high = p->nr;
	size_t nr = 0;
	struct cas_digest digest;

	if (reapi_digest_take(message, &digest) < 0)
		return 0;
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (cas_digest_compare(p->entries[middle].digest, &digest) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	*first = low;
	while (low + nr < p->nr && cas_digest_equal(p->entries[low + nr].digest, &digest))
		nr++;
	return nr;
}

static int report(const struct part *p, const Reapi__Digest *message, int status, const void *data,
		  size_t len)
{
	size_t first = 0;
	size_t nr = part_find(p, message, &first);
	int ret = 0;

	for (size_t i = 0; i < nr && ret == 0; i++)
		ret = p->each(p->each_ctx, p->entries[first + i].index, status, data, len);
	return ret;
}

/* What the server says of one blob. */
static int judge_one(const struct part *p, const Reapi__Status *status)
{
	unsigned retry_ms = status ? tier_status_retry_ms(status) : 0;

	if (retry_ms > p->call->retry_after_ms)
		p->call->retry_after_ms = retry_ms;
	return status ? tier_status_judge(status->code, p->sources != NULL, retry_ms > 0) : 0;
}

/* ---- reading ---- */

static int take_blob(const struct part *p, const Reapi__BatchReadBlob *blob)
{
	auto_buf struct buf data = {0};
	int ret = judge_one(p, blob->status);

	if (ret < 0 || blob->compressor == 0)
		return report(p, blob->digest, ret, blob->data.data, blob->data.len);
	ret = -EPROTO;
	if (blob->compressor == REAPI_ZSTD && blob->digest &&
	    (uint64_t)blob->digest->size_bytes <= p->caps->batch_max)
		ret = tier_unzstd_bytes(blob->data.data, blob->data.len,
					(size_t)blob->digest->size_bytes, &data);
	if (ret == -EBADMSG) {
		/* Next time without. */
		p->r->no_unzstd = true;
		ret = -EAGAIN;
	}
	return report(p, blob->digest, ret, data.data, data.len);
}

static int read_part(struct part *p, struct err *err)
{
	static const struct tier_rpc_to to = {.method = REAPI_CAS "BatchReadBlobs"};
	int32_t compressors[] = {REAPI_ZSTD};
	Reapi__BatchReadBlobsRequest request = REAPI__BATCH_READ_BLOBS_REQUEST__INIT;
	const Reapi__BatchReadBlobsResponse *response;
	ProtobufCMessage *answer;
	int ret;

	request.instance_name = p->r->instance;
	request.n_digests = p->nr_unique;
	request.digests = p->list;
	request.digest_function = REAPI_SHA256;
	if (p->caps->zstd && !p->r->no_unzstd) {
		request.n_acceptable_compressors = 1;
		request.acceptable_compressors = compressors;
	}
	ret = tier_rpc_unary(p->r->grpc, &to, &request.base,
			     &reapi__batch_read_blobs_response__descriptor, &answer, p->call, err);
	if (ret < 0)
		return ret;
	response = (const Reapi__BatchReadBlobsResponse *)answer;
	for (size_t i = 0; i < response->n_responses && ret == 0; i++)
		ret = take_blob(p, response->responses[i]);
	protobuf_c_message_free_unpacked(answer, NULL);
	return ret;
}

/* ---- writing ---- */

static int load_blob(const struct part *p, size_t at, Reapi__BatchUpdateBlob *blob)
{
	const struct entry *e = &p->entries[p->unique[at]];
	size_t size = (size_t)e->digest->size;
	struct buf data = {0};
	struct buf packed = {0};
	struct tier_zstd *zstd = NULL;
	int64_t got;
	int ret = buf_reserve(&data, size);

	if (ret < 0)
		return ret;
	got = tier_source_read(&p->sources[e->index], size, 0, data.data, size);
	if (got < 0) {
		buf_fini(&data);
		return (int)got;
	}
	data.len = size;
	if (p->caps->zstd_batch && size >= REAPI_ZSTD_MIN && tier_zstd_new(&zstd) == 0 &&
	    tier_zstd_feed(zstd, data.data, size, true, &packed) == 0 && packed.len < size) {
		buf_fini(&data);
		data = packed;
		packed = (struct buf){0};
		blob->compressor = REAPI_ZSTD;
	}
	tier_zstd_free(zstd);
	buf_fini(&packed);
	blob->digest = p->list[at];
	blob->data.len = data.len;
	blob->data.data = (uint8_t *)buf_steal(&data);
	return 0;
}

static int send_part(struct part *p, Reapi__BatchUpdateBlob **blobs, size_t nr, struct err *err)
{
	static const struct tier_rpc_to to = {.method = REAPI_CAS "BatchUpdateBlobs"};
	Reapi__BatchUpdateBlobsRequest request = REAPI__BATCH_UPDATE_BLOBS_REQUEST__INIT;
	const Reapi__BatchUpdateBlobsResponse *response;
	ProtobufCMessage *answer;
	int ret;

	request.instance_name = p->r->instance;
	request.n_requests = nr;
	request.requests = blobs;
	request.digest_function = REAPI_SHA256;
	ret = tier_rpc_unary(p->r->grpc, &to, &request.base,
			     &reapi__batch_update_blobs_response__descriptor, &answer, p->call,
			     err);
	if (ret < 0)
		return ret;
	response = (const Reapi__BatchUpdateBlobsResponse *)answer;
	for (size_t i = 0; i < response->n_responses && ret == 0; i++) {
		int status = judge_one(p, response->responses[i]->status);

		ret = report(p, response->responses[i]->digest, status == -EEXIST ? 0 : status,
			     NULL, 0);
	}
	protobuf_c_message_free_unpacked(answer, NULL);
	return ret;
}

static int write_part(struct part *p, struct err *err)
{
	Reapi__BatchUpdateBlob *blobs = calloc(p->nr_unique, sizeof(*blobs));
	Reapi__BatchUpdateBlob **list = calloc(p->nr_unique, sizeof(Reapi__BatchUpdateBlob *));
	size_t nr = 0;
	int ret = blobs && list ? 0 : -ENOMEM;

	for (size_t i = 0; i < p->nr_unique && ret == 0; i++) {
		reapi__batch_update_blob__init(&blobs[nr]);
		ret = load_blob(p, i, &blobs[nr]);
		if (ret == -ENOMEM)
			break;
		/* One that cannot be read does not keep the others. */
		if (ret < 0) {
			ret = report(p, p->list[i], ret, NULL, 0);
			continue;
		}
		list[nr] = &blobs[nr];
		nr++;
	}
	if (ret == 0 && nr > 0)
		ret = send_part(p, list, nr, err);
	for (size_t i = 0; i < nr; i++)
		free(blobs[i].data.data);
	free(blobs);
	free(list);
	return ret;
}

/* ---- both ---- */

static int run_part(struct part *p, struct err *err)
{
	int ret;

	if (p->nr == 0)
		return 0;
	part_seal(p);
	ret = p->sources ? write_part(p, err) : read_part(p, err);
	if (ret == -EPROTO || ret == -EOPNOTSUPP || ret == -EBADMSG)
		reapi_caps_forget(p->r);
	p->nr = 0;
	p->bytes = 0;
	return ret;
}

static int run_parts(struct part *p, size_t nr, struct err *err)
{
	struct reapi_caps caps;
	int ret = reapi_caps_get(p->r, &caps, p->call, err);

	if (ret == 0)
		ret = part_init(p, nr);
	p->caps = &caps;
	for (size_t i = 0; i < nr && ret == 0; i++) {
		uint64_t size = p->digests[i].size;

		if (size > caps.batch_max) {
			ret = p->each(p->each_ctx, i, -EFBIG, NULL, 0);
			continue;
		}
		if (p->nr == NAMES_MAX || size > caps.batch_max - p->bytes)
			ret = run_part(p, err);
		if (ret < 0)
			break;
		p->entries[p->nr++] = (struct entry){&p->digests[i], i};
		p->bytes += size;
	}
	if (ret == 0)
		ret = run_part(p, err);
	part_fini(p);
	return ret;
}

int reapi_get_many(void *ctx, const struct cas_digest *digests, size_t nr, cas_tier_each_fn each,
		   void *each_ctx, struct cas_call *call, struct err *err)
{
	struct part p = {
		.r = ctx, .call = call, .digests = digests, .each = each, .each_ctx = each_ctx};

	return run_parts(&p, nr, err);
}

int reapi_put_many(void *ctx, const struct cas_digest *digests, const struct cas_source *sources,
		   size_t nr, cas_tier_each_fn each, void *each_ctx, struct cas_call *call,
		   struct err *err)
{
	struct part p = {.r = ctx,
			 .call = call,
			 .digests = digests,
			 .sources = sources,
			 .each = each,
			 .each_ctx = each_ctx};

	return run_parts(&p, nr, err);
}

/* ---- what is missing ---- */

static int find_part(struct part *p, struct err *err)
{
	static const struct tier_rpc_to to = {.method = REAPI_CAS "FindMissingBlobs"};
	Reapi__FindMissingBlobsRequest request = REAPI__FIND_MISSING_BLOBS_REQUEST__INIT;
	const Reapi__FindMissingBlobsResponse *response;
	ProtobufCMessage *answer;
	int ret;

	part_seal(p);
	request.instance_name = p->r->instance;
	request.n_blob_digests = p->nr_unique;
	request.blob_digests = p->list;
	request.digest_function = REAPI_SHA256;
	ret = tier_rpc_unary(p->r->grpc, &to, &request.base,
			     &reapi__find_missing_blobs_response__descriptor, &answer, p->call,
			     err);
	if (ret < 0)
		return ret;
	response = (const Reapi__FindMissingBlobsResponse *)answer;
	for (size_t i = 0; i < response->n_missing_blob_digests && ret == 0; i++) {
		size_t first = 0;
		size_t nr = part_find(p, response->missing_blob_digests[i], &first);

		/* One that we did not ask about is as good as one that we cannot read. */
		if (nr == 0)
			ret = err_set(err, -EPROTO, "tier %s misses a blob that is not ours",
				      p->r->name);
		for (size_t k = 0; k < nr; k++)
			p->missing[p->entries[first + k].index] = true;
	}
	protobuf_c_message_free_unpacked(answer, NULL);
	return ret;
}

int reapi_find_missing(void *ctx, const struct cas_digest *digests, size_t nr, bool *missing,
		       struct cas_call *call, struct err *err)
{
	struct part p = {.r = ctx, .call = call, .digests = digests, .missing = missing};
	struct reapi_caps caps;
	int ret = reapi_caps_get(p.r, &caps, call, err);

	if (ret == 0)
		ret = part_init(&p, nr);
	if (ret == 0)
		memset(missing, 0, nr * sizeof(*missing));
	for (size_t i = 0; i < nr && ret == 0; i += NAMES_MAX) {
		size_t end = nr - i < NAMES_MAX ? nr : i + NAMES_MAX;

		p.nr = 0;
		for (size_t k = i; k < end; k++)
			p.entries[p.nr++] = (struct entry){&digests[k], k};
		ret = find_part(&p, err);
	}
	part_fini(&p);
	return ret;
}
