/* fs/control/gc.c - eviction by the daemon, which alone may unlink while it serves */
#include <errno.h>

#include "cas/cas.h"
#include "fs/control/control.h"
#include "fs/control/roots.h"
#include "fs/sandbox/sandbox.h"
#include "meta/meta.h"

/* The context of an eviction's roots. */
struct gc {
	const struct control_env *env;
	uint64_t nr_known; /* sandboxes that had entered the table when it was last asked, */
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
	uint64_t known = gc->nr_known;
	int ret = fs_sandboxes_freeze(gc->env->sandboxes, &gc->nr_known);

	*changed = ret == 0 && (!gc->asked || gc->nr_known != known);
	gc->asked |= ret == 0;
	return ret;
}

static void thaw(void *ctx)
{
	const struct gc *gc = ctx;

	fs_sandboxes_thaw(gc->env->sandboxes);
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

int control_gc(struct control_call *call, struct err *err)
{
	struct cas_evict_options opts = {.dry_run = control_has(call->req, "dry-run")};
	struct gc gc = {.env = call->env};
	struct cas_evict_roots roots = {each_root, freeze, thaw, &gc};
	struct cas_evict_result result = {0};
	struct err why = {0};
	int64_t max = 0;
	int ret = control_get_number(call->req, "max-size", 0, INT64_MAX, &max, err);

	if (ret < 0)
		return ret;
	opts.max_bytes = (uint64_t)max;
	/* What was killed before it told of its blobs counts, too. Without, files are listed. */
	if (meta_recount(call->env->meta, NULL, &why) < 0)
		log_warn("evicting by the files alone: %s", err_text(&why, why.code));
	ret = cas_evict(call->env->store, &opts, &roots, &result, err);
	/* Rows that a full disk took have room again; what still fails is tried later. */
	if (ret == 0 && meta_needs_reconcile(call->env->meta))
		(void)meta_reconcile(call->env->meta, NULL, NULL);
	return ret < 0 ? ret : add_answer(call->answer, &result);
}
