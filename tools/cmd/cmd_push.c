/* tools/cmd/cmd_push.c - `casbox push` and `casbox pull`: trees and blobs to and from the tiers */
#include "tools/cmd/cmd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cas/cas.h"
#include "tools/cli.h"
#include "tools/cmd/local.h"
#include "tools/cmd/progress.h"

struct move_args {
	bool blob;
	bool json;
};

static const struct cli_option options[] = {
	{"blob", 0, CLI_FLAG, offsetof(struct move_args, blob), NULL,
	 "DIGEST is a blob, whatever it holds", false, NULL},
	{"json", 0, CLI_FLAG, offsetof(struct move_args, json), NULL, "print what moved as JSON",
	 false, NULL},
	{NULL, 0, CLI_FLAG, 0, NULL, NULL, false, NULL},
};

/* Outlives the command, for the thread that shows it; a signal may come at any time. */
static struct cas_push_progress counted;

struct move {
	struct cli *cli;
	const struct move_args *args;
	struct local *local;
	bool push;
};

/* 1 a Directory, 0 not. It is brought here to find out. */
static int is_tree(const struct move *m, const struct cas_digest *digest, struct err *err)
{
	struct cas_directory *dir = NULL;
	int ret;

	if (m->args->blob || digest->size > CAS_DIRECTORY_MAX)
		return 0;
	ret = cas_fetch_bring(local_fetch(m->local), digest, &counted.cancel, err);
	if (ret == 0)
		ret = cas_directory_load(local_store(m->local), digest, &dir, err);
	cas_directory_free(dir);
	if (ret == -EUCLEAN && err)
		*err = (struct err){0};
	return ret == 0 ? 1 : ret == -EUCLEAN ? 0 : ret;
}

static int push_one(const struct move *m, const struct cas_digest *digest, bool tree,
		    struct err *err)
{
	struct cas_fetch *fetch = local_fetch(m->local);
	int ret = 0;

	for (size_t i = 0; i < cas_fetch_nr_tiers(fetch) && ret == 0; i++) {
		struct cas_tier *tier = cas_fetch_tier(fetch, i);

		if (cas_tier_is_writable(tier))
			ret = cas_push(local_store(m->local), tier,
				       tree ? CAS_PUSH_TREE : CAS_PUSH_BLOB, digest, &counted, err);
	}
	return ret;
}

static int move_one(const struct move *m, const char *text, struct err *err)
{
	struct cas_digest digest;
	int ret = cli_digest(m->cli, local_store(m->local), text, &digest, err);
	bool tree;

	if (ret < 0)
		return ret;
	ret = is_tree(m, &digest, err);
	if (ret < 0)
		return ret;
	tree = ret == 1;
	return m->push ? push_one(m, &digest, tree, err)
		       : cas_pull(local_store(m->local), local_fetch(m->local), tree, &digest,
				  &counted, err);
}

static int move_all(const struct move *m, const struct cli_words *words, struct err *err)
{
	struct progress_source source = {m->push ? "push" : "pull", &counted.blobs, &counted.bytes,
					 &counted.total};
	struct progress *progress = progress_begin(&source);
	int ret = 0;

	cli_catch_signals(&counted.cancel);
	for (int i = 0; i < words->argc && ret == 0; i++)
		ret = move_one(m, words->argv[i], err);
	if (ret == 0 && m->push)
		ret = cas_outbox_send(cas_outbox_of(local_store(m->local)), &counted, err);
	if (ret == 0 && !m->push)
		ret = local_record(m->local, err);
	progress_end(progress);
	return ret;
}

static void tell(const struct move *m)
{
	uint64_t blobs = atomic_load(&counted.blobs);
	uint64_t bytes = atomic_load(&counted.bytes);
	char size[24];

	if (m->args->json) {
		(void)cli_print_json(json_pack("{s:I, s:I, s:I}", "blobs", (json_int_t)blobs,
					       "known", (json_int_t)atomic_load(&counted.known),
					       "bytes", (json_int_t)bytes));
		return;
	}
	(void)printf("%s %s in %" PRIu64 " blobs, %" PRIu64 " were there\n",
		     m->push ? "pushed" : "pulled", progress_size(bytes, size), blobs,
		     atomic_load(&counted.known));
}

static int check_tiers(const struct move *m, struct err *err)
{
	if (local_fetch(m->local) == NULL)
		return cli_usage(m->cli, err, "there is no tier: give --tier URL");
	if (m->push && cas_outbox_of(local_store(m->local)) == NULL)
		return cli_usage(m->cli, err, "no tier is written to: give one ?write=yes");
	return 0;
}

static int cmd_move(struct cli *cli, bool push, int argc, char **argv, struct err *err)
{
	struct move_args args = {0};
	struct cli_words words = {0};
	struct move m = {.cli = cli, .args = &args, .push = push};
	int ret = cli_parse(cli, options, &args, CLI_ANYWHERE, argc, argv, &words, err);

	if (ret)
		return ret < 0 ? ret : 0;
	ret = cli_want_words(cli, &words, push ? 0 : 1, 0, err);
	if (ret == 0)
		ret = local_open(cli, LOCAL_RECORD, &m.local, err);
	if (ret == 0)
		ret = check_tiers(&m, err);
	if (ret == 0)
		ret = move_all(&m, &words, err);
	if (ret == 0)
		tell(&m);
	local_close(m.local);
	return ret;
}

int cmd_push(struct cli *cli, int argc, char **argv, struct err *err)
{
	return cmd_move(cli, true, argc, argv, err);
}

int cmd_pull(struct cli *cli, int argc, char **argv, struct err *err)
{
	return cmd_move(cli, false, argc, argv, err);
}
