/* cas/reapi/action_encode.c - an Action and its Command in canonical form */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/base/auto.h"
#include "cas/base/buf.h"
#include "cas/base/err.h"
#include "cas/put/put.h"
#include "cas/reapi.pb-c.h"
#include "cas/reapi/action.h"
#include "cas/reapi/directory.h"

static int compare_words(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int compare_properties(const void *a, const void *b)
{
	const struct cas_property *const *x = a, *const *y = b;
	int ret = strcmp((*x)->name, (*y)->name);

	return ret ? ret : strcmp((*x)->value, (*y)->value);
}

static size_t count(char *const *list)
{
	size_t nr = 0;

	while (list[nr])
		nr++;
	return nr;
}

/* NAME=VALUE, in order of NAME: '=' would sort after digits. */
static int compare_variables(const void *a, const void *b)
{
	const Reapi__EnvironmentVariable *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

struct maker {
	Reapi__EnvironmentVariable *vars;
	Reapi__EnvironmentVariable **var_ptrs;
	char **names; /* of the variables */
	char **outputs;
	Reapi__PlatformProperty *props;
	Reapi__PlatformProperty **prop_ptrs;
	const struct cas_property **sorted;
};

static void maker_fini(struct maker *m)
{
	for (char **p = m->names; p && *p; p++)
		free(*p);
	free(m->names);
	free(m->vars);
	free(m->var_ptrs);
	free(m->outputs);
	free(m->props);
	free(m->prop_ptrs);
	free(m->sorted);
}

static int maker_init(struct maker *m, size_t nr_vars, size_t nr_outputs, size_t nr_props)
{
	m->vars = calloc(nr_vars + 1, sizeof(*m->vars));
	m->var_ptrs = calloc(nr_vars + 1, sizeof(*m->var_ptrs));
	m->names = calloc(nr_vars + 1, sizeof(*m->names));
	m->outputs = calloc(nr_outputs + 1, sizeof(*m->outputs));
	m->props = calloc(nr_props + 1, sizeof(*m->props));
	m->prop_ptrs = calloc(nr_props + 1, sizeof(*m->prop_ptrs));
	m->sorted = calloc(nr_props + 1, sizeof(*m->sorted));
	return m->vars && m->var_ptrs && m->names && m->outputs && m->props && m->prop_ptrs &&
			       m->sorted
		       ? 0
		       : -ENOMEM;
}

static int fill_command(struct maker *m, const struct cas_command *from, Reapi__Command *to)
{
	size_t nr = count(from->env);

	to->arguments = from->argv;
	to->n_arguments = count(from->argv);
	to->working_directory = from->workdir;
	to->output_directory_format = (int32_t)from->format;
	for (size_t i = 0; i < nr; i++) {
		const char *equals = strchr(from->env[i], '=');

		m->names[i] = strndup(from->env[i], (size_t)(equals - from->env[i]));
		if (m->names[i] == NULL)
			return -ENOMEM;
		reapi__environment_variable__init(&m->vars[i]);
		m->vars[i].name = m->names[i];
		m->vars[i].value = (char *)(uintptr_t)(equals + 1);
		m->var_ptrs[i] = &m->vars[i];
	}
	qsort(m->var_ptrs, nr, sizeof(*m->var_ptrs), compare_variables);
	to->environment_variables = m->var_ptrs;
	to->n_environment_variables = nr;
	for (size_t i = 0; i < from->nr_outputs; i++)
		m->outputs[i] = from->outputs[i];
	qsort(m->outputs, from->nr_outputs, sizeof(*m->outputs), compare_words);
	to->output_paths = m->outputs;
	for (size_t i = 0; i < from->nr_outputs; i++) {
		size_t kept = to->n_output_paths;

		if (kept == 0 || strcmp(m->outputs[kept - 1], m->outputs[i]) != 0)
			m->outputs[to->n_output_paths++] = m->outputs[i];
	}
	return 0;
}

static int put_message(struct cas_store *store, const ProtobufCMessage *message,
		       struct cas_digest *out, struct err *err)
{
	size_t len = protobuf_c_message_get_packed_size(message);
	auto_free uint8_t *data = malloc(len + 1);

	if (data == NULL)
		return err_set(err, -ENOMEM, "no memory for an Action");
	(void)protobuf_c_message_pack(message, data);
	return cas_put_bytes(store, data, len, out, err);
}

static void fill_platform(struct maker *m, const struct cas_property *platform, size_t nr,
			  Reapi__Platform *to)
{
	for (size_t i = 0; i < nr; i++)
		m->sorted[i] = &platform[i];
	qsort(m->sorted, nr, sizeof(*m->sorted), compare_properties);
	for (size_t i = 0; i < nr; i++) {
		reapi__platform_property__init(&m->props[i]);
		m->props[i].name = (char *)(uintptr_t)m->sorted[i]->name;
		m->props[i].value = (char *)(uintptr_t)m->sorted[i]->value;
		m->prop_ptrs[i] = &m->props[i];
	}
	reapi__platform__init(to);
	to->properties = m->prop_ptrs;
	to->n_properties = nr;
}

static void fill_digest(const struct cas_digest *from, char hash[CAS_HASH_HEX_SZ + 1],
			Reapi__Digest *to)
{
	reapi__digest__init(to);
	cas_hash_format(from->hash, hash);
	to->hash = hash;
	to->size_bytes = (int64_t)from->size;
}

static int put_action(struct cas_store *store, const struct cas_action *from,
		      const struct cas_digest *command_digest, Reapi__Platform *platform,
		      struct cas_digest *out, struct err *err)
{
	Reapi__Action action;
	Reapi__Digest command, root;
	Reapi__Duration timeout;
	char hex[2][CAS_HASH_HEX_SZ + 1];

	reapi__action__init(&action);
	fill_digest(command_digest, hex[0], &command);
	fill_digest(&from->root, hex[1], &root);
	action.command_digest = &command;
	action.input_root_digest = &root;
	action.do_not_cache = from->do_not_cache;
	reapi__duration__init(&timeout);
	timeout.seconds = (int64_t)(from->timeout_ms / 1000);
	timeout.nanos = (int32_t)(from->timeout_ms % 1000) * 1000000;
	if (from->timeout_ms)
		action.timeout = &timeout;
	if (platform->n_properties)
		action.platform = platform;
	return put_message(store, &action.base, out, err);
}

int cas_action_put(struct cas_store *store, const struct cas_command *command,
		   const struct cas_action *action, const struct cas_property *platform,
		   size_t nr_platform, struct cas_digest *out, struct err *err)
{
	struct maker m = {0};
	Reapi__Command c;
	Reapi__Platform p;
	struct cas_digest command_digest;
	int ret = maker_init(&m, count(command->env), command->nr_outputs, nr_platform);

	reapi__command__init(&c);
	if (ret == 0)
		ret = fill_command(&m, command, &c);
	if (ret)
		(void)err_set(err, ret, "no memory for an Action");
	if (ret == 0)
		ret = put_message(store, &c.base, &command_digest, err);
	if (ret == 0) {
		fill_platform(&m, platform, nr_platform, &p);
		ret = put_action(store, action, &command_digest, &p, out, err);
	}
	maker_fini(&m);
	return ret;
}
