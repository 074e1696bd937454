/* fs/report/report.c - what a daemon tells of itself */
#include "fs/report/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/control/control.h"
#include "fs/node/inode.h"
#include "fs/report/events.h"
#include "fs/serve/session.h"

json_int_t fs_report_nodes(const struct fs_session *session)
{
	return session ? (json_int_t)fs_inode_count(session->table) : 0;
}

int fs_report_session(const struct fs_session *session, json_t *out)
{
	json_t *upcalls;
	json_t *o;

	if (!session)
		return 0;
	upcalls = json_object();
	o = json_pack("{s:I, s:o}", "nodes", fs_report_nodes(session), "upcalls", upcalls);
	if (!o || json_object_set_new(out, session->opts.name, o) < 0)
		return -ENOMEM;
	return fs_wire_report(&session->wire, upcalls);
}

int fs_report_lines(const json_t *o, struct buf *out)
{
	const char *key;
	json_t *value;
	int ret = 0;

	json_object_foreach((json_t *)o, key, value)
	{
		char *text = json_is_string(value)
				     ? NULL
				     : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);

		if (ret == 0)
			ret = buf_printf(out, "%s = %s\n", key,
					 text ? text : json_string_value(value));
		free(text);
	}
	return ret;
}

int fs_report_help(void *ctx, struct buf *out)
{
	(void)ctx;
	return control_help(NULL, out);
}

int fs_report_version(void *ctx, struct buf *out)
{
	(void)ctx;
	return buf_printf(out, "casbox %s\n%s", CASBOX_VERSION, CAS_LAYOUT_VERSION_LINE);
}

int fs_report_log_level(void *ctx, struct buf *out)
{
	(void)ctx;
	return buf_printf(out, "%s\n", log_level_name(log_get_level()));
}

int fs_report_set_log_level(struct fs_events *events, const char *data, size_t len)
{
	enum log_level before = log_get_level();
	enum log_level level;
	char word[16];

	while (len > 0 && (data[len - 1] == '\n' || data[len - 1] == ' '))
		len--;
	if (len >= sizeof(word))
		return -EINVAL;
	memcpy(word, data, len);
	word[len] = '\0';
	if (strlen(word) != len || log_level_parse(word, &level) < 0)
		return -EINVAL;
	log_set_level(level);
	if (level != before)
		fs_event(events, "log-level", "{s:s, s:s}", "level", log_level_name(level),
			 "before", log_level_name(before));
	return 0;
}
