/* tools/run/run_mount.c - the mount that `run` works on, and its sandbox there */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/cmd/client.h"
#include "tools/cmd/local.h"
#include "tools/daemon.h"
#include "tools/run/run.h"

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
int run_connect(struct run *run, struct err *err)
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
	const char **words = calloc(16 + 2 * run->nr_asked, sizeof(*words));
	json_t *answer = NULL;
	size_t nr = 0;
	int ret;

	if (!words)
		return run_out_of_memory(err);
	words[nr++] = "create";
	words[nr++] = "--attach";
	words[nr++] = "--root";
	words[nr++] = run->root;
	words[nr++] = "--writable";
	words[nr++] = a->writable ? a->writable : "outputs";
	if (a->trace) {
		words[nr++] = "--trace";
		words[nr++] = a->trace;
	}
	words[nr++] = a->id ? "--id" : "--unlisted";
	if (a->id)
		words[nr++] = a->id;
	if (run->max_output[0]) {
		words[nr++] = "--max-output";
		words[nr++] = run->max_output;
		words[nr++] = "--under-quota";
	}
	for (size_t i = 0; i < run->nr_asked; i++) {
		words[nr++] = "--output";
		words[nr++] = run->asked[i];
	}
	ret = client_ask(run->client, words, nr, 0, &answer, err);
	free(words);
	if (ret)
		return ret;
	run->id = strdup(client_text(answer, "id"));
	run->top = strdup(client_text(answer, "path"));
	if (asprintf(&run->path, "%s%s%s", client_text(answer, "path"), run->workdir ? "/" : "",
		     run->workdir ? run->workdir : "") < 0)
		run->path = NULL;
	json_decref(answer);
	return run->id && run->top && run->path ? 0 : run_out_of_memory(err);
}

/* The mount may have ended after it was reached: once more, with a new one. */
int run_create_sandbox(struct run *run, struct err *err)
{
	int ret = create(run, err);

	for (int i = 0; i < 3 && (ret == -ENOTCONN || ret == -ESHUTDOWN) && !run->args.mount; i++) {
		client_close(run->client);
		run->client = NULL;
		ret = run_connect(run, err);
		if (ret == 0)
			ret = create(run, err);
	}
	return ret;
}

void run_remove_sandbox(struct run *run)
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
