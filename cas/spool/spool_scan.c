/* cas/spool/spool_scan.c - what is in the spool on disk */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/spool/spool_i.h"
#include "cas/store/store_i.h"

#define TMP_AGE_SEC 3600
#define TICK_NS	    200000000ULL
#define FULL_TICKS  150 /* a whole look every 30 s even if nobody woke us */

struct scan {
	struct cas_spool *s;
	bool leftover;
};

struct count {
	struct cas_spool_usage sum;
	uint64_t entries;
	int64_t now_ns;
};

static int64_t to_ns(const struct timespec *ts)
{
	return (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec;
}

static int64_t now_ns(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return to_ns(&now);
}

static int count_one(void *ctx, const struct cas_walk_item *item)
{
	struct count *count = ctx;
	int64_t age = count->now_ns - to_ns(&item->st.st_mtim);

	if (item->kind == CAS_WALK_BAD) {
		count->sum.damaged++;
		count->sum.damaged_bytes += (uint64_t)item->st.st_size;
	}
	if (item->kind != CAS_WALK_ENTRY)
		return 0;
	count->entries++;
	count->sum.bytes += (uint64_t)item->st.st_size;
	/* The clock may have been set back. */
	if (age < 1)
		age = 1;
	if ((uint64_t)age > count->sum.oldest_ns)
		count->sum.oldest_ns = (uint64_t)age;
	return 0;
}

/* Its mtime is of its better days; ctime is when it was moved aside. */
static void sweep_bad(const struct cas_walk_item *item)
{
	if (time(NULL) - item->st.st_ctim.tv_sec > CAS_BAD_AGE_SEC)
		(void)io_remove_tree(item->shard_fd, item->name, NULL);
}

/* Unnamed files leave nothing; a named one whose maker died holds no lock any more. */
static void sweep_tmp(const struct cas_walk_item *item)
{
	struct flock fl = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	auto_close int fd = -1;

	if (!S_ISREG(item->st.st_mode) || time(NULL) - item->st.st_mtim.tv_sec < TMP_AGE_SEC)
		return;
	fd = openat(item->shard_fd, item->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0 && fcntl(fd, F_OFD_GETLK, &fl) == 0 && fl.l_type != F_UNLCK)
		return;
	(void)unlinkat(item->shard_fd, item->name, 0);
}

static int take_one(void *ctx, const struct cas_walk_item *item)
{
	struct scan *scan = ctx;
	struct cas_spool *s = scan->s;
	struct cas_digest d = {.size = (uint64_t)item->st.st_size};
	struct cas_spool_entry *e;

	if (item->kind == CAS_WALK_TMP)
		sweep_tmp(item);
	if (item->kind == CAS_WALK_BAD)
		sweep_bad(item);
	if (item->kind != CAS_WALK_ENTRY)
		return 0;
	memcpy(d.hash, item->hash, CAS_HASH_SZ);
	lock_take(&s->lock);
	e = cas_spool_find_locked(s, d.hash);
	if (e == NULL) {
		e = cas_spool_add_locked(s, &d);
		if (e)
			e->leftover = scan->leftover;
	}
	if (e)
		e->seen = true;
	lock_drop(&s->lock);
	return 0;
}

/* Passive: what another process has moved leaves the table. */
static void forget_unseen(struct cas_spool *s) REQUIRES(s->lock)
{
	struct cas_spool_entry *e;
	struct cas_spool_entry *tmp;

	s->ready = NULL;
	s->ready_tail = &s->ready;
	HASH_ITER (hh, s->table, e, tmp) {
		if (e->state == CAS_SPOOL_READY && !e->seen) {
			HASH_DEL(s->table, e);
			s->bytes -= e->digest.size;
			free(e);
		} else if (e->state == CAS_SPOOL_READY) {
			e->next = NULL;
			*s->ready_tail = e;
			s->ready_tail = &e->next;
		}
	}
	cas_spool_results_forget_locked(s);
	(void)pthread_cond_broadcast(&s->room);
}

/* --- results --- */

static int note_result(void *ctx, const struct cas_walk_item *item)
{
	struct buf *names = ctx;

	if (item->kind == CAS_WALK_TMP)
		sweep_tmp(item);
	if (item->kind == CAS_WALK_BAD)
		sweep_bad(item);
	return item->kind == CAS_WALK_ENTRY ? buf_append(names, item->hash, CAS_HASH_SZ) : 0;
}

static int walk_results(int spool_fd, cas_walk_fn each, void *ctx, struct err *err)
{
	auto_close int fd = cas_spool_results_open(spool_fd);
	int ret = 0;

	for (unsigned i = 0; i < CAS_LAYOUT_NR_SHARDS && ret == 0 && fd >= 0; i++)
		ret = cas_walk_shard(fd, "spool/results", i, each, ctx, err);
	return ret;
}

static void add_results(struct cas_spool *s, const struct buf *names) REQUIRES(s->lock)
{
	for (size_t at = 0; at < names->len; at += CAS_HASH_SZ)
		(void)cas_spool_result_add_locked(s, (const uint8_t *)names->data + at);
	if (names->len > 0 && !s->passive)
		cas_spool_call_mover_locked(s);
}

/* Begin a scan; false when another thread is at it. */
static bool unsee(struct cas_spool *s)
{
	bool begun;

	lock_take(&s->lock);
	begun = !s->scanning;
	s->scanning = true;
	for (struct cas_spool_entry *e = s->table; e && begun; e = e->hh.next)
		e->seen = false;
	for (struct cas_spool_result *r = s->results; r && begun; r = r->hh.next)
		r->seen = false;
	lock_drop(&s->lock);
	return begun;
}

static int walk(int spool_fd, cas_walk_fn each, void *ctx, struct err *err)
{
	int ret = 0;

	for (unsigned i = 0; i < CAS_LAYOUT_NR_SHARDS && ret == 0; i++)
		ret = cas_walk_shard(spool_fd, "spool", i, each, ctx, err);
	return ret;
}

int cas_spool_scan(struct cas_spool *s, bool leftover, struct err *err)
{
	struct scan scan = {.s = s, .leftover = leftover};
	auto_buf struct buf results = {0};
	int ret;

	if (!unsee(s))
		return 0;
	/* Results first: the blobs that came before them are then seen, too. */
	ret = walk_results(s->store->spool_fd, note_result, &results, err);
	if (ret == 0)
		ret = walk(s->store->spool_fd, take_one, &scan, err);
	lock_take(&s->lock);
	s->scanning = false;
	add_results(s, &results);
	if (ret == 0 && s->passive)
		forget_unseen(s);
	lock_drop(&s->lock);
	return ret;
}

int cas_spool_usage(struct cas_store *store, struct cas_spool_usage *out, struct err *err)
{
	/* One of other days, when blobs lived elsewhere, counts as well. */
	auto_close int fd = openat(store->dir_fd, "spool", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct count count = {.now_ns = now_ns()};
	int ret = fd < 0 ? 0 : walk(fd, count_one, &count, err);

	count.sum.blobs = count.entries;
	if (ret == 0 && fd >= 0)
		ret = walk_results(fd, count_one, &count, err);
	if (ret < 0)
		return ret;
	count.sum.results = count.entries - count.sum.blobs;
	*out = count.sum;
	return 0;
}

/* When a file was accepted its bytes were written, and touched no more. */
static void count_entry(const struct cas_spool_entry *e, int64_t now, struct cas_spool_backlog *out)
{
	if (e->state == CAS_SPOOL_MOVED || e->state == CAS_SPOOL_HELD)
		return;
	out->blobs++;
	out->bytes += e->digest.size;
	out->failing += e->attempts > 0;
	if (e->known && now > e->stamp.mtime_ns &&
	    (uint64_t)(now - e->stamp.mtime_ns) > out->oldest_ns)
		out->oldest_ns = (uint64_t)(now - e->stamp.mtime_ns);
}

void cas_spool_backlog(struct cas_store *store, struct cas_spool_backlog *out)
{
	struct cas_spool *s = store->spool;
	int64_t now = now_ns();

	*out = (struct cas_spool_backlog){0};
	if (!s)
		return;
	lock_take(&s->lock);
	for (const struct cas_spool_entry *e = s->table; e; e = e->hh.next)
		count_entry(e, now, out);
	lock_drop(&s->lock);
}

void cas_spool_wake(struct cas_store *store)
{
	int fd;

	if (utimensat(store->spool_fd, ".wake", NULL, AT_SYMLINK_NOFOLLOW) == 0)
		return;
	fd = openat(store->spool_fd, ".wake", O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	(void)cas_store_dress(store, fd, 0600);
	(void)futimens(fd, NULL);
	(void)close(fd);
}

void *cas_spool_scanner(void *arg)
{
	struct cas_spool *s = arg;
	struct timespec seen = {0};
	bool first = true;

	lock_take(&s->lock);
	for (unsigned tick = 0; !s->stop; tick++) {
		struct err why = {0};
		struct stat st;
		bool woken;
		int ret = 0;

		lock_drop(&s->lock);
		woken = fstatat(s->store->spool_fd, ".wake", &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			(st.st_mtim.tv_sec != seen.tv_sec || st.st_mtim.tv_nsec != seen.tv_nsec);
		if (woken)
			seen = st.st_mtim;
		if (woken || tick % FULL_TICKS == 0)
			ret = cas_spool_scan(s, first, &why);
		if (ret < 0)
			log_warn("cannot look at the spool: %s", err_text(&why, ret));
		first = first && ret < 0;
		lock_take(&s->lock);
		if (!s->stop)
			(void)lock_wait(&s->lock, &s->end, lock_now_ns() + TICK_NS);
	}
	lock_drop(&s->lock);
	return NULL;
}
