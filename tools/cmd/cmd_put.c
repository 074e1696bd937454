/* tools/cmd/cmd_put.c - `casbox put`: files and trees into the store */
#include "tools/cmd/cmd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cas/cas.h"
#include "tools/cli.h"
#include "tools/cmd/local.h"
#include "tools/cmd/progress.h"
#include "tools/run/quota.h"

struct put_args {
	bool follow;
	bool preserve;
	bool json;
	int threads;
};

#define ARG(field) offsetof(struct put_args, field)
static const struct cli_option options[] = {
	{"dereference", 'L', CLI_FLAG, ARG(follow), NULL, "PATH may be a symlink, and is followed",
	 false, NULL},
	{"preserve", 'p', CLI_FLAG, ARG(preserve), NULL, "record times and modes, too", false,
	 NULL},
	{"json", 0, CLI_FLAG, ARG(json), NULL, "one JSON object a path", false, NULL},
	{"threads", 'j', CLI_NUMBER, ARG(threads), "N", "how many files at once", true, NULL},
	{NULL, 0, CLI_FLAG, 0, NULL, NULL, false, NULL},
};

/* What one PATH came to. */
struct put_one {
	const char *path;
	int ret;
	struct cas_ingest_result result;
	struct err err;
};

static void print_one(const struct put_args *args, const struct put_one *one)
{
	char text[CAS_DIGEST_STR_SZ];
	json_t *object;

	(void)cas_digest_format(&one->result.digest, '/', text);
	if (!args->json) {
		(void)printf("%s\n", text);
		return;
	}
	object = json_pack("{s:s, s:s, s:b}", "digest", text, "kind",
			   one->result.is_directory ? "directory" : "file", "executable",
			   one->result.executable);
	if (object)
		(void)cli_json_set_bytes(object, "path", one->path);
	(void)cli_print_json(object);
}

/* Outlives the command: the thread that counts may still run when it is done. */
static _Atomic uint64_t total_bytes;
/* A signal may come at any time. */
static struct cas_ingest_progress counted;

#define EVICTED_TRIES 3

static void put_each(struct local *local, const struct put_args *args, struct put_one *all, int nr)
{
	struct cas_ingest_options opts = {
		.nr_threads = args->threads,
		.preserve = args->preserve,
		.follow_top = args->follow,
		.progress = &counted,
	};

	for (int i = 0; i < nr; i++) {
		if (all[i].ret == 0)
			all[i].ret = cas_ingest(local_store(local), all[i].path, &opts,
						&all[i].result, &all[i].err);
		if (all[i].ret == -ECANCELED)
			break;
	}
}

/*
 * Once more when something that was found to be there may have been evicted meanwhile; at
 * last with eviction kept out. What cannot be known to be whole then is not acknowledged.
 */
static int put_whole(struct local *local, const struct put_args *args, struct put_one *all, int nr,
		     struct err *err)
{
	struct cas_store *store = local_store(local);
	bool barred = false;
	bool whole = false;
	int ret = 0;

	for (int tries = 1; !whole && tries <= EVICTED_TRIES && ret == 0 && !cli_caught();
	     tries++) {
		uint64_t epoch;

		barred = tries == EVICTED_TRIES && cas_evict_bar(store) == 0;
		epoch = cas_evict_epoch(store);
		put_each(local, args, all, nr);
		ret = local_record(local, err);
		whole = epoch == cas_evict_epoch(store);
	}
	if (barred)
		cas_evict_unbar(store);
	for (int i = 0; i < nr && !whole && ret == 0; i++) {
		if (all[i].ret == 0)
			all[i].ret = err_set(&all[i].err, -EAGAIN,
					     "'%s': blobs were evicted each time it was stored, "
					     "%d times",
					     all[i].path, EVICTED_TRIES);
	}
	return ret;
}

static int put_all(struct local *local, const struct put_args *args, struct put_one *all, int nr,
		   struct err *err)
{
	struct progress_source source = {"put", &counted.files, &counted.bytes, &total_bytes};
	struct progress *progress = progress_begin(&source);
	int ret;

	cli_catch_signals(&counted.cancel);
	ret = put_whole(local, args, all, nr, err);
	progress_end(progress);
	return ret;
}

/* What is printed is stored already; only its way to the blob directory may take a while. */
static void move_on(struct cli *cli, struct local *local)
{
	struct err err = {0};
	int ret = cas_spool_drain(local_store(local), CAS_SPOOL_OWN, &counted.cancel, &err);

	if (ret < 0)
		cli_warn(cli,
			 "stored, but not moved to the blob directory yet: %s; the next put, "
			 "gc --drain or mount goes on",
			 err_text(&err, ret));
}

/* To be sent to the tiers before the command ends. */
static void publish(struct cli *cli, struct local *local, const struct cas_ingest_result *result)
{
	struct err err = {0};

	if (cas_outbox_add(cas_outbox_of(local_store(local)),
			   result->is_directory ? CAS_PUSH_TREE : CAS_PUSH_BLOB, &result->digest,
			   &err) < 0)
		cli_warn(cli, "stored, but not sent to the tiers: %s", err.msg);
}

/* Each path is acknowledged, or its failure told; what could be stored is stored. */
static int put_paths(struct cli *cli, struct local *local, const struct put_args *args,
		     struct put_one *all, int nr, struct err *err)
{
	int failed = 0;
	int ret = put_all(local, args, all, nr, err);

	if (ret)
		return ret;
	if (cli_caught())
		return err_set(err, -ECANCELED, "interrupted");
	for (int i = 0; i < nr; i++) {
		failed += all[i].ret != 0;
		if (all[i].ret)
			cli_warn(cli, "%s", err_text(&all[i].err, all[i].ret));
		else
			print_one(args, &all[i]);
		if (all[i].ret == 0)
			publish(cli, local, &all[i].result);
	}
	(void)fflush(stdout);
	move_on(cli, local);
	return failed ? 1 : 0;
}

/* What was put may be too much for the store's quota, together with what was there. */
static void keep_small(struct cli *cli, const struct put_one *all, int nr)
{
	auto_free struct cas_ingest_result *more = calloc((size_t)nr, sizeof(*more));
	size_t nr_more = 0;

	for (int i = 0; more && i < nr; i++) {
		if (all[i].ret == 0)
			more[nr_more++] = all[i].result;
	}
	if (more)
		quota_enforce(cli, more, nr_more);
}

int cmd_put(struct cli *cli, int argc, char **argv, struct err *err)
{
	struct put_args args = {0};
	struct cli_words words = {0};
	struct local *local = NULL;
	struct put_one *all;
	int ret = cli_parse(cli, options, &args, CLI_ANYWHERE, argc, argv, &words, err);

	if (ret)
		return ret < 0 ? ret : 0;
	ret = cli_want_words(cli, &words, 1, 0, err);
	if (ret)
		return ret;
	all = calloc((size_t)words.argc, sizeof(*all));
	if (!all)
		return err_set(err, -ENOMEM, "out of memory");
	for (int i = 0; i < words.argc; i++)
		all[i].path = words.argv[i];
	progress_count(words.argv, &total_bytes);
	ret = local_open(cli, LOCAL_RECORD, &local, err);
	if (ret == 0)
		ret = put_paths(cli, local, &args, all, words.argc, err);
	local_close(local);
	if (ret >= 0)
		keep_small(cli, all, words.argc);
	free(all);
	return ret;
}
