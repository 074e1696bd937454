/* fs/control/about.c - commands on the daemon itself */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/control/commands.h"
#include "fs/control/control.h"
#include "fs/report/report.h"

int control_version(struct control_call *call, struct err *err)
{
	const struct control_env *env = call->env;
	char store_version[] = CAS_LAYOUT_VERSION_LINE;

	store_version[strcspn(store_version, "\n")] = '\0';
	if (control_add(call->answer, "version", json_string(CASBOX_VERSION)) < 0 ||
	    control_add(call->answer, "store_version", json_string(store_version)) < 0 ||
	    control_add(call->answer, "store", json_string(cas_store_path(env->store))) < 0 ||
	    control_add(call->answer, "mountpoint", json_string(env->mountpoint)) < 0 ||
	    control_add(call->answer, "pid", json_integer(getpid())) < 0 ||
	    control_add(call->answer, "automatic", json_boolean(env->automatic)) < 0)
		return -ENOMEM;
	return 0;
}

int control_config(struct control_call *call, struct err *err)
{
	return call->env->config(call->env->ctx, call->answer);
}

int control_stats(struct control_call *call, struct err *err)
{
	return call->env->stats(call->env->ctx, call->answer);
}

int control_stop(struct control_call *call, struct err *err)
{
	return call->env->stop(call->env->ctx, control_has(call->req, "if-idle"),
			       control_has(call->req, "force"), err);
}

int control_log_level(struct control_call *call, struct err *err)
{
	const char *word = control_get(call->req, "level");

	/* The parser lets pass what is a level. */
	if (word)
		(void)fs_report_set_log_level(call->env->events, word, strlen(word));
	return control_add(call->answer, "level", json_string(log_level_name(log_get_level())));
}

static json_t *describe(const struct control_command *command)
{
	auto_buf struct buf usage = {0};

	if (control_usage(command, &usage) < 0)
		return NULL;
	return json_pack("{s:s, s:s, s:s}", "name", command->name, "usage", buf_str(&usage),
			 "summary", command->summary);
}

int control_help_command(struct control_call *call, struct err *err)
{
	const char *name = control_get(call->req, "command");
	auto_buf struct buf text = {0};
	json_t *list = json_array();
	int ret = list ? control_help(name, &text) : -ENOMEM;

	for (const struct control_command *c = control_commands; ret == 0 && c->name; c++) {
		if ((!name || strcmp(c->name, name) == 0) &&
		    json_array_append_new(list, describe(c)) < 0)
			ret = -ENOMEM;
	}
	if (ret == 0 && json_array_size(list) == 0)
		ret = err_set(err, -ENOENT, "help: no command \"%.64s\"; \"help\" lists them",
			      name);
	if (ret < 0) {
		json_decref(list);
		return ret;
	}
	ret = control_add(call->answer, "help", json_string(buf_str(&text)));
	return ret < 0 ? (json_decref(list), ret) : control_add(call->answer, "commands", list);
}
