/* tests/unit/test_fs_helper.c - the process that mounts, and what it refuses */
#include "tests/lib/tests.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/helper/helper.h"
#include "tests/lib/box.h"
#include "tests/lib/store.h"

/* DIR/base/id/d is what is mounted on, DIR/up the source. */
struct fixture {
	struct fs_helper *h;
	char base[256];
	int up;
	int work;
};

static void begin(struct fixture *f, void **state)
{
	const char *dir = *state;

	assert_int_equal(
		tests_sh(dir,
			 "mkdir -p base/id/d up work; echo low >base/id/d/f; ln -s d base/id/l"),
		0);
	(void)snprintf(f->base, sizeof(f->base), "%s/base", dir);
	f->up = open(tests_path(dir, "up"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	f->work = open(tests_path(dir, "work"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(f->up >= 0 && f->work >= 0);
	assert_int_equal(fs_helper_new(NULL, &f->h, NULL), 0);
}

static void end(struct fixture *f)
{
	fs_helper_free(f->h);
	(void)close(f->up);
	(void)close(f->work);
}

/* The youngest child of this process: an older helper may still be dying. */
static pid_t helper_pid(void)
{
	char path[64];
	auto_buf struct buf text = {0};
	const char *last = "";

	(void)snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	assert_int_equal(io_read_file(AT_FDCWD, path, 4096, &text), 0);
	for (const char *p = buf_str(&text); *p != '\0'; p += strcspn(p, " "), p += strspn(p, " "))
		last = p;
	return (pid_t)strtol(last, NULL, 10);
}

static void test_bind_shows_the_source_nosuid_and_nodev(void **state)
{
	struct fixture f;
	auto_buf struct buf mounts = {0};
	const char *line;

	begin(&f, state);
	assert_int_equal(fs_helper_bind(f.h, f.up, f.base, "id/d", NULL), 0);
	assert_int_equal(tests_sh(f.base, "! test -e id/d/f; echo 1 >id/d/new"), 0);
	assert_int_equal(io_read_file(AT_FDCWD, "/proc/self/mounts", 1 << 20, &mounts), 0);
	line = strstr(buf_str(&mounts), "/base/id/d ");
	assert_non_null(line);
	assert_non_null(strstr(line, "nosuid,nodev"));
	assert_int_equal(fs_helper_unmount(f.h, f.base, "id/d", false, NULL), 0);
	assert_int_equal(tests_sh(f.base, "test -e id/d/f; ! test -e id/d/new; test -e ../up/new"),
			 0);
	end(&f);
}

static void test_overlay_merges_and_is_unmounted_by_another_helper(void **state)
{
	struct fixture f;
	struct err err = {0};

	begin(&f, state);
	if (fs_helper_overlay(f.h, f.up, f.work, f.base, "id", tests_box_in_userns(), &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(tests_sh(f.base, "test -e id/d/f; echo 2 >id/d/f; rm id/l"), 0);
	assert_int_equal(kill(helper_pid(), SIGKILL), 0);
	(void)usleep(20000);
	assert_int_equal(fs_helper_unmount(f.h, f.base, "id", false, NULL), 0);
	assert_int_equal(
		tests_sh(f.base, "test $(cat id/d/f) = low; test -L id/l; test -e ../up/d/f"), 0);
	end(&f);
}

static void test_volatile_overlay_is_refused_until_the_mark_goes(void **state)
{
	struct fixture f;
	struct err err = {0};

	begin(&f, state);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(fs_helper_overlay(f.h, f.up, f.work, f.base, "id",
						   tests_box_in_userns(), NULL),
				 0);
		assert_int_equal(fs_helper_unmount(f.h, f.base, "id", false, NULL), 0);
		assert_true(fs_helper_overlay(f.h, f.up, f.work, f.base, "id",
					      tests_box_in_userns(), &err) < 0);
		assert_non_null(strstr(err.msg, "overlay"));
		assert_int_equal(tests_sh(*state, "rm -r work/work/incompat/volatile"), 0);
	}
	end(&f);
}

static void test_targets_are_resolved_beneath_without_symlinks(void **state)
{
	struct fixture f;
	struct err err = {0};

	begin(&f, state);
	assert_int_equal(fs_helper_bind(f.h, f.up, f.base, "id/l", &err), -ELOOP);
	assert_int_equal(fs_helper_bind(f.h, f.up, f.base, "../up", &err), -EXDEV);
	assert_int_equal(fs_helper_bind(f.h, f.up, f.base, "/tmp", &err), -EXDEV);
	assert_int_equal(fs_helper_bind(f.h, f.up, f.base, "id/none", &err), -ENOENT);
	assert_int_equal(fs_helper_bind(f.h, f.up, f.base, "id/d/f", &err), -ENOTDIR);
	assert_non_null(strstr(err.msg, "id/d/f"));
	assert_int_equal(fs_helper_unmount(f.h, f.base, "id/l/x", true, &err), -ELOOP);
	assert_int_equal(fs_helper_unmount(f.h, f.base, "id/d", true, &err), -EINVAL);
	assert_int_equal(fs_helper_unmount(f.h, f.base, "", true, &err), -EINVAL);
	end(&f);
}

/* More than one message holds, in both directions. */
static void test_many_steps_are_done_in_order(void **state)
{
	struct fixture f;
	struct fs_helper_step steps[41];
	static char targets[41][16];

	begin(&f, state);
	assert_int_equal(
		tests_sh(*state, "for i in $(seq 0 39); do mkdir -p base/m/$i up/$i; done"), 0);
	steps[0] = (struct fs_helper_step){.op = FS_HELPER_BIND_SELF, .target = "m"};
	for (int i = 1; i <= 40; i++) {
		(void)snprintf(targets[i], sizeof(targets[i]), "m/%d", i - 1);
		steps[i] = (struct fs_helper_step){
			.op = FS_HELPER_BIND, .target = targets[i], .fd = {f.up, -1}};
	}
	assert_int_equal(fs_helper_run(f.h, f.base, steps, 41, false, NULL), 0);
	assert_int_equal(tests_sh(f.base, "! touch m/new 2>/dev/null; touch m/39/new;"
					  "test -e m/0/new; test -e ../up/new"),
			 0);
	for (int i = 0; i <= 40; i++) {
		assert_int_equal(steps[i].code, 0);
		steps[i] = (struct fs_helper_step){.op = FS_HELPER_UNMOUNT,
						   .target = i == 40 ? "m" : targets[40 - i]};
	}
	assert_int_equal(fs_helper_run(f.h, f.base, steps, 41, false, NULL), 0);
	for (int i = 0; i <= 40; i++)
		assert_int_equal(steps[i].code, 0);
	assert_int_equal(tests_sh(f.base, "! test -e m/0/new; ! grep -q /base/m /proc/self/mounts"),
			 0);
	end(&f);
}

static void test_steps_stop_at_a_failure_or_go_on(void **state)
{
	struct fixture f;
	struct err err = {0};

	begin(&f, state);
	for (int go_on = 0; go_on < 2; go_on++) {
		struct fs_helper_step steps[] = {
			{.op = FS_HELPER_BIND_SELF, .target = "none", .may = true},
			{.op = FS_HELPER_BIND, .target = "id/d", .fd = {f.up, -1}},
			{.op = FS_HELPER_BIND, .target = "id/x", .fd = {f.up, -1}},
			{.op = FS_HELPER_BIND, .target = "id/d", .fd = {f.work, -1}},
		};

		assert_int_equal(fs_helper_run(f.h, f.base, steps, 4, go_on, &err), -ENOENT);
		assert_non_null(strstr(err.msg, "id/x"));
		assert_int_equal(steps[0].code, -ENOENT);
		assert_int_equal(steps[1].code, 0);
		assert_int_equal(steps[2].code, -ENOENT);
		assert_int_equal(steps[3].code, go_on ? 0 : -ECANCELED);
		for (int i = 0; i <= go_on; i++)
			assert_int_equal(fs_helper_unmount(f.h, f.base, "id/d", false, NULL), 0);
	}
	end(&f);
}

static void test_busy_mount_is_kept_or_detached(void **state)
{
	struct fixture f;
	struct err err = {0};
	int fd;

	begin(&f, state);
	assert_int_equal(fs_helper_bind(f.h, f.up, f.base, "id/d", NULL), 0);
	fd = open(tests_path(f.base, "id/d"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(fs_helper_unmount(f.h, f.base, "id/d", false, &err), -EBUSY);
	assert_int_equal(tests_sh(f.base, "! test -e id/d/f"), 0);
	assert_int_equal(fs_helper_unmount(f.h, f.base, "id/d", true, NULL), 1);
	assert_int_equal(tests_sh(f.base, "test -e id/d/f"), 0);
	(void)close(fd);
	end(&f);
}

static int idle_code(struct fixture *f, const struct fs_mount_key *key)
{
	struct fs_helper_step step = {.op = FS_HELPER_IDLE, .target = "id", .key = *key};

	(void)fs_helper_run(f->h, f->base, &step, 1, false, NULL);
	return step.code;
}

/* However often one asks, and whoever was there in between. */
static void test_idle_mount_is_told_and_stays(void **state)
{
	struct fixture f;
	struct fs_helper_step bind = {.op = FS_HELPER_BIND_SELF, .target = "id"};
	struct fs_mount_key other;
	int fd;

	begin(&f, state);
	assert_int_equal(idle_code(&f, &bind.key), -EINVAL);
	assert_int_equal(fs_helper_run(f.h, f.base, &bind, 1, false, NULL), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(idle_code(&f, &bind.key), 0);
	fd = open(tests_path(f.base, "id/d"), O_PATH | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(idle_code(&f, &bind.key), -EBUSY);
	(void)close(fd);
	assert_int_equal(idle_code(&f, &bind.key), 0);
	assert_int_equal(fs_helper_bind(f.h, f.up, f.base, "id/d", NULL), 0);
	assert_int_equal(idle_code(&f, &bind.key), -EBUSY);
	assert_int_equal(fs_helper_unmount(f.h, f.base, "id/d", false, NULL), 0);
	assert_int_equal(idle_code(&f, &bind.key), 0);
	other = bind.key;
	other.id++;
	assert_int_equal(idle_code(&f, &other), -ESTALE);
	assert_int_equal(tests_sh(f.base, "grep -q /base/id /proc/self/mounts"), 0);
	assert_int_equal(fs_helper_unmount(f.h, f.base, "id", false, NULL), 0);
	end(&f);
}

static int put_away(struct fixture *f, const struct fs_helper_step *bind)
{
	struct fs_helper_step step = {
		.op = FS_HELPER_AWAY, .target = bind->target, .source = "off", .key = bind->key};

	(void)fs_helper_run(f->h, f->base, &step, 1, false, NULL);
	return step.code;
}

/* Two of them, so that one lies on the other; who is in one gets it back where it was. */
static void test_mount_is_put_away_unless_in_use(void **state)
{
	struct fixture f;
	struct fs_helper_step binds[] = {
		{.op = FS_HELPER_BIND, .target = "id/d"},
		{.op = FS_HELPER_BIND, .target = "id/e"},
	};
	int fd;

	begin(&f, state);
	assert_int_equal(tests_sh(f.base, "mkdir id/e off"), 0);
	binds[0].fd[0] = binds[1].fd[0] = f.up;
	assert_int_equal(fs_helper_run(f.h, f.base, binds, 2, false, NULL), 0);
	fd = open(tests_path(f.base, "id/d"), O_PATH | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(put_away(&f, &binds[0]), -EBUSY);
	assert_int_equal(put_away(&f, &binds[1]), 0);
	assert_int_equal(tests_sh(f.base, "grep -q /base/id/d /proc/self/mounts"), 0);
	assert_int_equal(tests_sh(f.base, "! grep -q /base/id/e /proc/self/mounts"), 0);
	(void)close(fd);
	assert_int_equal(put_away(&f, &binds[0]), 0);
	assert_int_equal(tests_sh(f.base, "test $(grep -c /base/off /proc/self/mounts) = 2"), 0);
	/* It is not there any more, or it is another one. */
	assert_int_equal(put_away(&f, &binds[0]), -EINVAL);
	assert_int_equal(fs_helper_bind(f.h, f.up, f.base, "id/d", NULL), 0);
	assert_int_equal(put_away(&f, &binds[1]), -EINVAL);
	assert_int_equal(
		put_away(&f, &(struct fs_helper_step){.target = "id/d", .key = binds[1].key}),
		-ESTALE);
	for (int i = 0; i < 2; i++)
		assert_int_equal(fs_helper_unmount(f.h, f.base, "off", false, NULL), 0);
	assert_int_equal(fs_helper_unmount(f.h, f.base, "id/d", false, NULL), 0);
	end(&f);
}

/* In one message, and across several. */
static void test_step_for_a_clean_run_waits_for_all_before_it(void **state)
{
	for (int nr = 2; nr <= 40; nr += 38) {
		for (int dirty = 0; dirty < 2; dirty++) {
			struct fs_helper_step steps[40];
			struct fixture f;

			begin(&f, state);
			for (int i = 0; i < nr - 1; i++)
				steps[i] = (struct fs_helper_step){
					.op = FS_HELPER_BIND_SELF,
					.target = dirty && i == 0 ? "none" : "id/d"};
			steps[nr - 1] = (struct fs_helper_step){
				.op = FS_HELPER_IDLE, .target = "id/d", .if_clean = true};
			(void)fs_helper_run(f.h, f.base, steps, (size_t)nr, true, NULL);
			assert_int_equal(steps[0].code, dirty ? -ENOENT : 0);
			assert_int_equal(steps[nr - 1].code, dirty ? -ECANCELED : 0);
			for (int i = dirty; i < nr - 1; i++)
				assert_int_equal(
					fs_helper_unmount(f.h, f.base, "id/d", false, NULL), 0);
			assert_int_equal(tests_sh(*state, "rm -r base up work"), 0);
			end(&f);
		}
	}
}

static void test_helper_that_hangs_is_replaced(void **state)
{
	struct fixture f;
	struct err err = {0};
	pid_t old;

	begin(&f, state);
	assert_int_equal(fs_helper_ping(f.h, f.base, 1000, NULL), 0);
	assert_int_equal(fs_helper_ping(f.h, tests_path(f.base, "none"), 1000, &err), -ENOENT);
	old = helper_pid();
	assert_int_equal(kill(old, SIGSTOP), 0);
	assert_int_equal(fs_helper_ping(f.h, f.base, 100, &err), -ETIMEDOUT);
	assert_int_equal(fs_helper_ping(f.h, f.base, 1000, NULL), 0);
	assert_int_not_equal(helper_pid(), old);
	end(&f);
	/* Both are reaped. */
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
}

static void test_helper_inherits_nothing_but_its_ends(void **state)
{
	struct fixture f;
	char path[64];
	int fd = open("/dev/null", O_RDONLY); /* not close-on-exec, as a caller's may be */

	assert_true(fd >= 0);
	begin(&f, state);
	assert_int_equal(fs_helper_ping(f.h, f.base, 1000, NULL), 0);
	(void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)helper_pid());
	/* Standard streams, two sockets, a bell, and what lists them. */
	assert_int_equal(tests_count_names(path), 6);
	(void)close(fd);
	end(&f);
}

struct meanwhile {
	const char *made; /* what the helper is to make, and whether it did */
	int nr;
	bool seen;
};

/* The helper works while we do not wait for it. */
static void see_it_made(void *ctx)
{
	struct meanwhile *w = ctx;

	w->nr++;
	for (int i = 0; i < 2000 && !w->seen; i++) {
		const struct timespec pause = {.tv_nsec = 1000000};

		w->seen = access(w->made, F_OK) == 0;
		(void)nanosleep(&pause, NULL);
	}
}

static void test_request_is_served_while_its_caller_does_something_else(void **state)
{
	struct fixture f;
	char made[PATH_MAX];
	int source;

	begin(&f, state);
	assert_int_equal(tests_sh(*state, "mkdir base/a source; : > source/made"), 0);
	source = open(tests_path(*state, "source"), O_PATH | O_DIRECTORY | O_CLOEXEC);
	(void)snprintf(made, sizeof(made), "%s/a/made", f.base);
	/* Again and again, and mixed with those that are waited for. */
	for (int i = 0; i < 20; i++) {
		struct fs_helper_step step = {
			.op = FS_HELPER_BIND, .target = "a", .fd = {source, -1}};
		struct meanwhile w = {.made = made};

		assert_int_equal(
			fs_helper_run_while(f.h, f.base, &step, 1, false, see_it_made, &w, NULL),
			0);
		assert_int_equal(w.nr, 1);
		assert_true(w.seen);
		assert_int_equal(fs_helper_unmount(f.h, f.base, "a", false, NULL), 0);
		assert_int_equal(access(made, F_OK), -1);
	}
	(void)close(source);
	end(&f);
}

static void test_dead_helper_is_replaced_for_who_does_not_wait(void **state)
{
	struct fixture f;
	pid_t old;

	begin(&f, state);
	assert_int_equal(tests_sh(*state, "mkdir base/made"), 0);
	for (int i = 0; i < 5; i++) {
		struct fs_helper_step step = {.op = FS_HELPER_BIND_SELF, .target = "made"};
		siginfo_t info;
		struct meanwhile w = {.made = f.base};

		old = helper_pid();
		assert_int_equal(kill(old, SIGKILL), 0);
		assert_int_equal(waitid(P_PID, (id_t)old, &info, WEXITED | WNOWAIT), 0);
		assert_int_equal(
			fs_helper_run_while(f.h, f.base, &step, 1, false, see_it_made, &w, NULL),
			0);
		assert_int_equal(w.nr, 1);
		assert_int_not_equal(helper_pid(), old);
		assert_int_equal(fs_helper_unmount(f.h, f.base, "made", false, NULL), 0);
	}
	end(&f);
}

static void test_visit_is_made_after_the_answer(void **state)
{
	struct fixture f;
	int source;

	begin(&f, state);
	assert_int_equal(tests_sh(*state, "mkdir base/a"), 0);
	source = open(f.base, O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < 2; i++) {
		struct fs_helper_step steps[] = {
			{.op = FS_HELPER_BIND, .target = "a", .fd = {source, -1}},
			{.op = FS_HELPER_VISIT, .target = i == 0 ? "a" : "none", .may = true},
		};

		assert_int_equal(fs_helper_run(f.h, f.base, steps, 2, false, NULL), 0);
		assert_int_equal(steps[0].code, 0);
		assert_int_equal(steps[1].code, 0);
		/* It holds nothing there. */
		assert_int_equal(fs_helper_unmount(f.h, f.base, "a", false, NULL), 0);
	}
	(void)close(source);
	end(&f);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_bind_shows_the_source_nosuid_and_nodev),
		TESTS_IN_DIR(test_overlay_merges_and_is_unmounted_by_another_helper),
		TESTS_IN_DIR(test_volatile_overlay_is_refused_until_the_mark_goes),
		TESTS_IN_DIR(test_targets_are_resolved_beneath_without_symlinks),
		TESTS_IN_DIR(test_many_steps_are_done_in_order),
		TESTS_IN_DIR(test_steps_stop_at_a_failure_or_go_on),
		TESTS_IN_DIR(test_busy_mount_is_kept_or_detached),
		TESTS_IN_DIR(test_idle_mount_is_told_and_stays),
		TESTS_IN_DIR(test_mount_is_put_away_unless_in_use),
		TESTS_IN_DIR(test_step_for_a_clean_run_waits_for_all_before_it),
		TESTS_IN_DIR(test_helper_that_hangs_is_replaced),
		TESTS_IN_DIR(test_request_is_served_while_its_caller_does_something_else),
		TESTS_IN_DIR(test_dead_helper_is_replaced_for_who_does_not_wait),
		TESTS_IN_DIR(test_visit_is_made_after_the_answer),
		TESTS_IN_DIR(test_helper_inherits_nothing_but_its_ends),
	};
	int status;

	if (tests_box_main(argc, argv, &status))
		return status;
	return tests_box_again(cmocka_run_group_tests_name("fs_helper", tests, NULL, NULL));
}
