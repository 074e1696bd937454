/* fs/control/control.c - run a line of the control file, and answer it */
#include "fs/control/control.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/message/proto_json.h"
#include "fs/report/events.h"
#include "fs/sandbox/sandbox.h"

int control_add(json_t *answer, const char *key, json_t *value)
{
	return json_object_set_new(answer, key, value) < 0 ? -ENOMEM : 0;
}

int control_parse_digest(const struct control_call *call, const char *text, struct cas_digest *out,
			 struct err *err)
{
	const char *name = call->req->command->name;
	uint8_t hash[CAS_HASH_SZ];
	int ret;

	if (cas_digest_parse(text, out) == 0)
		return 0;
	if (cas_hash_parse(text, strlen(text), hash) < 0)
		return err_set(err, -EINVAL, "%s: not a digest (HASH/SIZE): \"%.128s\"", name,
			       text);
	ret = cas_store_resolve(call->env->store, hash, out);
	if (ret == 0)
		ret = err_set(err, -ENOENT, "%s: no blob with the hash %s is known", name, text);
	return ret < 0 ? ret : 0;
}

int control_get_digest(const struct control_call *call, const char *opt, struct cas_digest *out,
		       struct err *err)
{
	return control_parse_digest(call, control_get(call->req, opt), out, err);
}

static const char intro[] =
	"Files of this directory, .casbox, which is the owner's:\n"
	"  control          takes a command a line, and gives a JSON object for each\n"
	"  events           a line for what happens; tail -f follows it\n"
	"  metrics          what was counted, for Prometheus\n"
	"  log-level        to be read, or written: error, warn, info, debug\n"
	"  config, version  what is in force, and who this is\n"
	"  sandboxes/ID/    status of each sandbox; what its action read and missed, if it was made\n"
	"                   with a trace: inputs-read inputs-unread lookups-failed missing writes\n"
	"Beside it: sandboxes/ID/, a blob's bytes as cas/file/HASH-SIZE, a tree as\n"
	"cas/directory/HASH-SIZE/, results of actions below ac/.\n\n"
	"A command and its answer go over one open file, in a shell:\n"
	"  exec 9<> control; echo list >&9; cat <&9\n"
	"`casbox ctl COMMAND...` does the same. Words are quoted as in a shell, or the line is an\n"
	"object: {\"command\":\"show\",\"id\":\"x\"}. \"ok\" in an answer is true, or false, with \"errno\"\n"
	"and \"error\".\n\n";

int control_help(const char *name, struct buf *out)
{
	int ret = name ? 0 : buf_append_str(out, intro);

	for (const struct control_command *c = control_commands; ret == 0 && c->name; c++) {
		if (name && strcmp(c->name, name) != 0)
			continue;
		ret = control_usage(c, out);
		if (ret == 0)
			ret = buf_printf(out, "\n    %s\n", c->summary);
	}
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
	     json_object_set_new(answer, "error", fs_json_text(err_text(err, code))) < 0))
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

void control_line_parse(struct control_line *line, const char *text, size_t len)
{
	line->code = control_parse(control_commands, text, len, &line->req, &line->err);
}

void control_line_fini(struct control_line *line)
{
	control_request_fini(&line->req);
}

int control_run(const struct control_env *env, struct control_attached *attached,
		const _Atomic bool *unwanted, struct control_line *line, struct buf *out)
{
	struct control_call call = {env, attached, &line->req, json_object(), unwanted};
	int code = line->code;
	int ret;

	/* First in the object, for those who read it; set for good at the end. */
	if (!call.answer || json_object_set_new(call.answer, "ok", json_false()) < 0) {
		json_decref(call.answer);
		return -ENOMEM;
	}
	if (code == 0)
		code = line->req.command->run(&call, &line->err);
	ret = append_answer(call.answer, code, &line->err, out);
	if (ret == -EINVAL)
		ret = control_refuse(code < 0 ? code : -EILSEQ,
				     "the answer holds a name that is not UTF-8", out);
	json_decref(call.answer);
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
		else if (ret == 0)
			fs_event(env->events, "sandbox-removed", "{s:s, s:s}", "id",
				 attached->ids[i], "why", "its client is gone");
		free(attached->ids[i]);
	}
	free(attached->ids);
	*attached = (struct control_attached){0};
}
