/* cas/tier/ops.c - the operations of a tier, whatever its transport */
#include "cas/tier.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/tier/tier_i.h"

/*
 * Here the empty blob is taken out, sizes are compared with the digests, and an attempt is
 * made to go on where the one before ended: a get from the byte that is missing, a batch
 * with the blobs that were not reported.
 */

int64_t tier_source_read(const struct cas_source *source, uint64_t size, uint64_t offset,
			 void *data, size_t len)
{
	uint64_t left = offset < size ? size - offset : 0;
	ssize_t got;

	if (len > left)
		len = (size_t)left;
	if (len == 0)
		return 0;
	if (source->fd < 0) {
		memcpy(data, (const char *)source->data + offset, len);
		return (int64_t)len;
	}
	got = io_pread_full(source->fd, data, len, (off_t)offset);
	return got >= 0 && (size_t)got < len ? -EIO : got;
}

/* get and get_range: @offset and @len of what is wanted, op->advanced of it have come. */
struct get_args {
	const struct cas_digest *digest;
	uint64_t offset;
	uint64_t len;
	const struct cas_sink *sink;
	struct tier_op *op;
	struct cas_call *call;
	const struct cas_tier *tier;
};

static int get_write(void *ctx, const void *data, size_t len, struct err *err)
{
	struct get_args *a = ctx;
	int ret;

	if (len > a->len - a->op->advanced)
		return err_set(err, -EBADMSG, "tier %s sent more bytes than blob %s has",
			       a->tier->url.text, CAS_DIGEST_TEXT(a->digest));
	ret = a->sink->write(a->sink->ctx, data, len, err);
	if (ret != 0)
		return ret;
	a->op->advanced += len;
	cas_call_progress(a->call, len);
	return 0;
}

static int get_attempt(struct cas_tier *tier, struct tier_op *op, struct cas_call *call,
		       struct err *err)
{
	struct get_args *a = op->args;
	const struct cas_sink sink = {.write = get_write, .ctx = a};
	uint64_t from = a->offset + op->advanced;
	/* 0 would mean: to the end of the blob. */
	uint64_t len = a->offset + a->len == a->digest->size ? 0 : a->len - op->advanced;
	int ret = tier->scheme->ops->get(tier->ctx, a->digest, from, len, &sink, call, err);

	if (ret == 0 && op->advanced < a->len)
		return err_set(err, -EAGAIN, "tier %s sent only %llu bytes of %llu of blob %s",
			       tier->url.text, (unsigned long long)op->advanced,
			       (unsigned long long)a->len, CAS_DIGEST_TEXT(a->digest));
	return ret;
}

static int run_get(struct cas_tier *tier, struct get_args *a, struct cas_call *call,
		   struct err *err)
{
	struct tier_op op = {.attempt = get_attempt, .what = "get", .args = a};
	int ret;

	a->op = &op;
	a->call = call;
	a->tier = tier;
	ret = tier_run(tier, &op, call, err);
	if (ret == -EOPNOTSUPP && op.advanced > 0 && a->sink->restart) {
		/* It cannot go on in the middle. */
		ret = a->sink->restart(a->sink->ctx, err);
		op.advanced = 0;
		if (ret == 0)
			ret = tier_run(tier, &op, call, err);
		/* It ended early again: there is no blob to be had. */
		if (ret == -EOPNOTSUPP)
			ret = -EPROTO;
	}
	if (ret == 0)
		tier_count_in(tier, 1, a->len);
	return ret;
}

int cas_tier_get(struct cas_tier *tier, const struct cas_digest *digest,
		 const struct cas_sink *sink, struct cas_call *call, struct err *err)
{
	struct get_args a = {.digest = digest, .len = digest->size, .sink = sink};

	return cas_digest_is_empty(digest) ? 0 : run_get(tier, &a, call, err);
}

int cas_tier_get_range(struct cas_tier *tier, const struct cas_digest *digest, uint64_t offset,
		       uint64_t len, const struct cas_sink *sink, struct cas_call *call,
		       struct err *err)
{
	struct get_args a = {.digest = digest, .offset = offset, .len = len, .sink = sink};

	if (offset > digest->size || len > digest->size - offset)
		return err_set(err, -EINVAL, "blob %s has no %llu bytes at %llu",
			       CAS_DIGEST_TEXT(digest), (unsigned long long)len,
			       (unsigned long long)offset);
	return len == 0 ? 0 : run_get(tier, &a, call, err);
}

/* A batch: what is left to be reported of it, and where each was in the request. */
struct batch {
	const struct cas_digest *all;
	const struct cas_source *sources; /* of a put */
	size_t nr_left;
	size_t *index; /* [nr_left] into all */
	struct cas_digest *digests;
	struct cas_source *left_sources;
	bool *reported; /* [nr_left] in this attempt */
	bool *answer;
	cas_tier_each_fn each;
	void *each_ctx;
	struct cas_tier *tier;
	struct cas_call *call;
	int stopped; /* what each returned to stop */
};

static void batch_fini(struct batch *b)
{
	free(b->index);
	free(b->digests);
	free(b->left_sources);
	free(b->reported);
	free(b->answer);
}

/* Take all but the empty blob into it. */
static int batch_init(struct batch *b, const struct cas_digest *digests, size_t nr)
{
	b->all = digests;
	b->index = calloc(nr, sizeof(*b->index));
	b->digests = calloc(nr, sizeof(*b->digests));
	b->left_sources = calloc(nr, sizeof(*b->left_sources));
	b->reported = calloc(nr, sizeof(*b->reported));
	b->answer = calloc(nr, sizeof(*b->answer));
	if (!b->index || !b->digests || !b->left_sources || !b->reported || !b->answer)
		return -ENOMEM;
	for (size_t i = 0; i < nr; i++) {
		if (cas_digest_is_empty(&digests[i]))
			continue;
		b->index[b->nr_left] = i;
		b->digests[b->nr_left] = digests[i];
		if (b->sources)
			b->left_sources[b->nr_left] = b->sources[i];
		b->nr_left++;
	}
	return 0;
}

/* Drop what was reported. */
static void batch_shrink(struct batch *b)
{
	size_t to = 0;

	for (size_t i = 0; i < b->nr_left; i++) {
		if (b->reported[i])
			continue;
		b->index[to] = b->index[i];
		b->digests[to] = b->digests[i];
		b->left_sources[to] = b->left_sources[i];
		to++;
	}
	b->nr_left = to;
	memset(b->reported, 0, to * sizeof(*b->reported));
}

/* What a transport reports of one blob, on to the caller. */
static int batch_report(void *ctx, size_t i, int status, const void *data, size_t len)
{
	struct batch *b = ctx;
	bool is_put = b->sources != NULL;

	if (i >= b->nr_left || b->reported[i])
		return 0;
	/* Worth another try of its own. */
	if (status == -EAGAIN)
		return 0;
	if (status == 0 && !is_put && len != b->digests[i].size)
		status = -EBADMSG;
	b->reported[i] = true;
	if (status == 0 && is_put)
		tier_count_out(b->tier, 1, b->digests[i].size);
	else if (status == 0)
		tier_count_in(b->tier, 1, len);
	cas_call_progress(b->call, status == 0 ? b->digests[i].size : 0);
	b->stopped = b->each(b->each_ctx, b->index[i], status, status == 0 ? data : NULL,
			     status == 0 ? len : 0);
	return b->stopped;
}

static int batch_attempt(struct cas_tier *tier, struct tier_op *op, struct cas_call *call,
			 struct err *err)
{
	const struct tier_transport *ops = tier->scheme->ops;
	struct batch *b = op->args;
	size_t before = b->nr_left;
	int ret;

	b->call = call;
	if (b->sources)
		ret = ops->put_many(tier->ctx, b->digests, b->left_sources, b->nr_left,
				    batch_report, b, call, err);
	else
		ret = ops->get_many(tier->ctx, b->digests, b->nr_left, batch_report, b, call, err);
	if (b->stopped)
		return b->stopped;
	batch_shrink(b);
	/* As good as a megabyte: the next attempt is about other blobs. */
	if (b->nr_left < before)
		op->advanced += 1u << 20;
	if (ret == 0 && b->nr_left > 0)
		return err_set(err, -EAGAIN, "tier %s gave no answer about %zu blobs of %zu",
			       tier->url.text, b->nr_left, before);
	return ret;
}

/* Those that no answer came for share the failure. */
static int report_rest(struct batch *b, int ret)
{
	for (size_t i = 0; i < b->nr_left && b->stopped == 0; i++)
		b->stopped = b->each(b->each_ctx, b->index[i], ret, NULL, 0);
	return b->stopped;
}

static int report_empty(struct batch *b, size_t nr)
{
	for (size_t i = 0; i < nr && b->stopped == 0; i++) {
		if (cas_digest_is_empty(&b->all[i]))
			b->stopped = b->each(b->each_ctx, i, 0, "", 0);
	}
	return b->stopped;
}

/* Takes what a get of the batch sends, one blob at a time. */
static int one_write(void *ctx, const void *data, size_t len, struct err *err)
{
	return buf_append(ctx, data, len);
}

static int one_restart(void *ctx, struct err *err)
{
	buf_reset(ctx);
	return 0;
}

/* For a transport without batches. */
static int one_by_one(struct cas_tier *tier, struct batch *b, struct cas_call *call,
		      struct err *err)
{
	for (size_t i = 0; i < b->nr_left && b->stopped == 0; i++) {
		auto_buf struct buf data = {0};
		const struct cas_sink sink = {one_write, one_restart, &data};
		int ret;

		if (b->sources)
			ret = cas_tier_put(tier, &b->digests[i], &b->left_sources[i], call, err);
		else
			ret = cas_tier_get(tier, &b->digests[i], &sink, call, err);
		if (ret == -ECANCELED || ret == -ETIMEDOUT)
			return ret;
		b->stopped = b->each(b->each_ctx, b->index[i], ret, data.data, data.len);
	}
	return b->stopped;
}

static int run_batch(struct cas_tier *tier, struct batch *b, const struct cas_digest *digests,
		     size_t nr, struct cas_call *call, struct err *err)
{
	struct tier_op op = {.attempt = batch_attempt,
			     .what = b->sources ? "put of many" : "get of many",
			     .args = b};
	bool has = b->sources ? tier->scheme->ops->put_many != NULL
			      : tier->scheme->ops->get_many != NULL;
	int ret = batch_init(b, digests, nr);

	b->tier = tier;
	if (ret == 0)
		ret = report_empty(b, nr);
	if (ret == 0 && b->nr_left > 0)
		ret = has ? tier_run(tier, &op, call, err) : one_by_one(tier, b, call, err);
	if (ret < 0 && b->stopped == 0 && ret != -ENOMEM && ret != -ECANCELED &&
	    ret != -ETIMEDOUT && has)
		ret = report_rest(b, ret);
	batch_fini(b);
	return ret;
}

int cas_tier_get_many(struct cas_tier *tier, const struct cas_digest *digests, size_t nr,
		      cas_tier_each_fn each, void *ctx, struct cas_call *call, struct err *err)
{
	struct batch b = {.each = each, .each_ctx = ctx};

	return nr == 0 ? 0 : run_batch(tier, &b, digests, nr, call, err);
}

static int check_writable(const struct cas_tier *tier, struct err *err)
{
	if (tier->writable)
		return 0;
	return err_set(err, -EROFS, "tier %s is only read: give it the option write=yes",
		       tier->url.text);
}

int cas_tier_put_many(struct cas_tier *tier, const struct cas_digest *digests,
		      const struct cas_source *sources, size_t nr, cas_tier_each_fn each, void *ctx,
		      struct cas_call *call, struct err *err)
{
	struct batch b = {.each = each, .each_ctx = ctx, .sources = sources};
	int ret = check_writable(tier, err);

	return ret < 0 || nr == 0 ? ret : run_batch(tier, &b, digests, nr, call, err);
}

struct tree_args {
	const struct cas_digest *root;
	int (*each)(void *ctx, const void *data, size_t len);
	void *ctx;
	struct tier_op *op;
	struct cas_call *call;
	struct cas_tier *tier;
	uint64_t brought; /* by this attempt */
};

static int tree_each(void *ctx, const void *data, size_t len)
{
	struct tree_args *a = ctx;

	/* Each attempt begins at the root again: only what none has brought yet is progress. */
	a->brought += len;
	if (a->brought > a->op->advanced)
		a->op->advanced = a->brought;
	cas_call_progress(a->call, len);
	tier_count_in(a->tier, 1, len);
	return a->each(a->ctx, data, len);
}

static int tree_attempt(struct cas_tier *tier, struct tier_op *op, struct cas_call *call,
			struct err *err)
{
	struct tree_args *a = op->args;

	a->brought = 0;
	return tier->scheme->ops->get_tree(tier->ctx, a->root, tree_each, a, call, err);
}

int cas_tier_get_tree(struct cas_tier *tier, const struct cas_digest *root,
		      int (*each)(void *ctx, const void *data, size_t len), void *ctx,
		      struct cas_call *call, struct err *err)
{
	struct tree_args a = {.root = root, .each = each, .ctx = ctx, .call = call, .tier = tier};
	struct tier_op op = {.attempt = tree_attempt, .what = "get of a tree", .args = &a};

	a.op = &op;
	if (tier->scheme->ops->get_tree == NULL)
		return err_set(err, -EOPNOTSUPP, "tier %s sends no trees", tier->url.text);
	return cas_digest_is_empty(root) ? each(ctx, "", 0) : tier_run(tier, &op, call, err);
}

static int missing_attempt(struct cas_tier *tier, struct tier_op *op, struct cas_call *call,
			   struct err *err)
{
	struct batch *b = op->args;

	return tier->scheme->ops->find_missing(tier->ctx, b->digests, b->nr_left, b->answer, call,
					       err);
}

int cas_tier_find_missing(struct cas_tier *tier, const struct cas_digest *digests, size_t nr,
			  bool *missing, struct cas_call *call, struct err *err)
{
	struct batch b = {0};
	struct tier_op op = {
		.attempt = missing_attempt, .what = "search for missing blobs", .args = &b};
	int ret = nr == 0 ? 0 : batch_init(&b, digests, nr);

	if (ret == 0 && b.nr_left > 0)
		ret = tier_run(tier, &op, call, err);
	if (ret == 0) {
		memset(missing, 0, nr * sizeof(*missing));
		for (size_t i = 0; i < b.nr_left; i++)
			missing[b.index[i]] = b.answer[i];
	}
	batch_fini(&b);
	return ret;
}

struct put_args {
	const struct cas_digest *digest;
	const struct cas_source *source;
};

static int put_attempt(struct cas_tier *tier, struct tier_op *op, struct cas_call *call,
		       struct err *err)
{
	const struct put_args *a = op->args;

	return tier->scheme->ops->put(tier->ctx, a->digest, a->source, call, err);
}

int cas_tier_put(struct cas_tier *tier, const struct cas_digest *digest,
		 const struct cas_source *source, struct cas_call *call, struct err *err)
{
	struct put_args a = {digest, source};
	struct tier_op op = {.attempt = put_attempt, .what = "put", .args = &a};
	int ret = check_writable(tier, err);

	if (ret < 0 || cas_digest_is_empty(digest))
		return ret;
	ret = tier_run(tier, &op, call, err);
	if (ret == 0)
		tier_count_out(tier, 1, digest->size);
	return ret;
}

struct action_args {
	const struct cas_digest *action;
	struct buf *out;
	const void *data;
	size_t len;
};

static int action_get_attempt(struct cas_tier *tier, struct tier_op *op, struct cas_call *call,
			      struct err *err)
{
	const struct action_args *a = op->args;

	buf_reset(a->out);
	return tier->scheme->ops->action_get(tier->ctx, a->action, a->out, call, err);
}

int cas_tier_action_get(struct cas_tier *tier, const struct cas_digest *action, struct buf *out,
			struct cas_call *call, struct err *err)
{
	auto_buf struct buf got = {0};
	struct action_args a = {.action = action, .out = &got};
	struct tier_op op = {
		.attempt = action_get_attempt, .what = "get of an action result", .args = &a};
	int ret = tier_run(tier, &op, call, err);

	if (ret < 0)
		return ret;
	if (got.len == 0) /* would decode to a success without outputs (cas/store/store_action.c) */
		return err_set(err, -ENOENT, "tier %s has an empty result of action %s",
			       tier->url.text, CAS_DIGEST_TEXT(action));
	tier_count_in(tier, 0, got.len);
	return buf_append(out, got.data, got.len);
}

static int action_put_attempt(struct cas_tier *tier, struct tier_op *op, struct cas_call *call,
			      struct err *err)
{
	const struct action_args *a = op->args;

	return tier->scheme->ops->action_put(tier->ctx, a->action, a->data, a->len, call, err);
}

int cas_tier_action_put(struct cas_tier *tier, const struct cas_digest *action, const void *data,
			size_t len, struct cas_call *call, struct err *err)
{
	struct action_args a = {.action = action, .data = data, .len = len};
	struct tier_op op = {
		.attempt = action_put_attempt, .what = "put of an action result", .args = &a};
	int ret = check_writable(tier, err);

	if (ret == 0)
		ret = tier_run(tier, &op, call, err);
	if (ret == 0)
		tier_count_out(tier, 0, len);
	return ret;
}
