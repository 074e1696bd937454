/* tests/unit/test_fs_notices.c - what fanotify tells of names in directories */
#include "tests/lib/tests.h"

#include <fcntl.h>
#include <string.h>
#include <sys/fanotify.h>

#include "fs/backing/notices.h"

#define HANDLE_SZ 4
#define FIXED_SZ                                                                                   \
	(sizeof(struct fanotify_event_metadata) + sizeof(struct fanotify_event_info_fid) +         \
	 sizeof(struct file_handle) + HANDLE_SZ)

struct sample {
	_Alignas(8) char bytes[4096];
	size_t len;
};

/* As the kernel lays one out: a handle that holds @serial, a name, padding to 4 bytes. */
static struct fanotify_event_metadata *add(struct sample *s, uint64_t mask, uint32_t serial,
					   const char *name)
{
	static struct fanotify_event_metadata last;
	size_t len = name ? (FIXED_SZ + strlen(name) + 1 + 3) / 4 * 4 : sizeof(last);
	struct fanotify_event_info_fid info = {.hdr = {.info_type = FAN_EVENT_INFO_TYPE_DFID_NAME,
						       .len = (uint16_t)(len - sizeof(last))}};
	struct file_handle handle = {.handle_bytes = HANDLE_SZ};
	char *at = s->bytes + s->len;

	last = (struct fanotify_event_metadata){.event_len = (uint32_t)len,
						.vers = FANOTIFY_METADATA_VERSION,
						.metadata_len = sizeof(last),
						.mask = mask,
						.fd = FAN_NOFD};
	memcpy(at, &last, sizeof(last));
	s->len += len;
	if (name == NULL)
		return &last;
	at += sizeof(last);
	memcpy(at, &info, sizeof(info));
	memcpy(at + sizeof(info), &handle, sizeof(handle));
	memcpy(at + sizeof(info) + sizeof(handle), &serial, HANDLE_SZ);
	memcpy(at + sizeof(info) + sizeof(handle) + HANDLE_SZ, name, strlen(name) + 1);
	return &last;
}

static void expect_next(struct fs_notices *notices, uint64_t mask, uint32_t serial,
			const char *name)
{
	struct fs_notice notice;
	uint32_t got;

	assert_true(fs_notices_next(notices, &notice));
	assert_true(notice.mask == mask);
	if (name == NULL) {
		assert_null(notice.dir);
		assert_null(notice.name);
		return;
	}
	assert_string_equal(notice.name, name);
	assert_int_equal(notice.dir->handle_bytes, HANDLE_SZ);
	memcpy(&got, notice.dir->f_handle, sizeof(got));
	assert_int_equal(got, serial);
}

static void expect_end(struct fs_notices *notices)
{
	struct fs_notice notice = {.mask = 77};

	assert_false(fs_notices_next(notices, &notice));
	assert_int_equal(notice.mask, 77);
}

/* With names of all lengths half of the events begin in the middle of eight bytes. */
static void test_names_of_all_lengths_are_told(void **state)
{
	static const char text[] = "abcdefghijklmnopqrstuvwxyz";
	struct sample s = {0};
	struct fs_notices notices;
	unsigned nr_odd = 0;

	(void)state;
	for (uint32_t i = 0; i < 26; i++) {
		nr_odd += s.len % 8 != 0;
		(void)add(&s, FAN_OPEN, i, text + i);
	}
	assert_in_range(nr_odd, 5, 21);
	notices = (struct fs_notices){s.bytes, s.len};
	for (uint32_t i = 0; i < 26; i++)
		expect_next(&notices, FAN_OPEN, i, text + i);
	expect_end(&notices);
}

static void test_overflow_names_nothing(void **state)
{
	struct sample s = {0};
	struct fs_notices notices;

	(void)state;
	(void)add(&s, FAN_OPEN, 1, "before");
	(void)add(&s, FAN_Q_OVERFLOW, 0, NULL);
	(void)add(&s, FAN_OPEN, 2, "after");
	notices = (struct fs_notices){s.bytes, s.len};
	expect_next(&notices, FAN_OPEN, 1, "before");
	expect_next(&notices, FAN_Q_OVERFLOW, 0, NULL);
	expect_next(&notices, FAN_OPEN, 2, "after");
	expect_end(&notices);
}

static void test_what_is_cut_off_is_no_event(void **state)
{
	struct sample s = {0};
	struct fs_notices notices;
	size_t first;

	(void)state;
	(void)add(&s, FAN_OPEN, 1, "whole");
	first = s.len;
	(void)add(&s, FAN_OPEN, 2, "cut");
	for (size_t len = first; len < s.len; len++) {
		notices = (struct fs_notices){s.bytes, len};
		expect_next(&notices, FAN_OPEN, 1, "whole");
		expect_end(&notices);
	}
}

static void test_lengths_that_lie_name_nothing(void **state)
{
	struct fanotify_event_metadata *last;
	struct sample s = {0};
	struct fs_notices notices;
	struct file_handle handle = {.handle_bytes = 1u << 31};
	size_t at = sizeof(*last) + sizeof(struct fanotify_event_info_fid);

	(void)state;
	/* A handle beyond its record. */
	last = add(&s, FAN_OPEN, 1, "name");
	memcpy(s.bytes + at, &handle, sizeof(handle));
	notices = (struct fs_notices){s.bytes, s.len};
	expect_next(&notices, FAN_OPEN, 1, NULL);
	expect_end(&notices);
	/* One that leaves no room for a name. */
	handle.handle_bytes = (unsigned)(s.len - at - sizeof(handle));
	memcpy(s.bytes + at, &handle, sizeof(handle));
	notices = (struct fs_notices){s.bytes, s.len};
	expect_next(&notices, FAN_OPEN, 1, NULL);
	/* An event without length: not read for ever. */
	last->event_len = 0;
	memcpy(s.bytes, last, sizeof(*last));
	notices = (struct fs_notices){s.bytes, s.len};
	expect_end(&notices);
	/* One of another version is passed over. */
	s.len = 0;
	last = add(&s, FAN_OPEN, 1, "strange");
	last->vers++;
	memcpy(s.bytes, last, sizeof(*last));
	(void)add(&s, FAN_OPEN, 2, "known");
	notices = (struct fs_notices){s.bytes, s.len};
	expect_next(&notices, FAN_OPEN, 2, "known");
	expect_end(&notices);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_of_all_lengths_are_told),
		cmocka_unit_test(test_overflow_names_nothing),
		cmocka_unit_test(test_what_is_cut_off_is_no_event),
		cmocka_unit_test(test_lengths_that_lie_name_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
