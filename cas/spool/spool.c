/* cas/spool/spool.c - the table of accepted puts, and the threads that move them */
#include "cas/spool/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/spool/spool_i.h"
#include "cas/store/store_i.h"

/*
 * A blob's way, and what a crash leaves at each step:
 *
 *   spool/HH/HASH gets its name           accepted (durable with the next sync)
 *   a file in DIR/cas/HH, named or not    the spool file, and perhaps a temporary whose
 *                                         name says which blob of which store it is for
 *   its name DIR/cas/HH/HASH              both; the next mover finds it known
 *   it is durable there                   the same
 *   spool/HH/HASH is unlinked             the blob
 *
 * So the spool file is all the record there is: whoever finds one moves it. Processes
 * agree by flock on the spool file; the kernel drops it with its holder. One of them may
 * serve the others: it holds spool/.mover exclusively, whose content names the blob
 * directory, and rescans when spool/.wake was touched.
 *
 * The table has an entry for each spool file that this process knows of. A thread that
 * moves one holds no lock; the entry stays, marked, until it is done. Moved ones wait to
 * be made durable together (MOVED); where another store may evict they are looked at
 * again after a while (HELD). Failures are tried again, later each time, for ever.
 *
 * Left out: an order between blobs. A Directory may arrive before its files; others see
 * blobs, not trees, and miss what has not come yet as if it had been evicted. Results of
 * actions come after the blobs that were accepted before them (spool_result.c).
 */

#define MOVERS_DEFAULT 64
#define BYTES_DEFAULT  (4ULL << 30)
#define BLOBS_DEFAULT  65536
#define SETTLE_BATCH   256
#define NS_PER_MS      1000000ULL
#define BUSY_MS	       50
#define RETRY_MS       100
#define RETRY_MAX_MS   30000
#define POLL_MS	       20
#define TELL_MS	       10000
#define LOOK_AHEAD     512
#define SERVICE_TRIES  200

struct cas_spool_entry *cas_spool_find_locked(struct cas_spool *s, const uint8_t *hash)
{
	struct cas_spool_entry *e = NULL;

	if (s->table)
		HASH_FIND(hh, s->table, hash, CAS_HASH_SZ, e);
	return e;
}

static void make_ready(struct cas_spool *s, struct cas_spool_entry *e) REQUIRES(s->lock)
{
	e->state = CAS_SPOOL_READY;
	e->next = NULL;
	*s->ready_tail = e;
	s->ready_tail = &e->next;
}

/* Its spool file is gone, unless a put has made another one meanwhile. */
static void remove_entry(struct cas_spool *s, struct cas_spool_entry *e) REQUIRES(s->lock)
{
	if (e->again) {
		e->again = false;
		e->known = false;
		make_ready(s, e);
		return;
	}
	HASH_DEL(s->table, e);
	s->bytes -= e->digest.size;
	free(e);
	(void)pthread_cond_broadcast(&s->room);
}

static void *mover(void *arg);

/* Threads are started as work comes; one that cannot be started is done without. */
void cas_spool_call_mover_locked(struct cas_spool *s)
{
	sigset_t all;
	sigset_t old;

	if (s->nr_idle > 0 || s->nr_threads >= s->opts.nr_movers || s->stop) {
		(void)pthread_cond_signal(&s->work);
		return;
	}
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	if (pthread_create(&s->threads[s->nr_threads], NULL, mover, s) == 0)
		s->nr_threads++;
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
}

struct cas_spool_entry *cas_spool_add_locked(struct cas_spool *s, const struct cas_digest *digest)
{
	struct cas_spool_entry *e = calloc(1, sizeof(*e));

	if (e == NULL)
		return NULL;
	e->digest = *digest;
	HASH_ADD(hh, s->table, digest.hash, CAS_HASH_SZ, e);
	if (e->hh.tbl == NULL) {
		free(e);
		return NULL;
	}
	s->bytes += digest->size;
	e->seq = s->next_seq++;
	make_ready(s, e);
	if (!s->passive)
		cas_spool_call_mover_locked(s);
	return e;
}

/* --- moving --- */

/* Those whose time has come; returns when the next one's does, 0 for never. */
static unsigned long long promote(struct cas_spool *s) REQUIRES(s->lock)
{
	unsigned long long now = lock_now_ns();
	unsigned long long next = 0;
	struct cas_spool_entry *e;
	struct cas_spool_entry *tmp;

	if (s->nr_later == 0)
		return 0;
	HASH_ITER (hh, s->table, e, tmp) {
		if (e->state != CAS_SPOOL_WAITING && e->state != CAS_SPOOL_HELD)
			continue;
		if (e->due_ns <= now && e->state == CAS_SPOOL_WAITING) {
			s->nr_later--;
			make_ready(s, e);
		} else if (next == 0 || e->due_ns < next) {
			next = e->due_ns;
		}
	}
	return next;
}

/*
 * The first whose shard nobody is at: two in one shard would wait for each other's changes
 * there. When there is none near the front, the front.
 */
static struct cas_spool_entry *take_ready(struct cas_spool *s) REQUIRES(s->lock)
{
	struct cas_spool_entry **at = &s->ready;
	struct cas_spool_entry *e;

	for (int i = 0; *at && i < LOOK_AHEAD; i++, at = &(*at)->next) {
		if (s->at_work[cas_layout_shard((*at)->digest.hash)] == 0)
			break;
	}
	if (*at == NULL || s->at_work[cas_layout_shard((*at)->digest.hash)] > 0)
		at = &s->ready;
	e = *at;
	if (e == NULL)
		return NULL;
	*at = e->next;
	if (s->ready_tail == &e->next)
		s->ready_tail = at;
	e->state = CAS_SPOOL_MOVING;
	return e;
}

static struct cas_spool_entry *take_held(struct cas_spool *s) REQUIRES(s->lock)
{
	unsigned long long now = lock_now_ns();
	struct cas_spool_entry *e;
	struct cas_spool_entry *tmp;

	if (s->nr_later == 0)
		return NULL;
	HASH_ITER (hh, s->table, e, tmp) {
		if (e->state == CAS_SPOOL_HELD && e->due_ns <= now) {
			s->nr_later--;
			e->state = CAS_SPOOL_MOVING;
			return e;
		}
	}
	return NULL;
}

static void set_aside(struct cas_spool *s, struct cas_spool_entry *e, enum cas_spool_state state,
		      unsigned long long ms) REQUIRES(s->lock)
{
	e->state = state;
	e->due_ns = lock_now_ns() + ms * NS_PER_MS;
	s->nr_later++;
}

/* One cause, such as a full disk, keeps thousands: a line each would tell no more. */
static bool is_worth_a_line(struct cas_spool *s) REQUIRES(s->lock)
{
	unsigned long long now = lock_now_ns();

	if (s->told_ns > 0 && now - s->told_ns < TELL_MS * NS_PER_MS)
		return false;
	s->told_ns = now;
	return true;
}

static void retry_later(struct cas_spool *s, struct cas_spool_entry *e, struct err *why, int ret)
	REQUIRES(s->lock)
{
	unsigned shift = e->attempts < 9 ? e->attempts : 9;
	unsigned long long ms = (unsigned long long)s->opts.retry_ms << shift;

	if ((e->attempts == 0 || e->attempts == CAS_SPOOL_STUCK) && is_worth_a_line(s))
		log_warn("blob %s stays in the spool for now: %s", CAS_DIGEST_TEXT(&e->digest),
			 err_text(why, ret));
	(void)snprintf(s->last_error, sizeof(s->last_error), "%s", err_text(why, ret));
	e->attempts++;
	e->leftover = true; /* a temporary of ours may be there */
	set_aside(s, e, CAS_SPOOL_WAITING, ms < RETRY_MAX_MS ? ms : RETRY_MAX_MS);
	(void)pthread_cond_broadcast(&s->room);
}

/* What a move came to. */
static void finish_move(struct cas_spool *s, struct cas_spool_entry *e, int ret, bool hold,
			struct err *why) REQUIRES(s->lock)
{
	if (ret == -ENOENT || ret == -EBADMSG) {
		remove_entry(s, e);
	} else if (ret == -EBUSY) {
		e->leftover = true;
		set_aside(s, e, CAS_SPOOL_WAITING, BUSY_MS);
	} else if (ret < 0) {
		retry_later(s, e, why, ret);
	} else {
		e->state = CAS_SPOOL_MOVED;
		e->hold = hold;
		e->next = s->moved;
		s->moved = e;
		s->nr_moved++;
	}
}

static void move_one(struct cas_spool *s, struct cas_spool_entry *e) REQUIRES(s->lock)
{
	struct cas_spool_job job = {e->digest, e->stamp, e->known, e->leftover};
	unsigned shard = cas_layout_shard(e->digest.hash);
	struct err why = {0};
	bool hold = false;
	int ret;

	s->at_work[shard]++;
	lock_drop(&s->lock);
	ret = cas_spool_move(s, &job, &hold, &why);
	lock_take(&s->lock);
	s->at_work[shard]--;
	finish_move(s, e, ret, hold, &why);
}

/* The last look at one that was held; its owner has had its chance to remove it. */
static void settle_held(struct cas_spool *s, struct cas_spool_entry *e) REQUIRES(s->lock)
{
	struct err why = {0};
	int ret;

	lock_drop(&s->lock);
	ret = cas_spool_confirm(s, &e->digest);
	if (ret == 1)
		ret = cas_spool_unlink(s, &e->digest) < 0 ? -EIO : 1;
	lock_take(&s->lock);
	if (ret == 1)
		remove_entry(s, e);
	else if (ret == 0)
		make_ready(s, e);
	else
		retry_later(s, e, &why, ret);
}

static void settle_moved(struct cas_spool *s, struct cas_spool_entry *e) REQUIRES(s->lock)
{
	struct err why = {0};
	int ret;

	if (e->hold) {
		set_aside(s, e, CAS_SPOOL_HELD, s->opts.hold_ms);
		(void)pthread_cond_broadcast(&s->room);
		return;
	}
	lock_drop(&s->lock);
	ret = cas_spool_unlink(s, &e->digest);
	lock_take(&s->lock);
	if (ret == 0)
		remove_entry(s, e);
	else
		retry_later(s, e, &why, ret);
}

/* Make what was moved durable, at once; then their spool files have served. */
static void settle(struct cas_spool *s) REQUIRES(s->lock)
{
	struct cas_spool_entry *list = s->moved;
	struct err why = {0};
	int ret;

	s->moved = NULL;
	s->nr_moved = 0;
	s->settling = true;
	lock_drop(&s->lock);
	ret = cas_store_sync_blobs(s->store, &why);
	lock_take(&s->lock);
	while (list) {
		struct cas_spool_entry *e = list;

		list = e->next;
		if (ret < 0)
			retry_later(s, e, &why, ret);
		else
			settle_moved(s, e);
	}
	s->settling = false;
}

/* Of two times the first; 0 is never. */
static unsigned long long earlier(unsigned long long a, unsigned long long b)
{
	return a == 0 || (b > 0 && b < a) ? b : a;
}

static void *mover(void *arg)
{
	struct cas_spool *s = arg;

	lock_take(&s->lock);
	while (!s->stop) {
		struct cas_spool_entry *e = take_ready(s);
		unsigned long long next;

		if (e) {
			move_one(s, e);
		}
		if (s->nr_moved > 0 && !s->settling &&
		    (s->nr_moved >= SETTLE_BATCH || s->ready == NULL)) {
			settle(s);
			(void)cas_spool_move_results_locked(s);
			continue;
		}
		if (e || s->ready || cas_spool_move_results_locked(s))
			continue;
		e = take_held(s);
		if (e) {
			settle_held(s, e);
			continue;
		}
		next = earlier(promote(s), cas_spool_results_due_locked(s));
		if (s->ready)
			continue;
		s->nr_idle++;
		(void)lock_wait(&s->lock, &s->work, next);
		s->nr_idle--;
	}
	/* Durable rows are worth a last sync; what it leaves is found known by the next. */
	if (s->nr_moved > 0 && !s->settling)
		settle(s);
	lock_drop(&s->lock);
	return NULL;
}

/* --- who moves --- */

/* 1 another process serves our blob directory, 0 not. */
static int probe_service(struct cas_spool *s)
{
	auto_buf struct buf b = {0};
	bool free_now = flock(s->service_fd, LOCK_SH | LOCK_NB) == 0;

	if (free_now) {
		(void)flock(s->service_fd, LOCK_UN);
		return 0;
	}
	return io_read_file(s->store->spool_fd, ".mover", 4096, &b) == 0 &&
	       strcmp(buf_str(&b), s->store->blobs_path) == 0;
}

bool cas_spool_is_served_locked(struct cas_spool *s)
{
	if (!s->passive)
		return false;
	if (probe_service(s) == 1)
		return true;
	/* It ended: its work is ours. */
	s->passive = false;
	if (s->ready || s->results)
		cas_spool_call_mover_locked(s);
	return false;
}

static int become_service(struct cas_spool *s, struct err *err)
{
	const struct timespec nap = {.tv_nsec = 5000000};
	const char *dir = s->store->blobs_path;
	int ret = -1;

	for (int i = 0; i < SERVICE_TRIES && ret < 0; i++) {
		ret = flock(s->service_fd, LOCK_EX | LOCK_NB);
		if (ret < 0 && errno != EWOULDBLOCK && errno != EINTR)
			return err_set(err, -errno, "cannot lock %s/spool/.mover: %m",
				       s->store->path);
		if (ret < 0)
			(void)nanosleep(&nap, NULL);
	}
	if (ret < 0)
		return err_set(err, -EBUSY, "another process serves the spool of store %s",
			       s->store->path);
	if (ftruncate(s->service_fd, 0) < 0)
		return err_set(err, -errno, "cannot write %s/spool/.mover: %m", s->store->path);
	ret = io_pwrite_full(s->service_fd, dir, strlen(dir), 0);
	if (ret < 0)
		return err_set(err, ret, "cannot write %s/spool/.mover: %s", s->store->path,
			       strerrordesc_np(-ret));
	return 0;
}

static int choose_role(struct cas_spool *s, struct err *err)
{
	int ret = 0;

	s->service_fd = openat(s->store->spool_fd, ".mover",
			       O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (s->service_fd < 0)
		return err_set(err, -errno, "cannot open %s/spool/.mover: %m", s->store->path);
	(void)cas_store_dress(s->store, s->service_fd, 0600);
	if (s->opts.serve)
		ret = become_service(s, err);
	else
		s->passive = probe_service(s) == 1;
	return ret;
}

static void set_defaults(struct cas_spool_options *o)
{
	if (o->nr_movers <= 0)
		o->nr_movers = MOVERS_DEFAULT;
	if (o->nr_movers > CAS_SPOOL_MOVERS_MAX)
		o->nr_movers = CAS_SPOOL_MOVERS_MAX;
	if (o->max_bytes == 0)
		o->max_bytes = BYTES_DEFAULT;
	if (o->retry_ms == 0)
		o->retry_ms = RETRY_MS;
	if (o->hold_ms == 0)
		o->hold_ms = CAS_OWNER_HOLD_SEC * 1000;
	if (o->max_blobs == 0)
		o->max_blobs = BLOBS_DEFAULT;
}

int cas_spool_start(struct cas_store *store, const struct cas_spool_options *opts, struct err *err)
{
	struct cas_spool *s;
	int ret;

	if (store->read_only || store->spool_fd < 0 || store->spool)
		return 0;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return err_set(err, -ENOMEM, "cannot start the spool: out of memory");
	s->store = store;
	s->opts = *opts;
	set_defaults(&s->opts);
	s->ready_tail = &s->ready;
	s->service_fd = -1;
	s->results_fd = -1;
	lock_init(&s->lock, LOCK_RANK_LEAF, "cas_spool");
	lock_cond_init(&s->work);
	lock_cond_init(&s->room);
	lock_cond_init(&s->end);
	store->spool = s;
	ret = choose_role(s, err);
	if (ret == 0)
		ret = cas_spool_results_make(s, err);
	if (ret == 0 && s->opts.serve) {
		ret = -pthread_create(&s->scanner, NULL, cas_spool_scanner, s);
		s->has_scanner = ret == 0;
		if (ret < 0)
			(void)err_set(err, ret, "cannot start a thread: %s", strerrordesc_np(-ret));
	}
	if (ret < 0)
		cas_spool_stop(store);
	return ret;
}

void cas_spool_stop(struct cas_store *store)
{
	struct cas_spool *s = store->spool;
	struct cas_spool_entry *e;
	struct cas_spool_entry *tmp;

	if (s == NULL)
		return;
	lock_take(&s->lock);
	s->stop = true;
	(void)pthread_cond_broadcast(&s->work);
	(void)pthread_cond_broadcast(&s->room);
	(void)pthread_cond_broadcast(&s->end);
	lock_drop(&s->lock);
	for (int i = 0; i < s->nr_threads; i++)
		(void)pthread_join(s->threads[i], NULL);
	if (s->has_scanner)
		(void)pthread_join(s->scanner, NULL);
	HASH_ITER (hh, s->table, e, tmp) {
		HASH_DEL(s->table, e);
		free(e);
	}
	cas_spool_results_free(s);
	if (s->service_fd >= 0)
		(void)close(s->service_fd);
	if (s->results_fd >= 0)
		(void)close(s->results_fd);
	store->spool = NULL;
	(void)pthread_cond_destroy(&s->work);
	(void)pthread_cond_destroy(&s->room);
	(void)pthread_cond_destroy(&s->end);
	lock_fini(&s->lock);
	free(s);
}

/* --- waiting --- */

/* Does anything of @whose stand in the way, and is all of that stuck? */
static bool is_left(struct cas_spool *s, enum cas_spool_whose whose, bool *stuck) REQUIRES(s->lock)
{
	struct cas_spool_entry *e;
	struct cas_spool_entry *tmp;
	bool left = false;

	*stuck = true;
	HASH_ITER (hh, s->table, e, tmp) {
		if (whose == CAS_SPOOL_OWN && (!e->own || e->state == CAS_SPOOL_HELD))
			continue;
		left = true;
		if (e->attempts < CAS_SPOOL_STUCK) {
			*stuck = false;
			break;
		}
	}
	return cas_spool_results_left_locked(s, whose == CAS_SPOOL_OWN, stuck) || left;
}

static int wait_moved(struct cas_spool *s, enum cas_spool_whose whose, const _Atomic bool *cancel,
		      struct err *err) REQUIRES(s->lock)
{
	bool stuck;

	while (is_left(s, whose, &stuck)) {
		if (stuck)
			return err_set(err, -EAGAIN,
				       "%u blobs and results wait in the spool for %s, and are "
				       "kept there: %s",
				       HASH_COUNT(s->table) + HASH_COUNT(s->results),
				       s->store->blobs_path, s->last_error);
		if (cancel && atomic_load(cancel))
			return err_set(err, -ECANCELED, "interrupted");
		(void)lock_wait(&s->lock, &s->room, lock_now_ns() + POLL_MS * NS_PER_MS);
	}
	return 0;
}

/* Another process moves: its progress shows in the files. */
static int wait_served(struct cas_spool *s, const _Atomic bool *cancel, struct err *err)
{
	const struct timespec nap = {.tv_nsec = 50000000};
	uint64_t blobs = 1;
	uint64_t bytes;
	int ret = 0;

	while (ret == 0 && blobs > 0) {
		bool served;

		cas_spool_wake(s->store);
		lock_take(&s->lock);
		served = cas_spool_is_served_locked(s);
		lock_drop(&s->lock);
		if (!served)
			return 0;
		ret = cas_spool_usage(s->store, &blobs, &bytes, err);
		if (cancel && atomic_load(cancel))
			return err_set(err, -ECANCELED, "interrupted");
		if (blobs > 0)
			(void)nanosleep(&nap, NULL);
	}
	return ret;
}

int cas_spool_drain(struct cas_store *store, enum cas_spool_whose whose, const _Atomic bool *cancel,
		    struct err *err)
{
	struct cas_spool *s = store->spool;
	uint64_t blobs = 1;
	uint64_t bytes;
	int ret = 0;

	if (s == NULL)
		return 0;
	if (whose == CAS_SPOOL_ALL)
		ret = wait_served(s, cancel, err);
	while (ret == 0 && blobs > 0) {
		if (whose == CAS_SPOOL_ALL)
			ret = cas_spool_scan(s, true, err);
		lock_take(&s->lock);
		if (ret == 0 && !cas_spool_is_served_locked(s))
			ret = wait_moved(s, whose, cancel, err);
		lock_drop(&s->lock);
		if (ret < 0 || whose == CAS_SPOOL_OWN)
			return ret;
		ret = cas_spool_usage(store, &blobs, &bytes, err);
	}
	return ret;
}
