/* tools/cmd/roots.c - what live sandboxes, their results and pins need */
#include "tools/cmd/roots.h"

#include <errno.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/control/pins.h"
#include "fs/control/roots.h"

static int each_and_more(void *ctx,
			 int (*root)(void *arg, const struct cas_digest *d, bool is_directory),
			 void *arg, struct err *err)
{
	const struct roots_more *m = ctx;
	int ret = control_roots_each(m->store, root, arg, err);

	for (size_t i = 0; i < m->nr && ret == 0; i++)
		ret = root(arg, &m->more[i].digest, m->more[i].is_directory);
	return ret;
}

/* Nobody makes a sandbox without a daemon, but pins may come at any time, between batches. */
static int freeze(void *ctx, bool *changed)
{
	struct roots_more *m = ctx;
	int64_t pins_ns = control_roots_pins_ns(m->store);

	*changed = m->pins_ns != pins_ns;
	m->pins_ns = pins_ns;
	return 0;
}

static void thaw(void *ctx)
{
	(void)ctx;
}

struct cas_evict_roots roots_and_more(struct roots_more *more)
{
	more->pins_ns = -1;
	return (struct cas_evict_roots){each_and_more, freeze, thaw, more};
}

int roots_pin(struct cas_store *store, const struct cas_digest *digest, struct err *err)
{
	int ret;

	if (cas_store_is_read_only(store))
		return err_set(err, -EROFS, "cannot pin %s: store %s is read-only",
			       CAS_DIGEST_TEXT(digest), cas_store_path(store));
	/* Between two batches of an eviction: what is here then is seen by the next one. */
	ret = cas_evict_bar(store);
	if (ret < 0)
		return err_set(err, ret, "cannot pin %s while blobs are being evicted: %s",
			       CAS_DIGEST_TEXT(digest), strerror(-ret));
	ret = control_pin_add(store, digest, err);
	cas_evict_unbar(store);
	return ret;
}
