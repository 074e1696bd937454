/* cas/reapi/action.c - decode an Action and its Command */
#include "cas/reapi/action.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/base/text_i.h"
#include "cas/reapi.pb-c.h"
#include "cas/reapi/directory.h"
#include "cas/store/store.h"

static int to_digest(const Reapi__Digest *from, struct cas_digest *out)
{
	if (from == NULL || from->size_bytes < 0 ||
	    cas_hash_parse(from->hash, strlen(from->hash), out->hash) < 0)
		return -EUCLEAN;
	out->size = (uint64_t)from->size_bytes;
	return 0;
}

static int read_timeout(const Reapi__Duration *d, uint64_t *out)
{
	if (d == NULL)
		return 0;
	if (d->seconds < 0 || d->nanos < 0 || d->nanos > 999999999)
		return -EUCLEAN;
	if (d->seconds > INT32_MAX)
		return 0;
	*out = (uint64_t)d->seconds * 1000 + (uint64_t)(d->nanos + 999999) / 1000000;
	return 0;
}

int cas_action_decode(const void *data, size_t len, struct cas_action *out, struct err *err)
{
	Reapi__Action *a = reapi__action__unpack(NULL, len, data);
	struct cas_action got = {0};
	int ret = 0;

	if (a == NULL)
		return err_set(err, -EUCLEAN, "not an Action");
	if (to_digest(a->command_digest, &got.command))
		ret = err_set(err, -EUCLEAN, "an Action without a command");
	else if (to_digest(a->input_root_digest, &got.root))
		ret = err_set(err, -EUCLEAN, "an Action without an input root");
	else if (read_timeout(a->timeout, &got.timeout_ms))
		ret = err_set(err, -EUCLEAN, "an Action with a negative timeout");
	got.do_not_cache = a->do_not_cache;
	reapi__action__free_unpacked(a, NULL);
	if (ret == 0)
		*out = got;
	return ret;
}

/* Relative, and not leading out of where it starts. */
static bool stays_below(const char *path)
{
	int depth = 0;

	if (path[0] == '/')
		return false;
	while (*path) {
		size_t len = strcspn(path, "/");

		if (len == 2 && path[0] == '.' && path[1] == '.')
			depth--;
		else if (len > 0 && !(len == 1 && path[0] == '.'))
			depth++;
		if (depth < 0)
			return false;
		path += len + (path[len] == '/');
	}
	return true;
}

/* @path without "", "." and "..", which it may not have. */
static int copy_workdir(const char *path, char **out, struct err *err)
{
	char *to = malloc(strlen(path) + 1);
	size_t used = 0;

	if (to == NULL)
		return -ENOMEM;
	for (const char *p = path; *p;) {
		size_t len = strcspn(p, "/");

		if (path[0] == '/' || (len == 2 && p[0] == '.' && p[1] == '.') ||
		    (len > 0 && cas_name_check(p, len) && !(len == 1 && p[0] == '.'))) {
			free(to);
			return err_set(err, -EUCLEAN,
				       "the working directory \"%s\" is not below the root",
				       CAS_TEXT(path));
		}
		if (len > 0 && !(len == 1 && p[0] == '.')) {
			if (used > 0)
				to[used++] = '/';
			memcpy(to + used, p, len);
			used += len;
		}
		p += len + (p[len] == '/');
	}
	to[used] = '\0';
	*out = to;
	return 0;
}

/* Copies of @nr strings and a NULL. */
static int copy_list(char *const *from, size_t nr, char **to)
{
	for (size_t i = 0; i < nr; i++) {
		to[i] = strdup(from[i]);
		if (to[i] == NULL)
			return -ENOMEM;
	}
	return 0;
}

static int copy_env(const Reapi__Command *c, char **to, struct err *err)
{
	for (size_t i = 0; i < c->n_environment_variables; i++) {
		const Reapi__EnvironmentVariable *v = c->environment_variables[i];
		struct buf b = {0};

		if (v->name[0] == '\0' || strchr(v->name, '='))
			return err_set(err, -EUCLEAN,
				       "a Command with a variable of the name \"%s\"",
				       CAS_TEXT(v->name));
		if (buf_printf(&b, "%s=%s", v->name, v->value))
			return -ENOMEM;
		to[i] = buf_steal(&b);
	}
	return 0;
}

/* output_paths, and where there are none what came before them. */
static int copy_outputs(const Reapi__Command *c, struct cas_command *out, struct err *err)
{
	size_t nr = c->n_output_paths;
	size_t old = nr ? 0 : c->n_output_files + c->n_output_directories;
	int ret;

	out->outputs = calloc(nr + old + 1, sizeof(*out->outputs));
	if (out->outputs == NULL)
		return -ENOMEM;
	out->nr_outputs = nr + old;
	if (nr)
		ret = copy_list(c->output_paths, nr, out->outputs);
	else
		ret = copy_list(c->output_files, c->n_output_files, out->outputs);
	if (ret == 0 && old)
		ret = copy_list(c->output_directories, c->n_output_directories,
				out->outputs + c->n_output_files);
	for (size_t i = 0; ret == 0 && i < out->nr_outputs; i++) {
		struct buf b = {0};

		ret = buf_printf(&b, "%s/%s", out->workdir, out->outputs[i]);
		if (ret == 0 && (out->outputs[i][0] == '/' ||
				 !stays_below(buf_str(&b) + (out->workdir[0] == '\0'))))
			ret = err_set(err, -EUCLEAN, "the output \"%s\" leads out of the root",
				      CAS_TEXT(out->outputs[i]));
		buf_fini(&b);
	}
	return ret;
}

static int copy_command(const Reapi__Command *c, struct cas_command *out, struct err *err)
{
	int ret;

	if (c->n_arguments == 0 || c->arguments[0][0] == '\0')
		return err_set(err, -EUCLEAN, "a Command without arguments");
	if (c->output_directory_format < 0 || c->output_directory_format > CAS_OUTPUT_BOTH)
		return err_set(err, -EUCLEAN, "a Command with an unknown format of directories");
	out->format = (enum cas_output_format)c->output_directory_format;
	out->argv = calloc(c->n_arguments + 1, sizeof(*out->argv));
	out->env = calloc(c->n_environment_variables + 1, sizeof(*out->env));
	if (out->argv == NULL || out->env == NULL)
		return -ENOMEM;
	ret = copy_list(c->arguments, c->n_arguments, out->argv);
	if (ret == 0)
		ret = copy_env(c, out->env, err);
	if (ret == 0)
		ret = copy_workdir(c->working_directory, &out->workdir, err);
	return ret ? ret : copy_outputs(c, out, err);
}

int cas_command_decode(const void *data, size_t len, struct cas_command *out, struct err *err)
{
	Reapi__Command *c = reapi__command__unpack(NULL, len, data);
	struct cas_command got = {0};
	int ret;

	if (c == NULL)
		return err_set(err, -EUCLEAN, "not a Command");
	ret = copy_command(c, &got, err);
	reapi__command__free_unpacked(c, NULL);
	if (ret) {
		cas_command_fini(&got);
		return ret == -ENOMEM ? err_set(err, ret, "no memory for a Command") : ret;
	}
	*out = got;
	return 0;
}

static void free_list(char **list)
{
	for (char **p = list; p && *p; p++)
		free(*p);
	free(list);
}

void cas_command_fini(struct cas_command *command)
{
	free_list(command->argv);
	free_list(command->env);
	free_list(command->outputs);
	free(command->workdir);
	memset(command, 0, sizeof(*command));
}

/* The digest belongs to what is wrong. */
static int name_blob(int ret, const char *what, const struct cas_digest *digest, struct err *err)
{
	struct err why = {0};

	if (ret != -EUCLEAN || err == NULL)
		return ret;
	why = *err;
	return err_set(err, ret, "%s %s: %s", what, CAS_DIGEST_TEXT(digest), err_text(&why, ret));
}

int cas_action_load(struct cas_store *store, const struct cas_digest *digest,
		    struct cas_action *action, struct cas_command *command, struct err *err)
{
	struct cas_action got = {0};
	auto_buf struct buf b = {0};
	int ret = cas_store_read_blob(store, digest, CAS_ACTION_MAX, &b, err);

	if (ret == 0)
		ret = name_blob(cas_action_decode(buf_str(&b), b.len, &got, err), "the action",
				digest, err);
	buf_reset(&b);
	if (ret == 0)
		ret = cas_store_read_blob(store, &got.command, CAS_ACTION_MAX, &b, err);
	if (ret == 0)
		ret = name_blob(cas_command_decode(buf_str(&b), b.len, command, err), "the command",
				&got.command, err);
	if (ret == 0)
		*action = got;
	return ret;
}
