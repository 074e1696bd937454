/* tools/run/run_result.c - what a run has made, to where it belongs */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/capture/result.h"
#include "tools/cmd/client.h"
#include "tools/cmd/local.h"
#include "tools/cmd/sandbox.h"
#include "tools/run/run.h"
#include "tools/run/run_outputs.h"

/*
 * A command cannot hold a newline and what is not UTF-8 at once: the directory above a name with
 * a newline stands for it.
 */
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
	ret = ret ? run_out_of_memory(err)
		  : client_call(run->client, words, nr, 0, &run->answer, err);
	for (size_t i = 0; mounted && i < run->foreign.nr; i++)
		free(mounted[i]);
	return ret;
}

static int finish(struct run *run, struct err *err)
{
	const struct run_child_result *c = &run->child;
	char code[16], start[32], end[32], out[CAS_DIGEST_STR_SZ], error[CAS_DIGEST_STR_SZ];
	const char *const fixed[] = {"finish", run->id, "--exit-code", code,	 "--start",
				     start,    "--end", end,	       "--alone"};
	auto_free const char **words = calloc(13 + 2 * run->foreign.nr, sizeof(*words));
	const json_t *limit;
	size_t nr = 9; /* what it left was ended: nobody is inside */
	size_t i;
	int ret;

	if (!words)
		return run_out_of_memory(err);
	memcpy(words, fixed, sizeof(fixed));

	(void)snprintf(code, sizeof(code), "%d", c->timed_out ? RUN_STATUS_TIMEOUT : c->status);
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
	json_array_foreach(json_object_get(run->answer, "limits"), i, limit) run->limited |=
		json_is_true(json_object_get(limit, "reached"));
	return client_check(run->answer, err);
}

static bool ends_with(const char *s, const char *end)
{
	size_t a = strlen(s), b = strlen(end);

	return a >= b && strcmp(s + a - b, end) == 0;
}

/* The ActionResult as the daemon made it, or as the Action wants it told. */
static int read_result(struct run *run, struct err *err)
{
	const char *file = client_text(run->answer, "result_file");
	int ret = io_read_file(AT_FDCWD, file, INT_MAX, &run->binary);

	if (ret)
		return err_set(err, ret, "cannot read the result %s: %s", file, strerror(-ret));
	ret = cas_result_add_limits(&run->binary, run->told, run->nr_told, err);
	return ret == 0 && run->action ? run_action_shape(run, err) : ret;
}

static int result_text(struct run *run, struct buf *out, struct err *err)
{
	static const struct fs_outputs none;
	json_t *answer = NULL;
	char *text = NULL;
	int ret =
		fs_result_answer(buf_str(&run->binary), run->binary.len, &none, NULL, &answer, err);

	if (ret)
		return ret;
	text = json_dumps(json_object_get(answer, "result"), JSON_INDENT(2));
	json_decref(answer);
	ret = text ? buf_append_str(out, text) : -ENOMEM;
	free(text);
	if (ret == 0)
		ret = buf_append_char(out, '\n');
	return ret ? run_out_of_memory(err) : 0;
}

static int result_bytes(struct run *run, struct buf *out, struct err *err)
{
	int ret;

	if (!ends_with(run->result, ".pb"))
		return result_text(run, out, err);
	ret = buf_append(out, run->binary.data, run->binary.len);
	return ret ? run_out_of_memory(err) : 0;
}

/* Replaced whole where it is a file; a device or pipe is written to. */
int run_write_result(struct run *run, struct err *err)
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

int run_collect(struct run *run, struct err *err)
{
	int ret = finish(run, err);

	if (ret == 0)
		ret = run_write_trace(run, err);
	else if (run->answer)
		(void)run_write_trace(run, NULL); /* it was refused: what it did tells why */
	if (ret == 0)
		print_outputs(run);
	if (ret == 0 && run->into)
		ret = run_outputs_restore(local_store(run->local), run->into, &run->outputs,
					  run->answer, false, err);
	if (ret == 0 && (run->result || run->has_key))
		ret = read_result(run, err);
	if (ret == 0 && run->has_key)
		ret = run_action_store(run, err);
	if (ret == 0)
		ret = run_write_result(run, err);
	return ret;
}
