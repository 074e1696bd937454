/* tools/cli.h - what every command starts from: options, settings, words in and out */
#ifndef TOOLS_CLI_H
#define TOOLS_CLI_H

#include <jansson.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cas/evict/quota.h"

struct cas_digest;
struct cas_store;
struct err;

#define CLI_USAGE 2 /* exit status of a command that was called wrongly */

/* The type of the field that an option fills. */
enum cli_kind {
	CLI_FLAG,     /* bool */
	CLI_TEXT,     /* const char *, borrowed from argv or the settings */
	CLI_LIST,     /* struct cli_list, in order of appearance */
	CLI_NUMBER,   /* int, 0 to INT_MAX */
	CLI_SIZE,     /* uint64_t: bytes, with K M G T P (1024), KB MB ... (1000) */
	CLI_DURATION, /* uint64_t: milliseconds, from "90", "0.5", "10m", "2h" */
};

struct cli_list {
	const char **items;
	size_t nr;
};

/* One row of a table that ends with a row without a name. */
struct cli_option {
	const char *name;
	char letter; /* 0: none */
	enum cli_kind kind;
	size_t offset;	     /* of the field in the struct given to cli_parse */
	const char *arg;     /* its value's word in the help; NULL for flags */
	const char *help;    /* one line; NULL: not shown */
	bool setting;	     /* also a key of the configuration */
	const char *choices; /* "a|b|c": the only values of a CLI_TEXT; NULL: any */
};

struct cli;

/* One row of the command table in main.c, from which all help derives. */
struct cli_command {
	const char *name;
	/* The exit status, or a negative errno with @err to report (exit @fail). */
	int (*run)(struct cli *cli, int argc, char **argv, struct err *err);
	const char *summary; /* NULL: hidden */
	const char *usage;   /* what follows the name */
	int fail;	     /* exit status of a failure: 1, for `run` 125 */
};

extern const struct cli_command cli_commands[];

/*
 * One invocation. The common options are fields, valid after cli_parse; strings are
 * borrowed from argv, the environment or @settings.
 */
struct cli {
	const struct cli_command *command;
	char *store; /* absolute or as given; owned */
	const char *store_arg;
	const char *blobs;
	struct cli_list tiers; /* URLs, in the order in which they are asked */
	const char *durability;
	struct cas_quota quota;	  /* main sets CAS_QUOTA_NONE */
	uint64_t spool_max_bytes; /* 0: the default */
	uint64_t spool_max_count;
	const char *log_level;
	bool help;
	bool version;
	bool usage_error;  /* what err reports is wrong usage */
	bool xfsz_ignored; /* SIGXFSZ was, when we were started */
	struct config *settings;
};

#define CLI_TIERS_MAX 16

/* How far options reach: up to the first other word, or anywhere before "--". */
enum cli_order { CLI_ANYWHERE, CLI_FIRST };

/* The options of every command, which main also takes before the command's name. */
extern const struct cli_option cli_common[];

/* As cas_spool_options has it. */
static inline unsigned cli_spool_count(const struct cli *cli)
{
	return cli->spool_max_count > UINT_MAX ? UINT_MAX : (unsigned)cli->spool_max_count;
}

/* What is left of a command line; @argv is borrowed. */
struct cli_words {
	int argc;
	char **argv;
};

/*
 * Fill @fields from the settings and from @argv (argv[0] is skipped) by the rows of
 * @options, and the common options into @cli. The other words, in order, are *words.
 * 1: --help was asked for and printed. Negative: wrong usage (usage_error is set) or
 * unreadable settings.
 */
int cli_parse(struct cli *cli, const struct cli_option *options, void *fields, enum cli_order order,
	      int argc, char **argv, struct cli_words *words, struct err *err);

/* The first half for main: parse the common options before the command's name. */
int cli_parse_common(struct cli *cli, int argc, char **argv, struct cli_words *words,
		     struct err *err);

/* Report wrong usage: sets usage_error and returns -EINVAL. */
int cli_usage(struct cli *cli, struct err *err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* -EINVAL and a usage report unless @min <= words <= @max (0: no limit). */
int cli_want_words(struct cli *cli, const struct cli_words *words, int min, int max,
		   struct err *err);

void cli_list_fini(struct cli_list *list);
void cli_fini(struct cli *cli);

/* Help: of the program, and of one command with its options. */
void cli_help(FILE *out);
void cli_help_command(const struct cli_command *command, const struct cli_option *options,
		      FILE *out);

/* Whole words only; -EINVAL. No locale is involved. */
int cli_parse_size(const char *text, uint64_t *out);
int cli_parse_duration(const char *text, uint64_t *out_ms);
int cli_parse_number(const char *text, int *out);

/*
 * A digest as people type it, a hash alone included; a size is then looked up.
 * -EINVAL: no digest, which is wrong usage. -ENOENT: a hash whose size nobody knows.
 */
int cli_digest(struct cli *cli, struct cas_store *store, const char *text, struct cas_digest *out,
	       struct err *err);

/* One line on standard error, after "casbox COMMAND: ". */
void cli_warn(const struct cli *cli, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Bytes of a name: as they are, but control bytes escaped when @out is a terminal. */
void cli_print_name(FILE *out, const char *name);

/* Print @value as one line and drop it; NULL prints nothing and is -ENOMEM. */
int cli_print_json(json_t *value);

/*
 * Set @key to a string; bytes that are not UTF-8 become U+FFFD there and are kept, as
 * hexadecimal digits, under KEY_hex.
 */
int cli_json_set_bytes(json_t *object, const char *key, const char *bytes);

/*
 * Until the end of the process SIGINT, SIGTERM and SIGHUP set *cancel instead of
 * killing; a second one kills. cli_caught is the first that came, 0 for none.
 */
void cli_catch_signals(_Atomic bool *cancel);
int cli_caught(void);

/* Die of @signum as if it had never been caught. */
_Noreturn void cli_die_of(int signum);

#endif
