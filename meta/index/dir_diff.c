/* meta/index/dir_diff.c - what two directories do not have in common */
/*
 * Both are in order of name, so one pass over both finds the differences. It works on
 * bytes that are held by count, or copied from the index: no transaction is open and no
 * lock is held while the callback runs. An entry is only copied out when it differs.
 */
#include <errno.h>

#include "cas/base/err.h"
#include "meta/index/packed_dir.h"
#include "meta/meta_i.h"

struct side {
	const struct cas_digest *digest;
	struct meta_packed *packed;
	struct meta_packed_view view; /* all zero: no entries */
	uint32_t at;
};

struct diff {
	struct side old;
	struct side new;
	uint64_t nr_same;
	int (*each)(void *ctx, const struct meta_dirent *old, const struct meta_dirent *new);
	void *ctx;
};

static int side_open(struct meta *meta, const struct cas_digest *digest, struct side *side,
		     struct err *err)
{
	int ret;

	side->digest = digest;
	if (cas_digest_is_empty(digest))
		return 0;
	ret = meta_dirs_get(meta, digest, &side->packed, err);
	if (ret < 0)
		return ret;
	return meta_packed_view_init(&side->view, digest, side->packed->data, side->packed->len);
}

/* @old and @new: is the entry of that side to be told? */
static int tell(struct diff *d, bool old, bool new)
{
	struct meta_dirent a = {0};
	struct meta_dirent b = {0};
	int ret = old ? meta_packed_view_get(&d->old.view, d->old.at, &a) : 0;

	if (ret == 0 && new)
		ret = meta_packed_view_get(&d->new.view, d->new.at, &b);
	if (ret == 0)
		ret = d->each(d->ctx, old ? &a : NULL, new ? &b : NULL);
	meta_dirent_fini(&a);
	meta_dirent_fini(&b);
	return ret;
}

static int step(struct diff *d)
{
	int order = d->new.at == d->new.view.nr_entries ? -1 : 1;
	bool same = false;
	int ret = 0;

	if (d->old.at < d->old.view.nr_entries && d->new.at < d->new.view.nr_entries)
		ret = meta_packed_view_compare(&d->old.view, d->old.at, &d->new.view, d->new.at,
					       &order, &same);
	if (ret == 0 && !same)
		ret = tell(d, order <= 0, order >= 0);
	d->nr_same += same;
	d->old.at += order <= 0;
	d->new.at += order >= 0;
	return ret;
}

int meta_dir_diff(struct meta *meta, const struct cas_digest *old, const struct cas_digest *new,
		  int (*each)(void *ctx, const struct meta_dirent *old,
			      const struct meta_dirent *new),
		  void *ctx, uint64_t *nr_same, struct err *err)
{
	struct diff d = {.each = each, .ctx = ctx};
	int ret = side_open(meta, old, &d.old, err);

	if (ret == 0)
		ret = side_open(meta, new, &d.new, err);
	while (ret == 0 && (d.old.at < d.old.view.nr_entries || d.new.at < d.new.view.nr_entries))
		ret = step(&d);
	meta_packed_unref(d.old.packed);
	meta_packed_unref(d.new.packed);
	if (nr_same && ret >= 0)
		*nr_same = d.nr_same;
	return ret < 0 ? ret : 0;
}
