/* tests/unit/test_fs_crew.c - work that is shared is done once, and done when it returns */
#include "tests/lib/tests.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "fs/capture/crew.h"

#define NR_ITEMS 500

struct tally {
	_Atomic int nr[NR_ITEMS];
};

static void count_item(void *ctx, size_t i)
{
	struct tally *t = ctx;

	if (i % 50 == 0)
		(void)usleep(100);
	atomic_fetch_add(&t->nr[i], 1);
}

static void assert_once(struct tally *t, size_t nr)
{
	for (size_t i = 0; i < NR_ITEMS; i++)
		assert_int_equal(atomic_load(&t->nr[i]), i < nr ? 1 : 0);
}

static void test_each_item_is_done_once(void **state)
{
	static const size_t numbers[] = {0, 1, 2, 3, 7, NR_ITEMS};
	struct fs_crew *crew = NULL;

	assert_int_equal(fs_crew_new(&crew, NULL), 0);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		struct tally with = {0};
		struct tally alone = {0};

		fs_crew_run(crew, numbers[i], count_item, &with);
		assert_once(&with, numbers[i]);
		fs_crew_run(NULL, numbers[i], count_item, &alone);
		assert_once(&alone, numbers[i]);
	}
	fs_crew_free(crew);
	fs_crew_free(NULL);
}

static void *bring_work(void *arg)
{
	for (int i = 0; i < 50; i++) {
		struct tally t = {0};

		fs_crew_run(arg, NR_ITEMS, count_item, &t);
		assert_once(&t, NR_ITEMS);
	}
	return NULL;
}

/* Each finds his own done, whoever else has work. */
static void test_many_may_bring_work(void **state)
{
	struct fs_crew *crew = NULL;
	pthread_t threads[6];

	assert_int_equal(fs_crew_new(&crew, NULL), 0);
	for (int i = 0; i < 6; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, bring_work, crew), 0);
	for (int i = 0; i < 6; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	fs_crew_free(crew);
}

static void count_loan(void *ctx)
{
	(void)usleep(100);
	atomic_fetch_add((_Atomic int *)ctx, 1);
}

/* Lent and given back: it was called once, or not at all, and never later. */
static void test_what_is_lent_is_over_when_returned(void **state)
{
	struct fs_crew *crew = NULL;

	assert_int_equal(fs_crew_new(&crew, NULL), 0);
	for (int i = 0; i < 200; i++) {
		_Atomic int nr = 0;
		struct fs_crew_loan *loan = fs_crew_lend(crew, count_loan, &nr);
		bool called;

		if (i % 2)
			(void)usleep(50);
		called = fs_crew_return(crew, loan);
		assert_int_equal(atomic_load(&nr), called ? 1 : 0);
	}
	assert_null(fs_crew_lend(NULL, count_loan, NULL));
	assert_false(fs_crew_return(NULL, NULL));
	fs_crew_free(crew);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_item_is_done_once),
		cmocka_unit_test(test_many_may_bring_work),
		cmocka_unit_test(test_what_is_lent_is_over_when_returned),
	};

	return cmocka_run_group_tests_name("fs_crew", tests, NULL, NULL);
}
