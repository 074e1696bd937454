/* tools/cmd/cmd_pin.c - `casbox pin` and `casbox unpin` */
#include "tools/cmd/cmd.h"

#include "cas/cas.h"
#include "fs/control/pins.h"
#include "tools/cli.h"
#include "tools/cmd/local.h"
#include "tools/cmd/roots.h"

static int each_digest(struct cli *cli, int argc, char **argv,
		       int (*act)(struct cas_store *store, const struct cas_digest *digest,
				  struct err *err),
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
			ret = act(local_store(local), &digest, err);
	}
	local_close(local);
	return ret;
}

int cmd_pin(struct cli *cli, int argc, char **argv, struct err *err)
{
	return each_digest(cli, argc, argv, roots_pin, err);
}

int cmd_unpin(struct cli *cli, int argc, char **argv, struct err *err)
{
	return each_digest(cli, argc, argv, control_pin_drop, err);
}
