/* tests/unit/test_fs_spin.c - looking before sleeping ends, and never hides a request */
#include "tests/lib/tests.h"

#include <unistd.h>

#include "fs/serve/spin.h"

struct fixture {
	struct fs_spin spin;
	struct fs_spin_self self;
	int fd[2];
};

static void begin(struct fixture *f, bool off)
{
	*f = (struct fixture){0};
	fs_spin_init(&f->spin, off);
	assert_int_equal(pipe(f->fd), 0);
}

static void end(struct fixture *f)
{
	fs_spin_fini(&f->spin);
	(void)close(f->fd[0]);
	(void)close(f->fd[1]);
}

static void test_off_is_off(void **state)
{
	struct fixture f;

	begin(&f, true);
	assert_true(f.spin.off);
	for (int i = 0; i < 10; i++) {
		fs_spin_before(&f.spin, &f.self, f.fd[0]);
		fs_spin_after(&f.spin, &f.self);
	}
	assert_int_equal(f.self.credit, 0);
	end(&f);
}

/* Whatever the load: nothing comes, and then he sleeps. */
static void test_looking_in_vain_costs_credit(void **state)
{
	struct fixture f;

	begin(&f, false);
	f.self.credit = 2;
	fs_spin_before(&f.spin, &f.self, f.fd[0]);
	fs_spin_before(&f.spin, &f.self, f.fd[0]);
	assert_true(f.spin.off || f.self.credit <= 0);
	assert_false(f.spin.taken);
	end(&f);
}

static void test_one_thread_looks_at_a_time(void **state)
{
	struct fixture f;

	begin(&f, false);
	f.spin.taken = true;
	f.self.credit = 2;
	f.self.nr_looks = 1; /* not at the load */
	fs_spin_before(&f.spin, &f.self, f.fd[0]);
	assert_int_equal(f.self.credit, 2);
	assert_true(f.spin.taken);
	end(&f);
}

static void test_finding_one_earns_more(void **state)
{
	struct fixture f;

	begin(&f, false);
	assert_int_equal(write(f.fd[1], "x", 1), 1);
	f.self.credit = 1;
	f.self.nr_looks = 1;
	fs_spin_before(&f.spin, &f.self, f.fd[0]);
	assert_true(f.spin.off || f.self.credit > 1);
	end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_off_is_off),
		cmocka_unit_test(test_looking_in_vain_costs_credit),
		cmocka_unit_test(test_one_thread_looks_at_a_time),
		cmocka_unit_test(test_finding_one_earns_more),
	};

	return cmocka_run_group_tests_name("fs_spin", tests, NULL, NULL);
}
