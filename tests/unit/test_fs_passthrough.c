/* tests/unit/test_fs_passthrough.c - how opens are served where the kernel does not help */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/backing/backing.h"
#include "fs/backing/passthrough.h"
#include "fs/backing/probe.h"
#include "fs/serve/wire.h"
#include "tests/lib/store.h"

struct fixture {
	struct cas_store *store;
	struct fs_backing_table *table;
	struct fs_probes *probes;
	struct fs_passthrough *pt;
	struct cas_digest digest;
	int dev_fd; /* a descriptor that is no FUSE connection: it refuses each id */
};

static const uint64_t offers = UINT64_C(1) << 37;

static void fixture_open(struct fixture *f, const char *dir, const struct fs_wire *wire, size_t max)
{
	f->store = tests_store_open(dir, &cas_catalog_null);
	assert_int_equal(cas_put_bytes(f->store, "content", 7, &f->digest, NULL), 0);
	assert_int_equal(fs_backing_table_new(f->store, max, &f->table), 0);
	assert_int_equal(fs_probes_new(NULL, &f->probes, NULL), 0);
	f->dev_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_true(f->dev_fd >= 0);
	assert_int_equal(fs_passthrough_new(f->dev_fd, -1, wire, f->table, f->probes, &f->pt), 0);
}

static void fixture_close(struct fixture *f)
{
	fs_passthrough_free(f->pt);
	fs_probes_free(f->probes);
	fs_backing_table_free(f->table);
	cas_store_close(f->store);
	(void)close(f->dev_fd);
}

static void test_old_kernel_is_found_out_and_serves_cached(void **state)
{
	struct fs_wire wire = {.minor = 31};
	struct fixture f;
	struct fs_backing *b;
	json_t *out = json_object();
	enum fs_io io = FS_IO_PASSTHROUGH;
	int32_t id = 7;

	fixture_open(&f, *state, &wire, 10);
	assert_int_equal(fs_probes_report(f.probes, out), 0);
	assert_string_equal(json_string_value(json_object_get(out, "passthrough")),
			    "no (the kernel has none, protocol 7.31)");
	assert_int_equal(fs_backing_ref(f.table, &f.digest, &b, NULL), 0);
	assert_int_equal(fs_passthrough_open(f.pt, 5, b, true, &io, &id), 0);
	assert_int_equal(io, FS_IO_CACHED);
	assert_int_equal(id, 0);
	assert_int_equal(fs_backing_kernel_id(f.table, b), -ENODEV);
	fs_passthrough_release(f.pt, 5);
	fs_backing_unref(f.table, b);
	json_decref(out);
	fixture_close(&f);
}

static void test_ids_that_are_refused_leave_opens_cached(void **state)
{
	struct fs_wire wire = {.offered = offers, .passthrough = true};
	struct fixture f;
	struct fs_backing *b;
	enum fs_io io = FS_IO_PASSTHROUGH;
	int32_t id;

	fixture_open(&f, *state, &wire, 10);
	assert_true(fs_probes_has(f.probes, FS_FEATURE_PASSTHROUGH));
	assert_int_equal(fs_backing_ref(f.table, &f.digest, &b, NULL), 0);
	assert_int_equal(fs_backing_kernel_id(f.table, b), -ENOTTY);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(fs_passthrough_open(f.pt, 5, b, true, &io, &id), 0);
		assert_int_equal(io, FS_IO_CACHED);
	}
	assert_int_equal(fs_backing_count_ids(f.table), 0);
	for (int i = 0; i < 3; i++)
		fs_passthrough_release(f.pt, 5);
	fs_backing_unref(f.table, b);
	fixture_close(&f);
}

static void test_without_a_kernel_side_every_open_is_cached(void **state)
{
	enum fs_io io = FS_IO_PASSTHROUGH;
	int32_t id;

	assert_int_equal(fs_passthrough_open(NULL, 1, NULL, true, &io, &id), 0);
	assert_int_equal(io, FS_IO_CACHED);
	fs_passthrough_release(NULL, 1);
}

static void test_descriptors_are_scarce_only_over_the_limit(void **state)
{
	struct fs_wire wire = {0};
	struct fixture f;
	struct fs_backing *a, *b, *again;
	struct cas_digest other;

	fixture_open(&f, *state, &wire, 1);
	assert_int_equal(cas_put_bytes(f.store, "other", 5, &other, NULL), 0);
	assert_int_equal(fs_backing_ref(f.table, &f.digest, &a, NULL), 0);
	assert_false(fs_backing_is_scarce(f.table, a));
	assert_int_equal(fs_backing_ref(f.table, &other, &b, NULL), 0);
	assert_true(fs_backing_is_scarce(f.table, b));
	/* Somebody else keeps it open anyway. */
	again = fs_backing_hold(f.table, b);
	assert_ptr_equal(again, b);
	assert_false(fs_backing_is_scarce(f.table, b));
	fs_backing_unref(f.table, again);
	fs_backing_unref(f.table, b);
	/* The one that nobody uses went, not the one in use. */
	assert_int_equal(fs_backing_count(f.table), 1);
	assert_false(fs_backing_is_scarce(f.table, a));
	fs_backing_unref(f.table, a);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_old_kernel_is_found_out_and_serves_cached),
		TESTS_IN_DIR(test_ids_that_are_refused_leave_opens_cached),
		TESTS_IN_DIR(test_without_a_kernel_side_every_open_is_cached),
		TESTS_IN_DIR(test_descriptors_are_scarce_only_over_the_limit),
	};

	return cmocka_run_group_tests_name("fs_passthrough", tests, NULL, NULL);
}
