/* fs/sandbox/record.c - STORE/sandboxes/ID/record: the truth about a sandbox */
#include "fs/sandbox/record.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/io.h"
#include "cas/reapi/directory.h"

#define RECORD_VERSION 1
#define RECORD_MAX     (16 << 20)

static const char *const writable_names[] = {
	[FS_WRITABLE_OUTPUTS] = "outputs",
	[FS_WRITABLE_DIRS] = "dirs",
	[FS_WRITABLE_ALL] = "all",
};
static const char *const state_names[] = {
	[FS_SANDBOX_CREATING] = "creating",   [FS_SANDBOX_LIVE] = "live",
	[FS_SANDBOX_FINISHING] = "finishing", [FS_SANDBOX_FINISHED] = "finished",
	[FS_SANDBOX_LOST] = "lost",
};
static const char *const layer_names[] = {
	[FS_LAYER_BIND] = "bind",
	[FS_LAYER_OVERLAY] = "overlay",
	[FS_LAYER_SERVED] = "served",
};

static int word_find(const char *const *words, size_t nr, const char *word)
{
	for (size_t i = 0; word && i < nr; i++) {
		if (strcmp(words[i], word) == 0)
			return (int)i;
	}
	return -EINVAL;
}
#define WORD_FIND(words, word) word_find(words, sizeof(words) / sizeof((words)[0]), word)

const char *fs_writable_name(enum fs_writable w)
{
	return writable_names[w];
}

int fs_writable_parse(const char *word, enum fs_writable *out)
{
	int i = WORD_FIND(writable_names, word);

	if (i < 0)
		return i;
	*out = (enum fs_writable)i;
	return 0;
}

int fs_sandbox_id_check(const char *id, struct err *err)
{
	static const char good[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._+-";
	size_t len = strlen(id);
	size_t odd = strspn(id, good);

	if (len == 0)
		return err_set(err, -EINVAL, "sandbox id is empty");
	if (len > FS_SANDBOX_ID_MAX)
		return err_set(err, -EINVAL, "sandbox id %.*s... has %zu bytes, more than %d",
			       odd < 32 ? (int)odd : 32, id, len, FS_SANDBOX_ID_MAX);
	/* Words are for people and for JSON. */
	if (id[odd] != '\0' && (id[odd] < ' ' || id[odd] > '~'))
		return err_set(err, -EINVAL,
			       "sandbox id %.*s...: byte 0x%02x in it; only letters, digits and "
			       ". _ + - are allowed",
			       (int)odd, id, (unsigned char)id[odd]);
	if (odd != len)
		return err_set(err, -EINVAL,
			       "sandbox id %.*s...: only letters, digits and . _ + - are allowed",
			       (int)odd + 1, id);
	if (id[0] == '.')
		return err_set(err, -EINVAL, "sandbox id %s starts with a dot", id);
	/* An option, or the end of them, wherever words are read. */
	if (strncmp(id, "--", 2) == 0)
		return err_set(err, -EINVAL, "sandbox id %s starts with two dashes", id);
	return 0;
}

int fs_boot_id(char **out, struct err *err)
{
	auto_buf struct buf text = {0};
	int ret = io_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 4096, &text);

	if (ret < 0)
		return err_set(err, ret, "cannot read the boot id: %s", strerrordesc_np(-ret));
	*out = strndup(buf_str(&text), strcspn(buf_str(&text), "\n"));
	return *out ? 0 : err_set(err, -ENOMEM, "no memory for the boot id");
}

void fs_record_fini(struct fs_record *rec)
{
	for (size_t i = 0; i < rec->nr_given; i++)
		free(rec->given[i]);
	free(rec->given);
	free(rec->id);
	free(rec->boot_id);
	free(rec->cgroup);
	json_decref(rec->notes);
	fs_plan_fini(&rec->plan);
	memset(rec, 0, sizeof(*rec));
}

static const struct {
	const char *key;
	size_t offset;
} time_keys[] = {
	{"setup_ns", offsetof(struct fs_box_times, setup_ns)},
	{"live_ns", offsetof(struct fs_box_times, live_ns)},
	{"freeze_ns", offsetof(struct fs_box_times, freeze_ns)},
	{"capture_ns", offsetof(struct fs_box_times, capture_ns)},
	{"waited_ns", offsetof(struct fs_box_times, waited_ns)},
	{"waits", offsetof(struct fs_box_times, nr_waits)},
	{"upcalls", offsetof(struct fs_box_times, nr_upcalls)},
	{"upcalls_ns", offsetof(struct fs_box_times, upcalls_ns)},
};
#define NR_TIME_KEYS (sizeof(time_keys) / sizeof(time_keys[0]))

static int64_t *time_at(struct fs_box_times *times, size_t i)
{
	return (int64_t *)(void *)((char *)times + time_keys[i].offset);
}

/* NULL: nothing is known of them, or no memory. */
static json_t *times_to_json(const struct fs_box_times *times)
{
	struct fs_box_times copy = *times;
	json_t *obj = NULL;

	for (size_t i = 0; i < NR_TIME_KEYS; i++) {
		int64_t value = *time_at(&copy, i);

		if (value != 0 && obj == NULL)
			obj = json_object();
		if (value != 0)
			(void)json_object_set_new(obj, time_keys[i].key, json_integer(value));
	}
	if (times->has_former && obj == NULL)
		obj = json_object();
	if (times->has_former)
		(void)json_object_set_new(obj, "former_root",
					  json_string(CAS_DIGEST_TEXT(&times->former)));
	return obj;
}

/* Nothing depends on them: what is no number is none. */
static void times_from_json(const json_t *obj, struct fs_box_times *out)
{
	const char *former = json_string_value(json_object_get(obj, "former_root"));

	for (size_t i = 0; i < NR_TIME_KEYS; i++)
		*time_at(out, i) = json_integer_value(json_object_get(obj, time_keys[i].key));
	out->has_former = former && cas_digest_parse(former, &out->former) == 0;
}

json_t *fs_record_describe(const struct fs_record *rec)
{
	json_t *outputs = json_array();
	json_t *layers = json_array();
	json_t *times = NULL;
	json_t *obj;

	for (size_t i = 0; i < rec->nr_given; i++)
		(void)json_array_append_new(outputs, json_string(rec->given[i]));
	for (size_t i = 0; i < rec->plan.nr_layers; i++)
		(void)json_array_append_new(layers, json_pack("{s:s, s:s}", "kind",
							      layer_names[rec->plan.layers[i].kind],
							      "path", rec->plan.layers[i].path));
	obj = json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:b, s:o, s:o, s:I}", "id", rec->id, "root",
			CAS_DIGEST_TEXT(&rec->root), "state", state_names[rec->state], "writable",
			writable_names[rec->writable], "trace", fs_trace_kind_name(rec->trace),
			"unlisted", rec->unlisted, "attached", rec->attached, "outputs", outputs,
			"layers", layers, "created_ns", (json_int_t)rec->created_ns);
	if (obj && rec->allowance.keeper != FS_KEEPER_NONE)
		(void)json_object_set_new(obj, "max_output",
					  fs_allowance_describe(&rec->allowance));
	if (obj)
		times = times_to_json(&rec->times);
	if (times)
		(void)json_object_set_new(obj, "times", times);
	if (obj && rec->cgroup)
		(void)json_object_set_new(obj, "cgroup", json_string(rec->cgroup));
	if (obj && rec->finished_ns != 0) {
		(void)json_object_set_new(obj, "finished_ns", json_integer(rec->finished_ns));
		(void)json_object_set_new(obj, "exit_code", json_integer(rec->exit_code));
	}
	return obj;
}

static int record_dump(const struct fs_record *rec, char **out, struct err *err)
{
	json_t *obj = fs_record_describe(rec);
	char *text = NULL;

	if (obj) {
		(void)json_object_set_new(obj, "version", json_integer(RECORD_VERSION));
		(void)json_object_set_new(obj, "boot_id", json_string(rec->boot_id));
		if (rec->notes)
			(void)json_object_set(obj, "notes", rec->notes);
		text = json_dumps(obj, JSON_COMPACT);
		json_decref(obj);
	}
	if (text == NULL)
		return err_set(err, -EINVAL, "sandbox %s: a path that is not UTF-8, or no memory",
			       rec->id);
	*out = text;
	return 0;
}

/* Where the filesystem can, the old record becomes the spare one: nothing is freed. */
static int swap_in(int dir_fd)
{
	if (renameat2(dir_fd, FS_RECORD_SPARE, dir_fd, FS_RECORD_NAME, RENAME_EXCHANGE) == 0)
		return 0;
	return renameat(dir_fd, FS_RECORD_SPARE, dir_fd, FS_RECORD_NAME) < 0 ? -errno : 0;
}

static int record_put(const struct fs_record *rec, int dir_fd, bool durable, bool in_place,
		      struct err *err)
{
	auto_free char *text = NULL;
	int ret = record_dump(rec, &text, err);

	if (ret < 0)
		return ret;
	ret = io_overwrite_file(dir_fd, in_place ? FS_RECORD_NAME : FS_RECORD_SPARE, text,
				strlen(text), 0600, durable);
	if (ret == 0 && !in_place)
		ret = swap_in(dir_fd);
	if (ret < 0)
		return err_set(err, ret, "sandbox %s: cannot write the record: %s", rec->id,
			       strerrordesc_np(-ret));
	return 0;
}

int fs_record_write_new(const struct fs_record *rec, int dir_fd, bool durable, struct err *err)
{
	return record_put(rec, dir_fd, durable, true, err);
}

int fs_record_write(const struct fs_record *rec, int dir_fd, bool durable, struct err *err)
{
	return record_put(rec, dir_fd, durable, false, err);
}

static int given_from_json(const json_t *array, struct fs_record *rec)
{
	size_t nr = json_array_size(array);

	rec->given = calloc(nr ? nr : 1, sizeof(*rec->given));
	if (rec->given == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < nr; i++) {
		const char *text = json_string_value(json_array_get(array, i));

		if (text == NULL)
			return -EUCLEAN;
		rec->given[i] = strdup(text);
		if (rec->given[i] == NULL)
			return -ENOMEM;
		rec->nr_given = i + 1;
	}
	return 0;
}

/* A path that was written here is normalised; anything else is damage. */
static bool path_is_normal(const char *path)
{
	while (*path != '\0') {
		size_t len = strcspn(path, "/");

		if (cas_name_check(path, len) < 0)
			return false;
		path += len;
		if (*path == '/' && *++path == '\0')
			return false;
	}
	return true;
}

static int layers_from_json(const json_t *array, struct fs_record *rec)
{
	size_t nr = json_array_size(array);

	rec->plan.layers = calloc(nr ? nr : 1, sizeof(*rec->plan.layers));
	if (rec->plan.layers == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < nr; i++) {
		const json_t *obj = json_array_get(array, i);
		const char *path = json_string_value(json_object_get(obj, "path"));
		int kind = WORD_FIND(layer_names, json_string_value(json_object_get(obj, "kind")));

		if (path == NULL || kind < 0 || !path_is_normal(path))
			return -EUCLEAN;
		rec->plan.layers[i].kind = (enum fs_layer_kind)kind;
		rec->plan.layers[i].path = strdup(path);
		if (rec->plan.layers[i].path == NULL)
			return -ENOMEM;
		rec->plan.nr_layers = i + 1;
	}
	return 0;
}

static int record_from_json(const json_t *obj, struct fs_record *rec)
{
	const char *id = json_string_value(json_object_get(obj, "id"));
	const char *root = json_string_value(json_object_get(obj, "root"));
	const char *boot = json_string_value(json_object_get(obj, "boot_id"));
	const char *cgroup = json_string_value(json_object_get(obj, "cgroup"));
	/* Records of before there were traces have none. */
	const char *trace = json_string_value(json_object_get(obj, "trace"));
	int state = WORD_FIND(state_names, json_string_value(json_object_get(obj, "state")));
	int ret;

	if (json_integer_value(json_object_get(obj, "version")) != RECORD_VERSION || !id || !root ||
	    !boot || state < 0 || fs_sandbox_id_check(id, NULL) < 0 ||
	    cas_digest_parse(root, &rec->root) < 0 ||
	    fs_allowance_parse(json_object_get(obj, "max_output"), &rec->allowance) < 0 ||
	    fs_writable_parse(json_string_value(json_object_get(obj, "writable")), &rec->writable) <
		    0 ||
	    (trace && fs_trace_kind_parse(trace, &rec->trace) < 0))
		return -EUCLEAN;
	rec->state = (enum fs_sandbox_state)state;
	rec->unlisted = json_is_true(json_object_get(obj, "unlisted"));
	rec->attached = json_is_true(json_object_get(obj, "attached"));
	rec->created_ns = json_integer_value(json_object_get(obj, "created_ns"));
	rec->finished_ns = json_integer_value(json_object_get(obj, "finished_ns"));
	rec->exit_code = (int)json_integer_value(json_object_get(obj, "exit_code"));
	rec->notes = json_incref(json_object_get(obj, "notes"));
	times_from_json(json_object_get(obj, "times"), &rec->times);
	rec->id = strdup(id);
	rec->boot_id = strdup(boot);
	rec->cgroup = cgroup ? strdup(cgroup) : NULL;
	if (!rec->id || !rec->boot_id || (cgroup && !rec->cgroup))
		return -ENOMEM;
	ret = given_from_json(json_object_get(obj, "outputs"), rec);
	return ret < 0 ? ret : layers_from_json(json_object_get(obj, "layers"), rec);
}

int fs_record_read(int dir_fd, struct fs_record *out, struct err *err)
{
	auto_buf struct buf text = {0};
	struct fs_record rec = {0};
	json_error_t why;
	json_t *obj;
	int ret = io_read_file(dir_fd, FS_RECORD_NAME, RECORD_MAX, &text);

	if (ret < 0)
		return err_set(err, ret, "cannot read the record: %s", strerrordesc_np(-ret));
	obj = json_loadb(buf_str(&text), text.len, JSON_REJECT_DUPLICATES, &why);
	if (obj == NULL)
		return err_set(err, -EUCLEAN, "record is damaged: line %d: %s", why.line, why.text);
	ret = record_from_json(obj, &rec);
	json_decref(obj);
	if (ret < 0) {
		fs_record_fini(&rec);
		return err_set(err, ret,
			       ret == -EUCLEAN ? "record is damaged, or of another version"
					       : "no memory for a record");
	}
	*out = rec;
	return 0;
}
