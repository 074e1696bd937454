/* cas/fetch/fetch_batch.c - many small blobs in few round trips */
#include <errno.h>
#include <stdlib.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/log.h"
#include "cas/fetch/fetch_i.h"
#include "cas/hash.h"
#include "cas/put/put.h"
#include "cas/store/store_i.h"

/* More than this does not go through memory. */
#define BATCH_BLOB_MAX (4u << 20)

struct batch {
	struct cas_fetch *fetch;
	struct cas_call *call;
	struct cas_tier *tier;
	size_t nr;
	struct cas_digest *digests;
	struct cas_flight **flights; /* NULL once it came */
	int worst;
	struct err why;
	/* of what one tier is asked */
	size_t nr_asked;
	struct cas_digest *asked;
	size_t *index;
};

static int take(void *ctx, size_t i, int status, const void *data, size_t len)
{
	struct batch *b = ctx;
	struct cas_fetch *f = b->fetch;
	struct cas_flight **flight = &b->flights[b->index[i]];
	struct cas_digest got;
	struct err why = {0};

	/* Compared before it is put: other bytes are not stored under any name. */
	if (status == 0)
		status = cas_hash_bytes(data, len, &got);
	if (status == 0 && !cas_digest_equal(&got, &b->asked[i])) {
		status = err_set(&why, -EBADMSG, "tier %s sent other bytes as blob %s",
				 cas_tier_name(b->tier), CAS_DIGEST_TEXT(&b->asked[i]));
		log_warn("%s", why.msg);
	}
	if (status == 0)
		status = cas_put_bytes(f->store, data, len, NULL, &why);
	if (status < 0) {
		if (cas_fetch_worse(b->worst, status) == status && why.code != 0)
			b->why = why;
		b->worst = cas_fetch_worse(b->worst, status);
		return 0;
	}
	cas_fetch_came(f, &b->asked[i], b->tier);
	(*flight)->fetched = true;
	cas_fetch_flight_end(f, *flight, 0, NULL);
	*flight = NULL;
	return 0;
}

static void ask(struct batch *b, struct cas_tier *tier)
{
	struct err why = {0};
	int ret;

	b->tier = tier;
	b->nr_asked = 0;
	for (size_t i = 0; i < b->nr; i++) {
		if (b->flights[i] == NULL)
			continue;
		b->asked[b->nr_asked] = b->digests[i];
		b->index[b->nr_asked++] = i;
	}
	if (b->nr_asked == 0)
		return;
	ret = cas_tier_get_many(tier, b->asked, b->nr_asked, take, b, b->call, &why);
	if (ret < 0) {
		if (cas_fetch_worse(b->worst, ret) == ret)
			b->why = why;
		b->worst = cas_fetch_worse(b->worst, ret);
	}
}

/* Those that nobody else is bringing; the others are waited for. */
static void claim_all(struct batch *b, const struct cas_digest *digests, size_t nr)
{
	for (size_t i = 0; i < nr; i++) {
		struct cas_flight *flight = digests[i].size <= BATCH_BLOB_MAX
						    ? cas_fetch_claim_part(b->fetch, &digests[i])
						    : NULL;

		if (flight == NULL)
			continue;
		b->digests[b->nr] = digests[i];
		b->flights[b->nr++] = flight;
	}
}

static void settle(struct batch *b)
{
	for (size_t i = 0; i < b->nr; i++) {
		int ret = b->worst < 0 ? b->worst : -ENOENT;

		if (b->flights[i] == NULL)
			continue;
		if (b->why.code == 0 || ret == -ENOENT)
			(void)err_set(&b->why, ret, "blob %s is in no tier",
				      CAS_DIGEST_TEXT(&b->digests[i]));
		cas_fetch_flight_end(b->fetch, b->flights[i], ret, &b->why);
	}
}

int cas_fetch_batch(struct cas_fetch *f, const struct cas_digest *digests, size_t nr,
		    struct cas_call *call)
{
	struct batch b = {.fetch = f, .call = call};
	auto_free struct cas_digest *own = calloc(nr, sizeof(*own));
	auto_free struct cas_digest *asked = calloc(nr, sizeof(*asked));
	auto_free struct cas_flight **flights = calloc(nr, sizeof(struct cas_flight *));
	auto_free size_t *index = calloc(nr, sizeof(*index));
	int ret = 0;

	if (!own || !asked || !flights || !index)
		return -ENOMEM;
	b.digests = own;
	b.asked = asked;
	b.flights = flights;
	b.index = index;
	claim_all(&b, digests, nr);
	for (size_t i = 0; i < f->nr_tiers; i++)
		ask(&b, f->tiers[i]);
	settle(&b);
	for (size_t i = 0; i < nr && ret == 0; i++) {
		ret = cas_call_check(call);
		if (ret == 0 && b.worst == 0 && !cas_fetch_is_here(f, &digests[i]))
			(void)cas_fetch_wait(f, &digests[i], &call->cancelled, NULL);
	}
	return ret;
}
