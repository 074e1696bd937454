/* fs/control/control.c - the commands of the control file */
#include "fs/control/control.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/sandbox/sandbox.h"
#include "meta/meta.h"

static int set_new(json_t *object, const char *key, json_t *value)
{
	return json_object_set_new(object, key, value) < 0 ? -ENOMEM : 0;
}

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

static int parse_digest(const struct control_request *req, const char *opt, struct cas_digest *out,
			struct err *err)
{
	const char *text = control_get(req, opt);

	if (cas_digest_parse(text, out) < 0)
		return err_set(err, -EINVAL, "%s: --%s wants a digest (HASH/SIZE), not \"%.128s\"",
			       req->command->name, opt, text);
	return 0;
}

/* All values of @opt, borrowed from the request; the caller frees the array. NULL: no memory. */
static const char **values_of(const struct control_request *req, const char *opt, size_t *nr)
{
	const char **values = calloc(req->nr_items + 1, sizeof(*values));

	*nr = 0;
	for (size_t i = 0; values && i < req->nr_items; i++) {
		if (strcmp(req->items[i].opt->name, opt) == 0)
			values[(*nr)++] = req->items[i].value;
	}
	return values;
}

static int run_create(struct control_call *call, struct err *err)
{
	const struct control_request *req = call->req;
	auto_free const char **outputs = NULL;
	auto_free char *id = NULL;
	auto_free char *path = NULL;
	struct fs_sandbox_spec spec = {
		.id = control_get(req, "id"),
		.unlisted = control_has(req, "unlisted"),
		.attached = control_has(req, "attach"),
	};
	int ret = parse_digest(req, "root", &spec.root, err);

	if (ret == 0)
		ret = parse_writable(control_get(req, "writable"), &spec.writable, err);
	if (ret == 0) {
		spec.outputs = outputs = values_of(req, "output", &spec.nr_outputs);
		ret = outputs ? 0 : -ENOMEM;
	}
	if (ret == 0)
		ret = fs_sandbox_create(call->env->sandboxes, &spec, &id, &path, err);
	if (ret < 0)
		return ret;
	if (control_has(req, "attach"))
		ret = attach(call->attached, id);
	if (ret == 0)
		ret = set_new(call->answer, "id", json_string(id));
	if (ret == 0)
		ret = set_new(call->answer, "path", json_string(path));
	return ret;
}

static int finish_spec(const struct control_request *req, struct fs_finish_spec *spec,
		       struct err *err)
{
	int64_t exit_code = 0;
	int ret = control_get_number(req, "exit-code", INT32_MIN, INT32_MAX, &exit_code, err);

	spec->exit_code = (int)exit_code;
	spec->has_stdout = control_has(req, "stdout");
	spec->has_stderr = control_has(req, "stderr");
	if (ret == 0 && spec->has_stdout)
		ret = parse_digest(req, "stdout", &spec->stdout_digest, err);
	if (ret == 0 && spec->has_stderr)
		ret = parse_digest(req, "stderr", &spec->stderr_digest, err);
	if (ret == 0)
		ret = control_get_number(req, "start", 0, INT64_MAX, &spec->start_ns, err);
	if (ret == 0)
		ret = control_get_number(req, "end", 0, INT64_MAX, &spec->end_ns, err);
	spec->remove = control_has(req, "remove");
	return ret;
}

static int run_finish(struct control_call *call, struct err *err)
{
	const char *id = control_get(call->req, "id");
	struct fs_finish_spec spec = {0};
	json_t *answer = NULL;
	auto_free const char **mounted = values_of(call->req, "mounted", &spec.nr_mounted);
	int ret = mounted ? finish_spec(call->req, &spec, err) : -ENOMEM;

	if (ret < 0)
		return ret;
	spec.mounted = mounted;
	ret = fs_sandbox_finish(call->env->sandboxes, id, &spec, &answer, err);
	if (ret == 0 && spec.remove)
		detach(call->attached, id);
	/* A failed finish may still have an answer, which tells what was captured. */
	if (answer && json_object_update(call->answer, answer) < 0 && ret == 0)
		ret = -ENOMEM;
	json_decref(answer);
	return ret;
}

static int run_remove(struct control_call *call, struct err *err)
{
	const char *id = control_get(call->req, "id");
	int ret = fs_sandbox_remove(call->env->sandboxes, id, err);

	if (ret == 0)
		detach(call->attached, id);
	return ret;
}

static int run_list(struct control_call *call, struct err *err)
{
	json_t *list = NULL;
	int ret = fs_sandboxes_describe(call->env->sandboxes, &list, err);

	return ret < 0 ? ret : set_new(call->answer, "sandboxes", list);
}

static int run_show(struct control_call *call, struct err *err)
{
	json_t *sandbox = NULL;
	int ret =
		fs_sandbox_show(call->env->sandboxes, control_get(call->req, "id"), &sandbox, err);

	return ret < 0 ? ret : set_new(call->answer, "sandbox", sandbox);
}

static int run_cgroup(struct control_call *call, struct err *err)
{
	return fs_sandbox_set_cgroup(call->env->sandboxes, control_get(call->req, "id"),
				     control_get(call->req, "path"), err);
}

static int run_rows(struct control_call *call, struct err *err)
{
	const char *rows = control_get(call->req, "rows");

	return meta_rows_apply(call->env->meta, rows, strlen(rows), err);
}

static int run_sync(struct control_call *call, struct err *err)
{
	const struct cas_catalog *catalog = cas_store_catalog(call->env->store);
	int ret = cas_store_sync(call->env->store, err);

	return ret < 0 ? ret : catalog->ops->flush(catalog->ctx, err);
}

static int run_reconcile(struct control_call *call, struct err *err)
{
	struct meta_reconcile_result result = {0};
	json_t *counts;
	int ret = meta_reconcile(call->env->meta, &result, err);

	if (ret < 0)
		return ret;
	counts = json_pack("{s:I, s:I, s:I}", "adopted", (json_int_t)result.adopted, "dropped",
			   (json_int_t)result.dropped, "resized", (json_int_t)result.resized);
	ret = counts && json_object_update(call->answer, counts) == 0 ? 0 : -ENOMEM;
	json_decref(counts);
	return ret;
}

static int run_version(struct control_call *call, struct err *err)
{
	const struct control_env *env = call->env;
	char store_version[] = CAS_LAYOUT_VERSION_LINE;

	store_version[strcspn(store_version, "\n")] = '\0';
	if (set_new(call->answer, "version", json_string(CASBOX_VERSION)) < 0 ||
	    set_new(call->answer, "store_version", json_string(store_version)) < 0 ||
	    set_new(call->answer, "store", json_string(cas_store_path(env->store))) < 0 ||
	    set_new(call->answer, "mountpoint", json_string(env->mountpoint)) < 0 ||
	    set_new(call->answer, "pid", json_integer(getpid())) < 0 ||
	    set_new(call->answer, "automatic", json_boolean(env->automatic)) < 0)
		return -ENOMEM;
	return 0;
}

static int run_config(struct control_call *call, struct err *err)
{
	return call->env->config(call->env->ctx, call->answer);
}

static int run_stats(struct control_call *call, struct err *err)
{
	return call->env->stats(call->env->ctx, call->answer);
}

static int run_stop(struct control_call *call, struct err *err)
{
	return call->env->stop(call->env->ctx, control_has(call->req, "if-idle"),
			       control_has(call->req, "force"), err);
}

static int run_help(struct control_call *call, struct err *err)
{
	auto_buf struct buf text = {0};
	int ret = control_help(&text);

	return ret < 0 ? ret : set_new(call->answer, "help", json_string(buf_str(&text)));
}

#define ID_WORD                                                                                    \
	{                                                                                          \
		"id", CONTROL_OPT_VALUE | CONTROL_OPT_POSITIONAL | CONTROL_OPT_REQUIRED            \
	}

static const struct control_opt opts_none[] = {{NULL, 0}};
static const struct control_opt opts_id[] = {ID_WORD, {NULL, 0}};
static const struct control_opt opts_create[] = {
	{"root", CONTROL_OPT_VALUE | CONTROL_OPT_REQUIRED},
	{"id", CONTROL_OPT_VALUE},
	{"output", CONTROL_OPT_VALUE | CONTROL_OPT_MULTI},
	{"writable", CONTROL_OPT_VALUE},
	{"attach", 0},
	{"unlisted", 0},
	{NULL, 0},
};
static const struct control_opt opts_finish[] = {
	ID_WORD,
	{"exit-code", CONTROL_OPT_VALUE},
	{"stdout", CONTROL_OPT_VALUE},
	{"stderr", CONTROL_OPT_VALUE},
	{"start", CONTROL_OPT_VALUE},
	{"end", CONTROL_OPT_VALUE},
	{"mounted", CONTROL_OPT_VALUE | CONTROL_OPT_MULTI},
	{"remove", 0},
	{NULL, 0},
};
static const struct control_opt opts_cgroup[] = {
	ID_WORD,
	{"path", CONTROL_OPT_VALUE | CONTROL_OPT_POSITIONAL},
	{NULL, 0},
};
static const struct control_opt opts_rows[] = {
	{"rows", CONTROL_OPT_VALUE | CONTROL_OPT_POSITIONAL | CONTROL_OPT_REQUIRED},
	{NULL, 0},
};
static const struct control_opt opts_stop[] = {{"if-idle", 0}, {"force", 0}, {NULL, 0}};
static const struct control_opt opts_gc[] = {
	{"max-size", CONTROL_OPT_VALUE | CONTROL_OPT_REQUIRED},
	{"dry-run", 0},
	{NULL, 0},
};

const struct control_command control_commands[] = {
	{"create",
	 "create --root DIGEST [--id ID] [--output PATH]... [--writable outputs|dirs|all]\n"
	 "    [--attach] [--unlisted]",
	 "make a sandbox; answers id and path", opts_create, run_create},
	{"finish",
	 "finish ID [--exit-code N] [--stdout DIGEST] [--stderr DIGEST] [--start NS] [--end NS]\n"
	 "    [--mounted TYPE:PATH]... [--remove]",
	 "freeze and capture; answers the result", opts_finish, run_finish},
	{"remove", "remove ID", "forget a sandbox and its files", opts_id, run_remove},
	{"list", "list", "all sandboxes", opts_none, run_list},
	{"show", "show ID", "one sandbox", opts_id, run_show},
	{"cgroup", "cgroup ID [PATH]", "the control group that ends with the sandbox, or none",
	 opts_cgroup, run_cgroup},
	{"gc", "gc --max-size BYTES [--dry-run]", "evict until the store is that small", opts_gc,
	 control_gc},
	{"rows", "rows TEXT", "take rows of index and ledger from another process", opts_rows,
	 run_rows},
	{"reconcile", "reconcile", "make index and ledger agree with the files", opts_none,
	 run_reconcile},
	{"sync", "sync", "make what was put durable and recorded", opts_none, run_sync},
	{"version", "version", "of program and store; who serves", opts_none, run_version},
	{"config", "config", "what was found and is in force", opts_none, run_config},
	{"stats", "stats", "what was counted since the mount began", opts_none, run_stats},
	{"stop", "stop [--if-idle] [--force]", "end the mount", opts_stop, run_stop},
	{"help", "help", "this text", opts_none, run_help},
	{NULL, NULL, NULL, NULL, NULL},
};

int control_help(struct buf *out)
{
	int ret = buf_append_str(out, "Write a line to control, read one JSON object from the same "
				      "open file.\n");

	for (const struct control_command *c = control_commands; ret == 0 && c->name; c++)
		ret = buf_printf(out, "%s\n    %s\n", c->usage, c->summary);
	return ret;
}

static int append_answer(json_t *answer, int code, struct err *err, struct buf *out)
{
	char *text;
	int ret;

	if (json_object_set_new(answer, "ok", json_boolean(code == 0)) < 0)
		return -ENOMEM;
	if (code < 0 &&
	    (json_object_set_new(answer, "errno", json_string(err_name(code))) < 0 ||
	     json_object_set_new(answer, "error", json_string_nocheck(err_text(err, code))) < 0))
		return -ENOMEM;
	text = json_dumps(answer, JSON_COMPACT | JSON_ENSURE_ASCII);
	if (!text)
		return -EINVAL;
	ret = buf_append_str(out, text);
	free(text);
	return ret < 0 ? ret : buf_append_char(out, '\n');
}

int control_refuse(int code, const char *why, struct buf *out)
{
	struct err err = {0};
	json_t *answer = json_object();
	int ret;

	if (!answer)
		return -ENOMEM;
	(void)err_set(&err, code, "%s", why);
	ret = append_answer(answer, code, &err, out);
	json_decref(answer);
	return ret;
}

int control_run(const struct control_env *env, struct control_attached *attached, const char *line,
		size_t len, struct buf *out)
{
	struct err err = {0};
	struct control_request req = {0};
	struct control_call call = {env, attached, &req, json_object()};
	int code = control_parse(control_commands, line, len, &req, &err);
	int ret;

	/* First in the object, for those who read it; set for good at the end. */
	if (!call.answer || json_object_set_new(call.answer, "ok", json_false()) < 0) {
		json_decref(call.answer);
		control_request_fini(&req);
		return -ENOMEM;
	}
	if (code == 0)
		code = req.command->run(&call, &err);
	ret = append_answer(call.answer, code, &err, out);
	if (ret == -EINVAL)
		ret = control_refuse(code < 0 ? code : -EILSEQ,
				     "the answer holds a name that is not UTF-8", out);
	json_decref(call.answer);
	control_request_fini(&req);
	return ret;
}

void control_abandon(const struct control_env *env, struct control_attached *attached)
{
	for (size_t i = 0; i < attached->nr; i++) {
		struct err err = {0};
		int ret = fs_sandbox_remove(env->sandboxes, attached->ids[i], &err);

		if (ret < 0 && ret != -ENOENT)
			log_error("cannot remove sandbox %s, whose client is gone: %s",
				  attached->ids[i], err_text(&err, ret));
		free(attached->ids[i]);
	}
	free(attached->ids);
	*attached = (struct control_attached){0};
}
