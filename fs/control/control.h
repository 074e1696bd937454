/* fs/control/control.h - the commands of the control file */
#ifndef FS_CONTROL_CONTROL_H
#define FS_CONTROL_CONTROL_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "cas/base/err.h"
#include "fs/control/parse.h"

struct buf;
struct cas_digest;
struct cas_fetch;
struct cas_store;
struct cas_quota;
struct fs_events;
struct fs_prefetches;
struct fs_sandboxes;
struct meta;

enum control_reason { CONTROL_EVICT_QUOTA, CONTROL_EVICT_COMMAND, CONTROL_NR_REASONS };

/*
 * Evictions and pins keep out of each other's way: one eviction at a time, and no batch of
 * it while somebody looks whether what he pins is there. Zero-initialize.
 */
struct control_guard {
	_Atomic bool evicting;
	_Atomic bool batch; /* set, then nr_pins is looked at; pins do it the other way round */
	_Atomic int nr_pins;
	struct {
		_Atomic uint64_t runs;
		_Atomic uint64_t blobs;
		_Atomic uint64_t bytes;
	} evicted[CONTROL_NR_REASONS]; /* so far */
};

/* What the commands work on; one a daemon, outlives every call. */
struct control_env {
	struct cas_store *store;
	struct meta *meta;
	struct fs_sandboxes *sandboxes;
	const char *mountpoint;
	bool automatic;
	struct cas_fetch *fetch;	  /* NULL: no tiers */
	struct fs_prefetches *prefetches; /* NULL with it */
	struct fs_events *events;	  /* may be NULL */
	const struct cas_quota *quota;
	struct control_guard *guard;
	const _Atomic bool *ending; /* long commands end early, with -ECANCELED */
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
	/* Whoever made the conversation was killed, or has given up, waiting for an answer. */
	_Atomic bool left;
};

/* One command being run: adds members to @answer. */
struct control_call {
	const struct control_env *env;
	struct control_attached *attached;
	const struct control_request *req;
	json_t *answer;
	const _Atomic bool *unwanted; /* becomes true when nobody is there for the answer */
};

/* Ended by a row without a name. */
extern const struct control_command control_commands[];

/* A line that was looked at; zero-initialize, end with control_line_fini. */
struct control_line {
	struct control_request req;
	int code; /* 0, or why it is no command: */
	struct err err;
};
void control_line_parse(struct control_line *line, const char *text, size_t len);
void control_line_fini(struct control_line *line);

/*
 * Run a line and append its answer, a JSON object and a newline: "ok", and when that is
 * false "errno" (a symbol) and "error" (words). May block, for minutes when
 * control_takes_long; a create waits for no tier once *@unwanted is true, and a finish ends
 * between two files once @attached->left is. -ENOMEM when there is not even an answer.
 */
int control_run(const struct control_env *env, struct control_attached *attached,
		const _Atomic bool *unwanted, struct control_line *line, struct buf *out);

/* The same answer for a line that could not be run. */
int control_refuse(int code, const char *why, struct buf *out);

/* The conversation ended: remove what is still attached to it. May block. */
void control_abandon(const struct control_env *env, struct control_attached *attached);

/* Append what there is to say of the commands, or of the one of that name. -ENOMEM. */
int control_help(const char *name, struct buf *out);

/* For commands: a member of an answer, which takes @value over (NULL: no memory). -ENOMEM. */
int control_add(json_t *answer, const char *key, json_t *value);
/* A digest, or a hash alone of which the size is known. -EINVAL; -ENOENT: it is not known. */
int control_parse_digest(const struct control_call *call, const char *text, struct cas_digest *out,
			 struct err *err);
/* The same for the value of @opt, which was given. */
int control_get_digest(const struct control_call *call, const char *opt, struct cas_digest *out,
		       struct err *err);

#endif
