/* fs/control/commands.h - the commands one by one, for the table */
#ifndef FS_CONTROL_COMMANDS_H
#define FS_CONTROL_COMMANDS_H

struct control_call;
struct err;

/*
 * Each runs a command that the parser has let pass: reads call->req, adds members to
 * call->answer (names that say what they hold; "ok", "errno" and "error" are not theirs)
 * and returns 0 or a negative errno, with @err saying what was tried, on what, and why.
 * Called by threads that answer nothing to the kernel, several at a time, with no lock
 * held; may block.
 *
 * A new command is a function here, its options and a row in commands.c. From that row
 * come parsing, `help` and .casbox/help. One that may take minutes says so in its row.
 */

/* box.c: sandboxes */
int control_create(struct control_call *call, struct err *err);
int control_finish(struct control_call *call, struct err *err);
int control_remove(struct control_call *call, struct err *err);
int control_list(struct control_call *call, struct err *err);
int control_show(struct control_call *call, struct err *err);
int control_trace(struct control_call *call, struct err *err);
int control_cgroup(struct control_call *call, struct err *err);

/* keep.c, gc.c, prefetch.c: the store */
int control_pin(struct control_call *call, struct err *err);
int control_unpin(struct control_call *call, struct err *err);
int control_fsck(struct control_call *call, struct err *err);
int control_gc(struct control_call *call, struct err *err);
int control_prefetch(struct control_call *call, struct err *err);
int control_rows(struct control_call *call, struct err *err);
int control_sync(struct control_call *call, struct err *err);
int control_reconcile(struct control_call *call, struct err *err);

/* explain.c: why things are as they are */
int control_explain(struct control_call *call, struct err *err);
int control_diff(struct control_call *call, struct err *err);

/* about.c: the daemon */
int control_version(struct control_call *call, struct err *err);
int control_config(struct control_call *call, struct err *err);
int control_stats(struct control_call *call, struct err *err);
int control_log_level(struct control_call *call, struct err *err);
int control_stop(struct control_call *call, struct err *err);
int control_help_command(struct control_call *call, struct err *err);

#endif
