/* tools/cmd/cmd_run.c - `casbox run`: create, spawn, capture, restore */
#include "tools/cmd/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/cli.h"
#include "tools/cmd/client.h"
#include "tools/cmd/local.h"
#include "tools/cmd/sandbox.h"
#include "tools/run/run.h"

#define IDLE_MS 600000

#define ARG(field) offsetof(struct run_args, field)
static const struct cli_option options[] = {
	{"input", 'i', CLI_TEXT, ARG(input), "DIR", "store DIR and run in it, without the outputs",
	 false, NULL},
	{"action", 'a', CLI_TEXT, ARG(action), "DIGEST",
	 "run this stored Action, and keep its result", false, NULL},
	{"root", 'r', CLI_TEXT, ARG(root), "DIGEST", "run in this stored tree", false, NULL},
	{"output", 'o', CLI_LIST, ARG(outputs), "PATH",
	 "keep PATH; PATH/ is a directory made before", false, NULL},
	{"into", 0, CLI_TEXT, ARG(into), "DIR", "where outputs go (default: the --input DIR)",
	 false, NULL},
	{"result", 0, CLI_TEXT, ARG(result), "FILE", "write the ActionResult (binary for *.pb)",
	 false, NULL},
	{"env", 'e', CLI_LIST, ARG(env), "NAME=VALUE", "set a variable for the command", false,
	 NULL},
	{"workdir", 'C', CLI_TEXT, ARG(workdir), "PATH", "start in PATH below the root", false,
	 NULL},
	{"timeout", 't', CLI_DURATION, ARG(timeout_ms), "TIME", "end it after TIME, status 124",
	 true, NULL},
	{"max-memory", 0, CLI_SIZE, ARG(max_memory), "SIZE", "how much memory it may have", true,
	 NULL},
	{"max-procs", 0, CLI_NUMBER, ARG(max_procs), "N", "how many processes and threads", true,
	 NULL},
	{"max-output", 0, CLI_TEXT, ARG(max_output), "SIZE[,N]",
	 "how much it may write, in how many files", true, NULL},
	{"writable", 'w', CLI_TEXT, ARG(writable), "WHAT", "outputs (default), dirs or all", true,
	 "outputs|dirs|all"},
	{"trace", 0, CLI_TEXT, ARG(trace), "KIND", "record what it reads: names, reads or exact",
	 false, "off|names|reads|exact"},
	{"trace-dir", 0, CLI_TEXT, ARG(trace_dir), "DIR", "write what was recorded to files there",
	 false, NULL},
	{"cache", 'c', CLI_FLAG, ARG(cache), NULL,
	 "answer from the action cache if nothing changed", false, NULL},
	{"trust-host", 0, CLI_FLAG, ARG(trust_host), NULL, "with --cache: do without --isolate",
	 false, NULL},
	{"isolate", 'I', CLI_FLAG, ARG(isolate), NULL,
	 "show it the sandbox and basic host paths, no more", false, NULL},
	{"host-path", 0, CLI_LIST, ARG(host_paths), "PATH", "with --isolate: show PATH as well",
	 false, NULL},
	{"share-net", 0, CLI_FLAG, ARG(share_net), NULL, "with --isolate: leave it the network",
	 false, NULL},
	{"id", 0, CLI_TEXT, ARG(id), "ID", "the sandbox's name (default: random, unlisted)", false,
	 NULL},
	{"mount", 'm', CLI_TEXT, ARG(mount), "MNT", "use that mount", true, NULL},
	{"idle", 0, CLI_DURATION, ARG(idle_ms), "TIME",
	 "end a mount started here when unused so long", true, NULL},
	{NULL, 0, CLI_FLAG, 0, NULL, NULL, false, NULL},
};

int run_out_of_memory(struct err *err)
{
	return err_set(err, -ENOMEM, "out of memory");
}

static int make_absolute(const char *path, char **out, struct err *err)
{
	auto_free char *cwd = NULL;

	if (path[0] == '/') {
		*out = strdup(path);
		return *out ? 0 : run_out_of_memory(err);
	}
	cwd = getcwd(NULL, 0);
	if (!cwd)
		return err_set(err, -errno, "cannot tell the current directory: %s",
			       strerror(errno));
	if (asprintf(out, "%s/%s", cwd, path) < 0) {
		*out = NULL;
		return run_out_of_memory(err);
	}
	return 0;
}

static bool same_name(const char *a, const char *b)
{
	size_t len = strcspn(a, "=");

	return strncmp(a, b, len) == 0 && b[len] == '=';
}

/* Ours; in isolation, and for a key, PATH is all that comes along. */
static bool is_inherited(const struct run *run, const char *item)
{
	return !(run->args.isolate || run->args.cache) || strncmp(item, "PATH=", 5) == 0;
}

/* Our environment with --env on top. */
static int make_env(struct run *run, struct err *err)
{
	size_t nr = 0, out = 0;

	for (size_t i = 0; i < run->args.env.nr; i++) {
		const char *item = run->args.env.items[i];

		if (!strchr(item, '=') || item[0] == '=')
			return cli_usage(run->cli, err, "--env wants NAME=VALUE, not '%s'", item);
	}
	while (environ[nr])
		nr++;
	run->env = calloc(nr + run->args.env.nr + 1, sizeof(*run->env));
	if (!run->env)
		return run_out_of_memory(err);
	for (size_t i = 0; i < nr + run->args.env.nr; i++) {
		char *item = i < nr ? environ[i] : (char *)(uintptr_t)run->args.env.items[i - nr];
		bool later = i < nr && !is_inherited(run, item);

		for (size_t j = 0; j < run->args.env.nr && !later; j++)
			later = nr + j > i && same_name(run->args.env.items[j], item);
		if (!later)
			run->env[out++] = item;
	}
	return 0;
}

static int check_args(struct run *run, const struct cli_words *words, struct err *err)
{
	const struct run_args *a = &run->args;
	int ret = a->action ? 0 : cli_want_words(run->cli, words, 1, 0, err);

	if (ret)
		return ret;
	run->argv = words->argv;
	run->asked = a->outputs.items;
	run->nr_asked = a->outputs.nr;
	run->workdir = a->workdir;
	run->timeout_ms = a->timeout_ms;
	limits_init(&run->limits);
	run->limits.of[LIMIT_MEMORY].value = a->max_memory;
	run->limits.of[LIMIT_PROCS].value = (uint64_t)a->max_procs;
	run->keep_streams = a->result || a->action || a->cache;
	if (a->action &&
	    (words->argc || a->root || a->input || a->outputs.nr || a->env.nr || a->workdir))
		return cli_usage(run->cli, err,
				 "--action says what is run: it takes no command, --root, "
				 "--input, --output, --env or --workdir");
	if (a->cache && !a->isolate && !a->trust_host)
		return cli_usage(run->cli, err,
				 "--cache needs --isolate, or --trust-host if the command uses "
				 "nothing of the host but its tools");
	ret = sandbox_max_output(run->cli, a->max_output, run->max_output, err);
	if (ret)
		return ret;
	if (!a->cache && a->trust_host)
		return cli_usage(run->cli, err, "--trust-host belongs to --cache");
	if (!a->isolate && a->share_net)
		return cli_usage(run->cli, err, "--share-net belongs to --isolate");
	if (a->trace_dir && !a->trace)
		return cli_usage(run->cli, err, "--trace-dir needs --trace=names, reads or exact");
	if (a->root && a->input)
		return cli_usage(run->cli, err, "--root and --input exclude each other");
	if (a->workdir && (a->workdir[0] == '/' || strstr(a->workdir, "..")))
		return cli_usage(run->cli, err, "--workdir wants a path below the root, not '%s'",
				 a->workdir);
	ret = fs_outputs_parse(a->outputs.items, a->outputs.nr, &run->outputs, err);
	if (ret) {
		run->cli->usage_error = ret == -EINVAL;
		return ret;
	}
	if (a->input && fs_outputs_find(&run->outputs, "") && !a->into)
		return cli_usage(run->cli, err, "the output '' is all of --input: give --into DIR");
	ret = make_env(run, err);
	if (ret == 0 && (a->into || a->input))
		ret = make_absolute(a->into ? a->into : a->input, &run->into, err);
	if (ret == 0 && (a->isolate || a->cache))
		ret = run_host_init(&run->host, &a->host_paths, a->share_net, err);
	if (ret == 0 && a->trace_dir)
		ret = make_absolute(a->trace_dir, &run->trace_dir, err);
	if (ret == 0 && a->result)
		ret = make_absolute(a->result, &run->result, err);
	return ret;
}

/* An empty group, or none, would prove to the daemon that the command has ended. */
static int leave_group(void *ctx, struct err *err)
{
	struct run *run = ctx;
	const char *const words[] = {"cgroup", run->id};

	return client_ask(run->client, words, 2, CLIENT_QUICK_MS, NULL, err);
}

/*
 * Privileges and the hierarchy decide whether there is a group; the work is done without.
 * The daemon, which has to end it if we die, is told first: killed at any point, we leave
 * no group that nobody knows of.
 */
static int make_group(struct run *run, struct err *err)
{
	const char *words[] = {"cgroup", run->id, NULL};
	auto_free char *name = NULL;
	auto_free char *path = NULL;
	struct err why = {0};
	int ret;

	if (asprintf(&name, "casbox-%s", run->id) < 0) {
		name = NULL;
		return run_out_of_memory(err);
	}
	ret = cgroup_place(name, &path, &why);
	if (ret) {
		log_info("no control group: %s", why.msg);
		return 0;
	}
	words[2] = path;
	ret = client_ask(run->client, words, 3, CLIENT_QUICK_MS, NULL, &why);
	if (ret && ret != -EINVAL)
		return err_set(err, ret, "%s", err_text(&why, ret));
	if (ret == 0 && cgroup_make(path, &run->cgroup, &why))
		ret = leave_group(run, err);
	else if (ret == 0)
		return 0;
	log_info("no control group: %s", why.msg);
	return ret == -EINVAL ? 0 : ret;
}

static int run_command(struct run *run, const char *const *argv, int keep_fd, struct err *err)
{
	const int signals[] = {run->cli->xfsz_ignored ? 0 : SIGXFSZ, 0};
	struct run_child_options opts = {
		.argv = argv,
		.env = (const char *const *)(run->command_env ? run->command_env : run->env),
		.cwd = keep_fd ? run->top : run->path,
		.keep_fd = keep_fd,
		.in_init = keep_fd > 0,
		.cgroup = run->cgroup.path,
		.cgroup_fd = run->cgroup.fd,
		.leave_group = leave_group,
		.settle = run->args.trace ? run_settle_trace : NULL,
		.ctx = run,
		.limits = &run->limits,
		.timeout_ms = run->timeout_ms,
		.store = run->keep_streams ? local_store(run->local) : NULL,
		.default_signals = signals,
		.same_for_all = run->args.cache || run->args.action,
		.top = run->top,
		.hidden_in = client_hidden_in(run->client),
		.under_quota = run->max_output[0] != '\0',
		.foreign = &run->foreign,
	};

	return run_child(&opts, &run->signals, &run->child, err);
}

/* Nothing that the profile shows may be, hold or be held by what is ours. */
static int check_host(struct run *run, struct err *err)
{
	const char *const words[] = {"version"};
	const char *blobs = run->cli->blobs;
	auto_free char *boxes = strndup(run->top, strlen(run->top) - strlen(run->id) - 1);
	char real[PATH_MAX];
	json_t *answer = NULL;
	int ret = boxes ? client_ask(run->client, words, 1, CLIENT_QUICK_MS, &answer, err)
			: run_out_of_memory(err);

	if (ret == 0)
		ret = run_host_forbid(&run->host, "the mount", client_text(answer, "mountpoint"),
				      err);
	json_decref(answer);
	/* Where fusermount3 mounts they are not in the mount. */
	if (ret == 0)
		ret = run_host_forbid(&run->host, "other sandboxes", boxes, err);
	if (ret == 0)
		ret = run_host_forbid(&run->host, "the store", local_path(run->local), err);
	if (ret == 0 && blobs && realpath(blobs, real))
		ret = run_host_forbid(&run->host, "the store's blobs", real, err);
	return ret;
}

/* @out is the end of a pipe at which one byte tells that the command began. */
static int run_inside(struct run *run, struct err *err)
{
	auto_close int in = -1;
	auto_close int out = -1;
	char **words = NULL;
	char byte;
	int fds[2];
	int ret = check_host(run, err);

	if (ret == 0)
		ret = run_isolate_words(
			&run->host, run->top, run->workdir, (const char *const *)run->argv,
			(const char *const *)(run->command_env ? run->command_env : run->env),
			&words, err);
	if (ret)
		return ret;
	if (pipe2(fds, O_CLOEXEC | O_NONBLOCK)) {
		ret = err_set(err, -errno, "cannot make a pipe: %s", strerror(errno));
	} else {
		in = fds[0];
		out = fds[1];
		ret = run_command(run, (const char *const *)words, out, err);
	}
	if (ret == 0 && !run->child.timed_out && read(in, &byte, 1) != 1)
		ret = err_set(err, -ECHILD,
			      "bubblewrap could not set the isolation up; it said why above "
			      "(status %d)",
			      run->child.status);
	run_words_free(words);
	return ret;
}

static void note_limits(struct run *run)
{
	const struct run_child_result *c = &run->child;

	run->nr_told = limits_tell(&run->limits, run->told);
	run->limited = limits_report(&run->limits, run->cli, run->told);
	if (run->timeout_ms)
		run->told[run->nr_told++] = (struct cas_limit){
			.name = "timeout-ms",
			.value = run->timeout_ms,
			.peak = (uint64_t)(c->end_ns - c->start_ns) / 1000000,
			.has_peak = true,
			.reached = c->timed_out,
		};
}

/* Everything between a mount and the exit status. */
static int run_in_sandbox(struct run *run, struct err *err)
{
	int ret = make_group(run, err);

	if (ret == 0 && run_signals_pending(&run->signals))
		ret = err_set(err, -EINTR, "interrupted before the command was started");
	if (ret == 0)
		limits_begin(&run->limits, run->cli, &run->cgroup);
	if (ret == 0 && run->args.isolate)
		ret = run_inside(run, err);
	else if (ret == 0)
		ret = run_command(run, (const char *const *)run->argv, 0, err);
	if (ret == 0)
		note_limits(run);
	if (ret && run->child.exec_failed) {
		cli_warn(run->cli, "%s", err_text(err, ret));
		return run->child.status;
	}
	if (ret == 0)
		ret = run_collect(run, err);
	if (ret)
		return ret;
	if (run->child.timed_out) {
		cli_warn(run->cli, "ended after %" PRIu64 ".%03" PRIu64 " s (--timeout)",
			 run->timeout_ms / 1000, run->timeout_ms % 1000);
		return RUN_STATUS_TIMEOUT;
	}
	return run->child.status;
}

static int run_anew(struct run *run, struct err *err)
{
	/* The mount first: it then takes the rows of what is stored. */
	int ret = run_connect(run, err);

	if (ret == 0)
		ret = run_prepare_sandbox(run, err);
	if (ret == 0)
		ret = run_in_sandbox(run, err);
	run_remove_sandbox(run);
	limits_fini(&run->limits);
	cgroup_fini(&run->cgroup);
	return ret;
}

static int run_all(struct run *run, struct err *err)
{
	bool hit = false;
	int ret = run_signals_init(&run->signals, err);

	if (ret == 0)
		ret = local_open(run->cli, LOCAL_RECORD, &run->local, err);
	if (ret == 0 && run->args.action)
		ret = run_action_load(run, err);
	if (ret == 0 && run->args.cache)
		ret = run_cache_look(run, &hit, err);
	if (ret == 0 && hit && run->trace_dir)
		cli_warn(run->cli, "nothing to trace: the result was kept from an earlier run");
	if (ret == 0 && !hit) {
		run->have_root = run->root[0] != '\0';
		ret = run_anew(run, err);
	}
	local_close(run->local);
	return ret;
}

static void run_fini(struct run *run)
{
	cli_list_fini(&run->args.outputs);
	cli_list_fini(&run->args.env);
	cli_list_fini(&run->args.host_paths);
	run_host_fini(&run->host);
	fs_outputs_fini(&run->outputs);
	free(run->into);
	free(run->result);
	free(run->trace_dir);
	free(run->env);
	fs_findings_fini(&run->foreign);
	free(run->id);
	free(run->top);
	free(run->path);
	json_decref(run->answer);
	buf_fini(&run->binary);
	run_action_free(run->action);
}

int cmd_run(struct cli *cli, int argc, char **argv, struct err *err)
{
	struct run run = {.cli = cli, .args = {.idle_ms = IDLE_MS}, .cgroup = {NULL, -1}};
	struct cli_words words = {0};
	int signum;
	int ret = cli_parse(cli, options, &run.args, CLI_FIRST, argc, argv, &words, err);

	if (ret == 1)
		return 0;
	run.signals = (struct run_signals){.fatal_fd = -1, .other_fd = -1};
	if (ret == 0)
		ret = check_args(&run, &words, err);
	if (ret == 0)
		ret = run_all(&run, err);
	/* Interrupted by a signal: die of it, as without us. */
	signum = ret < 0 && !cli->usage_error ? run_signals_take(&run.signals) : 0;
	run_fini(&run);
	if (signum) {
		cli_warn(cli, "interrupted");
		cli_die_of(signum);
	}
	return ret;
}
