/* tests/unit/test_meta_meta.c - catalog, statistics, clients, several processes */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/hash.h"
#include "cas/put/put.h"
#include "cas/store/layout.h"
#include "cas/store/store.h"
#include "meta/meta.h"

static void sink_nothing(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	(void)line;
}

/* One store and its object, as a process has them. */
struct both {
	struct cas_store *store;
	struct meta *meta;
};

static struct both open_opts(const char *dir, struct meta_options opts)
{
	struct cas_store_options store_opts = {.path = tests_path(dir, "store"),
					       .create = true,
					       .durability = CAS_DURABILITY_NONE};
	struct err err = {0};
	struct both b = {0};

	if (cas_store_open(&store_opts, &b.store, &err) < 0)
		fail_msg("%s", err.msg);
	if (opts.mode == META_WRITER && cas_store_writer_lock(b.store, -1, &err) < 0)
		fail_msg("%s", err.msg);
	if (meta_open(b.store, &opts, &b.meta, &err) < 0)
		fail_msg("%s", err.msg);
	cas_store_set_catalog(b.store, meta_catalog(b.meta));
	return b;
}

static struct both open_as(const char *dir, enum meta_mode mode)
{
	return open_opts(dir, (struct meta_options){.mode = mode});
}

static void close_both(struct both *b)
{
	struct err err = {0};

	cas_store_set_catalog(b->store, NULL);
	if (meta_close(b->meta, &err) < 0)
		fail_msg("%s", err.msg);
	cas_store_close(b->store);
}

static struct cas_digest put(struct both *b, const char *text)
{
	struct cas_digest d;
	struct err err = {0};

	if (cas_put_bytes(b->store, text, strlen(text), &d, &err) < 0)
		fail_msg("%s", err.msg);
	return d;
}

static void flush(struct both *b)
{
	struct err err = {0};
	const struct cas_catalog *c = meta_catalog(b->meta);

	if (cas_store_sync(b->store, &err) < 0 || c->ops->flush(c->ctx, &err) < 0)
		fail_msg("%s", err.msg);
}

static int blob_find(struct both *b, const struct cas_digest *d, struct cas_stamp *stamp)
{
	const struct cas_catalog *c = meta_catalog(b->meta);

	return c->ops->blob_find(c->ctx, d, stamp);
}

static void expect_stat(struct both *b, uint64_t blobs, uint64_t bytes, bool from_walk)
{
	struct meta_stat s;

	assert_int_equal(meta_stat(b->meta, &s, NULL), 0);
	assert_int_equal(s.blobs, blobs);
	assert_int_equal(s.bytes, bytes);
	assert_int_equal(s.from_walk, from_walk);
}

static int count_blob(void *ctx, const struct cas_store_blob *blob)
{
	struct meta_stat *s = ctx;

	s->blobs++;
	s->bytes += blob->digest.size;
	return 0;
}

static void expect_stat_as_walk(struct both *b)
{
	struct meta_stat walk = {0};

	assert_int_equal(cas_store_walk(b->store, count_blob, NULL, &walk, NULL), 0);
	expect_stat(b, walk.blobs, walk.bytes, false);
}

static void test_catalog_answers_before_and_after_recording(void **state)
{
	const struct cas_stamp stamp = {.ino = 5, .size = 4, .mtime_ns = 6, .ctime_ns = 7};
	struct both b = open_as(*state, META_WRITER);
	const struct cas_catalog *c = meta_catalog(b.meta);
	struct cas_digest d, other;
	struct cas_stamp got;
	uint64_t size;

	assert_int_equal(cas_hash_bytes("blob", 4, &d), 0);
	for (int round = 0; round < 2; round++) {
		assert_int_equal(blob_find(&b, &d, &got), 0);
		c->ops->blob_add(c->ctx, &d, &stamp);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(blob_find(&b, &d, &got), 1);
			assert_int_equal(got.ino, 5);
			assert_int_equal(got.size, 4);
			assert_int_equal(got.mtime_ns, 6);
			assert_int_equal(got.ctime_ns, 7);
			assert_int_equal(c->ops->size_find(c->ctx, d.hash, &size), 1);
			assert_int_equal(size, 4);
			other = d;
			other.size = 5;
			assert_int_equal(blob_find(&b, &other, &got), 0);
			flush(&b);
		}
		c->ops->blob_drop(c->ctx, &d);
		assert_int_equal(blob_find(&b, &d, &got), 0);
		assert_int_equal(c->ops->size_find(c->ctx, d.hash, &size), 0);
		flush(&b);
	}
	close_both(&b);
}

static void test_empty_blob_gets_no_row(void **state)
{
	struct both b = open_as(*state, META_WRITER);
	const struct cas_catalog *c = meta_catalog(b.meta);

	c->ops->blob_add(c->ctx, &cas_digest_empty, &(struct cas_stamp){0});
	c->ops->blob_touch(c->ctx, &cas_digest_empty);
	flush(&b);
	expect_stat(&b, 0, 0, false);
	close_both(&b);
}

static void test_totals_equal_a_walk(void **state)
{
	struct both b = open_as(*state, META_WRITER);
	char text[32];

	assert_false(meta_needs_reconcile(b.meta));
	for (int i = 0; i < 60; i++) {
		(void)snprintf(text, sizeof(text), "blob number %d", i % 40);
		(void)put(&b, text);
	}
	flush(&b);
	expect_stat_as_walk(&b);
	close_both(&b);
	b = open_as(*state, META_WRITER);
	assert_false(meta_needs_reconcile(b.meta));
	expect_stat_as_walk(&b);
	close_both(&b);
}

static void test_file_identities_are_remembered(void **state)
{
	const struct cas_file_id id = {1, 2, 4, 3, 4};
	struct both b = open_as(*state, META_WRITER);
	const struct cas_catalog *c = meta_catalog(b.meta);
	struct cas_digest d, got;

	assert_int_equal(cas_hash_bytes("file", 4, &d), 0);
	assert_int_equal(c->ops->file_find(c->ctx, &id, &got), 0);
	c->ops->file_add(c->ctx, &id, &d);
	flush(&b);
	assert_int_equal(c->ops->file_find(c->ctx, &id, &got), 1);
	assert_true(cas_digest_equal(&d, &got));
	close_both(&b);
}

static void test_touched_blobs_are_evicted_last(void **state)
{
	struct both b = open_as(*state, META_WRITER);
	const struct cas_catalog *c = meta_catalog(b.meta);
	struct cas_digest first = put(&b, "first"), second = put(&b, "second");
	struct cas_victim v[4];

	assert_int_equal(cas_store_sync(b.store, NULL), 0);
	c->ops->blob_touch(c->ctx, &first);
	assert_int_equal(c->ops->victims(c->ctx, NULL, v, 4, NULL), 2);
	assert_true(cas_digest_equal(&v[0].digest, &second));
	assert_true(cas_digest_equal(&v[1].digest, &first));
	assert_true(v[1].last_use_ns > v[0].last_use_ns);
	assert_int_equal(c->ops->victims(c->ctx, &v[0], v, 4, NULL), 1);
	close_both(&b);
}

static void test_reader_without_databases_walks(void **state)
{
	struct both b = open_as(*state, META_READER);
	struct cas_stamp stamp;
	struct cas_digest d = put(&b, "x");

	flush(&b);
	assert_int_equal(blob_find(&b, &d, &stamp), 0);
	expect_stat(&b, 1, 1, true);
	assert_int_equal(meta_reconcile(b.meta, NULL, NULL), -EPERM);
	assert_int_equal(meta_rows_apply(b.meta, "!", 1, NULL), -EPERM);
	close_both(&b);
	assert_int_equal(tests_count_names(tests_path(*state, "store/meta")), 0);
}

static void test_lost_ledger_is_rebuilt_from_the_files(void **state)
{
	struct meta_reconcile_result r;
	struct both b = open_as(*state, META_WRITER);
	struct cas_digest d = put(&b, "one"), e = put(&b, "three");
	struct cas_stamp stamp;
	uint64_t size;

	flush(&b);
	close_both(&b);
	assert_int_equal(io_remove_tree(AT_FDCWD, tests_path(*state, "store/meta"), NULL), 0);
	b = open_as(*state, META_WRITER);
	assert_true(meta_needs_reconcile(b.meta));
	expect_stat(&b, 0, 0, false);
	assert_int_equal(meta_reconcile(b.meta, &r, NULL), 0);
	assert_int_equal(r.adopted, 2);
	assert_int_equal(r.dropped, 0);
	assert_false(meta_needs_reconcile(b.meta));
	expect_stat(&b, 2, 8, false);
	/* Known by size, and hashed before it is served. */
	assert_int_equal(blob_find(&b, &d, &stamp), 0);
	assert_int_equal(
		meta_catalog(b.meta)->ops->size_find(meta_catalog(b.meta)->ctx, e.hash, &size), 1);
	assert_int_equal(size, 5);
	close_both(&b);
	b = open_as(*state, META_WRITER);
	assert_false(meta_needs_reconcile(b.meta));
	close_both(&b);
}

static const char *blob_path(const char *dir, const struct cas_digest *d)
{
	char rel[16 + CAS_LAYOUT_PATH_SZ] = "store/cas/";

	cas_layout_path(d->hash, rel + strlen(rel));
	return tests_path(dir, rel);
}

/* C24: a blob removed by hand, one added by hand, one cut short. */
static void test_reconcile_drops_adopts_and_resizes(void **state)
{
	struct meta_reconcile_result r;
	struct both b = open_as(*state, META_WRITER);
	struct cas_digest gone = put(&b, "gone"), cut = put(&b, "cut short"),
			  kept = put(&b, "kept");
	struct cas_digest added;
	struct cas_stamp stamp;

	flush(&b);
	assert_int_equal(unlink(blob_path(*state, &gone)), 0);
	assert_int_equal(truncate(blob_path(*state, &cut), 3), 0);
	assert_int_equal(cas_hash_bytes("added", 5, &added), 0);
	tests_write_file(blob_path(*state, &added), "added", 5, 0444);
	assert_int_equal(meta_reconcile(b.meta, &r, NULL), 0);
	assert_int_equal(r.dropped, 1);
	assert_int_equal(r.adopted, 1);
	assert_int_equal(r.resized, 1);
	expect_stat(&b, 3, 4 + 3 + 5, false);
	expect_stat_as_walk(&b);
	assert_int_equal(blob_find(&b, &gone, &stamp), 0);
	assert_int_equal(blob_find(&b, &kept, &stamp), 1);
	assert_int_equal(meta_reconcile(b.meta, &r, NULL), 0);
	assert_int_equal(r.adopted + r.dropped + r.resized, 0);
	close_both(&b);
}

/* Names are compared, and only what differs is looked at. */
static void test_recount_goes_by_names(void **state)
{
	struct meta_reconcile_result r;
	struct both b = open_as(*state, META_WRITER);
	struct cas_digest gone = put(&b, "gone"), cut = put(&b, "cut short");
	struct cas_digest added;
	struct cas_stamp stamp;

	flush(&b);
	assert_int_equal(unlink(blob_path(*state, &gone)), 0);
	assert_int_equal(truncate(blob_path(*state, &cut), 3), 0);
	assert_int_equal(cas_hash_bytes("added", 5, &added), 0);
	tests_write_file(blob_path(*state, &added), "added", 5, 0444);
	assert_int_equal(meta_recount(b.meta, &r, NULL), 0);
	assert_int_equal(r.dropped, 1);
	assert_int_equal(r.adopted, 1);
	assert_int_equal(r.resized, 0);
	expect_stat(&b, 2, 9 + 5, false);
	assert_int_equal(blob_find(&b, &gone, &stamp), 0);
	/* A little at a time comes to the same. */
	assert_int_equal(unlink(blob_path(*state, &added)), 0);
	for (unsigned shard = 0; shard < CAS_LAYOUT_NR_SHARDS; shard++)
		assert_int_equal(meta_recount_shard(b.meta, shard, NULL), 0);
	expect_stat(&b, 1, 9, false);
	close_both(&b);
}

static void test_killed_writer_asks_for_reconcile(void **state)
{
	struct meta_reconcile_result r;
	struct both b;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		b = open_as(*state, META_WRITER);
		(void)put(&b, "recorded");
		flush(&b);
		cas_store_set_catalog(b.store, NULL);
		(void)put(&b, "never recorded");
		(void)raise(SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	b = open_as(*state, META_WRITER);
	assert_true(meta_needs_reconcile(b.meta));
	expect_stat(&b, 1, 8, false);
	assert_int_equal(meta_reconcile(b.meta, &r, NULL), 0);
	assert_int_equal(r.adopted, 1);
	expect_stat_as_walk(&b);
	close_both(&b);
}

/* A client whose rows go straight into a writer's object, as the daemon's would. */
struct daemon {
	struct both *writer;
	int nr_texts;
	int ret;
};

static int deliver(void *ctx, const char *rows, size_t len, struct err *err)
{
	struct daemon *d = ctx;

	d->nr_texts++;
	assert_in_range(len, 1, 65536);
	assert_null(memchr(rows, '\n', len));
	assert_null(memchr(rows, '\0', len));
	return d->ret < 0 ? err_set(err, d->ret, "the daemon is gone")
			  : meta_rows_apply(d->writer->meta, rows, len, err);
}

/* The client's store is another, so that no file is opened twice in this process. */
static struct both open_client(const char *dir, struct daemon *d)
{
	return open_opts(
		tests_path(dir, "client"),
		(struct meta_options){.mode = META_CLIENT, .send = deliver, .send_ctx = d});
}

static void test_rows_of_a_client_reach_the_writer(void **state)
{
	enum { NR = 3000 };
	struct both writer = open_as(*state, META_WRITER), client;
	struct daemon d = {.writer = &writer};
	struct cas_victim v;
	struct cas_digest digest;

	assert_int_equal(mkdir(tests_path(*state, "client"), 0755), 0);
	client = open_client(*state, &d);
	for (int i = 0; i < NR; i++) {
		const struct cas_catalog *c = meta_catalog(client.meta);
		struct cas_stamp stamp = {.ino = 1, .size = sizeof(i)};
		struct cas_file_id id = {1, (uint64_t)i, sizeof(i), 1, 1};

		assert_int_equal(cas_hash_bytes(&i, sizeof(i), &digest), 0);
		c->ops->blob_add(c->ctx, &digest, &stamp);
		c->ops->file_add(c->ctx, &id, &digest);
	}
	flush(&client);
	assert_true(d.nr_texts > 5);
	/* The client's flush waited for the writer. */
	expect_stat(&writer, NR, NR * sizeof(int), false);
	assert_int_equal(
		meta_catalog(writer.meta)
			->ops->file_find(meta_catalog(writer.meta)->ctx,
					 &(struct cas_file_id){1, NR - 1, sizeof(int), 1, 1},
					 &digest),
		1);
	meta_catalog(client.meta)->ops->blob_touch(meta_catalog(client.meta)->ctx, &digest);
	meta_catalog(client.meta)->ops->blob_drop(meta_catalog(client.meta)->ctx, &digest);
	meta_sandbox_record(client.meta,
			    &(struct meta_sandbox_row){.id = "s", .root = "r", .state = "live"});
	flush(&client);
	expect_stat(&writer, NR - 1, (NR - 1) * sizeof(int), false);
	close_both(&client);
	assert_int_equal(meta_catalog(writer.meta)
				 ->ops->victims(meta_catalog(writer.meta)->ctx, NULL, &v, 1, NULL),
			 1);
	close_both(&writer);
}

static void test_daemon_that_is_gone_costs_only_rows(void **state)
{
	struct daemon d = {.ret = -ECONNREFUSED};
	struct both client;
	struct err err = {0};
	const struct cas_catalog *c;
	struct cas_digest digest;

	assert_int_equal(mkdir(tests_path(*state, "client"), 0755), 0);
	client = open_client(*state, &d);
	c = meta_catalog(client.meta);
	digest = put(&client, "x");
	assert_int_equal(cas_store_sync(client.store, NULL), 0);
	assert_int_equal(c->ops->flush(c->ctx, &err), -ECONNREFUSED);
	assert_string_equal(err.msg, "the daemon is gone");
	assert_int_equal(cas_store_has(client.store, &digest), 1);
	d.ret = 0;
	close_both(&client);
}

static void test_malformed_rows_change_nothing(void **state)
{
	static const char rows[] =
		"b,11507a0e2f5e69d5dfa40a62a1bd7b6ee57e6bcd85c67c9b8431b36fff21c437/3;x;!";
	struct both b = open_as(*state, META_WRITER);

	assert_int_equal(meta_rows_apply(b.meta, rows, strlen(rows), NULL), -EINVAL);
	flush(&b);
	expect_stat(&b, 0, 0, false);
	close_both(&b);
}

static int integrity(const char *dir)
{
	sqlite3 *db;
	sqlite3_stmt *stmt;
	int ok;

	assert_int_equal(sqlite3_open(tests_path(dir, "store/meta/ledger.db"), &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &stmt, NULL),
			 SQLITE_OK);
	assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
	ok = strcmp((const char *)sqlite3_column_text(stmt, 0), "ok") == 0;
	(void)sqlite3_finalize(stmt);
	(void)sqlite3_close(db);
	return ok;
}

/* One process of the next test: writers take turns by the lock, readers look at any time. */
static int work(const char *dir, int nr)
{
	char text[64];
	struct meta_stat s;

	for (int round = 0; round < 4; round++) {
		struct both b = open_as(dir, nr % 2 ? META_READER : META_WRITER);

		for (int i = 0; nr % 2 == 0 && i < 40; i++) {
			(void)snprintf(text, sizeof(text), "%d %d", round,
				       nr == 2 ? i : nr * 100 + i);
			(void)put(&b, text);
		}
		if (meta_stat(b.meta, &s, NULL) < 0)
			return 1;
		close_both(&b);
	}
	return 0;
}

/* C15: many processes, no damage, and nothing is miscounted. */
static void test_many_processes_leave_whole_databases(void **state)
{
	enum { NR = 8 };
	struct both b;
	struct stat st;
	int status;

	b = open_as(*state, META_WRITER);
	close_both(&b);
	for (int i = 0; i < NR; i++) {
		pid_t pid = fork();

		assert_true(pid >= 0);
		if (pid == 0)
			_exit(work(*state, i));
	}
	for (int i = 0; i < NR; i++) {
		assert_true(wait(&status) > 0);
		assert_int_equal(status, 0);
	}
	assert_int_equal(stat(tests_path(*state, "store/meta/ledger.db-wal"), &st), 0);
	assert_int_equal(integrity(*state), 1);
	b = open_as(*state, META_WRITER);
	assert_false(meta_needs_reconcile(b.meta));
	expect_stat_as_walk(&b);
	close_both(&b);
}

static void test_damage_under_a_running_writer_is_mended(void **state)
{
	struct both b = open_as(*state, META_WRITER);
	struct stat st;
	sqlite3 *db;

	(void)put(&b, "one");
	flush(&b);
	/* The schema is pulled away: what SQLite then reports is not a file error. */
	assert_int_equal(sqlite3_open(tests_path(*state, "store/meta/ledger.db"), &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db,
				      "PRAGMA writable_schema=ON; UPDATE sqlite_schema SET sql ="
				      " 'garbage' WHERE name = 'total'; PRAGMA schema_version=99;",
				      NULL, NULL, NULL),
			 SQLITE_OK);
	(void)sqlite3_close(db);
	(void)put(&b, "another");
	flush(&b);
	assert_int_equal(stat(tests_path(*state, "store/meta/ledger.db.bad-1"), &st), 0);
	assert_true(meta_needs_reconcile(b.meta));
	assert_int_equal(meta_reconcile(b.meta, NULL, NULL), 0);
	expect_stat_as_walk(&b);
	close_both(&b);
}

static void test_children_inherit_no_descriptor(void **state)
{
	struct both b = open_as(*state, META_WRITER);
	char command[256], seen[64];
	FILE *ls;

	(void)put(&b, "x");
	flush(&b);
	(void)snprintf(command, sizeof(command), "ls -l /proc/self/fd | grep -c '%s'",
		       (const char *)*state);
	ls = popen(command, "re");
	assert_non_null(ls);
	assert_non_null(fgets(seen, sizeof(seen), ls));
	assert_string_equal(seen, "0\n");
	(void)pclose(ls);
	close_both(&b);
}

#define TEST_CASE(fn) cmocka_unit_test_setup_teardown(fn, tests_dir_setup, tests_dir_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST_CASE(test_catalog_answers_before_and_after_recording),
		TEST_CASE(test_empty_blob_gets_no_row),
		TEST_CASE(test_totals_equal_a_walk),
		TEST_CASE(test_file_identities_are_remembered),
		TEST_CASE(test_touched_blobs_are_evicted_last),
		TEST_CASE(test_reader_without_databases_walks),
		TEST_CASE(test_lost_ledger_is_rebuilt_from_the_files),
		TEST_CASE(test_reconcile_drops_adopts_and_resizes),
		TEST_CASE(test_recount_goes_by_names),
		TEST_CASE(test_killed_writer_asks_for_reconcile),
		TEST_CASE(test_rows_of_a_client_reach_the_writer),
		TEST_CASE(test_daemon_that_is_gone_costs_only_rows),
		TEST_CASE(test_malformed_rows_change_nothing),
		TEST_CASE(test_many_processes_leave_whole_databases),
		TEST_CASE(test_damage_under_a_running_writer_is_mended),
		TEST_CASE(test_children_inherit_no_descriptor),
	};

	log_set_sink(sink_nothing, NULL);
	return cmocka_run_group_tests_name("meta_meta", tests, NULL, NULL);
}
