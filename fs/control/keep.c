/* fs/control/keep.c - commands on the store */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cas/cas.h"
#include "fs/control/commands.h"
#include "fs/control/control.h"
#include "fs/control/pins.h"
#include "meta/meta.h"

/* Between two batches of an eviction: what is here then is seen by the next one. */
static int pin_one(const struct control_env *env, const struct cas_digest *digest, struct err *err)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	struct control_guard *guard = env->guard;
	int ret;

	(void)atomic_fetch_add(&guard->nr_pins, 1);
	while (atomic_load(&guard->batch))
		(void)nanosleep(&nap, NULL);
	ret = control_pin_add(env->store, digest, err);
	(void)atomic_fetch_sub(&guard->nr_pins, 1);
	return ret;
}

static int unpin_one(const struct control_env *env, const struct cas_digest *digest,
		     struct err *err)
{
	return control_pin_drop(env->store, digest, err);
}

static int each_digest(struct control_call *call,
		       int (*act)(const struct control_env *env, const struct cas_digest *digest,
				  struct err *err),
		       struct err *err)
{
	size_t nr;
	auto_free const char **texts = control_values(call->req, "digest", &nr);
	int ret = texts ? 0 : -ENOMEM;

	for (size_t i = 0; ret == 0 && i < nr; i++) {
		struct cas_digest digest;

		ret = control_parse_digest(call, texts[i], &digest, err);
		if (ret == 0)
			ret = act(call->env, &digest, err);
	}
	return ret;
}

int control_pin(struct control_call *call, struct err *err)
{
	return each_digest(call, pin_one, err);
}

int control_unpin(struct control_call *call, struct err *err)
{
	return each_digest(call, unpin_one, err);
}

int control_rows(struct control_call *call, struct err *err)
{
	const char *rows = control_get(call->req, "rows");

	return meta_rows_apply(call->env->meta, rows, strlen(rows), err);
}

int control_sync(struct control_call *call, struct err *err)
{
	const struct cas_catalog *catalog = cas_store_catalog(call->env->store);
	int ret = cas_store_sync(call->env->store, err);

	return ret < 0 ? ret : catalog->ops->flush(catalog->ctx, err);
}

int control_reconcile(struct control_call *call, struct err *err)
{
	struct meta_reconcile_result result = {0};
	json_t *counts;
	int ret = meta_reconcile(call->env->meta, &result, err);

	if (ret < 0)
		return ret;
	counts = json_pack("{s:I, s:I, s:I}", "adopted", (json_int_t)result.adopted, "dropped",
			   (json_int_t)result.dropped, "resized", (json_int_t)result.resized);
	ret = counts && json_object_update(call->answer, counts) == 0 ? 0 : -ENOMEM;
	json_decref(counts);
	return ret;
}
