/* tools/cmd/cmd_pin.c - `casbox pin` and `casbox unpin` */
#include "tools/cmd/cmd.h"

#include <errno.h>

#include "cas/cas.h"
#include "fs/control/pins.h"
#include "tools/cli.h"
#include "tools/cmd/local.h"
#include "tools/cmd/roots.h"

static int each_digest(struct cli *cli, int argc, char **argv,
		       int (*act)(struct cli *cli, struct cas_store *store,
				  const struct cas_digest *digest, struct err *err),
		       struct err *err)
{
	struct cli_words words = {0};
	struct local *local = NULL;
	int ret = cli_parse(cli, NULL, NULL, CLI_ANYWHERE, argc, argv, &words, err);

	if (ret)
		return ret < 0 ? ret : 0;
	ret = cli_want_words(cli, &words, 1, 0, err);
	if (ret == 0)
		ret = local_open(cli, LOCAL_READ, &local, err);
	for (int i = 0; i < words.argc && ret == 0; i++) {
		struct cas_digest digest;

		ret = cli_digest(cli, local_store(local), words.argv[i], &digest, err);
		if (ret == 0)
			ret = act(cli, local_store(local), &digest, err);
	}
	local_close(local);
	return ret;
}

/* A pin keeps what is here; what is not is worth a word, though a tier may have it. */
static void tell_missing(struct cli *cli, struct cas_store *store, const struct cas_digest *digest)
{
	struct cas_directory *dir = NULL;
	struct cas_tree_lack lack;
	struct err err = {0};
	int ret = digest->size <= CAS_DIRECTORY_MAX ? cas_directory_load(store, digest, &dir, NULL)
						    : -EUCLEAN;

	cas_directory_free(dir);
	if (ret < 0)
		return; /* no tree */
	ret = cas_tree_find_missing(store, digest, &lack, &err);
	if (ret < 0)
		cli_warn(cli, "pinned, but not all of tree %s is here: %s", CAS_DIGEST_TEXT(digest),
			 err_text(&err, ret));
	else if (ret == 1)
		cli_warn(cli, "pinned, but %zu of the %zu blobs of tree %s are not here, as %s",
			 lack.missing, lack.blobs, CAS_DIGEST_TEXT(digest),
			 CAS_DIGEST_TEXT(&lack.first));
}

static int pin(struct cli *cli, struct cas_store *store, const struct cas_digest *digest,
	       struct err *err)
{
	int ret = roots_pin(store, digest, err);

	if (ret == 0)
		tell_missing(cli, store, digest);
	return ret;
}

static int unpin(struct cli *cli, struct cas_store *store, const struct cas_digest *digest,
		 struct err *err)
{
	return control_pin_drop(store, digest, err);
}

int cmd_pin(struct cli *cli, int argc, char **argv, struct err *err)
{
	return each_digest(cli, argc, argv, pin, err);
}

int cmd_unpin(struct cli *cli, int argc, char **argv, struct err *err)
{
	return each_digest(cli, argc, argv, unpin, err);
}
