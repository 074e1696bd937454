/* tests/unit/test_cas_fsck.c - faults are found, named and mended; foreign names are left */
#include "tests/lib/tests.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/fsck/fsck.h"
#include "cas/put/put.h"
#include "cas/store/store.h"
#include "tests/lib/store.h"

struct report {
	struct buf faults;
	struct buf notes;
};

static void on_fault(void *ctx, const char *line)
{
	struct report *r = ctx;

	assert_int_equal(buf_printf(&r->faults, "%s\n", line), 0);
}

static void on_note(void *ctx, const char *line)
{
	struct report *r = ctx;

	assert_int_equal(buf_printf(&r->notes, "%s\n", line), 0);
}

static struct cas_fsck_result fsck(struct cas_store *store, bool repair, struct report *r)
{
	struct cas_fsck_options opts = {
		.repair = repair, .nr_threads = 3, .fault = on_fault, .note = on_note, .ctx = r};
	struct cas_fsck_result result;

	buf_reset(&r->faults);
	buf_reset(&r->notes);
	assert_int_equal(cas_fsck(store, &opts, &result, NULL), 0);
	return result;
}

static void report_fini(struct report *r)
{
	buf_fini(&r->faults);
	buf_fini(&r->notes);
}

static void put_number(struct cas_store *store, int i, struct cas_digest *d)
{
	char text[32];

	(void)snprintf(text, sizeof(text), "blob number %d", i);
	assert_int_equal(cas_put_bytes(store, text, strlen(text), d, NULL), 0);
}

static void test_clean_store_has_no_faults(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct report r = {0};
	struct cas_digest d;
	struct cas_fsck_result result;
	uint64_t bytes = 0;

	for (int i = 0; i < 300; i++) {
		put_number(store, i, &d);
		bytes += d.size;
	}
	result = fsck(store, false, &r);
	assert_int_equal(result.blobs, 300);
	assert_int_equal(result.bytes, bytes);
	assert_int_equal(result.faults, 0);
	assert_int_equal(result.foreign, 0);
	assert_string_equal(buf_str(&r.faults), "");
	report_fini(&r);
	cas_store_close(store);
}

/* C04: truncated to nothing, to half, extended, one byte flipped; wrong types. */
static void test_every_damage_is_named_and_repaired(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct report r = {0};
	struct cas_digest d[8];
	struct cas_fsck_result result;

	for (int i = 0; i < 8; i++) {
		put_number(store, i, &d[i]);
		assert_int_equal(chmod(tests_blob_path(*state, &d[i]), 0644), 0);
	}
	assert_int_equal(chmod(tests_blob_path(*state, &d[0]), 0444), 0);
	assert_int_equal(truncate(tests_blob_path(*state, &d[1]), 0), 0);
	assert_int_equal(truncate(tests_blob_path(*state, &d[2]), 5), 0);
	assert_int_equal(truncate(tests_blob_path(*state, &d[3]), 50), 0);
	tests_write_file(tests_blob_path(*state, &d[4]), "blob number 5", 13, 0444);
	assert_int_equal(unlink(tests_blob_path(*state, &d[5])), 0);
	assert_int_equal(mkdir(tests_blob_path(*state, &d[5]), 0755), 0);
	assert_int_equal(unlink(tests_blob_path(*state, &d[6])), 0);
	assert_int_equal(mkfifo(tests_blob_path(*state, &d[6]), 0644), 0);

	result = fsck(store, false, &r);
	assert_int_equal(result.faults, 7);
	assert_int_equal(result.repaired, 0);
	for (int i = 1; i < 8; i++)
		assert_non_null(
			strstr(buf_str(&r.faults), strstr(tests_blob_path(*state, &d[i]), "cas/")));
	result = fsck(store, true, &r);
	assert_int_equal(result.faults, 7);
	assert_int_equal(result.repaired, 7);
	result = fsck(store, false, &r);
	assert_int_equal(result.faults, 0);
	assert_int_equal(result.blobs, 2);
	for (int i = 0; i < 8; i++)
		assert_int_equal(cas_store_has(store, &d[i]), i == 0 || i == 7);
	report_fini(&r);
	cas_store_close(store);
}

/* C01: chmod, touch or a write through a hardlinked checkout is found and undone. */
static void test_changed_variants_are_named_and_remade(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct report r = {0};
	struct cas_fsck_result result;

	for (int how = 0; how < 3; how++) {
		struct cas_digest d;
		char name[72];
		char *mine = strdup(tests_path(*state, "checked-out"));
		struct stat st;
		int dir_fd;

		put_number(store, how, &d);
		assert_int_equal(cas_store_link_variant(store, &d, true, &dir_fd, name, NULL), 0);
		assert_int_equal(linkat(dir_fd, name, AT_FDCWD, mine, 0), 0);
		if (how == 0)
			assert_int_equal(chmod(mine, 0755), 0);
		else if (how == 1)
			assert_int_equal(utimensat(AT_FDCWD, mine, NULL, 0), 0);
		else {
			assert_int_equal(chmod(mine, 0755), 0);
			tests_write_file(mine, "blob number X", 13, 0555);
		}
		result = fsck(store, false, &r);
		assert_int_equal(result.faults, 1);
		assert_non_null(strstr(buf_str(&r.faults), "links/0555/"));
		result = fsck(store, true, &r);
		assert_int_equal(result.repaired, 1);
		assert_int_equal(fsck(store, false, &r).faults, 0);
		assert_int_equal(cas_store_link_variant(store, &d, true, &dir_fd, name, NULL), 0);
		assert_int_equal(fstatat(dir_fd, name, &st, 0), 0);
		assert_int_equal(st.st_nlink, 1);
		assert_int_equal(st.st_mode & 07777, 0555);
		put_number(store, how, &d);
		assert_int_equal(stat(tests_blob_path(*state, &d), &st), 0);
		assert_int_equal(st.st_mode & 07777, 0444);
		assert_int_equal(unlink(mine), 0);
		free(mine);
	}
	report_fini(&r);
	cas_store_close(store);
}

static void test_action_results_must_decode(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct report r = {0};
	auto_buf struct buf b = {0};
	struct cas_digest good;
	struct cas_digest bad;
	struct cas_fsck_result result;

	put_number(store, 1, &good);
	put_number(store, 2, &bad);
	assert_int_equal(cas_store_action_put(store, &good, "\x20\x07", 2, NULL), 0);
	assert_int_equal(cas_store_action_put(store, &bad, "\xff\xff\xff", 3, NULL), 0);
	result = fsck(store, true, &r);
	assert_int_equal(result.faults, 1);
	assert_int_equal(result.repaired, 1);
	assert_int_equal(cas_store_action_get(store, &good, &b, NULL), 0);
	assert_int_equal(b.len, 2);
	assert_int_equal(cas_store_action_get(store, &bad, &b, NULL), -ENOENT);
	report_fini(&r);
	cas_store_close(store);
}

static void test_foreign_names_are_told_once_and_left_alone(void **state)
{
	static const char *const names[] = {
		"store/lost+found/",
		"store/.DS_Store",
		"store/README-a",
		"store/cas/lost+found/",
		"store/cas/.DS_Store",
		"store/cas/xy/",
		"store/cas/AB/",
		"store/cas/ab/notahash",
		"store/cas/ab/sub/",
		"store/cas/ab/ABCDEF7890123456789012345678901234567890123456789012345678901234",
		"store/cas/ab/cdcdef7890123456789012345678901234567890123456789012345678901234",
		"store/cas/ab/abcdef789012345678901234567890123456789012345678901234567890123",
		"store/cas/ab/abcdef78901234567890123456789012345678901234567890123456789012345",
	};
	const int nr = sizeof(names) / sizeof(names[0]);
	struct cas_store *store = tests_store_open(*state, NULL);
	struct report r = {0};
	struct cas_digest d;
	struct cas_fsck_result result;
	struct stat st;

	put_number(store, 1, &d);
	(void)mkdir(tests_path(*state, "store/cas/ab"), 0755);
	for (int i = 0; i < nr; i++) {
		const char *path = tests_path(*state, names[i]);

		if (path[strlen(path) - 1] == '/')
			assert_int_equal(mkdir(path, 0700), 0);
		else
			tests_write_file(path, "?", 1, 0600);
	}
	tests_write_file(tests_path(*state, "store/cas/ab/.tmp-0123456789abcdef"), "x", 1, 0600);
	assert_int_equal(mkdir(tests_path(*state, "store/outbox"), 0700), 0);
	result = fsck(store, true, &r);
	assert_int_equal(result.faults, 0);
	assert_int_equal(result.blobs, 1);
	assert_int_equal(result.foreign, nr);
	for (int i = 0; i < nr; i++) {
		const char *line = names[i] + strlen("store/");
		char want[128];

		(void)snprintf(want, sizeof(want), "%.*s is not",
			       (int)strlen(line) - (line[strlen(line) - 1] == '/'), line);
		assert_non_null(strstr(buf_str(&r.notes), want));
		assert_int_equal(stat(tests_path(*state, names[i]), &st), 0);
	}
	assert_int_equal(stat(tests_path(*state, "store/cas/ab/.tmp-0123456789abcdef"), &st), 0);
	report_fini(&r);
	cas_store_close(store);
}

static void test_cancel_stops(void **state)
{
	struct cas_store *store = tests_store_open(*state, NULL);
	struct cas_fsck_progress progress = {.cancel = true};
	struct cas_fsck_options opts = {.nr_threads = 2, .progress = &progress};
	struct cas_fsck_result result = {.blobs = 77};
	struct cas_digest d;

	put_number(store, 1, &d);
	assert_int_equal(cas_fsck(store, &opts, &result, NULL), -ECANCELED);
	assert_int_equal(result.blobs, 77);
	cas_store_close(store);
}

/* Without descriptors nothing can be checked, which is no fault of what is there. */
static void test_repair_without_descriptors_moves_nothing(void **state)
{
	static const struct cas_digest action = {.hash = {1}};
	struct cas_store *store = tests_store_open(*state, NULL);
	struct report r = {0};
	struct cas_fsck_options opts = {
		.repair = true, .nr_threads = 1, .fault = on_fault, .note = on_note, .ctx = &r};
	struct cas_fsck_result result;
	struct rlimit limit;
	struct rlimit few;
	struct cas_digest d;
	int next = dup(0);

	put_number(store, 1, &d);
	assert_int_equal(cas_store_action_put(store, &action, "\x20\x07", 2, NULL), 0);
	assert_true(next >= 0 && close(next) == 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	few = limit;
	few.rlim_cur = (rlim_t)next + 1; /* a shard can be listed, and nothing in it opened */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	assert_int_equal(cas_fsck(store, &opts, &result, NULL), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(result.faults, 2);
	assert_int_equal(result.repaired, 0);
	assert_non_null(strstr(buf_str(&r.faults), "cannot be opened: Too many open files"));
	assert_int_equal(cas_store_has(store, &d), 1);
	result = fsck(store, true, &r);
	assert_int_equal(result.faults, 0);
	report_fini(&r);
	cas_store_close(store);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TESTS_IN_DIR(test_clean_store_has_no_faults),
		TESTS_IN_DIR(test_every_damage_is_named_and_repaired),
		TESTS_IN_DIR(test_changed_variants_are_named_and_remade),
		TESTS_IN_DIR(test_action_results_must_decode),
		TESTS_IN_DIR(test_foreign_names_are_told_once_and_left_alone),
		TESTS_IN_DIR(test_cancel_stops),
		TESTS_IN_DIR(test_repair_without_descriptors_moves_nothing),
	};

	log_set_level(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests_name("cas_fsck", tests, NULL, NULL);
}
