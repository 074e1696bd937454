/* cas/fetch/fetch_flight.c - one blob on its way: which tier is asked, and by which process */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/log.h"
#include "cas/fetch/fetch_i.h"
#include "cas/put/put.h"
#include "cas/store/store_i.h"

/*
 * Other processes that share the store: each takes a write lock on a byte that the digest
 * chooses (48 bits of it) in STORE/lock, far beyond the bytes that are locked for other
 * reasons, and looks again once it has it. The lock is the open file description's, so a
 * killed process leaves nothing behind. Who does not get it in CLAIM_MS fetches all the
 * same: two downloads are better than none.
 */

#define CLAIM_MS      30000
#define CLAIM_STEP_MS 10
#define CLAIM_BASE    (1LL << 48)
#define WRONG_TRIES   2 /* of one tier that sent wrong bytes */

bool cas_fetch_is_here(struct cas_fetch *f, const struct cas_digest *digest)
{
	auto_close int fd = -1;

	return cas_store_open_here(f->store, digest, &fd, NULL) == 0;
}

struct incoming {
	struct cas_store *store;
	struct cas_put *put;
};

static int incoming_write(void *ctx, const void *data, size_t len, struct err *err)
{
	struct incoming *in = ctx;

	return cas_put_write(in->put, data, len, err);
}

static int incoming_restart(void *ctx, struct err *err)
{
	struct incoming *in = ctx;

	cas_put_free(in->put);
	in->put = NULL;
	return cas_put_new(in->store, &in->put, err);
}

void cas_fetch_came(const struct cas_fetch *f, const struct cas_digest *digest,
		    const struct cas_tier *tier)
{
	const struct cas_catalog *c = f->store->catalog;

	if (c->ops->blob_came)
		c->ops->blob_came(c->ctx, digest, cas_tier_name(tier));
}

static int ask_tier(struct cas_fetch *f, struct cas_tier *tier, struct cas_flight *flight,
		    struct err *err)
{
	struct incoming in = {.store = f->store};
	const struct cas_sink sink = {incoming_write, incoming_restart, &in};
	int ret = cas_put_new(f->store, &in.put, err);

	if (ret == 0)
		ret = cas_tier_get(tier, &flight->digest, &sink, &flight->call, err);
	if (ret == 0) {
		ret = cas_put_publish(in.put, &flight->digest, NULL, err);
		if (ret == -EBADMSG)
			err_set(err, ret, "tier %s sent other bytes as blob %s",
				cas_tier_name(tier), CAS_DIGEST_TEXT(&flight->digest));
	}
	cas_put_free(in.put);
	if (ret == 0)
		cas_fetch_came(f, &flight->digest, tier);
	return ret;
}

/* All tiers, until one has it. */
static int ask_tiers(struct cas_fetch *f, struct cas_flight *flight, struct err *err)
{
	int worst = 0;

	for (size_t i = 0; i < f->nr_tiers; i++) {
		int ret = -EBADMSG;

		for (int tries = 0; tries < WRONG_TRIES && ret == -EBADMSG; tries++) {
			struct err why = {0};

			ret = ask_tier(f, f->tiers[i], flight, &why);
			if (ret == 0 || ret == -ECANCELED)
				return ret;
			if (ret == -EBADMSG) {
				log_warn("%s", err_text(&why, ret));
				lock_take(&f->lock);
				f->stats.nr_refused++;
				lock_drop(&f->lock);
			}
			if (cas_fetch_worse(worst, ret) == ret)
				*err = why;
			worst = cas_fetch_worse(worst, ret);
		}
	}
	if (worst == -ENOENT)
		return err_set(err, worst, "blob %s is in no tier",
			       CAS_DIGEST_TEXT(&flight->digest));
	return err_context(err, worst, "cannot fetch blob %s", CAS_DIGEST_TEXT(&flight->digest));
}

static struct flock claim_of(const struct cas_digest *digest, short type)
{
	long long at = 0;

	for (int i = 0; i < 6; i++)
		at = at << 8 | digest->hash[i];
	return (struct flock){
		.l_type = type, .l_whence = SEEK_SET, .l_start = CLAIM_BASE + at, .l_len = 1};
}

/* Keep other processes from fetching it, too; whoever had it before may have brought it. */
static void claim(struct cas_fetch *f, struct cas_flight *flight)
{
	const struct timespec nap = {.tv_nsec = CLAIM_STEP_MS * 1000000L};
	unsigned long long end = lock_now_ns() + CLAIM_MS * 1000000ULL;
	struct flock fl = claim_of(&flight->digest, F_WRLCK);

	while (f->lock_fd >= 0 && fcntl(f->lock_fd, F_OFD_SETLK, &fl) < 0) {
		if ((errno != EAGAIN && errno != EACCES) || lock_now_ns() >= end ||
		    cas_call_check(&flight->call) < 0)
			return;
		(void)nanosleep(&nap, NULL);
	}
}

static void unclaim(struct cas_fetch *f, const struct cas_digest *digest)
{
	struct flock fl = claim_of(digest, F_UNLCK);

	if (f->lock_fd >= 0)
		(void)fcntl(f->lock_fd, F_OFD_SETLK, &fl);
}

void cas_fetch_flight_run(struct cas_fetch *f, struct cas_fetch_task *task)
{
	struct cas_flight *flight = (struct cas_flight *)task;
	struct err why = {0};
	int ret = 0;

	claim(f, flight);
	if (!cas_fetch_is_here(f, &flight->digest)) {
		ret = ask_tiers(f, flight, &why);
		flight->fetched = ret == 0;
	}
	unclaim(f, &flight->digest);
	if (ret < 0 && task->background)
		log_info("%s", err_text(&why, ret));
	cas_fetch_flight_end(f, flight, ret, &why);
}
