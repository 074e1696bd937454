/* tools/run/run_cache.c - `run --cache`: an Action from the words, and the answer it had before */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "cas/cas.h"
#include "tools/cmd/client.h"
#include "tools/cmd/local.h"
#include "tools/run/run.h"
#include "tools/run/run_identity.h"
#include "tools/run/run_outputs.h"

/*
 * The key is the digest of an Action like any other, so that it can be looked up, run and
 * shared as one. What REAPI has no field for are properties of its platform: the policy,
 * the profile, and the identity of each path of the host that the command is shown. Without
 * isolation it is shown everything, and trusted to use nothing but those, the programs in
 * PATH and files that are named in its words.
 */

#define KEY_DIR "meta/host"

struct properties {
	struct cas_property *list; /* strings owned */
	size_t nr;
};

static void properties_fini(struct properties *p)
{
	for (size_t i = 0; i < p->nr; i++)
		free((char *)(uintptr_t)p->list[i].value);
	free(p->list);
}

static int add(struct properties *p, const char *name, const char *value, const char *more)
{
	struct cas_property *grown = reallocarray(p->list, p->nr + 1, sizeof(*grown));
	char *text;

	if (!grown)
		return -ENOMEM;
	p->list = grown;
	if (asprintf(&text, "%s%s%s", value, more ? " " : "", more ? more : "") < 0)
		return -ENOMEM;
	grown[p->nr++] = (struct cas_property){name, text};
	return 0;
}

static int add_digest(struct properties *p, const char *path, const struct cas_digest *digest)
{
	char hex[CAS_HASH_HEX_SZ + 1];

	cas_hash_format(digest->hash, hex);
	return add(p, "casbox-host", path, hex);
}

/* Where what was found of the host is remembered; -1 when it cannot be. */
static int open_memory(struct run *run)
{
	int store_fd = cas_store_dir_fd(local_store(run->local));

	(void)mkdirat(store_fd, KEY_DIR, 0700);
	return openat(store_fd, KEY_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static bool is_shown(const struct run *run, const char *path)
{
	for (size_t i = 0; i < run->host.nr; i++) {
		if (fs_path_within(path, run->host.paths[i]))
			return true;
	}
	return false;
}

static const char *find_variable(const struct run *run, const char *name)
{
	size_t len = strlen(name);

	for (char **v = run->env; v && *v; v++) {
		if (strncmp(*v, name, len) == 0 && (*v)[len] == '=')
			return *v + len + 1;
	}
	return "";
}

/* Where @path leads, if that is a file or directory that the profile does not show; free it. */
static char *real_unshown(const struct run *run, const char *path)
{
	auto_free char *real = path[0] == '/' ? realpath(path, NULL) : NULL;

	return real && !is_shown(run, real) ? steal_ptr(&real) : NULL;
}

/* Programs that PATH finds outside of the profile. */
static int add_path_dirs(struct run *run, struct properties *p, struct err *err)
{
	const char *path = find_variable(run, "PATH");
	int ret = 0;

	while (*path && ret == 0) {
		size_t len = strcspn(path, ":");
		auto_free char *dir = strndup(path, len);
		auto_free char *real = dir ? real_unshown(run, dir) : NULL;
		struct cas_digest digest;

		if (!dir)
			return -ENOMEM;
		if (real) {
			ret = run_identity_shallow(real, &digest, err);
			ret = ret ? ret : add_digest(p, dir, &digest);
		}
		path += len + (path[len] == ':');
	}
	return ret;
}

/* Files of the host that the command's words name: scripts, tools, settings. */
static int add_named_files(struct run *run, struct properties *p, struct err *err)
{
	int ret = 0;

	for (char **word = run->argv; *word && ret == 0; word++) {
		auto_free char *real = real_unshown(run, *word);
		struct cas_digest digest;
		struct stat st;

		if (real && stat(real, &st) == 0 && S_ISREG(st.st_mode)) {
			ret = run_identity(-1, real, &digest, err);
			ret = ret ? ret : add_digest(p, *word, &digest);
		}
	}
	return ret;
}

/* And of a link what it leads to, which is what is shown there. */
static int add_host_path(struct run *run, struct properties *p, int memory_fd, const char *path,
			 struct err *err)
{
	auto_free char *real = real_unshown(run, path);
	struct cas_digest digest;
	int ret = run_identity(memory_fd, path, &digest, err);

	ret = ret ? ret : add_digest(p, path, &digest);
	if (ret == 0 && real && strcmp(real, path) != 0) {
		ret = run_identity(memory_fd, real, &digest, err);
		ret = ret ? ret : add_digest(p, path, &digest);
	}
	return ret;
}

static int add_host(struct run *run, struct properties *p, struct err *err)
{
	auto_close int memory_fd = open_memory(run);
	int ret = 0;

	for (size_t i = 0; i < run->host.nr && ret == 0; i++)
		ret = add_host_path(run, p, memory_fd, run->host.paths[i], err);
	if (ret == 0 && !run->args.isolate)
		ret = add_path_dirs(run, p, err);
	if (ret == 0 && !run->args.isolate)
		ret = add_named_files(run, p, err);
	return ret;
}

static int add_all(struct run *run, struct properties *p, struct err *err)
{
	const struct run_args *a = &run->args;
	struct utsname uts;
	int ret;

	if (uname(&uts))
		return err_set(err, -errno, "cannot tell this machine's kind: %s", strerror(errno));
	ret = add(p, "OSFamily", "linux", NULL);
	if (ret == 0)
		ret = add(p, "ISA", uts.machine, NULL);
	if (ret == 0)
		ret = add(p, "casbox-profile", a->isolate ? "isolate-1" : "trust-host-1",
			  a->share_net ? "net" : NULL);
	if (ret == 0)
		ret = add(p, "casbox-writable", a->writable ? a->writable : "outputs", NULL);
	for (size_t i = 0; i < run->outputs.nr && ret == 0; i++) {
		if (run->outputs.out[i].premade)
			ret = add(p, "casbox-premade", run->outputs.out[i].path, NULL);
	}
	return ret ? ret : add_host(run, p, err);
}

/* The Action of this run, as things are now. */
static int make_key(struct run *run, struct cas_digest *out, struct err *err)
{
	struct cas_command command = {
		.argv = run->argv,
		.env = run->env,
		.workdir = (char *)(uintptr_t)(run->workdir ? run->workdir : ""),
		.format = CAS_OUTPUT_BOTH,
	};
	struct cas_action action = {.timeout_ms = run->timeout_ms};
	struct properties p = {0};
	auto_free char **outputs = calloc(run->outputs.nr + 1, sizeof(*outputs));
	int ret = outputs ? add_all(run, &p, err) : -ENOMEM;

	for (size_t i = 0; outputs && i < run->outputs.nr; i++)
		outputs[i] = run->outputs.out[i].path;
	command.outputs = outputs;
	command.nr_outputs = run->outputs.nr;
	if (ret == 0 && cas_digest_parse(run->root, &action.root))
		ret = -EINVAL;
	if (ret == 0)
		ret = cas_action_put(local_store(run->local), &command, &action, p.list, p.nr, out,
				     err);
	properties_fini(&p);
	return ret == -ENOMEM ? run_out_of_memory(err) : ret;
}

/* 1: there is one, in the store or in a tier. */
static int find_result(struct run *run, struct err *err)
{
	struct cas_store *store = local_store(run->local);
	struct cas_fetch *fetch = local_fetch(run->local);
	int ret = cas_store_action_get(store, &run->key, &run->binary, err);

	if (ret == -ENOENT && fetch)
		ret = cas_fetch_action(fetch, &run->key, &run->binary, err);
	return ret == 0;
}

/* As finish answers. */
static json_t *answer_of(const struct cas_result *r)
{
	json_t *outputs = json_array(), *files = json_array();
	char text[CAS_DIGEST_STR_SZ];

	for (size_t i = 0; i < r->nr; i++) {
		const struct cas_result_output *o = &r->outputs[i];
		static const char *const kinds[] = {"file", "directory", "symlink"};
		json_t *obj = json_object();

		(void)json_object_set_new(obj, "path", json_string(o->path));
		(void)json_object_set_new(obj, "kind", json_string(kinds[o->kind]));
		if (o->kind == CAS_OUTPUT_LINK)
			(void)json_object_set_new(obj, "target", json_string(o->target));
		else
			(void)json_object_set_new(
				obj, "digest",
				json_string(cas_digest_format(&o->digest, '/', text)));
		(void)json_object_set_new(obj, "isExecutable", json_boolean(o->executable));
		(void)json_array_append_new(outputs, obj);
		(void)json_array_append(files, obj);
	}
	return json_pack("{s:o, s:{s:o}}", "outputs", outputs, "result", "outputFiles", files);
}

/* Pass a stream on as the command did. */
static int replay(struct run *run, const struct cas_digest *digest, int to, struct err *err)
{
	auto_close int fd = -1;
	char data[65536];
	ssize_t got;
	int ret = cas_store_open_blob(local_store(run->local), digest, &fd, err);

	if (ret)
		return ret;
	while ((got = io_read_full(fd, data, sizeof(data))) > 0) {
		ret = io_write_full(to, data, (size_t)got);
		/* Who stopped listening does not get the rest, as with the command. */
		if (ret)
			return ret == -EPIPE
				       ? 0
				       : err_set(err, ret, "cannot write the command's output: %s",
						 strerror(-ret));
	}
	return got < 0 ? err_set(err, (int)got, "cannot read the command's output: %s",
				 strerror((int)-got))
		       : 0;
}

/* Is every output that was asked for among them, and a success? */
static bool answers(const struct run *run, const struct cas_result *r, const json_t *answer)
{
	for (size_t i = 0; i < run->outputs.nr; i++) {
		if (!run_outputs_find(answer, run->outputs.out[i].path) && !run->action)
			return false;
	}
	return r->exit_code == 0;
}

static int use_result(struct run *run, const struct cas_result *r, struct err *err)
{
	int ret = 0;

	if (run->into)
		ret = run_outputs_restore(local_store(run->local), run->into, &run->outputs,
					  run->answer, true, err);
	if (ret == 0 && r->has_stdout)
		ret = replay(run, &r->stdout_digest, STDOUT_FILENO, err);
	if (ret == 0 && r->has_stderr)
		ret = replay(run, &r->stderr_digest, STDERR_FILENO, err);
	return ret ? ret : run_write_result(run, err);
}

static int look_up(struct run *run, bool *hit, struct err *err)
{
	struct cas_result r = {0};
	struct err why = {0};
	int ret;

	if (!find_result(run, &why)) {
		log_info("not in the action cache: %s", why.msg);
		return 0;
	}
	ret = cas_result_load(local_store(run->local), run->binary.data, run->binary.len, &r, &why);
	if (ret == 0) {
		if (run->action)
			run_action_unmap(run, &r);
		run->answer = answer_of(&r);
		*hit = run->answer && answers(run, &r, run->answer);
		ret = *hit ? use_result(run, &r, &why) : 0;
	}
	cas_result_fini(&r);
	/* Evicted under our hands: as if it had never been there. */
	if (ret == -ENOENT || ret == -EUCLEAN || ret == -EBADMSG || ret == -EAGAIN) {
		log_info("the cached result cannot be used: %s", err_text(&why, ret));
		*hit = false;
		ret = 0;
	}
	if (ret == 0 && !*hit) {
		buf_reset(&run->binary);
		json_decref(run->answer);
		run->answer = NULL;
	}
	return ret ? err_set(err, ret, "%s", err_text(&why, ret)) : 0;
}

int run_cache_look(struct run *run, bool *hit, struct err *err)
{
	int ret = 0;

	*hit = false;
	if (!run->action) {
		ret = run_input_store(run, err);
		if (ret == 0)
			ret = make_key(run, &run->key, err);
		run->has_key = ret == 0;
		(void)strcpy(run->key_root, run->root);
	}
	return ret || !run->has_key ? ret : look_up(run, hit, err);
}

int run_cache_check(struct run *run, bool *same, struct err *err)
{
	struct cas_digest now;
	int ret;

	*same = true;
	if (run->action || !run->args.cache)
		return 0;
	ret = make_key(run, &now, err);
	*same = ret == 0 && cas_digest_equal(&now, &run->key) &&
		strcmp(run->key_root, run->root) == 0;
	if (ret == 0 && !*same)
		cli_warn(run->cli, "not cached: tools of the host, or the input, changed "
				   "while the command ran");
	return ret;
}
