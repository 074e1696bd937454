/* fs/explain/box.c - a sandbox: what it shows, how it came to it, where its time went */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cas/cas.h"
#include "fs/capture/result.h"
#include "fs/explain/explain_i.h"
#include "fs/explain/spot.h"
#include "fs/message/outcome.h"
#include "fs/trace/trace.h"
#include "meta/index/tree_diff.h"
#include "meta/meta.h"

#define RESULT_MAX  (256 << 20)
#define CHANGES_MAX 10000

int fs_explain_record(struct cas_store *store, const char *id, struct fs_record *out, int *dir_fd,
		      struct err *err)
{
	auto_free char *path = NULL;
	auto_close int fd = -1;
	int ret = fs_sandbox_id_check(id, err);

	if (ret < 0)
		return ret;
	if (asprintf(&path, "sandboxes/%s", id) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	fd = openat(cas_store_dir_fd(store), path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_set(err, -errno,
			       errno == ENOENT ? "there is no sandbox %s"
					       : "cannot look into sandbox %s: %m",
			       id);
	ret = fs_record_read(fd, out, err);
	if (ret < 0)
		return err_context(err, ret, "sandbox %s", id);
	*dir_fd = steal_fd(&fd);
	return 0;
}

/* What became of each output. */
static int add_outputs(const struct fs_record *rec, int dir_fd, json_t *out)
{
	auto_buf struct buf data = {0};
	struct fs_outcome *o;
	json_t *list;
	int ret;

	if (rec->state != FS_SANDBOX_FINISHED ||
	    io_read_file(dir_fd, FS_RESULT_NAME, RESULT_MAX, &data) < 0 ||
	    fs_outcome_new(buf_str(&data), data.len, &o, NULL) < 0)
		return 0;
	list = json_array();
	ret = list ? 0 : -ENOMEM;
	for (size_t i = 0; ret == 0 && i < o->nr_nodes; i++) {
		const struct fs_outcome_node *node = &o->nodes[i];

		if (node->kind == FS_OUTCOME_FILE || node->kind == FS_OUTCOME_TREE ||
		    node->kind == FS_OUTCOME_ROOT)
			ret = json_array_append_new(list, fs_explain_digest(&node->digest)) < 0
				      ? -ENOMEM
				      : 0;
		if (json_array_size(list) >= EXPLAIN_LISTED)
			break;
	}
	fs_outcome_unref(o);
	if (ret == 0)
		ret = fs_explain_set(out, "result_blobs", json_incref(list));
	json_decref(list);
	return ret;
}

/* What makes its root of the one that its place in the kernel's caches showed before. */
static int add_former(const struct fs_explain *ex, const struct fs_record *rec, json_t *out)
{
	struct meta_changes changes = {0};
	json_t *list = json_array();
	int ret = list ? 0 : -ENOMEM;

	if (ret == 0 && rec->times.has_former) {
		ret = fs_explain_set(out, "former_root", fs_explain_digest(&rec->times.former));
		if (ret == 0 && meta_tree_diff(ex->meta, &rec->times.former, &rec->root, false,
					       CHANGES_MAX, &changes, NULL) < 0)
			ret = fs_explain_set(out, "former_unread", json_true());
		else if (ret == 0)
			ret = fs_explain_set(out, "nr_changes",
					     json_integer((json_int_t)changes.nr));
		for (size_t i = 0; ret == 0 && i < changes.nr && i < EXPLAIN_LISTED; i++)
			ret = json_array_append_new(list, fs_change_describe(&changes.list[i])) < 0
				      ? -ENOMEM
				      : 0;
		if (ret == 0)
			ret = fs_explain_set(out, "changes", json_incref(list));
	}
	json_decref(list);
	meta_changes_fini(&changes);
	return ret;
}

/* Only the daemon has what is needed for it. What nobody can tell is not set. */
static int add_trace(const struct fs_explain *ex, const struct fs_record *rec, json_t *out)
{
	static const struct {
		const char *list;
		const char *key;
	} counts[] = {
		{"read", "inputs_read"},
		{"unread", "inputs_unread"},
		{"failed", "lookups_failed"},
		{"missing", "blobs_missing"},
	};
	json_t *told = NULL;
	int ret = 0;

	if (!ex->sandboxes || rec->trace == FS_TRACE_OFF ||
	    fs_trace_describe(ex->sandboxes, rec->id, &told, NULL) < 0)
		return 0;
	for (size_t i = 0; ret == 0 && i < sizeof(counts) / sizeof(counts[0]); i++) {
		const json_t *list = json_object_get(told, counts[i].list);

		if (json_is_array(list))
			ret = fs_explain_set(out, counts[i].key,
					     json_integer((json_int_t)json_array_size(list)));
	}
	json_decref(told);
	return ret;
}

/* One that is no more. */
static int describe_gone(const struct fs_explain *ex, const char *id, json_t *out, struct err *err)
{
	struct meta_sandbox_facts facts = {0};
	int ret = meta_sandbox_find(ex->meta, id, &facts, err);

	if (ret < 0)
		return ret;
	if (ret == 0)
		return err_set(err, -ENOENT, "there is no sandbox %s, and none is remembered", id);
	ret = fs_explain_set(out, "sandbox", json_string(id));
	if (ret == 0)
		ret = fs_explain_set(out, "gone", json_true());
	if (ret == 0)
		ret = fs_explain_set(out, "root", json_string(facts.root));
	if (ret == 0)
		ret = fs_explain_set(out, "state", json_string(facts.state));
	if (ret == 0)
		ret = fs_explain_set(out, "created_ns", json_integer(facts.created_ns));
	if (ret == 0 && facts.finished_ns != 0) {
		ret = fs_explain_set(out, "finished_ns", json_integer(facts.finished_ns));
		if (ret == 0)
			ret = fs_explain_set(out, "exit_code", json_integer(facts.exit_code));
	}
	meta_sandbox_facts_fini(&facts);
	return ret;
}

static int describe(const struct fs_explain *ex, const struct fs_record *rec, int dir_fd,
		    json_t *out)
{
	json_t *shown = fs_record_describe(rec);
	int ret = shown && json_object_update(out, shown) == 0 ? 0 : -ENOMEM;

	json_decref(shown);
	if (ret == 0)
		ret = fs_explain_set(out, "sandbox", json_string(rec->id));
	if (ret == 0 && rec->notes)
		ret = fs_explain_set(out, "notes", json_incref(rec->notes));
	if (ret == 0)
		ret = add_outputs(rec, dir_fd, out);
	if (ret == 0)
		ret = add_former(ex, rec, out);
	return ret == 0 ? add_trace(ex, rec, out) : ret;
}

int fs_explain_sandbox(const struct fs_explain *ex, const char *id, json_t **out, struct err *err)
{
	struct fs_record rec = {0};
	json_t *obj = json_pack("{s:s}", "about", "sandbox");
	auto_close int dir_fd = -1;
	int ret = obj ? fs_explain_record(ex->store, id, &rec, &dir_fd, err) : -ENOMEM;

	if (ret == 0)
		ret = describe(ex, &rec, dir_fd, obj);
	else if (ret == -ENOENT)
		ret = describe_gone(ex, id, obj, err);
	fs_record_fini(&rec);
	if (ret < 0)
		json_decref(obj);
	else
		*out = obj;
	return ret == -ENOMEM ? err_set(err, ret, "no memory to explain a sandbox") : ret;
}
