/* tests/unit/test_cas_spool_result.c - results of actions on their way through the spool */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/evict/evict.h"
#include "cas/hash.h"
#include "cas/put/put.h"
#include "cas/reapi.pb-c.h"
#include "cas/spool/spool.h"
#include "cas/store/layout.h"
#include "cas/store/store.h"
#include "tests/lib/store.h"

/* DIR/@name with blobs in DIR/blobs. */
static struct cas_store *open_store(const char *dir, const char *name)
{
	struct cas_store_options opts = {
		.path = tests_path(dir, name), .blobs = tests_path(dir, "blobs"), .create = true};
	struct cas_store *store = NULL;
	struct err err = {0};

	if (cas_store_open(&opts, &store, &err) < 0)
		fail_msg("cannot open the store: %s", err.msg);
	return store;
}

static void start(struct cas_store *store)
{
	const struct cas_spool_options opts = {.retry_ms = 20, .hold_ms = 500};
	struct err err = {0};

	if (cas_spool_start(store, &opts, &err) < 0)
		fail_msg("cannot start the spool: %s", err.msg);
}

static void close_store(struct cas_store *store)
{
	cas_spool_stop(store);
	cas_store_close(store);
}

static int drain(struct cas_store *store)
{
	struct err err = {0};

	return cas_spool_drain(store, CAS_SPOOL_ALL, NULL, &err);
}

/* After failures moves are tried again a little later. */
static void drain_soon(struct cas_store *store)
{
	const struct timespec nap = {.tv_nsec = 20000000};

	for (int i = 0; drain(store) != 0; i++) {
		assert_in_range(i, 0, 1000);
		(void)nanosleep(&nap, NULL);
	}
}

static struct cas_digest digest_of(const char *text)
{
	struct cas_digest d;

	assert_int_equal(cas_hash_bytes(text, strlen(text), &d), 0);
	return d;
}

static void put_result(struct cas_store *store, const struct cas_digest *action, const char *text)
{
	struct err err = {0};

	if (cas_store_action_put(store, action, text, strlen(text), &err) < 0 ||
	    cas_store_sync(store, &err) < 0)
		fail_msg("%s", err.msg);
}

static void expect_result(struct cas_store *store, const struct cas_digest *action,
			  const char *text)
{
	auto_buf struct buf b = {0};
	struct err err = {0};

	if (cas_store_action_get(store, action, &b, &err) < 0)
		fail_msg("%s", err.msg);
	assert_string_equal(buf_str(&b), text);
}

/* DIR/PLACE/HH/HASH. */
static const char *file_at(const char *dir, const char *place, const struct cas_digest *d)
{
	char path[CAS_LAYOUT_PATH_SZ];
	char full[64 + CAS_LAYOUT_PATH_SZ];

	cas_layout_path(d->hash, path);
	(void)snprintf(full, sizeof(full), "%s/%s", place, path);
	return tests_path(dir, full);
}

static bool is_moved(const char *dir, const struct cas_digest *action)
{
	return access(file_at(dir, "blobs/ac", action), F_OK) == 0;
}

static bool is_waiting(const char *dir, const struct cas_digest *action)
{
	return access(file_at(dir, "store/spool/results", action), F_OK) == 0;
}

/* Where the shard of @d would be there is a file: nothing can be moved into it. */
static void bar(const char *dir, const char *place, const struct cas_digest *d, bool yes)
{
	char name[64];

	(void)snprintf(name, sizeof(name), "%s/%02x", place, d->hash[0]);
	if (yes)
		assert_int_equal(mknod(tests_path(dir, name), S_IFREG | 0644, 0), 0);
	else
		assert_int_equal(unlink(tests_path(dir, name)), 0);
}

static void test_result_goes_through_the_spool(void **state)
{
	struct cas_store *store = open_store(*state, "store");
	struct cas_digest action = digest_of("an action");
	struct cas_spool_usage usage = {.results = 9};

	start(store);
	put_result(store, &action, "its result");
	expect_result(store, &action, "its result");
	assert_int_equal(drain(store), 0);
	assert_true(is_moved(*state, &action));
	assert_false(is_waiting(*state, &action));
	expect_result(store, &action, "its result");
	assert_int_equal(cas_spool_usage(store, &usage, NULL), 0);
	assert_int_equal(usage.results, 0);
	assert_int_equal(usage.bytes, 0);
	close_store(store);
}

static void test_result_waits_for_the_blobs_before_it(void **state)
{
	struct cas_store *store = open_store(*state, "store");
	struct cas_store *reader = open_store(*state, "store");
	struct cas_digest action = digest_of("an action");
	struct cas_digest blob = digest_of("a blob");
	struct cas_digest later = digest_of("later");
	struct err err = {0};
	struct cas_spool_usage usage;

	start(store);
	bar(*state, "blobs/cas", &blob, true);
	if (cas_put_bytes(store, "a blob", 6, &blob, &err) < 0)
		fail_msg("%s", err.msg);
	put_result(store, &action, "its result");
	if (cas_put_bytes(store, "later", 5, &later, &err) < 0)
		fail_msg("%s", err.msg);
	/* What cannot be moved is told of in the end; the result is in force meanwhile. */
	assert_int_equal(drain(store), -EAGAIN);
	assert_false(is_moved(*state, &action));
	expect_result(store, &action, "its result");
	expect_result(reader, &action, "its result");
	assert_int_equal(cas_spool_usage(store, &usage, NULL), 0);
	assert_int_equal(usage.blobs, 1);
	assert_int_equal(usage.results, 1);
	assert_int_equal(usage.bytes, 6 + strlen("its result"));
	bar(*state, "blobs/cas", &blob, false);
	drain_soon(store);
	assert_true(is_moved(*state, &action));
	assert_false(is_waiting(*state, &action));
	cas_store_close(reader);
	close_store(store);
}

static void test_directory_that_is_away_delays_only(void **state)
{
	struct cas_store *store = open_store(*state, "store");
	struct cas_digest action = digest_of("an action");

	start(store);
	bar(*state, "blobs/ac", &action, true);
	put_result(store, &action, "first");
	put_result(store, &action, "second");
	assert_int_equal(drain(store), -EAGAIN);
	expect_result(store, &action, "second");
	bar(*state, "blobs/ac", &action, false);
	drain_soon(store);
	assert_true(is_moved(*state, &action));
	expect_result(store, &action, "second");
	close_store(store);
}

static void test_next_start_moves_what_was_left(void **state)
{
	struct cas_store *store = open_store(*state, "store");
	struct cas_digest action = digest_of("an action");

	start(store);
	bar(*state, "blobs/ac", &action, true);
	put_result(store, &action, "its result");
	close_store(store);
	assert_true(is_waiting(*state, &action));
	bar(*state, "blobs/ac", &action, false);
	store = open_store(*state, "store");
	start(store);
	assert_int_equal(drain(store), 0);
	assert_true(is_moved(*state, &action));
	assert_false(is_waiting(*state, &action));
	expect_result(store, &action, "its result");
	close_store(store);
}

/* As a power cut may leave it. */
static void test_empty_result_goes_and_holds_nobody_up(void **state)
{
	struct cas_store *store = open_store(*state, "store");
	struct cas_digest action = digest_of("an action");
	struct cas_digest other = digest_of("another one");
	auto_buf struct buf b = {0};

	start(store);
	bar(*state, "blobs/ac", &action, true);
	put_result(store, &action, "its result");
	close_store(store);
	bar(*state, "blobs/ac", &action, false);
	assert_int_equal(unlink(file_at(*state, "store/spool/results", &action)), 0);
	tests_write_file(file_at(*state, "store/spool/results", &action), "", 0, 0444);
	store = open_store(*state, "store");
	start(store);
	put_result(store, &other, "a result");
	assert_int_equal(drain(store), 0);
	assert_false(is_waiting(*state, &action));
	assert_false(is_moved(*state, &action));
	assert_int_equal(cas_store_action_get(store, &action, &b, NULL), -ENOENT);
	assert_true(is_moved(*state, &other));
	close_store(store);
}

static void test_known_result_changes_nothing_there(void **state)
{
	struct cas_store *store = open_store(*state, "store");
	struct cas_digest action = digest_of("an action");
	struct stat before;
	struct stat after;

	start(store);
	put_result(store, &action, "its result");
	assert_int_equal(drain(store), 0);
	assert_int_equal(stat(file_at(*state, "blobs/ac", &action), &before), 0);
	put_result(store, &action, "its result");
	assert_int_equal(drain(store), 0);
	assert_int_equal(stat(file_at(*state, "blobs/ac", &action), &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
	assert_false(is_waiting(*state, &action));
	close_store(store);
}

/* A result that names @blob as an output. */
static size_t result_of(const struct cas_digest *blob, uint8_t out[256])
{
	char hex[CAS_HASH_HEX_SZ + 1];
	Reapi__Digest d = REAPI__DIGEST__INIT;
	Reapi__OutputFile file = REAPI__OUTPUT_FILE__INIT;
	Reapi__OutputFile *files[1] = {&file};
	Reapi__ActionResult r = REAPI__ACTION_RESULT__INIT;

	cas_hash_format(blob->hash, hex);
	d.hash = hex;
	d.size_bytes = (int64_t)blob->size;
	file.path = (char[]){"out"};
	file.digest = &d;
	r.n_output_files = 1;
	r.output_files = files;
	return reapi__action_result__pack(&r, out);
}

static void test_waiting_result_goes_before_its_blobs(void **state)
{
	struct cas_store *store = open_store(*state, "store");
	struct cas_evict_options opts = {.max_bytes = 0};
	const struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
	struct cas_evict_result freed = {0};
	struct cas_digest action = digest_of("an action");
	struct cas_digest blob;
	struct err err = {0};
	uint8_t data[256];
	size_t len;

	start(store);
	if (cas_put_bytes(store, "a blob", 6, &blob, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(drain(store), 0);
	bar(*state, "blobs/ac", &action, true);
	len = result_of(&blob, data);
	assert_int_equal(cas_store_action_put(store, &action, data, len, &err), 0);
	assert_true(is_waiting(*state, &action));
	/* The young ones stay: others may be about to count on them. */
	assert_int_equal(utimensat(AT_FDCWD, file_at(*state, "blobs/cas", &blob), old, 0), 0);
	if (cas_evict(store, &opts, NULL, &freed, &err) < 0)
		fail_msg("%s", err.msg);
	assert_int_equal(freed.freed_blobs, 1);
	assert_false(is_waiting(*state, &action));
	bar(*state, "blobs/ac", &action, false);
	drain_soon(store);
	assert_false(is_moved(*state, &action));
	close_store(store);
}

static void sink_nothing(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	(void)line;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_result_goes_through_the_spool),
		TESTS_IN_DIR(test_result_waits_for_the_blobs_before_it),
		TESTS_IN_DIR(test_directory_that_is_away_delays_only),
		TESTS_IN_DIR(test_next_start_moves_what_was_left),
		TESTS_IN_DIR(test_empty_result_goes_and_holds_nobody_up),
		TESTS_IN_DIR(test_known_result_changes_nothing_there),
		TESTS_IN_DIR(test_waiting_result_goes_before_its_blobs),
	};

	log_set_sink(sink_nothing, NULL);
	return cmocka_run_group_tests_name("cas_spool_result", tests, NULL, NULL);
}
