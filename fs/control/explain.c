/* fs/control/explain.c - commands that explain */
#include <errno.h>

#include "cas/cas.h"
#include "fs/control/commands.h"
#include "fs/control/control.h"
#include "fs/explain/explain.h"
#include "fs/explain/spot.h"

#define CHANGES_MAX 10000

int control_explain(struct control_call *call, struct err *err)
{
	const struct fs_explain ex = {
		.store = call->env->store,
		.meta = call->env->meta,
		.sandboxes = call->env->sandboxes,
	};
	auto_buf struct buf words = {0};
	json_t *facts = NULL;
	int ret;

	/* What was brought or put just now is known once it is recorded. */
	(void)cas_store_sync(call->env->store, NULL);
	ret = fs_explain(&ex, control_get(call->req, "what"), control_get(call->req, "path"),
			 &facts, err);
	if (ret == 0)
		ret = fs_explain_words(facts, &words);
	if (ret == 0)
		ret = control_add(call->answer, "words", json_string(buf_str(&words)));
	if (ret == 0)
		ret = control_add(call->answer, "facts", json_incref(facts));
	json_decref(facts);
	return ret;
}

int control_diff(struct control_call *call, struct err *err)
{
	struct meta_changes changes = {0};
	json_t *list = NULL;
	int ret = fs_spot_diff(call->env->store, call->env->meta, control_get(call->req, "a"),
			       control_get(call->req, "b"), control_has(call->req, "recursive"),
			       CHANGES_MAX, &changes, err);

	if (ret < 0)
		return ret;
	list = json_array();
	ret = list ? 0 : -ENOMEM;
	for (size_t i = 0; ret == 0 && i < changes.nr; i++)
		ret = json_array_append_new(list, fs_change_describe(&changes.list[i])) < 0
			      ? -ENOMEM
			      : 0;
	if (ret == 0)
		ret = control_add(call->answer, "same", json_boolean(changes.nr == 0));
	if (ret == 0)
		ret = control_add(call->answer, "cut", json_boolean(changes.cut));
	if (ret == 0)
		ret = control_add(call->answer, "changes", json_incref(list));
	json_decref(list);
	meta_changes_fini(&changes);
	return ret;
}
