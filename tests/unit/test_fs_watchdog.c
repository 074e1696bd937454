/* tests/unit/test_fs_watchdog.c - a mount that nobody serves gets its connection broken */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/fs.h"
#include "fs/helper/helper.h"
#include "fs/mount/detach.h"
#include "fs/mount/mountfd.h"
#include "fs/mount/watchdog.h"

#define DEADLINE_NS 20000000000ULL

/* A mount namespace of our own, where we may mount; skips the test otherwise. */
static int namespace_setup(void **state)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    access("/dev/fuse", R_OK | W_OK) < 0) {
		*state = NULL;
		return 0;
	}
	return tests_dir_setup(state);
}

static int namespace_teardown(void **state)
{
	if (!*state)
		return 0;
	(void)umount2(tests_path(*state, "mnt"), MNT_DETACH);
	return tests_dir_teardown(state);
}

static void mount_at(const char *path, struct fs_mount *mount)
{
	struct err err = {0};
	int ret = fs_mount_new(false, false, mount, &err);

	if (ret == -EPERM)
		skip();
	assert_int_equal(ret, 0);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(fs_mount_attach(mount, path, &err), 0);
	(void)close(mount->mount_fd);
}

static void on_wedged(void *ctx)
{
	atomic_store((_Atomic bool *)ctx, true);
}

/* A mount that nobody serves, and who watches it. */
struct watched {
	_Atomic bool wedged;
	struct fs_helper *helper;
	struct fs_watchdog *dog;
	struct fs_mount mount;
};

static void watch(char *dir, unsigned period_ms, unsigned timeout_ms, struct watched *w)
{
	struct fs_watchdog_options opts = {
		.period_ms = period_ms,
		.timeout_ms = timeout_ms,
		.wedged = on_wedged,
		.ctx = &w->wedged,
	};

	if (!dir)
		skip();
	*w = (struct watched){.wedged = false};
	/* Before the mount, as a daemon does: the helper holds no descriptor of it. */
	assert_int_equal(fs_helper_new(NULL, &w->helper, NULL), 0);
	mount_at(tests_path(dir, "mnt"), &w->mount);
	opts.helper = w->helper;
	opts.paths[0] = tests_path(dir, "mnt");
	opts.devs[0] = w->mount.dev;
	assert_int_equal(fs_watchdog_new(&opts, &w->dog), 0);
}

static void test_mount_that_nobody_serves_is_aborted(void **state)
{
	struct watched w;
	struct stat st;
	unsigned long long end = lock_now_ns() + DEADLINE_NS;

	watch(*state, 20, 200, &w);
	/* A user: in the kernel, without an answer, until the connection breaks. */
	assert_int_equal(stat(tests_path(*state, "mnt/x"), &st), -1);
	assert_true(errno == ENOTCONN || errno == ECONNABORTED);
	while (!atomic_load(&w.wedged) && lock_now_ns() < end)
		(void)usleep(1000);
	assert_true(atomic_load(&w.wedged));
	fs_watchdog_free(w.dog);
	fs_helper_free(w.helper);
	(void)close(w.mount.dev_fd);
}

static void test_dead_mounts_are_detached_until_none_is_left(void **state)
{
	const char *path = *state ? tests_path(*state, "mnt") : NULL;
	struct fs_mount first;
	struct fs_mount second;

	if (!path)
		skip();
	mount_at(path, &first);
	assert_int_equal(fs_mount_new(false, false, &second, NULL), 0);
	(void)close(first.dev_fd);
	assert_int_equal(fs_mounts_at(path, 0), 1);
	assert_int_equal(fs_mount_attach(&second, path, NULL), 0);
	(void)close(second.mount_fd);
	(void)close(second.dev_fd);
	assert_int_equal(fs_mounts_at(path, 0), 2);
	assert_int_equal(fs_mounts_at(path, second.dev), 1);
	assert_int_equal(fs_detach_dead(path, NULL), 2);
	assert_int_equal(fs_mounts_at(path, 0), 0);
	assert_int_equal(fs_detach_dead(path, NULL), 0);
	assert_int_equal(fs_detach_dead(tests_path(*state, "no/such/place"), NULL), 0);
	assert_int_equal(rmdir(path), 0);
}

/* Its daemon is stopped: nobody answers, and nobody may wait for that. */
static void test_a_mount_without_an_answer_is_told_and_left_alone(void **state)
{
	const char *path = *state ? tests_path(*state, "mnt") : NULL;
	const char *link = *state ? tests_path(*state, "link") : NULL;
	struct fs_mount mount;
	struct err err = {0};

	if (!path)
		skip();
	mount_at(path, &mount);
	assert_int_equal(fs_detach_dead(path, &err), -ETIMEDOUT);
	assert_non_null(strstr(err.msg, "does not answer"));
	assert_int_equal(fs_mounts_at(path, 0), 1);
	/* Dead, and reached by symlinks: relative to themselves, and absolute. */
	(void)close(mount.dev_fd);
	assert_int_equal(symlink("link2", link), 0);
	assert_int_equal(symlink(path, tests_path(*state, "link2")), 0);
	assert_int_equal(fs_detach_dead(link, &err), 1);
	assert_int_equal(fs_mounts_at(path, 0), 0);
	assert_int_equal(fs_detach_dead(link, &err), 0);
	assert_int_equal(unlink(tests_path(*state, "link2")), 0);
	assert_int_equal(symlink("link", tests_path(*state, "link2")), 0);
	assert_int_equal(fs_detach_dead(link, &err), -ELOOP);
}

/* It is asking a mount that does not answer: the end does not wait for that. */
static void test_ending_does_not_wait_for_an_answer(void **state)
{
	struct watched w;

	watch(*state, 1, 3600000, &w);
	(void)usleep(100000);
	/* An hour, or the time limit of the test. */
	fs_watchdog_free(w.dog);
	assert_false(atomic_load(&w.wedged));
	(void)close(w.mount.dev_fd);
	fs_helper_free(w.helper);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_mount_that_nobody_serves_is_aborted,
						namespace_setup, namespace_teardown),
		cmocka_unit_test_setup_teardown(test_dead_mounts_are_detached_until_none_is_left,
						namespace_setup, namespace_teardown),
		cmocka_unit_test_setup_teardown(
			test_a_mount_without_an_answer_is_told_and_left_alone, namespace_setup,
			namespace_teardown),
		cmocka_unit_test_setup_teardown(test_ending_does_not_wait_for_an_answer,
						namespace_setup, namespace_teardown),
	};

	if (argc > 1 && strcmp(argv[1], "internal-helper") == 0)
		return fs_helper_main(3);
	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("fs_watchdog", tests, NULL, NULL);
}
