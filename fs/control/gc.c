/* fs/control/gc.c - eviction by the daemon, which alone may unlink while it serves */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/control/control.h"
#include "fs/sandbox/sandbox.h"
#include "meta/meta.h"

/* Who is told of a root, and what came of it. */
struct roots {
	const struct control_env *env;
	int (*root)(void *arg, const struct cas_digest *d, bool is_directory);
	void *arg;
};

/* A digest as proto3 JSON has it: {"hash": ..., "sizeBytes": "N"}. */
static int parse_object(const json_t *object, struct cas_digest *out)
{
	const char *hash = json_string_value(json_object_get(object, "hash"));
	const json_t *size = json_object_get(object, "sizeBytes");
	char text[CAS_DIGEST_STR_SZ];

	if (!hash || strlen(hash) != CAS_HASH_HEX_SZ)
		return -EINVAL;
	if (json_is_integer(size))
		(void)snprintf(text, sizeof(text), "%s/%lld", hash,
			       (long long)json_integer_value(size));
	else
		(void)snprintf(text, sizeof(text), "%s/%.19s", hash,
			       json_is_string(size) ? json_string_value(size) : "0");
	return cas_digest_parse(text, out);
}

/* Tell of every digest in @value, however deep; @key is the member it is the value of. */
static int walk_json(const struct roots *roots, const char *key, const json_t *value,
		     bool in_directory)
{
	struct cas_digest digest;
	const json_t *member;
	const char *name;
	const char *kind;
	size_t i;
	int ret = 0;
	bool is_directory = in_directory || strcmp(key, "rootDirectoryDigest") == 0;

	if (json_is_string(value))
		return cas_digest_parse(json_string_value(value), &digest) < 0
			       ? 0
			       : roots->root(roots->arg, &digest, is_directory);
	if (json_is_array(value)) {
		for (i = 0; ret == 0 && i < json_array_size(value); i++)
			ret = walk_json(roots, key, json_array_get(value, i), is_directory);
		return ret;
	}
	if (!json_is_object(value))
		return 0;
	if (parse_object(value, &digest) == 0)
		return roots->root(roots->arg, &digest, is_directory);
	kind = json_string_value(json_object_get(value, "kind"));
	json_object_foreach((json_t *)value, name, member)
	{
		if (ret == 0)
			ret = walk_json(roots, name, member,
					kind && strcmp(kind, "directory") == 0);
	}
	return ret;
}

/* A sandbox needs its input root and, once finished, what its result names. */
static int tell_sandbox(const struct roots *roots, const json_t *sandbox, struct err *err)
{
	static const struct fs_finish_spec same = {0};
	const char *id = json_string_value(json_object_get(sandbox, "id"));
	const char *state = json_string_value(json_object_get(sandbox, "state"));
	const char *root = json_string_value(json_object_get(sandbox, "root"));
	struct cas_digest digest;
	json_t *answer = NULL;
	int ret = 0;

	if (root && cas_digest_parse(root, &digest) == 0)
		ret = roots->root(roots->arg, &digest, true);
	if (ret < 0 || !id || !state || strcmp(state, "finished") != 0)
		return ret;
	/* Finishing twice gives the answer of the first time. */
	ret = fs_sandbox_finish(roots->env->sandboxes, id, &same, &answer, err);
	if (answer)
		ret = walk_json(roots, "", answer, false);
	else if (ret == -ENOENT)
		ret = 0; /* removed meanwhile */
	json_decref(answer);
	return ret;
}

/* Names in pins/ are digests; whether of a Directory shows when it is read as one. */
static int tell_pins(const struct roots *roots)
{
	int fd = openat(cas_store_dir_fd(roots->env->store), "pins",
			O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_closedir DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *de;
	int ret = 0;

	if (!dir)
		return errno == ENOENT ? 0 : -errno;
	while (ret == 0 && (de = readdir(dir)) != NULL) {
		struct cas_directory *content = NULL;
		struct cas_digest digest;

		if (cas_digest_parse(de->d_name, &digest) < 0)
			continue;
		(void)cas_directory_load(roots->env->store, &digest, &content, NULL);
		ret = roots->root(roots->arg, &digest, content != NULL);
		cas_directory_free(content);
	}
	return ret;
}

static int each_root(void *ctx,
		     int (*root)(void *arg, const struct cas_digest *d, bool is_directory),
		     void *arg, struct err *err)
{
	struct roots roots = {ctx, root, arg};
	json_t *list = NULL;
	int ret = fs_sandboxes_describe(roots.env->sandboxes, &list, err);

	for (size_t i = 0; ret == 0 && i < json_array_size(list); i++)
		ret = tell_sandbox(&roots, json_array_get(list, i), err);
	json_decref(list);
	return ret < 0 ? ret : tell_pins(&roots);
}

static int add_answer(json_t *answer, const struct cas_evict_result *r)
{
	json_t *o = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "before_bytes",
			      (json_int_t)r->before_bytes, "after_bytes",
			      (json_int_t)r->after_bytes, "freed_bytes", (json_int_t)r->freed_bytes,
			      "freed_blobs", (json_int_t)r->freed_blobs, "kept_live_bytes",
			      (json_int_t)r->kept_live_bytes, "freed_temporaries",
			      (json_int_t)r->freed_temporaries);
	int ret = o && json_object_update(answer, o) == 0 ? 0 : -ENOMEM;

	json_decref(o);
	return ret;
}

int control_gc(struct control_call *call, struct err *err)
{
	struct cas_evict_options opts = {.dry_run = control_has(call->req, "dry-run")};
	struct cas_evict_roots roots = {each_root, (void *)call->env};
	struct cas_evict_result result = {0};
	int64_t max = 0;
	int ret = control_get_number(call->req, "max-size", 0, INT64_MAX, &max, err);

	if (ret < 0)
		return ret;
	opts.max_bytes = (uint64_t)max;
	ret = cas_evict(call->env->store, &opts, &roots, &result, err);
	/* Rows that a full disk took have room again; what still fails is tried later. */
	if (ret == 0 && meta_needs_reconcile(call->env->meta))
		(void)meta_reconcile(call->env->meta, NULL, NULL);
	return ret < 0 ? ret : add_answer(call->answer, &result);
}
