/* cas/evict.c - make room, never at the cost of what is needed */
#include "cas/evict.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/evict_i.h"
#include "cas/spool_i.h"
#include "cas/store_i.h"

/*
 * One run: what is needed is marked first (a blob published meanwhile is young and comes
 * last anyway), then everything on disk is listed, put in order of last use, and the
 * oldest that are not needed are chosen until the rest fits. Results that name a chosen
 * blob go before any of the blobs; so a crash between leaves blobs too many, never a
 * result too many.
 *
 * Bytes are blocks on disk, of blobs, temporaries and variants. A variant that some
 * checkout has linked costs and frees nothing here: its blocks belong to the checkout.
 *
 * A root that is added while this runs counts as well: its blobs may be chosen already, so
 * the roots are looked at again before each batch of removals when there are new ones.
 *
 * The ledger knows last uses; a file that it does not know is adopted with its mtime,
 * which is when it came. Clocks that jump do no more harm than a wrong order.
 */

#define TMP_AGE_SEC  86400
#define BAD_AGE_SEC  (2 * 86400)
#define BATCH	     1024
#define EPOCH_NAME   "run/evicted"
#define FREEZE_BLOBS 64 /* removed between a freeze and a thaw */

struct candidate {
	struct cas_digest digest;
	ino_t ino;
	uint64_t bytes;
	bool last_name; /* no other name keeps the blocks */
	bool chosen;
	int64_t last_use_ns;
	UT_hash_handle hh;
};

struct eviction {
	struct cas_store *store;
	const struct cas_evict_options *opts;
	struct cas_evict_result result;
	struct err *err;
	time_t now;
	uint64_t bytes; /* on disk as of now */
	bool has_bad;
	bool told_full; /* that the epoch could not be counted */
	struct cas_marks live;
	struct cas_victim last; /* in order of use, of all that was looked at */
	int64_t last_tree_ns;	/* the same for trees */
	int64_t tree_ns;	/* of the tree that is being spread */
	struct candidate *list;
	size_t nr;
	size_t cap;
	struct candidate *by_hash; /* uthash over list, once that is complete */
};

static uint64_t disk_bytes(const struct stat *st)
{
	return (uint64_t)st->st_blocks * 512;
}

static int add_candidate(struct eviction *e, const struct cas_walk_item *item)
{
	struct candidate *c;

	if (e->nr == e->cap) {
		size_t cap = e->cap ? 2 * e->cap : 1024;
		struct candidate *list = reallocarray(e->list, cap, sizeof(*list));

		if (list == NULL)
			return err_set(e->err, -ENOMEM, "cannot list the blobs: out of memory");
		e->list = list;
		e->cap = cap;
	}
	c = &e->list[e->nr++];
	*c = (struct candidate){
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

static bool is_stale(const struct eviction *e, const struct cas_walk_item *item)
{
	/* A quarantined file keeps the mtime of its better days; ctime is the rename. */
	if (item->kind == CAS_WALK_BAD)
		return e->now - item->st.st_ctim.tv_sec > BAD_AGE_SEC;
	return S_ISREG(item->st.st_mode) && e->now - item->st.st_mtim.tv_sec > TMP_AGE_SEC &&
	       !is_locked(item);
}

static uint64_t last_name_bytes(const struct cas_walk_item *item)
{
	return S_ISREG(item->st.st_mode) && item->st.st_nlink == 1 ? disk_bytes(&item->st) : 0;
}

/* A temporary, quarantined or variant name goes; a failure is only told. */
static void remove_extra(struct eviction *e, const struct cas_walk_item *item)
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
static int sweep_temporary(struct eviction *e, const struct cas_walk_item *item, bool may_remove)
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
	struct eviction *e = ctx;

	if (item->kind == CAS_WALK_BAD && e->bytes > e->opts->max_bytes)
		remove_extra(e, item);
	return 0;
}

/*
 * Blobs elsewhere: those of another owner, those that another host may just have put (it
 * drops its own copy trusting in this), and those whose put is not over.
 */
static bool is_kept(const struct eviction *e, const uint8_t hash[CAS_HASH_SZ],
		    const struct stat *st)
{
	uint64_t size;

	if (!e->store->may_unlink)
		return true;
	if (e->store->owned && time(NULL) - st->st_mtim.tv_sec < CAS_OWNER_FLOOR_SEC)
		return true;
	return cas_spool_size(e->store, hash, &size) == 1;
}

static int collect(void *ctx, const struct cas_walk_item *item)
{
	struct eviction *e = ctx;

	if (item->kind == CAS_WALK_TMP || item->kind == CAS_WALK_BAD)
		return sweep_temporary(e, item, e->store->may_unlink);
	if (item->kind != CAS_WALK_ENTRY)
		return 0;
	e->result.before_bytes += disk_bytes(&item->st);
	e->bytes += disk_bytes(&item->st);
	return is_kept(e, item->hash, &item->st) ? 0 : add_candidate(e, item);
}

/* Temporaries only: what else there is (results, say) is not counted. */
static int sweep_tmp(void *ctx, const struct cas_walk_item *item)
{
	struct eviction *e = ctx;

	if (item->kind == CAS_WALK_TMP || item->kind == CAS_WALK_BAD)
		return sweep_temporary(e, item, e->store->may_unlink);
	return 0;
}

static int count_variant(void *ctx, const struct cas_walk_item *item)
{
	struct eviction *e = ctx;

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
	struct eviction *e = ctx;

	if (item->kind == CAS_WALK_ENTRY && item->st.st_nlink == 1 && e->bytes > e->opts->max_bytes)
		remove_extra(e, item);
	return 0;
}

static int walk_links(struct eviction *e, cas_walk_fn each)
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

static int walk_blobs(struct eviction *e, cas_walk_fn each, cas_walk_fn each_action)
{
	int ret = 0;

	for (unsigned i = 0; i < CAS_LAYOUT_NR_SHARDS && ret == 0; i++) {
		ret = cas_walk_shard(e->store->cas_fd, "cas", i, each, e, e->err);
		if (ret == 0 && e->store->ac_fd >= 0)
			ret = cas_walk_shard(e->store->ac_fd, "ac", i, each_action, e, e->err);
	}
	return ret;
}

static int list_all(struct eviction *e)
{
	int ret = walk_blobs(e, collect, sweep_tmp);

	return ret == 0 ? walk_links(e, count_variant) : ret;
}

/* Replaced files of STORE itself, and spilled puts, die with a name only by a crash. */
static int sweep_beside(struct eviction *e)
{
	auto_close int run_fd = openat(e->store->dir_fd, "run", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int ret = cas_walk_beside(e->store->dir_fd, "STORE", sweep_tmp, e, e->err);

	if (ret == 0 && run_fd >= 0)
		ret = cas_walk_beside(run_fd, "run", sweep_tmp, e, e->err);
	return ret;
}

/* What is nobody's only copy of anything. */
static int sweep_extras(struct eviction *e)
{
	int ret = 0;

	if (e->has_bad)
		ret = walk_blobs(e, sweep_bad, sweep_bad);
	if (ret == 0)
		ret = sweep_beside(e);
	return ret == 0 ? walk_links(e, sweep_variant) : ret;
}

static struct candidate *find_candidate(struct eviction *e, const uint8_t hash[CAS_HASH_SZ])
{
	struct candidate *c = NULL;

	if (e->by_hash)
		HASH_FIND(hh, e->by_hash, hash, CAS_HASH_SZ, c);
	return c;
}

/* The ledger's last uses take the place of the files' times. */
static int learn_blobs(struct eviction *e)
{
	const struct cas_catalog *cat = e->store->catalog;
	struct cas_victim batch[BATCH];
	const struct cas_victim *after = NULL;
	int nr = BATCH;

	while (nr == BATCH) {
		nr = cat->ops->victims(cat->ctx, after, batch, BATCH, e->err);
		for (int i = 0; i < nr; i++) {
			struct candidate *c = find_candidate(e, batch[i].digest.hash);

			if (c)
				c->last_use_ns = batch[i].last_use_ns;
		}
		if (nr > 0) {
			e->last = batch[nr - 1];
			after = &e->last;
		}
	}
	return nr < 0 ? nr : 0;
}

static void raise_use(void *ctx, const uint8_t hash[CAS_HASH_SZ])
{
	struct eviction *e = ctx;
	struct candidate *c = find_candidate(e, hash);

	if (c && c->last_use_ns < e->tree_ns)
		c->last_use_ns = e->tree_ns;
}

/* A tree's use is one of all that is in it. The latest come first, so each blob counts once. */
static int learn_trees(struct eviction *e, const struct cas_victim *trees, int nr)
{
	struct cas_marks seen = {.fresh = raise_use, .ctx = e};
	int ret = 0;

	for (int i = 0; i < nr && ret == 0; i++) {
		e->tree_ns = trees[i].last_use_ns;
		ret = cas_marks_add_tree(&seen, e->store, &trees[i].digest, false, e->err);
	}
	cas_marks_fini(&seen);
	return ret;
}

/* Trees used since this was asked before; negative, or how many. Free *out. */
static int fresh_trees(struct eviction *e, struct cas_victim **out)
{
	const struct cas_catalog *cat = e->store->catalog;
	struct cas_victim *trees = calloc(CAS_TREES_MAX, sizeof(*trees));
	int nr;

	if (trees == NULL)
		return err_set(e->err, -ENOMEM, "cannot list the trees: out of memory");
	nr = cat->ops->trees(cat->ctx, e->last_tree_ns, trees, CAS_TREES_MAX, e->err);
	if (nr <= 0) {
		free(trees);
		return nr;
	}
	e->last_tree_ns = trees[0].last_use_ns;
	*out = trees;
	return nr;
}

static int learn_uses(struct eviction *e)
{
	auto_free struct cas_victim *trees = NULL;
	int nr, ret;

	e->last_tree_ns = INT64_MIN;
	e->last.last_use_ns = INT64_MIN;
	for (size_t i = 0; i < e->nr; i++)
		HASH_ADD(hh, e->by_hash, digest.hash, CAS_HASH_SZ, &e->list[i]);
	ret = learn_blobs(e);
	nr = ret == 0 ? fresh_trees(e, &trees) : ret;
	if (nr > 0)
		ret = learn_trees(e, trees, nr);
	HASH_CLEAR(hh, e->by_hash);
	return nr < 0 ? nr : ret;
}

/* What was used since the victims were chosen stays: somebody may have found it there. */
static int spare_used(struct eviction *e)
{
	const struct cas_catalog *cat = e->store->catalog;
	auto_free struct cas_victim *trees = NULL;
	struct cas_victim batch[BATCH];
	int nr = BATCH;
	int ret = 0;

	while (nr == BATCH && ret == 0) {
		nr = cat->ops->victims(cat->ctx, &e->last, batch, BATCH, e->err);
		for (int i = 0; i < nr && ret == 0; i++)
			ret = cas_marks_add(&e->live, batch[i].digest.hash);
		if (nr > 0)
			e->last = batch[nr - 1];
	}
	if (ret < 0)
		return err_set(e->err, ret, "cannot remember what is used: out of memory");
	if (nr < 0)
		return nr;
	nr = fresh_trees(e, &trees);
	for (int i = 0; i < nr && ret == 0; i++)
		ret = cas_marks_add_tree(&e->live, e->store, &trees[i].digest, false, e->err);
	return nr < 0 ? nr : ret;
}

static int by_use(const void *a, const void *b)
{
	const struct candidate *x = a;
	const struct candidate *y = b;

	if (x->last_use_ns != y->last_use_ns)
		return x->last_use_ns < y->last_use_ns ? -1 : 1;
	return cas_digest_compare(&x->digest, &y->digest);
}

/* Oldest first until the rest fits; nothing that is needed. */
static int choose(struct eviction *e, struct cas_marks *doomed)
{
	uint64_t bytes = e->bytes;

	if (e->nr > 0)
		qsort(e->list, e->nr, sizeof(e->list[0]), by_use);
	for (size_t i = 0; i < e->nr; i++) {
		struct candidate *c = &e->list[i];

		if (cas_marks_has(&e->live, c->digest.hash)) {
			e->result.kept_live_bytes += c->bytes;
			continue;
		}
		if (bytes <= e->opts->max_bytes)
			continue;
		if (cas_marks_add(doomed, c->digest.hash) < 0)
			return err_set(e->err, -ENOMEM, "cannot choose blobs: out of memory");
		c->chosen = true;
		bytes -= c->bytes;
	}
	return 0;
}

/* Shard lock held. 1 unlinked, 0 not there or another file by now. */
static int unlink_blob(struct eviction *e, const struct candidate *c)
{
	char path[CAS_LAYOUT_PATH_SZ];
	struct stat st;

	cas_layout_path(c->digest.hash, path);
	if (fstatat(e->store->cas_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (st.st_ino != c->ino || is_kept(e, c->digest.hash, &st))
		return 0;
	if (unlinkat(e->store->cas_fd, path, 0) < 0)
		return errno == ENOENT ? 0 : -errno;
	cas_pending_drop(e->store, &c->digest);
	e->store->catalog->ops->blob_drop(e->store->catalog->ctx, &c->digest);
	return 1;
}

static int evict_blob(struct eviction *e, const struct candidate *c)
{
	unsigned shard = cas_layout_shard(c->digest.hash);
	int ret = 1;

	if (!e->opts->dry_run) {
		ret = cas_store_shard_lock(e->store, shard, true, false);
		if (ret == -EBUSY)
			return 0;
		if (ret == 0) {
			ret = unlink_blob(e, c);
			cas_store_shard_unlock(e->store, shard, true);
		}
	}
	if (ret < 0)
		return err_set(e->err, ret, "cannot evict blob %s: %s", CAS_DIGEST_TEXT(&c->digest),
			       strerrordesc_np(-ret));
	if (ret == 1) {
		e->bytes -= c->bytes;
		e->result.freed_blobs++;
		e->result.freed_bytes += c->last_name ? c->bytes : 0;
	}
	return 0;
}

/* Chosen blobs from *@at on, a few; what came to be needed since they were chosen stays. */
static int evict_some(struct eviction *e, size_t *at)
{
	int ret = 0;

	for (int nr = 0; nr < FREEZE_BLOBS && *at < e->nr && ret == 0; ++*at) {
		const struct candidate *c = &e->list[*at];

		if (!c->chosen)
			continue;
		nr++;
		if (cas_marks_has(&e->live, c->digest.hash))
			e->result.kept_live_bytes += c->bytes;
		else
			ret = evict_blob(e, c);
	}
	return ret;
}

uint64_t cas_evict_epoch(struct cas_store *store)
{
	auto_close int fd = openat(store->dir_fd, EPOCH_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	uint64_t epoch = 0;

	/* A read-only store without one is a store from which nothing was evicted. */
	if (fd < 0 || io_pread_full(fd, &epoch, sizeof(epoch), 0) != sizeof(epoch))
		return 0;
	return epoch;
}

/* Before the first blob goes: who looks afterwards whether any did must see it. */
static int count_epoch(struct eviction *e)
{
	uint64_t epoch = cas_evict_epoch(e->store) + 1;
	auto_close int fd = -1;
	int ret;

	if (e->opts->dry_run)
		return 0;
	/* Eight bytes in place: on a full disk there is nothing to spare. */
	fd = openat(e->store->dir_fd, EPOCH_NAME, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
		    0600);
	ret = fd < 0 ? -errno : io_pwrite_full(fd, &epoch, sizeof(epoch), 0);
	if (ret == -ENOSPC || ret == -EDQUOT) {
		if (!e->told_full)
			log_warn(
				"evicting without telling who stores a tree now: the disk is full");
		e->told_full = true;
		ret = 0;
	}
	return ret < 0 ? err_set(e->err, ret, "cannot write %s/%s: %s", e->store->path, EPOCH_NAME,
				 strerrordesc_np(-ret))
		       : 0;
}

/*
 * As evict_some, with nobody adding a root meanwhile. Uses are looked at after the epoch
 * is counted: whoever records one and finds the epoch unchanged afterwards is seen here.
 */
static int evict_frozen(struct eviction *e, const struct cas_evict_roots *roots, size_t *at)
{
	int ret = count_epoch(e);

	if (ret == 0 && !e->opts->dry_run)
		ret = spare_used(e);
	if (ret < 0)
		return ret;
	if (roots == NULL || roots->freeze == NULL)
		return evict_some(e, at);
	/* Directories that were walked before are not walked again. */
	if (roots->freeze(roots->ctx))
		ret = cas_evict_mark(e->store, roots, &e->live, e->err);
	if (ret == 0)
		ret = evict_some(e, at);
	roots->thaw(roots->ctx);
	return ret;
}

static int evict_batch(struct eviction *e, const struct cas_evict_roots *roots, size_t *at)
{
	int ret = e->opts->dry_run ? 0 : cas_store_lease_block(e->store);

	if (ret == -EBUSY) {
		log_warn("gc ends early: somebody who stores a tree keeps it from evicting");
		*at = e->nr;
		return 0;
	}
	if (ret < 0)
		return err_set(e->err, ret, "cannot lock %s/lock: %s", e->store->path,
			       strerrordesc_np(-ret));
	ret = evict_frozen(e, roots, at);
	if (!e->opts->dry_run)
		cas_evict_unbar(e->store);
	return ret;
}

static int evict_chosen(struct eviction *e, const struct cas_evict_roots *roots)
{
	struct cas_marks doomed = {0};
	size_t at = 0;
	int ret = choose(e, &doomed);

	if (ret == 0 && doomed.nr > 0)
		ret = cas_evict_actions(e->store, &doomed, e->opts->dry_run, e->err);
	while (ret == 0 && doomed.nr > 0 && at < e->nr)
		ret = evict_batch(e, roots, &at);
	cas_marks_fini(&doomed);
	return ret;
}

static int run(struct eviction *e, const struct cas_evict_roots *roots)
{
	const struct cas_catalog *cat = e->store->catalog;
	struct err lost = {0};
	int ret = cas_store_sync(e->store, e->err);

	if (ret < 0)
		return ret;
	/* Rows are hints: a full disk that takes none is no reason to free nothing. */
	ret = cat->ops->flush(cat->ctx, &lost);
	if (ret < 0)
		log_warn("evicting without the latest uses: %s", err_text(&lost, ret));
	ret = cas_evict_mark(e->store, roots, &e->live, e->err);
	if (ret == 0)
		ret = list_all(e);
	if (ret == 0)
		ret = sweep_extras(e);
	if (ret == 0)
		ret = learn_uses(e);
	return ret == 0 ? evict_chosen(e, roots) : ret;
}

int cas_evict(struct cas_store *store, const struct cas_evict_options *opts,
	      const struct cas_evict_roots *roots, struct cas_evict_result *out, struct err *err)
{
	struct eviction e = {.store = store, .opts = opts, .err = err, .now = time(NULL)};
	int ret;

	if (store->read_only && !opts->dry_run)
		return err_set(err, -EROFS, "cannot evict from store %s: it is read-only",
			       store->path);
	ret = run(&e, roots);
	free(e.list);
	cas_marks_fini(&e.live);
	if (ret < 0)
		return ret;
	e.result.after_bytes = e.bytes;
	*out = e.result;
	return 0;
}
