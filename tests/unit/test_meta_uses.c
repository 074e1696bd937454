/* tests/unit/test_meta_uses.c - uses that wait for the next writer */
#include "tests/lib/tests.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/base/log.h"
#include "cas/put/put.h"
#include "cas/store/store.h"
#include "meta/meta.h"

static void sink_nothing(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	(void)line;
}

/* A store with two blobs, the first put first, and both closed. */
struct scene {
	struct cas_store *store;
	struct meta *meta;
	struct cas_digest blob[2];
};

static void writer_open(struct scene *s)
{
	const struct meta_options opts = {.mode = META_WRITER};
	struct err err = {0};

	if (cas_store_writer_lock(s->store, -1, &err) < 0 ||
	    meta_open(s->store, &opts, &s->meta, &err) < 0)
		fail_msg("%s", err.msg);
	cas_store_set_catalog(s->store, meta_catalog(s->meta));
}

static void writer_close(struct scene *s)
{
	struct err err = {0};

	cas_store_set_catalog(s->store, NULL);
	if (meta_close(s->meta, &err) < 0)
		fail_msg("%s", err.msg);
	cas_store_writer_unlock(s->store);
}

static struct scene scene_new(const char *dir)
{
	const struct cas_store_options opts = {.path = tests_path(dir, "store"),
					       .create = true,
					       .durability = CAS_DURABILITY_NONE};
	struct scene s = {0};
	struct err err = {0};

	if (cas_store_open(&opts, &s.store, &err) < 0)
		fail_msg("%s", err.msg);
	writer_open(&s);
	for (int i = 0; i < 2; i++) {
		const char *text = i ? "second" : "first";

		if (cas_put_bytes(s.store, text, strlen(text), &s.blob[i], &err) < 0 ||
		    cas_store_sync(s.store, &err) < 0)
			fail_msg("%s", err.msg);
	}
	writer_close(&s);
	return s;
}

/* Which of the two is the least recently used, to the next writer? */
static int oldest(struct scene *s)
{
	const struct cas_catalog *c;
	struct cas_victim victims[3];
	struct err err = {0};
	int nr;

	writer_open(s);
	c = meta_catalog(s->meta);
	assert_int_equal(c->ops->flush(c->ctx, &err), 0);
	nr = c->ops->victims(c->ctx, NULL, victims, 3, &err);
	writer_close(s);
	assert_int_equal(nr, 2);
	return cas_digest_equal(&victims[0].digest, &s->blob[1]);
}

static int leave(struct scene *s, const char *text)
{
	return meta_uses_leave(s->store, text, strlen(text), NULL);
}

static char *touch_of(const struct cas_digest *d, const char *end)
{
	char *text;

	assert_true(asprintf(&text, "t,%s%s", CAS_DIGEST_TEXT(d), end) > 0);
	return text;
}

static off_t waiting(struct scene *s)
{
	struct stat st;

	if (fstatat(cas_store_dir_fd(s->store), "run/uses", &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	return st.st_size;
}

static void test_next_writer_takes_what_was_left(void **state)
{
	struct scene s = scene_new(*state);
	auto_free char *touch = touch_of(&s.blob[0], ";!\n");

	assert_int_equal(oldest(&s), 0);
	assert_int_equal(leave(&s, touch), 1);
	assert_int_equal(waiting(&s), strlen(touch));
	assert_int_equal(oldest(&s), 1);
	assert_int_equal(waiting(&s), -1);
	cas_store_close(s.store);
}

static void test_other_rows_are_not_left(void **state)
{
	struct scene s = scene_new(*state);
	auto_free char *touch = touch_of(&s.blob[0], ";");
	auto_free char *both = NULL;
	auto_free char *later = NULL;

	assert_true(asprintf(&both, "%sd,%s\n", touch, CAS_DIGEST_TEXT(&s.blob[1])) > 0);
	assert_true(asprintf(&later, "%s!\nb,%s\n", touch, CAS_DIGEST_TEXT(&s.blob[1])) > 0);
	assert_int_equal(leave(&s, both), 0);
	assert_int_equal(leave(&s, later), 0);
	assert_int_equal(waiting(&s), -1);
	cas_store_close(s.store);
}

static void test_too_many_are_not_left(void **state)
{
	struct scene s = scene_new(*state);
	auto_free char *touch = touch_of(&s.blob[0], ";!\n");
	off_t before = -1;
	int ret;

	while ((ret = leave(&s, touch)) == 1)
		before = waiting(&s);
	assert_int_equal(ret, 0);
	assert_int_equal(waiting(&s), before);
	assert_in_range(before, 1 << 19, 1 << 20);
	assert_int_equal(oldest(&s), 1);
	assert_int_equal(leave(&s, touch), 1);
	cas_store_close(s.store);
}

static void test_line_that_was_cut_off_costs_itself_only(void **state)
{
	struct scene s = scene_new(*state);
	auto_free char *touch = touch_of(&s.blob[0], ";!\n");
	auto_free char *half = touch_of(&s.blob[1], "");

	half[40] = '\n';
	half[41] = '\0';
	assert_int_equal(leave(&s, half), 1);
	assert_int_equal(leave(&s, touch), 1);
	assert_int_equal(oldest(&s), 1);
	cas_store_close(s.store);
}

static void test_something_else_there_is_no_place(void **state)
{
	struct scene s = scene_new(*state);
	auto_free char *touch = touch_of(&s.blob[0], ";!\n");
	int dir_fd = cas_store_dir_fd(s.store);

	assert_int_equal(symlinkat("/dev/null", dir_fd, "run/uses"), 0);
	assert_true(leave(&s, touch) < 0);
	assert_int_equal(oldest(&s), 0);
	assert_int_equal(waiting(&s), -1);
	cas_store_close(s.store);
}

#define TEST_CASE(fn) cmocka_unit_test_setup_teardown(fn, tests_dir_setup, tests_dir_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST_CASE(test_next_writer_takes_what_was_left),
		TEST_CASE(test_other_rows_are_not_left),
		TEST_CASE(test_too_many_are_not_left),
		TEST_CASE(test_line_that_was_cut_off_costs_itself_only),
		TEST_CASE(test_something_else_there_is_no_place),
	};

	log_set_sink(sink_nothing, NULL);
	return cmocka_run_group_tests_name("meta_uses", tests, NULL, NULL);
}
