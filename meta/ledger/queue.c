/* meta/ledger/queue.c - rows on their way to index, ledger or daemon, and the thread that takes
 * them */
/*
 * Threads that answer the kernel push; one thread writes, in batches: at once when
 * somebody waits in flush or much has gathered, else after a short while. The lock is
 * never held while a batch is written.
 *
 * A blob's latest row can be found until it is recorded, so that a put right after a put,
 * or an open right after it, does not hash the file again.
 */
#include "meta/ledger/queue.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/lock.h"
#include "cas/base/log.h"
#include "meta/index/packed_dir.h"

#define GATHER_NS      50000000ULL
#define GATHER_ROWS    4096
#define BATCH_ROWS     16384
#define TOUCH_ROWS_MAX 65536
#define ROWS_MAX       (1 << 20)
#define DIR_BYTES_MAX  ((size_t)64 << 20)

struct meta_queue {
	struct meta_queue_ops ops;
	pthread_t thread; /* valid with has_thread */
	struct lock lock;
	pthread_cond_t work;
	pthread_cond_t done;
	struct meta_row *head GUARDED_BY(lock);
	struct meta_row **tail GUARDED_BY(lock);
	struct meta_row *blobs GUARDED_BY(lock); /* by hash; the latest row of each */
	size_t nr_rows GUARDED_BY(lock);	 /* queued, not yet taken */
	size_t dir_bytes GUARDED_BY(lock);	 /* of directories queued or being written */
	uint64_t flush_wanted GUARDED_BY(lock);
	uint64_t flush_done GUARDED_BY(lock);
	uint64_t nr_lost GUARDED_BY(lock);
	uint64_t nr_told GUARDED_BY(lock);    /* of them, by a flush */
	struct err lost_err GUARDED_BY(lock); /* of the latest loss */
	bool stop GUARDED_BY(lock);
	bool has_thread GUARDED_BY(lock);
	bool no_thread GUARDED_BY(lock); /* somebody writes in place of it */
};

struct meta_row *meta_row_new(enum meta_row_kind kind, const struct cas_digest *digest)
{
	struct meta_row *row = calloc(1, sizeof(*row));

	if (!row)
		return NULL;
	row->kind = kind;
	if (digest)
		row->digest = *digest;
	return row;
}

void meta_row_free(struct meta_row *row)
{
	if (!row)
		return;
	if (row->kind == META_ROW_DIR) {
		meta_packed_unref(row->dir);
	} else if (row->kind == META_ROW_SANDBOX) {
		free(row->sandbox.id);
		free(row->sandbox.root);
		free(row->sandbox.state);
	} else if (row->kind == META_ROW_CAME) {
		free(row->came.source);
	}
	free(row);
}

static bool is_blob_row(const struct meta_row *row)
{
	return row->kind == META_ROW_BLOB || row->kind == META_ROW_DROP;
}

static void pending_del_locked(struct meta_queue *q, struct meta_row *row) REQUIRES(q->lock)
{
	if (!row->pending)
		return;
	HASH_DEL(q->blobs, row);
	row->pending = false;
}

static void pending_add_locked(struct meta_queue *q, struct meta_row *row) REQUIRES(q->lock)
{
	struct meta_row *old;

	HASH_FIND(hh, q->blobs, row->digest.hash, CAS_HASH_SZ, old);
	if (old)
		pending_del_locked(q, old);
	HASH_ADD_KEYPTR(hh, q->blobs, row->digest.hash, CAS_HASH_SZ, row);
	row->pending = row->hh.tbl != NULL;
}

static size_t row_dir_bytes(const struct meta_row *row)
{
	return row->kind == META_ROW_DIR ? row->dir->len : 0;
}

static bool full_locked(const struct meta_queue *q, const struct meta_row *row) REQUIRES(q->lock)
{
	if (row->kind == META_ROW_TOUCH || row->kind == META_ROW_CAME)
		return q->nr_rows >= TOUCH_ROWS_MAX;
	/* One directory beyond the bound is let in when it is alone. */
	if (row->kind == META_ROW_DIR && q->dir_bytes > 0)
		return q->dir_bytes + row->dir->len > DIR_BYTES_MAX || q->nr_rows >= TOUCH_ROWS_MAX;
	return q->nr_rows >= ROWS_MAX;
}

/* A touch, an origin or a packed directory may go missing without anything being wrong. */
static bool loss_matters(const struct meta_row *row)
{
	return row->kind != META_ROW_TOUCH && row->kind != META_ROW_DIR &&
	       row->kind != META_ROW_CAME;
}

static bool push_locked(struct meta_queue *q, struct meta_row *row) REQUIRES(q->lock)
{
	if (full_locked(q, row))
		return false;
	row->next = NULL;
	*q->tail = row;
	q->tail = &row->next;
	q->nr_rows++;
	q->dir_bytes += row_dir_bytes(row);
	if (is_blob_row(row))
		pending_add_locked(q, row);
	if (q->nr_rows == 1 || q->nr_rows == GATHER_ROWS)
		(void)pthread_cond_signal(&q->work);
	return true;
}

static void thread_start_locked(struct meta_queue *q) REQUIRES(q->lock);

static void push(struct meta_queue *q, struct meta_row *row, bool soon)
{
	bool lost = row == NULL;

	lock_take(&q->lock);
	if (row && !push_locked(q, row))
		lost = loss_matters(row);
	else
		row = NULL;
	if (lost) {
		q->nr_lost++;
		(void)err_set(&q->lost_err, -ENOBUFS, "too many rows are waiting to be recorded");
	}
	if (soon || q->nr_rows >= GATHER_ROWS)
		thread_start_locked(q);
	lock_drop(&q->lock);
	meta_row_free(row);
	if (lost)
		q->ops.lost(q->ops.ctx);
}

void meta_queue_push(struct meta_queue *q, struct meta_row *row)
{
	push(q, row, true);
}

void meta_queue_keep(struct meta_queue *q, struct meta_row *row)
{
	push(q, row, false);
}

static void write_here_locked(struct meta_queue *q) REQUIRES(q->lock);

int meta_queue_flush(struct meta_queue *q, struct err *err)
{
	uint64_t want;
	int ret = 0;

	lock_take(&q->lock);
	want = ++q->flush_wanted;
	if (q->has_thread)
		(void)pthread_cond_signal(&q->work);
	else if (!q->no_thread)
		write_here_locked(q);
	while (q->flush_done < want)
		(void)lock_wait(&q->lock, &q->done, 0);
	if (q->nr_lost != q->nr_told)
		ret = err_set(err, q->lost_err.code, "%s", q->lost_err.msg);
	q->nr_told = q->nr_lost;
	lock_drop(&q->lock);
	return ret;
}

int meta_queue_blob_find(struct meta_queue *q, const uint8_t hash[CAS_HASH_SZ], bool *has_stamp,
			 struct cas_digest *digest, struct cas_stamp *stamp)
{
	struct meta_row *row;
	int ret = 0;

	lock_take(&q->lock);
	HASH_FIND(hh, q->blobs, hash, CAS_HASH_SZ, row);
	if (row && row->kind == META_ROW_DROP) {
		ret = -ENOENT;
	} else if (row) {
		*has_stamp = row->has_stamp;
		*digest = row->digest;
		*stamp = row->stamp;
		ret = 1;
	}
	lock_drop(&q->lock);
	return ret;
}

static bool hurry_locked(const struct meta_queue *q) REQUIRES(q->lock)
{
	return q->stop || q->flush_wanted > q->flush_done || q->nr_rows >= GATHER_ROWS;
}

/* Wait for work and let some gather. False: stop, and nothing is left. */
static bool gather_locked(struct meta_queue *q) REQUIRES(q->lock)
{
	unsigned long long deadline;

	while (!q->head && !hurry_locked(q))
		(void)lock_wait(&q->lock, &q->work, 0);
	deadline = lock_now_ns() + GATHER_NS;
	while (!hurry_locked(q) && lock_wait(&q->lock, &q->work, deadline) != -ETIMEDOUT)
		;
	return q->head || q->flush_wanted > q->flush_done || !q->stop;
}

/* Cut a batch off the queue. */
static struct meta_row *take_locked(struct meta_queue *q) REQUIRES(q->lock)
{
	struct meta_row *batch = q->head, *last = NULL;
	size_t nr = 0;

	for (struct meta_row *row = q->head; row && nr < BATCH_ROWS; row = row->next, nr++)
		last = row;
	if (!last)
		return NULL;
	q->head = last->next;
	last->next = NULL;
	if (!q->head)
		q->tail = &q->head;
	q->nr_rows -= nr;
	return batch;
}

static void finish_locked(struct meta_queue *q, const struct meta_row *batch, int ret,
			  const struct err *err) REQUIRES(q->lock)
{
	for (const struct meta_row *row = batch; row; row = row->next) {
		pending_del_locked(q, (struct meta_row *)(uintptr_t)row);
		q->dir_bytes -= row_dir_bytes(row);
	}
	if (ret < 0) {
		q->nr_lost++;
		q->lost_err = *err;
	}
}

static void write_batch(struct meta_queue *q, struct meta_row *batch, bool flush, uint64_t wanted)
{
	struct err err = {0};
	int ret = q->ops.write(q->ops.ctx, batch, flush, &err);

	if (ret < 0) {
		if (err.msg[0] == '\0')
			(void)err_set(&err, ret, "%s", err_name(ret));
		log_warn("rows were lost: %s", err.msg);
		q->ops.lost(q->ops.ctx);
	}
	lock_take(&q->lock);
	finish_locked(q, batch, ret, &err);
	if (flush) {
		q->flush_done = wanted;
		(void)pthread_cond_broadcast(&q->done);
	}
	lock_drop(&q->lock);
	while (batch) {
		struct meta_row *next = batch->next;

		meta_row_free(batch);
		batch = next;
	}
}

static void *queue_thread(void *arg)
{
	struct meta_queue *q = arg;
	struct meta_row *batch;
	uint64_t wanted;
	bool flush, go;

	for (;;) {
		lock_take(&q->lock);
		go = gather_locked(q);
		wanted = q->flush_wanted;
		batch = take_locked(q);
		flush = !q->head && wanted > q->flush_done;
		lock_drop(&q->lock);
		if (!go)
			return NULL;
		if (batch || flush)
			write_batch(q, batch, flush, wanted);
	}
}

/* In place of the thread, until nothing is left that anybody pushed or waits for. */
static void write_here_locked(struct meta_queue *q) REQUIRES(q->lock)
{
	q->no_thread = true;
	while (q->head || q->flush_done < q->flush_wanted) {
		uint64_t wanted = q->flush_wanted;
		struct meta_row *batch = take_locked(q);
		bool flush = !q->head && wanted > q->flush_done;

		lock_drop(&q->lock);
		write_batch(q, batch, flush, wanted);
		lock_take(&q->lock);
	}
	q->no_thread = false;
}

/* Signals are the program's business, not this thread's. */
static int thread_start(struct meta_queue *q)
{
	sigset_t all, old;
	int rc;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&q->thread, NULL, queue_thread, q);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -rc;
}

/* Where there can be none, rows are written in a flush and in the end. */
static void thread_start_locked(struct meta_queue *q)
{
	if (!q->has_thread && !q->no_thread)
		q->has_thread = thread_start(q) == 0;
}

static void queue_release(struct meta_queue *q)
{
	(void)pthread_cond_destroy(&q->work);
	(void)pthread_cond_destroy(&q->done);
	lock_fini(&q->lock);
	free(q);
}

int meta_queue_new(const struct meta_queue_ops *ops, struct meta_queue **out, struct err *err)
{
	struct meta_queue *q = calloc(1, sizeof(*q));
	int ret;

	if (!q)
		return -ENOMEM;
	q->ops = *ops;
	q->tail = &q->head;
	lock_init(&q->lock, LOCK_RANK_QUEUE, "meta_queue.lock");
	lock_cond_init(&q->work);
	lock_cond_init(&q->done);
	ret = ops->late ? 0 : thread_start(q);
	if (ret < 0) {
		queue_release(q);
		return err_set(err, ret, "cannot start the thread that records rows");
	}
	q->has_thread = !ops->late;
	*out = q;
	return 0;
}

void meta_queue_free(struct meta_queue *q)
{
	bool has_thread;

	if (!q)
		return;
	lock_take(&q->lock);
	q->stop = true;
	(void)pthread_cond_signal(&q->work);
	has_thread = q->has_thread;
	if (!has_thread)
		write_here_locked(q);
	lock_drop(&q->lock);
	if (has_thread)
		(void)pthread_join(q->thread, NULL);
	queue_release(q);
}
