/* tests/unit/test_tools_spawn.c - start commands, by clone3 and by clone */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/run/cgroup.h"
#include "tools/run/spawn.h"

static const char *const env[] = {"PATH=/nowhere:/usr/bin:/bin", "GREETING=hello", NULL};

static struct spawn_options defaults(const char *const *argv)
{
	static sigset_t none;

	(void)sigemptyset(&none);
	return (struct spawn_options){
		.argv = argv,
		.env = env,
		.stdio = {-1, -1, -1},
		.cgroup_fd = -1,
		.own_mounts = true,
		.die_with_parent = true,
		.sigmask = &none,
	};
}

/* Run and wait: the status as a shell tells it, or what spawn_start said. */
static int run(const struct spawn_options *opts, bool *exec_failed, struct err *err)
{
	struct spawn_child child;
	siginfo_t info;
	int ret = spawn_start(opts, &child, exec_failed, err);

	if (ret)
		return ret;
	assert_int_equal(fcntl(child.pidfd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(waitid(P_PID, (id_t)child.pid, &info, WEXITED), 0);
	(void)close(child.pidfd);
	return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

static int run_sh(const char *script)
{
	const char *const argv[] = {"sh", "-c", script, NULL};
	struct spawn_options opts = defaults(argv);

	return run(&opts, NULL, NULL);
}

static void test_status_and_signal_of_the_command(void **state)
{
	assert_int_equal(run_sh("exit 0"), 0);
	assert_int_equal(run_sh("exit 77"), 77);
	assert_int_equal(run_sh("kill -9 $$"), 128 + SIGKILL);
	assert_int_equal(run_sh("test \"$GREETING\" = hello"), 0);
}

static void test_missing_and_unexecutable_commands_are_told_apart(void **state)
{
	const char *argv[] = {"no-such-command", NULL};
	struct spawn_options opts = defaults(argv);
	struct err err = {0};
	bool exec_failed = false;
	char script[4096];

	assert_int_equal(run(&opts, &exec_failed, &err), -ENOENT);
	assert_true(exec_failed);
	assert_non_null(strstr(err.msg, "cannot execute no-such-command"));
	argv[0] = "/etc/passwd/x";
	assert_int_equal(run(&opts, &exec_failed, &err), -ENOTDIR);
	tests_write_file(tests_path(*state, "script"), "exit 5\n", 7, 0644);
	(void)snprintf(script, sizeof(script), "%s", tests_path(*state, "script"));
	argv[0] = script;
	assert_int_equal(run(&opts, &exec_failed, &err), -EACCES);
	/* Without "#!", the shell runs it, as execvp does. */
	assert_int_equal(chmod(script, 0755), 0);
	assert_int_equal(run(&opts, &exec_failed, &err), 5);
	argv[0] = "";
	assert_int_equal(run(&opts, &exec_failed, &err), -ENOENT);
	opts.cwd = "/no/such/dir";
	assert_int_equal(run(&opts, &exec_failed, &err), -ENOENT);
	assert_false(exec_failed);
	assert_string_equal(err.msg, "cannot enter /no/such/dir: No such file or directory");
}

static void test_relative_commands_are_found_from_the_new_directory(void **state)
{
	const char *const argv[] = {"./here", NULL};
	struct spawn_options opts = defaults(argv);

	tests_write_file(tests_path(*state, "here"), "#!/bin/sh\nexit 6\n", 17, 0755);
	opts.cwd = *state;
	assert_int_equal(run(&opts, NULL, NULL), 6);
}

static void test_descriptors_marked_for_it_reach_the_command(void **state)
{
	const char *const argv[] = {"sh", "-c",
				    "echo hi; echo oops >&2; test -e /proc/self/fd/$IN "
				    "&& test ! -e /proc/self/fd/$OUT",
				    NULL};
	struct spawn_options opts = defaults(argv);
	auto_buf struct buf text = {0};
	char in[16], out[16];
	const char *const own[] = {"PATH=/usr/bin:/bin", in, out, NULL};
	int inherited = open("/dev/null", O_RDONLY);
	int closed = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int fd = open(tests_path(*state, "out"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	(void)snprintf(in, sizeof(in), "IN=%d", inherited);
	(void)snprintf(out, sizeof(out), "OUT=%d", closed);
	opts.env = own;
	opts.stdio[1] = fd;
	opts.stdio[2] = fd;
	assert_int_equal(run(&opts, NULL, NULL), 0);
	assert_int_equal(io_read_file(AT_FDCWD, tests_path(*state, "out"), 100, &text), 0);
	assert_string_equal(buf_str(&text), "hi\noops\n");
	(void)close(inherited);
	(void)close(closed);
	(void)close(fd);
}

static void test_standard_streams_can_be_exchanged(void **state)
{
	const char *const argv[] = {"sh", "-c", "echo one; echo two >&2", NULL};
	struct spawn_options opts = defaults(argv);
	auto_buf struct buf one = {0}, two = {0};
	int saved_out = fcntl(1, F_DUPFD_CLOEXEC, 10), saved_err = fcntl(2, F_DUPFD_CLOEXEC, 10);
	int a = open(tests_path(*state, "a"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	int b = open(tests_path(*state, "b"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	int status;

	(void)dup2(a, 1);
	(void)dup2(b, 2);
	opts.stdio[1] = 2;
	opts.stdio[2] = 1;
	status = run(&opts, NULL, NULL);
	(void)dup2(saved_out, 1);
	(void)dup2(saved_err, 2);
	assert_int_equal(status, 0);
	assert_int_equal(io_read_file(AT_FDCWD, tests_path(*state, "a"), 100, &one), 0);
	assert_int_equal(io_read_file(AT_FDCWD, tests_path(*state, "b"), 100, &two), 0);
	assert_string_equal(buf_str(&one), "two\n");
	assert_string_equal(buf_str(&two), "one\n");
	(void)close(saved_out);
	(void)close(saved_err);
	(void)close(a);
	(void)close(b);
}

static void test_signals_are_as_the_caller_had_them(void **state)
{
	static const int back[] = {SIGXFSZ, 0};
	const char *const argv[] = {"sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status", NULL};
	struct spawn_options opts = defaults(argv);
	auto_buf struct buf text = {0};
	sigset_t before, after;
	int fd = open(tests_path(*state, "out"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	(void)signal(SIGXFSZ, SIG_IGN);
	(void)signal(SIGUSR1, SIG_IGN);
	(void)pthread_sigmask(SIG_SETMASK, NULL, &before);
	opts.stdio[1] = fd;
	opts.default_signals = back;
	assert_int_equal(run(&opts, NULL, NULL), 0);
	(void)pthread_sigmask(SIG_SETMASK, NULL, &after);
	for (int i = 1; i < SIGRTMIN; i++)
		assert_int_equal(sigismember(&before, i), sigismember(&after, i));
	assert_int_equal(io_read_file(AT_FDCWD, tests_path(*state, "out"), 1000, &text), 0);
	assert_string_equal(buf_str(&text),
			    "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000200\n");
	(void)signal(SIGXFSZ, SIG_DFL);
	(void)signal(SIGUSR1, SIG_DFL);
	(void)close(fd);
}

static void test_leftovers_are_killed_and_reaped(void **state)
{
	struct err err = {0};

	assert_int_equal(cgroup_adopt_orphans(), 0);
	/* One plain, one in a session of its own, one deeper; all deaf to SIGTERM. */
	assert_int_equal(run_sh("trap '' TERM; sleep 100 & setsid sleep 100 & "
				"(setsid sh -c 'sleep 100 & sleep 100' &) ; exit 3"),
			 3);
	assert_int_equal(cgroup_kill_children(5000), 0);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	assert_string_equal(err.msg, "");
	(void)prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
}

static void test_a_group_holds_the_command_from_birth(void **state)
{
	const char *const argv[] = {"sh", "-c",
				    "sleep 100 & setsid sleep 100 & cat /proc/self/cgroup", NULL};
	struct spawn_options opts = defaults(argv);
	struct cgroup group = {NULL, -1};
	auto_buf struct buf text = {0};
	auto_free char *place = NULL;
	char name[64];
	int fd;

	(void)snprintf(name, sizeof(name), "casbox-test-%d", (int)getpid());
	if (cgroup_place(name, &place, NULL) || cgroup_make(place, &group, NULL))
		skip();
	assert_int_equal(cgroup_adopt_orphans(), 0);
	fd = open(tests_path(*state, "out"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	opts.stdio[1] = fd;
	opts.cgroup_fd = group.fd;
	assert_int_equal(run(&opts, NULL, NULL), 0);
	assert_int_equal(cgroup_kill(&group, 5000, NULL), 0);
	assert_int_equal(io_read_file(AT_FDCWD, tests_path(*state, "out"), 9999, &text), 0);
	assert_non_null(strstr(buf_str(&text), name));
	cgroup_fini(&group);
	assert_int_equal(cgroup_kill_children(5000), 0);
	(void)prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
	(void)close(fd);
}

/* From here on clone3 fails as in a container that filters it. For the rest of the process. */
static void forbid_clone3(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {sizeof(code) / sizeof(code[0]), code};

	assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog), 0);
}

static void test_all_of_it_without_clone3(void **state)
{
	forbid_clone3();
	test_status_and_signal_of_the_command(state);
	test_missing_and_unexecutable_commands_are_told_apart(state);
	test_descriptors_marked_for_it_reach_the_command(state);
	assert_int_equal(unlink(tests_path(*state, "out")), 0);
	test_signals_are_as_the_caller_had_them(state);
	test_a_group_holds_the_command_from_birth(state);
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, tests_dir_setup, tests_dir_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_status_and_signal_of_the_command),
		IN_DIR(test_missing_and_unexecutable_commands_are_told_apart),
		IN_DIR(test_relative_commands_are_found_from_the_new_directory),
		IN_DIR(test_descriptors_marked_for_it_reach_the_command),
		IN_DIR(test_standard_streams_can_be_exchanged),
		IN_DIR(test_signals_are_as_the_caller_had_them),
		cmocka_unit_test(test_leftovers_are_killed_and_reaped),
		IN_DIR(test_a_group_holds_the_command_from_birth),
		IN_DIR(test_all_of_it_without_clone3),
	};

	/* Whoever runs the tests may ignore some, as nohup does. */
	for (int i = 1; i < SIGRTMIN; i++)
		(void)signal(i, SIG_DFL);
	return cmocka_run_group_tests_name("tools_spawn", tests, NULL, NULL);
}
