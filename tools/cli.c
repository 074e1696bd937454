/* tools/cli.c - the options of a command line, and the help made from their tables */
#include "tools/cli.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "tools/config.h"

/*
 * getopt_long prints by itself, abbreviates, and reorders depending on the environment;
 * scripts want none of that. This parser knows --name, --name=value, --name value, -x,
 * -xvalue, -x value, clusters of letters, and "--".
 */

#define MAX_OPTIONS 64 /* rows of a table and of cli_common together */

#define COMMON(field) offsetof(struct cli, field)
const struct cli_option cli_common[] = {
	{"store", 0, CLI_TEXT, COMMON(store_arg), "DIR",
	 "the store (default: $CASBOX_STORE, ~/.cache/casbox)", false, NULL},
	{"blobs", 0, CLI_TEXT, COMMON(blobs), "DIR", "keep blobs in DIR instead of the store", true,
	 NULL},
	{"tier", 0, CLI_LIST, COMMON(tiers), "URL",
	 "where blobs that are not here come from; repeatable", true, NULL},
	{"durability", 0, CLI_TEXT, COMMON(durability), "HOW",
	 "what a put survives: none, batch (default) or full", true, "none|batch|full"},
	{"max-size", 0, CLI_SIZE, COMMON(quota.max_bytes), "SIZE",
	 "evict when blobs take more on the disk", true, NULL},
	{"low-size", 0, CLI_SIZE, COMMON(quota.low_bytes), "SIZE",
	 "and come down to that (default: 90 % of --max-size)", true, NULL},
	{"max-blobs", 0, CLI_SIZE, COMMON(quota.max_blobs), "N", "evict when there are more blobs",
	 true, NULL},
	{"spool-max-bytes", 0, CLI_SIZE, COMMON(spool_max_bytes), "SIZE",
	 "with --blobs: puts wait above that (4G)", true, NULL},
	{"spool-max-count", 0, CLI_SIZE, COMMON(spool_max_count), "N",
	 "with --blobs: or above so many blobs (65536)", true, NULL},
	{"log-level", 0, CLI_TEXT, COMMON(log_level), "LEVEL", "error, warn, info or debug", true,
	 "error|warn|info|debug"},
	{"help", 'h', CLI_FLAG, COMMON(help), NULL, "show this help", false, NULL},
	{"version", 0, CLI_FLAG, COMMON(version), NULL, NULL, false, NULL},
	{NULL, 0, CLI_FLAG, 0, NULL, NULL, false, NULL},
};

/* One parse: the rows of both tables, and which of them flags have set. */
struct parse {
	struct cli *cli;
	const struct cli_option *row[MAX_OPTIONS];
	void *field[MAX_OPTIONS];
	bool seen[MAX_OPTIONS];
	int nr;
};

int cli_usage(struct cli *cli, struct err *err, const char *fmt, ...)
{
	char msg[ERR_MSG_SZ];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	cli->usage_error = true;
	return err_set(err, -EINVAL, "%s", msg);
}

static void parse_add(struct parse *p, const struct cli_option *rows, void *fields)
{
	for (; rows && rows->name && p->nr < MAX_OPTIONS; rows++) {
		p->row[p->nr] = rows;
		p->field[p->nr] = (char *)fields + rows->offset;
		p->nr++;
	}
}

static int find_name(const struct parse *p, const char *name, size_t len)
{
	for (int i = 0; i < p->nr; i++) {
		if (strlen(p->row[i]->name) == len && memcmp(p->row[i]->name, name, len) == 0)
			return i;
	}
	return -1;
}

static int find_letter(const struct parse *p, char letter)
{
	for (int i = 0; i < p->nr; i++) {
		if (p->row[i]->letter == letter)
			return i;
	}
	return -1;
}

static bool is_choice(const char *choices, const char *value)
{
	size_t len = strlen(value);

	while (len > 0) {
		size_t word = strcspn(choices, "|");

		if (word == len && memcmp(choices, value, len) == 0)
			return true;
		if (choices[word] == '\0')
			return false;
		choices += word + 1;
	}
	return false;
}

static int list_add(struct cli_list *list, const char *value)
{
	const char **grown = reallocarray(list->items, list->nr + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	list->items = grown;
	list->items[list->nr++] = value;
	return 0;
}

void cli_list_fini(struct cli_list *list)
{
	free(list->items);
	*list = (struct cli_list){0};
}

static int flag_value(const char *value, bool *out)
{
	if (!value || strcmp(value, "true") == 0 || strcmp(value, "yes") == 0)
		*out = true;
	else if (strcmp(value, "false") == 0 || strcmp(value, "no") == 0)
		*out = false;
	else
		return -EINVAL;
	return 0;
}

/* Convert @value into the field of row @i; flags on a command line have none. */
static int store_value(struct parse *p, int i, const char *value)
{
	const struct cli_option *o = p->row[i];

	if (o->choices && !is_choice(o->choices, value))
		return -EINVAL;
	switch (o->kind) {
	case CLI_FLAG:
		return flag_value(value, p->field[i]);
	case CLI_TEXT:
		*(const char **)p->field[i] = value;
		return 0;
	case CLI_LIST:
		if (p->field[i] == &p->cli->tiers && p->cli->tiers.nr == CLI_TIERS_MAX)
			return -E2BIG;
		return list_add(p->field[i], value);
	case CLI_NUMBER:
		return cli_parse_number(value, p->field[i]);
	case CLI_SIZE:
		return cli_parse_size(value, p->field[i]);
	case CLI_DURATION:
		return cli_parse_duration(value, p->field[i]);
	}
	return -EINVAL;
}

static const char *want_text(const struct cli_option *o)
{
	if (o->choices)
		return o->choices;
	switch (o->kind) {
	case CLI_FLAG:
		return "true or false";
	case CLI_NUMBER:
		return "a number";
	case CLI_SIZE:
		return strcmp(o->arg, "N") == 0 ? "a number such as 500 or 2M"
						: "a size such as 500M or 10G";
	case CLI_DURATION:
		return "a time such as 90, 0.5 or 10m";
	case CLI_TEXT:
	case CLI_LIST:
		break;
	}
	return "a value";
}

static int take(struct parse *p, int i, const char *value, struct err *err)
{
	int ret = store_value(p, i, value);

	p->seen[i] = true;
	if (ret == -EINVAL)
		return cli_usage(p->cli, err, "--%s wants %s, not '%s'", p->row[i]->name,
				 want_text(p->row[i]), value ? value : "");
	if (ret == -E2BIG)
		return cli_usage(p->cli, err, "--%s may be given %d times at most", p->row[i]->name,
				 CLI_TIERS_MAX);
	return ret ? err_set(err, ret, "out of memory") : 0;
}

/* --name, --name=value or --name value; *next is the following word. */
static int long_option(struct parse *p, const char *word, char *const **next, struct err *err)
{
	const char *name = word + 2;
	size_t len = strcspn(name, "=");
	int i = find_name(p, name, len);

	if (i < 0)
		return cli_usage(p->cli, err, "unknown option --%.*s", (int)len, name);
	if (p->row[i]->kind == CLI_FLAG) {
		if (name[len] == '=')
			return cli_usage(p->cli, err, "--%s takes no value", p->row[i]->name);
		return take(p, i, NULL, err);
	}
	if (name[len] == '=')
		return take(p, i, name + len + 1, err);
	if (!**next)
		return cli_usage(p->cli, err, "--%s wants a value", p->row[i]->name);
	return take(p, i, *(*next)++, err);
}

static int short_options(struct parse *p, const char *word, char *const **next, struct err *err)
{
	for (const char *c = word + 1; *c; c++) {
		int i = find_letter(p, *c);
		int ret;

		if (i < 0)
			return cli_usage(p->cli, err, "unknown option -%c", *c);
		if (p->row[i]->kind != CLI_FLAG) {
			if (c[1] != '\0')
				return take(p, i, c + 1, err);
			if (!**next)
				return cli_usage(p->cli, err, "-%c wants a value", *c);
			return take(p, i, *(*next)++, err);
		}
		ret = take(p, i, NULL, err);
		if (ret)
			return ret;
	}
	return 0;
}

/* Sorts the words that are no options to the front of argv, in order. */
static int parse_words(struct parse *p, enum cli_order order, int argc, char **argv,
		       struct cli_words *words, struct err *err)
{
	char **end = argv + 1;
	char *const *next = argv + 1;

	(void)argc;
	while (*next) {
		char *word = *next++;
		int ret = 0;

		if (strcmp(word, "--") == 0 ||
		    ((word[0] != '-' || word[1] == '\0') && order == CLI_FIRST)) {
			if (strcmp(word, "--") != 0)
				*end++ = word;
			while (*next)
				*end++ = *next++;
			break;
		}
		if (word[0] != '-' || word[1] == '\0')
			*end++ = word;
		else if (word[1] == '-')
			ret = long_option(p, word, &next, err);
		else
			ret = short_options(p, word, &next, err);
		if (ret)
			return ret;
	}
	*end = NULL;
	words->argv = argv + 1;
	words->argc = (int)(end - words->argv);
	return 0;
}

/* A setting that may be given repeatedly: its values, with blanks between. */
static int take_list(struct parse *p, int i, char *values)
{
	char *save = NULL;
	int ret = 0;

	for (char *v = strtok_r(values, " \t", &save); v && ret == 0;
	     v = strtok_r(NULL, " \t", &save))
		ret = store_value(p, i, v);
	return ret;
}

static int take_settings(struct parse *p, struct err *err)
{
	for (int i = 0; i < p->nr; i++) {
		const char *origin = NULL;
		char *value;
		int ret;

		if (!p->row[i]->setting || p->seen[i])
			continue;
		assert(config_key_known(p->row[i]->name));
		value = config_get(p->cli->settings, p->row[i]->name, &origin);
		if (!value)
			continue;
		ret = p->row[i]->kind == CLI_LIST ? take_list(p, i, value)
						  : store_value(p, i, value);
		if (ret)
			return err_set(err, ret, "%s: %s wants %s, not '%s'", origin,
				       p->row[i]->name, want_text(p->row[i]), value);
	}
	return 0;
}

static int choose_store(struct cli *cli, struct err *err)
{
	free(cli->store);
	cli->store = NULL;
	if (!cli->store_arg)
		return config_default_store(&cli->store, err);
	if (*cli->store_arg == '\0')
		return cli_usage(cli, err, "--store wants a directory");
	cli->store = strdup(cli->store_arg);
	return cli->store ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static int load_settings(struct parse *p, struct err *err)
{
	struct cli *cli = p->cli;
	int ret = choose_store(cli, err);

	if (ret)
		return ret;
	config_free(cli->settings);
	cli->settings = NULL;
	ret = config_new(&cli->settings);
	if (ret)
		return err_set(err, ret, "out of memory");
	ret = config_load(cli->settings, cli->store, err);
	if (ret)
		return ret;
	return take_settings(p, err);
}

static void mark_common_seen(struct parse *p)
{
	/* Given before the command's name: stronger than settings, too. */
	p->seen[find_name(p, "blobs", 5)] = p->cli->blobs != NULL;
	p->seen[find_name(p, "tier", 4)] = p->cli->tiers.nr > 0;
	p->seen[find_name(p, "durability", 10)] = p->cli->durability != NULL;
	p->seen[find_name(p, "log-level", 9)] = p->cli->log_level != NULL;
	p->seen[find_name(p, "max-size", 8)] = p->cli->quota.max_bytes != CAS_QUOTA_NONE;
	p->seen[find_name(p, "low-size", 8)] = p->cli->quota.low_bytes != CAS_QUOTA_NONE;
	p->seen[find_name(p, "max-blobs", 9)] = p->cli->quota.max_blobs != CAS_QUOTA_NONE;
	p->seen[find_name(p, "spool-max-bytes", 15)] = p->cli->spool_max_bytes != 0;
	p->seen[find_name(p, "spool-max-count", 15)] = p->cli->spool_max_count != 0;
}

int cli_parse(struct cli *cli, const struct cli_option *options, void *fields, enum cli_order order,
	      int argc, char **argv, struct cli_words *words, struct err *err)
{
	struct parse p = {.cli = cli};
	int ret;

	parse_add(&p, cli_common, cli);
	mark_common_seen(&p);
	parse_add(&p, options, fields);
	ret = parse_words(&p, order, argc, argv, words, err);
	if (cli->help) {
		cli_help_command(cli->command, options, stdout);
		return 1;
	}
	if (ret == 0)
		ret = load_settings(&p, err);
	if (ret == 0 && cli->log_level) {
		enum log_level level;

		if (log_level_parse(cli->log_level, &level) == 0)
			log_set_level(level);
	}
	return ret;
}

int cli_parse_common(struct cli *cli, int argc, char **argv, struct cli_words *words,
		     struct err *err)
{
	struct parse p = {.cli = cli};

	parse_add(&p, cli_common, cli);
	return parse_words(&p, CLI_FIRST, argc, argv, words, err);
}

int cli_want_words(struct cli *cli, const struct cli_words *words, int min, int max,
		   struct err *err)
{
	if (words->argc < min)
		return cli_usage(cli, err, "too few arguments, usage: %s %s", cli->command->name,
				 cli->command->usage);
	if (max && words->argc > max)
		return cli_usage(cli, err, "unexpected argument '%s'", words->argv[max]);
	return 0;
}

void cli_fini(struct cli *cli)
{
	free(cli->store);
	cli_list_fini(&cli->tiers);
	config_free(cli->settings);
}

static void help_option(const struct cli_option *o, FILE *out)
{
	char left[64];

	if (!o->help)
		return;
	(void)snprintf(left, sizeof(left), "%s%c%s--%s%s%s", o->letter ? "-" : " ",
		       o->letter ? o->letter : ' ', o->letter ? ", " : "  ", o->name,
		       o->arg ? " " : "", o->arg ? o->arg : "");
	(void)fprintf(out, "  %-22s %s\n", left, o->help);
}

void cli_help_command(const struct cli_command *command, const struct cli_option *options,
		      FILE *out)
{
	(void)fprintf(out, "Usage: casbox %s %s\n\n%s\n", command->name, command->usage,
		      command->summary ? command->summary : "Internal.");
	if (options && options->name)
		(void)fputs("\nOptions:\n", out);
	for (; options && options->name; options++)
		help_option(options, out);
	(void)fputs("\nCommon options:\n", out);
	for (const struct cli_option *o = cli_common; o->name; o++)
		help_option(o, out);
}

void cli_help(FILE *out)
{
	(void)fputs("Usage: casbox [--store DIR] COMMAND ...\n\nCommands:\n", out);
	for (const struct cli_command *c = cli_commands; c->name; c++) {
		if (c->summary)
			(void)fprintf(out, "  %-10s %s\n", c->name, c->summary);
	}
	(void)fputs("\nOptions:\n", out);
	for (const struct cli_option *o = cli_common; o->name; o++)
		help_option(o, out);
	(void)fputs("\n'casbox COMMAND --help' tells more about one command.\n", out);
}
