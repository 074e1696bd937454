/* fs/control/parse.h - a line of the control file becomes a command and its options */
#ifndef FS_CONTROL_PARSE_H
#define FS_CONTROL_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf;
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
	/* What the value is called in usage; choices, when there are bars in it. NULL: a flag. */
	const char *value;
};

struct control_request;
struct control_call;

/* One row of the command table. */
struct control_command {
	const char *name; /* NULL ends the table */
	const char *summary;
	const struct control_opt *opts;
	/*
	 * May take minutes, so that it runs where it holds up no other: NULL never, ""
	 * always, else the option with which it does.
	 */
	const char *takes_long;
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
 * numbers as values, true for a flag, arrays for what may be repeated; or an object with
 * "words" alone, which are those of a line.
 * -EINVAL: not a command of @table, not its options, or none of the choices; the message
 * says which.
 */
int control_parse(const struct control_command *table, const char *line, size_t len,
		  struct control_request *out, struct err *err);
void control_request_fini(struct control_request *req);

bool control_takes_long(const struct control_request *req);

/* Append "NAME ARGUMENTS", broken into lines of 80 columns at most. -ENOMEM. */
int control_usage(const struct control_command *command, struct buf *out);

/* The first value, or NULL. */
const char *control_get(const struct control_request *req, const char *name);
bool control_has(const struct control_request *req, const char *name);

/* All values of @name, borrowed; the caller frees the array. NULL: no memory. */
const char **control_values(const struct control_request *req, const char *name, size_t *nr);

/*
 * The value of @name as a decimal number from @min to @max; *out is left alone when the
 * option was not given. -EINVAL otherwise.
 */
int control_get_number(const struct control_request *req, const char *name, int64_t min,
		       int64_t max, int64_t *out, struct err *err);

#endif
