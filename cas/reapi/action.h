/* cas/reapi/action.h - an Action, its Command and its ActionResult: decode, encode, check */
#ifndef CAS_REAPI_ACTION_H
#define CAS_REAPI_ACTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cas/digest.h"

struct buf;
struct cas_store;
struct err;

#define CAS_ACTION_MAX (64 << 20) /* bytes of an Action or Command that we accept */

/* Command.OutputDirectoryFormat */
enum cas_output_format { CAS_OUTPUT_TREE, CAS_OUTPUT_DIRECTORY, CAS_OUTPUT_BOTH };

/*
 * Lists end with a NULL; @outputs are as they were given, relative to @workdir ("": the
 * root), which has no "", "." or ".." component. Owned; ended with cas_command_fini.
 */
struct cas_command {
	char **argv; /* at least one */
	char **env;  /* NAME=VALUE */
	char **outputs;
	size_t nr_outputs;
	char *workdir;
	enum cas_output_format format;
};

struct cas_action {
	struct cas_digest command;
	struct cas_digest root;
	uint64_t timeout_ms; /* 0: none */
	bool do_not_cache;
};

/*
 * -EUCLEAN: not such a message, or one that nobody could run: no command or root, no
 * arguments, a variable without a name, a working directory or output that is absolute or
 * leads out of the root; the message says which.
 */
int cas_action_decode(const void *data, size_t len, struct cas_action *out, struct err *err);
int cas_command_decode(const void *data, size_t len, struct cas_command *out, struct err *err);
void cas_command_fini(struct cas_command *command);

/* Both, from the store and its tiers. Errors as cas_store_read_blob and decode. */
int cas_action_load(struct cas_store *store, const struct cas_digest *digest,
		    struct cas_action *action, struct cas_command *command, struct err *err);

struct cas_property;

/*
 * Put the Command, then the Action, both in canonical form: variables, outputs and
 * @platform (of @nr_platform) sorted by name, then value; outputs without duplicates.
 */
int cas_action_put(struct cas_store *store, const struct cas_command *command,
		   const struct cas_action *action, const struct cas_property *platform,
		   size_t nr_platform, struct cas_digest *out, struct err *err);

/* Replace the path @from of an ActionResult by @to. */
struct cas_result_path {
	const char *from;
	const char *to;
};

/*
 * Append to @out the ActionResult @data with other paths, and with its directories told as
 * @format asks. -EUCLEAN: @data is none.
 */
int cas_result_shape(const void *data, size_t len, const struct cas_result_path *paths,
		     size_t nr_paths, enum cas_output_format format, struct buf *out,
		     struct err *err);

/* A limit that the command had, as its result tells it. */
struct cas_limit {
	const char *name;
	uint64_t value;
	uint64_t peak; /* has_peak */
	bool has_peak;
	bool reached;
};

#define CAS_RESULT_LIMIT_TYPE "type.googleapis.com/google.protobuf.Struct"

/*
 * Replace the ActionResult @result by one that has @limits in its auxiliary_metadata, each
 * a Struct with "limit", "value", "peak" and "reached". -EUCLEAN: it is no ActionResult.
 */
int cas_result_add_limits(struct buf *result, const struct cas_limit *limits, size_t nr,
			  struct err *err);

enum cas_output_kind { CAS_OUTPUT_FILE, CAS_OUTPUT_DIR, CAS_OUTPUT_LINK };

struct cas_result_output {
	enum cas_output_kind kind;
	bool executable;
	char *path;
	char *target;
	struct cas_digest digest; /* of a directory its root Directory */
};

struct cas_result {
	int exit_code;
	bool has_stdout;
	bool has_stderr;
	struct cas_digest stdout_digest;
	struct cas_digest stderr_digest;
	size_t nr;
	struct cas_result_output *outputs;
};

/*
 * Decode an ActionResult of which everything can be had: every blob it names is in the
 * store, or was brought there from a tier now. Directories told by their Tree alone get
 * their Directory blobs stored. End with cas_result_fini.
 * -ENOENT: something is missing, the message names it. -EUCLEAN: not an ActionResult.
 */
int cas_result_load(struct cas_store *store, const void *data, size_t len, struct cas_result *out,
		    struct err *err);
void cas_result_fini(struct cas_result *result);

#endif
