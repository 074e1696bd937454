/* tools/run.h - one run, from its words to its result: what the parts of `run` share */
#ifndef TOOLS_RUN_H
#define TOOLS_RUN_H

#include <jansson.h>
#include <stdint.h>

#include "cas/digest.h"
#include "fs/sandbox/capture.h"
#include "fs/sandbox/outputs.h"
#include "tools/cgroup.h"
#include "tools/cli.h"
#include "tools/run_child.h"

struct client;
struct local;

#define RUN_STATUS_TIMEOUT 124

struct run_args {
	const char *root;
	const char *input;
	struct cli_list outputs;
	const char *writable;
	const char *into;
	const char *result;
	struct cli_list env;
	const char *workdir;
	uint64_t timeout_ms;
	uint64_t idle_ms;
	const char *id;
	const char *mount;
};

/* One run, from its words to its result. */
struct run {
	struct cli *cli;
	struct run_args args;
	char **argv;
	struct fs_outputs outputs;
	char *into;   /* absolute; NULL: outputs go nowhere */
	char *result; /* absolute; NULL */
	char **env;
	struct run_signals signals;
	struct local *local;
	char root[CAS_DIGEST_STR_SZ];
	struct client *client;
	char *id;
	char *top;  /* the sandbox */
	char *path; /* where the command starts */
	struct fs_findings foreign;
	struct cgroup cgroup;
	struct run_child_result child;
	json_t *answer; /* of finish */
};

int run_out_of_memory(struct err *err);

/* run_input.c: store --input, and have a sandbox made whose root is whole. */
int run_prepare_sandbox(struct run *run, struct err *err);

/* run_mount.c: a connection to the mount, which is started when there is none. */
int run_connect(struct run *run, struct err *err);
int run_create_sandbox(struct run *run, struct err *err);
/* And close the connection. */
void run_remove_sandbox(struct run *run);

/* run_result.c: finish, put the outputs in place, write --result. */
int run_collect(struct run *run, struct err *err);

#endif
