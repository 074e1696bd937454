/* tools/cmd/cmd_stat.c - `casbox stat`: what the store holds */
#include "tools/cmd/cmd.h"

#include <errno.h>

#include "cas/cas.h"
#include "fs/control/roots.h"
#include "meta/meta.h"
#include "tools/cli.h"
#include "tools/cmd/local.h"
#include "tools/cmd/progress.h"
#include "tools/run/quota.h"

struct stat_args {
	bool json;
};

static const struct cli_option options[] = {
	{"json", 0, CLI_FLAG, offsetof(struct stat_args, json), NULL, "one JSON object", false,
	 NULL},
	{NULL, 0, CLI_FLAG, 0, NULL, NULL, false, NULL},
};

/* What there is room for, when that is limited. */
static void print_quota(const struct cli *cli, uint64_t excess)
{
	char size[24];

	if (cli->quota.max_bytes != CAS_QUOTA_NONE)
		(void)printf("max size     %llu (%s)\n", (unsigned long long)cli->quota.max_bytes,
			     progress_size(cli->quota.max_bytes, size));
	if (cli->quota.max_blobs != CAS_QUOTA_NONE)
		(void)printf("max blobs    %llu\n", (unsigned long long)cli->quota.max_blobs);
	if (excess > 0)
		(void)printf("excess       %llu (%s)\n", (unsigned long long)excess,
			     progress_size(excess, size));
}

/* Bytes first, as a script may have read them since there was nothing else. */
static void print_spool(const struct cas_spool_usage *spool)
{
	char size[24];

	(void)printf("spool        %llu", (unsigned long long)spool->bytes);
	if (spool->blobs + spool->results > 0)
		(void)printf(" (%s) in %llu blobs and %llu results, the oldest for %llu s",
			     progress_size(spool->bytes, size), (unsigned long long)spool->blobs,
			     (unsigned long long)spool->results,
			     (unsigned long long)(spool->oldest_ns / 1000000000));
	(void)printf("\n");
	if (spool->damaged > 0)
		(void)printf("damaged      %llu of the spool (%s), kept aside for two days\n",
			     (unsigned long long)spool->damaged,
			     progress_size(spool->damaged_bytes, size));
}

static void print_text(const char *store, const struct meta_stat *st, uint64_t sandboxes,
		       const struct cas_spool_usage *spool)
{
	char size[24];

	(void)printf("store        ");
	cli_print_name(stdout, store);
	(void)printf("\nblobs        %llu\nbytes        %llu (%s)\ndirectories  %llu\n",
		     (unsigned long long)st->blobs, (unsigned long long)st->bytes,
		     progress_size(st->bytes, size), (unsigned long long)st->directories);
	(void)printf("sandboxes    %llu\n", (unsigned long long)sandboxes);
	print_spool(spool);
}

static int add_quota(const struct cli *cli, uint64_t excess, json_t *object)
{
	int ret = 0;

	if (cli->quota.max_bytes != CAS_QUOTA_NONE)
		ret = json_object_set_new(object, "max_bytes",
					  json_integer((json_int_t)cli->quota.max_bytes));
	if (ret == 0 && cli->quota.max_blobs != CAS_QUOTA_NONE)
		ret = json_object_set_new(object, "max_blobs",
					  json_integer((json_int_t)cli->quota.max_blobs));
	if (ret == 0)
		ret = json_object_set_new(object, "excess_bytes", json_integer((json_int_t)excess));
	return ret == 0 ? 0 : -ENOMEM;
}

/* Seconds are told as they are counted; 0 where nothing waits. */
static int add_spool(const struct cas_spool_usage *spool, json_t *object)
{
	json_t *more =
		json_pack("{s:I, s:I, s:I, s:f, s:I, s:I}", "spool_bytes", (json_int_t)spool->bytes,
			  "spool_blobs", (json_int_t)spool->blobs, "spool_results",
			  (json_int_t)spool->results, "spool_oldest_seconds",
			  (double)(spool->oldest_ns / 1000000) / 1000, "spool_damaged",
			  (json_int_t)spool->damaged, "spool_damaged_bytes",
			  (json_int_t)spool->damaged_bytes);
	int ret = more ? json_object_update(object, more) : -1;

	json_decref(more);
	return ret == 0 ? 0 : -ENOMEM;
}

static int stat_store(const struct cli *cli, struct local *local, const struct stat_args *args,
		      struct err *err)
{
	struct meta_stat st = {0};
	uint64_t sandboxes = 0;
	struct cas_spool_usage spool = {0};
	uint64_t excess;
	json_t *object;
	int ret = meta_stat(local_meta(local), &st, err);

	if (ret == 0)
		ret = cas_spool_usage(local_store(local), &spool, err);
	if (ret == 0)
		ret = control_roots_count(local_store(local), &sandboxes, err);
	if (ret)
		return ret;
	excess = quota_excess(cli, local_store(local), &st);
	if (!args->json) {
		print_text(local_path(local), &st, sandboxes, &spool);
		print_quota(cli, excess);
		return 0;
	}
	object = json_pack("{s:I, s:I, s:I, s:I, s:I}", "blobs", (json_int_t)st.blobs, "bytes",
			   (json_int_t)st.bytes, "disk_bytes", (json_int_t)st.disk, "directories",
			   (json_int_t)st.directories, "sandboxes", (json_int_t)sandboxes);
	ret = object ? add_spool(&spool, object) : -ENOMEM;
	if (ret == 0)
		ret = cli_json_set_bytes(object, "store", local_path(local));
	if (ret == 0)
		ret = add_quota(cli, excess, object);
	if (ret) {
		json_decref(object);
		return err_set(err, ret, "out of memory");
	}
	return cli_print_json(object);
}

int cmd_stat(struct cli *cli, int argc, char **argv, struct err *err)
{
	struct stat_args args = {0};
	struct cli_words words = {0};
	struct local *local = NULL;
	int ret = cli_parse(cli, options, &args, CLI_ANYWHERE, argc, argv, &words, err);

	if (ret)
		return ret < 0 ? ret : 0;
	if (words.argc > 0)
		return cli_usage(cli, err, "unexpected argument '%s'", words.argv[0]);
	ret = local_open(cli, LOCAL_READ, &local, err);
	if (ret == 0)
		ret = stat_store(cli, local, &args, err);
	local_close(local);
	return ret;
}
