/* fs/trace/text.c - what people see of a trace */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "fs/capture/missing.h"
#include "fs/capture/result.h"
#include "fs/sandbox/sandbox_i.h"
#include "fs/trace/subject_i.h"
#include "fs/trace/writes.h"
#include "meta/meta.h"

static const char *const text_names[FS_TRACE_NR_TEXTS] = {
	[FS_TRACE_TEXT_STATUS] = "status",	  [FS_TRACE_TEXT_READ] = "inputs-read",
	[FS_TRACE_TEXT_UNREAD] = "inputs-unread", [FS_TRACE_TEXT_FAILED] = "lookups-failed",
	[FS_TRACE_TEXT_MISSING] = "missing",	  [FS_TRACE_TEXT_WRITES] = "writes",
};

const char *fs_trace_text_name(enum fs_trace_text text)
{
	return text_names[text];
}

/* A line must stay one, tell which name it is, and not look like a note. */
static int put_line(struct buf *out, const char *line)
{
	int ret = strncmp(line, "# ", 2) == 0 ? buf_append_str(out, "./") : 0;

	for (; ret == 0 && *line; line++) {
		if (*line == '\n')
			ret = buf_append_str(out, "\\n");
		else if (*line == '\\')
			ret = buf_append_str(out, "\\\\");
		else
			ret = buf_append_char(out, *line);
	}
	return ret < 0 ? ret : buf_append_char(out, '\n');
}

static int put_note(struct buf *out, const char *text)
{
	return buf_printf(out, "# %s\n", text);
}

static int put_lines(struct buf *out, const struct trace_lines *lines)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < lines->nr; i++)
		ret = put_line(out, lines->line[i]);
	return ret;
}

static int put_remark(void *ctx, const char *text)
{
	return put_note(ctx, text);
}

static int put_remarks(struct subject *s, struct buf *out)
{
	return s->trace ? fs_trace_each_remark(s->trace, put_remark, out) : 0;
}

/* --- inputs-read, inputs-unread, lookups-failed --- */

static const char not_traced[] = "this sandbox is not traced, so nobody can tell; create it with "
				 "--trace=names, reads or exact";

/* What the first line of a list says: how far it can be relied on. */
static const char *note_of(const struct subject *s, enum fs_trace_text text)
{
	static const char *const read[] = {
		[FS_TRACE_OFF] = not_traced,
		[FS_TRACE_NAMES] =
			"names: a lower bound, what the kernel asked for: it asks for nothing "
			"that it has in its caches",
		[FS_TRACE_READS] = "reads: inputs that were opened or executed",
		[FS_TRACE_EXACT] = "exact: inputs that were opened, executed or read as links; "
				   "directories that were listed end with a slash",
	};
	static const char *const unread[] = {
		[FS_TRACE_OFF] = not_traced,
		[FS_TRACE_NAMES] =
			"names: what was read without asking is not known, so nobody can tell; "
			"--trace=reads or exact can",
		[FS_TRACE_READS] = "reads: files that were neither opened nor executed",
		[FS_TRACE_EXACT] =
			"exact: files and links that were neither opened, executed nor read",
	};
	static const char *const failed[] = {
		[FS_TRACE_OFF] = not_traced,
		[FS_TRACE_NAMES] = "names: a lower bound, names that the kernel asked for in vain",
		[FS_TRACE_READS] = "reads: a lower bound, names that the kernel asked for in vain",
		[FS_TRACE_EXACT] =
			"exact: names that were looked for among the inputs and are not there",
	};

	if (text == FS_TRACE_TEXT_READ)
		return read[s->kind];
	if (text == FS_TRACE_TEXT_UNREAD && s->kind >= FS_TRACE_READS && !fs_subject_knows(s, text))
		return "not all that was read is known, so nobody can tell";
	return text == FS_TRACE_TEXT_UNREAD ? unread[s->kind] : failed[s->kind];
}

static int put_paths(struct subject *s, enum fs_trace_text text, struct buf *out)
{
	struct trace_lines lines = {0};
	int ret = put_note(out, note_of(s, text));

	if (ret == 0)
		ret = put_remarks(s, out);
	if (ret == 0)
		ret = fs_subject_lines(s, text, &lines);
	if (ret == 0)
		ret = put_lines(out, &lines);
	fs_trace_lines_fini(&lines);
	return ret;
}

/* --- writes --- */

static int put_section(struct subject *s, struct fs_trace *writes, unsigned what,
		       const char *heading, struct buf *out)
{
	struct trace_lines lines = {0};
	int ret = fs_trace_collect(writes, what, s, NULL, &lines);

	if (ret == 0 && lines.nr > 0)
		ret = put_note(out, heading);
	if (ret == 0)
		ret = put_lines(out, &lines);
	fs_trace_lines_fini(&lines);
	return ret;
}

static int put_writes(struct subject *s, struct buf *out)
{
	struct fs_trace *writes = NULL;
	int ret = fs_subject_writes(s, &writes);

	if (ret == 0)
		ret = put_note(out, s->partial ? "outputs that were captured; directories end "
						 "with a slash"
					       : "in the order made, replaced, removed; "
						 "directories end with a slash");
	if (ret == 0)
		ret = put_section(s, writes, FS_TRACE_MADE, "made by the action", out);
	if (ret == 0)
		ret = put_section(s, writes, FS_TRACE_REPLACED,
				  "inputs that it changed or replaced", out);
	if (ret == 0)
		ret = put_section(s, writes, FS_TRACE_REMOVED,
				  "inputs that it removed, directories with all in them", out);
	fs_trace_unref(writes);
	return ret;
}

/* --- status and missing --- */

static int add_remark(void *ctx, const char *text)
{
	return json_array_append_new(ctx, json_string(text)) < 0 ? -ENOMEM : 0;
}

static json_t *remarks_of(struct subject *s)
{
	json_t *remarks = json_array();

	if (s->trace && remarks)
		(void)fs_trace_each_remark(s->trace, add_remark, remarks);
	return remarks;
}

static int put_status(struct subject *s, struct buf *out)
{
	static const struct {
		const char *key;
		unsigned what;
	} counts[] = {
		{"looked_up", FS_TRACE_LOOKED}, {"failed", FS_TRACE_MISSED},
		{"read", FS_TRACE_READ},	{"listed", FS_TRACE_LISTED},
		{"made", FS_TRACE_MADE},	{"replaced", FS_TRACE_REPLACED},
		{"removed", FS_TRACE_REMOVED},
	};
	struct fs_trace *writes = NULL;
	json_t *names;
	char *text = NULL;
	/* While it is live they are found where they lie, and not in the trace. */
	int ret = s->trace ? fs_subject_writes(s, &writes) : 0;

	if (ret < 0)
		return ret;
	names = json_object();
	for (size_t i = 0; s->trace && i < sizeof(counts) / sizeof(counts[0]); i++) {
		struct fs_trace *from = counts[i].what & TRACE_WRITTEN ? writes : s->trace;

		(void)json_object_set_new(
			names, counts[i].key,
			json_integer((json_int_t)fs_trace_count(from, counts[i].what)));
	}
	fs_trace_unref(writes);
	(void)json_object_set_new(s->status, "names", names);
	(void)json_object_set_new(s->status, "trace_notes", remarks_of(s));
	if (s->notes)
		(void)json_object_set(s->status, "notes", s->notes);
	text = json_dumps(s->status, JSON_INDENT(2));
	ret = text ? buf_append_str(out, text) : -ENOMEM;
	free(text);
	return ret < 0 ? ret : buf_append_char(out, '\n');
}

static int put_missing(struct subject *s, struct buf *out)
{
	struct trace_lines lines = {0};
	int ret = fs_subject_missing(s, &lines);

	if (ret == 0)
		ret = put_note(out, "blobs of its inputs that were waited for and in no tier");
	if (ret == 0)
		ret = put_lines(out, &lines);
	fs_trace_lines_fini(&lines);
	return ret;
}

int fs_trace_text(struct fs_sandboxes *all, const char *id, enum fs_trace_text text,
		  struct buf *out, struct err *err)
{
	struct subject s;
	int ret = fs_subject_init(&s, all, id, err);

	if (ret < 0)
		return ret;
	switch (text) {
	case FS_TRACE_TEXT_STATUS:
		ret = put_status(&s, out);
		break;
	case FS_TRACE_TEXT_READ:
	case FS_TRACE_TEXT_UNREAD:
	case FS_TRACE_TEXT_FAILED:
		ret = put_paths(&s, text, out);
		break;
	case FS_TRACE_TEXT_MISSING:
		ret = put_missing(&s, out);
		break;
	case FS_TRACE_TEXT_WRITES:
		ret = put_writes(&s, out);
		break;
	case FS_TRACE_NR_TEXTS:
		ret = -EINVAL;
		break;
	}
	fs_subject_fini(&s);
	return ret;
}

/* --- all of it as an object --- */

static json_t *array_of(const struct trace_lines *lines, json_t *notes)
{
	json_t *array = json_array();

	for (size_t i = 0; i < lines->nr; i++) {
		json_t *text = json_string(lines->line[i]);

		if (text)
			(void)json_array_append_new(array, text);
		else
			(void)json_array_append_new(
				notes, json_string("a name that is not UTF-8 is left out"));
	}
	return array;
}

static int describe_lines(struct subject *s, enum fs_trace_text text, const char *key,
			  json_t *notes, json_t *out)
{
	struct trace_lines lines = {0};
	json_t *value = NULL;
	int ret = 0;

	if (text == FS_TRACE_TEXT_MISSING)
		ret = fs_subject_missing(s, &lines);
	else if (fs_subject_knows(s, text))
		ret = fs_subject_lines(s, text, &lines);
	else
		value = json_null();
	if (ret == 0 && !value)
		value = array_of(&lines, notes);
	fs_trace_lines_fini(&lines);
	if (ret < 0)
		return ret;
	return json_object_set_new(out, key, value) < 0 ? -ENOMEM : 0;
}

static int describe_bits(struct subject *s, unsigned what, const char *key, json_t *notes,
			 json_t *out)
{
	struct trace_lines lines = {0};
	int ret = s->trace ? fs_trace_collect(s->trace, what, s, NULL, &lines) : 0;

	if (ret == 0)
		ret = json_object_set_new(out, key,
					  s->trace ? array_of(&lines, notes) : json_null());
	fs_trace_lines_fini(&lines);
	return ret < 0 ? -ENOMEM : 0;
}

static int add_write(void *ctx, const char *path, unsigned bits)
{
	const char *kind = bits & FS_TRACE_REPLACED  ? "replaced"
			   : bits & FS_TRACE_REMOVED ? "removed"
						     : "made";
	json_t *item = json_pack("{s:s, s:s, s:b}", "path", path, "kind", kind, "directory",
				 (int)((bits & FS_TRACE_DIR) != 0));

	/* NULL: not UTF-8. */
	if (item)
		(void)json_array_append_new(ctx, item);
	return 0;
}

static int describe_writes(struct subject *s, json_t *out)
{
	json_t *array = json_array();
	struct fs_trace *writes = NULL;
	int ret = array ? fs_subject_writes(s, &writes) : -ENOMEM;

	if (ret == 0)
		ret = fs_trace_each(writes, TRACE_WRITTEN, add_write, array);
	fs_trace_unref(writes);
	if (ret < 0) {
		json_decref(array);
		return ret;
	}
	return json_object_set_new(out, "writes", array) < 0 ? -ENOMEM : 0;
}

int fs_trace_describe(struct fs_sandboxes *all, const char *id, json_t **out, struct err *err)
{
	json_t *obj = json_object();
	json_t *notes = NULL;
	struct subject s;
	int ret = obj ? fs_subject_init(&s, all, id, err) : -ENOMEM;

	if (ret < 0) {
		json_decref(obj);
		return ret;
	}
	notes = remarks_of(&s);
	ret = json_object_set_new(obj, "trace", json_string(fs_trace_kind_name(s.kind)));
	if (ret == 0)
		ret = json_object_set_new(obj, "notes", notes);
	if (ret == 0)
		ret = describe_lines(&s, FS_TRACE_TEXT_READ, "read", notes, obj);
	if (ret == 0)
		ret = describe_lines(&s, FS_TRACE_TEXT_UNREAD, "unread", notes, obj);
	if (ret == 0)
		ret = describe_lines(&s, FS_TRACE_TEXT_FAILED, "failed", notes, obj);
	if (ret == 0)
		ret = describe_lines(&s, FS_TRACE_TEXT_MISSING, "missing", notes, obj);
	if (ret == 0)
		ret = describe_bits(&s, FS_TRACE_LOOKED, "looked_up", notes, obj);
	if (ret == 0)
		ret = describe_bits(&s, FS_TRACE_LISTED, "listed", notes, obj);
	if (ret == 0)
		ret = describe_writes(&s, obj);
	fs_subject_fini(&s);
	if (ret < 0)
		json_decref(obj);
	else
		*out = obj;
	return ret;
}
