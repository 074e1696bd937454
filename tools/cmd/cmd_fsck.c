/* tools/cmd/cmd_fsck.c - `casbox fsck`: compare every blob with its name */
#include "tools/cmd/cmd.h"

#include <errno.h>

#include "cas/cas.h"
#include "meta/meta.h"
#include "tools/cli.h"
#include "tools/cmd/client.h"
#include "tools/cmd/local.h"
#include "tools/cmd/progress.h"
#include "tools/daemon.h"

struct fsck_args {
	bool repair;
	struct cli_list from;
	bool json;
	int threads;
};

#define ARG(field) offsetof(struct fsck_args, field)
static const struct cli_option options[] = {
	{"repair", 0, CLI_FLAG, ARG(repair), NULL, "mend modes, bring wrong blobs back", false,
	 NULL},
	{"from", 0, CLI_LIST, ARG(from), "PATH",
	 "with --repair: put PATH again when blobs are lost", false, NULL},
	{"json", 0, CLI_FLAG, ARG(json), NULL, "one JSON object a fault, then the sums", false,
	 NULL},
	{"threads", 'j', CLI_NUMBER, ARG(threads), "N", "how many files at once", true, NULL},
	{NULL, 0, CLI_FLAG, 0, NULL, NULL, false, NULL},
};

struct fsck {
	struct cli *cli;
	const struct fsck_args *args;
	struct cas_fsck_result result;
	bool miscounted; /* the ledger's sums are not those of the files */
	struct meta_reconcile_result recounted;
	struct buf lost; /* of struct cas_digest: moved aside */
	uint64_t nr_restored;
};

static void print_fault(void *ctx, const char *line)
{
	const struct fsck *fsck = ctx;
	json_t *object;

	if (!fsck->args->json) {
		cli_print_name(stdout, line);
		(void)fputc('\n', stdout);
		return;
	}
	object = json_object();
	if (object && cli_json_set_bytes(object, "fault", line) == 0)
		(void)cli_print_json(object);
	else
		json_decref(object);
}

static void print_note(void *ctx, const char *line)
{
	const struct fsck *fsck = ctx;

	cli_warn(fsck->cli, "note: %s", line);
}

static size_t nr_lost(const struct fsck *fsck)
{
	return fsck->lost.len / sizeof(struct cas_digest);
}

static void print_sums(const struct fsck *fsck)
{
	const struct cas_fsck_result *r = &fsck->result;
	const struct meta_reconcile_result *counts = &fsck->recounted;
	char size[24];

	if (fsck->args->json) {
		(void)cli_print_json(json_pack(
			"{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "blobs",
			(json_int_t)r->blobs, "bytes", (json_int_t)r->bytes, "faults",
			(json_int_t)r->faults, "repaired", (json_int_t)r->repaired, "lost",
			(json_int_t)(nr_lost(fsck) - fsck->nr_restored), "restored",
			(json_int_t)fsck->nr_restored, "foreign", (json_int_t)r->foreign, "adopted",
			(json_int_t)counts->adopted, "dropped", (json_int_t)counts->dropped,
			"resized", (json_int_t)counts->resized));
		return;
	}
	if (counts->adopted + counts->dropped + counts->resized > 0)
		cli_warn(fsck->cli,
			 "note: counted anew: %llu blobs were not recorded, %llu recorded ones are "
			 "gone, %llu had another size",
			 (unsigned long long)counts->adopted, (unsigned long long)counts->dropped,
			 (unsigned long long)counts->resized);
	if (nr_lost(fsck) > 0)
		cli_warn(fsck->cli, "note: %zu blobs were lost, %llu of them are back",
			 nr_lost(fsck), (unsigned long long)fsck->nr_restored);
	cli_warn(fsck->cli, "%llu blobs, %s: %llu faults, %llu repaired",
		 (unsigned long long)r->blobs, progress_size(r->bytes, size),
		 (unsigned long long)r->faults, (unsigned long long)r->repaired);
}

static void remember_lost(void *ctx, const struct cas_digest *digest)
{
	struct fsck *fsck = ctx;

	(void)buf_append(&fsck->lost, digest, sizeof(*digest));
}

/* Files and trees that may hold what was lost: what is there already is not written again. */
static int put_again(struct fsck *fsck, struct cas_store *store, struct err *err)
{
	const struct cas_ingest_options opts = {.nr_threads = fsck->args->threads};
	struct cas_ingest_result result;
	int ret = 0;

	for (size_t i = 0; i < fsck->args->from.nr && ret == 0; i++)
		ret = cas_ingest(store, fsck->args->from.items[i], &opts, &result, err);
	return ret;
}

/* By hash alone: what was moved aside may have told of another size, or of none. */
static bool is_back(struct cas_store *store, const struct cas_digest *digest)
{
	struct cas_digest there;

	return cas_store_resolve(store, digest->hash, &there) == 1 &&
	       cas_store_has(store, &there) == 1;
}

/* Here again, or in a tier? What is nowhere is told by name. */
static void look_for(struct fsck *fsck, struct local *local, const struct cas_digest *digest)
{
	struct err why = {0};
	bool back = is_back(local_store(local), digest);

	if (!back && local_fetch(local))
		back = cas_fetch_wait(local_fetch(local), digest, NULL, &why) == 0;
	if (back)
		fsck->nr_restored++;
	else
		cli_warn(fsck->cli,
			 "note: %s is lost; put it again, or name where it is with --from",
			 CAS_DIGEST_TEXT(digest));
}

static int restore_lost(struct fsck *fsck, struct local *local, struct err *err)
{
	const struct cas_digest *lost = (const struct cas_digest *)(const void *)fsck->lost.data;
	int ret = nr_lost(fsck) > 0 ? put_again(fsck, local_store(local), err) : 0;

	for (size_t i = 0; i < nr_lost(fsck); i++)
		look_for(fsck, local, &lost[i]);
	return ret;
}

static int fsck_store(struct fsck *fsck, struct local *local, struct err *err)
{
	struct cas_fsck_progress counted = {0};
	struct cas_fsck_options opts = {
		.repair = fsck->args->repair,
		.nr_threads = fsck->args->threads,
		.fault = print_fault,
		.note = print_note,
		.lost = remember_lost,
		.ctx = fsck,
		.progress = &counted,
	};
	_Atomic uint64_t total = 0;
	struct progress_source source = {"fsck", &counted.blobs, &counted.bytes, &total};
	struct meta_stat known = {0};
	struct progress *progress;
	int ret;

	if (meta_stat(local_meta(local), &known, NULL) == 0)
		total = known.bytes;
	cli_catch_signals(&counted.cancel);
	progress = progress_begin(&source);
	ret = cas_fsck(local_store(local), &opts, &fsck->result, err);
	progress_end(progress);
	if (ret == 0 && !cas_store_is_read_only(local_store(local)) &&
	    meta_stat(local_meta(local), &known, NULL) == 0)
		fsck->miscounted = known.blobs != fsck->result.blobs ||
				   known.bytes != fsck->result.bytes ||
				   known.disk != fsck->result.disk;
	return ret == 0 ? restore_lost(fsck, local, err) : ret;
}

static int ask_daemon(const struct daemon *daemon, struct meta_reconcile_result *out,
		      struct err *err)
{
	const char *const words[] = {"reconcile"};
	struct client *client = NULL;
	json_t *answer = NULL;
	int ret = client_open_daemon(daemon, -1, &client, err);

	if (ret == 0)
		ret = client_ask(client, words, 1, 0, &answer, err);
	if (ret == 0) {
		out->adopted = (uint64_t)json_integer_value(json_object_get(answer, "adopted"));
		out->dropped = (uint64_t)json_integer_value(json_object_get(answer, "dropped"));
		out->resized = (uint64_t)json_integer_value(json_object_get(answer, "resized"));
	}
	json_decref(answer);
	client_close(client);
	return ret;
}

/* Rows are hints, so making them right needs no --repair. Who serves the store does it. */
static int recount(struct cli *cli, struct meta_reconcile_result *out, struct err *err)
{
	struct daemon daemon = {0};
	struct local *local = NULL;
	int ret = daemon_find(cli->store, &daemon, err);

	if (ret == 1) {
		ret = ask_daemon(&daemon, out, err);
	} else if (ret == 0) {
		ret = local_open(cli, LOCAL_WRITER, &local, err);
		if (ret == 0)
			ret = local_reconcile(local, out, err);
		local_close(local);
		/* It has come meanwhile. */
		if (ret == -EALREADY && daemon_find(cli->store, &daemon, err) == 1)
			ret = ask_daemon(&daemon, out, err);
	}
	daemon_fini(&daemon);
	return ret;
}

int cmd_fsck(struct cli *cli, int argc, char **argv, struct err *err)
{
	struct fsck_args args = {0};
	struct cli_words words = {0};
	struct fsck fsck = {.cli = cli, .args = &args};
	struct err why = {0};
	struct local *local = NULL;
	int ret = cli_parse(cli, options, &args, CLI_ANYWHERE, argc, argv, &words, err);

	if (ret)
		return ret < 0 ? ret : 0;
	if (words.argc > 0)
		return cli_usage(cli, err, "unexpected argument '%s'", words.argv[0]);
	if (args.from.nr > 0 && !args.repair)
		return cli_usage(cli, err, "--from goes with --repair");
	ret = local_open(cli, args.repair ? LOCAL_RECORD : LOCAL_READ, &local, err);
	if (ret == 0)
		ret = fsck_store(&fsck, local, err);
	local_close(local);
	cli_list_fini(&args.from);
	if (ret) {
		buf_fini(&fsck.lost);
		return ret;
	}
	if (fsck.miscounted) {
		ret = recount(cli, &fsck.recounted, &why);
		if (ret)
			cli_warn(cli, "note: counts differ and stay: %s", err_text(&why, ret));
	}
	print_sums(&fsck);
	buf_fini(&fsck.lost);
	return fsck.result.faults > 0 ? 1 : 0;
}
