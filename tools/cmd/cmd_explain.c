/* tools/cmd/cmd_explain.c - `casbox explain`: why things are as they are */
#include "tools/cmd/cmd.h"

#include <errno.h>
#include <string.h>

#include "cas/cas.h"
#include "fs/explain/explain.h"
#include "tools/cli.h"
#include "tools/cmd/client.h"
#include "tools/cmd/local.h"
#include "tools/daemon.h"

struct explain_args {
	bool json;
};

static const struct cli_option options[] = {
	{"json", 0, CLI_FLAG, offsetof(struct explain_args, json), NULL, "the facts as JSON", false,
	 NULL},
	{NULL, 0, CLI_FLAG, 0, NULL, NULL, false, NULL},
};

/* The words may hold names: on a terminal their control bytes are escaped, line by line. */
static void print_words(const char *words)
{
	while (*words != '\0') {
		size_t len = strcspn(words, "\n");
		auto_free char *line = strndup(words, len);

		if (line)
			cli_print_name(stdout, line);
		(void)putchar('\n');
		words += len + (words[len] == '\n');
	}
}

static int print(const json_t *facts, bool json, struct err *err)
{
	auto_buf struct buf words = {0};
	int ret;

	if (json)
		return cli_print_json(json_deep_copy(facts));
	ret = fs_explain_words(facts, &words);
	if (ret < 0)
		return err_set(err, ret, "out of memory");
	print_words(buf_str(&words));
	return 0;
}

/* The daemon knows more: what a live sandbox has looked for. */
static int ask_daemon(struct client *client, const struct cli_words *w, json_t **facts,
		      struct err *err)
{
	const char *const words[] = {"explain", w->argv[0], w->argc > 1 ? w->argv[1] : ""};
	json_t *answer = NULL;
	int ret = client_ask(client, words, (size_t)w->argc + 1, 0, &answer, err);

	if (ret == 0)
		*facts = json_incref(json_object_get(answer, "facts"));
	json_decref(answer);
	return ret;
}

static int look_here(struct cli *cli, const struct cli_words *w, json_t **facts, struct err *err)
{
	struct local *local = NULL;
	struct fs_explain ex = {0};
	int ret = local_open(cli, LOCAL_READ, &local, err);

	if (ret == 0) {
		ex.store = local_store(local);
		ex.meta = local_meta(local);
		ret = fs_explain(&ex, w->argv[0], w->argc > 1 ? w->argv[1] : NULL, facts, err);
	}
	local_close(local);
	return ret;
}

int cmd_explain(struct cli *cli, int argc, char **argv, struct err *err)
{
	struct explain_args args = {0};
	struct cli_words words = {0};
	struct daemon daemon = {0};
	struct client *client = NULL;
	json_t *facts = NULL;
	int ret = cli_parse(cli, options, &args, CLI_ANYWHERE, argc, argv, &words, err);

	if (ret)
		return ret < 0 ? ret : 0;
	ret = cli_want_words(cli, &words, 1, 2, err);
	if (ret)
		return ret;
	if (daemon_find(cli->store, &daemon, NULL) == 1)
		(void)client_open_daemon(&daemon, -1, &client, NULL);
	daemon_fini(&daemon);
	ret = client ? ask_daemon(client, &words, &facts, err)
		     : look_here(cli, &words, &facts, err);
	client_close(client);
	if (ret == 0)
		ret = print(facts, args.json, err);
	else if (ret == -EINVAL)
		cli->usage_error = true;
	json_decref(facts);
	return ret;
}
