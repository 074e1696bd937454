/* fs/capture/result.c - the ActionResult of a sandbox, and the answer of finish */
#include "fs/capture/result.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/reapi.pb-c.h"
#include "cas/reapi/action.h"
#include "fs/message/proto_json.h"

#define HOST_SZ 256

/* Everything that the messages point to lives here until they are packed. */
struct maker {
	const struct fs_outputs *outputs;
	const struct fs_capture *capture;
	const struct fs_finish_spec *spec;
	Reapi__ActionResult result;
	Reapi__ExecutedActionMetadata meta;
	Reapi__Timestamp times[9];
	size_t nr_times;
	Reapi__Digest out_err[2];
	char out_err_hash[2][CAS_HASH_HEX_SZ + 1];
	char host[HOST_SZ];
	Reapi__OutputFile *files;
	Reapi__OutputFile **file_ptrs;
	Reapi__OutputDirectory *dirs;
	Reapi__OutputDirectory **dir_ptrs;
	Reapi__OutputSymlink *links;
	Reapi__OutputSymlink **link_ptrs;
	Reapi__Digest *digests; /* two an output */
	char (*hashes)[CAS_HASH_HEX_SZ + 1];
};

static void maker_fini(struct maker *m)
{
	free(m->files);
	free(m->file_ptrs);
	free(m->dirs);
	free(m->dir_ptrs);
	free(m->links);
	free(m->link_ptrs);
	free(m->digests);
	free(m->hashes);
}

static int maker_alloc(struct maker *m)
{
	size_t nr = m->outputs->nr ? m->outputs->nr : 1;

	m->files = calloc(nr, sizeof(*m->files));
	m->file_ptrs = calloc(nr, sizeof(*m->file_ptrs));
	m->dirs = calloc(nr, sizeof(*m->dirs));
	m->dir_ptrs = calloc(nr, sizeof(*m->dir_ptrs));
	m->links = calloc(nr, sizeof(*m->links));
	m->link_ptrs = calloc(nr, sizeof(*m->link_ptrs));
	m->digests = calloc(nr, 2 * sizeof(*m->digests));
	m->hashes = calloc(nr, 2 * sizeof(*m->hashes));
	if (!m->files || !m->file_ptrs || !m->dirs || !m->dir_ptrs || !m->links || !m->link_ptrs ||
	    !m->digests || !m->hashes)
		return -ENOMEM;
	return 0;
}

static Reapi__Digest *fill_digest(Reapi__Digest *d, char hash[CAS_HASH_HEX_SZ + 1],
				  const struct cas_digest *from)
{
	reapi__digest__init(d);
	cas_hash_format(from->hash, hash);
	d->hash = hash;
	d->size_bytes = (int64_t)from->size;
	return d;
}

static Reapi__Timestamp *fill_time(struct maker *m, int64_t ns)
{
	Reapi__Timestamp *t;

	if (ns == 0)
		return NULL;
	t = &m->times[m->nr_times++];
	reapi__timestamp__init(t);
	t->seconds = ns / 1000000000;
	t->nanos = (int32_t)(ns % 1000000000);
	return t;
}

static void fill_meta(struct maker *m, const struct fs_result_times *times)
{
	reapi__executed_action_metadata__init(&m->meta);
	if (gethostname(m->host, sizeof(m->host) - 1) == 0)
		m->meta.worker = m->host;
	m->meta.queued_timestamp = fill_time(m, times->created_ns);
	m->meta.worker_start_timestamp = fill_time(m, times->created_ns);
	m->meta.worker_completed_timestamp = fill_time(m, times->completed_ns);
	m->meta.execution_start_timestamp = fill_time(m, m->spec->start_ns);
	m->meta.execution_completed_timestamp = fill_time(m, m->spec->end_ns);
	m->meta.output_upload_start_timestamp = fill_time(m, times->upload_start_ns);
	m->meta.output_upload_completed_timestamp = fill_time(m, times->upload_end_ns);
	m->result.execution_metadata = &m->meta;
}

static void fill_output(struct maker *m, size_t i)
{
	const struct fs_captured *c = &m->capture->captured[i];
	char *path = m->outputs->out[i].path;
	Reapi__Digest *digest = &m->digests[2 * i];

	if (c->node.kind == CAS_NODE_FILE) {
		Reapi__OutputFile *f = &m->files[m->result.n_output_files];

		reapi__output_file__init(f);
		f->path = path;
		f->digest = fill_digest(digest, m->hashes[2 * i], &c->node.digest);
		f->is_executable = c->node.executable;
		m->file_ptrs[m->result.n_output_files++] = f;
	} else if (c->node.kind == CAS_NODE_DIRECTORY) {
		Reapi__OutputDirectory *d = &m->dirs[m->result.n_output_directories];

		reapi__output_directory__init(d);
		d->path = path;
		d->tree_digest = fill_digest(digest, m->hashes[2 * i], &c->tree);
		d->is_topologically_sorted = true;
		d->root_directory_digest =
			fill_digest(digest + 1, m->hashes[2 * i + 1], &c->node.digest);
		m->dir_ptrs[m->result.n_output_directories++] = d;
	} else {
		Reapi__OutputSymlink *l = &m->links[m->result.n_output_symlinks];

		reapi__output_symlink__init(l);
		l->path = path;
		l->target = (char *)c->node.target;
		m->link_ptrs[m->result.n_output_symlinks++] = l;
	}
}

static void fill_result(struct maker *m, const struct fs_result_times *times)
{
	reapi__action_result__init(&m->result);
	m->result.output_files = m->file_ptrs;
	m->result.output_directories = m->dir_ptrs;
	m->result.output_symlinks = m->link_ptrs;
	m->result.exit_code = m->spec->exit_code;
	for (size_t i = 0; i < m->capture->nr; i++) {
		if (m->capture->captured[i].found)
			fill_output(m, i);
	}
	if (m->spec->has_stdout)
		m->result.stdout_digest =
			fill_digest(&m->out_err[0], m->out_err_hash[0], &m->spec->stdout_digest);
	if (m->spec->has_stderr)
		m->result.stderr_digest =
			fill_digest(&m->out_err[1], m->out_err_hash[1], &m->spec->stderr_digest);
	fill_meta(m, times);
}

static json_t *json_digest(const Reapi__Digest *d)
{
	char size[24];

	(void)snprintf(size, sizeof(size), "%lld", (long long)d->size_bytes);
	return json_pack("{s:s, s:s}", "hash", d->hash, "sizeBytes", size);
}

static json_t *json_digest_text(const Reapi__Digest *d)
{
	return json_sprintf("%s/%lld", d->hash, (long long)d->size_bytes);
}

/* RFC 3339 in UTC with 0, 3, 6 or 9 digits, as proto3 JSON wants it. */
static json_t *json_time(const Reapi__Timestamp *t)
{
	char text[64];
	char frac[16] = "";
	struct tm tm;
	time_t sec = (time_t)t->seconds;

	if (gmtime_r(&sec, &tm) == NULL)
		return json_null();
	if (t->nanos % 1000000 == 0 && t->nanos != 0)
		(void)snprintf(frac, sizeof(frac), ".%03d", t->nanos / 1000000);
	else if (t->nanos % 1000 == 0 && t->nanos != 0)
		(void)snprintf(frac, sizeof(frac), ".%06d", t->nanos / 1000);
	else if (t->nanos != 0)
		(void)snprintf(frac, sizeof(frac), ".%09d", t->nanos);
	(void)snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d%sZ", tm.tm_year + 1900,
		       tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, frac);
	return json_string(text);
}

static void set_time(json_t *obj, const char *key, const Reapi__Timestamp *t)
{
	if (t)
		(void)json_object_set_new(obj, key, json_time(t));
}

static json_t *json_value(const Reapi__Value *v)
{
	if (v && v->kind_case == REAPI__VALUE__KIND_STRING_VALUE)
		return fs_json_text(v->string_value);
	if (v && v->kind_case == REAPI__VALUE__KIND_BOOL_VALUE)
		return json_boolean(v->bool_value);
	if (v && v->kind_case == REAPI__VALUE__KIND_NUMBER_VALUE) {
		bool whole = v->number_value >= 0 && v->number_value < 9e15 &&
			     v->number_value == (double)(int64_t)v->number_value;

		return whole ? json_integer((json_int_t)v->number_value)
			     : json_real(v->number_value);
	}
	return json_null();
}

/* Of the kinds of metadata the one that we write. */
static void add_limit(json_t *list, const Reapi__Any *any)
{
	Reapi__Struct *s = strcmp(any->type_url, CAS_RESULT_LIMIT_TYPE) == 0
				   ? reapi__struct__unpack(NULL, any->value.len, any->value.data)
				   : NULL;
	json_t *value = s ? json_object() : NULL;

	for (size_t i = 0; s && i < s->n_fields; i++)
		(void)json_object_set_new(value, s->fields[i]->key,
					  json_value(s->fields[i]->value));
	if (s)
		(void)json_array_append_new(
			list, json_pack("{s:s, s:o}", "@type", any->type_url, "value", value));
	if (s)
		reapi__struct__free_unpacked(s, NULL);
}

static json_t *json_meta(const Reapi__ExecutedActionMetadata *m)
{
	json_t *obj = json_object();
	json_t *more = json_array();

	if (m->worker && m->worker[0] != '\0')
		(void)json_object_set_new(obj, "worker", fs_json_text(m->worker));
	set_time(obj, "queuedTimestamp", m->queued_timestamp);
	set_time(obj, "workerStartTimestamp", m->worker_start_timestamp);
	set_time(obj, "workerCompletedTimestamp", m->worker_completed_timestamp);
	set_time(obj, "executionStartTimestamp", m->execution_start_timestamp);
	set_time(obj, "executionCompletedTimestamp", m->execution_completed_timestamp);
	set_time(obj, "outputUploadStartTimestamp", m->output_upload_start_timestamp);
	set_time(obj, "outputUploadCompletedTimestamp", m->output_upload_completed_timestamp);
	for (size_t i = 0; i < m->n_auxiliary_metadata; i++)
		add_limit(more, m->auxiliary_metadata[i]);
	if (json_array_size(more) > 0)
		(void)json_object_set(obj, "auxiliaryMetadata", more);
	json_decref(more);
	return obj;
}

static json_t *json_file(const Reapi__OutputFile *f)
{
	json_t *obj = json_object();

	if (f->path[0] != '\0')
		(void)json_object_set_new(obj, "path", fs_json_text(f->path));
	(void)json_object_set_new(obj, "digest", json_digest(f->digest));
	if (f->is_executable)
		(void)json_object_set_new(obj, "isExecutable", json_true());
	return obj;
}

static json_t *json_dir(const Reapi__OutputDirectory *d)
{
	json_t *obj = json_object();

	if (d->path[0] != '\0')
		(void)json_object_set_new(obj, "path", fs_json_text(d->path));
	if (d->tree_digest)
		(void)json_object_set_new(obj, "treeDigest", json_digest(d->tree_digest));
	if (d->is_topologically_sorted)
		(void)json_object_set_new(obj, "isTopologicallySorted", json_true());
	if (d->root_directory_digest)
		(void)json_object_set_new(obj, "rootDirectoryDigest",
					  json_digest(d->root_directory_digest));
	return obj;
}

/* Default values are left out, as proto3 JSON does. */
static json_t *json_result(const Reapi__ActionResult *r)
{
	json_t *obj = json_object();
	json_t *files = json_array();
	json_t *dirs = json_array();
	json_t *links = json_array();

	for (size_t i = 0; i < r->n_output_files; i++)
		(void)json_array_append_new(files, json_file(r->output_files[i]));
	for (size_t i = 0; i < r->n_output_directories; i++)
		(void)json_array_append_new(dirs, json_dir(r->output_directories[i]));
	for (size_t i = 0; i < r->n_output_symlinks; i++)
		(void)json_array_append_new(
			links,
			json_pack("{s:o, s:o}", "path", fs_json_text(r->output_symlinks[i]->path),
				  "target", fs_json_text(r->output_symlinks[i]->target)));
	if (r->n_output_files > 0)
		(void)json_object_set(obj, "outputFiles", files);
	if (r->n_output_directories > 0)
		(void)json_object_set(obj, "outputDirectories", dirs);
	if (r->n_output_symlinks > 0)
		(void)json_object_set(obj, "outputSymlinks", links);
	json_decref(files);
	json_decref(dirs);
	json_decref(links);
	if (r->exit_code != 0)
		(void)json_object_set_new(obj, "exitCode", json_integer(r->exit_code));
	if (r->stdout_digest)
		(void)json_object_set_new(obj, "stdoutDigest", json_digest(r->stdout_digest));
	if (r->stderr_digest)
		(void)json_object_set_new(obj, "stderrDigest", json_digest(r->stderr_digest));
	if (r->execution_metadata)
		(void)json_object_set_new(obj, "executionMetadata",
					  json_meta(r->execution_metadata));
	return obj;
}

static void answer_file(const Reapi__OutputFile *f, json_t *obj)
{
	(void)json_object_set_new(obj, "kind", json_string("file"));
	(void)json_object_set_new(obj, "digest", json_digest_text(f->digest));
	if (f->is_executable)
		(void)json_object_set_new(obj, "executable", json_true());
}

static void answer_dir(const Reapi__OutputDirectory *d, json_t *obj)
{
	(void)json_object_set_new(obj, "kind", json_string("directory"));
	if (d->root_directory_digest)
		(void)json_object_set_new(obj, "digest",
					  json_digest_text(d->root_directory_digest));
}

static void answer_link(const Reapi__OutputSymlink *l, json_t *obj)
{
	(void)json_object_set_new(obj, "kind", json_string("symlink"));
	(void)json_object_set_new(obj, "target", fs_json_text(l->target));
}

/* Each kind was filled in the order of the outputs, so one pass finds all. */
static json_t *json_outputs(const struct fs_outputs *outputs, const Reapi__ActionResult *r)
{
	json_t *array = json_array();
	size_t file = 0;
	size_t dir = 0;
	size_t link = 0;

	for (size_t i = 0; i < outputs->nr; i++) {
		const char *path = outputs->out[i].path;
		json_t *obj = json_object();

		(void)json_object_set_new(obj, "path", fs_json_text(path));
		if (file < r->n_output_files && strcmp(r->output_files[file]->path, path) == 0)
			answer_file(r->output_files[file++], obj);
		else if (dir < r->n_output_directories &&
			 strcmp(r->output_directories[dir]->path, path) == 0)
			answer_dir(r->output_directories[dir++], obj);
		else if (link < r->n_output_symlinks &&
			 strcmp(r->output_symlinks[link]->path, path) == 0)
			answer_link(r->output_symlinks[link++], obj);
		else {
			json_decref(obj);
			continue;
		}
		(void)json_array_append_new(array, obj);
	}
	return array;
}

static json_t *json_paths(const struct fs_findings *f)
{
	json_t *array = json_array();

	for (size_t i = 0; i < f->nr; i++)
		(void)json_array_append_new(array, fs_json_text(f->found[i].path));
	return array;
}

static json_t *json_failed(const struct fs_findings *f)
{
	json_t *array = json_array();

	for (size_t i = 0; i < f->nr; i++)
		(void)json_array_append_new(
			array, json_pack("{s:o, s:o}", "path", fs_json_text(f->found[i].path),
					 "error", fs_json_text(f->found[i].text)));
	return array;
}

static void notes_add(json_t **notes, const char *key, json_t *list)
{
	if (json_array_size(list) > 0) {
		if (*notes == NULL)
			*notes = json_object();
		(void)json_object_set(*notes, key, list);
	}
	json_decref(list);
}

int fs_result_make(const struct fs_outputs *outputs, const struct fs_capture *capture,
		   const struct fs_changes *changes, const struct fs_finish_spec *spec,
		   const struct fs_result_times *times, struct buf *binary, json_t **notes,
		   struct err *err)
{
	struct maker m = {.outputs = outputs, .capture = capture, .spec = spec};
	json_t *got = NULL;
	int ret = maker_alloc(&m);

	if (ret == 0) {
		fill_result(&m, times);
		ret = buf_reserve(binary, reapi__action_result__get_packed_size(&m.result) + 1);
	}
	if (ret == 0)
		binary->len += reapi__action_result__pack(&m.result,
							  (uint8_t *)binary->data + binary->len);
	maker_fini(&m);
	if (ret < 0)
		return err_set(err, ret, "no memory for a result");
	notes_add(&got, "stray", json_paths(&changes->stray));
	notes_add(&got, "changed", json_paths(&changes->changed));
	notes_add(&got, "failed", json_failed(&capture->failed));
	*notes = got;
	return 0;
}

/* What was packed here has all of these, however it was told; anything else is damage. */
static bool is_whole(const Reapi__ActionResult *r)
{
	bool whole = true;

	for (size_t i = 0; i < r->n_output_files; i++)
		whole = whole && r->output_files[i]->digest;
	for (size_t i = 0; i < r->n_output_directories; i++)
		whole = whole && (r->output_directories[i]->tree_digest ||
				  r->output_directories[i]->root_directory_digest);
	return whole;
}

int fs_result_answer(const void *data, size_t len, const struct fs_outputs *outputs,
		     const json_t *notes, json_t **answer, struct err *err)
{
	static const char *const lists[] = {"stray", "changed", "failed", "missing", "limits"};
	Reapi__ActionResult *r = reapi__action_result__unpack(NULL, len, data);
	json_t *obj;

	if (r == NULL || !is_whole(r)) {
		if (r)
			reapi__action_result__free_unpacked(r, NULL);
		return err_set(err, -EUCLEAN, "the result of a sandbox is damaged");
	}
	obj = json_pack("{s:o, s:o}", "result", json_result(r), "outputs",
			json_outputs(outputs, r));
	reapi__action_result__free_unpacked(r, NULL);
	for (size_t i = 0; obj && i < sizeof(lists) / sizeof(lists[0]); i++) {
		json_t *list = json_object_get(notes, lists[i]);

		(void)json_object_set_new(obj, lists[i],
					  list ? json_deep_copy(list) : json_array());
	}
	if (obj == NULL)
		return err_set(err, -ENOMEM, "no memory for a result");
	*answer = obj;
	return 0;
}

static int graft_compare(const void *a, const void *b)
{
	return fs_path_compare(((const struct fs_graft *)a)->path,
			       ((const struct fs_graft *)b)->path);
}

static int graft_digest(const Reapi__Digest *from, struct cas_digest *out)
{
	if (from == NULL || from->size_bytes < 0 ||
	    cas_hash_parse(from->hash, strlen(from->hash), out->hash) < 0)
		return -EUCLEAN;
	out->size = (uint64_t)from->size_bytes;
	return 0;
}

/* Append a SET graft, with copies of its strings. */
static int graft_add(struct fs_graft *g, const char *path, const struct cas_node *node)
{
	g->op = FS_GRAFT_SET;
	g->node = *node;
	g->path = strdup(path);
	g->node.target = node->target ? strdup(node->target) : NULL;
	return g->path == NULL || (node->target && g->node.target == NULL) ? -ENOMEM : 0;
}

static int grafts_fill(const Reapi__ActionResult *r, struct fs_graft *g, size_t *nr)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < r->n_output_files; i++) {
		struct cas_node node = {.kind = CAS_NODE_FILE,
					.executable = r->output_files[i]->is_executable};

		ret = graft_digest(r->output_files[i]->digest, &node.digest);
		if (ret == 0)
			ret = graft_add(&g[(*nr)++], r->output_files[i]->path, &node);
	}
	for (size_t i = 0; ret == 0 && i < r->n_output_directories; i++) {
		struct cas_node node = {.kind = CAS_NODE_DIRECTORY};

		ret = graft_digest(r->output_directories[i]->root_directory_digest, &node.digest);
		if (ret == 0)
			ret = graft_add(&g[(*nr)++], r->output_directories[i]->path, &node);
	}
	for (size_t i = 0; ret == 0 && i < r->n_output_symlinks; i++) {
		struct cas_node node = {.kind = CAS_NODE_SYMLINK,
					.target = r->output_symlinks[i]->target};

		ret = graft_add(&g[(*nr)++], r->output_symlinks[i]->path, &node);
	}
	return ret;
}

/* Missing outputs: nothing is there, whatever the input tree has. */
static int grafts_drop(const struct fs_outputs *outputs, struct fs_graft *g, size_t *nr)
{
	size_t nr_set = *nr;

	for (size_t i = 0; i < outputs->nr; i++) {
		const char *path = outputs->out[i].path;
		size_t at = 0;

		while (at < nr_set && strcmp(g[at].path, path) != 0)
			at++;
		if (at < nr_set || path[0] == '\0')
			continue;
		g[*nr].op = FS_GRAFT_DROP;
		g[*nr].path = strdup(path);
		if (g[(*nr)++].path == NULL)
			return -ENOMEM;
	}
	return 0;
}

int fs_result_grafts(const void *data, size_t len, const struct fs_outputs *outputs,
		     struct fs_graft **grafts, size_t *nr, struct err *err)
{
	Reapi__ActionResult *r = reapi__action_result__unpack(NULL, len, data);
	struct fs_graft *g;
	size_t got = 0;
	int ret = -ENOMEM;

	if (r == NULL)
		return err_set(err, -EUCLEAN, "the result of a sandbox is damaged");
	g = calloc(r->n_output_files + r->n_output_directories + r->n_output_symlinks +
			   outputs->nr + 1,
		   sizeof(*g));
	if (g)
		ret = grafts_fill(r, g, &got);
	if (ret == 0)
		ret = grafts_drop(outputs, g, &got);
	reapi__action_result__free_unpacked(r, NULL);
	if (ret < 0) {
		fs_result_grafts_free(g, got);
		return err_set(err, ret, "cannot read the result of a sandbox: %s",
			       strerrordesc_np(-ret));
	}
	if (got > 1)
		qsort(g, got, sizeof(*g), graft_compare);
	*grafts = g;
	*nr = got;
	return 0;
}

void fs_result_grafts_free(struct fs_graft *grafts, size_t nr)
{
	for (size_t i = 0; grafts && i < nr; i++) {
		free((char *)grafts[i].path);
		free((char *)grafts[i].node.target);
	}
	free(grafts);
}
