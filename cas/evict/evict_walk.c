/* cas/evict/evict_walk.c - what an eviction finds by looking: temporaries, variants, all files */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/checkout/checkout.h"
#include "cas/evict/evict_i.h"
#include "cas/store/store_i.h"

/*
 * Temporaries and what was moved aside are in no catalog; they are found by their names,
 * without a look at the blobs around them. Variants are few, and whether a checkout has
 * linked one only the file knows.
 *
 * Where no catalog is to be believed every file is listed and put in order of last use:
 * a file that the catalog does not know counts as used when it came.
 */

#define TMP_AGE_SEC 86400
#define PAGE	    1024

static uint64_t disk_bytes(const struct stat *st)
{
	return (uint64_t)st->st_blocks * 512;
}

static int add_candidate(struct cas_eviction *e, const struct cas_walk_item *item)
{
	struct cas_candidate *c;

	if (e->nr == e->cap) {
		size_t cap = e->cap ? 2 * e->cap : 1024;
		struct cas_candidate *list = reallocarray(e->list, cap, sizeof(*list));

		if (list == NULL)
			return err_set(e->err, -ENOMEM, "cannot list the blobs: out of memory");
		e->list = list;
		e->cap = cap;
	}
	c = &e->list[e->nr++];
	*c = (struct cas_candidate){
		.ino = item->st.st_ino,
		.bytes = disk_bytes(&item->st),
		.last_name = item->st.st_nlink == 1,
		.last_use_ns =
			(int64_t)item->st.st_mtim.tv_sec * 1000000000 + item->st.st_mtim.tv_nsec,
	};
	memcpy(c->digest.hash, item->hash, CAS_HASH_SZ);
	c->digest.size = (uint64_t)item->st.st_size;
	return 0;
}

/* Whoever still writes a named temporary holds a lock on it. */
static bool is_locked(const struct cas_walk_item *item)
{
	struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	auto_close int fd = openat(item->shard_fd, item->name,
				   O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	return fd >= 0 && fcntl(fd, F_OFD_GETLK, &fl) == 0 && fl.l_type != F_UNLCK;
}

static bool is_stale(const struct cas_eviction *e, const struct cas_walk_item *item)
{
	/* A quarantined file keeps the mtime of its better days; ctime is the rename. */
	if (item->kind == CAS_WALK_BAD)
		return e->now - item->st.st_ctim.tv_sec > CAS_BAD_AGE_SEC;
	return S_ISREG(item->st.st_mode) && e->now - item->st.st_mtim.tv_sec > TMP_AGE_SEC &&
	       !is_locked(item);
}

static uint64_t last_name_bytes(const struct cas_walk_item *item)
{
	return S_ISREG(item->st.st_mode) && item->st.st_nlink == 1 ? disk_bytes(&item->st) : 0;
}

/* A temporary, quarantined or variant name goes; a failure is only told. */
static void remove_extra(struct cas_eviction *e, const struct cas_walk_item *item)
{
	uint64_t bytes = last_name_bytes(item);
	int ret = 0;

	if (!e->opts->dry_run)
		ret = io_remove_tree(item->shard_fd, item->name, NULL);
	if (ret < 0) {
		log_warn("cannot remove %s: %s", item->path, strerrordesc_np(-ret));
		return;
	}
	e->bytes -= bytes;
	e->result.freed_bytes += bytes;
	e->result.freed_temporaries++;
}

/* Count a temporary or quarantined name, and remove it once it is old. */
static int sweep_temporary(struct cas_eviction *e, const struct cas_walk_item *item,
			   bool may_remove)
{
	uint64_t bytes = last_name_bytes(item);

	e->result.before_bytes += bytes;
	e->bytes += bytes;
	if (may_remove && is_stale(e, item))
		remove_extra(e, item);
	else
		e->has_bad |= item->kind == CAS_WALK_BAD;
	return 0;
}

/* Short of space, what is wrong goes before what is right, however young. */
static int sweep_bad(void *ctx, const struct cas_walk_item *item)
{
	struct cas_eviction *e = ctx;

	if (item->kind == CAS_WALK_BAD && e->bytes > e->opts->max_bytes)
		remove_extra(e, item);
	return 0;
}

static int list_blob(void *ctx, const struct cas_walk_item *item)
{
	struct cas_eviction *e = ctx;

	if (item->kind != CAS_WALK_ENTRY)
		return 0;
	e->result.before_bytes += disk_bytes(&item->st);
	e->bytes += disk_bytes(&item->st);
	e->blobs++;
	return cas_evict_keeps(e, item->hash, &item->st) ? 0 : add_candidate(e, item);
}

/* Temporaries only: what else there is (results, say) is not counted. */
static int sweep_tmp(void *ctx, const struct cas_walk_item *item)
{
	struct cas_eviction *e = ctx;

	if (item->kind == CAS_WALK_TMP || item->kind == CAS_WALK_BAD)
		return sweep_temporary(e, item, e->store->may_unlink);
	return 0;
}

static int count_variant(void *ctx, const struct cas_walk_item *item)
{
	struct cas_eviction *e = ctx;

	if (item->kind == CAS_WALK_TMP || item->kind == CAS_WALK_BAD)
		return sweep_temporary(e, item, true);
	if (item->kind == CAS_WALK_ENTRY && item->st.st_nlink == 1) {
		e->result.before_bytes += disk_bytes(&item->st);
		e->bytes += disk_bytes(&item->st);
	}
	return 0;
}

static int sweep_variant(void *ctx, const struct cas_walk_item *item)
{
	struct cas_eviction *e = ctx;

	if (item->kind == CAS_WALK_ENTRY && item->st.st_nlink == 1 && e->bytes > e->opts->max_bytes)
		remove_extra(e, item);
	return 0;
}

static int walk_links(struct cas_eviction *e, cas_walk_fn each)
{
	static const char *const tops[2] = {"links/0444", "links/0555"};
	int ret = 0;

	for (unsigned i = 0; i < 2 * CAS_LAYOUT_NR_SHARDS && ret == 0; i++) {
		int fd = e->store->link_fd[i % 2];

		if (fd >= 0)
			ret = cas_walk_shard(fd, tops[i % 2], i / 2, each, e, e->err);
	}
	return ret;
}

/* Temporaries and what was moved aside, where blobs and results are. */
static int walk_extras(struct cas_eviction *e, cas_walk_fn each)
{
	int ret = 0;

	for (unsigned i = 0; i < CAS_LAYOUT_NR_SHARDS && ret == 0; i++) {
		ret = cas_walk_extras(e->store->cas_fd, "cas", i, each, e, e->err);
		if (ret == 0 && e->store->ac_fd >= 0)
			ret = cas_walk_extras(e->store->ac_fd, "ac", i, each, e, e->err);
	}
	return ret;
}

/* Replaced files of STORE itself, and spilled puts, die with a name only by a crash. */
static int sweep_beside(struct cas_eviction *e)
{
	static const char *const places[] = {"run", "pins", "meta", "meta/index"};
	int ret = cas_walk_beside(e->store->dir_fd, "STORE", sweep_tmp, e, e->err);

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && ret == 0; i++) {
		auto_close int fd = openat(e->store->dir_fd, places[i],
					   O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

		if (fd >= 0)
			ret = cas_walk_beside(fd, places[i], sweep_tmp, e, e->err);
	}
	return ret;
}

int cas_evict_list(struct cas_eviction *e)
{
	int ret = 0;

	for (unsigned i = 0; i < CAS_LAYOUT_NR_SHARDS && ret == 0; i++)
		ret = cas_walk_shard(e->store->cas_fd, "cas", i, list_blob, e, e->err);
	return ret;
}

int cas_evict_count_extras(struct cas_eviction *e)
{
	int ret = 0;

	if (!e->opts->quick) {
		ret = walk_extras(e, sweep_tmp);
		if (ret == 0)
			ret = sweep_beside(e);
	}
	return ret == 0 ? walk_links(e, count_variant) : ret;
}

int cas_evict_sweep_extras(struct cas_eviction *e)
{
	int ret = 0;

	/* They share their bytes with blobs, which so come free. */
	if (!e->opts->dry_run)
		cas_checkout_drop_trees(e->store);
	if (e->has_bad)
		ret = walk_extras(e, sweep_bad);
	return ret == 0 ? walk_links(e, sweep_variant) : ret;
}

/* The catalog's last uses, as far as it has any, take the place of the files' times. */
static int learn_blobs(struct cas_eviction *e)
{
	const struct cas_catalog *cat = e->store->catalog;
	struct cas_victim page[PAGE];
	const struct cas_victim *after = NULL;
	int nr = PAGE;

	while (nr == PAGE) {
		nr = cat->ops->victims(cat->ctx, after, page, PAGE, e->err);
		for (int i = 0; i < nr; i++) {
			struct cas_candidate *c = NULL;

			if (e->by_hash)
				HASH_FIND(hh, e->by_hash, page[i].digest.hash, CAS_HASH_SZ, c);
			if (c)
				c->last_use_ns = page[i].last_use_ns;
		}
		if (nr > 0) {
			e->last = page[nr - 1];
			after = &e->last;
		}
	}
	return nr < 0 ? nr : 0;
}

static int by_use(const void *a, const void *b)
{
	const struct cas_candidate *x = a;
	const struct cas_candidate *y = b;

	if (x->last_use_ns != y->last_use_ns)
		return x->last_use_ns < y->last_use_ns ? -1 : 1;
	return cas_digest_compare(&x->digest, &y->digest);
}

int cas_evict_sort(struct cas_eviction *e)
{
	int ret;

	e->last.last_use_ns = INT64_MIN;
	for (size_t i = 0; i < e->nr; i++)
		HASH_ADD(hh, e->by_hash, digest.hash, CAS_HASH_SZ, &e->list[i]);
	ret = learn_blobs(e);
	if (ret == 0)
		ret = cas_evict_learn_trees(e);
	HASH_CLEAR(hh, e->by_hash);
	if (e->nr > 0)
		qsort(e->list, e->nr, sizeof(e->list[0]), by_use);
	return ret;
}
