/* tests/unit/test_cas_checkout.c - root digest to disk tree: content, modes, links */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/checkout/checkout.h"
#include "cas/ingest/ingest.h"
#include "cas/put/put.h"
#include "cas/reapi/directory.h"
#include "cas/store/store.h"
#include "tests/lib/store.h"

static void close_store(struct cas_store **store)
{
	cas_store_close(*store);
}
#define auto_store auto_call(close_store)

static void write_text(void **state, const char *name, const char *content, unsigned mode)
{
	tests_write_file(tests_path(*state, name), content, strlen(content), mode);
}

static struct cas_digest ingest(struct cas_store *store, const char *path)
{
	struct cas_ingest_result out;
	struct err err = {0};

	if (cas_ingest(store, path, NULL, &out, &err) < 0)
		fail_msg("%s", err.msg);
	return out.digest;
}

static void checkout(struct cas_store *store, const struct cas_digest *root, const char *dest,
		     enum cas_checkout_mode mode)
{
	struct cas_checkout_options opts = {.mode = mode};
	struct err err = {0};

	if (cas_checkout(store, root, dest, &opts, &err) < 0)
		fail_msg("%s", err.msg);
}

static struct stat stat_of(void **state, const char *name)
{
	struct stat st;

	if (lstat(tests_path(*state, name), &st) < 0)
		fail_msg("%s: %s", name, strerror(errno));
	return st;
}

static void assert_content(void **state, const char *name, const char *content)
{
	auto_buf struct buf b = {0};

	assert_int_equal(io_read_file(AT_FDCWD, tests_path(*state, name), 1 << 20, &b), 0);
	assert_string_equal(buf_str(&b), content);
}

static const enum cas_checkout_mode modes[] = {CAS_CHECKOUT_AUTO, CAS_CHECKOUT_HARDLINK,
					       CAS_CHECKOUT_COPY};
#define NR_MODES 3

static struct cas_digest sample(struct cas_store *store, void **state)
{
	char name[64];

	write_text(state, "tree/hello.txt", "hello\n", 0644);
	write_text(state, "tree/empty", "", 0644);
	write_text(state, "tree/bin/run.sh", "#!/bin/sh\nexit 0\n", 0755);
	for (int i = 0; i < 300; i++) {
		(void)snprintf(name, sizeof(name), "tree/many/f\xc3\xa9-%d", i);
		write_text(state, name, name, i % 2 ? 0644 : 0755);
	}
	assert_int_equal(mkdir(tests_path(*state, "tree/nothing"), 0700), 0);
	assert_int_equal(symlink("bin/run.sh", tests_path(*state, "tree/link")), 0);
	assert_int_equal(symlink("gone", tests_path(*state, "tree/dangling")), 0);
	assert_int_equal(symlink("loop", tests_path(*state, "tree/loop")), 0);
	return ingest(store, tests_path(*state, "tree"));
}

static void test_a_tree_comes_back_the_same_in_every_mode(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest root = sample(store, state);
	mode_t old = umask(077);

	for (int i = 0; i < NR_MODES; i++) {
		const char *dest = tests_path(*state, "out");
		struct cas_digest again;

		checkout(store, &root, dest, modes[i]);
		again = ingest(store, dest);
		assert_string_equal(CAS_DIGEST_TEXT(&again), CAS_DIGEST_TEXT(&root));
		assert_int_equal(stat_of(state, "out").st_mode, S_IFDIR | 0755);
		assert_int_equal(stat_of(state, "out/bin").st_mode, S_IFDIR | 0755);
		assert_int_equal(stat_of(state, "out/bin/run.sh").st_mode, S_IFREG | 0555);
		assert_int_equal(stat_of(state, "out/hello.txt").st_mode, S_IFREG | 0444);
		assert_int_equal(stat_of(state, "out/empty").st_mode, S_IFREG | 0444);
		/* store, tree, out: and no temporary. */
		assert_int_equal(tests_count_names(*state), 3);
		assert_int_equal(io_remove_tree(AT_FDCWD, dest, NULL), 0);
	}
	(void)umask(old);
}

static void test_progress_counts(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_checkout_progress progress = {0};
	struct cas_checkout_options opts = {.progress = &progress, .nr_threads = 1};
	struct cas_digest root = sample(store, state);
	struct err err = {0};

	assert_int_equal(cas_checkout(store, &root, tests_path(*state, "out"), &opts, NULL), 0);
	assert_int_equal(progress.files, 303);
	assert_true(progress.bytes > 23 + 300 * 10);
	progress.cancel = true;
	assert_int_equal(cas_checkout(store, &root, tests_path(*state, "out2"), &opts, &err),
			 -ECANCELED);
	assert_non_null(strstr(err.msg, "out2' stopped on request"));
	assert_int_equal(tests_count_names(*state), 3);
}

static void test_c29_empty_files_and_directories(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest root;
	int fd;

	for (int i = 0; i < NR_MODES; i++) {
		write_text(state, "tree/a", "", 0644);
		write_text(state, "tree/b", "", 0644);
		write_text(state, "tree/x", "", 0755);
		root = ingest(store, tests_path(*state, "tree"));
		checkout(store, &root, tests_path(*state, "out"), modes[i]);
		assert_int_equal(stat_of(state, "out/a").st_nlink, 1);
		assert_int_equal(stat_of(state, "out/x").st_mode, S_IFREG | 0555);
		fd = open(tests_path(*state, "out/a"), O_WRONLY | O_CLOEXEC);
		if (fd >= 0) {
			assert_int_equal(io_write_full(fd, "x", 1), 0);
			(void)close(fd);
		}
		assert_int_equal(stat_of(state, "out/b").st_size, 0);
		assert_int_equal(io_remove_tree(AT_FDCWD, tests_path(*state, "out"), NULL), 0);
		checkout(store, &cas_digest_empty, tests_path(*state, "out"), modes[i]);
		assert_int_equal(tests_count_names(tests_path(*state, "out")), 0);
		assert_int_equal(rmdir(tests_path(*state, "out")), 0);
	}
}

static void test_c11_one_digest_with_and_without_x(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest both;
	struct cas_digest plain;
	char name[16];

	write_text(state, "tree/x", "tool", 0755);
	write_text(state, "tree/y", "tool", 0644);
	write_text(state, "plain/x", "tool", 0644);
	both = ingest(store, tests_path(*state, "tree"));
	plain = ingest(store, tests_path(*state, "plain"));
	for (int i = 0; i < 2 * NR_MODES; i++) {
		(void)snprintf(name, sizeof(name), "a%d", i);
		checkout(store, &both, tests_path(*state, name), modes[i / 2]);
		(void)snprintf(name, sizeof(name), "b%d", i);
		checkout(store, &plain, tests_path(*state, name), modes[i / 2]);
	}
	for (int i = 0; i < 2 * NR_MODES; i++) {
		(void)snprintf(name, sizeof(name), "a%d/x", i);
		assert_int_equal(stat_of(state, name).st_mode, S_IFREG | 0555);
		(void)snprintf(name, sizeof(name), "a%d/y", i);
		assert_int_equal(stat_of(state, name).st_mode, S_IFREG | 0444);
		(void)snprintf(name, sizeof(name), "b%d/x", i);
		assert_int_equal(stat_of(state, name).st_mode, S_IFREG | 0444);
	}
}

static void test_c02_writing_through_a_hardlink_is_noticed(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest root;
	struct cas_digest again;
	int fd;

	write_text(state, "tree/f", "right", 0644);
	root = ingest(store, tests_path(*state, "tree"));
	checkout(store, &root, tests_path(*state, "one"), CAS_CHECKOUT_HARDLINK);
	assert_true(stat_of(state, "one/f").st_nlink > 1);
	assert_int_equal(chmod(tests_path(*state, "one/f"), 0644), 0);
	fd = open(tests_path(*state, "one/f"), O_WRONLY | O_CLOEXEC);
	assert_int_equal(io_write_full(fd, "WRONG", 5), 0);
	assert_int_equal(close(fd), 0);
	for (int i = 0; i < NR_MODES; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "two%d", i);
		checkout(store, &root, tests_path(*state, name), modes[i]);
		again = ingest(store, tests_path(*state, name));
		assert_true(cas_digest_equal(&root, &again));
	}
}

static void test_c12_symlinks_lead_nobody_out(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest root;
	struct stat before;
	struct stat after;
	char target[64];

	write_text(state, "outside/secret", "x", 0700);
	(void)snprintf(target, sizeof(target), "%s", tests_path(*state, "outside"));
	assert_int_equal(mkdir(tests_path(*state, "tree"), 0755), 0);
	assert_int_equal(symlink(target, tests_path(*state, "tree/dir")), 0);
	assert_int_equal(symlink("../outside/secret", tests_path(*state, "tree/file")), 0);
	assert_int_equal(symlink("two", tests_path(*state, "tree/one")), 0);
	assert_int_equal(symlink("one", tests_path(*state, "tree/two")), 0);
	before = stat_of(state, "outside/secret");
	root = ingest(store, tests_path(*state, "tree"));
	for (int i = 0; i < NR_MODES; i++) {
		char link[64] = {0};

		checkout(store, &root, tests_path(*state, "out"), modes[i]);
		assert_true(readlink(tests_path(*state, "out/dir"), link, sizeof(link)) > 0);
		assert_string_equal(link, target);
		assert_true(S_ISLNK(stat_of(state, "out/one").st_mode));
		assert_int_equal(io_remove_tree(AT_FDCWD, tests_path(*state, "out"), NULL), 0);
	}
	after = stat_of(state, "outside/secret");
	assert_memory_equal(&before.st_mtim, &after.st_mtim, sizeof(before.st_mtim));
	assert_memory_equal(&before.st_ctim, &after.st_ctim, sizeof(before.st_ctim));
	assert_int_equal(before.st_mode, after.st_mode);
}

static void test_c20_the_longest_link_target_comes_back(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	char target[CAS_TARGET_MAX + 1];
	char got[CAS_TARGET_MAX + 2] = {0};
	struct cas_digest root;

	memset(target, '/', CAS_TARGET_MAX);
	target[CAS_TARGET_MAX] = '\0';
	assert_int_equal(mkdir(tests_path(*state, "tree"), 0755), 0);
	assert_int_equal(symlink(target, tests_path(*state, "tree/l")), 0);
	root = ingest(store, tests_path(*state, "tree"));
	checkout(store, &root, tests_path(*state, "out"), CAS_CHECKOUT_AUTO);
	assert_int_equal(readlink(tests_path(*state, "out/l"), got, sizeof(got)), CAS_TARGET_MAX);
	assert_string_equal(got, target);
}

static void test_c30_odd_sizes_and_forced_reflink(void **state)
{
	static const size_t sizes[] = {1, 4095, 4096, 4097, (1 << 20) + 1, 3 << 20};
	struct cas_checkout_options reflink = {.mode = CAS_CHECKOUT_REFLINK};
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	auto_free char *data = calloc(1, 3 << 20);
	struct err err = {0};
	struct cas_digest root;
	char name[32];
	int ret;

	for (int i = 0; i < 6; i++) {
		/* The last one stays zeros. */
		memset(data, i < 5 ? 'a' + i : 0, sizes[i]);
		(void)snprintf(name, sizeof(name), "tree/f%d", i);
		tests_write_file(tests_path(*state, name), data, sizes[i], 0644);
	}
	root = ingest(store, tests_path(*state, "tree"));
	for (int i = 0; i < NR_MODES; i++) {
		struct cas_digest again;

		checkout(store, &root, tests_path(*state, "out"), modes[i]);
		again = ingest(store, tests_path(*state, "out"));
		assert_true(cas_digest_equal(&root, &again));
		if (modes[i] != CAS_CHECKOUT_HARDLINK)
			assert_int_equal(stat_of(state, "out/f5").st_blocks, 0);
		assert_int_equal(io_remove_tree(AT_FDCWD, tests_path(*state, "out"), NULL), 0);
	}
	ret = cas_checkout(store, &root, tests_path(*state, "out"), &reflink, &err);
	if (ret == 0)
		skip();
	assert_int_equal(ret, -EOPNOTSUPP);
	assert_non_null(strstr(err.msg, "out/f"));
	assert_int_equal(tests_count_names(*state), 2);
}

static void test_hardlinks_to_another_filesystem_become_copies(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_digest root = sample(store, state);
	struct cas_digest again;
	char dest[] = "/dev/shm/casbox-test-XXXXXX";
	struct stat st;

	if (stat("/dev/shm", &st) < 0 || st.st_dev == stat_of(state, "store").st_dev ||
	    mkdtemp(dest) == NULL)
		skip();
	/* An empty directory is replaced. */
	checkout(store, &root, dest, CAS_CHECKOUT_HARDLINK);
	again = ingest(store, dest);
	assert_int_equal(io_remove_tree(AT_FDCWD, dest, NULL), 0);
	assert_true(cas_digest_equal(&root, &again));
}

static void test_node_properties_are_applied(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_node file = {.kind = CAS_NODE_FILE, .name = "f", .executable = true};
	struct cas_node link = {.kind = CAS_NODE_SYMLINK, .name = "l", .target = "f"};
	struct cas_node sub = {.kind = CAS_NODE_DIRECTORY, .name = "sub"};
	struct cas_directory *dir;
	struct cas_digest root;

	assert_int_equal(cas_put_bytes(store, "x", 1, &file.digest, NULL), 0);
	file.props = (struct cas_properties){
		.has_mtime = true, .mtime_sec = 1000, .mtime_nsec = 7, .has_mode = true};
	file.props.mode = 04640;
	link.props = (struct cas_properties){.has_mtime = true, .mtime_sec = 2000};
	assert_int_equal(cas_directory_new(&dir), 0);
	assert_int_equal(cas_directory_add(dir, &file), 0);
	assert_int_equal(cas_directory_add(dir, &link), 0);
	dir->props = (struct cas_properties){
		.has_mtime = true, .mtime_sec = 3000, .has_mode = true, .mode = 0500};
	assert_int_equal(cas_directory_put(store, dir, &sub.digest, NULL), 0);
	cas_directory_free(dir);
	assert_int_equal(cas_directory_new(&dir), 0);
	assert_int_equal(cas_directory_add(dir, &sub), 0);
	dir->props = (struct cas_properties){.has_mode = true, .mode = 0111};
	assert_int_equal(cas_directory_put(store, dir, &root, NULL), 0);
	cas_directory_free(dir);

	for (int i = 0; i < NR_MODES; i++) {
		checkout(store, &root, tests_path(*state, "out"), modes[i]);
		assert_int_equal(stat_of(state, "out").st_mode, S_IFDIR | 0111);
		assert_int_equal(stat_of(state, "out/sub").st_mode, S_IFDIR | 0500);
		assert_int_equal(stat_of(state, "out/sub").st_mtim.tv_sec, 3000);
		assert_int_equal(stat_of(state, "out/sub/f").st_mode, S_IFREG | 0640);
		assert_int_equal(stat_of(state, "out/sub/f").st_mtim.tv_sec, 1000);
		assert_int_equal(stat_of(state, "out/sub/f").st_mtim.tv_nsec, 7);
		assert_int_equal(stat_of(state, "out/sub/f").st_nlink, 1);
		assert_int_equal(stat_of(state, "out/sub/l").st_mtim.tv_sec, 2000);
		assert_int_equal(io_remove_tree(AT_FDCWD, tests_path(*state, "out"), NULL), 0);
	}
}

static void test_one_file_replaces_a_name_and_follows_no_link(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	auto_close int fd = open(*state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct cas_digest digest;
	struct err err = {0};

	assert_int_equal(cas_put_bytes(store, "new", 3, &digest, NULL), 0);
	write_text(state, "target", "old", 0644);
	assert_int_equal(symlink("target", tests_path(*state, "l")), 0);
	for (int i = 0; i < NR_MODES; i++) {
		struct cas_checkout_options opts = {.mode = modes[i]};

		assert_int_equal(cas_checkout_file(store, &digest, i % 2, fd, "l", &opts, NULL), 0);
		assert_content(state, "l", "new");
		assert_int_equal(stat_of(state, "l").st_mode, S_IFREG | (i % 2 ? 0555 : 0444));
		assert_int_equal(tests_count_names(*state), 3);
	}
	assert_content(state, "target", "old");
	assert_int_equal(cas_checkout_file(store, &digest, false, fd, "store", NULL, &err),
			 -EISDIR);
	assert_int_equal(cas_checkout_file(store, &digest, false, fd, "a/b", NULL, &err), -EINVAL);
	digest.hash[0] ^= 1;
	assert_int_equal(cas_checkout_file(store, &digest, false, fd, "l", NULL, &err), -ENOENT);
	assert_content(state, "l", "new");
	assert_int_equal(tests_count_names(*state), 3);
}

static void test_c17_a_chain_of_10000_directories(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_node node = {.kind = CAS_NODE_DIRECTORY, .name = "deep"};
	struct cas_node side = {.kind = CAS_NODE_SYMLINK, .name = "l", .target = "deep"};
	struct cas_digest root = cas_digest_empty;
	struct cas_digest again;

	for (int i = 0; i < 10000; i++) {
		struct cas_directory *dir;

		assert_int_equal(cas_directory_new(&dir), 0);
		node.digest = root;
		assert_int_equal(cas_directory_add(dir, &node), 0);
		assert_int_equal(cas_directory_add(dir, &side), 0);
		assert_int_equal(cas_directory_put(store, dir, &root, NULL), 0);
		cas_directory_free(dir);
	}
	checkout(store, &root, tests_path(*state, "out"), CAS_CHECKOUT_AUTO);
	again = ingest(store, tests_path(*state, "out"));
	assert_true(cas_digest_equal(&root, &again));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_a_tree_comes_back_the_same_in_every_mode),
		cmocka_unit_test_setup_teardown(test_progress_counts, tests_memory_dir_setup,
						tests_dir_teardown),
		TESTS_IN_DIR(test_c29_empty_files_and_directories),
		TESTS_IN_DIR(test_c11_one_digest_with_and_without_x),
		TESTS_IN_DIR(test_c02_writing_through_a_hardlink_is_noticed),
		TESTS_IN_DIR(test_c12_symlinks_lead_nobody_out),
		TESTS_IN_DIR(test_c20_the_longest_link_target_comes_back),
		TESTS_IN_DIR(test_c30_odd_sizes_and_forced_reflink),
		TESTS_IN_DIR(test_hardlinks_to_another_filesystem_become_copies),
		TESTS_IN_DIR(test_node_properties_are_applied),
		TESTS_IN_DIR(test_one_file_replaces_a_name_and_follows_no_link),
		cmocka_unit_test_setup_teardown(test_c17_a_chain_of_10000_directories,
						tests_memory_dir_setup, tests_dir_teardown),
	};

	return cmocka_run_group_tests_name("cas_checkout", tests, NULL, NULL);
}
