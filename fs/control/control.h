/* fs/control/control.h - the commands of the control file */
#ifndef FS_CONTROL_CONTROL_H
#define FS_CONTROL_CONTROL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "fs/control/parse.h"

struct buf;
struct cas_store;
struct fs_sandboxes;
struct meta;

/* What the commands work on; one a daemon, outlives every call. */
struct control_env {
	struct cas_store *store;
	struct meta *meta;
	struct fs_sandboxes *sandboxes;
	const char *mountpoint;
	bool automatic;
	_Atomic bool *evicting; /* one eviction at a time */
	/*
	 * Ask the daemon to end once the answer was read. -EBUSY with @if_idle while
	 * sandboxes exist or other commands run.
	 */
	int (*stop)(void *ctx, bool if_idle, bool force, struct err *err);
	/* Add what is in force to @out. */
	int (*config)(void *ctx, json_t *out);
	/* Add what was counted to @out. */
	int (*stats)(void *ctx, json_t *out);
	void *ctx;
};

/* Sandboxes that end with the conversation that made them (create --attach). */
struct control_attached {
	size_t nr;
	char **ids;
};

/* One command being run: adds members to @answer. */
struct control_call {
	const struct control_env *env;
	struct control_attached *attached;
	const struct control_request *req;
	json_t *answer;
};

/* Ended by a row without a name. */
extern const struct control_command control_commands[];

/*
 * Run one line and append its answer, a JSON object and a newline: "ok", and when that
 * is false "errno" (a symbol) and "error" (words). May block for long. -ENOMEM when
 * there is not even an answer.
 */
int control_run(const struct control_env *env, struct control_attached *attached, const char *line,
		size_t len, struct buf *out);

/* The same answer for a line that could not be run. */
int control_refuse(int code, const char *why, struct buf *out);

/* The conversation ended: remove what is still attached to it. May block. */
void control_abandon(const struct control_env *env, struct control_attached *attached);

/* Append the texts of .casbox. */
int control_help(struct buf *out);

/* gc: in gc.c. */
int control_gc(struct control_call *call, struct err *err);

#endif
