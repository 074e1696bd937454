/* tests/unit/test_fs_parse.c - lines of the control file */
#include "tests/lib/tests.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/control/parse.h"

static const struct control_opt make_opts[] = {
	{"root", CONTROL_OPT_VALUE | CONTROL_OPT_REQUIRED, "DIGEST"},
	{"output", CONTROL_OPT_VALUE | CONTROL_OPT_MULTI, "PATH"},
	{"attach", 0, NULL},
	{NULL, 0, NULL},
};
static const struct control_opt show_opts[] = {
	{"id", CONTROL_OPT_VALUE | CONTROL_OPT_POSITIONAL | CONTROL_OPT_REQUIRED, "ID"},
	{"exit-code", CONTROL_OPT_VALUE, "N"},
	{NULL, 0, NULL},
};
static const struct control_opt no_opts[] = {{NULL, 0, NULL}};

static const struct control_command table[] = {
	{"make", "", make_opts, NULL, NULL},
	{"show", "", show_opts, NULL, NULL},
	{"list", "", no_opts, NULL, NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static int parse(const char *line, struct control_request *req, struct err *err)
{
	*req = (struct control_request){0};
	*err = (struct err){0};
	return control_parse(table, line, strlen(line), req, err);
}

static void assert_refused(const char *line, const char *message)
{
	struct control_request req;
	struct err err;

	assert_int_equal(parse(line, &req, &err), -EINVAL);
	assert_string_equal(err.msg, message);
	control_request_fini(&req);
}

/* Both ways of writing the same command. */
static void assert_make(const char *line)
{
	struct control_request req;
	struct err err;

	assert_int_equal(parse(line, &req, &err), 0);
	assert_string_equal(req.command->name, "make");
	assert_string_equal(control_get(&req, "root"), "a b");
	assert_int_equal(req.nr_items, 4);
	assert_string_equal(control_get(&req, "output"), "x/");
	assert_true(control_has(&req, "attach"));
	assert_null(control_get(&req, "attach"));
	for (size_t i = 0, nr = 0; i < req.nr_items; i++)
		if (strcmp(req.items[i].opt->name, "output") == 0)
			assert_string_equal(req.items[i].value, nr++ ? "it's \"y\"" : "x/");
	control_request_fini(&req);
}

static void test_words_and_objects_say_the_same(void **state)
{
	assert_make("make --root 'a b' --output x/ --attach --output=it\\'s\\ \\\"y\\\"");
	assert_make("  'make'  '--root' \"a b\" --output x/ --output 'it'\\''s \"y\"' --attach \r");
	assert_make("make --attach --root=a' 'b --output x/ --output \"it's \\\"y\\\"\"");
	assert_make("{\"command\":\"make\",\"root\":\"a b\",\"output\":[\"x/\",\"it's \\\"y\\\"\"],"
		    "\"attach\":true}");
	assert_make("{\"words\":[\"make\",\"--root\",\"a b\",\"--output=x/\",\"--output\","
		    "\"it's \\\"y\\\"\",\"--attach\"]}");
}

static void test_a_word_in_an_object_may_hold_a_newline(void **state)
{
	struct control_request req;
	struct err err;

	assert_int_equal(parse("{\"words\":[\"show\",\"--\",\"a\\n\\u00e9\"]}", &req, &err), 0);
	assert_string_equal(control_get(&req, "id"), "a\n\xc3\xa9");
	control_request_fini(&req);
}

static void test_words_in_place_and_after_dashes(void **state)
{
	struct control_request req;
	struct err err;

	assert_int_equal(parse("show --exit-code -5 -- --id", &req, &err), 0);
	assert_string_equal(control_get(&req, "id"), "--id");
	assert_string_equal(control_get(&req, "exit-code"), "-5");
	control_request_fini(&req);
	assert_int_equal(parse("show ''", &req, &err), 0);
	assert_string_equal(control_get(&req, "id"), "");
	control_request_fini(&req);
	assert_int_equal(parse("{\"command\":\"show\",\"id\":\"q\",\"exit-code\":7}", &req, &err),
			 0);
	assert_string_equal(control_get(&req, "exit-code"), "7");
	control_request_fini(&req);
}

static void test_what_is_no_command_is_refused_by_name(void **state)
{
	assert_refused("", "empty command");
	assert_refused("nope", "unknown command \"nope\"; \"help\" lists them");
	assert_refused("make", "make: --root is missing");
	assert_refused("show", "show: id is missing");
	assert_refused("make --root", "make: --root wants a value");
	assert_refused("make --root a --root b", "make: root is given twice");
	assert_refused("make --root a --attach=yes", "make: --attach takes no value");
	assert_refused("make --root a b", "make: unexpected word \"b\"");
	assert_refused("show --id x", "show: unknown option --id");
	assert_refused("list --all", "list: unknown option --all");
	assert_refused("show 'x", "a quote (') is not closed");
	assert_refused("show x\\", "nothing follows the last backslash");
	assert_refused("{\"command\":\"show\",\"id\":true}",
		       "show: \"id\" has a value of the wrong type");
	assert_refused("{\"command\":\"show\",\"id\":[\"a\"]}", "show: \"id\" is not a list");
	assert_refused("{\"command\":\"show\",\"what\":1}", "show: unknown option \"what\"");
	assert_refused("{\"id\":\"x\"}", "the object has no \"command\"");
	assert_refused("{\"words\":\"list\"}", "\"words\" is not a list");
	assert_refused("{\"words\":[]}", "empty command");
	assert_refused("{\"words\":[\"show\",7]}", "a word in \"words\" is no string");
	assert_refused("{\"words\":[\"list\"],\"command\":\"list\"}",
		       "\"words\" stands alone in its object");
}

static void test_nul_bytes_are_refused(void **state)
{
	struct control_request req = {0};
	struct err err = {0};

	assert_int_equal(control_parse(table, "list\0x", 6, &req, &err), -EINVAL);
	assert_string_equal(err.msg, "a command cannot hold a NUL byte");
	control_request_fini(&req);
}

static void test_numbers_are_whole_and_in_range(void **state)
{
	static const char *const bad[] = {
		"x", "1x", "-", " 1", "+1", "", "11", "-3", "99999999999999999999"};
	struct control_request req;
	struct err err;
	int64_t v = 42;

	assert_int_equal(parse("show x", &req, &err), 0);
	assert_int_equal(control_get_number(&req, "exit-code", -2, 10, &v, &err), 0);
	assert_int_equal(v, 42);
	control_request_fini(&req);
	assert_int_equal(parse("show x --exit-code=-2", &req, &err), 0);
	assert_int_equal(control_get_number(&req, "exit-code", -2, 10, &v, &err), 0);
	assert_int_equal(v, -2);
	control_request_fini(&req);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char line[64];

		(void)snprintf(line, sizeof(line), "show x --exit-code='%s'", bad[i]);
		assert_int_equal(parse(line, &req, &err), 0);
		assert_int_equal(control_get_number(&req, "exit-code", -2, 10, &v, &err), -EINVAL);
		control_request_fini(&req);
	}
	assert_int_equal(v, -2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words_and_objects_say_the_same),
		cmocka_unit_test(test_a_word_in_an_object_may_hold_a_newline),
		cmocka_unit_test(test_words_in_place_and_after_dashes),
		cmocka_unit_test(test_what_is_no_command_is_refused_by_name),
		cmocka_unit_test(test_nul_bytes_are_refused),
		cmocka_unit_test(test_numbers_are_whole_and_in_range),
	};

	return cmocka_run_group_tests_name("fs_parse", tests, NULL, NULL);
}
