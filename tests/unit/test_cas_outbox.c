/* tests/unit/test_cas_outbox.c - what waits to be sent, and a tier that does as it is told */
#include "tests/lib/tests.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/log.h"
#include "cas/fetch/fetch_i.h"
#include "cas/fetch/outbox.h"
#include "cas/hash.h"
#include "cas/put/put.h"
#include "cas/store/store.h"
#include "cas/tier/tier_i.h"
#include "tests/lib/store.h"

static void no_log(void *ctx, enum log_level level, const char *line)
{
}

/* ---- a tier that keeps one result, and fails when it is told to ---- */

struct fake {
	int fail; /* what puts return */
	unsigned nr_puts;
	unsigned nr_results;
	char result[16];
	size_t result_len;
	void (*meanwhile)(struct fake *f); /* once, in the middle of the put of a result */
	struct cas_store *store;
	struct cas_outbox *outbox;
	struct cas_digest action;
};

static struct fake fake;

static int fake_get(void *ctx, const struct cas_digest *digest, uint64_t offset, uint64_t len,
		    const struct cas_sink *sink, struct cas_call *call, struct err *err)
{
	return err_set(err, -ENOENT, "the tier has nothing");
}

static int fake_missing(void *ctx, const struct cas_digest *digests, size_t nr, bool *missing,
			struct cas_call *call, struct err *err)
{
	for (size_t i = 0; i < nr; i++)
		missing[i] = true;
	return 0;
}

static int fake_put(void *ctx, const struct cas_digest *digest, const struct cas_source *source,
		    struct cas_call *call, struct err *err)
{
	fake.nr_puts++;
	return fake.fail ? err_set(err, fake.fail, "the tier was told to fail") : 0;
}

static int fake_action_put(void *ctx, const struct cas_digest *action, const void *data, size_t len,
			   struct cas_call *call, struct err *err)
{
	void (*meanwhile)(struct fake * f) = fake.meanwhile;

	fake.meanwhile = NULL;
	if (meanwhile)
		meanwhile(&fake);
	fake.nr_results++;
	assert_true(len <= sizeof(fake.result));
	memcpy(fake.result, data, len);
	fake.result_len = len;
	return fake.fail ? err_set(err, fake.fail, "the tier was told to fail") : 0;
}

static int fake_open(const struct tier_url *url, void **ctx, struct err *err)
{
	*ctx = &fake;
	return 0;
}

static void fake_close(void *ctx)
{
}

static const struct tier_transport fake_ops = {.get = fake_get,
					       .find_missing = fake_missing,
					       .put = fake_put,
					       .action_put = fake_action_put,
					       .close = fake_close};
static const struct tier_scheme fake_scheme = {
	.scheme = "fake", .ops = &fake_ops, .open = fake_open};

/* ---- a store with such a tier ---- */

struct fixture {
	struct cas_store *store;
	struct cas_fetch *fetch;
	struct cas_outbox *outbox;
	struct cas_push_progress progress;
	struct err err;
};

static void start(struct fixture *f, const char *dir, const char *options)
{
	char url[100];

	*f = (struct fixture){.store = tests_store_open(dir, NULL)};
	fake = (struct fake){.store = f->store};
	assert_int_equal(cas_fetch_open(f->store, NULL, 0, &f->fetch, &f->err), 0);
	(void)snprintf(url, sizeof(url), "fake://host?%s", options);
	assert_int_equal(tier_open_as(url, &fake_scheme, &f->fetch->tiers[0], &f->err), 0);
	f->fetch->nr_tiers = 1;
	assert_int_equal(cas_outbox_open(f->store, f->fetch, false, &f->outbox, &f->err), 0);
	fake.outbox = f->outbox;
}

static void stop(struct fixture *f)
{
	cas_outbox_close(f->outbox);
	cas_fetch_close(f->fetch);
	cas_store_close(f->store);
}

static struct cas_digest put_text(struct fixture *f, const char *text)
{
	struct cas_digest digest;

	assert_int_equal(cas_put_bytes(f->store, text, strlen(text), &digest, &f->err), 0);
	return digest;
}

static void test_blob_goes_and_its_entry_with_it(void **state)
{
	struct fixture f;
	struct cas_digest blob;

	start(&f, *state, "write=yes");
	blob = put_text(&f, "hello");
	assert_int_equal(cas_outbox_add(f.outbox, CAS_PUSH_BLOB, &blob, &f.err), 0);
	assert_int_equal(cas_outbox_add(f.outbox, CAS_PUSH_BLOB, &blob, &f.err), 0);
	assert_int_equal(cas_outbox_count(f.store), 1);
	assert_int_equal(cas_outbox_send(f.outbox, &f.progress, &f.err), 0);
	assert_int_equal(cas_outbox_count(f.store), 0);
	assert_int_equal(fake.nr_puts, 1);
	stop(&f);
}

static void test_what_fails_stays_until_it_succeeds(void **state)
{
	struct fixture f;
	struct cas_digest blob;

	start(&f, *state, "write=yes&tries=1");
	blob = put_text(&f, "hello");
	assert_int_equal(cas_outbox_add(f.outbox, CAS_PUSH_BLOB, &blob, &f.err), 0);
	fake.fail = -EAGAIN;
	assert_int_equal(cas_outbox_send(f.outbox, &f.progress, &f.err), -EAGAIN);
	assert_int_equal(cas_outbox_count(f.store), 1);
	fake.fail = 0;
	assert_int_equal(cas_outbox_send(f.outbox, &f.progress, &f.err), 0);
	assert_int_equal(cas_outbox_count(f.store), 0);
	stop(&f);
}

static void test_what_no_try_can_mend_does_not_stay(void **state)
{
	struct fixture f;
	struct cas_digest blob;

	start(&f, *state, "write=yes");
	blob = put_text(&f, "hello");
	assert_int_equal(cas_outbox_add(f.outbox, CAS_PUSH_BLOB, &blob, &f.err), 0);
	fake.fail = -EFBIG;
	assert_int_equal(cas_outbox_send(f.outbox, &f.progress, &f.err), -EFBIG);
	assert_int_equal(cas_outbox_count(f.store), 0);
	stop(&f);
}

static void test_what_is_gone_does_not_stay(void **state)
{
	struct fixture f;
	struct cas_digest blob;

	start(&f, *state, "write=yes");
	assert_int_equal(cas_hash_bytes("never put", 9, &blob), 0);
	assert_int_equal(cas_outbox_add(f.outbox, CAS_PUSH_BLOB, &blob, &f.err), 0);
	assert_int_equal(cas_outbox_send(f.outbox, &f.progress, &f.err), -ENOENT);
	assert_int_equal(cas_outbox_count(f.store), 0);
	assert_int_equal(fake.nr_puts, 0);
	stop(&f);
}

/* The exit code is the only thing in it. */
static void replace_result(struct fake *f)
{
	assert_int_equal(cas_store_action_put(f->store, &f->action, "\x20\x02", 2, NULL), 0);
	assert_int_equal(cas_outbox_add(f->outbox, CAS_PUSH_ACTION, &f->action, NULL), 0);
}

static void test_result_that_is_replaced_while_it_is_sent_is_sent_again(void **state)
{
	struct fixture f;

	start(&f, *state, "write=yes");
	fake.action = put_text(&f, "\x30\x00");
	assert_int_equal(cas_store_action_put(f.store, &fake.action, "\x20\x01", 2, &f.err), 0);
	assert_int_equal(cas_outbox_add(f.outbox, CAS_PUSH_ACTION, &fake.action, &f.err), 0);
	fake.meanwhile = replace_result;
	if (cas_outbox_send(f.outbox, &f.progress, &f.err) < 0)
		fail_msg("%s", f.err.msg);
	assert_int_equal(cas_outbox_count(f.store), 0);
	assert_int_equal(fake.nr_results, 2);
	assert_int_equal(fake.result_len, 2);
	assert_memory_equal(fake.result, "\x20\x02", 2);
	stop(&f);
}

static void test_tiers_that_are_only_read_need_no_outbox(void **state)
{
	struct fixture f;

	start(&f, *state, "tries=1");
	assert_null(f.outbox);
	assert_int_equal(cas_outbox_add(NULL, CAS_PUSH_BLOB, &cas_digest_empty, &f.err), 0);
	assert_int_equal(cas_outbox_count(f.store), 0);
	stop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_blob_goes_and_its_entry_with_it),
		TESTS_IN_DIR(test_what_fails_stays_until_it_succeeds),
		TESTS_IN_DIR(test_what_no_try_can_mend_does_not_stay),
		TESTS_IN_DIR(test_what_is_gone_does_not_stay),
		TESTS_IN_DIR(test_result_that_is_replaced_while_it_is_sent_is_sent_again),
		TESTS_IN_DIR(test_tiers_that_are_only_read_need_no_outbox),
	};

	log_set_sink(no_log, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
