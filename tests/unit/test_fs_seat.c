/* tests/unit/test_fs_seat.c - a stream is served where it comes from, by one, until it ends */
#include "tests/lib/tests.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/serve/seat.h"

#define PATIENCE_NS 20000000000ULL
#define NEVER_ASKS  3000 /* enough for a hundred streams */

struct fixture {
	struct fs_seat *seat;
	int fd[2];
	cpu_set_t own;
	pthread_t waiter;
	pthread_t staff;
	pthread_t guest;
	bool has_guest;
	int guest_cpu;
	_Atomic pid_t waiter_tid;
	_Atomic int nr_served;	   /* by the staff */
	_Atomic bool guest_leaves; /* no more requests */
	_Atomic bool ending;
};

static void *be_waiter(void *arg)
{
	struct fixture *f = arg;

	atomic_store(&f->waiter_tid, gettid());
	fs_seat_enter(f->seat);
	while (!atomic_load(&f->ending)) {
		fs_seat_before(f->seat, FS_SEAT_WAITER);
		(void)usleep(50);
	}
	fs_seat_close(f->seat);
	return NULL;
}

static void *be_staff(void *arg)
{
	struct fixture *f = arg;

	while (!atomic_load(&f->ending)) {
		fs_seat_before(f->seat, FS_SEAT_STAFF);
		(void)atomic_fetch_add(&f->nr_served, 1);
		(void)usleep(50);
	}
	return NULL;
}

static void sit_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((unsigned)cpu, &set);
	assert_int_equal(sched_setaffinity(0, sizeof(set), &set), 0);
}

static void ask(struct fs_seat *seat, pid_t tid, bool bulk)
{
	fs_seat_asked(seat, (uint32_t)tid, bulk);
	fs_seat_answered(seat);
}

static void *be_guest(void *arg)
{
	struct fixture *f = arg;

	sit_on(f->guest_cpu);
	while (!atomic_load(&f->guest_leaves)) {
		for (int i = 0; i < 20; i++)
			ask(f->seat, gettid(), false);
		(void)usleep(20);
	}
	return NULL;
}

static void guest_comes(struct fixture *f, int cpu)
{
	f->guest_cpu = cpu;
	atomic_store(&f->guest_leaves, false);
	assert_int_equal(pthread_create(&f->guest, NULL, be_guest, f), 0);
	f->has_guest = true;
}

static void guest_goes(struct fixture *f)
{
	atomic_store(&f->guest_leaves, true);
	if (f->has_guest)
		(void)pthread_join(f->guest, NULL);
	f->has_guest = false;
}

static int setup_seat(void **state, bool heedless)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct fs_seat_options opts = {.name = "test", .heedless = heedless};

	assert_non_null(f);
	assert_int_equal(pipe(f->fd), 0);
	assert_int_equal(sched_getaffinity(0, sizeof(f->own), &f->own), 0);
	opts.fd = f->fd[0];
	if (CPU_COUNT(&f->own) > 1)
		assert_int_equal(fs_seat_new(&opts, &f->seat), 0);
	if (f->seat) {
		assert_int_equal(pthread_create(&f->waiter, NULL, be_waiter, f), 0);
		assert_int_equal(pthread_create(&f->staff, NULL, be_staff, f), 0);
	}
	*state = f;
	return 0;
}

static int setup_heedless(void **state)
{
	return setup_seat(state, true);
}

static int setup_heedful(void **state)
{
	return setup_seat(state, false);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	guest_goes(f);
	atomic_store(&f->ending, true);
	fs_seat_close(f->seat);
	if (f->seat) {
		(void)pthread_join(f->waiter, NULL);
		(void)pthread_join(f->staff, NULL);
	}
	fs_seat_free(f->seat);
	(void)close(f->fd[0]);
	(void)close(f->fd[1]);
	free(f);
	return 0;
}

/* The fixture; skips where there are no two processors. */
static struct fixture *begin(void **state)
{
	struct fixture *f = *state;

	if (!f->seat)
		skip();
	return f;
}

static bool sits(const struct fixture *f, const cpu_set_t *where)
{
	cpu_set_t set;
	pid_t tid = atomic_load(&f->waiter_tid);

	return tid != 0 && sched_getaffinity(tid, sizeof(set), &set) == 0 && CPU_EQUAL(&set, where);
}

static void await_place(const struct fixture *f, const cpu_set_t *where, bool taken)
{
	unsigned long long end = lock_now_ns() + PATIENCE_NS;

	while (fs_seat_is_taken(f->seat) != taken || !sits(f, where)) {
		assert_true(lock_now_ns() < end);
		(void)usleep(500);
	}
}

static void await_staff(struct fixture *f)
{
	unsigned long long end = lock_now_ns() + PATIENCE_NS;
	int before = atomic_load(&f->nr_served);

	while (atomic_load(&f->nr_served) < before + 3) {
		assert_true(lock_now_ns() < end);
		(void)usleep(500);
	}
}

static void await_staff_stands_by(struct fixture *f)
{
	unsigned long long end = lock_now_ns() + PATIENCE_NS;
	int nr;

	do {
		assert_true(lock_now_ns() < end);
		nr = atomic_load(&f->nr_served);
		(void)usleep(20000);
	} while (atomic_load(&f->nr_served) != nr || !fs_seat_is_taken(f->seat));
}

static void test_waiter_sits_where_the_stream_comes_from(void **state)
{
	struct fixture *f = begin(state);

	for (int cpu = 0, nr = 0; cpu < CPU_SETSIZE && nr < 3; cpu++) {
		cpu_set_t there;

		if (!CPU_ISSET((unsigned)cpu, &f->own))
			continue;
		nr++;
		CPU_ZERO(&there);
		CPU_SET((unsigned)cpu, &there);
		guest_comes(f, cpu);
		await_place(f, &there, true);
		await_staff_stands_by(f);
		assert_int_equal(sched_getscheduler(atomic_load(&f->waiter_tid)), SCHED_IDLE);
		guest_goes(f);
		await_place(f, &f->own, false);
		await_staff(f);
		if (geteuid() == 0)
			assert_int_equal(sched_getscheduler(atomic_load(&f->waiter_tid)),
					 sched_getscheduler(0));
	}
}

/* Asks as often as would do for many streams; none begins. */
static void assert_never(struct fixture *f, bool two, bool bulk)
{
	for (int i = 0; i < NEVER_ASKS; i++) {
		ask(f->seat, two && i % 2 ? 1 : gettid(), bulk);
		if (i % 20 == 0)
			(void)usleep(100);
		assert_false(fs_seat_is_taken(f->seat));
	}
	assert_true(sits(f, &f->own));
}

static void test_two_who_take_turns_are_no_stream(void **state)
{
	struct fixture *f = begin(state);

	await_place(f, &f->own, false);
	assert_never(f, true, false);
}

static void test_large_pieces_are_no_stream(void **state)
{
	struct fixture *f = begin(state);

	await_place(f, &f->own, false);
	assert_never(f, false, true);
}

static void *run_hot(void *arg)
{
	const _Atomic bool *stop = arg;

	while (!atomic_load(stop))
		continue;
	return NULL;
}

static void test_no_stream_while_no_processor_is_free(void **state)
{
	struct fixture *f = begin(state);
	int nr = CPU_COUNT(&f->own);
	pthread_t *hot = calloc((size_t)nr, sizeof(*hot));
	_Atomic bool stop = false;

	assert_non_null(hot);
	await_place(f, &f->own, false);
	for (int i = 0; i < nr; i++)
		assert_int_equal(pthread_create(&hot[i], NULL, run_hot, &stop), 0);
	assert_never(f, false, false);
	atomic_store(&stop, true);
	for (int i = 0; i < nr; i++)
		(void)pthread_join(hot[i], NULL);
	free(hot);
}

static pid_t find_thread(const char *name)
{
	DIR *dir = opendir("/proc/self/task");
	const struct dirent *d;
	pid_t tid = 0;

	assert_non_null(dir);
	while (!tid && (d = readdir(dir)) != NULL) {
		auto_buf struct buf text = {0};
		char path[300];

		(void)snprintf(path, sizeof(path), "/proc/self/task/%s/comm", d->d_name);
		if (io_read_file(AT_FDCWD, path, 64, &text) == 0 &&
		    strncmp(buf_str(&text), name, strlen(name)) == 0)
			tid = (pid_t)strtol(d->d_name, NULL, 10);
	}
	(void)closedir(dir);
	return tid;
}

/* What somebody tells the process with taskset -a holds. */
static void test_usher_keeps_to_what_it_was_given(void **state)
{
	struct fixture *f = begin(state);
	pid_t usher = find_thread("usher-test");
	cpu_set_t one;
	int cpu = 0;

	await_place(f, &f->own, false);
	assert_true(usher > 0);
	while (!CPU_ISSET((unsigned)cpu, &f->own))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET((unsigned)cpu, &one);
	assert_int_equal(sched_setaffinity(usher, sizeof(one), &one), 0);
	assert_int_equal(sched_setaffinity(atomic_load(&f->waiter_tid), sizeof(one), &one), 0);
	for (int i = 0; i < NEVER_ASKS; i++) {
		ask(f->seat, gettid(), false);
		assert_false(fs_seat_is_taken(f->seat));
	}
	assert_true(sits(f, &one));
	assert_int_equal(sched_setaffinity(usher, sizeof(f->own), &f->own), 0);
	guest_comes(f, cpu);
	await_place(f, &one, true);
	guest_goes(f);
	await_place(f, &f->own, false);
}

static void *make_on_one(void *arg)
{
	struct fs_seat_options opts = {.name = "one", .fd = *(int *)arg};
	struct fs_seat *seat = NULL;

	sit_on(sched_getcpu());
	assert_int_equal(fs_seat_new(&opts, &seat), -ENOENT);
	assert_null(seat);
	return NULL;
}

static void test_one_processor_has_no_seat(void **state)
{
	struct fixture *f = *state;
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, make_on_one, &f->fd[0]), 0);
	(void)pthread_join(thread, NULL);
}

static void test_close_relieves_everybody(void **state)
{
	struct fixture *f = begin(state);
	cpu_set_t there;
	int cpu = 0;

	while (!CPU_ISSET((unsigned)cpu, &f->own))
		cpu++;
	CPU_ZERO(&there);
	CPU_SET((unsigned)cpu, &there);
	guest_comes(f, cpu);
	await_place(f, &there, true);
	fs_seat_close(f->seat);
	assert_false(fs_seat_is_taken(f->seat));
	assert_true(sits(f, &f->own));
	await_staff(f);
}

static void test_nothing_is_needed(void **state)
{
	fs_seat_before(NULL, FS_SEAT_STAFF);
	ask(NULL, 1, false);
	assert_false(fs_seat_is_taken(NULL));
	fs_seat_close(NULL);
	fs_seat_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_waiter_sits_where_the_stream_comes_from,
						setup_heedless, teardown),
		cmocka_unit_test_setup_teardown(test_two_who_take_turns_are_no_stream,
						setup_heedless, teardown),
		cmocka_unit_test_setup_teardown(test_large_pieces_are_no_stream, setup_heedless,
						teardown),
		cmocka_unit_test_setup_teardown(test_no_stream_while_no_processor_is_free,
						setup_heedful, teardown),
		cmocka_unit_test_setup_teardown(test_usher_keeps_to_what_it_was_given,
						setup_heedless, teardown),
		cmocka_unit_test_setup_teardown(test_one_processor_has_no_seat, setup_heedless,
						teardown),
		cmocka_unit_test_setup_teardown(test_close_relieves_everybody, setup_heedless,
						teardown),
		cmocka_unit_test(test_nothing_is_needed),
	};

	return cmocka_run_group_tests_name("fs_seat", tests, NULL, NULL);
}
