/* cas/spool/spool_result.c - ActionResults on their way to a slow blob directory */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/log.h"
#include "cas/spool/spool_i.h"
#include "cas/store/store_i.h"

/*
 * A result waits as STORE/spool/results/HH/HASH and, like a blob, is in force from then
 * on: reads look there first, since a later one replaces what the blob directory has. It
 * moves when everything that was accepted before it has moved, so that nobody finds in
 * the blob directory a result without the blobs that this store has for it.
 *
 * A put that replaces the waiting file holds its shard's lock, shared; so does the mover,
 * exclusively, when it unlinks that file, and only if it is the one that it has read.
 */

#define RESULTS	  "results"
#define BATCH	  64
#define PATH_SZ	  (sizeof(RESULTS "/") + CAS_LAYOUT_PATH_SZ)
#define RETRY_MS  100
#define MAX_SHIFT 8

static void path_of(const uint8_t hash[CAS_HASH_SZ], char out[PATH_SZ])
{
	(void)strcpy(out, RESULTS "/");
	cas_layout_path(hash, out + strlen(out));
}

int cas_spool_result_open(const struct cas_store *store, const uint8_t hash[CAS_HASH_SZ])
{
	char path[PATH_SZ];
	int fd;

	if (store->spool_fd < 0)
		return -ENOENT;
	path_of(hash, path);
	fd = openat(store->spool_fd, path,
		    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int cas_spool_results_open(int spool_fd)
{
	int fd = openat(spool_fd, RESULTS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int cas_spool_results_make(struct cas_spool *s, struct err *err)
{
	int ret = cas_store_mkdir(s->store, s->store->spool_fd, RESULTS, 0700);

	if (ret == 0)
		ret = s->results_fd = cas_spool_results_open(s->store->spool_fd);
	return ret < 0 ? err_set(err, ret, "cannot make %s/spool/" RESULTS ": %s", s->store->path,
				 strerrordesc_np(-ret))
		       : 0;
}

/* --- the table --- */

static struct cas_spool_result *find(struct cas_spool *s, const uint8_t *hash) REQUIRES(s->lock)
{
	struct cas_spool_result *r = NULL;

	if (s->results)
		HASH_FIND(hh, s->results, hash, CAS_HASH_SZ, r);
	return r;
}

static void drop(struct cas_spool *s, struct cas_spool_result *r) REQUIRES(s->lock)
{
	HASH_DEL(s->results, r);
	free(r);
}

struct cas_spool_result *cas_spool_result_add_locked(struct cas_spool *s, const uint8_t *hash)
{
	struct cas_spool_result *r = find(s, hash);

	if (r == NULL) {
		r = calloc(1, sizeof(*r));
		if (r == NULL)
			return NULL;
		memcpy(r->hash, hash, CAS_HASH_SZ);
		HASH_ADD(hh, s->results, hash, CAS_HASH_SZ, r);
		if (r->hh.tbl == NULL) {
			free(r);
			return NULL;
		}
	}
	r->after = s->next_seq;
	r->seen = true;
	return r;
}

void cas_spool_results_free(struct cas_spool *s)
{
	struct cas_spool_result *r;
	struct cas_spool_result *tmp;

	HASH_ITER (hh, s->results, r, tmp) {
		HASH_DEL(s->results, r);
		free(r);
	}
}

void cas_spool_results_forget_locked(struct cas_spool *s)
{
	struct cas_spool_result *r;
	struct cas_spool_result *tmp;

	HASH_ITER (hh, s->results, r, tmp) {
		if (!r->seen)
			drop(s, r);
	}
}

/* What was accepted before this has moved. */
static uint64_t moved_until(const struct cas_spool *s) REQUIRES(s->lock)
{
	uint64_t until = s->next_seq;

	for (const struct cas_spool_entry *e = s->table; e; e = e->hh.next) {
		if (e->state != CAS_SPOOL_HELD && e->seq < until)
			until = e->seq;
	}
	return until;
}

/* Those that wait for blobs are as stuck as these. */
bool cas_spool_results_left_locked(const struct cas_spool *s, bool own_only, bool *stuck)
{
	uint64_t until = moved_until(s);
	bool left = false;

	for (const struct cas_spool_result *r = s->results; r; r = r->hh.next) {
		if (own_only && !r->own)
			continue;
		left = true;
		*stuck &= r->attempts >= CAS_SPOOL_STUCK || r->after > until;
	}
	return left;
}

/* --- putting --- */

static bool is_waiting(struct cas_spool *s, const struct cas_digest *action, const void *data,
		       size_t len)
{
	auto_close int fd = cas_spool_result_open(s->store, action->hash);
	auto_buf struct buf b = {0};
	struct stat st;

	return fd >= 0 && cas_action_read(fd, &b, &st) == 0 && b.len == len &&
	       memcmp(b.data, data, len) == 0;
}

int cas_spool_result_put(struct cas_spool *s, const struct cas_digest *action, const void *data,
			 size_t len)
{
	struct cas_spool_result *r;
	int ret = is_waiting(s, action, data, len)
			  ? 0
			  : cas_action_write(s->store, s->results_fd, action, data, len);

	if (ret < 0)
		return ret;
	lock_take(&s->lock);
	/* One that is not remembered is found by the next scan. */
	r = cas_spool_result_add_locked(s, action->hash);
	if (r) {
		r->own = true;
		r->again = r->moving;
	}
	if (!s->passive)
		cas_spool_call_mover_locked(s);
	lock_drop(&s->lock);
	atomic_store(&s->store->spool_dirty, true);
	return 0;
}

/* --- moving --- */

/* The result in @fd is in the blob directory afterwards, not yet durable. */
static int move(struct cas_store *store, const struct cas_digest *action, int fd)
{
	auto_buf struct buf b = {0};
	auto_buf struct buf there = {0};
	char path[CAS_LAYOUT_PATH_SZ];
	auto_close int old_fd = -1;
	struct stat st;
	int ret = fd < 0 ? fd : cas_action_read(fd, &b, &st);

	if (ret < 0)
		return ret;
	cas_layout_path(action->hash, path);
	old_fd = openat(store->ac_fd, path,
			O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (old_fd >= 0 && cas_action_read(old_fd, &there, &st) == 0 && there.len == b.len &&
	    memcmp(there.data, b.data, b.len) == 0)
		return 0;
	ret = cas_action_write(store, store->ac_fd, action, b.data, b.len);
	if (ret == -ENOENT || ret == -ESTALE || ret == -ENOTCONN || ret == -EIO)
		cas_store_reopen_blobs(store);
	if (ret == 0)
		atomic_store(&store->dirty, true);
	return ret == -ENOENT ? -EIO : ret;
}

/* What was moved, and is still open, goes from the spool, unless another one has come. */
static int unlink_moved(struct cas_store *store, const uint8_t *hash, int fd)
{
	unsigned shard = cas_layout_shard(hash);
	bool locked = cas_store_shard_lock(store, shard, true, true) == 0;
	char path[PATH_SZ];
	struct stat moved;
	struct stat st;
	int ret = 0;

	path_of(hash, path);
	if (fstat(fd, &moved) < 0 || fstatat(store->spool_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		ret = errno == ENOENT ? 0 : -errno;
	else if (st.st_ino == moved.st_ino && unlinkat(store->spool_fd, path, 0) < 0)
		ret = -errno;
	if (locked)
		cas_store_shard_unlock(store, shard, true);
	return ret;
}

/* Empty, as a power cut may leave one, or too large: it never becomes a result, and goes. */
static bool is_no_result(int ret)
{
	return ret == -ENOENT || ret == -EUCLEAN;
}

struct batch {
	struct cas_spool_result *result[BATCH];
	struct cas_digest action[BATCH];
	int fd[BATCH];
	int ret[BATCH];
	int nr;
};

static void batch_take(struct cas_spool *s, struct batch *b) REQUIRES(s->lock)
{
	uint64_t until = moved_until(s);
	unsigned long long now = lock_now_ns();

	for (struct cas_spool_result *r = s->results; r && b->nr < BATCH; r = r->hh.next) {
		if (r->after > until || r->due_ns > now)
			continue;
		r->moving = true;
		memcpy(b->action[b->nr].hash, r->hash, CAS_HASH_SZ);
		b->result[b->nr++] = r;
	}
}

static void batch_move(struct cas_store *store, struct batch *b)
{
	struct err why = {0};
	int sync;

	for (int i = 0; i < b->nr; i++) {
		b->fd[i] = cas_spool_result_open(store, b->action[i].hash);
		b->ret[i] = move(store, &b->action[i], b->fd[i]);
	}
	sync = cas_store_sync_blobs(store, &why);
	if (sync < 0)
		log_warn("%s", err_text(&why, sync));
	for (int i = 0; i < b->nr; i++) {
		if (b->ret[i] == 0 && sync < 0)
			b->ret[i] = sync;
		if (b->ret[i] == 0 || (b->fd[i] >= 0 && is_no_result(b->ret[i])))
			b->ret[i] = unlink_moved(store, b->action[i].hash, b->fd[i]);
		if (b->fd[i] >= 0)
			(void)close(b->fd[i]);
	}
}

static void settle(struct cas_spool *s, struct cas_spool_result *r, int ret) REQUIRES(s->lock)
{
	r->moving = false;
	if (r->again) {
		r->again = false;
		return;
	}
	/* Evicted meanwhile: nothing to move. */
	if (ret == 0 || ret == -ENOENT) {
		drop(s, r);
		return;
	}
	if (r->attempts == 0 || r->attempts == CAS_SPOOL_STUCK)
		log_warn("a result of an action stays in the spool for now: %s",
			 strerrordesc_np(-ret));
	(void)snprintf(s->last_error, sizeof(s->last_error), "cannot write a result: %s",
		       strerrordesc_np(-ret));
	r->due_ns = lock_now_ns() + ((unsigned long long)s->opts.retry_ms * CAS_SPOOL_NS_PER_MS
				     << (r->attempts < MAX_SHIFT ? r->attempts : MAX_SHIFT));
	r->attempts++;
}

bool cas_spool_move_results_locked(struct cas_spool *s)
{
	struct batch *b;
	bool any;

	if (s->results == NULL || s->moving_results)
		return false;
	b = calloc(1, sizeof(*b));
	if (b == NULL)
		return false;
	batch_take(s, b);
	any = b->nr > 0;
	if (any) {
		s->moving_results = true;
		lock_drop(&s->lock);
		batch_move(s->store, b);
		lock_take(&s->lock);
		s->moving_results = false;
		for (int i = 0; i < b->nr; i++)
			settle(s, b->result[i], b->ret[i]);
		(void)pthread_cond_broadcast(&s->room);
	}
	free(b);
	return any;
}

unsigned long long cas_spool_results_due_locked(const struct cas_spool *s)
{
	unsigned long long due = 0;

	for (const struct cas_spool_result *r = s->results; r; r = r->hh.next) {
		if (r->due_ns > 0 && (due == 0 || r->due_ns < due))
			due = r->due_ns;
	}
	return due;
}
