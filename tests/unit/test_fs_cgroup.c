/* tests/unit/test_fs_cgroup.c - control groups of sandboxes, and what is left in them */
#include "tests/lib/tests.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tests/lib/box.h"
#include "tests/lib/store.h"

#define TREE	     "mkdir src; echo c >src/a.c"
#define OUTPUTS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* A control group of version 2 that we may make, or "". */
static const char *cgroup_make(void)
{
	static char path[128];
	static const char *const tops[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};

	for (size_t i = 0; i < 2; i++) {
		(void)snprintf(path, sizeof(path), "%s/casbox-test-%d", tops[i], (int)getpid());
		if (mkdir(path, 0755) < 0)
			continue;
		if (access(tests_path(path, "cgroup.kill"), W_OK) == 0)
			return path;
		(void)rmdir(path);
	}
	return "";
}

/* C36: what the action left behind, with an output open and in its own session. */
static void test_finish_ends_the_control_group_first(void **state)
{
	struct tests_box box;
	struct cas_digest root;
	const char *cgroup = cgroup_make();
	const char *path;
	char script[512];
	json_t *answer;
	int status;
	pid_t pid;

	if (cgroup[0] == '\0')
		skip();
	tests_box_open(&box, *state);
	root = tests_box_tree(&box, TREE);
	path = tests_box_create(&box, "c", &root, FS_WRITABLE_OUTPUTS, OUTPUTS("out/"));
	assert_int_equal(fs_sandbox_set_cgroup(box.all, "c", cgroup, NULL), 0);
	(void)snprintf(
		script, sizeof(script),
		"echo $$ >%s/cgroup.procs; cd out; exec setsid sh -c 'trap \"\" TERM; exec >log;"
		"echo up; while :; do sleep 1; done'",
		cgroup);
	pid = fork();
	if (pid == 0)
		_exit(tests_sh(path, script));
	for (int i = 0; i < 500 && tests_sh(path, "test -s out/log") != 0; i++)
		(void)usleep(10000);
	assert_int_equal(tests_box_finish(&box, "c", &answer), 0);
	assert_string_not_equal(tests_answer_output(answer, "out"), "");
	json_decref(answer);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), 128 + SIGKILL);
	assert_int_equal(access(cgroup, F_OK), -1);
	tests_box_close(&box);
}

/* One that its maker, killed, could not remove, and one in it that another left. */
static void test_an_empty_control_group_goes_with_its_sandbox(void **state)
{
	struct tests_box box;
	struct cas_digest root;
	const char *cgroup = cgroup_make();

	if (cgroup[0] == '\0')
		skip();
	assert_int_equal(mkdir(tests_path(cgroup, "casbox-nested"), 0755), 0);
	tests_box_open(&box, *state);
	root = tests_box_tree(&box, TREE);
	(void)tests_box_create(&box, "c", &root, FS_WRITABLE_OUTPUTS, OUTPUTS("out/"));
	assert_int_equal(fs_sandbox_set_cgroup(box.all, "c", cgroup, NULL), 0);
	assert_int_equal(fs_sandbox_remove(box.all, "c", NULL), 0);
	for (int i = 0; i < 500 && access(cgroup, F_OK) == 0; i++)
		(void)usleep(10000);
	assert_int_equal(access(cgroup, F_OK), -1);
	tests_box_close(&box);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_finish_ends_the_control_group_first),
		TESTS_IN_DIR(test_an_empty_control_group_goes_with_its_sandbox),
	};
	int status;

	if (tests_box_main(argc, argv, &status))
		return status;
	return tests_box_again(cmocka_run_group_tests_name("fs_cgroup", tests, NULL, NULL));
}
