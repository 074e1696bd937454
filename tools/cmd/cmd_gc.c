/* tools/cmd/cmd_gc.c - `casbox gc`: make room */
#include "tools/cmd/cmd.h"

#include <errno.h>
#include <inttypes.h>

#include "cas/cas.h"
#include "tools/cli.h"
#include "tools/cmd/client.h"
#include "tools/cmd/local.h"
#include "tools/cmd/progress.h"
#include "tools/cmd/roots.h"
#include "tools/daemon.h"

struct gc_args {
	bool dry_run;
	bool drain;
	bool json;
};

#define ARG(field) offsetof(struct gc_args, field)
static const struct cli_option options[] = {
	{"dry-run", 'n', CLI_FLAG, ARG(dry_run), NULL, "only tell what would go", false, NULL},
	{"drain", 0, CLI_FLAG, ARG(drain), NULL, "first move all of the spool to --blobs", false,
	 NULL},
	{"json", 0, CLI_FLAG, ARG(json), NULL, "one JSON object", false, NULL},
	{NULL, 0, CLI_FLAG, 0, NULL, NULL, false, NULL},
};

static uint64_t number(const json_t *answer, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(answer, key));
}

static int print_answer(const struct gc_args *args, json_t *answer)
{
	char freed[24], left[24], live[24];

	if (args->json)
		return cli_print_json(answer);
	(void)printf("%s %" PRIu64 " blobs, %s; %s left, %s of it needed\n",
		     args->dry_run ? "would free" : "freed", number(answer, "freed_blobs"),
		     progress_size(number(answer, "freed_bytes"), freed),
		     progress_size(number(answer, "after_bytes"), left),
		     progress_size(number(answer, "kept_live_bytes"), live));
	json_decref(answer);
	return 0;
}

/* The daemon alone evicts while it serves. */
static int ask_daemon(const struct daemon *daemon, const struct cli *cli,
		      const struct gc_args *args, json_t **answer, struct err *err)
{
	char size[32];
	char blobs[32];
	const char *words[6] = {"gc"};
	struct client *client = NULL;
	size_t nr = 1;
	int ret = client_open_daemon(daemon, -1, &client, err);

	(void)snprintf(size, sizeof(size), "%" PRIu64, cli->quota.max_bytes);
	(void)snprintf(blobs, sizeof(blobs), "%" PRIu64, cli->quota.max_blobs);
	if (cli->quota.max_bytes != CAS_QUOTA_NONE) {
		words[nr++] = "--max-size";
		words[nr++] = size;
	}
	if (cli->quota.max_blobs != CAS_QUOTA_NONE) {
		words[nr++] = "--max-blobs";
		words[nr++] = blobs;
	}
	if (args->dry_run)
		words[nr++] = "--dry-run";
	if (ret == 0)
		ret = client_ask(client, words, nr, 0, answer, err);
	client_close(client);
	return ret;
}

static int evict(struct cli *cli, const struct gc_args *args, json_t **answer, struct err *err)
{
	struct cas_evict_options opts = {.dry_run = args->dry_run};
	struct cas_evict_result r = {0};
	struct cas_evict_roots roots;
	struct roots_more needed = {0};
	struct local *local = NULL;
	int ret = local_open(cli, LOCAL_EVICT, &local, err);

	if (ret)
		return ret;
	cas_quota_target(&cli->quota, &opts);
	needed.store = local_store(local);
	roots = roots_and_more(&needed);
	ret = local_recount(local, err);
	if (ret == 0)
		ret = cas_evict(local_store(local), &opts, &roots, &r, err);
	local_close(local);
	if (ret)
		return ret;
	*answer = json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "ok", 1, "before_bytes",
			    (json_int_t)r.before_bytes, "after_bytes", (json_int_t)r.after_bytes,
			    "freed_bytes", (json_int_t)r.freed_bytes, "freed_blobs",
			    (json_int_t)r.freed_blobs, "kept_live_bytes",
			    (json_int_t)r.kept_live_bytes, "freed_temporaries",
			    (json_int_t)r.freed_temporaries, "dry_run", args->dry_run);
	return *answer ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static _Atomic bool cancel;

/* Returns when the spool is empty, whoever moves. */
static int drain(struct cli *cli, struct err *err)
{
	struct local *local = NULL;
	int ret = local_open(cli, LOCAL_RECORD, &local, err);

	cli_catch_signals(&cancel);
	if (ret == 0)
		ret = cas_spool_drain(local_store(local), CAS_SPOOL_ALL, &cancel, err);
	local_close(local);
	return ret;
}

int cmd_gc(struct cli *cli, int argc, char **argv, struct err *err)
{
	struct gc_args args = {0};
	struct cli_words words = {0};
	struct daemon daemon = {0};
	json_t *answer = NULL;
	int ret = cli_parse(cli, options, &args, CLI_ANYWHERE, argc, argv, &words, err);

	if (ret)
		return ret < 0 ? ret : 0;
	if (words.argc > 0)
		return cli_usage(cli, err, "unexpected argument '%s'", words.argv[0]);
	if (!cas_quota_is_set(&cli->quota) && !args.drain)
		return cli_usage(cli, err, "--max-size SIZE, or --max-blobs N, is missing");
	if (args.drain) {
		ret = drain(cli, err);
		if (ret || !cas_quota_is_set(&cli->quota))
			return ret;
	}
	/* One may have come meanwhile, or gone. */
	for (int tries = 0; tries < 10; tries++) {
		ret = daemon_find(cli->store, &daemon, err);
		if (ret == 1)
			ret = ask_daemon(&daemon, cli, &args, &answer, err);
		else if (ret == 0)
			ret = evict(cli, &args, &answer, err);
		daemon_fini(&daemon);
		if (ret != -EALREADY)
			break;
	}
	return ret ? ret : print_answer(&args, answer);
}
