/* tools/run/quota.c - keep the store as small as it was told to, where no daemon does */
#include "tools/run/quota.h"

#include <errno.h>

#include "cas/cas.h"
#include "meta/meta.h"
#include "tools/cli.h"
#include "tools/cmd/local.h"
#include "tools/cmd/progress.h"
#include "tools/cmd/roots.h"
#include "tools/daemon.h"

static uint64_t variants(struct cas_store *store)
{
	uint64_t bytes = 0;

	(void)cas_quota_variants(store, &bytes, NULL);
	return bytes;
}

uint64_t quota_excess(const struct cli *cli, struct cas_store *store, const struct meta_stat *stat)
{
	if (cli->quota.max_bytes == CAS_QUOTA_NONE)
		return 0;
	return cas_quota_excess(&cli->quota, stat->disk + variants(store));
}

/* By the sums alone, which costs no lock. */
static bool looks_too_large(const struct cli *cli)
{
	struct local *local = NULL;
	struct meta_stat stat = {0};
	bool large = false;

	if (local_open(cli, LOCAL_READ, &local, NULL) == 0 &&
	    meta_stat(local_meta(local), &stat, NULL) == 0)
		large = stat.blobs > cli->quota.max_blobs ||
			quota_excess(cli, local_store(local), &stat) > 0;
	local_close(local);
	return large;
}

static int evict(const struct cli *cli, struct local *local, struct roots_more *more,
		 struct err *err)
{
	struct cas_evict_roots roots = roots_and_more(more);
	struct cas_evict_options opts;
	struct cas_evict_result r;
	char over[24], max[24];
	uint64_t excess;
	int ret = local_recount(local, err);

	if (ret < 0 ||
	    cas_quota_exceeded(more->store, &cli->quota, variants(more->store), &opts) != 1)
		return ret;
	ret = cas_evict(more->store, &opts, &roots, &r, err);
	excess = ret == 0 ? cas_quota_excess(&cli->quota, r.after_bytes) : 0;
	if (excess > 0)
		cli_warn(cli,
			 "the store is %s above its max-size of %s: what was put, pins and "
			 "sandboxes need it",
			 progress_size(excess, over), progress_size(cli->quota.max_bytes, max));
	return ret;
}

void quota_enforce(struct cli *cli, const struct cas_ingest_result *more, size_t nr)
{
	struct daemon daemon = {0};
	struct local *local = NULL;
	struct err err = {0};
	int ret;

	if (!cas_quota_is_set(&cli->quota) || daemon_find(cli->store, &daemon, NULL) != 0 ||
	    !looks_too_large(cli)) {
		daemon_fini(&daemon);
		return;
	}
	ret = local_open(cli, LOCAL_EVICT, &local, &err);
	if (ret == 0) {
		struct roots_more roots = {.store = local_store(local), .more = more, .nr = nr};

		ret = evict(cli, local, &roots, &err);
	}
	local_close(local);
	/* A daemon that came meanwhile does it. */
	if (ret < 0 && ret != -EALREADY)
		cli_warn(cli, "the store is above its quota and stays so: %s", err_text(&err, ret));
}
