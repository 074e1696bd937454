/* tests/unit/test_meta_ledger.c - the SQLite ledger on its own */
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
#include "cas/base/err.h"
#include "cas/base/log.h"
#include "cas/hash.h"
#include "meta/ledger/ledger.h"
#include "meta/ledger/ledger_i.h"
#include "meta/meta.h"

static void sink_nothing(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	(void)line;
}

static struct cas_digest digest_nr(int nr)
{
	struct cas_digest d;

	assert_int_equal(cas_hash_bytes(&nr, sizeof(nr), &d), 0);
	d.size = (uint64_t)nr + 1;
	return d;
}

static struct meta_ledger *open_as(const char *store, bool writer, bool *fresh)
{
	auto_close int fd = open(store, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct meta_ledger_options opts = {.store_fd = fd, .store_path = store, .writer = writer};
	struct meta_ledger *l;
	struct err err = {0};
	bool made;

	assert_true(fd >= 0);
	if (meta_ledger_open(&opts, &l, &made, &err) != 0)
		fail_msg("%s", err_text(&err, err.code));
	if (fresh)
		*fresh = made;
	return l;
}

static void add_blobs(struct meta_ledger *l, int from, int to)
{
	assert_int_equal(meta_ledger_mark(l, NULL), 0);
	assert_int_equal(meta_ledger_begin(l, NULL), 0);
	for (int i = from; i < to; i++) {
		struct cas_digest d = digest_nr(i);

		assert_int_equal(meta_ledger_blob_add(l, &d, 4096, NULL), 0);
	}
	assert_int_equal(meta_ledger_commit(l, NULL), 0);
}

static void expect_totals(struct meta_ledger *l, uint64_t blobs, uint64_t bytes)
{
	struct cas_usage usage;

	assert_int_equal(meta_ledger_totals(l, &usage, NULL), 0);
	assert_int_equal(usage.blobs, blobs);
	assert_int_equal(usage.bytes, bytes);
	assert_int_equal(usage.disk, blobs * 4096);
}

static void test_totals_follow_adds_drops_and_duplicates(void **state)
{
	struct meta_ledger *l = open_as(*state, true, NULL);
	struct cas_digest d = digest_nr(1);
	struct meta_ledger_blob found;

	add_blobs(l, 0, 10);
	expect_totals(l, 10, 55);
	add_blobs(l, 0, 10);
	expect_totals(l, 10, 55);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(meta_ledger_blob_drop(l, &d, NULL), 0);
		expect_totals(l, 9, 53);
	}
	assert_int_equal(meta_ledger_blob_touch(l, &d, NULL), 0);
	expect_totals(l, 9, 53); /* a touch brings nothing back */
	d = digest_nr(0);
	d.size = 100;
	found = (struct meta_ledger_blob){d, 4096, 5};
	assert_int_equal(meta_ledger_blob_correct(l, &found, NULL), 0);
	expect_totals(l, 9, 152);
	assert_int_equal(meta_ledger_blob_adopt(l, &found, NULL), 0);
	expect_totals(l, 9, 152);
	assert_int_equal(meta_ledger_recount(l, NULL), 0);
	expect_totals(l, 9, 152);
	assert_int_equal(meta_ledger_begin(l, NULL), 0);
	assert_int_equal(meta_ledger_blob_drop(l, &d, NULL), 0);
	meta_ledger_abort(l);
	expect_totals(l, 9, 152);
	assert_int_equal(meta_ledger_close(l, true, NULL), 0);
}

static void test_clean_close_is_remembered(void **state)
{
	bool fresh;
	struct meta_ledger *l = open_as(*state, true, &fresh);

	assert_true(fresh);
	add_blobs(l, 0, 10);
	assert_int_equal(meta_ledger_close(l, true, NULL), 0);
	l = open_as(*state, true, &fresh);
	assert_false(fresh);
	assert_int_equal(meta_ledger_close(l, true, NULL), 0);
	l = open_as(*state, true, &fresh);
	assert_false(fresh);
	add_blobs(l, 10, 11);
	assert_int_equal(meta_ledger_close(l, false, NULL), 0);
	l = open_as(*state, true, &fresh);
	assert_true(fresh);
	expect_totals(l, 11, 66);
	assert_int_equal(meta_ledger_close(l, true, NULL), 0);
}

static void test_victims_come_oldest_first_in_pages(void **state)
{
	struct meta_ledger *l = open_as(*state, true, NULL);
	struct cas_victim v[4], after;
	struct cas_digest d = digest_nr(0);

	add_blobs(l, 0, 5);
	assert_int_equal(meta_ledger_blob_touch(l, &d, NULL), 0);
	assert_int_equal(meta_ledger_victims(l, NULL, v, 3, NULL), 3);
	for (int i = 0; i < 3; i++) {
		d = digest_nr(i + 1);
		assert_true(cas_digest_equal(&v[i].digest, &d));
	}
	after = v[2];
	assert_int_equal(meta_ledger_victims(l, &after, v, 4, NULL), 2);
	d = digest_nr(4);
	assert_true(cas_digest_equal(&v[0].digest, &d));
	d = digest_nr(0);
	assert_true(cas_digest_equal(&v[1].digest, &d));
	assert_true(v[0].last_use_ns < v[1].last_use_ns);
	after = v[1];
	assert_int_equal(meta_ledger_victims(l, &after, v, 4, NULL), 0);
	assert_int_equal(meta_ledger_close(l, true, NULL), 0);
}

/* C24: the order survives a clock that is set back, also across a restart. */
/* Trees from @from on were used, in order. */
static void touch_trees(struct meta_ledger *l, int from, int to)
{
	assert_int_equal(meta_ledger_begin(l, NULL), 0);
	for (int i = from; i < to; i++) {
		struct cas_digest d = digest_nr(i);

		assert_int_equal(meta_ledger_tree_touch(l, &d, NULL), 0);
	}
	assert_int_equal(meta_ledger_commit(l, NULL), 0);
}

static void test_trees_come_latest_first_and_are_bounded(void **state)
{
	static struct cas_victim got[CAS_TREES_MAX + 10];
	struct meta_ledger *l = open_as(*state, true, NULL);
	struct cas_digest d = digest_nr(0);
	int64_t before;

	add_blobs(l, 0, 10);
	touch_trees(l, 0, 10);
	touch_trees(l, 3, 4);
	assert_int_equal(meta_ledger_trees(l, INT64_MIN, got, 20, NULL), 10);
	d = digest_nr(3);
	assert_true(cas_digest_equal(&got[0].digest, &d));
	d = digest_nr(9);
	assert_true(cas_digest_equal(&got[1].digest, &d));
	before = got[0].last_use_ns;
	assert_int_equal(meta_ledger_trees(l, before, got, 20, NULL), 0);
	/* It goes with its root, and with age. */
	assert_int_equal(meta_ledger_blob_drop(l, &d, NULL), 0);
	assert_int_equal(meta_ledger_trees(l, INT64_MIN, got, 20, NULL), 9);
	touch_trees(l, 100, 100 + CAS_TREES_MAX);
	assert_int_equal(meta_ledger_trees(l, INT64_MIN, got, CAS_TREES_MAX + 10, NULL),
			 CAS_TREES_MAX);
	assert_true(got[CAS_TREES_MAX - 1].last_use_ns > before);
	assert_int_equal(meta_ledger_close(l, true, NULL), 0);
	/* The clock goes on from the latest use of either kind. */
	before = got[0].last_use_ns;
	l = open_as(*state, true, NULL);
	assert_true(l->clock_ns >= before);
	assert_int_equal(meta_ledger_close(l, true, NULL), 0);
}

static void test_clock_set_back_keeps_the_order(void **state)
{
	struct meta_ledger *l = open_as(*state, true, NULL);
	int64_t ahead;
	struct cas_victim v[4];
	struct cas_digest d;

	add_blobs(l, 0, 2);
	/* As if these two had been recorded by a clock that is an hour ahead. */
	assert_int_equal(
		meta_ledger_exec(l, "UPDATE blob SET last_use = last_use + 3600000000000", NULL),
		0);
	assert_int_equal(meta_ledger_close(l, true, NULL), 0);
	l = open_as(*state, true, NULL);
	add_blobs(l, 2, 4);
	assert_int_equal(meta_ledger_victims(l, NULL, v, 4, NULL), 4);
	ahead = v[1].last_use_ns;
	for (int i = 0; i < 4; i++) {
		d = digest_nr(i);
		assert_true(cas_digest_equal(&v[i].digest, &d));
	}
	assert_true(v[2].last_use_ns > ahead && v[3].last_use_ns > v[2].last_use_ns);
	assert_int_equal(meta_ledger_close(l, true, NULL), 0);
}

static void test_adopted_file_from_the_future_is_not_newest(void **state)
{
	struct meta_ledger *l = open_as(*state, true, NULL);
	const struct meta_ledger_blob future = {digest_nr(1), 0, INT64_MAX};
	const struct meta_ledger_blob old = {digest_nr(2), 512, 1000};
	struct cas_digest used = digest_nr(3);
	struct cas_victim v[3];

	assert_int_equal(meta_ledger_blob_adopt(l, &future, NULL), 0);
	assert_int_equal(meta_ledger_blob_adopt(l, &old, NULL), 0);
	assert_int_equal(meta_ledger_blob_add(l, &used, 4096, NULL), 0);
	assert_int_equal(meta_ledger_victims(l, NULL, v, 3, NULL), 3);
	assert_true(cas_digest_equal(&v[0].digest, &old.digest));
	assert_int_equal(v[0].last_use_ns, 1000);
	assert_int_equal(v[0].disk, 512);
	assert_true(cas_digest_equal(&v[1].digest, &future.digest));
	assert_true(cas_digest_equal(&v[2].digest, &used));
	assert_int_equal(meta_ledger_close(l, true, NULL), 0);
}

static void sandbox_expect(struct meta_ledger *l, const char *sql, int64_t want)
{
	int64_t got;

	assert_int_equal(meta_ledger_int(l, sql, -1, &got, NULL), 0);
	assert_int_equal(got, want);
}

static void test_sandbox_rows_are_replaced_by_id_and_creation(void **state)
{
	struct meta_ledger *l = open_as(*state, true, NULL);
	struct meta_sandbox_row row = {.id = "it's", .root = "r", .state = "live", .created_ns = 5};

	assert_int_equal(meta_ledger_sandbox_add(l, &row, NULL), 0);
	row.state = "finished";
	row.finished_ns = 9;
	row.exit_code = 3;
	assert_int_equal(meta_ledger_sandbox_add(l, &row, NULL), 0);
	row.created_ns = 6;
	assert_int_equal(meta_ledger_sandbox_add(l, &row, NULL), 0);
	sandbox_expect(l, "SELECT count(*) FROM sandbox", 2);
	sandbox_expect(l,
		       "SELECT count(*) FROM sandbox WHERE id = 'it''s' AND created = 5 AND"
		       " state = 'finished' AND finished = 9 AND exit_code = 3",
		       1);
	assert_int_equal(meta_ledger_close(l, true, NULL), 0);
}

static void test_facts_of_a_blob_tell_where_it_came_from(void **state)
{
	struct meta_ledger *l = open_as(*state, true, NULL);
	struct cas_digest here = digest_nr(1), brought = digest_nr(2), other = digest_nr(3);
	struct meta_blob_facts facts = {.size = 99};

	assert_int_equal(meta_ledger_blob_facts(l, here.hash, &facts, NULL), 0);
	assert_int_equal(facts.size, 99);
	assert_int_equal(meta_ledger_blob_add(l, &here, 4096, NULL), 0);
	assert_int_equal(meta_ledger_blob_add(l, &brought, 4096, NULL), 0);
	/* Its own row comes later; if none does, a count forgets it. */
	assert_int_equal(meta_ledger_blob_came(l, &other, "grpc://a", 5, NULL), 0);
	assert_int_equal(meta_ledger_blob_came(l, &brought, "http://it's", 7, NULL), 0);
	assert_int_equal(meta_ledger_blob_facts(l, here.hash, &facts, NULL), 1);
	assert_int_equal(facts.size, here.size);
	assert_int_equal(facts.disk, 4096);
	assert_true(facts.created_ns > 0 && facts.last_use_ns == facts.created_ns);
	assert_null(facts.source);
	meta_blob_facts_fini(&facts);
	assert_int_equal(meta_ledger_blob_facts(l, brought.hash, &facts, NULL), 1);
	assert_string_equal(facts.source, "http://it's");
	assert_int_equal(facts.came_ns, 7);
	meta_blob_facts_fini(&facts);
	assert_int_equal(meta_ledger_blob_facts(l, other.hash, &facts, NULL), 0);
	assert_int_equal(meta_ledger_blob_add(l, &other, 4096, NULL), 0);
	assert_int_equal(meta_ledger_blob_facts(l, other.hash, &facts, NULL), 1);
	assert_string_equal(facts.source, "grpc://a");
	meta_blob_facts_fini(&facts);
	assert_int_equal(meta_ledger_blob_drop(l, &other, NULL), 0);
	assert_int_equal(meta_ledger_blob_came(l, &other, "grpc://a", 5, NULL), 0);
	sandbox_expect(l, "SELECT count(*) FROM origin", 2);
	assert_int_equal(meta_ledger_recount(l, NULL), 0);
	sandbox_expect(l, "SELECT count(*) FROM origin", 1);
	/* Put again, it still came from there; brought anew after it went, from elsewhere. */
	assert_int_equal(meta_ledger_blob_add(l, &brought, 4096, NULL), 0);
	assert_int_equal(meta_ledger_blob_facts(l, brought.hash, &facts, NULL), 1);
	assert_int_equal(facts.came_ns, 7);
	meta_blob_facts_fini(&facts);
	assert_int_equal(meta_ledger_blob_drop(l, &brought, NULL), 0);
	assert_int_equal(meta_ledger_blob_add(l, &brought, 4096, NULL), 0);
	assert_int_equal(meta_ledger_blob_facts(l, brought.hash, &facts, NULL), 1);
	assert_null(facts.source);
	meta_blob_facts_fini(&facts);
	expect_totals(l, 2, here.size + brought.size);
	assert_int_equal(meta_ledger_close(l, true, NULL), 0);
}

static void test_the_last_sandbox_of_an_id_is_found(void **state)
{
	struct meta_ledger *l = open_as(*state, true, NULL);
	struct meta_sandbox_row row = {.id = "one", .root = "r", .state = "live", .created_ns = 5};
	struct meta_sandbox_facts facts;

	assert_int_equal(meta_ledger_sandbox_find(l, "one", &facts, NULL), 0);
	assert_int_equal(meta_ledger_sandbox_add(l, &row, NULL), 0);
	row.created_ns = 9;
	row.root = "later";
	row.state = "finished";
	row.exit_code = 3;
	row.finished_ns = 11;
	assert_int_equal(meta_ledger_sandbox_add(l, &row, NULL), 0);
	row.created_ns = 7;
	assert_int_equal(meta_ledger_sandbox_add(l, &row, NULL), 0);
	assert_int_equal(meta_ledger_sandbox_find(l, "one", &facts, NULL), 1);
	assert_string_equal(facts.root, "later");
	assert_string_equal(facts.state, "finished");
	assert_int_equal(facts.created_ns, 9);
	assert_int_equal(facts.finished_ns, 11);
	assert_int_equal(facts.exit_code, 3);
	meta_sandbox_facts_fini(&facts);
	assert_int_equal(meta_ledger_sandbox_find(l, "two", &facts, NULL), 0);
	assert_int_equal(meta_ledger_close(l, true, NULL), 0);
}

static void make_ledger(const char *store)
{
	struct meta_ledger *l = open_as(store, true, NULL);

	add_blobs(l, 0, 1000);
	assert_int_equal(meta_ledger_close(l, true, NULL), 0);
}

static void expect_remade(const char *store)
{
	struct stat st;
	bool fresh;
	struct meta_ledger *l = open_as(store, true, &fresh);

	assert_true(fresh);
	expect_totals(l, 0, 0);
	add_blobs(l, 0, 3);
	expect_totals(l, 3, 6);
	assert_int_equal(meta_ledger_close(l, true, NULL), 0);
	assert_int_equal(stat(tests_path(store, "meta/ledger.db.bad-1"), &st), 0);
}

static void raw_sql(const char *path, const char *sql)
{
	sqlite3 *db;

	assert_int_equal(
		sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL),
		SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* As step 3 left it: blobs with blocks, and no word of where they came from. */
static void test_a_ledger_of_before_is_brought_up_to_date(void **state)
{
	const char *path = tests_path(*state, "meta/ledger.db");
	struct cas_digest brought = digest_nr(2);
	struct meta_blob_facts facts;
	struct meta_ledger *l;
	bool fresh;

	make_ledger(*state);
	raw_sql(path, "DROP INDEX sandbox_id; DROP TRIGGER origin_deleted; DROP TABLE origin;"
		      "DROP TABLE source; PRAGMA user_version = 3");
	/* A reader of this version makes do with it. */
	l = open_as(*state, false, NULL);
	assert_non_null(l);
	assert_int_equal(meta_ledger_blob_facts(l, brought.hash, &facts, NULL), 0);
	assert_int_equal(meta_ledger_close(l, true, NULL), 0);
	l = open_as(*state, true, &fresh);
	assert_false(fresh);
	assert_int_equal(meta_ledger_blob_came(l, &brought, "file:///x", 7, NULL), 0);
	assert_int_equal(meta_ledger_blob_facts(l, brought.hash, &facts, NULL), 1);
	assert_string_equal(facts.source, "file:///x");
	meta_blob_facts_fini(&facts);
	assert_int_equal(meta_ledger_close(l, true, NULL), 0);
}

static void test_unknown_version_is_set_aside(void **state)
{
	make_ledger(*state);
	raw_sql(tests_path(*state, "meta/ledger.db"), "PRAGMA user_version = 99");
	assert_null(open_as(*state, false, NULL));
	expect_remade(*state);
}

static void test_foreign_database_is_set_aside(void **state)
{
	assert_int_equal(mkdir(tests_path(*state, "meta"), 0755), 0);
	raw_sql(tests_path(*state, "meta/ledger.db"),
		"CREATE TABLE t(x); INSERT INTO t VALUES(1);");
	assert_null(open_as(*state, false, NULL));
	expect_remade(*state);
}

static void test_garbage_is_set_aside(void **state)
{
	char garbage[20000];

	memset(garbage, 0x5a, sizeof(garbage));
	tests_write_file(tests_path(*state, "meta/ledger.db"), garbage, sizeof(garbage), 0644);
	assert_null(open_as(*state, false, NULL));
	expect_remade(*state);
}

static void test_damage_inside_is_found_after_a_crash(void **state)
{
	struct meta_ledger *l = open_as(*state, true, NULL);
	char garbage[4096 * 3];
	int fd;

	memset(garbage, 0x5a, sizeof(garbage));
	add_blobs(l, 0, 5000);
	assert_int_equal(meta_ledger_exec(l, "PRAGMA wal_checkpoint(TRUNCATE)", NULL), 0);
	assert_int_equal(meta_ledger_close(l, false, NULL), 0);
	fd = open(tests_path(*state, "meta/ledger.db"), O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, garbage, sizeof(garbage), 4096 * 12), sizeof(garbage));
	(void)close(fd);
	expect_remade(*state);
}

static void test_symlink_is_not_followed(void **state)
{
	struct stat st;

	tests_write_file(tests_path(*state, "victim"), "", 0, 0644);
	assert_int_equal(mkdir(tests_path(*state, "meta"), 0755), 0);
	assert_int_equal(symlink("../victim", tests_path(*state, "meta/ledger.db")), 0);
	expect_remade(*state);
	assert_int_equal(stat(tests_path(*state, "victim"), &st), 0);
	assert_int_equal(st.st_size, 0);
}

static void test_missing_ledger_is_fine_for_readers(void **state)
{
	assert_null(open_as(*state, false, NULL));
	assert_int_equal(tests_count_names(*state), 0);
}

/* C15: the log stays when a reader or writer exits, and what a killed writer did is there. */
static void test_log_outlives_the_exit_of_others(void **state)
{
	struct stat st;
	int status;
	pid_t pid = fork();
	struct meta_ledger *l;

	if (pid == 0) {
		l = open_as(*state, true, NULL);
		add_blobs(l, 0, 100);
		(void)meta_ledger_begin(l, NULL);
		(void)raise(SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	for (int i = 0; i < 2; i++) {
		pid = fork();
		if (pid == 0) {
			struct cas_usage usage;

			l = open_as(*state, false, NULL);
			if (!l || meta_ledger_totals(l, &usage, NULL) < 0 || usage.blobs != 100)
				_exit(1);
			_exit(meta_ledger_close(l, true, NULL) == 0 ? 0 : 1);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		assert_int_equal(stat(tests_path(*state, "meta/ledger.db-wal"), &st), 0);
		assert_true(st.st_size > 0);
	}
	l = open_as(*state, true, NULL);
	expect_totals(l, 100, 5050);
	assert_int_equal(meta_ledger_close(l, true, NULL), 0);
	assert_int_equal(stat(tests_path(*state, "meta/ledger.db-wal"), &st), 0);
}

static void test_log_does_not_grow_without_end(void **state)
{
	struct meta_ledger *l = open_as(*state, true, NULL);
	struct stat db, wal;

	for (int i = 0; i < 60; i++) {
		add_blobs(l, i * 500, i * 500 + 500);
		assert_int_equal(meta_ledger_checkpoint(l, NULL), 0);
	}
	assert_int_equal(stat(tests_path(*state, "meta/ledger.db"), &db), 0);
	assert_int_equal(stat(tests_path(*state, "meta/ledger.db-wal"), &wal), 0);
	assert_true(db.st_size > 1 << 20);
	assert_true(wal.st_size < 8 << 20);
	/* And it starts over rather than being checkpointed after each batch. */
	assert_true(l->wal_tried == 0 || l->wal_tried >= 1024);
	assert_int_equal(meta_ledger_close(l, true, NULL), 0);
}

static void test_stopped_reader_does_not_stop_the_writer(void **state)
{
	struct meta_ledger *l;
	int pipe_fd[2], status;
	pid_t pid;
	char c;

	make_ledger(*state);
	assert_int_equal(pipe2(pipe_fd, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		int64_t nr;

		l = open_as(*state, false, NULL);
		(void)meta_ledger_exec(l, "BEGIN", NULL);
		(void)meta_ledger_int(l, "SELECT count(*) FROM blob", 0, &nr, NULL);
		if (write(pipe_fd[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			(void)pause();
	}
	(void)close(pipe_fd[1]);
	assert_int_equal(read(pipe_fd[0], &c, 1), 1);
	(void)close(pipe_fd[0]);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	l = open_as(*state, true, NULL);
	for (int i = 0; i < 20; i++)
		add_blobs(l, 1000 + i * 1000, 2000 + i * 1000);
	assert_int_equal(meta_ledger_checkpoint(l, NULL), 0);
	expect_totals(l, 21000, 21000ULL * 21001 / 2);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(meta_ledger_close(l, true, NULL), 0);
}

#define TEST_CASE(fn) cmocka_unit_test_setup_teardown(fn, tests_dir_setup, tests_dir_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST_CASE(test_totals_follow_adds_drops_and_duplicates),
		TEST_CASE(test_clean_close_is_remembered),
		TEST_CASE(test_victims_come_oldest_first_in_pages),
		TEST_CASE(test_trees_come_latest_first_and_are_bounded),
		TEST_CASE(test_clock_set_back_keeps_the_order),
		TEST_CASE(test_adopted_file_from_the_future_is_not_newest),
		TEST_CASE(test_sandbox_rows_are_replaced_by_id_and_creation),
		TEST_CASE(test_facts_of_a_blob_tell_where_it_came_from),
		TEST_CASE(test_the_last_sandbox_of_an_id_is_found),
		TEST_CASE(test_a_ledger_of_before_is_brought_up_to_date),
		TEST_CASE(test_unknown_version_is_set_aside),
		TEST_CASE(test_foreign_database_is_set_aside),
		TEST_CASE(test_garbage_is_set_aside),
		TEST_CASE(test_damage_inside_is_found_after_a_crash),
		TEST_CASE(test_symlink_is_not_followed),
		TEST_CASE(test_missing_ledger_is_fine_for_readers),
		TEST_CASE(test_log_outlives_the_exit_of_others),
		TEST_CASE(test_log_does_not_grow_without_end),
		TEST_CASE(test_stopped_reader_does_not_stop_the_writer),
	};

	log_set_sink(sink_nothing, NULL);
	return cmocka_run_group_tests_name("meta_ledger", tests, NULL, NULL);
}
