/* tools/run/run_action.c - `run --action`: what a stored Action asks, and how it wants it told */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "tools/cmd/client.h"
#include "tools/cmd/local.h"
#include "tools/cmd/sandbox.h"
#include "tools/run/run.h"

/*
 * The sandbox knows its outputs by their paths from the root, without detours; an Action
 * names them from its working directory, as it likes. @roots and @given are the two, and
 * tell each other apart by index.
 */
struct run_action {
	struct cas_digest digest;
	struct cas_action action;
	struct cas_command command;
	char **roots; /* as create takes them */
	struct cas_result_path *paths;
	size_t nr;
};

void run_action_free(struct run_action *action)
{
	if (!action)
		return;
	for (size_t i = 0; i < action->nr; i++) {
		free(action->roots[i]);
		free((char *)(uintptr_t)action->paths[i].from);
	}
	free(action->roots);
	free(action->paths);
	cas_command_fini(&action->command);
	free(action);
}

/* The path of output @i from the root, as given and as the result will have it. */
static int map_output(struct run_action *a, size_t i, struct err *err)
{
	const char *dir = a->command.workdir, *given = a->command.outputs[i];
	struct fs_outputs one = {0};
	const char *word;
	int ret;

	/* Without the slash that would have it made beforehand. */
	if (asprintf(&a->roots[i], "%s%s%s", dir, dir[0] && given[0] ? "/" : "", given) < 0) {
		a->roots[i] = NULL;
		return run_out_of_memory(err);
	}
	for (size_t len = strlen(a->roots[i]); len > 0 && a->roots[i][len - 1] == '/'; len--)
		a->roots[i][len - 1] = '\0';
	word = a->roots[i];
	ret = fs_outputs_parse(&word, 1, &one, err);
	if (ret)
		return ret;
	a->paths[i] = (struct cas_result_path){strdup(one.out[0].path), given};
	fs_outputs_fini(&one);
	return a->paths[i].from ? 0 : run_out_of_memory(err);
}

static int map_outputs(struct run_action *a, struct err *err)
{
	size_t nr = a->command.nr_outputs;
	int ret = 0;

	a->roots = calloc(nr + 1, sizeof(*a->roots));
	a->paths = calloc(nr + 1, sizeof(*a->paths));
	if (!a->roots || !a->paths)
		return run_out_of_memory(err);
	for (size_t i = 0; i < nr && ret == 0; i++) {
		a->nr = i + 1;
		ret = map_output(a, i, err);
	}
	return ret;
}

int run_action_load(struct run *run, struct err *err)
{
	struct run_action *a = calloc(1, sizeof(*a));
	char text[CAS_DIGEST_STR_SZ];
	int ret;

	if (!a)
		return run_out_of_memory(err);
	run->action = a;
	ret = sandbox_digest(run->cli, run->args.action, text, err);
	if (ret == 0 && cas_digest_parse(text, &a->digest))
		ret = -EINVAL;
	if (ret == 0)
		ret = cas_action_load(local_store(run->local), &a->digest, &a->action, &a->command,
				      err);
	if (ret == 0)
		ret = map_outputs(a, err);
	if (ret)
		return ret;
	/* The words had none. */
	fs_outputs_fini(&run->outputs);
	ret = fs_outputs_parse((const char *const *)a->roots, a->nr, &run->outputs, err);
	if (ret)
		return ret;
	run->argv = a->command.argv;
	run->command_env = a->command.env;
	run->workdir = a->command.workdir[0] ? a->command.workdir : NULL;
	run->asked = (const char *const *)a->roots;
	run->nr_asked = a->nr;
	if (a->action.timeout_ms && (!run->timeout_ms || a->action.timeout_ms < run->timeout_ms))
		run->timeout_ms = a->action.timeout_ms;
	(void)cas_digest_format(&a->action.root, '/', run->root);
	run->key = a->digest;
	run->has_key = !a->action.do_not_cache;
	return 0;
}

int run_action_shape(struct run *run, struct err *err)
{
	const struct run_action *a = run->action;
	struct buf told = {0};
	int ret = cas_result_shape(run->binary.data, run->binary.len, a->paths, a->nr,
				   a->command.format, &told, err);

	if (ret) {
		buf_fini(&told);
		return ret;
	}
	buf_fini(&run->binary);
	run->binary = told;
	return 0;
}

void run_action_unmap(struct run *run, struct cas_result *result)
{
	const struct run_action *a = run->action;

	for (size_t i = 0; i < result->nr; i++) {
		for (size_t j = 0; j < a->nr; j++) {
			char *path = NULL;

			if (strcmp(result->outputs[i].path, a->paths[j].to) == 0)
				path = strdup(a->paths[j].from);
			if (!path)
				continue;
			free(result->outputs[i].path);
			result->outputs[i].path = path;
			break;
		}
	}
}

/* Was everything made that was declared, and could all of it be captured? */
static bool is_whole(const struct run *run)
{
	if (json_array_size(json_object_get(run->answer, "failed")) > 0)
		return false;
	return json_array_size(json_object_get(run->answer, "outputs")) == run->outputs.nr;
}

int run_action_store(struct run *run, struct err *err)
{
	bool same = false;
	int ret;

	if (run->child.status != 0 || run->child.timed_out || run->child.cut || run->limited ||
	    !is_whole(run))
		return 0;
	ret = run_cache_check(run, &same, err);
	if (ret || !same)
		return ret;
	/* What it names first: it is to outlive a power cut only with them. */
	ret = local_sync(run->local, err);
	if (ret == 0)
		ret = cas_store_action_put(local_store(run->local), &run->key, run->binary.data,
					   run->binary.len, err);
	return ret ? ret : local_sync(run->local, err);
}
