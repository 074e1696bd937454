/* tests/unit/test_tools_cli.c - options, settings, sizes, words for the control file */
#include "tests/lib/tests.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "tools/cli.h"
#include "tools/cmd/client.h"
#include "tools/config.h"
#include "tools/run/cgroup.h"

static int run_nothing(struct cli *cli, int argc, char **argv, struct err *err)
{
	return 0;
}

/* The table that main.c has in the program. */
const struct cli_command cli_commands[] = {
	{"probe", run_nothing, "Do nothing.", "[OPTIONS]", 1},
	{NULL, NULL, NULL, NULL, 0},
};

struct fields {
	bool flag;
	bool other;
	const char *text;
	struct cli_list list;
	int number;
	uint64_t size;
	uint64_t time;
	const char *mode;
};

#define F(field) offsetof(struct fields, field)
static const struct cli_option options[] = {
	{"flag", 'f', CLI_FLAG, F(flag), NULL, "a flag", false, NULL},
	{"allow-other", 'a', CLI_FLAG, F(other), NULL, "a flag", true, NULL},
	{"text", 't', CLI_TEXT, F(text), "WORD", "a word", false, NULL},
	{"list", 'l', CLI_LIST, F(list), "WORD", "words", false, NULL},
	{"threads", 'j', CLI_NUMBER, F(number), "N", "a number", true, NULL},
	{"max-size", 's', CLI_SIZE, F(size), "SIZE", "a size", true, NULL},
	{"idle", 'i', CLI_DURATION, F(time), "TIME", "a time", true, NULL},
	{"mode", 'm', CLI_TEXT, F(mode), "MODE", "a choice", true, "auto|copy"},
	{NULL, 0, CLI_FLAG, 0, NULL, NULL, false, NULL},
};

/* Parse up to eight words in the surroundings of @dir; the caller ends the list. */
static int parse(const char *dir, struct fields *f, enum cli_order order, struct cli_words *words,
		 struct err *err, const char *const given[8])
{
	static char *argv[10];
	struct cli cli = {.command = &cli_commands[0],
			  .quota = {CAS_QUOTA_NONE, CAS_QUOTA_NONE, CAS_QUOTA_NONE}};
	int argc = 1;
	int ret;

	argv[0] = (char *)(uintptr_t) "probe";
	while (argc <= 8 && given[argc - 1]) {
		argv[argc] = (char *)(uintptr_t)given[argc - 1];
		argc++;
	}
	argv[argc] = NULL;
	assert_int_equal(setenv("XDG_CONFIG_HOME", dir, 1), 0);
	assert_int_equal(setenv("CASBOX_STORE", tests_path(dir, "store"), 1), 0);
	*f = (struct fields){0};
	ret = cli_parse(&cli, options, f, order, argc, argv, words, err);
	assert_int_equal(cli.usage_error, ret == -EINVAL && !strstr(err->msg, dir) &&
						  !strstr(err->msg, "environment"));
	cli_fini(&cli);
	return ret;
}
#define WORDS(...) ((const char *const[8]){__VA_ARGS__})

static void test_options_in_every_form(void **state)
{
	struct fields f;
	struct cli_words words;
	struct err err = {0};

	assert_int_equal(
		parse(*state, &f, CLI_ANYWHERE, &words, &err,
		      WORDS("one", "-fa", "--list=x", "two", "-l", "y", "-j3", "--max-size")),
		-EINVAL);
	assert_string_equal(err.msg, "--max-size wants a value");
	cli_list_fini(&f.list);
	assert_int_equal(parse(*state, &f, CLI_ANYWHERE, &words, &err,
			       WORDS("one", "-fa", "--list=x", "two", "-l", "y", "-j3", "-s1K")),
			 0);
	assert_true(f.flag);
	assert_true(f.other);
	assert_int_equal(f.list.nr, 2);
	assert_string_equal(f.list.items[0], "x");
	assert_string_equal(f.list.items[1], "y");
	assert_int_equal(f.number, 3);
	assert_int_equal(f.size, 1024);
	assert_int_equal(words.argc, 2);
	assert_string_equal(words.argv[0], "one");
	assert_string_equal(words.argv[1], "two");
	assert_null(words.argv[2]);
	cli_list_fini(&f.list);
}

static void test_options_end_at_dashes_or_the_first_word(void **state)
{
	struct fields f;
	struct cli_words words;
	struct err err = {0};

	assert_int_equal(
		parse(*state, &f, CLI_ANYWHERE, &words, &err, WORDS("a", "--", "-f", "--text")), 0);
	assert_false(f.flag);
	assert_int_equal(words.argc, 3);
	assert_string_equal(words.argv[1], "-f");
	assert_int_equal(
		parse(*state, &f, CLI_FIRST, &words, &err, WORDS("-f", "make", "--flag", "-j")), 0);
	assert_true(f.flag);
	assert_int_equal(words.argc, 3);
	assert_string_equal(words.argv[1], "--flag");
	/* A dash alone is a word. */
	assert_int_equal(parse(*state, &f, CLI_ANYWHERE, &words, &err, WORDS("-")), 0);
	assert_string_equal(words.argv[0], "-");
}

static void test_wrong_options_are_named(void **state)
{
	static const struct {
		const char *word, *msg;
	} cases[] = {
		{"--nope", "unknown option --nope"},
		{"--nope=1", "unknown option --nope"},
		{"--fla", "unknown option --fla"},
		{"-x", "unknown option -x"},
		{"--flag=1", "--flag takes no value"},
		{"--text", "--text wants a value"},
		{"-t", "-t wants a value"},
		{"-jx", "--threads wants a number, not 'x'"},
		{"--mode=link", "--mode wants auto|copy, not 'link'"},
		{"--mode=", "--mode wants auto|copy, not ''"},
	};
	struct fields f;
	struct cli_words words;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct err err = {0};

		assert_int_equal(
			parse(*state, &f, CLI_ANYWHERE, &words, &err, WORDS(cases[i].word)),
			-EINVAL);
		assert_string_equal(err.msg, cases[i].msg);
	}
}

static void write_text(const char *path, const char *text)
{
	tests_write_file(path, text, strlen(text), 0600);
}

static void test_settings_come_in_order_and_the_later_wins(void **state)
{
	struct fields f;
	struct cli_words words;
	struct err err = {0};

	write_text(tests_path(*state, "casbox.conf"),
		   "# mine\n\n  threads = 2 # two\nidle=5m\nmode = copy\r\nallow-other = true\n");
	assert_int_equal(parse(*state, &f, CLI_ANYWHERE, &words, &err, WORDS(NULL)), 0);
	assert_int_equal(f.number, 2);
	assert_int_equal(f.time, 300000);
	assert_true(f.other);
	assert_null(f.text);

	write_text(tests_path(*state, "store/config"), "threads = 3\nmax-size = 1G\n");
	assert_int_equal(parse(*state, &f, CLI_ANYWHERE, &words, &err, WORDS(NULL)), 0);
	assert_int_equal(f.number, 3);
	assert_int_equal(f.size, 1ULL << 30);

	assert_int_equal(setenv("CASBOX_THREADS", "4", 1), 0);
	assert_int_equal(setenv("CASBOX_ALLOW_OTHER", "no", 1), 0);
	assert_int_equal(parse(*state, &f, CLI_ANYWHERE, &words, &err, WORDS(NULL)), 0);
	assert_int_equal(f.number, 4);
	assert_false(f.other);

	assert_int_equal(parse(*state, &f, CLI_ANYWHERE, &words, &err, WORDS("--threads=5")), 0);
	assert_int_equal(f.number, 5);
	assert_int_equal(unsetenv("CASBOX_THREADS"), 0);
	assert_int_equal(unsetenv("CASBOX_ALLOW_OTHER"), 0);
}

static void test_wrong_settings_are_errors_with_their_place(void **state)
{
	struct fields f;
	struct cli_words words;
	struct err err = {0};

	write_text(tests_path(*state, "casbox.conf"), "threads = 2\nthread = 3\n");
	assert_int_equal(parse(*state, &f, CLI_ANYWHERE, &words, &err, WORDS(NULL)), -EINVAL);
	assert_non_null(strstr(err.msg, "casbox.conf:2: unknown key thread"));
	write_text(tests_path(*state, "casbox.conf"), "threads\n");
	assert_int_equal(parse(*state, &f, CLI_ANYWHERE, &words, &err, WORDS(NULL)), -EINVAL);
	assert_non_null(strstr(err.msg, "casbox.conf:1: expected KEY = VALUE"));
	write_text(tests_path(*state, "casbox.conf"), "threads = many\n");
	assert_int_equal(parse(*state, &f, CLI_ANYWHERE, &words, &err, WORDS(NULL)), -EINVAL);
	assert_non_null(strstr(err.msg, "casbox.conf:1: threads wants a number, not 'many'"));
	write_text(tests_path(*state, "casbox.conf"), "");
	assert_int_equal(setenv("CASBOX_DURABILTY", "full", 1), 0);
	assert_int_equal(parse(*state, &f, CLI_ANYWHERE, &words, &err, WORDS(NULL)), -EINVAL);
	assert_string_equal(err.msg,
			    "environment variable CASBOX_DURABILTY: unknown key durabilty");
	assert_int_equal(unsetenv("CASBOX_DURABILTY"), 0);
}

static void test_sizes_and_times(void **state)
{
	uint64_t v = 7;
	int n = 7;

	assert_int_equal(cli_parse_size("0", &v), 0);
	assert_int_equal(v, 0);
	assert_int_equal(cli_parse_size("1.5G", &v), 0);
	assert_int_equal(v, 1536ULL << 20);
	assert_int_equal(cli_parse_size("10MB", &v), 0);
	assert_int_equal(v, 10000000);
	assert_int_equal(cli_parse_size("9223372036854775807", &v), 0);
	assert_int_equal(v, INT64_MAX);
	v = 7;
	for (const char **bad = (const char *[]){"", "-1", "1,5", "1 G", "G", "1.G", "0x10", "1e3",
						 "9223372036854775808", "99999999999999999999",
						 "8P1", "9999999999T", NULL};
	     *bad; bad++) {
		assert_int_equal(cli_parse_size(*bad, &v), -EINVAL);
		assert_int_equal(v, 7);
	}
	assert_int_equal(cli_parse_duration("0.5", &v), 0);
	assert_int_equal(v, 500);
	assert_int_equal(cli_parse_duration("2h", &v), 0);
	assert_int_equal(v, 7200000);
	assert_int_equal(cli_parse_duration("250ms", &v), 0);
	assert_int_equal(v, 250);
	assert_int_equal(cli_parse_duration("soon", &v), -EINVAL);
	assert_int_equal(cli_parse_number("12", &n), 0);
	assert_int_equal(n, 12);
	assert_int_equal(cli_parse_number("1.5", &n), -EINVAL);
	assert_int_equal(cli_parse_number("2147483648", &n), -EINVAL);
	assert_int_equal(n, 12);
}

static void test_bytes_that_are_no_utf8_are_kept_in_json(void **state)
{
	json_t *o = json_object();

	assert_int_equal(cli_json_set_bytes(o, "a", "gr\xc3\xbc\xc3\x9f\n"), 0);
	assert_int_equal(cli_json_set_bytes(o, "b", "x\xff\xed\xa0\x80y"), 0);
	assert_string_equal(client_text(o, "a"), "gr\xc3\xbc\xc3\x9f\n");
	assert_null(json_object_get(o, "a_hex"));
	assert_string_equal(client_text(o, "b"),
			    "x\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdy");
	assert_string_equal(client_text(o, "b_hex"), "78ffeda08079");
	json_decref(o);
}

static void test_words_are_quoted_for_the_control_file(void **state)
{
	static const char *const cases[][2] = {
		{"plain-word/1", "plain-word/1"}, {"", "''"},	      {"two words", "'two words'"},
		{"it's", "'it'\\''s'"},		  {"$x\\", "'$x\\'"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		auto_buf struct buf line = {0};

		assert_int_equal(client_quote(&line, cases[i][0]), 0);
		assert_string_equal(buf_str(&line), cases[i][1]);
	}
}

static void test_answers_become_errors(void **state)
{
	struct err err = {0};
	json_t *o = json_pack("{s:b, s:s, s:s}", "ok", 0, "errno", "ENOTEMPTY", "error", "full");

	assert_int_equal(client_check(o, &err), -ENOTEMPTY);
	assert_string_equal(err.msg, "full");
	(void)json_object_set_new(o, "errno", json_string("WHAT"));
	assert_int_equal(client_check(o, &err), -EIO);
	(void)json_object_set_new(o, "ok", json_true());
	assert_int_equal(client_check(o, &err), 0);
	json_decref(o);
}

static char *find_mount_in(const char *text)
{
	struct mountinfo mounts = {0};
	char *found;

	assert_int_equal(buf_append_str(&mounts.text, text), 0);
	mounts.next = mounts.text.data;
	found = cgroup_find_mount(&mounts);
	mountinfo_fini(&mounts);
	return found;
}

static void test_cgroup_mount_is_found_wherever_it_is(void **state)
{
	auto_free char *hybrid = find_mount_in(
		"30 23 0:26 / /sys/fs/cgroup rw - tmpfs cgroup2 rw\n"
		"40 30 0:30 /docker/x /sys/fs/part rw - cgroup2 cgroup2 rw\n"
		"31 30 0:27 / /sys/fs/cgroup/uni\\040fied rw,nosuid shared:9 - cgroup2 c rw\n");

	assert_non_null(hybrid);
	assert_string_equal(hybrid, "/sys/fs/cgroup/uni fied");
	assert_null(find_mount_in("30 23 0:26 / /sys/fs/cgroup rw - cgroup cgroup rw\n"));
	assert_null(find_mount_in(""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_options_in_every_form, tests_dir_setup,
						tests_dir_teardown),
		cmocka_unit_test_setup_teardown(test_options_end_at_dashes_or_the_first_word,
						tests_dir_setup, tests_dir_teardown),
		cmocka_unit_test_setup_teardown(test_wrong_options_are_named, tests_dir_setup,
						tests_dir_teardown),
		cmocka_unit_test_setup_teardown(test_settings_come_in_order_and_the_later_wins,
						tests_dir_setup, tests_dir_teardown),
		cmocka_unit_test_setup_teardown(test_wrong_settings_are_errors_with_their_place,
						tests_dir_setup, tests_dir_teardown),
		cmocka_unit_test(test_sizes_and_times),
		cmocka_unit_test(test_bytes_that_are_no_utf8_are_kept_in_json),
		cmocka_unit_test(test_words_are_quoted_for_the_control_file),
		cmocka_unit_test(test_answers_become_errors),
		cmocka_unit_test(test_cgroup_mount_is_found_wherever_it_is),
	};

	return cmocka_run_group_tests_name("tools_cli", tests, NULL, NULL);
}
