/* cas/evict/evict.c - make room, never at the cost of what is needed */
#include "cas/evict/evict.h"

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
#include "cas/evict/evict_i.h"
#include "cas/landing/landing.h"
#include "cas/fsck/adopt_i.h"
#include "cas/spool/spool_i.h"
#include "cas/store/store_i.h"

/*
 * How much there is comes from the catalog's counts, and what was not used for longest from
 * its order, a page at a time: no blob that stays is looked at. Where the catalog is new,
 * unwritable or known to lack rows, the files are listed instead (evict_walk.c).
 *
 * What is needed is marked first, then the oldest that are not needed are chosen, so many
 * at a time that memory is bounded. Results that name a chosen blob go before any of them;
 * so a crash between leaves blobs too many, never a result too many.
 *
 * A root that is added while this runs counts as well: blobs go in small batches, during
 * which none can be added, and each batch begins by asking whether any was. If so it lets
 * go, marks, and asks again, so that nobody waits for a walk of trees.
 *
 * Bytes are blocks on disk, of blobs, temporaries and variants. A variant that some
 * checkout has linked costs and frees nothing here: its blocks belong to the checkout.
 * Clocks that jump do no more harm than a wrong order.
 */

#define PAGE	      1024  /* blobs asked of the catalog at once */
#define ROUND_MAX     65536 /* blobs chosen before the results are looked through */
#define EPOCH_NAME    "run/evicted"
#define EPOCH_WAIT_NS 500000000ULL
#define BATCH_BLOBS   64 /* removed while no root may be added */
#define CHANGED_MAX   8	 /* then roots are marked while none may be added */
#define PATIENCE_NS   60000000000ULL
/* Who keeps eviction out may in turn wait for the writer's lock, which our caller holds. */
#define BAR_PATIENCE_NS 5000000000ULL
#define NAP_FIRST_NS	2000000L
#define NAP_MAX_NS	500000000L
#define FUTURE_SEC	2 /* no file of now is so much later than now */
/* From here on the blocks are freed after the locks have been dropped. */
#define LARGE_BYTES (8u << 20)

/* Chosen for this round. */
struct round {
	struct cas_candidate *list;
	size_t nr;
	size_t cap;
	struct cas_marks doomed;
};

static void round_fini(struct round *r)
{
	free(r->list);
	cas_marks_fini(&r->doomed);
}

static bool fits(const struct cas_eviction *e)
{
	return e->bytes <= e->opts->max_bytes &&
	       (e->opts->max_blobs == 0 || e->blobs <= e->opts->max_blobs);
}

static int page_next(struct cas_eviction *e)
{
	const struct cas_catalog *cat = e->store->catalog;
	struct cas_victim last;
	int nr;

	if (e->page == NULL) {
		e->page = calloc(PAGE, sizeof(*e->page));
		if (e->page == NULL)
			return err_set(e->err, -ENOMEM, "cannot list the blobs: out of memory");
	} else if (e->page_nr < PAGE) {
		return 0;
	} else {
		last = e->page[PAGE - 1];
	}
	nr = cat->ops->victims(cat->ctx, e->page_nr ? &last : NULL, e->page, PAGE, e->err);
	if (nr < 0)
		return nr;
	e->page_nr = (size_t)nr;
	e->page_at = 0;
	return nr > 0;
}

/* The one that was not used for longest, of those not seen so far: 1, 0, negative. */
static int candidate_next(struct cas_eviction *e, struct cas_candidate *out)
{
	const struct cas_victim *v;
	int ret;

	if (!e->by_catalog) {
		if (e->at == e->nr)
			return 0;
		*out = e->list[e->at++];
		return 1;
	}
	if (e->page_at == e->page_nr) {
		ret = page_next(e);
		if (ret != 1)
			return ret;
	}
	v = &e->page[e->page_at++];
	*out = (struct cas_candidate){
		.digest = v->digest, .bytes = v->disk, .last_use_ns = v->last_use_ns};
	return 1;
}

static int round_add(struct cas_eviction *e, struct round *r, const struct cas_candidate *c)
{
	if (r->nr == r->cap) {
		size_t cap = r->cap ? 2 * r->cap : 1024;
		struct cas_candidate *list = reallocarray(r->list, cap, sizeof(*list));

		if (list == NULL)
			return err_set(e->err, -ENOMEM, "cannot choose blobs: out of memory");
		r->list = list;
		r->cap = cap;
	}
	if (cas_marks_add(&r->doomed, c->digest.hash) < 0)
		return err_set(e->err, -ENOMEM, "cannot choose blobs: out of memory");
	r->list[r->nr++] = *c;
	return 0;
}

/* Oldest first until the rest fits; nothing that is needed or on its way. */
static int choose(struct cas_eviction *e, struct round *r)
{
	uint64_t bytes = e->bytes;
	uint64_t blobs = e->blobs;
	struct cas_candidate c;
	uint64_t spooled;
	int ret = 0;

	while (ret == 0 && r->nr < ROUND_MAX &&
	       (bytes > e->opts->max_bytes || (e->opts->max_blobs && blobs > e->opts->max_blobs))) {
		ret = candidate_next(e, &c);
		if (ret != 1)
			break;
		ret = 0;
		if (cas_marks_has(&e->live, c.digest.hash)) {
			e->result.kept_live_bytes += c.bytes;
			continue;
		}
		if (cas_spool_size(e->store, c.digest.hash, &spooled) == 1)
			continue;
		ret = round_add(e, r, &c);
		bytes -= bytes < c.bytes ? bytes : c.bytes;
		blobs -= blobs > 0;
	}
	return ret;
}

/*
 * Blobs elsewhere: those of another owner, those that another host may just have put (it
 * drops its own copy trusting in this), and those whose put is not over.
 */
bool cas_evict_keeps(const struct cas_eviction *e, const uint8_t hash[CAS_HASH_SZ],
		     const struct stat *st)
{
	uint64_t size;

	if (!e->store->may_unlink)
		return true;
	if (e->store->owned && time(NULL) - st->st_mtim.tv_sec < CAS_OWNER_FLOOR_SEC)
		return true;
	return cas_spool_size(e->store, hash, &size) == 1;
}

/* From before the clock was set back: it was there when this began. Others' clocks tell nothing. */
static bool is_of_future(const struct cas_eviction *e, const struct stat *st)
{
	return e->store->blobs_path == NULL && st->st_ctim.tv_sec - FUTURE_SEC > time(NULL);
}

/* Is it still the file that was chosen? What came after the start is not, give or take a tick. */
static bool is_chosen(const struct cas_eviction *e, const struct cas_candidate *c,
		      const struct stat *st)
{
	if (c->ino != 0)
		return st->st_ino == c->ino;
	if (is_of_future(e, st))
		return true;
	return st->st_ctim.tv_sec < e->began.tv_sec ||
	       (st->st_ctim.tv_sec == e->began.tv_sec && st->st_ctim.tv_nsec <= e->began.tv_nsec);
}

static void forget(const struct cas_eviction *e, const struct cas_digest *d)
{
	cas_pending_drop(e->store, d);
	e->store->catalog->ops->blob_drop(e->store->catalog->ctx, d);
}

/* Shard lock held. 1 unlinked, with what it took in @st; 0 stays; -ENOENT not there. */
static int unlink_blob(struct cas_eviction *e, const struct cas_candidate *c, struct stat *st,
		       int *hold_fd)
{
	char path[CAS_LAYOUT_PATH_SZ];
	int fd = e->store->cas_fd;

	cas_layout_path(c->digest.hash, path);
	if (fstatat(fd, path, st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISREG(st->st_mode) || !is_chosen(e, c, st) || cas_evict_keeps(e, c->digest.hash, st))
		return 0;
	/* Network filesystems rename what somebody holds instead of removing it. */
	if (st->st_size >= LARGE_BYTES && e->store->blobs_path == NULL)
		*hold_fd = openat(fd, path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (unlinkat(fd, path, 0) < 0)
		return -errno;
	forget(e, &c->digest);
	return 1;
}

static void count_gone(struct cas_eviction *e, const struct cas_candidate *c)
{
	e->bytes -= e->bytes < c->bytes ? e->bytes : c->bytes;
	e->blobs -= e->blobs > 0;
}

static int evict_blob(struct cas_eviction *e, const struct cas_candidate *c, int *hold_fd)
{
	unsigned shard = cas_layout_shard(c->digest.hash);
	struct stat st = {.st_nlink = c->last_name || c->ino == 0 ? 1 : 2};
	int ret = 1;

	if (!e->opts->dry_run) {
		ret = cas_store_shard_lock(e->store, shard, true, false);
		if (ret == -EBUSY)
			return 0;
		if (ret == 0) {
			ret = unlink_blob(e, c, &st, hold_fd);
			if (ret == -ENOENT)
				forget(e, &c->digest);
			cas_store_shard_unlock(e->store, shard, true);
		}
	}
	if (ret < 0 && ret != -ENOENT)
		return err_set(e->err, ret, "cannot evict blob %s: %s", CAS_DIGEST_TEXT(&c->digest),
			       strerrordesc_np(-ret));
	if (ret != 0)
		count_gone(e, c);
	if (ret == 1) {
		e->result.freed_blobs++;
		e->result.freed_bytes += st.st_nlink == 1 ? c->bytes : 0;
	}
	return 0;
}

/* Chosen blobs from *@at on, a few; what came to be needed since they were chosen stays. */
static int evict_some(struct cas_eviction *e, const struct round *r, size_t *at,
		      int hold_fd[BATCH_BLOBS])
{
	int ret = 0;

	for (int nr = 0; nr < BATCH_BLOBS && *at < r->nr && ret == 0; ++*at) {
		const struct cas_candidate *c = &r->list[*at];

		if (cas_marks_has(&e->live, c->digest.hash))
			e->result.kept_live_bytes += c->bytes;
		else
			ret = evict_blob(e, c, &hold_fd[nr++]);
	}
	return ret;
}

static uint64_t read_epoch(struct cas_store *store)
{
	auto_close int fd = openat(store->dir_fd, EPOCH_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	uint64_t epoch = 0;

	/* A read-only store without one is a store from which nothing was evicted. */
	if (fd < 0 || io_pread_full(fd, &epoch, sizeof(epoch), 0) != sizeof(epoch))
		return 0;
	return epoch;
}

/* Never in the midst of a batch, which is counted already and has not removed everything. */
uint64_t cas_evict_epoch(struct cas_store *store)
{
	bool locked = store->lock_fd >= 0 && !store->barred;
	uint64_t epoch;

	if (locked && cas_store_lease_share(store, EPOCH_WAIT_NS) < 0)
		return UINT64_MAX - lock_now_ns(); /* never twice */
	epoch = read_epoch(store);
	if (locked)
		cas_evict_unbar(store);
	return epoch;
}

/* Before the first blob of a batch goes: who looks afterwards whether any did must see it. */
static int count_epoch(struct cas_eviction *e)
{
	uint64_t epoch = read_epoch(e->store) + 1;
	auto_close int fd = -1;
	int ret;

	if (e->opts->dry_run)
		return 0;
	/* Eight bytes in place: on a full disk there is nothing to spare. */
	fd = openat(e->store->dir_fd, EPOCH_NAME, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
		    0600);
	ret = fd < 0 ? -errno : cas_store_dress(e->store, fd, 0600);
	if (ret == 0)
		ret = io_pwrite_full(fd, &epoch, sizeof(epoch), 0);
	if (ret == -ENOSPC || ret == -EDQUOT) {
		if (!e->told_full)
			log_warn("evicting without telling who stores a tree now: the disk is "
				 "full");
		e->told_full = true;
		ret = 0;
	}
	return ret < 0 ? err_set(e->err, ret, "cannot write %s/%s: %s", e->store->path, EPOCH_NAME,
				 strerrordesc_np(-ret))
		       : 0;
}

static void leave(struct cas_eviction *e, const struct cas_evict_roots *roots)
{
	if (roots && roots->freeze)
		roots->thaw(roots->ctx);
	if (!e->opts->dry_run)
		cas_evict_unbar(e->store);
}

/* One attempt: 0 with *changed, or -EBUSY, or another errno; nothing is held then. */
static int try_enter(struct cas_eviction *e, const struct cas_evict_roots *roots, bool *changed,
		     bool *barred)
{
	int ret = e->opts->dry_run ? 0 : cas_store_lease_block(e->store);

	*barred = ret == -EBUSY;
	if (ret < 0 || roots == NULL || roots->freeze == NULL)
		return ret;
	ret = roots->freeze(roots->ctx, changed);
	if (ret < 0 && !e->opts->dry_run)
		cas_evict_unbar(e->store);
	return ret;
}

/*
 * Held: count the batch, then look at uses. Whoever records one and finds the count
 * unchanged afterwards is seen here. 1 when trees were used, which are then in *trees.
 */
static int look_at_uses(struct cas_eviction *e, struct cas_victim **trees)
{
	int ret = count_epoch(e);

	if (ret == 0 && !e->opts->dry_run)
		ret = cas_evict_spare_blobs(e);
	return ret == 0 && !e->opts->dry_run ? cas_evict_fresh_trees(e, trees) : ret;
}

/* What came to be needed, by a root that was added or a tree that was used. */
static int mark_more(struct cas_eviction *e, const struct cas_evict_roots *roots, bool changed,
		     const struct cas_victim *trees, int nr_trees)
{
	int ret = changed ? cas_evict_mark(e->store, roots, &e->live, e->err) : 0;

	return ret == 0 ? cas_evict_mark_trees(e, trees, nr_trees) : ret;
}

/* Entered. 0: and nothing is new. 1: not any more, or (@last) still; marked meanwhile. */
static int settle(struct cas_eviction *e, const struct cas_evict_roots *roots, bool changed,
		  bool last)
{
	auto_free struct cas_victim *trees = NULL;
	int nr = look_at_uses(e, &trees);
	int ret;

	if (nr == 0 && !changed)
		return 0;
	if (nr < 0 || !last)
		leave(e, roots);
	if (nr < 0)
		return nr;
	ret = mark_more(e, roots, changed, trees, nr);
	if (ret < 0 && last)
		leave(e, roots);
	return ret < 0 ? ret : 1;
}

/*
 * From here to leave no root is added and nobody relies on what he found. All roots so far
 * are marked. -EBUSY: somebody was in the way for too long.
 */
static int enter(struct cas_eviction *e, const struct cas_evict_roots *roots)
{
	unsigned long long end = lock_now_ns() + PATIENCE_NS;
	unsigned long long bar_end = lock_now_ns() + BAR_PATIENCE_NS;
	struct timespec nap = {.tv_nsec = NAP_FIRST_NS};
	int nr_changed = 0;

	for (;;) {
		bool changed = false;
		bool barred = false;
		int ret = try_enter(e, roots, &changed, &barred);

		if (ret == 0) {
			bool last = ++nr_changed > CHANGED_MAX;

			ret = settle(e, roots, changed, last);
			if (ret <= 0 || last)
				return ret < 0 ? ret : 0;
			continue;
		}
		if (ret != -EBUSY || lock_now_ns() >= (barred ? bar_end : end))
			return ret;
		(void)nanosleep(&nap, NULL);
		if (nap.tv_nsec < NAP_MAX_NS)
			nap.tv_nsec *= 2;
	}
}

/* Freeing the blocks of large files takes long: nobody waits for it. */
static void release_large(int hold_fd[BATCH_BLOBS])
{
	for (int i = 0; i < BATCH_BLOBS; i++) {
		if (hold_fd[i] >= 0)
			(void)close(hold_fd[i]);
	}
}

static int evict_batch(struct cas_eviction *e, const struct cas_evict_roots *roots,
		       const struct round *r, size_t *at)
{
	int hold_fd[BATCH_BLOBS];
	int ret = enter(e, roots);

	if (ret == -EBUSY) {
		log_warn("evicting ends early: somebody who stores a tree keeps it off");
		e->ended = true;
		*at = r->nr;
		return 0;
	}
	if (ret < 0)
		return err_context(e->err, ret, "cannot evict from %s", e->store->path);
	for (int i = 0; i < BATCH_BLOBS; i++)
		hold_fd[i] = -1;
	ret = evict_some(e, r, at, hold_fd);
	leave(e, roots);
	release_large(hold_fd);
	return ret;
}

static int evict_round(struct cas_eviction *e, const struct cas_evict_roots *roots,
		       const struct round *r)
{
	const struct timespec gap = {.tv_nsec = NAP_FIRST_NS};
	size_t at = 0;
	int ret = cas_evict_actions(e->store, &r->doomed, e->opts->dry_run, e->err);

	while (ret == 0 && at < r->nr) {
		ret = evict_batch(e, roots, r, &at);
		/* Who wants to keep this off for a moment polls. */
		if (!e->opts->dry_run)
			(void)nanosleep(&gap, NULL);
	}
	return ret;
}

static int evict_blobs(struct cas_eviction *e, const struct cas_evict_roots *roots)
{
	bool more = true;
	int ret = cas_evict_mark(e->store, roots, &e->live, e->err);

	if (ret == 0)
		ret = e->by_catalog ? cas_evict_learn_trees(e) : cas_evict_sort(e);
	while (ret == 0 && more && !e->ended && !fits(e)) {
		auto_call(round_fini) struct round r = {0};

		ret = choose(e, &r);
		more = r.nr > 0;
		if (ret == 0 && more)
			ret = evict_round(e, roots, &r);
	}
	return ret;
}

/* Rows are hints: a full disk that takes none is no reason to free nothing. */
static int flush_rows(struct cas_eviction *e, const char *otherwise)
{
	const struct cas_catalog *cat = e->store->catalog;
	struct err lost = {0};
	int ret = cat->ops->flush(cat->ctx, &lost);

	if (ret < 0)
		log_warn("%s: %s", otherwise, err_text(&lost, ret));
	return ret;
}

/* How much there is: in the catalog's words, or by listing all of it. */
static int count_blobs(struct cas_eviction *e)
{
	const struct cas_catalog *cat = e->store->catalog;
	struct cas_usage usage;
	int ret = flush_rows(e, "evicting without the latest uses");

	ret = ret < 0 ? 0 : cat->ops->usage(cat->ctx, &usage);
	e->by_catalog = ret == 1;
	if (!e->by_catalog)
		return cas_evict_list(e);
	e->bytes = e->result.before_bytes = usage.disk;
	e->blobs = usage.blobs;
	e->last.last_use_ns = usage.latest_ns;
	memset(e->last.digest.hash, 0xff, CAS_HASH_SZ);
	return 0;
}

static int run(struct cas_eviction *e, const struct cas_evict_roots *roots)
{
	auto_close int lock_fd = -1;
	struct err why = {0};
	int ret;

	if (cas_landing_settle(e->store, &why) < 0)
		log_warn("evicting without what has landed: %s", why.msg);
	ret = cas_store_sync(e->store, e->err);
	/* Temporaries there go, too, so it comes before everything. */
	if (ret == 0 && !e->opts->dry_run)
		ret = cas_adopt_lock(e->store, &lock_fd, e->err);
	if (ret == 0)
		ret = count_blobs(e);
	if (ret == 0)
		ret = cas_evict_count_extras(e);
	if (ret == 0 && !fits(e))
		ret = cas_evict_sweep_extras(e);
	if (ret == 0 && !fits(e))
		ret = evict_blobs(e, roots);
	return ret;
}

int cas_evict(struct cas_store *store, const struct cas_evict_options *opts,
	      const struct cas_evict_roots *roots, struct cas_evict_result *out, struct err *err)
{
	struct cas_eviction e = {.store = store, .opts = opts, .err = err, .now = time(NULL)};
	int ret;

	if (store->read_only && !opts->dry_run)
		return err_set(err, -EROFS, "cannot evict from store %s: it is read-only",
			       store->path);
	(void)clock_gettime(CLOCK_REALTIME, &e.began);
	ret = run(&e, roots);
	free(e.list);
	free(e.page);
	cas_marks_fini(&e.live);
	if (ret < 0)
		return ret;
	/* Whoever is told what went finds it counted. */
	if (e.result.freed_blobs > 0 && !opts->dry_run)
		(void)flush_rows(&e, "evicted, but not recorded yet");
	e.result.after_bytes = e.bytes;
	e.result.after_blobs = e.blobs;
	*out = e.result;
	return 0;
}
