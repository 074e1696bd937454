/* tests/unit/test_cas_tier.c - URLs, policy around a transport, and shared directories */
#include "tests/lib/tests.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/log.h"
#include "cas/hash.h"
#include "cas/store/layout.h"
#include "cas/tier/tier_i.h"
#include "tests/lib/store.h"

#define SIZE 300000

static void no_log(void *ctx, enum log_level level, const char *line)
{
}

/* ---- a transport that does what it is told ---- */

/* What each get does, in order; the last goes on for ever. */
enum fake_act { FAKE_GOOD, FAKE_HALF, FAKE_LONG, FAKE_REFUSE, FAKE_HANG, FAKE_ABSENT, FAKE_END };

struct fake {
	const unsigned char *data;
	const enum fake_act *acts;
	unsigned at;
	unsigned nr_gets;
	uint64_t last_offset;
	_Atomic bool hanging;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool woken;
};

static void fake_wake(void *ctx)
{
	struct fake *f = ctx;

	(void)pthread_mutex_lock(&f->lock);
	f->woken = true;
	(void)pthread_cond_broadcast(&f->cond);
	(void)pthread_mutex_unlock(&f->lock);
}

static int fake_hang(struct fake *f, struct cas_call *call)
{
	int ret;

	f->woken = false;
	cas_call_register(call, fake_wake, f);
	atomic_store(&f->hanging, true);
	(void)pthread_mutex_lock(&f->lock);
	while ((ret = cas_call_check(call)) == 0 && !f->woken) {
		unsigned long long at = atomic_load(&call->deadline_ns);
		struct timespec ts = {(time_t)(at / 1000000000), (long)(at % 1000000000)};

		(void)pthread_cond_clockwait(&f->cond, &f->lock, CLOCK_MONOTONIC, &ts);
	}
	(void)pthread_mutex_unlock(&f->lock);
	cas_call_unregister(call);
	return cas_call_check(call);
}

static int fake_get(void *ctx, const struct cas_digest *digest, uint64_t offset, uint64_t len,
		    const struct cas_sink *sink, struct cas_call *call, struct err *err)
{
	struct fake *f = ctx;
	enum fake_act act = f->acts[f->at];
	uint64_t end = len > 0 ? offset + len : digest->size;
	int ret;

	if (f->acts[f->at + 1] != FAKE_END)
		f->at++;
	f->nr_gets++;
	f->last_offset = offset;
	switch (act) {
	case FAKE_GOOD:
		return sink->write(sink->ctx, f->data + offset, end - offset, err);
	case FAKE_HALF:
		ret = sink->write(sink->ctx, f->data + offset, (end - offset) / 2, err);
		return ret != 0 ? ret : err_set(err, -EAGAIN, "closed in the middle");
	case FAKE_LONG:
		ret = sink->write(sink->ctx, f->data + offset, end - offset, err);
		return ret != 0 ? ret : sink->write(sink->ctx, "x", 1, err);
	case FAKE_REFUSE:
		return err_set(err, -EAGAIN, "connection refused");
	case FAKE_HANG:
		return fake_hang(f, call);
	case FAKE_ABSENT:
		return err_set(err, -ENOENT, "not here");
	case FAKE_END:
		break;
	}
	return -EPROTO;
}

static struct fake *next_fake;

static int fake_open(const struct tier_url *url, void **ctx, struct err *err)
{
	*ctx = next_fake;
	return 0;
}

static void fake_close(void *ctx)
{
}

static const struct tier_transport fake_ops = {.get = fake_get, .close = fake_close};
static const struct tier_scheme fake_scheme = {
	.scheme = "fake", .ops = &fake_ops, .open = fake_open};

struct fixture {
	struct fake fake;
	struct cas_tier *tier;
	unsigned char *data;
	struct cas_digest digest;
	struct cas_call call;
	struct buf got;
	struct err err;
};

static void start(struct fixture *f, const enum fake_act *acts, const char *options)
{
	char url[100];

	*f = (struct fixture){.data = tests_noise(SIZE, 7)};
	assert_int_equal(cas_hash_bytes(f->data, SIZE, &f->digest), 0);
	f->fake = (struct fake){.data = f->data, .acts = acts};
	(void)pthread_mutex_init(&f->fake.lock, NULL);
	(void)pthread_cond_init(&f->fake.cond, NULL);
	next_fake = &f->fake;
	(void)snprintf(url, sizeof(url), "fake://host?%s", options);
	assert_int_equal(tier_open_as(url, &fake_scheme, &f->tier, &f->err), 0);
	cas_call_init(&f->call, 0);
}

static void stop(struct fixture *f)
{
	cas_call_fini(&f->call);
	cas_tier_close(f->tier);
	buf_fini(&f->got);
	free(f->data);
}

static int take(void *ctx, const void *data, size_t len, struct err *err)
{
	return buf_append(ctx, data, len);
}

static int get(struct fixture *f)
{
	const struct cas_sink sink = {.write = take, .ctx = &f->got};

	f->err = (struct err){0};
	buf_reset(&f->got);
	return cas_tier_get(f->tier, &f->digest, &sink, &f->call, &f->err);
}

static void assert_got(const struct fixture *f)
{
	assert_int_equal(f->got.len, SIZE);
	assert_memory_equal(f->got.data, f->data, SIZE);
}

static void test_get_goes_on_where_it_ended(void **state)
{
	static const enum fake_act acts[] = {FAKE_HALF, FAKE_REFUSE, FAKE_GOOD, FAKE_END};
	struct fixture f;

	start(&f, acts, "");
	assert_int_equal(get(&f), 0);
	assert_got(&f);
	assert_int_equal(f.fake.nr_gets, 3);
	assert_int_equal(f.fake.last_offset, SIZE / 2);
	stop(&f);
}

static void test_get_ends_after_as_many_tries(void **state)
{
	static const enum fake_act acts[] = {FAKE_REFUSE, FAKE_END};
	struct cas_tier_stats stats;
	struct fixture f;

	start(&f, acts, "tries=3");
	assert_int_equal(get(&f), -EAGAIN);
	assert_int_equal(f.fake.nr_gets, 3);
	assert_string_equal(f.err.msg, "connection refused");
	cas_tier_stats(f.tier, &stats);
	assert_int_equal(stats.nr_requests, 3);
	assert_int_equal(stats.nr_failures, 3);
	assert_int_equal(stats.nr_blobs_in, 0);
	stop(&f);
}

static void test_get_of_absent_blob_is_not_tried_again(void **state)
{
	static const enum fake_act acts[] = {FAKE_ABSENT, FAKE_END};
	struct fixture f;

	start(&f, acts, "");
	assert_int_equal(get(&f), -ENOENT);
	assert_int_equal(f.fake.nr_gets, 1);
	/* Nor remembered. */
	f.fake.acts = (const enum fake_act[]){FAKE_GOOD, FAKE_END};
	assert_int_equal(get(&f), 0);
	assert_got(&f);
	stop(&f);
}

static void test_get_refuses_more_bytes_than_the_blob_has(void **state)
{
	static const enum fake_act acts[] = {FAKE_LONG, FAKE_END};
	struct fixture f;

	start(&f, acts, "");
	assert_int_equal(get(&f), -EBADMSG);
	assert_int_equal(f.fake.nr_gets, 1);
	stop(&f);
}

static void test_get_from_silent_tier_ends_at_the_deadline(void **state)
{
	static const enum fake_act acts[] = {FAKE_HANG, FAKE_END};
	struct fixture f;

	start(&f, acts, "deadline=60ms");
	assert_int_equal(get(&f), -ETIMEDOUT);
	assert_non_null(strstr(f.err.msg, "60 ms"));
	/* A call's own limit is shorter still, and stays as it was. */
	stop(&f);
	start(&f, acts, "deadline=1h");
	cas_call_fini(&f.call);
	cas_call_init(&f.call, 30);
	assert_int_equal(get(&f), -ETIMEDOUT);
	assert_int_equal(cas_call_check(&f.call), -ETIMEDOUT);
	stop(&f);
}

static void *cancel_when_hanging(void *arg)
{
	struct fixture *f = arg;

	while (!atomic_load(&f->fake.hanging))
		(void)usleep(1000);
	cas_call_cancel(&f->call);
	return NULL;
}

static void test_get_from_silent_tier_can_be_cancelled(void **state)
{
	static const enum fake_act acts[] = {FAKE_HANG, FAKE_END};
	struct fixture f;
	pthread_t thread;

	start(&f, acts, "deadline=1h");
	assert_int_equal(pthread_create(&thread, NULL, cancel_when_hanging, &f), 0);
	assert_int_equal(get(&f), -ECANCELED);
	assert_int_equal(pthread_join(thread, NULL), 0);
	/* And stays so. */
	assert_int_equal(get(&f), -ECANCELED);
	assert_int_equal(f.fake.nr_gets, 1);
	stop(&f);
}

static void test_breaker_opens_and_closes_again(void **state)
{
	static const enum fake_act acts[] = {FAKE_REFUSE, FAKE_END};
	struct cas_tier_stats stats;
	struct fixture f;

	/* Two gets, as the pauses between tries of one grow. */
	start(&f, acts, "tries=4");
	assert_int_equal(get(&f), -EAGAIN);
	cas_tier_stats(f.tier, &stats);
	assert_false(stats.broken);
	assert_int_equal(get(&f), -EAGAIN);
	cas_tier_stats(f.tier, &stats);
	assert_true(stats.broken);
	/* What nobody waits for is refused without asking. */
	f.call.background = true;
	assert_int_equal(get(&f), -EAGAIN);
	assert_non_null(strstr(f.err.msg, "8 times in a row"));
	assert_int_equal(f.fake.nr_gets, 8);
	/* What somebody waits for sits the first opening out, and then it works. */
	f.call.background = false;
	f.fake.acts = (const enum fake_act[]){FAKE_GOOD, FAKE_END};
	assert_int_equal(get(&f), 0);
	assert_got(&f);
	cas_tier_stats(f.tier, &stats);
	assert_false(stats.broken);
	stop(&f);
}

static void test_range_asks_for_those_bytes_only(void **state)
{
	static const enum fake_act acts[] = {FAKE_HALF, FAKE_GOOD, FAKE_END};
	struct fixture f;
	const struct cas_sink sink = {.write = take, .ctx = &f.got};

	start(&f, acts, "");
	assert_int_equal(cas_tier_get_range(f.tier, &f.digest, 1000, 200, &sink, &f.call, &f.err),
			 0);
	assert_int_equal(f.got.len, 200);
	assert_memory_equal(f.got.data, f.data + 1000, 200);
	assert_int_equal(f.fake.last_offset, 1100);
	assert_int_equal(cas_tier_get_range(f.tier, &f.digest, SIZE - 1, 2, &sink, &f.call, &f.err),
			 -EINVAL);
	stop(&f);
}

/* ---- URLs ---- */

static void test_url_parts(void **state)
{
	struct tier_url url;
	struct err err = {0};
	uint64_t n = 9;
	unsigned ms = 9;
	bool yes = false;

	assert_int_equal(
		tier_url_parse("http://[::1]:8080/a%20b/c/?write=yes&deadline=2m&n=12", &url, &err),
		0);
	assert_string_equal(url.text, "http://[::1]:8080/a%20b/c/");
	assert_string_equal(url.scheme, "http");
	assert_string_equal(url.host, "[::1]");
	assert_int_equal(url.port, 8080);
	assert_string_equal(url.path, "a b/c");
	assert_int_equal(tier_url_flag(&url, "write", &yes, &err), 0);
	assert_true(yes);
	assert_int_equal(tier_url_time_ms(&url, "deadline", &ms, &err), 0);
	assert_int_equal(ms, 120000);
	assert_int_equal(tier_url_number(&url, "n", 1, 12, &n, &err), 0);
	assert_int_equal(n, 12);
	assert_int_equal(tier_url_number(&url, "n", 1, 11, &n, &err), -EINVAL);
	assert_int_equal(tier_url_flag(&url, "n", &yes, &err), -EINVAL);
	assert_int_equal(tier_url_time_ms(&url, "n", &ms, &err), -EINVAL);
	assert_null(tier_url_get(&url, "other"));
	tier_url_fini(&url);
}

static void test_malformed_urls_are_refused(void **state)
{
	static const char *const bad[] = {
		"",
		"host/path",
		"://host",
		"http://host:0/",
		"http://host:65536/",
		"http://host:/",
		"http://host:12a/",
		"http://[::1/",
		"http://host/a b",
		"http://host/#x",
		"http://host/%zz",
		"http://host/%00",
		"http://host/%4",
		"http://host?=x",
		"http://host?a=1&a=2",
		"http://host/\n",
	};
	struct err err = {0};
	struct tier_url url;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(tier_url_parse(bad[i], &url, &err), -EINVAL);
}

static void test_password_in_url_is_refused_and_not_repeated(void **state)
{
	struct err err = {0};
	struct cas_tier *tier = NULL;

	assert_int_equal(cas_tier_open("http://user:hunter2@host/", &tier, &err), -EINVAL);
	assert_null(strstr(err.msg, "hunter2"));
	assert_null(tier);
}

static void test_unknown_schemes_and_options_are_named(void **state)
{
	struct err err = {0};
	struct cas_tier *tier = NULL;

	assert_int_equal(cas_tier_open("gopher://host/", &tier, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "gopher"));
	assert_int_equal(cas_tier_open("file:///tmp?wirte=yes", &tier, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "wirte"));
	assert_int_equal(cas_tier_open("file:///tmp?deadline=0s", &tier, &err), -EINVAL);
	assert_int_equal(cas_tier_open("file://host/tmp", &tier, &err), -EINVAL);
	assert_null(tier);
}

/* ---- a shared directory ---- */

static struct cas_tier *open_dir(const char *dir, const char *options)
{
	char url[300];
	struct cas_tier *tier = NULL;
	struct err err = {0};

	(void)snprintf(url, sizeof(url), "file://%s?%s", dir, options);
	if (cas_tier_open(url, &tier, &err) < 0)
		fail_msg("%s", err.msg);
	return tier;
}

static const char *file_of(const char *dir, const struct cas_digest *d)
{
	char path[CAS_LAYOUT_PATH_SZ];
	char name[100];

	cas_layout_path(d->hash, path);
	(void)snprintf(name, sizeof(name), "cas/%s", path);
	return tests_path(dir, name);
}

static int read_one(struct cas_tier *tier, const struct cas_digest *d, struct buf *out)
{
	const struct cas_sink sink = {.write = take, .ctx = out};
	struct cas_call call;
	struct err err = {0};
	int ret;

	cas_call_init(&call, 0);
	buf_reset(out);
	ret = cas_tier_get(tier, d, &sink, &call, &err);
	cas_call_fini(&call);
	return ret;
}

static void test_directory_takes_and_gives_blobs(void **state)
{
	unsigned char *data = tests_noise(SIZE, 1);
	struct cas_tier *tier = open_dir(*state, "write=yes");
	const struct cas_source source = {.fd = -1, .data = data};
	struct cas_digest d[3] = {{{0}}};
	struct cas_call call;
	struct err err = {0};
	auto_buf struct buf got = {0};
	bool missing[3];
	struct stat st;

	cas_call_init(&call, 0);
	assert_int_equal(cas_hash_bytes(data, SIZE, &d[0]), 0);
	d[1] = cas_digest_empty;
	d[2] = d[0];
	d[2].size++;
	assert_int_equal(read_one(tier, &d[0], &got), -ENOENT);
	assert_int_equal(cas_tier_find_missing(tier, d, 3, missing, &call, &err), 0);
	assert_true(missing[0]);
	assert_false(missing[1]);
	assert_int_equal(cas_tier_put(tier, &d[0], &source, &call, &err), 0);
	assert_int_equal(cas_tier_put(tier, &d[0], &source, &call, &err), 0);
	assert_int_equal(cas_tier_find_missing(tier, d, 3, missing, &call, &err), 0);
	assert_false(missing[0]);
	assert_true(missing[2]);
	assert_int_equal(read_one(tier, &d[0], &got), 0);
	assert_int_equal(got.len, SIZE);
	assert_memory_equal(got.data, data, SIZE);
	assert_int_equal(read_one(tier, &d[2], &got), -EBADMSG);
	assert_int_equal(stat(file_of(*state, &d[0]), &st), 0);
	assert_int_equal(st.st_mode & 07777, 0444);
	cas_call_fini(&call);
	cas_tier_close(tier);
	free(data);
}

static void test_directory_replaces_a_short_file(void **state)
{
	struct cas_tier *tier = open_dir(*state, "write=yes");
	const struct cas_source source = {.fd = -1, .data = "hello"};
	auto_buf struct buf got = {0};
	struct cas_digest d;
	struct cas_call call;
	struct err err = {0};

	cas_call_init(&call, 0);
	assert_int_equal(cas_hash_bytes("hello", 5, &d), 0);
	tests_write_file(file_of(*state, &d), "hel", 3, 0444);
	assert_int_equal(read_one(tier, &d, &got), -EBADMSG);
	assert_int_equal(cas_tier_put(tier, &d, &source, &call, &err), 0);
	assert_int_equal(read_one(tier, &d, &got), 0);
	assert_string_equal(buf_str(&got), "hello");
	cas_call_fini(&call);
	cas_tier_close(tier);
}

static void test_directory_without_write_is_only_read(void **state)
{
	struct cas_tier *tier = open_dir(*state, "");
	const struct cas_source source = {.fd = -1, .data = "hello"};
	struct cas_digest d;
	struct cas_call call;
	struct err err = {0};

	cas_call_init(&call, 0);
	assert_int_equal(cas_hash_bytes("hello", 5, &d), 0);
	assert_int_equal(cas_tier_put(tier, &d, &source, &call, &err), -EROFS);
	assert_int_equal(cas_tier_action_put(tier, &d, "x", 1, &call, &err), -EROFS);
	assert_int_equal(tests_count_names(*state), 0);
	cas_call_fini(&call);
	cas_tier_close(tier);
}

static void test_directory_that_is_away_may_come_back(void **state)
{
	struct cas_tier *tier = open_dir(tests_path(*state, "away"), "tries=1");
	auto_buf struct buf got = {0};
	struct cas_digest d;

	assert_int_equal(cas_hash_bytes("hello", 5, &d), 0);
	assert_int_equal(read_one(tier, &d, &got), -EAGAIN);
	tests_write_file(file_of(tests_path(*state, "away"), &d), "hello", 5, 0444);
	assert_int_equal(read_one(tier, &d, &got), 0);
	cas_tier_close(tier);
}

static void test_directory_keeps_action_results(void **state)
{
	struct cas_tier *tier = open_dir(*state, "write=yes");
	auto_buf struct buf got = {0};
	struct cas_digest d;
	struct cas_call call;
	struct err err = {0};

	cas_call_init(&call, 0);
	assert_int_equal(cas_hash_bytes("action", 6, &d), 0);
	assert_int_equal(cas_tier_action_get(tier, &d, &got, &call, &err), -ENOENT);
	assert_int_equal(cas_tier_action_put(tier, &d, "one", 3, &call, &err), 0);
	assert_int_equal(cas_tier_action_put(tier, &d, "three", 5, &call, &err), 0);
	assert_int_equal(cas_tier_action_get(tier, &d, &got, &call, &err), 0);
	assert_string_equal(buf_str(&got), "three");
	cas_call_fini(&call);
	cas_tier_close(tier);
}

struct seen {
	int status[4];
	unsigned nr;
};

static int note_status(void *ctx, size_t index, int status, const void *data, size_t len)
{
	struct seen *seen = ctx;

	seen->status[index] = status;
	seen->nr++;
	return 0;
}

static void test_batch_tells_of_each_blob(void **state)
{
	struct cas_tier *tier = open_dir(*state, "");
	struct seen seen = {{1, 1, 1, 1}, 0};
	struct cas_digest d[4];
	struct cas_call call;
	struct err err = {0};

	cas_call_init(&call, 0);
	assert_int_equal(cas_hash_bytes("one", 3, &d[0]), 0);
	d[1] = cas_digest_empty;
	assert_int_equal(cas_hash_bytes("two", 3, &d[2]), 0);
	d[3] = d[0];
	d[3].size = 4;
	tests_write_file(file_of(*state, &d[0]), "one", 3, 0444);
	assert_int_equal(cas_tier_get_many(tier, d, 4, note_status, &seen, &call, &err), 0);
	assert_int_equal(seen.nr, 4);
	assert_int_equal(seen.status[0], 0);
	assert_int_equal(seen.status[1], 0);
	assert_int_equal(seen.status[2], -ENOENT);
	assert_int_equal(seen.status[3], -EBADMSG);
	cas_call_fini(&call);
	cas_tier_close(tier);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_get_goes_on_where_it_ended),
		cmocka_unit_test(test_get_ends_after_as_many_tries),
		cmocka_unit_test(test_get_of_absent_blob_is_not_tried_again),
		cmocka_unit_test(test_get_refuses_more_bytes_than_the_blob_has),
		cmocka_unit_test(test_get_from_silent_tier_ends_at_the_deadline),
		cmocka_unit_test(test_get_from_silent_tier_can_be_cancelled),
		cmocka_unit_test(test_breaker_opens_and_closes_again),
		cmocka_unit_test(test_range_asks_for_those_bytes_only),
		cmocka_unit_test(test_url_parts),
		cmocka_unit_test(test_malformed_urls_are_refused),
		cmocka_unit_test(test_password_in_url_is_refused_and_not_repeated),
		cmocka_unit_test(test_unknown_schemes_and_options_are_named),
		TESTS_IN_DIR(test_directory_takes_and_gives_blobs),
		TESTS_IN_DIR(test_directory_replaces_a_short_file),
		TESTS_IN_DIR(test_directory_without_write_is_only_read),
		TESTS_IN_DIR(test_directory_that_is_away_may_come_back),
		TESTS_IN_DIR(test_directory_keeps_action_results),
		TESTS_IN_DIR(test_batch_tells_of_each_blob),
	};

	log_set_sink(no_log, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
