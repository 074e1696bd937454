/* tests/unit/test_fs_events.c - the file of events: what is kept, what was missed */
#include "tests/lib/tests.h"

#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/report/events.h"

#define KEPT 32768

/* All from @off on, in reads of @step bytes at most. */
static void read_from(struct fs_follower *f, uint64_t off, size_t step, struct buf *out)
{
	for (;;) {
		auto_buf struct buf part = {0};

		assert_int_equal(fs_follower_read(f, off, step, &part), 0);
		assert_true(part.len <= step);
		if (part.len == 0)
			return;
		assert_int_equal(buf_append(out, part.data, part.len), 0);
		off += part.len;
	}
}

static void tell(struct fs_events *ev, int from, int to)
{
	for (int i = from; i < to; i++)
		fs_event(ev, "count", "{s:i, s:s}", "n", i, "filling",
			 "0123456789012345678901234567890123456789");
}

/* The number of the event on the line at @text, and where the next line begins. */
static int parse_line(const char *text, const char **next, uint64_t *missed)
{
	const char *end = strchr(text, '\n');
	json_t *o = json_loadb(text, (size_t)(end - text), 0, NULL);
	int n = -1;

	assert_non_null(end);
	assert_true(json_is_object(o));
	if (json_object_get(o, "missed"))
		*missed = (uint64_t)json_integer_value(json_object_get(o, "missed"));
	else
		n = (int)json_integer_value(json_object_get(o, "n"));
	json_decref(o);
	*next = end + 1;
	return n;
}

static void test_a_line_is_an_object_with_time_and_event_first(void **state)
{
	struct fs_events *ev = NULL;
	struct fs_follower *f = NULL;
	auto_buf struct buf text = {0};
	struct timespec last;

	assert_int_equal(fs_events_new(KEPT, &ev), 0);
	assert_int_equal(fs_follower_new(ev, &f), 0);
	assert_int_equal(fs_events_size(ev, &last), 0);
	fs_event(ev, "blob", "{s:s, s:I}", "name", "two\nlines \"quoted\"", "size", (json_int_t)7);
	read_from(f, 0, 4096, &text);
	assert_int_equal(fs_events_size(ev, NULL), text.len);
	assert_memory_equal(text.data, "{\"time\":\"20", 11);
	assert_non_null(strstr(text.data, "Z\",\"event\":\"blob\",\"name\":"
					  "\"two\\nlines \\\"quoted\\\"\",\"size\":7}\n"));
	assert_ptr_equal(strchr(text.data, '\n'), text.data + text.len - 1);
	/* Nobody to tell is fine; what is no UTF-8 leaves the name alone. */
	fs_event(NULL, "blob", "{s:i}", "n", 1);
	fs_event(ev, "odd", "{s:s}", "name", "\xff");
	buf_reset(&text);
	read_from(f, 0, 4096, &text);
	assert_non_null(strstr(text.data, "\"event\":\"odd\"}\n"));
	fs_follower_free(f);
	fs_events_free(ev);
}

static void test_positions_mean_the_same_bytes(void **state)
{
	struct fs_events *ev = NULL;
	struct fs_follower *f = NULL;
	auto_buf struct buf whole = {0};
	auto_buf struct buf small = {0};
	auto_buf struct buf tail = {0};

	assert_int_equal(fs_events_new(KEPT, &ev), 0);
	assert_int_equal(fs_follower_new(ev, &f), 0);
	tell(ev, 0, 50);
	read_from(f, 0, 1 << 20, &whole);
	read_from(f, 0, 7, &small);
	assert_int_equal(whole.len, small.len);
	assert_memory_equal(whole.data, small.data, whole.len);
	read_from(f, 100, 4096, &tail);
	assert_memory_equal(whole.data + 100, tail.data, tail.len);
	assert_int_equal(tail.len, whole.len - 100);
	fs_follower_free(f);
	fs_events_free(ev);
}

static void check_missed(struct fs_follower *f, size_t step, uint64_t from, int last)
{
	auto_buf struct buf text = {0};
	const char *at;
	uint64_t missed = 0;
	int n, expect;

	read_from(f, from, step, &text);
	assert_int_equal(parse_line(text.data, &at, &missed), -1);
	assert_true(missed > 0);
	/* The line is as long as what it stands for. */
	assert_int_equal((uint64_t)(at - text.data), missed);
	expect = parse_line(at, &at, &missed);
	assert_true(expect > 0);
	while (*at) {
		n = parse_line(at, &at, &missed);
		assert_int_equal(n, ++expect);
	}
	assert_int_equal(expect, last);
}

static void test_what_is_gone_reads_as_one_line_of_its_length(void **state)
{
	struct fs_events *ev = NULL;
	struct fs_follower *f = NULL;

	assert_int_equal(fs_events_new(KEPT, &ev), 0);
	assert_int_equal(fs_follower_new(ev, &f), 0);
	tell(ev, 0, 2000);
	for (size_t step = 1; step < 100000; step = 3 * step + 1)
		check_missed(f, step, 0, 1999);
	/* From within a line that is gone, too. */
	check_missed(f, 4096, 12345, 1999);
	fs_follower_free(f);
	fs_events_free(ev);
}

/* A gap that is too small for the words takes a line along. */
static void test_a_short_gap_is_still_an_object(void **state)
{
	struct fs_events *ev = NULL;
	struct fs_follower *f = NULL;
	uint64_t start;

	assert_int_equal(fs_events_new(KEPT, &ev), 0);
	assert_int_equal(fs_follower_new(ev, &f), 0);
	tell(ev, 0, 2000);
	{
		auto_buf struct buf text = {0};
		const char *at;

		read_from(f, 0, 1 << 20, &text);
		(void)parse_line(text.data, &at, &start);
	}
	for (uint64_t gap = 1; gap < 60; gap++)
		check_missed(f, 4096, start - gap, 1999);
	fs_follower_free(f);
	fs_events_free(ev);
}

/* More goes while the missed line is being read: it ends where it said, another follows. */
static void test_a_slow_reader_is_told_twice(void **state)
{
	struct fs_events *ev = NULL;
	struct fs_follower *f = NULL;
	auto_buf struct buf text = {0};
	auto_buf struct buf part = {0};
	const char *at;
	uint64_t first = 0, second = 0;
	int n;

	assert_int_equal(fs_events_new(KEPT, &ev), 0);
	assert_int_equal(fs_follower_new(ev, &f), 0);
	tell(ev, 0, 1000);
	assert_int_equal(fs_follower_read(f, 0, 100, &part), 0);
	assert_int_equal(part.len, 100);
	tell(ev, 1000, 2000);
	assert_int_equal(buf_append(&text, part.data, part.len), 0);
	read_from(f, 100, 4096, &text);
	assert_int_equal(parse_line(text.data, &at, &first), -1);
	assert_int_equal((uint64_t)(at - text.data), first);
	assert_int_equal(parse_line(at, &at, &second), -1);
	assert_int_equal((uint64_t)(at - text.data), first + second);
	n = parse_line(at, &at, &first);
	while (*at)
		assert_int_equal(parse_line(at, &at, &first), ++n);
	assert_int_equal(n, 1999);
	fs_follower_free(f);
	fs_events_free(ev);
}

/* Whatever the reads were, and whatever went between them, no line is cut. */
static void test_who_reads_in_sequence_has_whole_lines(void **state)
{
	for (size_t step = 1; step < 400; step += 7) {
		struct fs_events *ev = NULL;
		struct fs_follower *f = NULL;
		auto_buf struct buf text = {0};
		const char *at;
		uint64_t missed;
		int n = -1, told = 0;

		assert_int_equal(fs_events_new(KEPT, &ev), 0);
		assert_int_equal(fs_follower_new(ev, &f), 0);
		for (int round = 0; round < 5; round++) {
			auto_buf struct buf part = {0};

			tell(ev, told, told + 5);
			assert_int_equal(fs_follower_read(f, text.len, step, &part), 0);
			assert_int_equal(buf_append(&text, part.data, part.len), 0);
			tell(ev, told + 5, told + 1000);
			told += 1000;
			read_from(f, text.len, step, &text);
		}
		for (at = text.data; *at;) {
			int next = parse_line(at, &at, &missed);

			assert_true(next == -1 || next > n);
			n = next == -1 ? n : next;
		}
		assert_int_equal(n, told - 1);
		fs_follower_free(f);
		fs_events_free(ev);
	}
}

static void test_poll_tells_of_what_was_not_read(void **state)
{
	struct fs_events *ev = NULL;
	struct fs_follower *f = NULL;
	auto_buf struct buf text = {0};
	auto_buf struct buf end = {0};

	assert_int_equal(fs_events_new(KEPT, &ev), 0);
	assert_int_equal(fs_follower_new(ev, &f), 0);
	assert_int_equal(fs_follower_poll(f, NULL), 0);
	tell(ev, 0, 1);
	assert_true(fs_follower_poll(f, NULL) & POLLIN);
	read_from(f, 0, 4096, &text);
	assert_int_equal(fs_follower_poll(f, NULL), 0);
	/* Whoever begins at the end finds that out by reading there. */
	tell(ev, 1, 2);
	assert_int_equal(fs_follower_read(f, fs_events_size(ev, NULL), 10, &end), 0);
	assert_int_equal(end.len, 0);
	assert_int_equal(fs_follower_poll(f, NULL), 0);
	/* One that was not closed goes with the rest. */
	fs_events_free(ev);
}

static void *tell_many(void *arg)
{
	tell(arg, 0, 20000);
	return NULL;
}

static void test_what_comes_while_the_end_is_read_is_for_the_next_read(void **state)
{
	struct fs_events *ev = NULL;
	struct fs_follower *f = NULL;
	uint64_t off = 0;
	pthread_t teller;

	assert_int_equal(fs_events_new(KEPT, &ev), 0);
	assert_int_equal(fs_follower_new(ev, &f), 0);
	assert_int_equal(pthread_create(&teller, NULL, tell_many, ev), 0);
	/* Always at the end, where each event may come at any moment of a read. */
	while (pthread_tryjoin_np(teller, NULL) != 0) {
		auto_buf struct buf part = {0};

		off = fs_events_size(ev, NULL);
		assert_int_equal(fs_follower_read(f, off, 4096, &part), 0);
		assert_true(part.len == 0 || part.data[0] == '{');
		assert_true(part.len == 0 || part.len < part.cap);
	}
	fs_follower_free(f);
	fs_events_free(ev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_line_is_an_object_with_time_and_event_first),
		cmocka_unit_test(test_positions_mean_the_same_bytes),
		cmocka_unit_test(test_what_is_gone_reads_as_one_line_of_its_length),
		cmocka_unit_test(test_a_short_gap_is_still_an_object),
		cmocka_unit_test(test_a_slow_reader_is_told_twice),
		cmocka_unit_test(test_who_reads_in_sequence_has_whole_lines),
		cmocka_unit_test(test_poll_tells_of_what_was_not_read),
		cmocka_unit_test(test_what_comes_while_the_end_is_read_is_for_the_next_read),
	};

	return cmocka_run_group_tests_name("fs_events", tests, NULL, NULL);
}
