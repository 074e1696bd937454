/* tests/unit/test_tools_run.c - supervising a command, keeping its streams, restoring outputs */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/sandbox/outputs.h"
#include "tests/lib/store.h"
#include "tools/run/run_child.h"
#include "tools/run/run_outputs.h"

static struct run_signals signals;

static int init_signals(void **state)
{
	return run_signals_init(&signals, NULL);
}

static int run_sh(const char *script, uint64_t timeout_ms, struct cas_store *store,
		  struct run_child_result *out)
{
	const char *const argv[] = {"sh", "-c", script, NULL};
	const char *const env[] = {"PATH=/usr/bin:/bin", NULL};
	struct run_child_options opts = {
		.argv = argv,
		.env = env,
		.cgroup_fd = -1,
		.timeout_ms = timeout_ms,
		.store = store,
	};

	return run_child(&opts, &signals, out, NULL);
}

static void test_status_and_times(void **state)
{
	struct run_child_result r;

	assert_int_equal(run_sh("exit 9", 0, NULL, &r), 0);
	assert_int_equal(r.status, 9);
	assert_false(r.timed_out);
	assert_false(r.has_streams);
	assert_true(r.start_ns > 0 && r.end_ns >= r.start_ns);
	assert_int_equal(run_sh("kill -TERM $$", 0, NULL, &r), 0);
	assert_int_equal(r.status, 128 + SIGTERM);
}

static void test_timeout_ends_the_command_and_what_it_left(void **state)
{
	struct run_child_result r;
	unsigned long long start = lock_now_ns();

	assert_int_equal(run_sh("sleep 60 & exec sleep 60", 200, NULL, &r), 0);
	assert_true(r.timed_out);
	assert_true(lock_now_ns() - start < 4000000000ULL);
}

static void test_a_signal_to_us_goes_to_the_command(void **state)
{
	struct run_child_result r;

	assert_int_equal(run_sh("trap 'exit 42' USR1; kill -USR1 $PPID; "
				"for i in 1 2 3 4 5 6 7 8 9; do sleep 0.1; done",
				0, NULL, &r),
			 0);
	assert_int_equal(r.status, 42);
	assert_int_equal(run_sh("kill -TERM $PPID; sleep 5", 0, NULL, &r), 0);
	assert_int_equal(r.status, 128 + SIGTERM);
	assert_int_equal(run_signals_take(&signals), 0);
}

/* Standard output goes to a file while @script runs with its streams kept. */
static void run_into(const char *dir, const char *script, struct run_child_result *r)
{
	struct cas_store *store = tests_store_open(dir, NULL);
	int saved = fcntl(1, F_DUPFD_CLOEXEC, 10);
	int fd = open(tests_path(dir, "passed"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int ret;

	(void)dup2(fd, 1);
	ret = run_sh(script, 0, store, r);
	(void)dup2(saved, 1);
	(void)close(saved);
	(void)close(fd);
	assert_int_equal(ret, 0);
	assert_true(r->has_streams);
	cas_store_close(store);
}

static void test_streams_pass_unchanged_and_are_stored(void **state)
{
	auto_buf struct buf passed = {0};
	struct run_child_result r;
	struct cas_digest digest;
	struct cas_store *store;

	run_into(*state, "head -c 300000 /dev/zero; printf 'a\\000b'", &r);
	assert_int_equal(r.stdout_digest.size, 300003);
	assert_true(cas_digest_is_empty(&r.stderr_digest));
	assert_int_equal(io_read_file(AT_FDCWD, tests_path(*state, "passed"), 1 << 20, &passed), 0);
	assert_int_equal(passed.len, 300003);
	assert_int_equal(cas_hash_bytes(passed.data, passed.len, &digest), 0);
	assert_true(cas_digest_equal(&digest, &r.stdout_digest));
	store = tests_store_open(*state, NULL);
	tests_assert_blob(store, &digest, passed.data, passed.len);
	cas_store_close(store);
}

static void test_a_survivor_with_our_output_delays_nothing(void **state)
{
	struct run_child_result r;
	unsigned long long start = lock_now_ns();

	run_into(*state, "(trap '' TERM HUP; setsid sleep 100) & echo gone", &r);
	assert_int_equal(r.status, 0);
	assert_int_equal(r.stdout_digest.size, 5);
	assert_true(lock_now_ns() - start < 4000000000ULL);
}

struct place {
	struct cas_store *store;
	char into[4096];
	json_t *answer;
	json_t *list;
};

static void place_init(struct place *p, const char *dir)
{
	p->store = tests_store_open(dir, NULL);
	(void)snprintf(p->into, sizeof(p->into), "%s", tests_path(dir, "into"));
	assert_int_equal(mkdir(p->into, 0755), 0);
	p->list = json_array();
	p->answer = json_pack("{s:o, s:{s:[{s:s, s:b}]}}", "outputs", p->list, "result",
			      "outputFiles", "path", "bin/tool", "isExecutable", 1);
	assert_non_null(p->answer);
}

static void place_fini(struct place *p)
{
	json_decref(p->answer);
	cas_store_close(p->store);
}

static void add_output(struct place *p, const char *path, const char *kind, const char *key,
		       const char *value)
{
	assert_int_equal(json_array_append_new(p->list, json_pack("{s:s, s:s, s:s}", "path", path,
								  "kind", kind, key, value)),
			 0);
}

static void add_file(struct place *p, const char *path, const char *text)
{
	struct cas_digest digest;

	assert_int_equal(cas_put_bytes(p->store, text, strlen(text), &digest, NULL), 0);
	add_output(p, path, "file", "digest", CAS_DIGEST_TEXT(&digest));
}

static void add_tree(struct place *p, const char *path, const char *name, const char *text)
{
	struct cas_directory *dir = NULL;
	struct cas_node node = {.kind = CAS_NODE_FILE, .name = name};
	struct cas_digest digest;

	assert_int_equal(cas_put_bytes(p->store, text, strlen(text), &node.digest, NULL), 0);
	assert_int_equal(cas_directory_new(&dir), 0);
	assert_int_equal(cas_directory_add(dir, &node), 0);
	assert_int_equal(cas_directory_put(p->store, dir, &digest, NULL), 0);
	cas_directory_free(dir);
	add_output(p, path, "directory", "digest", CAS_DIGEST_TEXT(&digest));
}

static int restore(struct place *p, const char *const *declared, size_t nr, struct err *err)
{
	struct fs_outputs outputs = {0};
	int ret = fs_outputs_parse(declared, nr, &outputs, err);

	assert_int_equal(ret, 0);
	ret = run_outputs_restore(p->store, p->into, &outputs, p->answer, false, err);
	fs_outputs_fini(&outputs);
	return ret;
}

static void assert_text(const char *path, const char *want, unsigned mode)
{
	auto_buf struct buf text = {0};
	struct stat st;

	assert_int_equal(io_read_file(AT_FDCWD, path, 4096, &text), 0);
	assert_string_equal(buf_str(&text), want);
	assert_int_equal(lstat(path, &st), 0);
	assert_true(S_ISREG(st.st_mode));
	assert_int_equal(st.st_mode & 07777, mode);
}

static void test_outputs_replace_what_is_there_and_nothing_else(void **state)
{
	const char *const declared[] = {"build/", "bin/tool", "link", "gone", "gone2/deep"};
	struct place p;
	struct err err = {0};
	char target[64] = "";

	place_init(&p, *state);
	tests_write_file(tests_path(p.into, "build/old"), "old", 3, 0644);
	tests_write_file(tests_path(p.into, "bin/tool/dir/x"), "x", 1, 0644);
	tests_write_file(tests_path(p.into, "bin/other"), "o", 1, 0640);
	tests_write_file(tests_path(p.into, "link"), "l", 1, 0644);
	tests_write_file(tests_path(p.into, "gone"), "g", 1, 0644);
	add_tree(&p, "build", "new", "new!");
	add_file(&p, "bin/tool", "tool");
	add_output(&p, "link", "symlink", "target", "../any where");
	if (restore(&p, declared, 5, &err))
		fail_msg("%s", err.msg);
	assert_text(tests_path(p.into, "build/new"), "new!", 0444);
	assert_int_equal(tests_count_names(tests_path(p.into, "build")), 1);
	assert_text(tests_path(p.into, "bin/tool"), "tool", 0555);
	assert_text(tests_path(p.into, "bin/other"), "o", 0640);
	assert_int_equal(readlink(tests_path(p.into, "link"), target, sizeof(target)), 12);
	assert_string_equal(target, "../any where");
	/* Not made, so not touched; and no temporary is left. */
	assert_text(tests_path(p.into, "gone"), "g", 0644);
	assert_int_equal(tests_count_names(p.into), 4);
	assert_int_equal(tests_count_names(tests_path(p.into, "bin")), 2);
	place_fini(&p);
}

static void test_restoring_never_goes_through_a_symlink(void **state)
{
	const char *const declared[] = {"sub/f"};
	struct place p;
	struct err err = {0};

	place_init(&p, *state);
	tests_write_file(tests_path(*state, "outside/keep"), "k", 1, 0644);
	assert_int_equal(symlink("../outside", tests_path(p.into, "sub")), 0);
	add_file(&p, "sub/f", "text");
	assert_int_equal(restore(&p, declared, 1, &err), -ENOTDIR);
	assert_non_null(strstr(err.msg, "sub"));
	assert_int_equal(tests_count_names(tests_path(*state, "outside")), 1);
	place_fini(&p);
}

static void test_a_missing_blob_leaves_the_old_output(void **state)
{
	const char *const declared[] = {"f"};
	struct place p;
	struct err err = {0};

	place_init(&p, *state);
	tests_write_file(tests_path(p.into, "f"), "old", 3, 0644);
	add_output(&p, "f", "file", "digest",
		   "00000000000000000000000000000000000000000000000000000000000000aa/5");
	assert_int_equal(restore(&p, declared, 1, &err), -ENOENT);
	assert_text(tests_path(p.into, "f"), "old", 0644);
	assert_int_equal(tests_count_names(p.into), 1);
	place_fini(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_status_and_times),
		cmocka_unit_test(test_timeout_ends_the_command_and_what_it_left),
		cmocka_unit_test(test_a_signal_to_us_goes_to_the_command),
		TESTS_IN_DIR(test_streams_pass_unchanged_and_are_stored),
		TESTS_IN_DIR(test_a_survivor_with_our_output_delays_nothing),
		TESTS_IN_DIR(test_outputs_replace_what_is_there_and_nothing_else),
		TESTS_IN_DIR(test_restoring_never_goes_through_a_symlink),
		TESTS_IN_DIR(test_a_missing_blob_leaves_the_old_output),
	};

	return cmocka_run_group_tests_name("tools_run", tests, init_signals, NULL);
}
