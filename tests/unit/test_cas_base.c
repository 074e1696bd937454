/* tests/unit/test_cas_base.c - errors, buffers, file helpers */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/mountinfo.h"
#include "cas/base/process.h"

static void test_err_context_keeps_the_origin(void **state)
{
	struct err err = {0};

	assert_int_equal(err_set(&err, -ENOENT, "blob %s is in no tier", "abc"), -ENOENT);
	assert_int_equal(err_context(&err, -ENOENT, "cannot read %s", "x"), -ENOENT);
	assert_string_equal(err.msg, "cannot read x: blob abc is in no tier");
	assert_string_equal(err_name(-ENOENT), "ENOENT");
}

static void test_err_text_without_a_message_explains_the_code(void **state)
{
	struct err err = {0};

	assert_string_equal(err_text(&err, -EACCES), "Permission denied");
}

static void test_buf_grows_and_terminates(void **state)
{
	auto_buf struct buf b = {0};

	assert_string_equal(buf_str(&b), "");
	for (int i = 0; i < 1000; i++)
		assert_int_equal(buf_printf(&b, "%d,", i % 10), 0);
	assert_int_equal(b.len, 2000);
	assert_int_equal(strlen(b.data), 2000);
	assert_int_equal(buf_reserve(&b, SIZE_MAX), -ENOMEM);
	assert_int_equal(b.len, 2000);
}

static void test_replace_file_leaves_no_temporary(void **state)
{
	auto_buf struct buf b = {0};
	struct stat st;

	for (int i = 0; i < 2; i++) {
		int fd = open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		assert_int_equal(io_replace_file(fd, "f", i ? "two" : "one", 3, 0444, i), 0);
		buf_reset(&b);
		assert_int_equal(io_read_file(fd, "f", 3, &b), 0);
		assert_string_equal(buf_str(&b), i ? "two" : "one");
		assert_int_equal(fstatat(fd, "f", &st, 0), 0);
		assert_int_equal(st.st_mode & 07777, 0444);
		assert_int_equal(io_read_file(fd, "f", 2, &b), -EFBIG);
		(void)close(fd);
	}
	assert_int_equal(tests_count_names(*state), 1);
}

static void test_remove_tree_does_not_follow_links_and_takes_locked_directories(void **state)
{
	struct stat st;

	tests_write_file(tests_path(*state, "outside/keep"), "x", 1, 0400);
	tests_write_file(tests_path(*state, "t/a/b/f"), "x", 1, 0444);
	assert_int_equal(symlink("../../outside", tests_path(*state, "t/a/link")), 0);
	assert_int_equal(symlink("gone", tests_path(*state, "t/dangling")), 0);
	assert_int_equal(chmod(tests_path(*state, "t/a/b"), 0), 0);
	assert_int_equal(io_remove_tree(AT_FDCWD, tests_path(*state, "t"), NULL), 0);
	assert_int_equal(stat(tests_path(*state, "outside/keep"), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0400);
	assert_int_equal(tests_count_names(*state), 1);
	assert_int_equal(io_remove_tree(AT_FDCWD, tests_path(*state, "t"), NULL), 0);
}

/* Of the same filesystem, too: a bind mount shows what is somebody else's. */
static void test_remove_tree_stops_at_a_mount_point(void **state)
{
	const char *kept = tests_path(*state, "kept");
	const char *at = tests_path(*state, "t/at");
	struct stat st;

	assert_int_equal(mkdir(kept, 0755), 0);
	tests_write_file(tests_path(*state, "kept/file"), "x", 1, 0644);
	assert_int_equal(mkdir(tests_path(*state, "t"), 0755), 0);
	assert_int_equal(mkdir(at, 0755), 0);
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount(kept, at, NULL, MS_BIND, NULL) < 0)
		skip();
	assert_int_equal(io_remove_tree(AT_FDCWD, tests_path(*state, "t"), NULL), -EXDEV);
	assert_int_equal(io_remove_tree(AT_FDCWD, at, NULL), -EXDEV);
	assert_int_equal(stat(tests_path(*state, "kept/file"), &st), 0);
	assert_int_equal(umount(at), 0);
	assert_int_equal(io_remove_tree(AT_FDCWD, tests_path(*state, "t"), NULL), 0);
	assert_int_equal(stat(tests_path(*state, "kept/file"), &st), 0);
}

static void test_remove_tree_takes_10000_levels(void **state)
{
	int top = open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int fd = top;

	/* Two directories a level, so that no level is a mere chain link. */
	for (int i = 0; i < 10000; i++) {
		int next;

		assert_int_equal(mkdirat(fd, "a", i % 100 == 50 ? 0500 : 0755), 0);
		if (fd != top) {
			assert_int_equal(mkdirat(fd, "b", 0755), 0);
			assert_int_equal(symlinkat("../..", fd, "l"), 0);
		}
		next = openat(fd, "a", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		if (fd != top)
			(void)close(fd);
		fd = next;
	}
	(void)close(fd);
	assert_int_equal(io_remove_tree(top, "a", NULL), 0);
	assert_int_equal(tests_count_names(*state), 0);
	(void)close(top);
}

/* Spaces and newlines are escaped; what is no line of it is passed over. */
static void test_mountinfo_is_read_as_the_kernel_writes_it(void **state)
{
	static const char text[] =
		"22 1 0:21 / / rw shared:1 - ext4 /dev/root rw\n"
		"nonsense\n"
		"\n"
		"36 22 254:3 /a\\040b /mnt/x\\134y\\012z rw,nosuid shared:7 master:2 - fuse.casbox "
		"casbox rw\n"
		"37 22 1048575:4 / /end - tmpfs";
	struct mountinfo m = {0};
	struct mountinfo_entry e;
	int fd = open(tests_path(*state, "mounts"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	assert_int_equal(io_write_full(fd, text, sizeof(text) - 1), 0);
	assert_int_equal(mountinfo_read(fd, &m), 0);
	assert_true(mountinfo_next(&m, &e));
	assert_int_equal(e.id, 22);
	assert_int_equal(e.dev, makedev(0, 21));
	assert_string_equal(e.type, "ext4");
	assert_true(mountinfo_next(&m, &e));
	assert_int_equal(e.id, 36);
	assert_int_equal(e.dev, makedev(254, 3));
	assert_string_equal(e.root, "/a b");
	assert_string_equal(e.path, "/mnt/x\\y\nz");
	assert_string_equal(e.type, "fuse.casbox");
	assert_true(mountinfo_next(&m, &e));
	assert_string_equal(e.path, "/end");
	assert_string_equal(e.type, "tmpfs");
	assert_false(mountinfo_next(&m, &e));
	mountinfo_fini(&m);
	(void)close(fd);
	/* Our own has at least a root. */
	assert_int_equal(mountinfo_read_self(&m), 0);
	assert_true(mountinfo_next(&m, &e));
	mountinfo_fini(&m);
}

static void test_overwritten_file_holds_the_new_bytes_alone(void **state)
{
	static const char *const texts[] = {"first", "and longer", "short", "equal", ""};
	int dir_fd = open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(dir_fd >= 0);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		auto_buf struct buf got = {0};

		assert_int_equal(io_overwrite_file(dir_fd, "f", texts[i], strlen(texts[i]), 0600,
						   i % 2 == 0),
				 0);
		assert_int_equal(io_read_file(dir_fd, "f", 100, &got), 0);
		assert_string_equal(buf_str(&got), texts[i]);
		assert_int_equal(got.len, strlen(texts[i]));
	}
	(void)close(dir_fd);
}

static void test_a_killed_process_is_dying(void **state)
{
	siginfo_t info;
	pid_t pid = fork();

	if (pid == 0)
		for (;;)
			(void)pause();
	assert_true(pid > 0);
	assert_false(process_is_dying(pid));
	assert_false(process_is_dying(getpid()));
	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_false(process_is_dying(pid));
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_true(process_is_dying(pid));
	/* A zombie yet. */
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	assert_true(process_is_dying(pid));
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_true(process_is_dying(pid));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_err_context_keeps_the_origin),
		cmocka_unit_test(test_err_text_without_a_message_explains_the_code),
		cmocka_unit_test(test_buf_grows_and_terminates),
		cmocka_unit_test_setup_teardown(test_replace_file_leaves_no_temporary,
						tests_dir_setup, tests_dir_teardown),
		cmocka_unit_test_setup_teardown(test_overwritten_file_holds_the_new_bytes_alone,
						tests_dir_setup, tests_dir_teardown),
		cmocka_unit_test_setup_teardown(
			test_remove_tree_does_not_follow_links_and_takes_locked_directories,
			tests_dir_setup, tests_dir_teardown),
		cmocka_unit_test_setup_teardown(test_remove_tree_stops_at_a_mount_point,
						tests_dir_setup, tests_dir_teardown),
		cmocka_unit_test_setup_teardown(test_remove_tree_takes_10000_levels,
						tests_memory_dir_setup, tests_dir_teardown),
		cmocka_unit_test_setup_teardown(test_mountinfo_is_read_as_the_kernel_writes_it,
						tests_dir_setup, tests_dir_teardown),
		cmocka_unit_test(test_a_killed_process_is_dying),
	};

	return cmocka_run_group_tests_name("cas_base", tests, NULL, NULL);
}
