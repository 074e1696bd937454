/* tests/unit/test_cas_fetch.c - downloads that are begun, wanted and left at the same time */
#include "tests/lib/tests.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>

#include "cas/base/err.h"
#include "cas/base/log.h"
#include "cas/fetch/fetch_i.h"
#include "cas/hash.h"
#include "cas/store/store.h"
#include "tests/lib/store.h"

static void no_log(void *ctx, enum log_level level, const char *line)
{
}

struct waiting {
	struct cas_fetch_waiter waiter; /* first */
	_Atomic int nr_done;
	int ret;
};

static void done(struct cas_fetch_waiter *waiter, int ret, const struct err *why)
{
	struct waiting *w = (struct waiting *)waiter;

	w->ret = ret;
	(void)atomic_fetch_add(&w->nr_done, 1);
}

static struct cas_fetch *open_fetch(const char *dir, struct cas_store *store)
{
	char url[300];
	const char *const urls[] = {url};
	struct cas_fetch *fetch = NULL;
	struct err err = {0};

	assert_int_equal(mkdir(tests_path(dir, "tier"), 0755), 0);
	(void)snprintf(url, sizeof(url), "file://%s", tests_path(dir, "tier"));
	if (cas_fetch_open(store, urls, 1, &fetch, &err) < 0)
		fail_msg("%s", err.msg);
	return fetch;
}

/* Whether a thread has just taken it from its queue or not, each waiter is told once. */
static void test_wanted_while_a_thread_takes_it(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_fetch *fetch = open_fetch(*state, store);
	struct cas_fetch_stats stats;

	for (unsigned i = 0; i < 20000; i++) {
		struct waiting w = {.waiter.done = done, .ret = 1};
		struct waiting ahead = {.waiter.done = done, .ret = 1};
		struct cas_digest d;
		bool left;

		assert_int_equal(cas_hash_bytes(&i, sizeof(i), &d), 0);
		assert_int_equal(cas_fetch_begin_ahead(fetch, &d, &ahead.waiter), 0);
		/* From at once to a little later. */
		for (unsigned spin = 0; spin < 40 * (i % 64); spin++)
			__asm__ volatile("");
		assert_int_equal(cas_fetch_begin(fetch, &d, &w.waiter), 0);
		left = i % 2 && cas_fetch_leave(fetch, &w.waiter);
		while (!left && atomic_load(&w.nr_done) == 0)
			(void)sched_yield();
		assert_int_equal(w.nr_done, left ? 0 : 1);
		assert_int_equal(w.ret, left ? 1 : -ENOENT);
		while (atomic_load(&ahead.nr_done) == 0)
			(void)sched_yield();
		assert_int_equal(ahead.ret, -ENOENT);
	}
	cas_fetch_stats(fetch, &stats);
	assert_true(stats.nr_asked >= 20000);
	cas_fetch_close(fetch);
	cas_store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_wanted_while_a_thread_takes_it),
	};

	log_set_sink(no_log, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
