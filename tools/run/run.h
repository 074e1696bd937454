/* tools/run/run.h - one run, from its words to its result: what the parts of `run` share */
#ifndef TOOLS_RUN_RUN_H
#define TOOLS_RUN_RUN_H

#include <jansson.h>
#include <stdint.h>

#include "cas/base/buf.h"
#include "cas/digest.h"
#include "cas/reapi/action.h"
#include "fs/capture/capture.h"
#include "fs/sandbox/outputs.h"
#include "tools/cli.h"
#include "tools/run/cgroup.h"
#include "tools/run/limits.h"
#include "tools/run/run_child.h"
#include "tools/run/run_isolate.h"

struct cas_result;
struct client;
struct local;
struct run_action;

#define RUN_STATUS_TIMEOUT 124

struct run_args {
	const char *action;
	const char *root;
	const char *input;
	struct cli_list outputs;
	const char *writable;
	const char *trace;
	const char *trace_dir;
	const char *into;
	const char *result;
	struct cli_list env;
	const char *workdir;
	uint64_t timeout_ms;
	uint64_t idle_ms;
	uint64_t max_memory;
	int max_procs;
	const char *max_output;
	const char *id;
	const char *mount;
	bool cache;
	bool trust_host;
	bool isolate;
	bool share_net;
	struct cli_list host_paths;
};

/* One run, from its words to its result. */
struct run {
	struct cli *cli;
	struct run_args args;
	char **argv;
	/* What is asked for: from args, or from a stored Action. */
	const char *const *asked; /* outputs below the root, as create takes them */
	size_t nr_asked;
	const char *workdir;	   /* NULL: the root */
	char **command_env;	   /* NULL: env */
	uint64_t timeout_ms;	   /* 0: none */
	bool keep_streams;	   /* standard output and error belong to the result */
	struct run_action *action; /* NULL: none */
	struct fs_outputs outputs;
	char *into;	 /* absolute; NULL: outputs go nowhere */
	char *result;	 /* absolute; NULL */
	char *trace_dir; /* absolute; NULL */
	char **env;
	struct run_signals signals;
	struct local *local;
	char root[CAS_DIGEST_STR_SZ];
	bool have_root; /* it was stored before, when the eviction epoch was: */
	uint64_t epoch;
	struct cas_digest key; /* of the Action, if has_key: its result may be kept */
	bool has_key;
	char key_root[CAS_DIGEST_STR_SZ];
	struct client *client;
	char *id;
	char *top;	      /* the sandbox */
	char *path;	      /* where the command starts */
	struct run_host host; /* what --isolate shows */
	struct fs_findings foreign;
	struct cgroup cgroup;
	struct limits limits;
	char max_output[48];		     /* as create takes it; "": no limit */
	struct cas_limit told[LIMIT_NR + 1]; /* the other limits, for the result */
	size_t nr_told;
	bool limited; /* the command ran into one */
	struct run_child_result child;
	json_t *answer;	   /* of finish */
	struct buf binary; /* the ActionResult, as it is told */
};

int run_out_of_memory(struct err *err);

/* run_input.c: store --input, unless there is another root. */
int run_input_store(struct run *run, struct err *err);
/* The same, and have a sandbox made whose root is whole. */
int run_prepare_sandbox(struct run *run, struct err *err);

/* run_mount.c: a connection to the mount, which is started when there is none. */
int run_connect(struct run *run, struct err *err);
int run_create_sandbox(struct run *run, struct err *err);
/* And close the connection. */
void run_remove_sandbox(struct run *run);

/* run_result.c: finish, put the outputs in place, write --result. */
int run_collect(struct run *run, struct err *err);
/* run_trace.c: have the daemon hear of what was opened while it can tell where. */
int run_settle_trace(void *ctx, struct err *err);
/* What was recorded of the finished sandbox, to --trace-dir. */
int run_write_trace(struct run *run, struct err *err);
/* run->binary to --result, if that was asked for. */
int run_write_result(struct run *run, struct err *err);

/*
 * run_action.c: --action. Read the Action and its Command, which then say what is run;
 * -EUCLEAN as cas_action_load.
 */
int run_action_load(struct run *run, struct err *err);
/* The result in run->binary, told as the Command asks: paths from its working directory. */
int run_action_shape(struct run *run, struct err *err);
/* Paths as the result has them back to those from the root. */
void run_action_unmap(struct run *run, struct cas_result *result);
/* Keep the result in ac/ when it is a success that may be kept. */
int run_action_store(struct run *run, struct err *err);
void run_action_free(struct run_action *action);

/*
 * run_cache.c: --cache. Find the key of this run, and if its result is kept and all of it
 * to be had, put it in place as if the command had run: *hit.
 */
int run_cache_look(struct run *run, bool *hit, struct err *err);
/* Is the key still what it was before the command ran? */
int run_cache_check(struct run *run, bool *same, struct err *err);

#endif
