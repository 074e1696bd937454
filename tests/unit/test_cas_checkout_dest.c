/* tests/unit/test_cas_checkout_dest.c - checkout: destinations, failures, races, leftovers */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/checkout/checkout.h"
#include "cas/checkout/checkout_i.h"
#include "cas/ingest/ingest.h"
#include "cas/put/put.h"
#include "cas/reapi/directory.h"
#include "cas/store/layout.h"
#include "cas/store/store.h"
#include "tests/lib/store.h"

static void close_store(struct cas_store **store)
{
	cas_store_close(*store);
}
#define auto_store auto_call(close_store)

static struct cas_digest put(struct cas_store *store, const char *data, size_t len)
{
	struct cas_digest digest;

	assert_int_equal(cas_put_bytes(store, data, len, &digest, NULL), 0);
	return digest;
}

/* A Directory {dir/{f}} whose file has @digest. */
static struct cas_digest small_tree(struct cas_store *store, const struct cas_digest *digest)
{
	struct cas_node file = {.kind = CAS_NODE_FILE, .name = "f", .digest = *digest};
	struct cas_node sub = {.kind = CAS_NODE_DIRECTORY, .name = "dir"};
	struct cas_directory *dir;
	struct cas_digest root;

	assert_int_equal(cas_directory_new(&dir), 0);
	assert_int_equal(cas_directory_add(dir, &file), 0);
	assert_int_equal(cas_directory_put(store, dir, &sub.digest, NULL), 0);
	cas_directory_free(dir);
	assert_int_equal(cas_directory_new(&dir), 0);
	assert_int_equal(cas_directory_add(dir, &sub), 0);
	assert_int_equal(cas_directory_put(store, dir, &root, NULL), 0);
	cas_directory_free(dir);
	return root;
}

static void assert_refused(struct cas_store *store, const struct cas_digest *root, const char *dest,
			   int code, const char *word)
{
	struct err err = {0};
	int ret = cas_checkout(store, root, dest, NULL, &err);

	if (ret != code || strstr(err.msg, word) == NULL)
		fail_msg("%d (wanted %d), '%s' (wanted '%s')", ret, code, err.msg, word);
}

static void test_c22_destinations_that_are_refused(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest blob = put(store, "x", 1);
	struct cas_digest root = small_tree(store, &blob);

	tests_write_file(tests_path(*state, "file"), "keep", 4, 0644);
	tests_write_file(tests_path(*state, "full/f"), "keep", 4, 0644);
	assert_int_equal(mkdir(tests_path(*state, "void"), 0755), 0);
	assert_int_equal(symlink("void", tests_path(*state, "to-void")), 0);
	assert_int_equal(symlink("nowhere", tests_path(*state, "dangling")), 0);
	assert_int_equal(symlink("loop", tests_path(*state, "loop")), 0);

	assert_refused(store, &root, tests_path(*state, "file"), -EEXIST, "/file' exists");
	assert_refused(store, &root, tests_path(*state, "full"), -EEXIST, "/full' exists");
	assert_refused(store, &root, tests_path(*state, "to-void"), -EEXIST, "/to-void' exists");
	assert_refused(store, &root, tests_path(*state, "dangling"), -EEXIST, "exists");
	assert_refused(store, &root, tests_path(*state, "no/such/out"), -ENOENT, "no/such'");
	assert_refused(store, &root, tests_path(*state, "file/out"), -ENOTDIR, "/file'");
	assert_refused(store, &root, tests_path(*state, "loop/out"), -ELOOP, "/loop'");
	assert_refused(store, &root, tests_path(*state, "dangling/out"), -ENOENT, "parent");
	assert_refused(store, &root, tests_path(*state, "."), -EINVAL, "name to create");
	assert_refused(store, &root, "/", -EINVAL, "name to create");
	assert_refused(store, &root, "", -EINVAL, "name to create");
	assert_refused(store, &root, "/proc", -EBUSY, "mount point");
	/* store, file, full, void and three links; nothing was written through them. */
	assert_int_equal(tests_count_names(*state), 7);
	assert_int_equal(tests_count_names(tests_path(*state, "void")), 0);
	assert_int_equal(tests_count_names(tests_path(*state, "full")), 1);
}

static void test_c22_destinations_that_are_taken(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest blob = put(store, "x", 1);
	struct cas_digest root = small_tree(store, &blob);
	struct err err = {0};
	struct stat st;

	assert_int_equal(mkdir(tests_path(*state, "void"), 0700), 0);
	assert_int_equal(cas_checkout(store, &root, tests_path(*state, "void//"), NULL, &err), 0);
	assert_int_equal(stat(tests_path(*state, "void/dir/f"), &st), 0);
	assert_int_equal(cas_checkout(store, &root, tests_path(*state, "/new/"), NULL, &err), 0);
	assert_int_equal(stat(tests_path(*state, "new/dir/f"), &st), 0);
	assert_int_equal(tests_count_names(*state), 3);
}

static void test_a_missing_blob_is_named_and_nothing_left(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest gone = put(store, "gone", 4);
	struct cas_digest root = small_tree(store, &gone);
	char path[CAS_LAYOUT_PATH_SZ];
	char full[512];

	cas_layout_path(gone.hash, path);
	(void)snprintf(full, sizeof(full), "%s/store/cas/%s", (char *)*state, path);
	assert_int_equal(unlink(full), 0);
	assert_refused(store, &root, tests_path(*state, "out"), -ENOENT, CAS_DIGEST_TEXT(&gone));
	assert_refused(store, &root, tests_path(*state, "out"), -ENOENT, "/out/dir/f'");
	root.hash[5] ^= 1;
	assert_refused(store, &root, tests_path(*state, "out"), -ENOENT, CAS_DIGEST_TEXT(&root));
	assert_int_equal(tests_count_names(*state), 1);
}

static void test_c17_hostile_directories_create_nothing(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	/* FileNode{"../evil", digest of "x"}, its length bytes filled in below. */
	static const char hash[] =
		"2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881";
	static const char *const names[] = {"../evil", "/tmp/evil", "..", ".", "a/b"};
	struct cas_node sub = {.kind = CAS_NODE_DIRECTORY, .name = "sub"};

	(void)put(store, "x", 1);
	for (int i = 0; i < 5; i++) {
		auto_buf struct buf b = {0};
		struct cas_directory *dir;
		struct cas_digest bad;
		struct cas_digest root;
		size_t len = strlen(names[i]);

		assert_int_equal(buf_printf(&b, "\x0a%c\x0a%c%s\x12\x44\x0a\x40%s\x10\x01",
					    (char)(2 + len + 2 + 68), (char)len, names[i], hash),
				 0);
		bad = put(store, b.data, b.len);
		assert_refused(store, &bad, tests_path(*state, "out"), -EUCLEAN,
			       CAS_DIGEST_TEXT(&bad));
		sub.digest = bad;
		assert_int_equal(cas_directory_new(&dir), 0);
		assert_int_equal(cas_directory_add(dir, &sub), 0);
		assert_int_equal(cas_directory_put(store, dir, &root, NULL), 0);
		cas_directory_free(dir);
		assert_refused(store, &root, tests_path(*state, "out"), -EUCLEAN, "out/sub'");
		assert_int_equal(tests_count_names(*state), 1);
	}
}

static void test_c17_a_root_that_is_a_file_is_refused(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest text = put(store, "#!/bin/sh\nexit 0\n", 17);

	assert_refused(store, &text, tests_path(*state, "out"), -EUCLEAN, "is no Directory");
	assert_int_equal(tests_count_names(*state), 1);
}

struct racer {
	struct cas_store *store;
	const struct cas_digest *root;
	char dest[256];
	int ret;
};

static void *racer_main(void *arg)
{
	struct racer *r = arg;
	struct cas_checkout_options opts = {.nr_threads = 2};

	r->ret = cas_checkout(r->store, r->root, r->dest, &opts, NULL);
	return NULL;
}

static void test_c34_of_two_checkouts_to_one_place_one_wins(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest blob = put(store, "x", 1);
	struct cas_digest root = small_tree(store, &blob);

	for (int round = 0; round < 20; round++) {
		struct racer r[4];
		pthread_t t[4];
		int won = 0;

		for (int i = 0; i < 4; i++) {
			r[i] = (struct racer){.store = store, .root = &root};
			(void)snprintf(r[i].dest, sizeof(r[i].dest), "%s/out-%d", (char *)*state,
				       round);
			assert_int_equal(pthread_create(&t[i], NULL, racer_main, &r[i]), 0);
		}
		for (int i = 0; i < 4; i++) {
			assert_int_equal(pthread_join(t[i], NULL), 0);
			assert_true(r[i].ret == 0 || r[i].ret == -EEXIST);
			won += r[i].ret == 0;
		}
		assert_int_equal(won, 1);
		assert_int_equal(tests_count_names(*state), 2 + round);
	}
}

/* A child makes the temporary of a checkout to "out", fills it and says so. */
static pid_t start_dead_or_alive(void **state, int pipe_fds[2], bool stay)
{
	pid_t pid;

	assert_int_equal(pipe(pipe_fds), 0);
	pid = fork();
	if (pid == 0) {
		int parent = open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		char name[CAS_TEMP_NAME_SZ];
		int fd = -1;
		int ret = checkout_temp_make(parent, "out", name, &fd, NULL);

		if (ret == 0)
			ret = mkdirat(fd, "half", 0500);
		(void)write(pipe_fds[1], ret == 0 ? "+" : "-", 1);
		while (stay)
			(void)pause();
		_exit(0);
	}
	return pid;
}

static void wait_ready(const int pipe_fds[2])
{
	char c = 0;

	assert_int_equal(read(pipe_fds[0], &c, 1), 1);
	assert_int_equal(c, '+');
	(void)close(pipe_fds[0]);
	(void)close(pipe_fds[1]);
}

static void test_c34_leftovers_of_the_killed_are_removed(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest blob = put(store, "x", 1);
	struct cas_digest root = small_tree(store, &blob);
	const char *dest = tests_path(*state, "out");
	int pipe_fds[2];
	pid_t pid = start_dead_or_alive(state, pipe_fds, false);

	wait_ready(pipe_fds);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(tests_count_names(*state), 2);
	assert_int_equal(cas_checkout(store, &root, dest, NULL, NULL), 0);
	assert_int_equal(tests_count_names(*state), 2);

	/* One that lives is left alone. */
	assert_int_equal(io_remove_tree(AT_FDCWD, dest, NULL), 0);
	pid = start_dead_or_alive(state, pipe_fds, true);
	wait_ready(pipe_fds);
	assert_int_equal(cas_checkout(store, &root, dest, NULL, NULL), 0);
	assert_int_equal(tests_count_names(*state), 3);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(io_remove_tree(AT_FDCWD, dest, NULL), 0);
	assert_int_equal(cas_checkout(store, &root, dest, NULL, NULL), 0);
	assert_int_equal(tests_count_names(*state), 2);
}

/* Directories d0..d29 of a few files, enough work to be killed in. */
static struct cas_digest wide_tree(struct cas_store *store, void **state)
{
	struct cas_ingest_result out;
	char name[64];

	for (int i = 0; i < 300; i++) {
		(void)snprintf(name, sizeof(name), "tree/d%d/f%d", i / 10, i);
		tests_write_file(tests_path(*state, name), name, strlen(name), 0644);
	}
	assert_int_equal(cas_ingest(store, tests_path(*state, "tree"), NULL, &out, NULL), 0);
	return out.digest;
}

static void test_c34_killed_at_any_point_it_is_absent_or_complete(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest root = wide_tree(store, state);
	const char *dest = tests_path(*state, "out");
	struct cas_ingest_result again;
	struct stat st;

	for (int round = 0; round < 12; round++) {
		struct cas_checkout_options opts = {.mode = round % 2 ? CAS_CHECKOUT_HARDLINK
								      : CAS_CHECKOUT_AUTO};
		struct timespec pause = {.tv_nsec = round * 3000000};
		pid_t pid = fork();

		if (pid == 0)
			_exit(cas_checkout(store, &root, dest, &opts, NULL) != 0);
		(void)nanosleep(&pause, NULL);
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		if (stat(dest, &st) < 0)
			assert_int_equal(cas_checkout(store, &root, dest, &opts, NULL), 0);
		assert_int_equal(cas_ingest(store, dest, NULL, &again, NULL), 0);
		assert_true(cas_digest_equal(&root, &again.digest));
		/* store, tree, out */
		assert_int_equal(tests_count_names(*state), 3);
		assert_int_equal(io_remove_tree(AT_FDCWD, dest, NULL), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_c22_destinations_that_are_refused),
		TESTS_IN_DIR(test_c22_destinations_that_are_taken),
		TESTS_IN_DIR(test_a_missing_blob_is_named_and_nothing_left),
		TESTS_IN_DIR(test_c17_hostile_directories_create_nothing),
		TESTS_IN_DIR(test_c17_a_root_that_is_a_file_is_refused),
		TESTS_IN_DIR(test_c34_of_two_checkouts_to_one_place_one_wins),
		TESTS_IN_DIR(test_c34_leftovers_of_the_killed_are_removed),
		cmocka_unit_test_setup_teardown(
			test_c34_killed_at_any_point_it_is_absent_or_complete,
			tests_memory_dir_setup, tests_dir_teardown),
	};

	return cmocka_run_group_tests_name("cas_checkout_dest", tests, NULL, NULL);
}
