/* tools/config.c - settings from files and environment */
#include "tools/config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"

#define CONFIG_MAX (1 << 20) /* bytes of one file */

/* Every option marked `setting`, in any command; cli.c asserts it. */
static const char *const known[] = {
	"allow-other",	   "blobs",	      "durability", "idle",	  "large",
	"log-level",	   "low-size",	      "max-blobs",  "max-memory", "max-output",
	"max-procs",	   "max-size",	      "mode",	    "mount",	  "option",
	"spool-max-bytes", "spool-max-count", "threads",    "tier",	  "timeout",
	"writable",
};
#define NR_KNOWN (sizeof(known) / sizeof(known[0]))

struct config {
	char *value[NR_KNOWN];
	char *origin[NR_KNOWN];
};

static int key_index(const char *key)
{
	for (size_t i = 0; i < NR_KNOWN; i++) {
		if (strcmp(known[i], key) == 0)
			return (int)i;
	}
	return -1;
}

bool config_key_known(const char *key)
{
	return key_index(key) >= 0;
}

int config_new(struct config **out)
{
	struct config *config = calloc(1, sizeof(*config));

	if (!config)
		return -ENOMEM;
	*out = config;
	return 0;
}

void config_free(struct config *config)
{
	if (!config)
		return;
	for (size_t i = 0; i < NR_KNOWN; i++) {
		free(config->value[i]);
		free(config->origin[i]);
	}
	free(config);
}

/* Keys that may repeat, in one place; their values are kept with a blank between. */
static bool is_list(const char *key)
{
	return strcmp(key, "tier") == 0;
}

/* Are both from the same file ("PATH:LINE")? */
static bool is_same_place(const char *a, const char *b)
{
	const char *end_a = strrchr(a, ':');
	const char *end_b = strrchr(b, ':');

	return end_a && end_b && end_a - a == end_b - b && memcmp(a, b, (size_t)(end_a - a)) == 0;
}

static char *value_after(const struct config *config, int i, const char *key, const char *value,
			 const char *origin)
{
	char *both;

	if (!is_list(key) || !config->value[i] || !is_same_place(config->origin[i], origin))
		return strdup(value);
	return asprintf(&both, "%s %s", config->value[i], value) < 0 ? NULL : both;
}

static int set_value(struct config *config, const char *key, const char *value, const char *origin,
		     struct err *err)
{
	int i = key_index(key);
	char *v, *o;

	if (i < 0)
		return err_set(err, -EINVAL, "%s: unknown key %s", origin, key);
	v = value_after(config, i, key, value, origin);
	o = strdup(origin);
	if (!v || !o) {
		free(v);
		free(o);
		return err_set(err, -ENOMEM, "out of memory");
	}
	free(config->value[i]);
	free(config->origin[i]);
	config->value[i] = v;
	config->origin[i] = o;
	return 0;
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static char *trim(char *s)
{
	char *end;

	while (is_blank(*s))
		s++;
	end = s + strlen(s);
	while (end > s && is_blank(end[-1]))
		*--end = '\0';
	return s;
}

static void cut_comment(char *line)
{
	for (char *p = line; *p; p++) {
		if (*p == '#' && (p == line || is_blank(p[-1]))) {
			*p = '\0';
			return;
		}
	}
}

static int read_line(struct config *config, char *line, const char *origin, struct err *err)
{
	char *eq;

	cut_comment(line);
	line = trim(line);
	if (*line == '\0')
		return 0;
	eq = strchr(line, '=');
	if (!eq)
		return err_set(err, -EINVAL, "%s: expected KEY = VALUE, found %.100s", origin,
			       line);
	*eq = '\0';
	return set_value(config, trim(line), trim(eq + 1), origin, err);
}

int config_read_file(struct config *config, const char *path, struct err *err)
{
	auto_buf struct buf text = {0};
	char *line, *next;
	int nr = 0;
	int ret = io_read_file(AT_FDCWD, path, CONFIG_MAX, &text);

	if (ret == -ENOENT || ret == -ENOTDIR)
		return 0;
	if (ret)
		return err_set(err, ret, "cannot read the configuration %s: %s", path,
			       strerror(-ret));
	if (text.len == 0)
		return 0;
	if (memchr(text.data, '\0', text.len))
		return err_set(err, -EINVAL, "%s: holds a NUL byte", path);
	for (line = text.data; line; line = next) {
		auto_free char *origin = NULL;

		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		if (asprintf(&origin, "%s:%d", path, ++nr) < 0) {
			origin = NULL;
			return err_set(err, -ENOMEM, "out of memory");
		}
		ret = read_line(config, line, origin, err);
		if (ret)
			return ret;
	}
	return 0;
}

/* CASBOX_ALLOW_OTHER=... -> "allow-other"; false when @entry is none of ours. */
static bool env_key(const char *entry, char *key, size_t key_sz)
{
	const char *name = entry + strlen("CASBOX_");
	size_t len;

	if (strncmp(entry, "CASBOX_", strlen("CASBOX_")) != 0)
		return false;
	if (strncmp(name, "STORE=", 6) == 0 || strncmp(name, "TEST_", 5) == 0)
		return false;
	len = strcspn(name, "=");
	if (name[len] != '=' || len >= key_sz)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (name[i] == '_')
			key[i] = '-';
		else if (name[i] >= 'A' && name[i] <= 'Z')
			key[i] = (char)(name[i] - 'A' + 'a');
		else
			key[i] = name[i];
	}
	key[len] = '\0';
	return true;
}

int config_read_env(struct config *config, char *const *env, struct err *err)
{
	char key[64];

	for (; env && *env; env++) {
		auto_free char *origin = NULL;
		int ret;

		if (!env_key(*env, key, sizeof(key)))
			continue;
		if (asprintf(&origin, "environment variable %.*s", (int)strcspn(*env, "="), *env) <
		    0) {
			origin = NULL;
			return err_set(err, -ENOMEM, "out of memory");
		}
		ret = set_value(config, key, strchr(*env, '=') + 1, origin, err);
		if (ret)
			return ret;
	}
	return 0;
}

static int read_below(struct config *config, const char *dir, const char *name, struct err *err)
{
	auto_free char *path = NULL;

	if (asprintf(&path, "%s/%s", dir, name) < 0) {
		path = NULL;
		return err_set(err, -ENOMEM, "out of memory");
	}
	return config_read_file(config, path, err);
}

static int read_user_file(struct config *config, struct err *err)
{
	const char *dir = getenv("XDG_CONFIG_HOME");
	const char *home = getenv("HOME");

	if (dir && dir[0] == '/')
		return read_below(config, dir, "casbox.conf", err);
	if (home && home[0] == '/')
		return read_below(config, home, ".config/casbox.conf", err);
	return 0;
}

int config_load(struct config *config, const char *store, struct err *err)
{
	int ret = config_read_file(config, "/etc/casbox.conf", err);

	if (ret == 0)
		ret = read_user_file(config, err);
	if (ret == 0 && store)
		ret = read_below(config, store, "config", err);
	if (ret == 0)
		ret = config_read_env(config, environ, err);
	return ret;
}

char *config_get(const struct config *config, const char *key, const char **origin)
{
	int i = key_index(key);

	if (i < 0 || !config->value[i])
		return NULL;
	if (origin)
		*origin = config->origin[i];
	return config->value[i];
}

int config_default_store(char **out, struct err *err)
{
	const char *env = getenv("CASBOX_STORE");
	const char *cache = getenv("XDG_CACHE_HOME");
	const char *home = getenv("HOME");
	int ret;

	if (env && *env)
		ret = asprintf(out, "%s", env);
	else if (cache && cache[0] == '/')
		ret = asprintf(out, "%s/casbox", cache);
	else if (home && home[0] == '/')
		ret = asprintf(out, "%s/.cache/casbox", home);
	else
		return err_set(err, -ENOENT, "no store: give --store DIR, or set CASBOX_STORE");
	if (ret < 0) {
		*out = NULL;
		return err_set(err, -ENOMEM, "out of memory");
	}
	return 0;
}
