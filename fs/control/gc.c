/* fs/control/gc.c - eviction by the daemon, which alone may unlink while it serves */
#include <errno.h>
#include <stdatomic.h>
#include <time.h>

#include "cas/cas.h"
#include "fs/control/commands.h"
#include "fs/control/control.h"
#include "fs/control/quota.h"
#include "fs/control/roots.h"
#include "fs/report/events.h"
#include "fs/sandbox/sandbox.h"
#include "meta/meta.h"

/* The context of an eviction's roots. */
struct gc {
	const struct control_env *env;
	uint64_t nr_known; /* sandboxes that had entered the table when it was last asked, */
	int64_t pins_ns;   /* the same for pins; */
	bool asked;	   /* if it was */
};

/*
 * The table has those that are being created, without a record so far; the files have
 * all others, broken ones included.
 */
static int each_root(void *ctx,
		     int (*root)(void *arg, const struct cas_digest *d, bool is_directory),
		     void *arg, struct err *err)
{
	const struct gc *gc = ctx;
	json_t *list = NULL;
	int ret = fs_sandboxes_describe(gc->env->sandboxes, &list, err);

	for (size_t i = 0; ret == 0 && i < json_array_size(list); i++) {
		const json_t *sandbox = json_array_get(list, i);
		const char *text = json_string_value(json_object_get(sandbox, "root"));
		struct cas_digest digest;

		if (text && cas_digest_parse(text, &digest) == 0)
			ret = root(arg, &digest, true);
	}
	json_decref(list);
	return ret == 0 ? control_roots_each(gc->env->store, root, arg, err) : ret;
}

static int freeze(void *ctx, bool *changed)
{
	struct gc *gc = ctx;
	struct control_guard *guard = gc->env->guard;
	uint64_t known = gc->nr_known;
	int64_t pins_ns;
	int ret;

	atomic_store(&guard->batch, true);
	ret = atomic_load(&guard->nr_pins) > 0
		      ? -EBUSY
		      : fs_sandboxes_freeze(gc->env->sandboxes, &gc->nr_known);
	if (ret < 0)
		atomic_store(&guard->batch, false);
	pins_ns = control_roots_pins_ns(gc->env->store);
	*changed = ret == 0 && (!gc->asked || gc->nr_known != known || gc->pins_ns != pins_ns);
	gc->asked |= ret == 0;
	gc->pins_ns = ret == 0 ? pins_ns : gc->pins_ns;
	return ret;
}

static void thaw(void *ctx)
{
	const struct gc *gc = ctx;

	fs_sandboxes_thaw(gc->env->sandboxes);
	atomic_store(&gc->env->guard->batch, false);
}

static int add_answer(json_t *answer, const struct cas_evict_result *r)
{
	json_t *o = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "before_bytes",
			      (json_int_t)r->before_bytes, "after_bytes",
			      (json_int_t)r->after_bytes, "freed_bytes", (json_int_t)r->freed_bytes,
			      "freed_blobs", (json_int_t)r->freed_blobs, "kept_live_bytes",
			      (json_int_t)r->kept_live_bytes, "freed_temporaries",
			      (json_int_t)r->freed_temporaries);
	int ret = o && json_object_update(answer, o) == 0 ? 0 : -ENOMEM;

	json_decref(o);
	return ret;
}

int control_evict(const struct control_env *env, const struct cas_evict_options *opts, bool wait,
		  struct cas_evict_result *out, struct err *err)
{
	const struct timespec nap = {.tv_nsec = 20000000};
	struct gc gc = {.env = env};
	struct cas_evict_roots roots = {each_root, freeze, thaw, &gc};
	int ret;

	while (atomic_exchange(&env->guard->evicting, true)) {
		if (!wait)
			return -EBUSY;
		(void)nanosleep(&nap, NULL);
	}
	ret = cas_evict(env->store, opts, &roots, out, err);
	atomic_store(&env->guard->evicting, false);
	return ret;
}

static void tell(const struct control_env *env, enum control_reason reason,
		 const struct cas_evict_result *r)
{
	static const char *const names[CONTROL_NR_REASONS] = {
		[CONTROL_EVICT_QUOTA] = "quota",
		[CONTROL_EVICT_COMMAND] = "command",
	};

	(void)atomic_fetch_add(&env->guard->evicted[reason].runs, 1);
	(void)atomic_fetch_add(&env->guard->evicted[reason].blobs, r->freed_blobs);
	(void)atomic_fetch_add(&env->guard->evicted[reason].bytes, r->freed_bytes);
	fs_event(env->events, "eviction", "{s:s, s:I, s:I, s:I, s:I}", "why", names[reason],
		 "freed_blobs", (json_int_t)r->freed_blobs, "freed_bytes",
		 (json_int_t)r->freed_bytes, "after_bytes", (json_int_t)r->after_bytes,
		 "kept_live_bytes", (json_int_t)r->kept_live_bytes);
}

/* What was asked for, else what is configured: down to the low mark. */
static bool is_asked(const struct control_call *call)
{
	return control_has(call->req, "max-size") || control_has(call->req, "max-blobs");
}

static int gc_target(struct control_call *call, struct cas_evict_options *opts, struct err *err)
{
	const struct cas_quota *quota = call->env->quota;
	int64_t bytes = -1;
	int64_t blobs = -1;
	int ret = control_get_number(call->req, "max-size", 0, INT64_MAX, &bytes, err);

	if (ret == 0)
		ret = control_get_number(call->req, "max-blobs", 0, INT64_MAX, &blobs, err);
	if (ret < 0)
		return ret;
	if (is_asked(call)) {
		const struct cas_quota asked = {
			.max_bytes = bytes < 0 ? CAS_QUOTA_NONE : (uint64_t)bytes,
			.max_blobs = blobs < 0 ? CAS_QUOTA_NONE : (uint64_t)blobs,
		};

		cas_quota_target(&asked, opts);
		return 0;
	}
	if (!quota || quota->max_bytes == CAS_QUOTA_NONE)
		return err_set(err, -EINVAL, "gc: --max-size is missing, and none is configured");
	opts->max_bytes =
		quota->low_bytes != CAS_QUOTA_NONE ? quota->low_bytes : quota->max_bytes / 10 * 9;
	return 0;
}

int control_gc(struct control_call *call, struct err *err)
{
	struct cas_evict_options opts = {.dry_run = control_has(call->req, "dry-run")};
	struct cas_evict_result result = {0};
	struct err why = {0};
	int ret = 0;

	if (control_has(call->req, "drain"))
		ret = cas_spool_drain(call->env->store, CAS_SPOOL_ALL, call->env->ending, err);
	if (ret == 0 && (is_asked(call) || !control_has(call->req, "drain")))
		ret = gc_target(call, &opts, err);
	else if (ret == 0)
		return 0;
	if (ret < 0)
		return ret;
	/* What was killed before it told of its blobs counts, too. Without, files are listed. */
	if (meta_recount(call->env->meta, NULL, &why) < 0)
		log_warn("evicting by the files alone: %s", err_text(&why, why.code));
	ret = control_evict(call->env, &opts, true, &result, err);
	/* Rows that a full disk took have room again; what still fails is tried later. */
	if (ret == 0 && meta_needs_reconcile(call->env->meta))
		(void)meta_reconcile(call->env->meta, NULL, NULL);
	if (ret == 0 && !opts.dry_run)
		tell(call->env, CONTROL_EVICT_COMMAND, &result);
	return ret < 0 ? ret : add_answer(call->answer, &result);
}

#define VARIANTS_NS 60000000000ULL /* between two looks at links/ */
#define EXCESS_NS   30000000000ULL /* between two tries to make room where all is needed */

static void look_at_variants(const struct control_env *env, struct control_quota *quota)
{
	unsigned long long now = lock_now_ns();

	if (quota->variants_ns != 0 && now - quota->variants_ns < VARIANTS_NS)
		return;
	quota->variants_ns = now;
	(void)cas_quota_variants(env->store, &quota->variant_bytes, NULL);
}

/* Told once, until it is over. */
static void settle_excess(struct control_quota *quota, const struct cas_evict_result *r)
{
	uint64_t excess = cas_quota_excess(&quota->limit, r->after_bytes);
	uint64_t before = atomic_exchange(&quota->excess_bytes, excess);

	if (excess > 0 && before == 0)
		log_warn(
			"the store is %llu bytes above its max-size of %llu: %llu bytes are needed "
			"by sandboxes, pins and puts, or too young where others put; it "
			"shrinks when that ends",
			(unsigned long long)excess, (unsigned long long)quota->limit.max_bytes,
			(unsigned long long)r->kept_live_bytes);
	else if (excess == 0 && before > 0)
		log_info("the store is within its max-size again");
	quota->again_ns = excess > 0 ? lock_now_ns() + EXCESS_NS : 0;
}

/* Without anything to remove an excess may have ended by itself. */
static void end_excess(struct control_quota *quota)
{
	if (atomic_exchange(&quota->excess_bytes, 0) > 0)
		log_info("the store is within its max-size again");
	quota->again_ns = 0;
}

void control_quota(const struct control_env *env, struct control_quota *quota)
{
	struct cas_evict_options opts;
	struct cas_evict_result r = {0};
	struct err err = {0};
	size_t nr;
	int ret;

	if (!cas_quota_is_set(&quota->limit))
		return;
	look_at_variants(env, quota);
	if (cas_quota_exceeded(env->store, &quota->limit, quota->variant_bytes, &opts) != 1) {
		end_excess(quota);
		return;
	}
	nr = fs_sandboxes_count(env->sandboxes);
	if (quota->again_ns != 0 && lock_now_ns() < quota->again_ns && nr == quota->nr_sandboxes)
		return;
	quota->nr_sandboxes = nr;
	ret = control_evict(env, &opts, false, &r, &err);
	if (ret == -EBUSY)
		return;
	if (ret < 0) {
		log_warn("cannot keep the store within its max-size: %s", err_text(&err, ret));
		quota->again_ns = lock_now_ns() + EXCESS_NS;
		return;
	}
	quota->variants_ns = 0;
	atomic_fetch_add(&quota->evictions, 1);
	atomic_fetch_add(&quota->evicted_blobs, r.freed_blobs);
	atomic_fetch_add(&quota->evicted_bytes, r.freed_bytes);
	log_info("evicted %llu blobs, %llu bytes; %llu bytes left",
		 (unsigned long long)r.freed_blobs, (unsigned long long)r.freed_bytes,
		 (unsigned long long)r.after_bytes);
	tell(env, CONTROL_EVICT_QUOTA, &r);
	settle_excess(quota, &r);
}
