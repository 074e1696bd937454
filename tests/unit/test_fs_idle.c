/* tests/unit/test_fs_idle.c - the proof that nobody is inside a frozen sandbox */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/sandbox/sandbox_i.h"
#include "tests/lib/box.h"
#include "tests/lib/store.h"

#define TREE "mkdir -p src/deep; echo c >src/a.c; echo d >src/deep/d; echo t >t"

struct fixture {
	struct tests_box box;
	struct cas_digest root;
	char dir[256];
	char path[512];
};

static void begin(struct fixture *f, const char *dir, const char *const *outputs)
{
	const char *path;

	(void)snprintf(f->dir, sizeof(f->dir), "%s", dir);
	tests_box_open(&f->box, f->dir);
	f->root = tests_box_tree(&f->box, TREE);
	path = tests_box_create(&f->box, "i", &f->root, FS_WRITABLE_OUTPUTS, outputs);
	(void)snprintf(f->path, sizeof(f->path), "%s", path);
}

static bool at_once; /* freeze and ask in one exchange with the helper, or in two */

/* After freezing it. */
static bool idle_proven(struct fixture *f)
{
	struct fs_sandbox *sb;
	int answer = -EBUSY;
	bool idle;

	assert_int_equal(fs_sandbox_claim(f->box.all, "i", &sb, NULL), 0);
	if (at_once)
		assert_int_equal(fs_layers_freeze_and_ask(f->box.all, sb, &answer, NULL), 0);
	else
		assert_int_equal(fs_layers_freeze(f->box.all, sb, NULL), 0);
	assert_true(sb->frozen);
	if (!at_once && sb->proving)
		answer = fs_layers_ask(f->box.all, sb);
	fs_layers_settle(f->box.all, sb, answer);
	idle = sb->idle_proven;
	fs_sandbox_unclaim(f->box.all, sb);
	return idle;
}

static void end(struct fixture *f)
{
	tests_box_close(&f->box);
}

static const char *const outputs_none[] = {NULL};
static const char *const outputs_bind[] = {"out/", NULL};
static const char *const outputs_overlay[] = {"src/o", NULL};
static const char *const outputs_both[] = {"src/o", "out/", "t2", NULL};

static void test_idle_is_proven_with_and_without_layers(void **state)
{
	const char *const *const kinds[] = {outputs_none, outputs_bind, outputs_overlay,
					    outputs_both};

	for (size_t i = 0; i < 4; i++) {
		struct fixture f;
		char dir[64];

		(void)snprintf(dir, sizeof(dir), "%zu", i);
		assert_int_equal(mkdir(tests_path(*state, dir), 0755), 0);
		begin(&f, tests_path(*state, dir), kinds[i]);
		assert_int_equal(tests_sh(f.path, "test $(cat t) = t; ls -R . >/dev/null"), 0);
		assert_true(idle_proven(&f));
		end(&f);
	}
}

static void test_sandbox_is_a_read_only_mount_of_its_own(void **state)
{
	struct fixture f;
	struct stat in;
	struct stat base;

	begin(&f, *state, outputs_none);
	assert_int_equal(stat(f.path, &in), 0);
	assert_int_equal(stat(f.box.base, &base), 0);
	assert_true(in.st_dev == base.st_dev);
	assert_int_equal(tests_sh(f.path, "! touch new 2>/dev/null; ! test -e new"), 0);
	/* Also for the next daemon. */
	tests_box_restart(&f.box);
	assert_int_equal(tests_sh(f.path, "! touch new 2>/dev/null; test $(cat t) = t"), 0);
	assert_true(idle_proven(&f));
	end(&f);
}

static void test_descriptor_mapping_and_directory_disprove(void **state)
{
	struct fixture f;
	void *map;
	int fd;

	assert_int_equal(tests_sh(*state, "mkdir a b c"), 0);
	begin(&f, tests_path(*state, "a"), outputs_both);
	fd = open(tests_path(f.path, "src/deep"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_false(idle_proven(&f));
	(void)close(fd);
	end(&f);

	begin(&f, tests_path(*state, "b"), outputs_none);
	fd = open(tests_path(f.path, "src/a.c"), O_RDONLY | O_CLOEXEC);
	map = mmap(NULL, 1, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_true(map != MAP_FAILED);
	(void)close(fd);
	assert_false(idle_proven(&f));
	(void)munmap(map, 1);
	end(&f);

	/* In a layer: the bind below it is free, and yet it does not count. */
	begin(&f, tests_path(*state, "c"), outputs_bind);
	fd = open(tests_path(f.path, "out"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_false(idle_proven(&f));
	(void)close(fd);
	end(&f);
}

static void test_descriptor_in_flight_disproves(void **state)
{
	struct fixture f;
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	char byte = 1;
	struct iovec iov = {.iov_base = &byte, .iov_len = 1};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.bytes,
			     .msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	int pair[2];
	int fd;

	begin(&f, *state, outputs_both);
	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair), 0);
	fd = open(tests_path(f.path, "t"), O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	*c = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
			      .cmsg_type = SCM_RIGHTS,
			      .cmsg_len = CMSG_LEN(sizeof(int))};
	*(int *)(void *)CMSG_DATA(c) = fd;
	assert_int_equal(sendmsg(pair[0], &msg, 0), 1);
	(void)close(fd);
	assert_false(idle_proven(&f));
	(void)close(pair[0]);
	(void)close(pair[1]);
	end(&f);
}

static void test_working_directory_disproves(void **state)
{
	struct fixture f;
	int status;
	pid_t pid;

	begin(&f, *state, outputs_overlay);
	pid = fork();
	if (pid == 0) {
		(void)!chdir(tests_path(f.path, "src/deep"));
		(void)kill(getpid(), SIGSTOP);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	assert_false(idle_proven(&f));
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	end(&f);
}

static void test_mount_made_inside_disproves(void **state)
{
	struct fixture f;

	begin(&f, *state, outputs_both);
	assert_int_equal(
		mount("none", tests_path(f.path, "src/deep"), "tmpfs", MS_NOSUID | MS_NODEV, NULL),
		0);
	assert_false(idle_proven(&f));
	/* And it is not left behind. */
	assert_int_equal(tests_sh(f.box.base, "! grep -q /base/i /proc/self/mounts"), 0);
	end(&f);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_idle_is_proven_with_and_without_layers),
		TESTS_IN_DIR(test_sandbox_is_a_read_only_mount_of_its_own),
		TESTS_IN_DIR(test_descriptor_mapping_and_directory_disprove),
		TESTS_IN_DIR(test_descriptor_in_flight_disproves),
		TESTS_IN_DIR(test_working_directory_disproves),
		TESTS_IN_DIR(test_mount_made_inside_disproves),
	};
	int failed;
	int status;

	if (tests_box_main(argc, argv, &status))
		return status;
	failed = cmocka_run_group_tests_name("fs_idle", tests, NULL, NULL);
	at_once = true;
	failed += cmocka_run_group_tests_name("fs_idle, at once", tests, NULL, NULL);
	return tests_box_again(failed);
}
