/* tools/cmd/cmd_checkout.c - `casbox checkout`: a stored tree becomes a directory */
#include "tools/cmd/cmd.h"

#include <errno.h>
#include <string.h>

#include "cas/cas.h"
#include "tools/cli.h"
#include "tools/cmd/local.h"
#include "tools/cmd/progress.h"

struct checkout_args {
	const char *mode;
	int threads;
	bool json;
};

#define ARG(field) offsetof(struct checkout_args, field)
static const struct cli_option options[] = {
	{"mode", 'm', CLI_TEXT, ARG(mode), "MODE",
	 "auto (reflink, else copy), reflink, hardlink, copy", true, "auto|reflink|hardlink|copy"},
	{"threads", 'j', CLI_NUMBER, ARG(threads), "N", "how many files at once", true, NULL},
	{"json", 0, CLI_FLAG, ARG(json), NULL, "tell what was made as a JSON object", false, NULL},
	{NULL, 0, CLI_FLAG, 0, NULL, NULL, false, NULL},
};

static enum cas_checkout_mode mode_of(const char *word)
{
	if (word && strcmp(word, "reflink") == 0)
		return CAS_CHECKOUT_REFLINK;
	if (word && strcmp(word, "hardlink") == 0)
		return CAS_CHECKOUT_HARDLINK;
	if (word && strcmp(word, "copy") == 0)
		return CAS_CHECKOUT_COPY;
	return CAS_CHECKOUT_AUTO;
}

/* Outlives the command, as the thread that shows it may. */
static struct cas_push_progress brought;

/* Many files at a time, where the check-out would ask for one after the other. */
static int bring(struct local *local, const struct cas_digest *root, struct err *err)
{
	struct progress_source source = {"pull", &brought.blobs, &brought.bytes, &brought.total};
	struct progress *progress = progress_begin(&source);
	int ret;

	cli_catch_signals(&brought.cancel);
	ret = cas_pull(local_store(local), local_fetch(local), true, root, &brought, err);
	progress_end(progress);
	return ret;
}

static int checkout(struct cli *cli, struct local *local, const struct checkout_args *args,
		    const char *text, const char *dest, struct err *err)
{
	struct cas_checkout_progress counted = {0};
	struct cas_checkout_options opts = {
		.mode = mode_of(args->mode),
		.nr_threads = args->threads,
		.snapshot = true,
		.progress = &counted,
	};
	struct progress_source source = {"checkout", &counted.files, &counted.bytes, NULL};
	struct progress *progress;
	struct cas_digest root;
	int ret = cli_digest(cli, local_store(local), text, &root, err);

	if (ret)
		return ret;
	if (local_fetch(local))
		ret = bring(local, &root, err);
	if (ret)
		return ret;
	cli_catch_signals(&counted.cancel);
	progress = progress_begin(&source);
	ret = cas_checkout(local_store(local), &root, dest, &opts, err);
	progress_end(progress);
	if (ret == 0 && args->json)
		(void)cli_print_json(json_pack("{s:s, s:I, s:I}", "digest", CAS_DIGEST_TEXT(&root),
					       "files", (json_int_t)counted.files, "bytes",
					       (json_int_t)counted.bytes));
	return ret;
}

int cmd_checkout(struct cli *cli, int argc, char **argv, struct err *err)
{
	struct checkout_args args = {0};
	struct cli_words words = {0};
	struct local *local = NULL;
	int ret = cli_parse(cli, options, &args, CLI_ANYWHERE, argc, argv, &words, err);

	if (ret)
		return ret < 0 ? ret : 0;
	ret = cli_want_words(cli, &words, 2, 2, err);
	if (ret == 0)
		ret = local_open(cli, LOCAL_RECORD, &local, err);
	if (ret == 0)
		ret = checkout(cli, local, &args, words.argv[0], words.argv[1], err);
	local_close(local);
	return ret;
}
