/* tests/unit/test_fs_probe.c - what was found to work, and what is done without */
#include "tests/lib/tests.h"

#include <errno.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/backing/probe.h"

static const char *told(struct fs_probes *probes, json_t *out, const char *name)
{
	assert_int_equal(json_object_clear(out), 0);
	assert_int_equal(fs_probes_report(probes, out), 0);
	return json_string_value(json_object_get(out, name));
}

static void test_only_what_was_looked_for_is_reported(void **state)
{
	struct fs_probes *probes;
	json_t *out = json_object();

	assert_int_equal(fs_probes_new(NULL, &probes, NULL), 0);
	assert_int_equal(fs_probes_report(probes, out), 0);
	assert_int_equal(json_object_size(out), 0);
	for (int i = 0; i < FS_NR_FEATURES; i++)
		assert_false(fs_probes_has(probes, (enum fs_feature)i));

	fs_probes_set(probes, FS_FEATURE_BIND, true, NULL);
	fs_probes_set(probes, FS_FEATURE_OVERLAY, false, "error %d", 5);
	assert_string_equal(told(probes, out, "bind"), "yes");
	assert_string_equal(told(probes, out, "overlay"), "no (error 5)");
	assert_int_equal(json_object_size(out), 2);
	assert_true(fs_probes_has(probes, FS_FEATURE_BIND));
	assert_false(fs_probes_has(probes, FS_FEATURE_OVERLAY));
	json_decref(out);
	fs_probes_free(probes);
}

static void test_a_later_finding_replaces_an_earlier_one(void **state)
{
	struct fs_probes *probes;
	json_t *out = json_object();

	assert_int_equal(fs_probes_new("", &probes, NULL), 0);
	fs_probes_set(probes, FS_FEATURE_PASSTHROUGH, true, NULL);
	fs_probes_set(probes, FS_FEATURE_PASSTHROUGH, false, "it was taken away");
	assert_string_equal(told(probes, out, "passthrough"), "no (it was taken away)");
	assert_false(fs_probes_has(probes, FS_FEATURE_PASSTHROUGH));
	json_decref(out);
	fs_probes_free(probes);
}

static void test_what_is_forced_off_stays_off(void **state)
{
	struct fs_probes *probes;
	json_t *out = json_object();

	assert_int_equal(fs_probes_new("reuse,cgroup", &probes, NULL), 0);
	assert_true(fs_probes_is_off(probes, FS_FEATURE_REUSE));
	assert_true(fs_probes_is_off(probes, FS_FEATURE_CGROUP));
	assert_false(fs_probes_is_off(probes, FS_FEATURE_BIND));
	fs_probes_set(probes, FS_FEATURE_REUSE, true, NULL);
	assert_false(fs_probes_has(probes, FS_FEATURE_REUSE));
	assert_string_equal(told(probes, out, "reuse"), "no (forced off)");
	json_decref(out);
	fs_probes_free(probes);
}

static void test_unknown_names_are_refused_by_name(void **state)
{
	static const char *const bad[] = {"x", "bind,x", "bin", "bindx", ",bind", "bind, overlay"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct fs_probes *probes = NULL;
		struct err err = {0};

		assert_int_equal(fs_probes_new(bad[i], &probes, &err), -EINVAL);
		assert_null(probes);
		assert_non_null(strstr(err.msg, "no feature is called"));
	}
}

static void test_every_feature_can_be_forced_off_by_its_name(void **state)
{
	for (int i = 0; i < FS_NR_FEATURES; i++) {
		struct fs_probes *probes;

		assert_int_equal(fs_probes_new(fs_feature_name((enum fs_feature)i), &probes, NULL),
				 0);
		for (int k = 0; k < FS_NR_FEATURES; k++)
			assert_int_equal(fs_probes_is_off(probes, (enum fs_feature)k), k == i);
		fs_probes_free(probes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_only_what_was_looked_for_is_reported),
		cmocka_unit_test(test_a_later_finding_replaces_an_earlier_one),
		cmocka_unit_test(test_what_is_forced_off_stays_off),
		cmocka_unit_test(test_unknown_names_are_refused_by_name),
		cmocka_unit_test(test_every_feature_can_be_forced_off_by_its_name),
	};

	return cmocka_run_group_tests_name("fs_probe", tests, NULL, NULL);
}
