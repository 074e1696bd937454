/* tools/config.h - settings from files and environment */
#ifndef TOOLS_CONFIG_H
#define TOOLS_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

struct err;

/*
 * `key = value` lines with `#` comments (at the start of a line or after a blank). Keys
 * are long options' names; the last value of a key wins.
 */
struct config;

int config_new(struct config **out);
void config_free(struct config *config);

/*
 * Read one file. A missing one is no error. -EINVAL: a line without "=", or a key
 * that no option has; file, line and key are named.
 */
int config_read_file(struct config *config, const char *path, struct err *err);

/* Take CASBOX_KEY=VALUE from @env, except CASBOX_STORE and CASBOX_TEST_*; -EINVAL as above. */
int config_read_env(struct config *config, char *const *env, struct err *err);

/* /etc/casbox.conf, the user's file, STORE/config, the environment, in this order. */
int config_load(struct config *config, const char *store, struct err *err);

/*
 * The value of @key, or NULL. Valid as long as @config, and may be taken apart in place.
 * *origin says where from. Of a key that may repeat: all values of the last place that
 * gives any, blanks between.
 */
char *config_get(const struct config *config, const char *key, const char **origin);

/*
 * The store when no --store is given, for the caller to free: $CASBOX_STORE, else casbox below
 * the user's cache. -ENOENT: the environment names neither.
 */
int config_default_store(char **out, struct err *err);

bool config_key_known(const char *key);

#endif
