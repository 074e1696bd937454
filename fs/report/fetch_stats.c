/* fs/report/fetch_stats.c - what came from tiers and went there, for `stats` */
#include "fs/report/fetch_stats.h"

#include <errno.h>

#include "cas/cas.h"
#include "fs/learn/learn.h"

static json_t *report_tier(struct cas_tier *tier)
{
	struct cas_tier_stats s;

	cas_tier_stats(tier, &s);
	return json_pack("{s:s, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I}", "url",
			 cas_tier_name(tier), "write", (int)cas_tier_is_writable(tier), "paused",
			 (int)s.broken, "requests", (json_int_t)s.nr_requests, "failures",
			 (json_int_t)s.nr_failures, "blobs_in", (json_int_t)s.nr_blobs_in,
			 "bytes_in", (json_int_t)s.bytes_in, "blobs_out",
			 (json_int_t)s.nr_blobs_out, "bytes_out", (json_int_t)s.bytes_out);
}

int fs_fetch_report(struct cas_store *store, struct cas_fetch *fetch, struct fs_learn *learn,
		    json_t *out)
{
	struct cas_fetch_stats s;
	json_t *tiers;
	json_t *o;
	int ret = 0;

	if (!fetch)
		return 0;
	cas_fetch_stats(fetch, &s);
	tiers = json_array();
	for (size_t i = 0; tiers && i < cas_fetch_nr_tiers(fetch) && ret == 0; i++)
		ret = json_array_append_new(tiers, report_tier(cas_fetch_tier(fetch, i)));
	o = json_pack("{s:{s:I, s:I, s:I, s:I, s:I, s:I, s:I}, s:o, s:I, s:o}", "fetch", "asked",
		      (json_int_t)s.nr_asked, "fetched", (json_int_t)s.nr_fetched, "bytes",
		      (json_int_t)s.bytes, "failed", (json_int_t)s.nr_failed, "joined",
		      (json_int_t)s.nr_joined, "refused", (json_int_t)s.nr_refused, "flights",
		      (json_int_t)s.nr_flights, "tiers", tiers, "outbox",
		      (json_int_t)cas_outbox_count(store), "learned", fs_learn_describe(learn));
	if (!o || ret != 0 || json_object_update(out, o) != 0)
		ret = -ENOMEM;
	json_decref(o);
	return ret;
}
