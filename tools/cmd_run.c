/* tools/cmd_run.c - `casbox run`: create, spawn, capture, restore */
#include "tools/cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/sandbox/capture.h"
#include "tools/cgroup.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/daemon.h"
#include "tools/local.h"
#include "tools/progress.h"
#include "tools/run_child.h"
#include "tools/run_outputs.h"
#include "tools/sandbox.h"

#define IDLE_MS	       600000
#define EVICTED_TRIES  4
#define STATUS_TIMEOUT 124

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

#define ARG(field) offsetof(struct run_args, field)
static const struct cli_option options[] = {
	{"input", 'i', CLI_TEXT, ARG(input), "DIR", "store DIR and run in it, without the outputs",
	 false, NULL},
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
	{"writable", 'w', CLI_TEXT, ARG(writable), "WHAT", "outputs (default), dirs or all", true,
	 "outputs|dirs|all"},
	{"id", 0, CLI_TEXT, ARG(id), "ID", "the sandbox's name (default: random, unlisted)", false,
	 NULL},
	{"mount", 'm', CLI_TEXT, ARG(mount), "MNT", "use that mount", true, NULL},
	{"idle", 0, CLI_DURATION, ARG(idle_ms), "TIME",
	 "end a mount started here when unused so long", true, NULL},
	{NULL, 0, CLI_FLAG, 0, NULL, NULL, false, NULL},
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

static int out_of_memory(struct err *err)
{
	return err_set(err, -ENOMEM, "out of memory");
}

static int make_absolute(const char *path, char **out, struct err *err)
{
	auto_free char *cwd = NULL;

	if (path[0] == '/') {
		*out = strdup(path);
		return *out ? 0 : out_of_memory(err);
	}
	cwd = getcwd(NULL, 0);
	if (!cwd)
		return err_set(err, -errno, "cannot tell the current directory: %s",
			       strerror(errno));
	if (asprintf(out, "%s/%s", cwd, path) < 0) {
		*out = NULL;
		return out_of_memory(err);
	}
	return 0;
}

static bool same_name(const char *a, const char *b)
{
	size_t len = strcspn(a, "=");

	return strncmp(a, b, len) == 0 && b[len] == '=';
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
		return out_of_memory(err);
	for (size_t i = 0; i < nr + run->args.env.nr; i++) {
		char *item = i < nr ? environ[i] : (char *)(uintptr_t)run->args.env.items[i - nr];
		bool later = false;

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
	int ret = cli_want_words(run->cli, words, 1, 0, err);

	if (ret)
		return ret;
	run->argv = words->argv;
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
	if (ret == 0 && a->result)
		ret = make_absolute(a->result, &run->result, err);
	return ret;
}

/* Sets *cancel when a fatal signal waits; the signal stays for whoever takes it. */
struct watcher {
	pthread_t thread;
	int fatal_fd;
	int stop_fd;
	_Atomic bool *cancel;
};

static void *watch(void *arg)
{
	struct watcher *w = arg;
	struct pollfd p[2] = {{w->fatal_fd, POLLIN, 0}, {w->stop_fd, POLLIN, 0}};

	while (poll(p, 2, -1) < 0)
		continue;
	if (p[0].revents)
		atomic_store_explicit(w->cancel, true, memory_order_relaxed);
	return NULL;
}

static bool skip_output(void *ctx, const char *path, bool is_dir)
{
	const struct run *run = ctx;

	(void)is_dir;
	return fs_outputs_find(&run->outputs, path) != NULL;
}

static int ingest_watched(struct run *run, struct cas_ingest_result *result, struct err *err)
{
	struct cas_ingest_progress counted = {0};
	struct cas_ingest_options opts = {
		.follow_top = true,
		.skip = run->outputs.nr ? skip_output : NULL,
		.skip_ctx = run,
		.progress = &counted,
	};
	struct progress_source source = {"input", &counted.files, &counted.bytes, NULL};
	struct watcher w = {.fatal_fd = run->signals.fatal_fd, .cancel = &counted.cancel};
	struct progress *progress;
	uint64_t one = 1;
	int ret;

	w.stop_fd = eventfd(0, EFD_CLOEXEC);
	if (w.stop_fd < 0 || pthread_create(&w.thread, NULL, watch, &w)) {
		if (w.stop_fd >= 0)
			(void)close(w.stop_fd);
		return err_set(err, -EAGAIN, "cannot start a thread");
	}
	progress = progress_begin(&source);
	ret = cas_ingest(local_store(run->local), run->args.input, &opts, result, err);
	progress_end(progress);
	(void)!write(w.stop_fd, &one, sizeof(one));
	(void)pthread_join(w.thread, NULL);
	(void)close(w.stop_fd);
	return ret;
}

static int find_root(struct run *run, struct err *err)
{
	struct cas_ingest_result result;
	int ret;

	if (run->args.root)
		return sandbox_digest(run->cli, run->args.root, run->root, err);
	if (!run->args.input) {
		(void)cas_digest_format(&cas_digest_empty, '/', run->root);
		return 0;
	}
	ret = ingest_watched(run, &result, err);
	if (ret)
		return ret;
	if (!result.is_directory)
		return err_set(err, -ENOTDIR, "--input %s is no directory", run->args.input);
	(void)cas_digest_format(&result.digest, '/', run->root);
	return local_sync(run->local, err);
}

/*
 * The sandbox has its root now, which eviction spares from then on. What it took before,
 * after we had found it there, is stored once more.
 */
static int restore_evicted(struct run *run, uint64_t epoch, struct err *err)
{
	struct cas_ingest_result result;
	char root[CAS_DIGEST_STR_SZ];
	int ret;

	if (!run->args.input || run->args.root || epoch == cas_evict_epoch(local_store(run->local)))
		return 0;
	ret = ingest_watched(run, &result, err);
	if (ret)
		return ret;
	if (strcmp(cas_digest_format(&result.digest, '/', root), run->root) != 0)
		return err_set(err, -EAGAIN, "--input %s changed while it was stored",
			       run->args.input);
	return local_sync(run->local, err);
}

/* What we store must be what the mount serves. */
static int check_store(struct run *run, struct err *err)
{
	const char *const words[] = {"version"};
	json_t *answer = NULL;
	int ret = client_ask(run->client, words, 1, CLIENT_QUICK_MS, &answer, err);

	if (ret == 0 && strcmp(client_text(answer, "store"), local_path(run->local)) != 0)
		ret = err_set(err, -EXDEV, "the mount at %s serves the store %s, not %s",
			      run->args.mount, client_text(answer, "store"),
			      local_path(run->local));
	json_decref(answer);
	return ret;
}

/* A connection to the mount, started when there is none. */
static int connect_once(struct run *run, struct err *err)
{
	struct daemon daemon = {0};
	int ret;

	if (run->args.mount) {
		ret = client_open(run->args.mount, run->signals.fatal_fd, &run->client, err);
		return ret ? ret : check_store(run, err);
	}
	ret = daemon_ensure(run->cli, local_path(run->local), run->args.idle_ms, &daemon, err);
	if (ret == 0)
		ret = client_open_daemon(&daemon, run->signals.fatal_fd, &run->client, err);
	daemon_fini(&daemon);
	return ret;
}

/* An idle mount may end, or make room for another, between finding and asking it. */
static int connect_mount(struct run *run, struct err *err)
{
	int ret = -ENOTCONN;

	for (int i = 0; i < 20 && (ret == -ENOTCONN || ret == -ENOENT); i++) {
		if (i > 0)
			(void)usleep(50000);
		ret = connect_once(run, err);
		if (run->args.mount)
			break;
	}
	return ret;
}

static int create(struct run *run, struct err *err)
{
	const struct run_args *a = &run->args;
	const char **words = calloc(12 + 2 * a->outputs.nr, sizeof(*words));
	json_t *answer = NULL;
	size_t nr = 0;
	int ret;

	if (!words)
		return out_of_memory(err);
	words[nr++] = "create";
	words[nr++] = "--attach";
	words[nr++] = "--root";
	words[nr++] = run->root;
	words[nr++] = "--writable";
	words[nr++] = a->writable ? a->writable : "outputs";
	words[nr++] = a->id ? "--id" : "--unlisted";
	if (a->id)
		words[nr++] = a->id;
	for (size_t i = 0; i < a->outputs.nr; i++) {
		words[nr++] = "--output";
		words[nr++] = a->outputs.items[i];
	}
	ret = client_ask(run->client, words, nr, 0, &answer, err);
	free(words);
	if (ret)
		return ret;
	run->id = strdup(client_text(answer, "id"));
	run->top = strdup(client_text(answer, "path"));
	if (asprintf(&run->path, "%s%s%s", client_text(answer, "path"), a->workdir ? "/" : "",
		     a->workdir ? a->workdir : "") < 0)
		run->path = NULL;
	json_decref(answer);
	return run->id && run->top && run->path ? 0 : out_of_memory(err);
}

/* The mount may have ended after it was reached: once more, with a new one. */
static int create_sandbox(struct run *run, struct err *err)
{
	int ret = create(run, err);

	for (int i = 0; i < 3 && (ret == -ENOTCONN || ret == -ESHUTDOWN) && !run->args.mount; i++) {
		client_close(run->client);
		run->client = NULL;
		ret = connect_mount(run, err);
		if (ret == 0)
			ret = create(run, err);
	}
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
		return out_of_memory(err);
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

static int run_command(struct run *run, struct err *err)
{
	const int signals[] = {run->cli->xfsz_ignored ? 0 : SIGXFSZ, 0};
	struct run_child_options opts = {
		.argv = (const char *const *)run->argv,
		.env = (const char *const *)run->env,
		.cwd = run->path,
		.cgroup = run->cgroup.path,
		.cgroup_fd = run->cgroup.fd,
		.leave_group = leave_group,
		.ctx = run,
		.timeout_ms = run->args.timeout_ms,
		.store = run->result ? local_store(run->local) : NULL,
		.default_signals = signals,
		.top = run->top,
		.foreign = &run->foreign,
	};

	return run_child(&opts, &run->signals, &run->child, err);
}

/* A command cannot hold a newline: the directory above the name that has one stands for it. */
static int tellable(const char *path)
{
	size_t len = strcspn(path, "\n");

	while (path[len] != '\0' && path[len] != '/' && len > 0)
		len--;
	return (int)len;
}

/* Ask with @words, which have room, and what the command mounted, which only we could see. */
static int ask_finish(struct run *run, const char **words, size_t nr, struct err *err)
{
	auto_free char **mounted = calloc(run->foreign.nr + 1, sizeof(*mounted));
	int ret = mounted ? 0 : -ENOMEM;

	for (size_t i = 0; ret == 0 && i < run->foreign.nr; i++) {
		const struct fs_finding *f = &run->foreign.found[i];

		if (asprintf(&mounted[i], "%s:%.*s", f->text, tellable(f->path), f->path) < 0) {
			mounted[i] = NULL;
			ret = -ENOMEM;
		}
		words[nr++] = "--mounted";
		words[nr++] = mounted[i];
	}
	ret = ret ? out_of_memory(err) : client_call(run->client, words, nr, 0, &run->answer, err);
	for (size_t i = 0; mounted && i < run->foreign.nr; i++)
		free(mounted[i]);
	return ret;
}

static int finish(struct run *run, struct err *err)
{
	const struct run_child_result *c = &run->child;
	char code[16], start[32], end[32], out[CAS_DIGEST_STR_SZ], error[CAS_DIGEST_STR_SZ];
	const char *const fixed[] = {"finish",	run->id, "--exit-code", code,
				     "--start", start,	 "--end",	end};
	auto_free const char **words = calloc(12 + 2 * run->foreign.nr, sizeof(*words));
	size_t nr = 8;
	int ret;

	if (!words)
		return out_of_memory(err);
	memcpy(words, fixed, sizeof(fixed));

	(void)snprintf(code, sizeof(code), "%d", c->timed_out ? STATUS_TIMEOUT : c->status);
	(void)snprintf(start, sizeof(start), "%" PRId64, c->start_ns);
	(void)snprintf(end, sizeof(end), "%" PRId64, c->end_ns);
	if (c->has_streams) {
		words[nr++] = "--stdout";
		words[nr++] = cas_digest_format(&c->stdout_digest, '/', out);
		words[nr++] = "--stderr";
		words[nr++] = cas_digest_format(&c->stderr_digest, '/', error);
	}
	ret = ask_finish(run, words, nr, err);
	if (ret)
		return ret;
	sandbox_print_notes(run->cli, run->answer);
	return client_check(run->answer, err);
}

static bool ends_with(const char *s, const char *end)
{
	size_t a = strlen(s), b = strlen(end);

	return a >= b && strcmp(s + a - b, end) == 0;
}

static int result_bytes(struct run *run, struct buf *out, struct err *err)
{
	const char *file = client_text(run->answer, "result_file");
	char *text;
	int ret;

	if (ends_with(run->result, ".pb")) {
		ret = io_read_file(AT_FDCWD, file, INT_MAX, out);
		return ret ? err_set(err, ret, "cannot read the result %s: %s", file,
				     strerror(-ret))
			   : 0;
	}
	text = json_dumps(json_object_get(run->answer, "result"), JSON_INDENT(2));
	if (!text)
		return out_of_memory(err);
	ret = buf_append_str(out, text);
	free(text);
	if (ret == 0)
		ret = buf_append_char(out, '\n');
	return ret ? out_of_memory(err) : 0;
}

/* Replaced whole where it is a file; a device or pipe is written to. */
static int write_result(struct run *run, struct err *err)
{
	auto_buf struct buf data = {0};
	auto_close int fd = -1;
	struct stat st;
	char *slash;
	int ret;

	if (!run->result)
		return 0;
	ret = result_bytes(run, &data, err);
	if (ret)
		return ret;
	if (stat(run->result, &st) == 0 && !S_ISREG(st.st_mode)) {
		fd = open(run->result, O_WRONLY | O_CLOEXEC);
		ret = fd < 0 ? -errno : io_write_full(fd, data.data, data.len);
	} else {
		slash = strrchr(run->result, '/');
		*slash = '\0';
		fd = open(slash == run->result ? "/" : run->result,
			  O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		*slash = '/';
		ret = fd < 0 ? -errno
			     : io_replace_file(fd, slash + 1, data.data, data.len, 0644, false);
	}
	return ret ? err_set(err, ret, "cannot write the result %s: %s", run->result,
			     strerror(-ret))
		   : 0;
}

/* What would be lost otherwise: that an output is missing, or where it went. */
static void print_outputs(struct run *run)
{
	for (size_t i = 0; i < run->outputs.nr; i++) {
		const char *path = run->outputs.out[i].path;
		const json_t *output = run_outputs_find(run->answer, path);

		if (!output)
			cli_warn(run->cli, "the command did not make the output %s%s", path,
				 run->into ? "; what was there stays" : "");
		else if (!run->into && !run->result)
			cli_warn(run->cli, "captured %s: %s", path,
				 strcmp(client_text(output, "kind"), "symlink") == 0
					 ? client_text(output, "target")
					 : client_text(output, "digest"));
	}
}

static int collect(struct run *run, struct err *err)
{
	int ret = finish(run, err);

	if (ret == 0)
		print_outputs(run);
	if (ret == 0 && run->into)
		ret = run_outputs_restore(local_store(run->local), run->into, &run->outputs,
					  run->answer, err);
	if (ret == 0)
		ret = write_result(run, err);
	return ret;
}

/* Everything between a mount and the exit status. */
static int run_in_sandbox(struct run *run, struct err *err)
{
	int ret = make_group(run, err);

	if (ret == 0 && run_signals_pending(&run->signals))
		ret = err_set(err, -EINTR, "interrupted before the command was started");
	if (ret == 0)
		ret = run_command(run, err);
	if (ret && run->child.exec_failed) {
		cli_warn(run->cli, "%s", err_text(err, ret));
		return run->child.status;
	}
	if (ret == 0)
		ret = collect(run, err);
	if (ret)
		return ret;
	if (run->child.timed_out) {
		cli_warn(run->cli, "ended after %" PRIu64 ".%03" PRIu64 " s (--timeout)",
			 run->args.timeout_ms / 1000, run->args.timeout_ms % 1000);
		return STATUS_TIMEOUT;
	}
	return run->child.status;
}

static int store_and_create(struct run *run, struct err *err)
{
	int ret = find_root(run, err);

	return ret ? ret : create_sandbox(run, err);
}

/*
 * With its root whole. That may go between being stored and being used: then again, at
 * last with eviction kept out.
 */
static int prepare_sandbox(struct run *run, struct err *err)
{
	struct cas_store *store = local_store(run->local);
	uint64_t epoch = cas_evict_epoch(store);
	bool barred = false;
	int ret = store_and_create(run, err);

	for (int tries = 2; (ret == -ENOENT || ret == -EIO) && run->args.input &&
			    tries <= EVICTED_TRIES && epoch != cas_evict_epoch(store);
	     tries++) {
		barred = tries == EVICTED_TRIES && cas_evict_bar(store) == 0;
		epoch = cas_evict_epoch(store);
		ret = store_and_create(run, err);
	}
	if (ret == 0)
		ret = restore_evicted(run, epoch, err);
	if (barred)
		cas_evict_unbar(store);
	return ret;
}

static void remove_sandbox(struct run *run)
{
	const char *const words[] = {"remove", run->id};
	struct err err = {0};
	int ret;

	if (run->client && run->id) {
		ret = client_ask(run->client, words, 2, 0, NULL, &err);
		if (ret && ret != -EINTR)
			cli_warn(run->cli, "the sandbox is left: %s", err_text(&err, ret));
	}
	client_close(run->client);
}

static int run_all(struct run *run, struct err *err)
{
	int ret = run_signals_init(&run->signals, err);

	if (ret == 0)
		ret = local_open(run->cli, LOCAL_RECORD, &run->local, err);
	/* The mount first: it then takes the rows of what is stored. */
	if (ret == 0)
		ret = connect_mount(run, err);
	if (ret == 0)
		ret = prepare_sandbox(run, err);
	if (ret == 0)
		ret = run_in_sandbox(run, err);
	remove_sandbox(run);
	cgroup_fini(&run->cgroup);
	local_close(run->local);
	return ret;
}

static void run_fini(struct run *run)
{
	cli_list_fini(&run->args.outputs);
	cli_list_fini(&run->args.env);
	fs_outputs_fini(&run->outputs);
	free(run->into);
	free(run->result);
	free(run->env);
	fs_findings_fini(&run->foreign);
	free(run->id);
	free(run->top);
	free(run->path);
	json_decref(run->answer);
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
