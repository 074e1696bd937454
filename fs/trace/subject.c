/* fs/trace/subject.c - a sandbox as its trace is told, at one moment */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "fs/capture/missing.h"
#include "fs/capture/result.h"
#include "fs/sandbox/sandbox_i.h"
#include "fs/trace/subject_i.h"
#include "fs/trace/writes.h"
#include "meta/meta.h"

#define DEPTH_MAX 2100

/* --- lines --- */

void fs_trace_lines_fini(struct trace_lines *lines)
{
	for (size_t i = 0; i < lines->nr; i++)
		free(lines->line[i]);
	free(lines->line);
	*lines = (struct trace_lines){0};
}

static int lines_add(struct trace_lines *lines, const char *path, const char *tail)
{
	size_t len = strlen(path);
	char *line;

	if (lines->nr == lines->cap) {
		size_t cap = lines->cap ? 2 * lines->cap : 64;
		char **grown = reallocarray(lines->line, cap, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		lines->line = grown;
		lines->cap = cap;
	}
	line = malloc(len + strlen(tail) + 1);
	if (!line)
		return -ENOMEM;
	memcpy(line, path, len);
	(void)strcpy(line + len, tail);
	lines->line[lines->nr++] = line;
	return 0;
}

static int compare_lines(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void lines_sort(struct trace_lines *lines)
{
	if (lines->nr > 1)
		qsort(lines->line, lines->nr, sizeof(*lines->line), compare_lines);
}

/* --- the subject --- */

static int copy_layers(const struct fs_plan *from, struct fs_plan *out)
{
	out->layers = calloc(from->nr_layers + 1, sizeof(*out->layers));
	if (!out->layers)
		return -ENOMEM;
	for (size_t i = 0; i < from->nr_layers; i++) {
		out->layers[i].kind = from->layers[i].kind;
		out->layers[i].path = strdup(from->layers[i].path);
		if (!out->layers[i].path)
			return -ENOMEM;
		out->nr_layers = i + 1;
	}
	return 0;
}

static int copy_locked(struct subject *s, const struct fs_sandbox *sb)
{
	s->kind = sb->rec.trace;
	s->state = sb->rec.state;
	s->root = sb->rec.root;
	s->created_ns = sb->rec.created_ns;
	s->trace = fs_trace_ref(sb->trace);
	s->status = fs_record_describe(&sb->rec);
	s->notes = sb->rec.notes ? json_deep_copy(sb->rec.notes) : NULL;
	if (!s->status || fs_outputs_parse((const char *const *)sb->rec.given, sb->rec.nr_given,
					   &s->outputs, NULL) < 0)
		return -ENOMEM;
	return copy_layers(&sb->rec.plan, &s->plan);
}

/* One that is kept in a file. */
static int load_trace(struct subject *s, struct err *err)
{
	int ret;

	if (s->trace || s->kind == FS_TRACE_OFF || s->dir_fd < 0)
		return 0;
	ret = fs_trace_load(s->dir_fd, &s->trace, err);
	if (ret != -ENOENT)
		return ret;
	ret = fs_trace_new(s->kind, &s->trace);
	if (ret == 0)
		fs_trace_lose(s->trace, "the trace was lost");
	return ret;
}

int fs_subject_init(struct subject *s, struct fs_sandboxes *all, const char *id, struct err *err)
{
	struct fs_sandbox *sb;
	json_t *path = NULL;
	int ret = -ENOENT;

	*s = (struct subject){.all = all, .dir_fd = -1};
	fs_sandbox_trace_settle(all, FS_TRACE_READS);
	lock_take(&all->lock);
	HASH_FIND_STR(all->by_id, id, sb);
	if (sb) {
		ret = copy_locked(s, sb);
		path = json_sprintf("%s/%s", fs_sandbox_base(all, sb), id);
	}
	lock_drop(&all->lock);
	if (ret == 0)
		(void)json_object_set_new(s->status, "path", path ? path : json_null());
	else
		json_decref(path);
	if (ret == 0)
		s->dir_fd = fs_sandbox_open_dir(all, id, NULL);
	if (ret == 0)
		ret = load_trace(s, err);
	if (ret == 0 && s->trace)
		s->kind = fs_trace_kind_of(s->trace);
	if (ret < 0) {
		fs_subject_fini(s);
		return err_set(err, ret,
			       ret == -ENOENT ? "no sandbox %s" : "cannot look at sandbox %s", id);
	}
	return 0;
}

void fs_subject_fini(struct subject *s)
{
	fs_trace_unref(s->trace);
	fs_plan_fini(&s->plan);
	fs_outputs_fini(&s->outputs);
	json_decref(s->status);
	json_decref(s->notes);
	if (s->dir_fd >= 0)
		(void)close(s->dir_fd);
	*s = (struct subject){.dir_fd = -1};
}

/* --- paths --- */

struct collecting {
	struct subject *s;
	int (*keep)(struct subject *s, const char *path, unsigned bits, bool *slash);
	struct trace_lines *out;
};

static int collect_one(void *ctx, const char *path, unsigned bits)
{
	struct collecting *c = ctx;
	bool slash = (bits & FS_TRACE_DIR) != 0;
	int ret = c->keep ? c->keep(c->s, path, bits, &slash) : 1;

	if (ret <= 0)
		return ret;
	return lines_add(c->out, path[0] == '\0' && slash ? "." : path, slash ? "/" : "");
}

int fs_trace_collect(struct fs_trace *trace, unsigned what, struct subject *s,
		     int (*keep)(struct subject *s, const char *path, unsigned bits, bool *slash),
		     struct trace_lines *out)
{
	struct collecting c = {s, keep, out};
	int ret = trace ? fs_trace_each(trace, what, collect_one, &c) : 0;

	lines_sort(out);
	return ret;
}

/* An input: not something that the action made and then read. */
static int keep_input(struct subject *s, const char *path, unsigned bits, bool *slash)
{
	enum cas_node_kind kind;
	struct err ignored = {0};
	int ret = fs_trace_in_tree(s->all->meta, &s->root, path, &kind, &ignored);

	if (ret <= 0)
		return ret;
	*slash = kind == CAS_NODE_DIRECTORY;
	/* Who listens to opens hears nothing of lists. */
	return kind == CAS_NODE_DIRECTORY
		       ? (bits & FS_TRACE_LISTED) != 0 && s->kind != FS_TRACE_READS
		       : (bits & FS_TRACE_READ) != 0;
}

static int keep_name(struct subject *s, const char *path, unsigned bits, bool *slash)
{
	(void)s;
	(void)path;
	(void)bits;
	*slash = false;
	return 1;
}

bool fs_subject_knows(const struct subject *s, enum fs_trace_text text)
{
	if (!s->trace)
		return false;
	/* Who takes something for unread that was read goes wrong, and is not told. */
	return text == FS_TRACE_TEXT_UNREAD
		       ? s->kind >= FS_TRACE_READS && !fs_trace_is_lossy(s->trace)
		       : s->kind != FS_TRACE_OFF;
}

/* --- what was not read: the whole tree is walked --- */

struct unread {
	struct subject *s;
	struct trace_lines *out;
	struct buf path;
	int depth;
};

static int unread_entry(void *ctx, uint64_t index, const struct meta_dirent *entry)
{
	struct unread *u = ctx;
	size_t len = u->path.len;
	int ret = len > 0 ? buf_append_char(&u->path, '/') : 0;

	(void)index;
	if (ret == 0)
		ret = buf_append_str(&u->path, entry->name);
	if (ret == 0 && entry->kind == CAS_NODE_DIRECTORY && u->depth < DEPTH_MAX) {
		u->depth++;
		ret = meta_dir_list(u->s->all->meta, &entry->digest, 0, unread_entry, u, NULL);
		u->depth--;
	} else if (ret == 0 && (entry->kind == CAS_NODE_FILE || u->s->kind == FS_TRACE_EXACT)) {
		/* Reading a link opens nothing. */
		if (!(fs_trace_bits(u->s->trace, buf_str(&u->path)) & FS_TRACE_READ))
			ret = lines_add(u->out, buf_str(&u->path), "");
	}
	u->path.len = len;
	if (u->path.data)
		u->path.data[len] = '\0';
	return ret;
}

static int unread_lines(struct subject *s, struct trace_lines *out)
{
	struct unread u = {.s = s, .out = out};
	int ret = meta_dir_list(s->all->meta, &s->root, 0, unread_entry, &u, NULL);

	buf_fini(&u.path);
	lines_sort(out);
	return ret;
}

int fs_subject_lines(struct subject *s, enum fs_trace_text text, struct trace_lines *out)
{
	if (!fs_subject_knows(s, text))
		return 0;
	if (text == FS_TRACE_TEXT_READ)
		return fs_trace_collect(s->trace, FS_TRACE_READ | FS_TRACE_LISTED, s, keep_input,
					out);
	if (text == FS_TRACE_TEXT_UNREAD)
		return unread_lines(s, out);
	return fs_trace_collect(s->trace, FS_TRACE_MISSED, s, keep_name, out);
}

/* --- blobs that were in no tier --- */

int fs_subject_missing(struct subject *s, struct trace_lines *out)
{
	json_t *list = s->notes ? json_incref(json_object_get(s->notes, "missing")) : NULL;
	const json_t *item;
	size_t i;
	int ret = 0;

	if (!list && s->state != FS_SANDBOX_FINISHED)
		list = fs_missing_list(s->all->store, s->all->meta, &s->root, s->created_ns);
	json_array_foreach(list, i, item)
	{
		const char *subject = json_string_value(json_object_get(item, "subject"));

		if (subject && strncmp(subject, "blobs/", 6) == 0 && ret == 0)
			ret = lines_add(out, subject + 6, "");
	}
	json_decref(list);
	lines_sort(out);
	return ret;
}

/* --- what it wrote --- */

static void note_array(struct fs_trace *trace, const json_t *array, unsigned what)
{
	const json_t *item;
	size_t i;

	json_array_foreach(array, i, item)
	{
		const char *path = json_is_string(item)
					   ? json_string_value(item)
					   : json_string_value(json_object_get(item, "path"));
		const char *kind = json_string_value(json_object_get(item, "kind"));

		if (path)
			fs_trace_note(
				trace,
				what | (kind && strcmp(kind, "directory") == 0 ? FS_TRACE_DIR : 0),
				"", path);
	}
}

/* The uppers may have been moved into the store: what the result says. */
static int writes_of_result(struct subject *s, struct fs_trace *trace)
{
	auto_buf struct buf data = {0};
	struct err ignored = {0};
	json_t *answer = NULL;
	int ret =
		s->dir_fd < 0 ? -ENOENT : io_read_file(s->dir_fd, FS_RESULT_NAME, INT32_MAX, &data);

	if (ret == 0)
		ret = fs_result_answer(buf_str(&data), data.len, &s->outputs, NULL, &answer,
				       &ignored);
	if (ret < 0)
		return ret;
	note_array(trace, json_object_get(answer, "outputs"), FS_TRACE_MADE);
	json_decref(answer);
	note_array(trace, json_object_get(s->notes, "stray"), FS_TRACE_MADE);
	note_array(trace, json_object_get(s->notes, "changed"), FS_TRACE_REPLACED);
	return 0;
}

int fs_subject_writes(struct subject *s, struct fs_trace **out)
{
	struct fs_trace *trace = NULL;
	struct err ignored = {0};
	int ret;

	if (s->trace && s->state == FS_SANDBOX_FINISHED &&
	    fs_trace_count(s->trace, TRACE_WRITTEN) > 0) {
		*out = fs_trace_ref(s->trace);
		return 0;
	}
	ret = fs_trace_new(FS_TRACE_OFF, &trace);
	if (ret < 0)
		return ret;
	s->partial = s->state == FS_SANDBOX_FINISHED;
	if (s->partial)
		ret = writes_of_result(s, trace);
	else if (s->dir_fd >= 0)
		ret = fs_trace_writes(trace, s->all, &s->root, &s->plan, s->dir_fd, &ignored);
	if (ret < 0)
		fs_trace_unref(trace);
	else
		*out = trace;
	return ret;
}
