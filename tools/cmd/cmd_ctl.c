/* tools/cmd/cmd_ctl.c - `casbox ctl`: one control command, its answer as it came */
#include "tools/cmd/cmd.h"

#include "cas/cas.h"
#include "tools/cli.h"
#include "tools/cmd/client.h"

struct ctl_args {
	const char *mount;
};

static const struct cli_option options[] = {
	{"mount", 'm', CLI_TEXT, offsetof(struct ctl_args, mount), "MNT",
	 "that mount, not the one that serves the store", true, NULL},
	{NULL, 0, CLI_FLAG, 0, NULL, NULL, false, NULL},
};

int cmd_ctl(struct cli *cli, int argc, char **argv, struct err *err)
{
	struct ctl_args args = {0};
	struct cli_words words = {0};
	struct client *client = NULL;
	json_t *answer = NULL;
	bool ok;
	int ret = cli_parse(cli, options, &args, CLI_FIRST, argc, argv, &words, err);

	if (ret)
		return ret < 0 ? ret : 0;
	ret = cli_want_words(cli, &words, 1, 0, err);
	if (ret == 0)
		ret = client_find(cli, args.mount, &client, err);
	if (ret == 0)
		ret = client_call(client, (const char *const *)words.argv, (size_t)words.argc, 0,
				  &answer, err);
	client_close(client);
	if (ret)
		return ret;
	ok = json_is_true(json_object_get(answer, "ok"));
	(void)cli_print_json(answer);
	return ok ? 0 : 1;
}
