/* tests/unit/test_fs_prom.c - numbers as Prometheus text */
#include "tests/lib/tests.h"

#include <string.h>

#include "cas/cas.h"
#include "fs/report/prom.h"

static void test_values_are_written_as_they_are(void **state)
{
	auto_buf struct buf out = {0};
	struct prom p = {.out = &out};

	prom_one(&p, PROM_COUNTER, "casbox_x_total", "Things.", UINT64_MAX);
	prom_family(&p, PROM_GAUGE, "casbox_y_seconds", "Time.");
	prom_seconds(&p, "a=\"b\"", 1000000001);
	prom_ratio(&p, "a=\"c\"", 1, 3);
	prom_ratio(&p, "a=\"none\"", 0, 0);
	prom_ratio(&p, "a=\"all\"", 5, 5);
	assert_int_equal(p.ret, 0);
	assert_string_equal(buf_str(&out), "# HELP casbox_x_total Things.\n"
					   "# TYPE casbox_x_total counter\n"
					   "casbox_x_total 18446744073709551615\n"
					   "# HELP casbox_y_seconds Time.\n"
					   "# TYPE casbox_y_seconds gauge\n"
					   "casbox_y_seconds{a=\"b\"} 1.000000001\n"
					   "casbox_y_seconds{a=\"c\"} 0.333333\n"
					   "casbox_y_seconds{a=\"all\"} 1.000000\n");
}

static void test_labels_are_escaped(void **state)
{
	auto_buf struct buf out = {0};

	assert_int_equal(prom_escape(&out, "a\"b\\c\nd"), 0);
	assert_string_equal(buf_str(&out), "a\\\"b\\\\c\\nd");
}

static void assert_line(const char *text, const char *line)
{
	if (!strstr(text, line))
		fail_msg("no line %s in %s", line, text);
}

static void test_a_histogram_counts_below_powers_of_two(void **state)
{
	auto_buf struct buf out = {0};
	struct prom p = {.out = &out};
	struct prom_histogram h = {0};

	prom_family(&p, PROM_HISTOGRAM, "casbox_z_seconds", "Time.");
	buf_reset(&out);
	prom_histogram_write(&p, "a=\"b\"", &h);
	assert_int_equal(out.len, 0);
	prom_histogram_add(&h, 0);
	prom_histogram_add(&h, 1023);
	prom_histogram_add(&h, 1024);
	prom_histogram_add(&h, 4000);
	prom_histogram_add(&h, UINT64_C(60000000000));
	prom_histogram_write(&p, "a=\"b\"", &h);
	assert_int_equal(p.ret, 0);
	assert_line(buf_str(&out), "casbox_z_seconds_bucket{a=\"b\",le=\"0.000001024\"} 2\n");
	assert_line(buf_str(&out), "casbox_z_seconds_bucket{a=\"b\",le=\"0.000002048\"} 3\n");
	assert_line(buf_str(&out), "casbox_z_seconds_bucket{a=\"b\",le=\"0.000004096\"} 4\n");
	assert_line(buf_str(&out), "casbox_z_seconds_bucket{a=\"b\",le=\"17.179869184\"} 4\n");
	assert_line(buf_str(&out), "casbox_z_seconds_bucket{a=\"b\",le=\"+Inf\"} 5\n");
	assert_line(buf_str(&out), "casbox_z_seconds_sum{a=\"b\"} 60.000006047\n");
	assert_line(buf_str(&out), "casbox_z_seconds_count{a=\"b\"} 5\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values_are_written_as_they_are),
		cmocka_unit_test(test_labels_are_escaped),
		cmocka_unit_test(test_a_histogram_counts_below_powers_of_two),
	};

	return cmocka_run_group_tests_name("fs_prom", tests, NULL, NULL);
}
