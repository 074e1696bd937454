/* tests/unit/test_meta_dirs.c - directories by digest */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/hash.h"
#include "cas/put/put.h"
#include "cas/store/store.h"
#include "meta/meta.h"

static void sink_nothing(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	(void)line;
}

struct both {
	struct cas_store *store;
	struct meta *meta;
};

static struct both open_as(const char *dir, enum meta_mode mode)
{
	struct cas_store_options store_opts = {.path = tests_path(dir, "store"),
					       .create = true,
					       .durability = CAS_DURABILITY_NONE};
	struct meta_options opts = {.mode = mode};
	struct err err = {0};
	struct both b = {0};

	if (cas_store_open(&store_opts, &b.store, &err) < 0)
		fail_msg("%s", err.msg);
	if (mode == META_WRITER && cas_store_writer_lock(b.store, -1, &err) < 0)
		fail_msg("%s", err.msg);
	if (meta_open(b.store, &opts, &b.meta, &err) < 0)
		fail_msg("%s", err.msg);
	cas_store_set_catalog(b.store, meta_catalog(b.meta));
	return b;
}

static void close_both(struct both *b)
{
	struct err err = {0};

	cas_store_set_catalog(b->store, NULL);
	if (meta_close(b->meta, &err) < 0)
		fail_msg("%s", err.msg);
	cas_store_close(b->store);
}

static void flush(struct both *b)
{
	const struct cas_catalog *c = meta_catalog(b->meta);

	assert_int_equal(cas_store_sync(b->store, NULL), 0);
	assert_int_equal(c->ops->flush(c->ctx, NULL), 0);
}

/* file-0 … file-(nr-1), each of size index + 1, and the directory "sub" of @sub. */
static struct cas_directory *make(int nr, const struct cas_digest *sub)
{
	struct cas_directory *dir;
	struct cas_node node = {.kind = CAS_NODE_DIRECTORY, .name = "sub"};
	char name[32];

	assert_int_equal(cas_directory_new(&dir), 0);
	if (sub) {
		node.digest = *sub;
		assert_int_equal(cas_directory_add(dir, &node), 0);
	}
	node = (struct cas_node){.kind = CAS_NODE_FILE, .name = name};
	assert_int_equal(cas_hash_bytes("x", 1, &node.digest), 0);
	for (int i = 0; i < nr; i++) {
		(void)snprintf(name, sizeof(name), "file-%06d", i);
		node.digest.size = (uint64_t)i + 1;
		assert_int_equal(cas_directory_add(dir, &node), 0);
	}
	return dir;
}

static struct cas_digest put_dir(struct both *b, int nr, const struct cas_digest *sub)
{
	struct cas_directory *dir = make(nr, sub);
	struct cas_digest digest;
	struct err err = {0};

	if (cas_directory_put(b->store, dir, &digest, &err) < 0)
		fail_msg("%s", err.msg);
	cas_directory_free(dir);
	return digest;
}

static void expect_file(struct both *b, const struct cas_digest *dir, int nr)
{
	struct meta_dirent e;
	char name[32];

	(void)snprintf(name, sizeof(name), "file-%06d", nr);
	assert_int_equal(meta_dir_find(b->meta, dir, name, &e, NULL), 1);
	assert_string_equal(e.name, name);
	assert_int_equal(e.kind, CAS_NODE_FILE);
	assert_int_equal(e.digest.size, nr + 1);
	meta_dirent_fini(&e);
}

static int nothing(void *ctx, uint64_t index, const struct meta_dirent *entry)
{
	(void)ctx;
	(void)index;
	(void)entry;
	fail_msg("an entry of an empty directory");
	return 0;
}

static void test_empty_directory_needs_no_store(void **state)
{
	struct both b = open_as(*state, META_READER);
	struct meta_dirinfo info = {.nr_entries = 9};
	struct meta_dirent e;

	assert_int_equal(meta_dir_find(b.meta, &cas_digest_empty, "x", &e, NULL), 0);
	assert_int_equal(meta_dir_info(b.meta, &cas_digest_empty, &info, NULL), 0);
	assert_int_equal(info.nr_entries, 0);
	assert_int_equal(meta_dir_list(b.meta, &cas_digest_empty, 0, nothing, NULL, NULL), 0);
	close_both(&b);
}

static void test_index_answers_without_the_blob(void **state)
{
	struct both b = open_as(*state, META_WRITER);
	struct cas_digest sub = put_dir(&b, 1, NULL), dir = put_dir(&b, 3, &sub);
	struct meta_dirinfo info;
	struct meta_stat stat;
	struct meta_dirent e;

	expect_file(&b, &dir, 2);
	flush(&b);
	assert_int_equal(meta_stat(b.meta, &stat, NULL), 0);
	assert_int_equal(stat.directories, 1);
	assert_int_equal(io_remove_tree(AT_FDCWD, tests_path(*state, "store/cas"), NULL), 0);
	for (int i = 0; i < 2; i++) {
		expect_file(&b, &dir, 0);
		assert_int_equal(meta_dir_find(b.meta, &dir, "sub", &e, NULL), 1);
		assert_int_equal(e.kind, CAS_NODE_DIRECTORY);
		assert_true(cas_digest_equal(&e.digest, &sub));
		assert_int_equal(meta_dir_find(b.meta, &dir, "file", &e, NULL), 0);
		assert_int_equal(meta_dir_info(b.meta, &dir, &info, NULL), 0);
		assert_int_equal(info.nr_entries, 4);
		assert_int_equal(info.nr_subdirs, 1);
		close_both(&b);
		b = open_as(*state, META_WRITER);
	}
	close_both(&b);
}

static void test_dropped_blob_takes_its_directory_along(void **state)
{
	struct both b = open_as(*state, META_WRITER);
	struct cas_digest dir = put_dir(&b, 3, NULL);
	struct meta_stat stat;

	expect_file(&b, &dir, 1);
	flush(&b);
	meta_catalog(b.meta)->ops->blob_drop(meta_catalog(b.meta)->ctx, &dir);
	flush(&b);
	assert_int_equal(meta_stat(b.meta, &stat, NULL), 0);
	assert_int_equal(stat.directories, 0);
	close_both(&b);
}

static void test_unknown_and_wrong_digests_are_told_apart(void **state)
{
	struct both b = open_as(*state, META_WRITER);
	struct cas_digest file, dir = put_dir(&b, 1, NULL), unknown;
	struct meta_dirinfo info;
	struct meta_dirent e;
	struct err err = {0};

	assert_int_equal(cas_hash_bytes("no such", 7, &unknown), 0);
	assert_int_equal(meta_dir_find(b.meta, &unknown, "x", &e, &err), -ENOENT);
	assert_non_null(strstr(err.msg, CAS_DIGEST_TEXT(&unknown)));
	assert_int_equal(cas_put_bytes(b.store, "not a directory", 15, &file, NULL), 0);
	assert_int_equal(meta_dir_info(b.meta, &file, &info, &err), -EUCLEAN);
	/* A right hash with a wrong size names nothing, also once the index knows it. */
	expect_file(&b, &dir, 0);
	flush(&b);
	dir.size++;
	assert_int_equal(meta_dir_info(b.meta, &dir, &info, &err), -ENOENT);
	close_both(&b);
}

static void test_reader_keeps_what_it_loaded(void **state)
{
	struct both b = open_as(*state, META_READER);
	struct cas_digest dir = put_dir(&b, 3, NULL);

	expect_file(&b, &dir, 0);
	assert_int_equal(io_remove_tree(AT_FDCWD, tests_path(*state, "store/cas"), NULL), 0);
	expect_file(&b, &dir, 2);
	close_both(&b);
}

struct listing {
	uint64_t next;
	uint64_t stop_at;
	int ret;
};

static int list_entry(void *ctx, uint64_t index, const struct meta_dirent *entry)
{
	struct listing *l = ctx;
	char name[32];

	assert_int_equal(index, l->next);
	(void)snprintf(name, sizeof(name), "file-%06d", (int)index);
	assert_string_equal(entry->name, name);
	l->next++;
	return l->next == l->stop_at ? l->ret : 0;
}

static void test_listing_starts_and_stops_anywhere(void **state)
{
	struct both b = open_as(*state, META_WRITER);
	struct cas_digest dir = put_dir(&b, 1000, NULL);
	struct listing l = {0};

	assert_int_equal(meta_dir_list(b.meta, &dir, 0, list_entry, &l, NULL), 0);
	assert_int_equal(l.next, 1000);
	flush(&b);
	l = (struct listing){.next = 63, .stop_at = 130, .ret = 1};
	assert_int_equal(meta_dir_list(b.meta, &dir, 63, list_entry, &l, NULL), 0);
	assert_int_equal(l.next, 130);
	l = (struct listing){.next = 0, .stop_at = 1, .ret = -ENOSPC};
	assert_int_equal(meta_dir_list(b.meta, &dir, 0, list_entry, &l, NULL), -ENOSPC);
	assert_int_equal(l.next, 1);
	l = (struct listing){.next = 1000};
	assert_int_equal(meta_dir_list(b.meta, &dir, 1000, list_entry, &l, NULL), 0);
	assert_int_equal(meta_dir_list(b.meta, &dir, UINT64_MAX, list_entry, &l, NULL), 0);
	assert_int_equal(l.next, 1000);
	close_both(&b);
}

static void test_held_directory_answers_until_released(void **state)
{
	struct both b = open_as(*state, META_WRITER);
	struct cas_directory *dir = make(5, NULL);
	struct cas_digest digest, again;
	struct meta_dirinfo info;

	assert_int_equal(meta_dir_hold(b.meta, dir, &digest, NULL), 0);
	assert_int_equal(meta_dir_hold(b.meta, dir, &again, NULL), 0);
	cas_directory_free(dir);
	assert_true(cas_digest_equal(&digest, &again));
	assert_int_equal(cas_store_has(b.store, &digest), 0);
	expect_file(&b, &digest, 4);
	meta_dir_release(b.meta, &digest);
	expect_file(&b, &digest, 4);
	flush(&b);
	meta_dir_release(b.meta, &digest);
	assert_int_equal(meta_dir_info(b.meta, &digest, &info, NULL), -ENOENT);
	meta_dir_release(b.meta, &digest);
	/* Nothing of it went to disk. */
	flush(&b);
	assert_int_equal(meta_dir_info(b.meta, &digest, &info, NULL), -ENOENT);
	close_both(&b);
}

static void test_bad_directory_is_not_held(void **state)
{
	struct both b = open_as(*state, META_READER);
	struct cas_directory *dir = make(1, NULL);
	struct cas_node node = {.kind = CAS_NODE_SYMLINK, .name = "a/b", .target = "x"};
	struct cas_digest digest = {.size = 77};

	assert_int_equal(cas_directory_add(dir, &node), 0);
	assert_int_equal(meta_dir_hold(b.meta, dir, &digest, NULL), -EINVAL);
	assert_int_equal(digest.size, 77);
	cas_directory_free(dir);
	close_both(&b);
}

static void test_large_directory_goes_through_the_index(void **state)
{
	struct both b = open_as(*state, META_WRITER);
	struct cas_digest dir = put_dir(&b, 200000, NULL);

	expect_file(&b, &dir, 199999);
	flush(&b);
	close_both(&b);
	assert_int_equal(io_remove_tree(AT_FDCWD, tests_path(*state, "store/cas"), NULL), 0);
	b = open_as(*state, META_READER);
	/* Were either a walk from the start, this would take minutes. */
	for (int i = 0; i < 200000; i++)
		expect_file(&b, &dir, i);
	for (uint64_t i = 0; i < 200000; i += 10) {
		struct listing l = {.next = i, .stop_at = i + 10, .ret = 1};

		assert_int_equal(meta_dir_list(b.meta, &dir, i, list_entry, &l, NULL), 0);
		assert_int_equal(l.next, i + 10);
	}
	close_both(&b);
}

/* Flip a byte in the middle of every directory row, as bit rot would. */
static void damage_rows(const char *store)
{
	MDB_env *env;
	MDB_txn *txn;
	MDB_dbi dbi;
	MDB_cursor *cursor;
	MDB_val key, val;

	assert_int_equal(mdb_env_create(&env), 0);
	assert_int_equal(mdb_env_set_maxdbs(env, 4), 0);
	assert_int_equal(mdb_env_set_mapsize(env, (size_t)1 << 28), 0);
	assert_int_equal(mdb_env_open(env, tests_path(store, "meta/index"), 0, 0644), 0);
	assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
	assert_int_equal(mdb_dbi_open(txn, "dir", 0, &dbi), 0);
	assert_int_equal(mdb_cursor_open(txn, dbi, &cursor), 0);
	while (mdb_cursor_get(cursor, &key, &val, MDB_NEXT) == 0) {
		unsigned char *copy = malloc(val.mv_size);

		memcpy(copy, val.mv_data, val.mv_size);
		copy[val.mv_size / 2] ^= 0x10;
		val.mv_data = copy;
		assert_int_equal(mdb_cursor_put(cursor, &key, &val, MDB_CURRENT), 0);
		free(copy);
	}
	mdb_cursor_close(cursor);
	assert_int_equal(mdb_txn_commit(txn), 0);
	mdb_env_close(env);
}

static int count_entry(void *ctx, uint64_t index, const struct meta_dirent *entry)
{
	(void)entry;
	assert_int_equal(index, (*(uint64_t *)ctx)++);
	return 0;
}

static void test_damaged_row_is_read_anew(void **state)
{
	struct both b = open_as(*state, META_WRITER);
	struct cas_digest dir = put_dir(&b, 50, NULL);
	uint64_t nr = 0;

	expect_file(&b, &dir, 0);
	flush(&b);
	close_both(&b);
	damage_rows(tests_path(*state, "store"));
	b = open_as(*state, META_WRITER);
	assert_int_equal(meta_dir_list(b.meta, &dir, 0, count_entry, &nr, NULL), 0);
	assert_int_equal(nr, 50);
	flush(&b);
	close_both(&b);
	/* And mended: the store is not needed any more. */
	assert_int_equal(io_remove_tree(AT_FDCWD, tests_path(*state, "store/cas"), NULL), 0);
	b = open_as(*state, META_WRITER);
	for (int i = 0; i < 50; i++)
		expect_file(&b, &dir, i);
	close_both(&b);
}

struct walker {
	struct both *b;
	struct cas_digest dirs[20];
};

static void *walk_dirs(void *arg)
{
	struct walker *w = arg;
	struct meta_dirent e;
	intptr_t nr = 0;

	for (int i = 0; i < 2000; i++) {
		const struct cas_digest *dir = &w->dirs[i % 20];

		nr += meta_dir_find(w->b->meta, dir, "file-000000", &e, NULL) == 1;
	}
	return (void *)nr;
}

static void test_many_threads_ask_while_rows_are_written(void **state)
{
	struct both b = open_as(*state, META_WRITER);
	struct walker w = {.b = &b};
	pthread_t threads[6];

	for (int i = 0; i < 20; i++)
		w.dirs[i] = put_dir(&b, i + 1, NULL);
	for (int i = 0; i < 6; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, walk_dirs, &w), 0);
	for (int i = 0; i < 6; i++) {
		void *nr;

		assert_int_equal(pthread_join(threads[i], &nr), 0);
		assert_int_equal((intptr_t)nr, 2000);
	}
	close_both(&b);
}

#define TEST_CASE(fn) cmocka_unit_test_setup_teardown(fn, tests_dir_setup, tests_dir_teardown)

static struct cas_digest put_nodes(struct both *b, const struct cas_node *nodes, size_t nr)
{
	struct cas_directory *dir;
	struct cas_digest digest;

	assert_int_equal(cas_directory_new(&dir), 0);
	for (size_t i = 0; i < nr; i++)
		assert_int_equal(cas_directory_add(dir, &nodes[i]), 0);
	assert_int_equal(cas_directory_put(b->store, dir, &digest, NULL), 0);
	cas_directory_free(dir);
	return digest;
}

static int note_change(void *ctx, const struct meta_dirent *old, const struct meta_dirent *new)
{
	struct buf *buf = ctx;

	return buf_printf(buf, "%c%s ", !old ? '+' : !new ? '-' : '!', old ? old->name : new->name);
}

static int count_change(void *ctx, const struct meta_dirent *old, const struct meta_dirent *new)
{
	(*(int *)ctx)++;
	return 0;
}

static int stop_at_once(void *ctx, const struct meta_dirent *old, const struct meta_dirent *new)
{
	(*(int *)ctx)++;
	return 1;
}

static void test_diff_tells_every_way_in_which_entries_differ(void **state)
{
	struct both b = open_as(*state, META_WRITER);
	const struct cas_digest empty = cas_digest_empty;
	struct cas_digest x, y, old, new;
	auto_buf struct buf got = {0};
	uint64_t nr_same = 99;
	int calls = 0;

	assert_int_equal(cas_hash_bytes("x", 1, &x), 0);
	assert_int_equal(cas_hash_bytes("y", 1, &y), 0);
	{
		const struct cas_node olds[] = {
			{.kind = CAS_NODE_FILE, .name = "a", .digest = x},
			{.kind = CAS_NODE_FILE, .name = "b", .digest = x},
			{.kind = CAS_NODE_FILE, .name = "c", .digest = x},
			{.kind = CAS_NODE_FILE, .name = "d", .digest = x},
			{.kind = CAS_NODE_FILE, .name = "gone", .digest = x},
			{.kind = CAS_NODE_SYMLINK, .name = "l", .target = "one"},
			{.kind = CAS_NODE_SYMLINK, .name = "m", .target = "same"},
			{.kind = CAS_NODE_FILE, .name = "p", .digest = x},
		};
		const struct cas_node news[] = {
			{.kind = CAS_NODE_FILE, .name = "a", .digest = x},
			{.kind = CAS_NODE_FILE, .name = "b", .digest = y},
			{.kind = CAS_NODE_FILE, .name = "c", .digest = x, .executable = true},
			{.kind = CAS_NODE_DIRECTORY, .name = "d", .digest = empty},
			{.kind = CAS_NODE_SYMLINK, .name = "l", .target = "two"},
			{.kind = CAS_NODE_SYMLINK, .name = "m", .target = "same"},
			{.kind = CAS_NODE_FILE,
			 .name = "p",
			 .digest = x,
			 .props = {.has_mode = true, .mode = 0600}},
			{.kind = CAS_NODE_FILE, .name = "z", .digest = x},
		};

		old = put_nodes(&b, olds, 8);
		new = put_nodes(&b, news, 8);
	}
	assert_int_equal(meta_dir_diff(b.meta, &old, &new, note_change, &got, &nr_same, NULL), 0);
	assert_string_equal(buf_str(&got), "!b !c !d -gone !l !p +z ");
	assert_int_equal(nr_same, 2);
	flush(&b); /* now from the index, in part */
	buf_reset(&got);
	assert_int_equal(meta_dir_diff(b.meta, &new, &old, note_change, &got, NULL, NULL), 0);
	assert_string_equal(buf_str(&got), "!b !c !d +gone !l !p -z ");
	buf_reset(&got);
	assert_int_equal(meta_dir_diff(b.meta, &old, &old, note_change, &got, &nr_same, NULL), 0);
	assert_int_equal(got.len, 0);
	assert_int_equal(nr_same, 8);
	assert_int_equal(meta_dir_diff(b.meta, &empty, &new, note_change, &got, NULL, NULL), 0);
	assert_string_equal(buf_str(&got), "+a +b +c +d +l +m +p +z ");
	assert_int_equal(meta_dir_diff(b.meta, &old, &new, stop_at_once, &calls, NULL, NULL), 0);
	assert_int_equal(calls, 1);
	new.hash[0] ^= 1;
	assert_int_equal(meta_dir_diff(b.meta, &old, &new, stop_at_once, &calls, NULL, NULL),
			 -ENOENT);
	assert_int_equal(calls, 1);
	close_both(&b);
}

static void test_diff_reads_damaged_rows_anew(void **state)
{
	struct both b = open_as(*state, META_WRITER);
	struct cas_digest dir = put_dir(&b, 50, NULL);
	const struct cas_digest empty = cas_digest_empty;
	int calls = 0;

	expect_file(&b, &dir, 0);
	flush(&b);
	close_both(&b);
	damage_rows(tests_path(*state, "store"));
	b = open_as(*state, META_WRITER);
	assert_int_equal(meta_dir_diff(b.meta, &empty, &dir, count_change, &calls, NULL, NULL), 0);
	assert_int_equal(calls, 50);
	close_both(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST_CASE(test_empty_directory_needs_no_store),
		TEST_CASE(test_index_answers_without_the_blob),
		TEST_CASE(test_dropped_blob_takes_its_directory_along),
		TEST_CASE(test_unknown_and_wrong_digests_are_told_apart),
		TEST_CASE(test_reader_keeps_what_it_loaded),
		TEST_CASE(test_listing_starts_and_stops_anywhere),
		TEST_CASE(test_held_directory_answers_until_released),
		TEST_CASE(test_bad_directory_is_not_held),
		TEST_CASE(test_large_directory_goes_through_the_index),
		TEST_CASE(test_damaged_row_is_read_anew),
		TEST_CASE(test_diff_reads_damaged_rows_anew),
		TEST_CASE(test_diff_tells_every_way_in_which_entries_differ),
		TEST_CASE(test_many_threads_ask_while_rows_are_written),
	};

	log_set_sink(sink_nothing, NULL);
	return cmocka_run_group_tests_name("meta_dirs", tests, NULL, NULL);
}
