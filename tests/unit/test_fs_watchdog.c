/* tests/unit/test_fs_watchdog.c - a mount that nobody serves gets its connection broken */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
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

/* --- a daemon that was killed while it waited for itself --- */

struct hung {
	struct fs_mount mount;
	int ready;
};

static void reply(const struct hung *h, uint64_t unique, int error, const void *data, size_t len)
{
	struct fuse_out_header head = {
		.len = (uint32_t)(sizeof(head) + len), .error = error, .unique = unique};
	struct iovec iov[] = {{&head, sizeof(head)}, {(void *)data, len}};

	(void)!writev(h->mount.dev_fd, iov, 2);
}

/* Take a name from the directory in which one is being looked up. */
static void take_name(const struct hung *h)
{
	const struct fuse_notify_inval_entry_out out = {.parent = FUSE_ROOT_ID, .namelen = 1};
	uint8_t note[sizeof(out) + 2];

	(void)memcpy(note, &out, sizeof(out));
	(void)memcpy(note + sizeof(out), "x", 2);
	(void)!write(h->ready, "r", 1);
	reply(h, 0, FUSE_NOTIFY_INVAL_ENTRY, note, sizeof(note));
}

/* The only thread that serves. */
static void *serve(void *ctx)
{
	const struct hung *h = ctx;
	static _Alignas(16) char request[1 << 18];
	const struct fuse_in_header *in = (const void *)request;
	const struct fuse_init_out init = {
		.major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 1 << 16};
	const struct fuse_attr_out attr = {.attr_valid = 1000,
					   .attr = {.ino = 1, .mode = S_IFDIR | 0755, .nlink = 2}};

	while (read(h->mount.dev_fd, request, sizeof(request)) > 0) {
		if (in->opcode == FUSE_INIT)
			reply(h, in->unique, 0, &init, sizeof(init));
		else if (in->opcode == FUSE_GETATTR)
			reply(h, in->unique, 0, &attr, sizeof(attr));
		else if (in->opcode == FUSE_LOOKUP)
			take_name(h);
		else
			reply(h, in->unique, -ENOSYS, NULL, 0);
	}
	return NULL;
}

/* Mounts, tells so by @ready, and once more when a name is looked up. */
static void hung_daemon(const char *path, int ready)
{
	struct hung h = {.ready = ready};
	struct fs_helper *helper;
	pthread_t thread;
	bool good = fs_helper_new(NULL, &helper, NULL) == 0 &&
		    fs_mount_new(false, false, &h.mount, NULL) == 0 &&
		    fs_helper_attach(helper, h.mount.mount_fd, path, NULL) == 0 &&
		    pthread_create(&thread, NULL, serve, &h) == 0;

	(void)!write(ready, good ? "r" : "s", 1);
	(void)pause();
	_exit(1);
}

static bool await_exit(pid_t pid, int *status)
{
	unsigned long long end = lock_now_ns() + DEADLINE_NS;

	while (waitpid(pid, status, WNOHANG) != pid) {
		if (lock_now_ns() > end)
			return false;
		(void)usleep(1000);
	}
	return true;
}

static void test_a_killed_daemon_that_waits_for_itself_dies(void **state)
{
	const char *path = *state ? tests_path(*state, "mnt") : NULL;
	int ready[2];
	pid_t daemon;
	pid_t user;
	int status;
	char c;

	if (!path)
		skip();
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	daemon = fork();
	assert_true(daemon >= 0);
	if (daemon == 0)
		hung_daemon(path, ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	if (c == 's') {
		(void)kill(daemon, SIGKILL);
		(void)waitpid(daemon, NULL, 0);
		skip();
	}
	user = fork();
	assert_true(user >= 0);
	if (user == 0) {
		struct stat st;

		_exit(stat(tests_path(*state, "mnt/x"), &st) < 0 &&
				      (errno == ENOTCONN || errno == ECONNABORTED)
			      ? 0
			      : 1);
	}
	assert_int_equal(read(ready[0], &c, 1), 1);
	/* It waits soon, and dies at once when it does not yet. */
	(void)usleep(300000);
	assert_int_equal(kill(daemon, SIGKILL), 0);
	assert_true(await_exit(daemon, &status));
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_true(await_exit(user, &status));
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	(void)close(ready[0]);
	(void)close(ready[1]);
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
		cmocka_unit_test_setup_teardown(test_a_killed_daemon_that_waits_for_itself_dies,
						namespace_setup, namespace_teardown),
	};

	if (argc > 1 && strcmp(argv[1], "internal-helper") == 0)
		return fs_helper_main();
	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("fs_watchdog", tests, NULL, NULL);
}
