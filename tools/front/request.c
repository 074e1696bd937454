/* tools/front/request.c - is this a command line, and a configuration, for the front? */
#include <stdint.h>
#include <string.h>

#include "tools/cli.h"
#include "tools/config.h"
#include "tools/front/front.h"

/* The value of `--name VALUE` or `--name=VALUE`, past which *argv is moved; NULL: another word. */
static const char *option(char *const **argv, const char *name)
{
	const char *word = **argv;
	size_t len = strlen(name);

	if (strncmp(word, name, len) != 0)
		return NULL;
	if (word[len] == '=') {
		++*argv;
		return word + len + 1;
	}
	if (word[len] != '\0' || !(*argv)[1])
		return NULL;
	*argv += 2;
	return (*argv)[-1];
}

/* A word of the command: its name, the digest, the destination. */
static bool take_word(struct front_request *out, const char *word, int nr)
{
	if (nr == 0)
		return strcmp(word, "checkout") == 0;
	if (nr == 1)
		out->digest = word;
	else
		out->dest = word;
	return nr <= 2;
}

/* Before the command's name there is no --mode. */
bool front_request_parse(char *const *argv, struct front_request *out)
{
	int nr = 0;

	*out = (struct front_request){0};
	while (*argv) {
		const char *store = option(&argv, "--store");
		const char *mode = store || nr == 0 || !*argv ? NULL : option(&argv, "--mode");

		if (store && *store)
			out->store = store;
		else if (store || (mode && strcmp(mode, "auto") != 0))
			return false;
		else if (!mode && (**argv == '-' || !take_word(out, *argv++, nr++)))
			return false;
	}
	return nr == 3;
}

static bool is_one_of(const char *value, const char *const *words)
{
	while (*words && strcmp(value, *words) != 0)
		words++;
	return *words != NULL;
}

/* Not set, or to what is right and says nothing to a check-out that finds its tree. */
static bool is_plain(const struct config *config, const char *key)
{
	static const char *const durabilities[] = {"none", "batch", "full", NULL};
	static const char *const modes[] = {"auto", NULL};
	const char *value = config_get(config, key, NULL);
	uint64_t size;

	if (!value)
		return true;
	if (strcmp(key, "durability") == 0)
		return is_one_of(value, durabilities);
	if (strcmp(key, "mode") == 0)
		return is_one_of(value, modes);
	if (strstr(key, "max-") == key || strcmp(key, "low-size") == 0)
		return cli_parse_size(value, &size) == 0;
	return false;
}

bool front_settings_are_plain(const char *store)
{
	/* All settings of tools/cli.c and of `checkout`; blobs elsewhere, tiers... are not for us.
	 */
	static const char *const keys[] = {
		"blobs",	   "tier",	"durability", "max-size",
		"low-size",	   "max-blobs", "log-level",  "spool-max-bytes",
		"spool-max-count", "mode",	"threads",    NULL,
	};
	struct config *config = NULL;
	bool plain = config_new(&config) == 0 && config_load(config, store, NULL) == 0;

	for (const char *const *key = keys; plain && *key; key++)
		plain = is_plain(config, *key);
	config_free(config);
	return plain;
}
