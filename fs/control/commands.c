/* fs/control/commands.c - the table of commands: parsing and help come from it */
#include "fs/control/commands.h"

#include "fs/control/control.h"

#define VALUE	   CONTROL_OPT_VALUE
#define MULTI	   CONTROL_OPT_MULTI
#define REQUIRED   CONTROL_OPT_REQUIRED
#define POSITIONAL CONTROL_OPT_POSITIONAL
#define END_OF_OPTS                                                                                \
	{                                                                                          \
		NULL, 0, NULL                                                                      \
	}

static const struct control_opt opts_none[] = {END_OF_OPTS};
static const struct control_opt opts_id[] = {
	{"id", VALUE | POSITIONAL | REQUIRED, "ID"},
	END_OF_OPTS,
};
static const struct control_opt opts_create[] = {
	{"root", VALUE | REQUIRED, "DIGEST"},
	{"id", VALUE, "ID"},
	{"output", VALUE | MULTI, "PATH"},
	{"writable", VALUE, "outputs|dirs|all"},
	{"trace", VALUE, "off|names|reads|exact"},
	{"max-output", VALUE, "BYTES[,FILES]"},
	{"under-quota", 0, NULL},
	{"attach", 0, NULL},
	{"unlisted", 0, NULL},
	END_OF_OPTS,
};
static const struct control_opt opts_finish[] = {
	{"id", VALUE | POSITIONAL | REQUIRED, "ID"},
	{"exit-code", VALUE, "N"},
	{"stdout", VALUE, "DIGEST"},
	{"stderr", VALUE, "DIGEST"},
	{"start", VALUE, "NS"},
	{"end", VALUE, "NS"},
	{"mounted", VALUE | MULTI, "TYPE:PATH"},
	{"remove", 0, NULL},
	{"alone", 0, NULL},
	END_OF_OPTS,
};
static const struct control_opt opts_remove[] = {
	{"id", VALUE | POSITIONAL | REQUIRED, "ID"},
	{"alone", 0, NULL},
	END_OF_OPTS,
};
static const struct control_opt opts_cgroup[] = {
	{"id", VALUE | POSITIONAL | REQUIRED, "ID"},
	{"path", VALUE | POSITIONAL, "PATH"},
	END_OF_OPTS,
};
static const struct control_opt opts_digests[] = {
	{"digest", VALUE | MULTI | POSITIONAL | REQUIRED, "DIGEST"},
	END_OF_OPTS,
};
static const struct control_opt opts_prefetch[] = {
	{"digest", VALUE | MULTI | POSITIONAL | REQUIRED, "DIGEST"},
	{"blob", 0, NULL},
	{"wait", 0, NULL},
	END_OF_OPTS,
};
static const struct control_opt opts_gc[] = {
	{"max-size", VALUE, "BYTES"},
	{"max-blobs", VALUE, "N"},
	{"drain", 0, NULL},
	{"dry-run", 0, NULL},
	END_OF_OPTS,
};
static const struct control_opt opts_fsck[] = {
	{"repair", 0, NULL},
	{"threads", VALUE, "N"},
	END_OF_OPTS,
};
static const struct control_opt opts_explain[] = {
	{"what", VALUE | POSITIONAL | REQUIRED, "ID-OR-DIGEST"},
	{"path", VALUE | POSITIONAL, "PATH"},
	END_OF_OPTS,
};
static const struct control_opt opts_diff[] = {
	{"a", VALUE | POSITIONAL | REQUIRED, "ID-OR-DIGEST"},
	{"b", VALUE | POSITIONAL | REQUIRED, "ID-OR-DIGEST"},
	{"recursive", 0, NULL},
	END_OF_OPTS,
};
static const struct control_opt opts_rows[] = {
	{"rows", VALUE | POSITIONAL | REQUIRED, "TEXT"},
	END_OF_OPTS,
};
static const struct control_opt opts_level[] = {
	{"level", VALUE | POSITIONAL, "error|warn|info|debug"},
	END_OF_OPTS,
};
static const struct control_opt opts_stop[] = {
	{"if-idle", 0, NULL},
	{"force", 0, NULL},
	END_OF_OPTS,
};
static const struct control_opt opts_help[] = {
	{"command", VALUE | POSITIONAL, "COMMAND"},
	END_OF_OPTS,
};

const struct control_command control_commands[] = {
	{"create", "make a sandbox; answers id and path", opts_create, NULL, control_create},
	{"finish", "freeze and capture; answers the result", opts_finish, NULL, control_finish},
	{"remove", "forget a sandbox and its files", opts_remove, NULL, control_remove},
	{"list", "all sandboxes", opts_none, NULL, control_list},
	{"show", "one sandbox", opts_id, NULL, control_show},
	{"trace", "what a sandbox looked up, read, missed and wrote", opts_id, NULL, control_trace},
	{"cgroup", "the control group that ends with the sandbox, or none", opts_cgroup, NULL,
	 control_cgroup},
	{"pin", "keep a blob, or a tree with all in it, whatever gc does", opts_digests, NULL,
	 control_pin},
	{"unpin", "let it go like everything else", opts_digests, NULL, control_unpin},
	{"prefetch", "bring trees (or with --blob a blob) from the tiers, in the background",
	 opts_prefetch, "wait", control_prefetch},
	{"gc", "evict until the store is that small, or as small as configured", opts_gc, "",
	 control_gc},
	{"fsck", "compare every blob with its name", opts_fsck, "", control_fsck},
	{"explain", "where a blob is and who needs it, what a sandbox is, why a name is not found",
	 opts_explain, "", control_explain},
	{"diff", "what makes one tree of another", opts_diff, "", control_diff},
	{"sync", "make what was put durable and recorded", opts_none, NULL, control_sync},
	{"reconcile", "make index and ledger agree with the files", opts_none, "",
	 control_reconcile},
	{"rows", "take rows of index and ledger from another process", opts_rows, NULL,
	 control_rows},
	{"log-level", "how much is logged, from now on", opts_level, NULL, control_log_level},
	{"config", "what was found and is in force", opts_none, NULL, control_config},
	{"stats", "what was counted since the mount began", opts_none, NULL, control_stats},
	{"version", "of program and store; who serves", opts_none, NULL, control_version},
	{"stop", "end the mount", opts_stop, NULL, control_stop},
	{"help", "all commands, or one", opts_help, NULL, control_help_command},
	{NULL, NULL, NULL, NULL, NULL},
};
