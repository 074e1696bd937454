/* cas/tier/tier.c - open a tier; when and how often its transport is asked */
#include "cas/tier.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "cas/base/err.h"
#include "cas/base/log.h"
#include "cas/tier/tier_i.h"

/*
 * An operation is some attempts. Each takes a slot (those that somebody waits for first,
 * the others never more than half) and has a third of the operation's deadline without
 * progress, so that one lost packet does not use all of it up. Between attempts it waits
 * a random part of a time that doubles, or as long as the server asks for.
 *
 * The breaker opens after BREAK_AFTER failures in a row, for a time that doubles up to
 * OPEN_MAX_MS. Then one attempt goes through and closes it or opens it again. While it is
 * open, operations fail at once; but the first openings are short, and those that
 * somebody waits for sit them out: a server that is started again costs nobody an error.
 */

#define DEADLINE_MS	30000
#define TRIES		4
#define PARALLEL	32
#define BACKOFF_MS	100
#define BACKOFF_MAX_MS	5000
#define BREAK_AFTER	8
#define OPEN_MS		500
#define OPEN_MAX_MS	16000
#define OPEN_SIT_OUT_MS 2000
/* An attempt that came this far does not count as a failed try. */
#define GOOD_PROGRESS (1u << 20)

static const struct tier_scheme *const schemes[] = {
	&tier_scheme_file,
#if defined(CASBOX_CURL)
	&tier_scheme_http, &tier_scheme_https, &tier_scheme_s3,
#endif
#if defined(CASBOX_REAPI)
	&tier_scheme_grpc, &tier_scheme_grpcs,
#endif
};

static const char *const common_options[] = {"write", "deadline", "tries", "parallel", NULL};

static bool is_listed(const char *const *list, const char *name)
{
	for (; list && *list; list++) {
		if (strcmp(*list, name) == 0)
			return true;
	}
	return false;
}

static int find_scheme(const struct tier_url *url, const struct tier_scheme **out, struct err *err)
{
	for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
		if (strcmp(schemes[i]->scheme, url->scheme) == 0) {
			*out = schemes[i];
			return 0;
		}
	}
	return err_set(err, -EINVAL, "tier %s: this casbox knows no scheme \"%s\"", url->text,
		       url->scheme);
}

static int check_options(const struct tier_url *url, const struct tier_scheme *scheme,
			 struct err *err)
{
	for (size_t i = 0; i < url->nr_options; i++) {
		const char *name = url->options[i].name;

		if (!is_listed(common_options, name) && !is_listed(scheme->options, name))
			return err_set(err, -EINVAL, "tier %s: unknown option \"%s\"", url->text,
				       name);
	}
	return 0;
}

static int read_policy(struct cas_tier *tier, struct err *err)
{
	uint64_t tries = TRIES;
	uint64_t parallel = PARALLEL;
	int ret;

	tier->deadline_ms = DEADLINE_MS;
	ret = tier_url_flag(&tier->url, "write", &tier->writable, err);
	if (ret == 0)
		ret = tier_url_time_ms(&tier->url, "deadline", &tier->deadline_ms, err);
	if (ret == 0)
		ret = tier_url_number(&tier->url, "tries", 1, 100, &tries, err);
	if (ret == 0)
		ret = tier_url_number(&tier->url, "parallel", 1, 1024, &parallel, err);
	tier->tries = (unsigned)tries;
	tier->parallel = (unsigned)parallel;
	return ret;
}

int tier_open_as(const char *url, const struct tier_scheme *scheme, struct cas_tier **out,
		 struct err *err)
{
	struct cas_tier *tier = calloc(1, sizeof(*tier));
	int ret;

	if (tier == NULL)
		return -ENOMEM;
	lock_init(&tier->lock, LOCK_RANK_LEAF, "cas_tier.lock");
	lock_cond_init(&tier->changed);
	tier->open_ms = OPEN_MS;
	ret = tier_url_parse(url, &tier->url, err);
	tier->scheme = scheme;
	if (ret == 0 && scheme == NULL)
		ret = find_scheme(&tier->url, &tier->scheme, err);
	if (ret == 0)
		ret = check_options(&tier->url, tier->scheme, err);
	if (ret == 0)
		ret = read_policy(tier, err);
	if (ret == 0)
		ret = tier->scheme->open(&tier->url, &tier->ctx, err);
	if (ret < 0) {
		cas_tier_close(tier);
		return ret;
	}
	*out = tier;
	return 0;
}

int cas_tier_open(const char *url, struct cas_tier **out, struct err *err)
{
	return tier_open_as(url, NULL, out, err);
}

void cas_tier_close(struct cas_tier *tier)
{
	if (tier == NULL)
		return;
	if (tier->ctx)
		tier->scheme->ops->close(tier->ctx);
	tier_url_fini(&tier->url);
	(void)pthread_cond_destroy(&tier->changed);
	lock_fini(&tier->lock);
	free(tier);
}

const char *cas_tier_name(const struct cas_tier *tier)
{
	return tier->url.text;
}

bool cas_tier_is_writable(const struct cas_tier *tier)
{
	return tier->writable;
}

bool cas_tier_gets_batches(const struct cas_tier *tier)
{
	return tier->scheme->ops->get_many != NULL;
}

bool cas_tier_puts_batches(const struct cas_tier *tier)
{
	return tier->scheme->ops->put_many != NULL;
}

bool cas_tier_has_trees(const struct cas_tier *tier)
{
	return tier->scheme->ops->get_tree != NULL;
}

void cas_tier_stats(struct cas_tier *tier, struct cas_tier_stats *out)
{
	lock_take(&tier->lock);
	*out = tier->stats;
	out->broken = tier->open_until_ns != 0;
	lock_drop(&tier->lock);
}

void tier_count_in(struct cas_tier *tier, uint64_t blobs, uint64_t bytes)
{
	lock_take(&tier->lock);
	tier->stats.nr_blobs_in += blobs;
	tier->stats.bytes_in += bytes;
	lock_drop(&tier->lock);
}

void tier_count_out(struct cas_tier *tier, uint64_t blobs, uint64_t bytes)
{
	lock_take(&tier->lock);
	tier->stats.nr_blobs_out += blobs;
	tier->stats.bytes_out += bytes;
	lock_drop(&tier->lock);
}

static void wake_waiters(void *ctx)
{
	struct cas_tier *tier = ctx;

	lock_take(&tier->lock);
	(void)pthread_cond_broadcast(&tier->changed);
	lock_drop(&tier->lock);
}

static bool has_slot(const struct cas_tier *tier, const struct cas_call *call) REQUIRES(tier->lock)
{
	if (tier->nr_running >= tier->parallel)
		return false;
	if (!call->background)
		return true;
	return tier->nr_waiting == 0 &&
	       (tier->nr_background == 0 || tier->nr_background < tier->parallel / 2);
}

/* 0 go, or until when (CLOCK_MONOTONIC) the breaker keeps this one out. */
static unsigned long long kept_out_until(const struct cas_tier *tier) REQUIRES(tier->lock)
{
	unsigned long long now = lock_now_ns();

	if (tier->open_until_ns == 0)
		return 0;
	if (now < tier->open_until_ns)
		return tier->open_until_ns;
	/* Somebody is trying it already; he will tell. */
	return tier->probing ? now + OPEN_MS * 1000000ULL : 0;
}

static int refuse(const struct cas_tier *tier, struct err *err)
{
	return err_set(err, -EAGAIN,
		       "tier %s failed %u times in a row and is not asked for the moment",
		       tier->url.text, tier->nr_failed);
}

/* One wait for a slot or for the breaker; what to do next as cas_call_check. */
static int wait_once(struct cas_tier *tier, const struct cas_call *call, unsigned long long until)
	REQUIRES(tier->lock)
{
	unsigned long long deadline = atomic_load(&call->deadline_ns);

	if (until == 0 || (deadline > 0 && deadline < until))
		until = deadline;
	(void)lock_wait(&tier->lock, &tier->changed, until);
	return cas_call_check(call);
}

static int enter_locked(struct cas_tier *tier, struct cas_call *call, struct err *err)
	REQUIRES(tier->lock)
{
	bool counted = !call->background;
	int ret = cas_call_check(call);

	tier->nr_waiting += counted;
	while (ret == 0) {
		unsigned long long until = kept_out_until(tier);

		if (until != 0 && (call->background || tier->open_ms > OPEN_SIT_OUT_MS)) {
			ret = refuse(tier, err);
			break;
		}
		if (until == 0 && has_slot(tier, call))
			break;
		ret = wait_once(tier, call, until);
	}
	tier->nr_waiting -= counted;
	if (ret < 0)
		return ret;
	tier->nr_running++;
	tier->nr_background += call->background;
	tier->probing = tier->open_until_ns != 0;
	tier->stats.nr_requests++;
	return 0;
}

/* Take a slot, when the breaker lets us. */
static int enter(struct cas_tier *tier, struct cas_call *call, struct err *err)
{
	int ret;

	cas_call_register(call, wake_waiters, tier);
	lock_take(&tier->lock);
	ret = enter_locked(tier, call, err);
	lock_drop(&tier->lock);
	cas_call_unregister(call);
	return ret;
}

static bool is_failure(int ret)
{
	return ret == -EAGAIN || ret == -ETIMEDOUT || ret == -EPROTO;
}

static void judge(struct cas_tier *tier, int ret) REQUIRES(tier->lock)
{
	bool was_probe = tier->open_until_ns != 0;

	if (ret == -ECANCELED) {
		tier->probing = false;
		return;
	}
	if (!is_failure(ret)) {
		/* Wrong credentials are nothing that a pause would mend, but an error. */
		tier->stats.nr_failures += ret == -EACCES;
		if (was_probe)
			log_info("tier %s answers again", tier->url.text);
		tier->nr_failed = 0;
		tier->open_until_ns = 0;
		tier->open_ms = OPEN_MS;
		tier->probing = false;
		return;
	}
	tier->stats.nr_failures++;
	tier->nr_failed++;
	/* Those that were under way when it opened say nothing new. */
	if (tier->nr_failed < BREAK_AFTER || (was_probe && !tier->probing))
		return;
	if (!was_probe)
		log_warn("tier %s failed %u times in a row: pausing it", tier->url.text,
			 tier->nr_failed);
	tier->probing = false;
	tier->open_until_ns = lock_now_ns() + tier->open_ms * 1000000ULL;
	tier->open_ms = tier->open_ms < OPEN_MAX_MS ? tier->open_ms * 2 : OPEN_MAX_MS;
}

static void leave(struct cas_tier *tier, const struct cas_call *call, int ret)
{
	lock_take(&tier->lock);
	tier->nr_running--;
	tier->nr_background -= call->background;
	judge(tier, ret);
	(void)pthread_cond_broadcast(&tier->changed);
	lock_drop(&tier->lock);
}

/* Sleep until it is time for attempt number @nr + 1; -ECANCELED, -ETIMEDOUT. */
static int back_off(struct cas_tier *tier, unsigned nr, struct cas_call *call)
{
	unsigned ms = nr < 16 ? BACKOFF_MS << (nr - 1) : BACKOFF_MAX_MS;
	unsigned long long until;
	unsigned random = 0;
	int ret;

	if (ms > BACKOFF_MAX_MS)
		ms = BACKOFF_MAX_MS;
	(void)getrandom(&random, sizeof(random), GRND_NONBLOCK);
	ms = ms / 2 + random % (ms / 2 + 1);
	if (call->retry_after_ms > ms)
		ms = call->retry_after_ms;
	until = lock_now_ns() + ms * 1000000ULL;
	cas_call_register(call, wake_waiters, tier);
	lock_take(&tier->lock);
	ret = cas_call_check(call);
	while (ret == 0 && lock_now_ns() < until)
		ret = wait_once(tier, call, until);
	lock_drop(&tier->lock);
	cas_call_unregister(call);
	return ret;
}

/*
 * An attempt that does not get anywhere ends at @until, one that does has only the
 * caller's @limit. *asked: the transport was.
 */
static int attempt_once(struct cas_tier *tier, struct tier_op *op, struct cas_call *call,
			unsigned long long until, unsigned long long limit, bool *asked,
			struct err *err)
{
	unsigned window = tier->tries > 1 ? tier->deadline_ms / 3 : tier->deadline_ms;
	int ret = enter(tier, call, err);

	*asked = ret == 0;
	if (ret < 0)
		return ret;
	call->retry_after_ms = 0;
	cas_call_pace(call, window > 0 ? window : 1, limit);
	if (atomic_load(&call->deadline_ns) > until)
		atomic_store(&call->deadline_ns, until);
	ret = op->attempt(tier, op, call, err);
	/* A transport may have noticed neither of the two. */
	if (ret < 0 && atomic_load(&call->cancelled))
		ret = -ECANCELED;
	leave(tier, call, ret);
	return ret;
}

static unsigned long long later_of(const struct cas_tier *tier, unsigned long long limit)
{
	unsigned long long at = lock_now_ns() + tier->deadline_ms * 1000000ULL;

	return limit > 0 && limit < at ? limit : at;
}

/* Put the tier's name before what the transport said, or say it all. */
static int explain(const struct cas_tier *tier, const struct tier_op *op, int ret, struct err *err)
{
	if (ret == -ETIMEDOUT && (err == NULL || err->code == 0))
		return err_set(err, ret, "tier %s: %s took longer than %u ms", tier->url.text,
			       op->what, tier->deadline_ms);
	if (ret == -ECANCELED)
		return err_set(err, ret, "tier %s: %s was cancelled", tier->url.text, op->what);
	if (err && err->code == 0)
		return err_set(err, ret, "tier %s: %s failed: %s", tier->url.text, op->what,
			       strerrordesc_np(-ret));
	return ret;
}

int tier_run(struct cas_tier *tier, struct tier_op *op, struct cas_call *call, struct err *err)
{
	unsigned long long limit = atomic_load(&call->deadline_ns);
	unsigned long long until = later_of(tier, limit);
	unsigned failed = 0;
	int ret;

	for (;;) {
		uint64_t before = op->advanced;
		struct err why = {0};
		bool asked;

		atomic_store(&call->deadline_ns, until);
		ret = attempt_once(tier, op, call, until, limit, &asked, &why);
		if (err && why.code != 0)
			*err = why;
		if (!asked || !is_failure(ret) || ret == -EPROTO)
			break;
		if (op->advanced - before >= GOOD_PROGRESS) {
			failed = 0;
			until = later_of(tier, limit);
		}
		if (++failed >= tier->tries)
			break;
		atomic_store(&call->deadline_ns, until);
		if (back_off(tier, failed, call) < 0) {
			ret = cas_call_check(call) == -ECANCELED ? -ECANCELED : ret;
			break;
		}
	}
	atomic_store(&call->deadline_ns, limit);
	call->window_ns = 0;
	return ret < 0 ? explain(tier, op, ret, err) : 0;
}
