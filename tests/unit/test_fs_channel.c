/* tests/unit/test_fs_channel.c - what ends with a conversation on the control file */
#include "tests/lib/tests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/channel/channel.h"
#include "fs/control/control.h"
#include "fs/serve/executor.h"
#include "tests/lib/box.h"
#include "tests/lib/store.h"

#define DEADLINE_NS 20000000000ULL

struct fixture {
	struct tests_box box;
	struct control_env env;
	struct fs_executor *executor;
	struct fs_channels *all;
	struct fs_channel *channel;
};

static void say(struct fixture *f, const char *text)
{
	struct fs_job *job = NULL;

	assert_int_equal(fs_channel_write(f->channel, text, strlen(text), &job), 0);
	if (job)
		fs_executor_submit(f->executor, job);
}

/* A conversation to which one sandbox is attached. */
static void begin(struct fixture *f, void **state)
{
	struct cas_digest root;
	char line[256];
	int len;

	tests_box_open(&f->box, *state);
	root = tests_box_tree(&f->box, "echo t >t");
	f->env = (struct control_env){
		.store = f->box.store, .meta = f->box.meta, .sandboxes = f->box.all};
	assert_int_equal(fs_executor_new(4, &f->executor), 0);
	assert_int_equal(fs_channels_new(&f->env, f->executor, f->executor, &f->all), 0);
	fs_channels_open(f->all);
	assert_int_equal(fs_channel_new(f->all, &f->channel), 0);
	len = snprintf(line, sizeof(line), "create --attach --id x --root %s\n",
		       CAS_DIGEST_TEXT(&root));
	assert_true(len > 0 && (size_t)len < sizeof(line));
	say(f, line);
	assert_true(fs_channels_wait(f->all, 0, lock_now_ns() + DEADLINE_NS));
	assert_int_equal(fs_sandboxes_count(f->box.all), 1);
}

static void assert_abandoned(struct fixture *f)
{
	unsigned long long end = lock_now_ns() + DEADLINE_NS;

	while (fs_sandboxes_count(f->box.all) > 0 && lock_now_ns() < end)
		(void)usleep(1000);
	assert_int_equal(fs_sandboxes_count(f->box.all), 0);
}

static void end(struct fixture *f)
{
	fs_executor_free(f->executor);
	fs_channels_free(f->all);
	tests_box_close(&f->box);
}

static void test_release_ends_what_is_attached(void **state)
{
	struct fixture f;

	begin(&f, state);
	fs_channel_release(f.channel);
	assert_abandoned(&f);
	end(&f);
}

/* An end that is considered and given up: `stop --if-idle`, or idleness, on a busy mount. */
static void test_release_between_shut_and_reopen_ends_it_afterwards(void **state)
{
	struct fixture f;

	begin(&f, state);
	assert_true(fs_channels_shut_if(f.all, 0));
	fs_channel_release(f.channel);
	(void)usleep(50000);
	assert_int_equal(fs_sandboxes_count(f.box.all), 1);
	fs_channels_reopen(f.all);
	assert_abandoned(&f);
	end(&f);
}

/* The same while a thread still works on the conversation. */
static void test_release_while_busy_and_shut_ends_it_afterwards(void **state)
{
	struct fixture f;

	begin(&f, state);
	fs_channels_shut(f.all);
	say(&f, "list\nlist\n");
	fs_channel_release(f.channel);
	assert_true(fs_channels_wait(f.all, 0, lock_now_ns() + DEADLINE_NS));
	(void)usleep(50000);
	assert_int_equal(fs_sandboxes_count(f.box.all), 1);
	fs_channels_reopen(f.all);
	assert_abandoned(&f);
	end(&f);
}

/* The mount ends: the next daemon brings it back. */
static void test_release_after_shut_keeps_it(void **state)
{
	struct fixture f;

	begin(&f, state);
	fs_channels_shut(f.all);
	fs_channel_release(f.channel);
	fs_executor_free(f.executor);
	f.executor = NULL;
	assert_int_equal(fs_sandboxes_count(f.box.all), 1);
	fs_channels_free(f.all);
	tests_box_close(&f.box);
}

/* One write of so many commands that their answers would take 100 MB. */
static void say_much(struct fixture *f)
{
	const size_t nr = 20000;
	char *text = malloc(nr * 5 + 1);
	size_t before;
	size_t now;

	assert_non_null(text);
	for (size_t i = 0; i < nr; i++)
		memcpy(text + i * 5, "help\n", 6);
	say(f, text);
	free(text);
	/* Until nothing is done any more. */
	do {
		before = fs_channels_nr_pending(f->all);
		(void)usleep(300000);
		now = fs_channels_nr_pending(f->all);
	} while (now > 0 && now < before);
	assert_true(now > nr - 2000 && now < nr);
}

static void test_commands_wait_while_a_mib_is_unread(void **state)
{
	struct fixture f;

	begin(&f, state);
	say_much(&f);
	assert_false(fs_channels_shut_if(f.all, 1));
	/* Nobody is to read when it is closed: they run then. */
	fs_channel_release(f.channel);
	assert_true(fs_channels_wait(f.all, 0, lock_now_ns() + DEADLINE_NS));
	assert_abandoned(&f);
	end(&f);
}

static void test_shut_refuses_commands_that_wait(void **state)
{
	struct fixture f;

	begin(&f, state);
	say_much(&f);
	fs_channels_shut(f.all);
	assert_true(fs_channels_wait(f.all, 0, lock_now_ns() + DEADLINE_NS));
	fs_channel_release(f.channel);
	end(&f);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_release_ends_what_is_attached),
		TESTS_IN_DIR(test_release_between_shut_and_reopen_ends_it_afterwards),
		TESTS_IN_DIR(test_release_while_busy_and_shut_ends_it_afterwards),
		TESTS_IN_DIR(test_release_after_shut_keeps_it),
		TESTS_IN_DIR(test_commands_wait_while_a_mib_is_unread),
		TESTS_IN_DIR(test_shut_refuses_commands_that_wait),
	};
	int status;

	if (tests_box_main(argc, argv, &status))
		return status;
	return cmocka_run_group_tests_name("fs_channel", tests, NULL, NULL);
}
