/* fs/control/parse.h - a line of the control file becomes a command and its options */
#ifndef FS_CONTROL_PARSE_H
#define FS_CONTROL_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

#define CONTROL_LINE_MAX (1 << 20)

enum control_opt_flags {
	CONTROL_OPT_VALUE = 1, /* takes a value; else it is a flag */
	CONTROL_OPT_MULTI = 2, /* may be given more than once */
	CONTROL_OPT_REQUIRED = 4,
	CONTROL_OPT_POSITIONAL = 8, /* given without its name, in order of the table */
};

struct control_opt {
	const char *name; /* without dashes; NULL ends a table */
	unsigned flags;
};

struct control_request;
struct control_call;

/* One row of the command table. */
struct control_command {
	const char *name; /* NULL ends the table */
	const char *usage;
	const char *summary;
	const struct control_opt *opts;
	/* Run it: fs/control/control.h. The parser does not look at it. */
	int (*run)(struct control_call *call, struct err *err);
};

struct control_item {
	const struct control_opt *opt;
	char *value; /* NULL for a flag */
};

/* Zero-initialize; end with control_request_fini whatever parse returned. */
struct control_request {
	const struct control_command *command;
	size_t nr_items;
	struct control_item *items;
};

/*
 * A line is words as a shell would split them (single and double quotes, backslash; no
 * expansion of any kind), `--name value`, `--name=value` and `--` included; or a JSON
 * object with "command", and the options and positional words by name: strings and
 * numbers as values, true for a flag, arrays for what may be repeated.
 * -EINVAL: not a command of @table, or not its options; the message says which.
 */
int control_parse(const struct control_command *table, const char *line, size_t len,
		  struct control_request *out, struct err *err);
void control_request_fini(struct control_request *req);

/* The first value, or NULL. */
const char *control_get(const struct control_request *req, const char *name);
bool control_has(const struct control_request *req, const char *name);

/*
 * The value of @name as a decimal number from @min to @max; *out is left alone when the
 * option was not given. -EINVAL otherwise.
 */
int control_get_number(const struct control_request *req, const char *name, int64_t min,
		       int64_t max, int64_t *out, struct err *err);

#endif
