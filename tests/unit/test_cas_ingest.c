/* tests/unit/test_cas_ingest.c - disk tree to root digest */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/hash.h"
#include "cas/ingest/ingest.h"
#include "cas/put/temp_name.h"
#include "cas/reapi/directory.h"
#include "cas/store/layout.h"
#include "cas/store/store.h"
#include "tests/lib/store.h"

#define VECTOR_ROOT "3f340cb4cd08abe210440d8f0a5fcfacef8a3a71b15ae4ecaf2b8f30e2a79034/257"

/* A catalog that remembers file identities, in an array. */
struct memory {
	pthread_mutex_t mutex;
	size_t nr;
	struct cas_file_id id[64];
	struct cas_digest digest[64];
};

static int memory_blob_find(void *ctx, const struct cas_digest *digest, struct cas_stamp *stamp)
{
	return 0;
}

static int memory_size_find(void *ctx, const uint8_t hash[CAS_HASH_SZ], uint64_t *size)
{
	return 0;
}

static void memory_blob_add(void *ctx, const struct cas_digest *digest,
			    const struct cas_stamp *stamp)
{
}

static void memory_blob_note(void *ctx, const struct cas_digest *digest)
{
}

static int memory_file_find(void *ctx, const struct cas_file_id *id, struct cas_digest *digest)
{
	struct memory *m = ctx;
	int ret = 0;

	(void)pthread_mutex_lock(&m->mutex);
	for (size_t i = 0; i < m->nr && ret == 0; i++) {
		if (memcmp(&m->id[i], id, sizeof(*id)) == 0) {
			*digest = m->digest[i];
			ret = 1;
		}
	}
	(void)pthread_mutex_unlock(&m->mutex);
	return ret;
}

static void memory_file_add(void *ctx, const struct cas_file_id *id,
			    const struct cas_digest *digest)
{
	struct memory *m = ctx;

	(void)pthread_mutex_lock(&m->mutex);
	if (m->nr < 64) {
		m->id[m->nr] = *id;
		m->digest[m->nr++] = *digest;
	}
	(void)pthread_mutex_unlock(&m->mutex);
}

static int memory_flush(void *ctx, struct err *err)
{
	return 0;
}

static int memory_usage(void *ctx, struct cas_usage *out)
{
	return 0;
}

static int memory_victims(void *ctx, const struct cas_victim *after, struct cas_victim *out,
			  int max, struct err *err)
{
	return 0;
}

static int memory_trees(void *ctx, int64_t after_ns, struct cas_victim *out, int max,
			struct err *err)
{
	return 0;
}

static void memory_tree_touch(void *ctx, const struct cas_digest *root, bool over)
{
	memory_blob_note(ctx, root);
}

static const struct cas_catalog_ops memory_ops = {
	.blob_find = memory_blob_find,
	.size_find = memory_size_find,
	.blob_add = memory_blob_add,
	.blob_touch = memory_blob_note,
	.tree_touch = memory_tree_touch,
	.blob_drop = memory_blob_note,
	.file_find = memory_file_find,
	.file_add = memory_file_add,
	.flush = memory_flush,
	.usage = memory_usage,
	.victims = memory_victims,
	.trees = memory_trees,
};

static void close_store(struct cas_store **store)
{
	cas_store_close(*store);
}
#define auto_store auto_call(close_store)

/* Write DIR/tree/NAME. */
static void tree_file(void **state, const char *name, const char *content, unsigned mode)
{
	char path[256];

	(void)snprintf(path, sizeof(path), "tree/%s", name);
	tests_write_file(tests_path(*state, path), content, strlen(content), mode);
}

static void tree_link(void **state, const char *name, const char *target)
{
	char path[256];

	(void)snprintf(path, sizeof(path), "tree/%s", name);
	assert_int_equal(symlink(target, tests_path(*state, path)), 0);
}

static struct cas_ingest_result ingest(struct cas_store *store, void **state,
				       const struct cas_ingest_options *opts)
{
	struct cas_ingest_result out;
	struct err err = {0};

	if (cas_ingest(store, tests_path(*state, "tree"), opts, &out, &err) < 0)
		fail_msg("%s", err.msg);
	assert_true(out.is_directory);
	return out;
}

static struct cas_directory *load(struct cas_store *store, const struct cas_digest *digest)
{
	struct cas_directory *dir = NULL;
	struct err err = {0};

	if (cas_directory_load(store, digest, &dir, &err) < 0)
		fail_msg("%s", err.msg);
	return dir;
}

static void assert_ingest_fails(struct cas_store *store, const char *path,
				const struct cas_ingest_options *opts, int code, const char *word)
{
	struct cas_ingest_result out = {.executable = true};
	struct err err = {0};

	assert_int_equal(cas_ingest(store, path, opts, &out, &err), code);
	assert_true(out.executable);
	if (strstr(err.msg, word) == NULL)
		fail_msg("'%s' does not say '%s'", err.msg, word);
}

static int count_blob(void *ctx, const struct cas_store_blob *blob)
{
	++*(int *)ctx;
	return 0;
}

static int nr_blobs(struct cas_store *store)
{
	int nr = 0;

	assert_int_equal(cas_store_walk(store, count_blob, NULL, &nr, NULL), 0);
	return nr;
}

static void test_tree_of_the_protocol_page_has_its_digest(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_ingest_progress progress = {0};
	struct cas_ingest_options opts = {.progress = &progress};
	struct cas_ingest_result out;
	auto_buf struct buf blob = {0};
	auto_buf struct buf tree = {0};
	struct cas_digest digest;

	tree_file(state, "hello.txt", "hello\n", 0644);
	tree_file(state, "empty", "", 0600);
	tree_file(state, "bin/run.sh", "#!/bin/sh\nexit 0\n", 0755);
	tree_link(state, "link", "bin/run.sh");
	out = ingest(store, state, &opts);
	assert_string_equal(CAS_DIGEST_TEXT(&out.digest), VECTOR_ROOT);
	assert_int_equal(progress.files, 3);
	assert_int_equal(progress.directories, 2);
	assert_int_equal(progress.symlinks, 1);
	assert_int_equal(progress.bytes, 23);
	assert_int_equal(progress.hashed, 2);
	assert_int_equal(nr_blobs(store), 4);
	assert_int_equal(cas_hash_bytes("hello\n", 6, &digest), 0);
	assert_int_equal(cas_store_read_blob(store, &digest, 10, &blob, NULL), 0);
	assert_string_equal(buf_str(&blob), "hello\n");

	assert_int_equal(cas_tree_encode(store, &out.digest, &tree, NULL), 0);
	assert_int_equal(cas_hash_bytes(tree.data, tree.len, &digest), 0);
	assert_string_equal(CAS_DIGEST_TEXT(&digest),
			    "97e6db2f5eb713d96be3105e4446318b1ed47baa7631530ed7778e57d1cf7180/344");
}

static void test_a_file_alone_gives_its_blob(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_ingest_options follow = {.follow_top = true};
	struct cas_ingest_result out;

	tree_file(state, "run.sh", "#!/bin/sh\nexit 0\n", 0700);
	tree_link(state, "l", "run.sh");
	assert_int_equal(cas_ingest(store, tests_path(*state, "tree/run.sh"), NULL, &out, NULL), 0);
	assert_false(out.is_directory);
	assert_true(out.executable);
	assert_int_equal(out.digest.size, 17);
	assert_ingest_fails(store, tests_path(*state, "tree/l"), NULL, -ELOOP, "symlink");
	memset(&out, 0, sizeof(out));
	assert_int_equal(cas_ingest(store, tests_path(*state, "tree/l"), &follow, &out, NULL), 0);
	assert_int_equal(out.digest.size, 17);
	assert_ingest_fails(store, tests_path(*state, "gone"), NULL, -ENOENT, "gone");
}

static void test_c02_ingest_shares_no_inode_with_its_source(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_ingest_result out;
	auto_buf struct buf blob = {0};
	const char *path = tests_path(*state, "tree/f");
	int fd;

	tree_file(state, "f", "old content", 0644);
	assert_int_equal(cas_ingest(store, path, NULL, &out, NULL), 0);
	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	assert_int_equal(io_write_full(fd, "new", 3), 0);
	assert_int_equal(close(fd), 0);
	assert_int_equal(cas_store_read_blob(store, &out.digest, 100, &blob, NULL), 0);
	assert_string_equal(buf_str(&blob), "old content");
}

static void test_c10_hard_links_are_files_of_equal_content(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_ingest_result linked;
	struct cas_ingest_result copied;

	tree_file(state, "a", "same", 0644);
	assert_int_equal(link(tests_path(*state, "tree/a"), tests_path(*state, "tree/b")), 0);
	linked = ingest(store, state, NULL);
	assert_int_equal(unlink(tests_path(*state, "tree/b")), 0);
	tree_file(state, "b", "same", 0644);
	copied = ingest(store, state, NULL);
	assert_true(cas_digest_equal(&linked.digest, &copied.digest));
}

static void test_c11_executable_belongs_to_the_name(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_ingest_result out;
	struct cas_directory *dir;

	tree_file(state, "x", "tool", 0755);
	tree_file(state, "y", "tool", 0655);
	out = ingest(store, state, NULL);
	dir = load(store, &out.digest);
	assert_true(cas_directory_find(dir, "x")->executable);
	assert_false(cas_directory_find(dir, "y")->executable);
	assert_true(cas_digest_equal(&dir->nodes[0].digest, &dir->nodes[1].digest));
	assert_int_equal(nr_blobs(store), 2);
	cas_directory_free(dir);
}

static void test_c12_c20_symlinks_are_text(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	static char longest[CAS_TARGET_MAX + 1];
	static const char *const targets[] = {"missing", "/etc",       "l2",
					      "sub",	 "../sibling", longest};
	struct cas_ingest_result out;
	struct cas_directory *dir;
	char name[8];

	memset(longest, 't', CAS_TARGET_MAX);
	for (size_t i = 0; i < CAS_TARGET_MAX; i += 100)
		longest[i] = '/';
	tree_file(state, "sub/f", "x", 0644);
	for (int i = 0; i < 6; i++) {
		(void)snprintf(name, sizeof(name), "l%d", i);
		tree_link(state, name, targets[i]);
	}
	out = ingest(store, state, NULL);
	dir = load(store, &out.digest);
	assert_int_equal(dir->nr_nodes, 7);
	for (int i = 0; i < 6; i++) {
		assert_int_equal(dir->nodes[i].kind, CAS_NODE_SYMLINK);
		assert_string_equal(dir->nodes[i].target, targets[i]);
	}
	cas_directory_free(dir);
}

static void test_c17_what_no_directory_holds_is_named(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	const char *top = tests_path(*state, "tree");

	tree_file(state, "sub/ok", "x", 0644);
	tree_file(state, "sub/caf\xe9", "x", 0644);
	assert_ingest_fails(store, top, NULL, -EINVAL, "tree/sub/caf\\xe9' has a name that is not");
	assert_int_equal(unlink(tests_path(*state, "tree/sub/caf\xe9")), 0);
	assert_int_equal(mkfifo(tests_path(*state, "tree/sub/pipe"), 0600), 0);
	assert_ingest_fails(store, top, NULL, -EINVAL, "tree/sub/pipe' is a socket, FIFO");
	assert_ingest_fails(store, tests_path(*state, "tree/sub/pipe"), NULL, -EINVAL, "pipe");
}

static bool skip_build(void *ctx, const char *path, bool is_dir)
{
	return is_dir ? strcmp(path, "a/build") == 0 : strcmp(path, "a/b/x") == 0;
}

static void test_skipped_entries_are_left_out(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_ingest_options opts = {.skip = skip_build};
	struct cas_ingest_result with;
	struct cas_ingest_result without;

	tree_file(state, "a/b/y", "y", 0644);
	without = ingest(store, state, NULL);
	tree_file(state, "a/b/x", "x", 0644);
	tree_file(state, "a/build/z", "z", 0644);
	assert_int_equal(mkfifo(tests_path(*state, "tree/a/build/pipe"), 0600), 0);
	with = ingest(store, state, &opts);
	assert_true(cas_digest_equal(&with.digest, &without.digest));
}

static void test_c15_the_store_itself_stays_closed(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	const char *meta = tests_path(*state, "store/meta");
	const char *file = tests_path(*state, "store/meta/some.db");

	assert_ingest_fails(store, *state, NULL, -ELOOP, "/store lies inside the tree");
	assert_ingest_fails(store, tests_path(*state, "store"), NULL, -ELOOP, "/store lies");
	tests_write_file(file, "x", 1, 0600);
	assert_ingest_fails(store, meta, NULL, -ELOOP, "lies inside");
	assert_ingest_fails(store, file, NULL, -ELOOP, "belongs to the store");
}

/*
 * Nobody serves this mount: whoever asks it for anything waits for ever, as a daemon
 * would that walked into its own mount.
 */
static void test_c33_a_casbox_mount_inside_is_an_error_and_not_asked(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	auto_close int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char where[PATH_MAX];
	char data[128];
	int ret;

	tree_file(state, "sub/f", "x", 0644);
	(void)snprintf(where, sizeof(where), "%s", tests_path(*state, "tree/sub/mnt"));
	assert_int_equal(mkdir(where, 0755), 0);
	(void)snprintf(data, sizeof(data), "fd=%d,rootmode=40000,user_id=%u,group_id=%u", fuse,
		       geteuid(), getegid());
	if (fuse < 0 || mount("casbox", where, "fuse.casbox", MS_NOSUID | MS_NODEV, data) < 0)
		skip();
	(void)alarm(20);
	ret = cas_ingest(store, tests_path(*state, "tree"), NULL, &(struct cas_ingest_result){0},
			 NULL);
	(void)alarm(0);
	assert_int_equal(ret, -ELOOP);
	assert_ingest_fails(store, tests_path(*state, "tree"), NULL, -ELOOP,
			    "tree/sub/mnt': a casbox");
	assert_int_equal(umount2(where, MNT_DETACH), 0);
}

static void pause_ms(long ms)
{
	struct timespec ts = {.tv_nsec = ms * 1000000};

	while (nanosleep(&ts, &ts) < 0 && errno == EINTR)
		;
}

static void test_known_files_are_not_opened(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct memory memory = {.mutex = PTHREAD_MUTEX_INITIALIZER};
	struct cas_catalog catalog = {&memory_ops, &memory};
	struct cas_ingest_progress first = {0};
	struct cas_ingest_progress second = {0};
	struct cas_ingest_progress third = {0};
	struct cas_ingest_options opts = {.progress = &first};
	char path[CAS_LAYOUT_PATH_SZ];
	char full[PATH_MAX];
	struct cas_ingest_result a;
	struct cas_ingest_result b;

	cas_store_set_catalog(store, &catalog);
	tree_file(state, "one", "1", 0644);
	tree_file(state, "sub/two", "22", 0755);
	tree_file(state, "sub/none", "", 0644);
	pause_ms(100);
	a = ingest(store, state, &opts);
	assert_int_equal(first.hashed, 2);
	assert_int_equal(memory.nr, 2);
	opts.progress = &second;
	b = ingest(store, state, &opts);
	assert_true(cas_digest_equal(&a.digest, &b.digest));
	assert_int_equal(second.hashed, 0);
	assert_int_equal(second.files, 3);
	assert_int_equal(second.bytes, 3);

	/* The blob is the truth: without it an identity is worth nothing. */
	cas_layout_path(memory.digest[0].hash, path);
	(void)snprintf(full, sizeof(full), "%s/store/cas/%s", (char *)*state, path);
	assert_int_equal(unlink(full), 0);
	opts.progress = &third;
	b = ingest(store, state, &opts);
	assert_true(cas_digest_equal(&a.digest, &b.digest));
	assert_int_equal(third.hashed, 1);
	assert_int_equal(cas_store_has(store, &memory.digest[0]), 1);
}

static void test_changed_files_are_read_again(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct memory memory = {.mutex = PTHREAD_MUTEX_INITIALIZER};
	struct cas_catalog catalog = {&memory_ops, &memory};
	struct cas_ingest_result a;
	struct cas_ingest_result b;
	struct stat st;
	struct timespec times[2];
	const char *path = tests_path(*state, "tree/f");

	cas_store_set_catalog(store, &catalog);
	tree_file(state, "f", "old", 0644);
	pause_ms(100);
	a = ingest(store, state, NULL);
	/* Same size, same inode, mtime put back: only ctime tells. */
	assert_int_equal(stat(path, &st), 0);
	tests_write_file(path, "new", 3, 0644);
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	b = ingest(store, state, NULL);
	assert_false(cas_digest_equal(&a.digest, &b.digest));
}

static void test_young_files_are_not_remembered(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct memory memory = {.mutex = PTHREAD_MUTEX_INITIALIZER};
	struct cas_catalog catalog = {&memory_ops, &memory};
	struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = 4000000000}};

	cas_store_set_catalog(store, &catalog);
	tree_file(state, "f", "x", 0644);
	/* A time ahead of the clock: no wait makes the file old enough. */
	assert_int_equal(utimensat(AT_FDCWD, tests_path(*state, "tree/f"), times, 0), 0);
	(void)ingest(store, state, NULL);
	assert_int_equal(memory.nr, 0);
}

struct writer {
	int fd;
	_Atomic bool stop;
};

static void *writer_main(void *arg)
{
	struct writer *w = arg;
	char c = 0;

	while (!atomic_load(&w->stop)) {
		assert_int_equal(pwrite(w->fd, &c, 1, 17), 1);
		c++;
	}
	return NULL;
}

static void test_a_file_under_change_is_named(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct writer w = {0};
	struct err err = {0};
	pthread_t thread;
	int before;
	int ret;

	tree_file(state, "busy", "", 0644);
	w.fd = open(tests_path(*state, "tree/busy"), O_RDWR | O_CLOEXEC);
	assert_true(w.fd >= 0);
	for (int i = 0; i < 16 << 20; i += 1 << 20)
		assert_int_equal(pwrite(w.fd, "data", 4, i), 4);
	assert_int_equal(pthread_create(&thread, NULL, writer_main, &w), 0);
	/* On a busy machine the writer may not have had a turn while the file was read. */
	do {
		struct cas_ingest_result out;

		before = nr_blobs(store);
		ret = cas_ingest(store, tests_path(*state, "tree"), NULL, &out, &err);
	} while (ret == 0);
	atomic_store(&w.stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(close(w.fd), 0);
	assert_int_equal(ret, -EAGAIN);
	assert_non_null(strstr(err.msg, "tree/busy"));
	assert_int_equal(nr_blobs(store), before);
	(void)ingest(store, state, NULL);
	assert_true(nr_blobs(store) >= 2);
}

static void test_c29_empty_files_need_no_blob(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_ingest_progress progress = {0};
	struct cas_ingest_options opts = {.progress = &progress};
	struct cas_ingest_result out;
	char name[32];

	for (int i = 0; i < 1000; i++) {
		(void)snprintf(name, sizeof(name), "e%d", i);
		tree_file(state, name, "", 0644);
	}
	assert_int_equal(mkdir(tests_path(*state, "tree/sub"), 0755), 0);
	out = ingest(store, state, &opts);
	assert_int_equal(progress.hashed, 0);
	assert_int_equal(progress.files, 1000);
	assert_int_equal(nr_blobs(store), 1);
	assert_int_equal(rmdir(tests_path(*state, "tree/sub")), 0);
	assert_int_equal(io_remove_tree(AT_FDCWD, tests_path(*state, "tree"), NULL), 0);
	assert_int_equal(mkdir(tests_path(*state, "tree"), 0755), 0);
	out = ingest(store, state, NULL);
	assert_true(cas_digest_is_empty(&out.digest));
	assert_int_equal(nr_blobs(store), 1);
}

static void test_threads_change_nothing_but_time(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_ingest_options opts = {.nr_threads = 1};
	struct cas_ingest_result one;
	struct cas_ingest_result many;
	char name[32];

	for (int i = 0; i < 1500; i++) {
		(void)snprintf(name, sizeof(name), i % 3 ? "f%d" : "d%d/f", i);
		tree_file(state, name, name, i % 2 ? 0644 : 0755);
	}
	one = ingest(store, state, &opts);
	opts.nr_threads = 8;
	many = ingest(store, state, &opts);
	assert_true(cas_digest_equal(&one.digest, &many.digest));
	assert_int_equal(nr_blobs(store), 1500 + 500 + 1);
}

static void test_preserve_records_modes_and_times(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_ingest_options opts = {.preserve = true};
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000, .tv_nsec = 7}};
	struct cas_ingest_result out;
	struct cas_directory *dir;

	tree_file(state, "f", "x", 0640);
	tree_link(state, "l", "f");
	assert_int_equal(utimensat(AT_FDCWD, tests_path(*state, "tree/f"), times, 0), 0);
	times[1].tv_sec = 2000;
	assert_int_equal(
		utimensat(AT_FDCWD, tests_path(*state, "tree/l"), times, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(chmod(tests_path(*state, "tree"), 0710), 0);
	out = ingest(store, state, &opts);
	dir = load(store, &out.digest);
	assert_int_equal(dir->nodes[0].props.mtime_sec, 1000);
	assert_int_equal(dir->nodes[0].props.mtime_nsec, 7);
	assert_int_equal(dir->nodes[0].props.mode, 0640);
	assert_int_equal(dir->nodes[1].props.mtime_sec, 2000);
	assert_false(dir->nodes[1].props.has_mode);
	assert_true(dir->props.has_mtime);
	assert_int_equal(dir->props.mode, 0710);
	cas_directory_free(dir);
}

static void test_c17_a_chain_of_10000_directories(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_ingest_progress progress = {0};
	struct cas_ingest_options opts = {.progress = &progress};
	auto_buf struct buf tree = {0};
	struct cas_ingest_result out;
	int fd;

	assert_int_equal(mkdir(tests_path(*state, "tree"), 0755), 0);
	fd = open(tests_path(*state, "tree"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < 10000; i++) {
		int next;

		assert_int_equal(mkdirat(fd, "deep", 0755), 0);
		next = openat(fd, "deep", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		(void)close(fd);
		fd = next;
	}
	assert_int_equal(mkfifoat(fd, "pipe", 0600), 0);
	assert_ingest_fails(store, tests_path(*state, "tree"), NULL, -EINVAL,
			    "deep/deep/pipe' is a socket");
	assert_int_equal(unlinkat(fd, "pipe", 0), 0);
	(void)close(fd);
	out = ingest(store, state, &opts);
	assert_int_equal(progress.directories, 10001);
	assert_int_equal(cas_tree_encode(store, &out.digest, &tree, NULL), 0);
	assert_true(tree.len > 10000 * 70);
}

static void test_cancel_stops(void **state)
{
	auto_store struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_ingest_progress progress = {.cancel = true};
	struct cas_ingest_options opts = {.progress = &progress};

	tree_file(state, "f", "x", 0644);
	assert_ingest_fails(store, tests_path(*state, "tree"), &opts, -ECANCELED, "on request");
	assert_ingest_fails(store, tests_path(*state, "tree/f"), &opts, -ECANCELED, "on request");
	assert_int_equal(nr_blobs(store), 0);
}

/* What a killed command left is no part of a tree; what only looks like it is. */
static void test_temporaries_of_ours_are_left_out(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	char ours[2][CAS_TEMP_NAME_SZ];
	struct cas_ingest_result before;
	struct cas_ingest_result after;
	struct cas_ingest_result changed;
	char path[128];

	(void)mkdir(tests_path(*state, "tree"), 0755);
	tests_write_file(tests_path(*state, "tree/f"), "x", 1, 0644);
	tests_write_file(tests_path(*state, "tree/.casbox-0123456789abcdef"), "x", 1, 0644);
	tests_write_file(
		tests_path(*state, "tree/.casbox-output-0123456789abcdef-0123456789abcdef"), "x", 1,
		0644);
	assert_int_equal(cas_ingest(store, tests_path(*state, "tree"), NULL, &before, NULL), 0);
	assert_int_equal(cas_temp_name("0123456789abcdef-0", ours[0]), 0);
	assert_int_equal(cas_temp_name_random("output", ours[1]), 0);
	assert_true(cas_temp_name_is(ours[0]) && cas_temp_name_is(ours[1]));
	assert_int_equal(cas_temp_name("0123456789012345678901234567890123456789", path),
			 -ENAMETOOLONG);
	(void)snprintf(path, sizeof(path), "tree/%s", ours[0]);
	assert_int_equal(mkdir(tests_path(*state, path), 0755), 0);
	(void)snprintf(path, sizeof(path), "tree/%s/inside", ours[0]);
	tests_write_file(tests_path(*state, path), "x", 1, 0644);
	(void)snprintf(path, sizeof(path), "tree/%s", ours[1]);
	tests_write_file(tests_path(*state, path), "x", 1, 0644);
	assert_int_equal(cas_ingest(store, tests_path(*state, "tree"), NULL, &after, NULL), 0);
	assert_true(cas_digest_equal(&before.digest, &after.digest));
	/* Each of the user's own counts. */
	assert_int_equal(unlink(tests_path(*state, "tree/.casbox-0123456789abcdef")), 0);
	assert_int_equal(cas_ingest(store, tests_path(*state, "tree"), NULL, &changed, NULL), 0);
	assert_false(cas_digest_equal(&changed.digest, &after.digest));
	cas_store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_temporaries_of_ours_are_left_out),
		TESTS_IN_DIR(test_tree_of_the_protocol_page_has_its_digest),
		TESTS_IN_DIR(test_a_file_alone_gives_its_blob),
		TESTS_IN_DIR(test_c02_ingest_shares_no_inode_with_its_source),
		TESTS_IN_DIR(test_c10_hard_links_are_files_of_equal_content),
		TESTS_IN_DIR(test_c11_executable_belongs_to_the_name),
		TESTS_IN_DIR(test_c12_c20_symlinks_are_text),
		TESTS_IN_DIR(test_c17_what_no_directory_holds_is_named),
		TESTS_IN_DIR(test_skipped_entries_are_left_out),
		TESTS_IN_DIR(test_c15_the_store_itself_stays_closed),
		TESTS_IN_DIR(test_c33_a_casbox_mount_inside_is_an_error_and_not_asked),
		TESTS_IN_DIR(test_known_files_are_not_opened),
		TESTS_IN_DIR(test_changed_files_are_read_again),
		TESTS_IN_DIR(test_young_files_are_not_remembered),
		TESTS_IN_DIR(test_a_file_under_change_is_named),
		cmocka_unit_test_setup_teardown(test_c29_empty_files_need_no_blob,
						tests_memory_dir_setup, tests_dir_teardown),
		cmocka_unit_test_setup_teardown(test_threads_change_nothing_but_time,
						tests_memory_dir_setup, tests_dir_teardown),
		TESTS_IN_DIR(test_preserve_records_modes_and_times),
		cmocka_unit_test_setup_teardown(test_c17_a_chain_of_10000_directories,
						tests_memory_dir_setup, tests_dir_teardown),
		TESTS_IN_DIR(test_cancel_stops),
	};

	return cmocka_run_group_tests_name("cas_ingest", tests, NULL, NULL);
}
