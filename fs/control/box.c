/* fs/control/box.c - commands on sandboxes */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/control/commands.h"
#include "fs/control/control.h"
#include "fs/report/events.h"
#include "fs/sandbox/sandbox.h"

static int attach(struct control_attached *attached, const char *id)
{
	char **ids = realloc(attached->ids, (attached->nr + 1) * sizeof(*ids));

	if (!ids)
		return -ENOMEM;
	attached->ids = ids;
	ids[attached->nr] = strdup(id);
	if (!ids[attached->nr])
		return -ENOMEM;
	attached->nr++;
	return 0;
}

static void detach(struct control_attached *attached, const char *id)
{
	for (size_t i = 0; i < attached->nr; i++) {
		if (strcmp(attached->ids[i], id) != 0)
			continue;
		free(attached->ids[i]);
		attached->ids[i] = attached->ids[--attached->nr];
		return;
	}
}

static int parse_writable(const char *word, enum fs_writable *out, struct err *err)
{
	if (!word || strcmp(word, "outputs") == 0)
		*out = FS_WRITABLE_OUTPUTS;
	else if (strcmp(word, "dirs") == 0)
		*out = FS_WRITABLE_DIRS;
	else if (strcmp(word, "all") == 0)
		*out = FS_WRITABLE_ALL;
	else
		return err_set(err, -EINVAL,
			       "create: --writable wants outputs, dirs or all, not \"%.64s\"",
			       word);
	return 0;
}

static int parse_trace(const char *word, enum fs_trace_kind *out, struct err *err)
{
	if (!word || fs_trace_kind_parse(word, out) == 0)
		return 0;
	return err_set(err, -EINVAL,
		       "create: --trace wants off, names, reads or exact, not \"%.64s\"", word);
}

static int parse_max_output(const char *word, struct fs_sandbox_spec *spec, struct err *err)
{
	char *end = NULL;

	if (!word)
		return 0;
	errno = 0;
	spec->max_bytes = strtoull(word, &end, 10);
	if (*end == ',' && end > word && end[1] >= '0' && end[1] <= '9')
		spec->max_files = strtoull(end + 1, &end, 10);
	if (errno || *end || word[0] < '0' || word[0] > '9' || spec->max_bytes > INT64_MAX / 2 ||
	    spec->max_files > INT32_MAX || (spec->max_bytes == 0 && spec->max_files == 0))
		return err_set(err, -EINVAL,
			       "create: --max-output wants BYTES or BYTES,FILES, not \"%.64s\"",
			       word);
	return 0;
}

/* It may wait for Directories from tiers, but only for somebody. */
static int create(const struct control_call *call, const struct fs_sandbox_spec *spec, char **id,
		  char **path, struct err *err)
{
	int ret;

	cas_fetch_here_until(call->unwanted);
	ret = fs_sandbox_create(call->env->sandboxes, spec, id, path, err);
	cas_fetch_here_until(NULL);
	if (ret == -ECANCELED && atomic_load(call->env->ending))
		return err_set(err, -ESHUTDOWN, "the mount is ending");
	return ret;
}

int control_create(struct control_call *call, struct err *err)
{
	const struct control_request *req = call->req;
	auto_free const char **outputs = NULL;
	auto_free char *id = NULL;
	auto_free char *path = NULL;
	struct fs_sandbox_spec spec = {
		.id = control_get(req, "id"),
		.unlisted = control_has(req, "unlisted"),
		.attached = control_has(req, "attach"),
		.under_quota = control_has(req, "under-quota"),
	};
	int ret = control_get_digest(call, "root", &spec.root, err);

	if (ret == 0)
		ret = parse_writable(control_get(req, "writable"), &spec.writable, err);
	if (ret == 0)
		ret = parse_trace(control_get(req, "trace"), &spec.trace, err);
	if (ret == 0)
		ret = parse_max_output(control_get(req, "max-output"), &spec, err);
	if (ret == 0) {
		spec.outputs = outputs = control_values(req, "output", &spec.nr_outputs);
		ret = outputs ? 0 : -ENOMEM;
	}
	if (ret == 0)
		ret = create(call, &spec, &id, &path, err);
	if (ret < 0)
		return ret;
	fs_event(call->env->events, "sandbox-created", "{s:s, s:s, s:b}", "id", id, "root",
		 CAS_DIGEST_TEXT(&spec.root), "attached", (int)spec.attached);
	if (control_has(req, "attach"))
		ret = attach(call->attached, id);
	if (ret == 0)
		ret = control_add(call->answer, "id", json_string(id));
	if (ret == 0)
		ret = control_add(call->answer, "path", json_string(path));
	return ret;
}

static int finish_spec(const struct control_call *call, struct fs_finish_spec *spec,
		       struct err *err)
{
	const struct control_request *req = call->req;
	int64_t exit_code = 0;
	int ret = control_get_number(req, "exit-code", INT32_MIN, INT32_MAX, &exit_code, err);

	spec->exit_code = (int)exit_code;
	spec->has_stdout = control_has(req, "stdout");
	spec->has_stderr = control_has(req, "stderr");
	if (ret == 0 && spec->has_stdout)
		ret = control_get_digest(call, "stdout", &spec->stdout_digest, err);
	if (ret == 0 && spec->has_stderr)
		ret = control_get_digest(call, "stderr", &spec->stderr_digest, err);
	if (ret == 0)
		ret = control_get_number(req, "start", 0, INT64_MAX, &spec->start_ns, err);
	if (ret == 0)
		ret = control_get_number(req, "end", 0, INT64_MAX, &spec->end_ns, err);
	spec->remove = control_has(req, "remove");
	return ret;
}

static void tell_finished(const struct control_call *call, const char *id,
			  const struct fs_finish_spec *spec, int ret, const json_t *answer)
{
	struct fs_events *events = call->env->events;

	/* What never was is no news. */
	if (ret == -ENOENT || ret == -EINVAL)
		return;
	if (ret < 0) {
		fs_event(events, "sandbox-failed", "{s:s, s:s, s:s}", "id", id, "command", "finish",
			 "errno", err_name(ret));
		return;
	}
	fs_event(events, "sandbox-finished", "{s:s, s:i, s:I}", "id", id, "exit_code",
		 spec->exit_code, "outputs",
		 (json_int_t)json_array_size(json_object_get(answer, "outputs")));
	if (spec->remove)
		fs_event(events, "sandbox-removed", "{s:s}", "id", id);
}

static int vouch(const struct control_call *call, const char *id, struct err *err)
{
	return control_has(call->req, "alone") ? fs_sandbox_vouch(call->env->sandboxes, id, err)
					       : 0;
}

int control_finish(struct control_call *call, struct err *err)
{
	const char *id = control_get(call->req, "id");
	struct fs_finish_spec spec = {0};
	json_t *answer = NULL;
	auto_free const char **mounted = control_values(call->req, "mounted", &spec.nr_mounted);
	int ret = mounted ? finish_spec(call, &spec, err) : -ENOMEM;

	if (ret == 0)
		ret = vouch(call, id, err);
	if (ret < 0)
		return ret;
	spec.mounted = mounted;
	spec.left = &call->attached->left;
	ret = fs_sandbox_finish(call->env->sandboxes, id, &spec, &answer, err);
	tell_finished(call, id, &spec, ret, answer);
	if (ret == 0 && spec.remove)
		detach(call->attached, id);
	/* A failed finish may still have an answer, which tells what was captured. */
	if (answer && json_object_update(call->answer, answer) < 0 && ret == 0)
		ret = -ENOMEM;
	json_decref(answer);
	return ret;
}

int control_remove(struct control_call *call, struct err *err)
{
	const char *id = control_get(call->req, "id");
	int ret = vouch(call, id, err);

	if (ret == 0)
		ret = fs_sandbox_remove(call->env->sandboxes, id, err);

	if (ret < 0)
		return ret;
	detach(call->attached, id);
	fs_event(call->env->events, "sandbox-removed", "{s:s}", "id", id);
	return 0;
}

int control_list(struct control_call *call, struct err *err)
{
	json_t *list = NULL;
	int ret = fs_sandboxes_describe(call->env->sandboxes, &list, err);

	return ret < 0 ? ret : control_add(call->answer, "sandboxes", list);
}

int control_show(struct control_call *call, struct err *err)
{
	json_t *sandbox = NULL;
	int ret =
		fs_sandbox_show(call->env->sandboxes, control_get(call->req, "id"), &sandbox, err);

	return ret < 0 ? ret : control_add(call->answer, "sandbox", sandbox);
}

int control_trace(struct control_call *call, struct err *err)
{
	json_t *trace = NULL;
	int ret =
		fs_trace_describe(call->env->sandboxes, control_get(call->req, "id"), &trace, err);

	if (ret == 0 && json_object_update(call->answer, trace) < 0)
		ret = -ENOMEM;
	json_decref(trace);
	return ret;
}

int control_cgroup(struct control_call *call, struct err *err)
{
	return fs_sandbox_set_cgroup(call->env->sandboxes, control_get(call->req, "id"),
				     control_get(call->req, "path"), err);
}
