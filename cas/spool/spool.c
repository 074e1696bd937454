/* cas/spool/spool.c - the spool begins and ends; who moves, and who waits for that */
#include "cas/spool/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
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
#define RETRY_MS       100
#define POLL_MS	       20
#define SERVICE_TRIES  200

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
		(void)lock_wait(&s->lock, &s->room, lock_now_ns() + POLL_MS * CAS_SPOOL_NS_PER_MS);
	}
	return 0;
}

/* Another process moves: its progress shows in the files. */
static int wait_served(struct cas_spool *s, const _Atomic bool *cancel, struct err *err)
{
	const struct timespec nap = {.tv_nsec = 50000000};
	struct cas_spool_usage left = {.blobs = 1};
	int ret = 0;

	while (ret == 0 && left.blobs + left.results > 0) {
		bool served;

		cas_spool_wake(s->store);
		lock_take(&s->lock);
		served = cas_spool_is_served_locked(s);
		lock_drop(&s->lock);
		if (!served)
			return 0;
		ret = cas_spool_usage(s->store, &left, err);
		if (cancel && atomic_load(cancel))
			return err_set(err, -ECANCELED, "interrupted");
		if (left.blobs + left.results > 0)
			(void)nanosleep(&nap, NULL);
	}
	return ret;
}

int cas_spool_drain(struct cas_store *store, enum cas_spool_whose whose, const _Atomic bool *cancel,
		    struct err *err)
{
	struct cas_spool_usage left = {.blobs = 1};
	struct cas_spool *s = store->spool;
	int ret = 0;

	if (s == NULL)
		return 0;
	if (whose == CAS_SPOOL_ALL)
		ret = wait_served(s, cancel, err);
	while (ret == 0 && left.blobs + left.results > 0) {
		if (whose == CAS_SPOOL_ALL)
			ret = cas_spool_scan(s, true, err);
		lock_take(&s->lock);
		if (ret == 0 && !cas_spool_is_served_locked(s))
			ret = wait_moved(s, whose, cancel, err);
		lock_drop(&s->lock);
		if (ret < 0 || whose == CAS_SPOOL_OWN)
			return ret;
		ret = cas_spool_usage(store, &left, err);
	}
	return ret;
}
