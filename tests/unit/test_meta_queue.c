/* tests/unit/test_meta_queue.c - the queue and its thread */
#include "tests/lib/tests.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/err.h"
#include "cas/base/log.h"
#include "cas/hash.h"
#include "meta/ledger/queue.h"

static void sink_nothing(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	(void)line;
}

struct recorder {
	pthread_mutex_t gate; /* held by a test: writing waits */
	_Atomic int nr_rows;
	_Atomic int nr_flushes;
	_Atomic int nr_lost;
	_Atomic int ret;
	pthread_t writer; /* of the latest batch */
	uint64_t last_size;
	bool ordered;
};

static int record(void *ctx, const struct meta_row *rows, bool flush, struct err *err)
{
	struct recorder *r = ctx;

	(void)pthread_mutex_lock(&r->gate);
	(void)pthread_mutex_unlock(&r->gate);
	r->writer = pthread_self();
	for (; rows; rows = rows->next) {
		r->ordered &= rows->digest.size > r->last_size;
		r->last_size = rows->digest.size;
		atomic_fetch_add(&r->nr_rows, 1);
	}
	atomic_fetch_add(&r->nr_flushes, flush);
	return atomic_load(&r->ret) < 0 ? err_set(err, atomic_load(&r->ret), "the disk is full")
					: 0;
}

static void lost(void *ctx)
{
	struct recorder *r = ctx;

	atomic_fetch_add(&r->nr_lost, 1);
}

static struct meta_queue *start_as(struct recorder *r, bool late)
{
	struct meta_queue_ops ops = {.write = record, .lost = lost, .ctx = r, .late = late};
	struct meta_queue *q;

	*r = (struct recorder){.gate = PTHREAD_MUTEX_INITIALIZER, .ordered = true};
	assert_int_equal(meta_queue_new(&ops, &q, NULL), 0);
	return q;
}

static struct meta_queue *start(struct recorder *r)
{
	return start_as(r, false);
}

static struct cas_digest digest_nr(int nr)
{
	struct cas_digest d;

	assert_int_equal(cas_hash_bytes(&nr, sizeof(nr), &d), 0);
	d.size = (uint64_t)nr + 1;
	return d;
}

static void push(struct meta_queue *q, enum meta_row_kind kind, int nr)
{
	struct cas_digest d = digest_nr(nr);
	struct meta_row *row = meta_row_new(kind, &d);

	assert_non_null(row);
	if (kind == META_ROW_BLOB) {
		row->has_stamp = true;
		row->stamp = (struct cas_stamp){(uint64_t)nr, d.size, 1, 2};
	}
	meta_queue_push(q, row);
}

static void keep(struct meta_queue *q, int nr)
{
	struct cas_digest d = digest_nr(nr);

	meta_queue_keep(q, meta_row_new(META_ROW_TREE, &d));
}

static int find(struct meta_queue *q, int nr, uint64_t *ino)
{
	struct cas_digest d = digest_nr(nr);
	struct cas_stamp stamp = {0};
	bool has_stamp;
	int ret = meta_queue_blob_find(q, d.hash, &has_stamp, &d, &stamp);

	*ino = stamp.ino;
	return ret;
}

static void test_flush_records_everything_in_order(void **state)
{
	struct recorder r;
	struct meta_queue *q = start(&r);

	for (int i = 0; i < 40000; i++)
		push(q, META_ROW_BLOB, i);
	assert_int_equal(meta_queue_flush(q, NULL), 0);
	assert_int_equal(atomic_load(&r.nr_rows), 40000);
	assert_true(atomic_load(&r.nr_flushes) >= 1);
	assert_true(r.ordered);
	meta_queue_free(q);
	assert_int_equal(atomic_load(&r.nr_lost), 0);
}

static void test_rows_are_recorded_without_a_flush(void **state)
{
	struct recorder r;
	struct meta_queue *q = start(&r);

	push(q, META_ROW_TOUCH, 1);
	for (int i = 0; i < 500 && atomic_load(&r.nr_rows) == 0; i++)
		(void)usleep(10000);
	assert_int_equal(atomic_load(&r.nr_rows), 1);
	assert_int_equal(atomic_load(&r.nr_flushes), 0);
	meta_queue_free(q);
}

static void test_end_records_what_is_left(void **state)
{
	struct recorder r;
	struct meta_queue *q = start(&r);

	for (int i = 0; i < 10; i++)
		push(q, META_ROW_TOUCH, i);
	meta_queue_free(q);
	assert_int_equal(atomic_load(&r.nr_rows), 10);
}

static void test_latest_row_is_found_until_recorded(void **state)
{
	struct recorder r;
	struct meta_queue *q = start(&r);
	uint64_t ino;

	(void)pthread_mutex_lock(&r.gate);
	push(q, META_ROW_BLOB, 1);
	assert_int_equal(find(q, 1, &ino), 1);
	assert_int_equal(ino, 1);
	assert_int_equal(find(q, 2, &ino), 0);
	push(q, META_ROW_TOUCH, 1);
	assert_int_equal(find(q, 1, &ino), 1);
	push(q, META_ROW_DROP, 1);
	assert_int_equal(find(q, 1, &ino), -ENOENT);
	push(q, META_ROW_BLOB, 1);
	assert_int_equal(find(q, 1, &ino), 1);
	(void)pthread_mutex_unlock(&r.gate);
	assert_int_equal(meta_queue_flush(q, NULL), 0);
	assert_int_equal(find(q, 1, &ino), 0);
	meta_queue_free(q);
}

static void test_failure_reaches_flush_and_is_forgotten_after(void **state)
{
	struct recorder r;
	struct meta_queue *q = start(&r);
	struct err err = {0};

	(void)pthread_mutex_lock(&r.gate);
	atomic_store(&r.ret, -ENOSPC);
	push(q, META_ROW_BLOB, 1);
	(void)pthread_mutex_unlock(&r.gate);
	/* Before the flush, so it is no part of what the flush waits for. */
	while (atomic_load(&r.nr_lost) == 0)
		(void)sched_yield();
	atomic_store(&r.ret, 0);
	assert_int_equal(meta_queue_flush(q, &err), -ENOSPC);
	assert_string_equal(err.msg, "the disk is full");
	assert_int_equal(meta_queue_flush(q, NULL), 0);
	push(q, META_ROW_BLOB, 2);
	assert_int_equal(meta_queue_flush(q, NULL), 0);
	meta_queue_free(q);
}

static void test_full_queue_drops_touches_and_keeps_blobs(void **state)
{
	enum { NR = 90000 };
	struct recorder r;
	struct meta_queue *q = start(&r);

	(void)pthread_mutex_lock(&r.gate);
	for (int i = 0; i < NR; i++)
		push(q, META_ROW_TOUCH, i);
	for (int i = 0; i < 1000; i++)
		push(q, META_ROW_BLOB, NR + i);
	(void)pthread_mutex_unlock(&r.gate);
	assert_int_equal(meta_queue_flush(q, NULL), 0);
	assert_int_equal(atomic_load(&r.nr_lost), 0);
	/* At most one batch was taken while the others came. */
	assert_in_range(atomic_load(&r.nr_rows), 65536 + 1000, 65536 + 16384 + 1000);
	assert_int_equal(r.last_size, NR + 1000);
	meta_queue_free(q);
}

static void test_lack_of_memory_counts_as_lost(void **state)
{
	struct recorder r;
	struct meta_queue *q = start(&r);

	meta_queue_push(q, NULL);
	assert_int_equal(atomic_load(&r.nr_lost), 1);
	assert_int_equal(meta_queue_flush(q, NULL), -ENOBUFS);
	assert_int_equal(meta_queue_flush(q, NULL), 0);
	meta_queue_free(q);
}

struct pusher {
	struct meta_queue *q;
	int from;
};

static void *push_many(void *arg)
{
	struct pusher *p = arg;

	for (int i = 0; i < 2000; i++) {
		uint64_t ino;

		push(p->q, i % 3 == 0 ? META_ROW_DROP : META_ROW_BLOB, p->from + i % 50);
		(void)find(p->q, p->from, &ino);
		if (i % 500 == 0)
			(void)meta_queue_flush(p->q, NULL);
	}
	return NULL;
}

static void test_many_threads_push_at_once(void **state)
{
	struct recorder r;
	struct meta_queue *q = start(&r);
	struct pusher p[4];
	pthread_t threads[4];

	for (int i = 0; i < 4; i++) {
		p[i] = (struct pusher){q, i % 2 * 25};
		assert_int_equal(pthread_create(&threads[i], NULL, push_many, &p[i]), 0);
	}
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	meta_queue_free(q);
	assert_int_equal(atomic_load(&r.nr_rows), 8000);
}

static void test_late_queue_writes_where_it_is_flushed(void **state)
{
	struct recorder r;
	struct meta_queue *q = start_as(&r, true);

	keep(q, 1);
	keep(q, 2);
	(void)usleep(100000);
	assert_int_equal(atomic_load(&r.nr_rows), 0);
	assert_int_equal(meta_queue_flush(q, NULL), 0);
	assert_int_equal(atomic_load(&r.nr_rows), 2);
	assert_int_equal(atomic_load(&r.nr_flushes), 1);
	assert_true(pthread_equal(r.writer, pthread_self()));
	keep(q, 3);
	meta_queue_free(q);
	assert_int_equal(atomic_load(&r.nr_rows), 3);
	assert_int_equal(atomic_load(&r.nr_flushes), 1);
	assert_true(pthread_equal(r.writer, pthread_self()));
	assert_true(r.ordered);
}

static void test_late_queue_gets_a_thread_for_what_should_not_wait(void **state)
{
	struct recorder r;
	struct meta_queue *q = start_as(&r, true);

	keep(q, 1);
	push(q, META_ROW_BLOB, 2);
	for (int i = 0; i < 500 && atomic_load(&r.nr_rows) < 2; i++)
		(void)usleep(10000);
	assert_int_equal(atomic_load(&r.nr_rows), 2);
	assert_false(pthread_equal(r.writer, pthread_self()));
	assert_int_equal(meta_queue_flush(q, NULL), 0);
	assert_false(pthread_equal(r.writer, pthread_self()));
	assert_true(r.ordered);
	meta_queue_free(q);
}

static void *flush_often(void *arg)
{
	struct meta_queue *q = arg;

	for (int i = 0; i < 500; i++) {
		keep(q, i);
		assert_int_equal(meta_queue_flush(q, NULL), 0);
	}
	return NULL;
}

static void test_late_queue_is_flushed_by_many_at_once(void **state)
{
	struct recorder r;
	struct meta_queue *q = start_as(&r, true);
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, flush_often, q), 0);
	for (int i = 0; i < 250; i++)
		push(q, META_ROW_TOUCH, i);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_int_equal(meta_queue_flush(q, NULL), 0);
	assert_int_equal(atomic_load(&r.nr_rows), 2250);
	meta_queue_free(q);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_flush_records_everything_in_order),
		cmocka_unit_test(test_rows_are_recorded_without_a_flush),
		cmocka_unit_test(test_end_records_what_is_left),
		cmocka_unit_test(test_latest_row_is_found_until_recorded),
		cmocka_unit_test(test_failure_reaches_flush_and_is_forgotten_after),
		cmocka_unit_test(test_full_queue_drops_touches_and_keeps_blobs),
		cmocka_unit_test(test_lack_of_memory_counts_as_lost),
		cmocka_unit_test(test_many_threads_push_at_once),
		cmocka_unit_test(test_late_queue_writes_where_it_is_flushed),
		cmocka_unit_test(test_late_queue_gets_a_thread_for_what_should_not_wait),
		cmocka_unit_test(test_late_queue_is_flushed_by_many_at_once),
	};

	log_set_sink(sink_nothing, NULL);
	return cmocka_run_group_tests_name("meta_queue", tests, NULL, NULL);
}
