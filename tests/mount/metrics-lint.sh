#!/bin/sh
# .casbox/metrics: well-formed Prometheus text under the names that were agreed, with help and
# type for each, histograms that add up; and promtool, where there is one, finds nothing to say.
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

lint() {
	awk '
	function bad(why) { print FILENAME ":" FNR ": " why ": " $0; faults++ }
	function base(name) { sub(/_(bucket|sum|count)$/, "", name); return name }
	/^# HELP / {
		if (NF < 4) bad("no words")
		if ($3 in help) bad("help twice")
		help[$3] = 1
		expect = $3
		next
	}
	/^# TYPE / {
		if ($3 != expect) bad("type without help before")
		type[$3] = $4
		if ($3 !~ /^casbox_[a-z]+(_[a-z]+)+$/) bad("name")
		if ($4 == "counter" && $3 !~ /_total$/) bad("a counter without _total")
		if ($4 != "counter" && $3 ~ /_total$/) bad("_total, and no counter")
		if ($4 == "histogram" && $3 !~ /_(seconds|bytes)$/) bad("a histogram without unit")
		if ($3 ~ /(_ms|_us|_ns|_kb|_mb|_sec|_percent|counter|gauge|histogram)(_|$)/)
			bad("unit or type in a name")
		if ($3 ~ /bytes/ && $3 !~ /_bytes(_total)?$/) bad("bytes are not the unit")
		next
	}
	/^#/ || /^$/ { bad("odd line"); next }
	{
		name = $1
		sub(/\{.*/, "", name)
		family = (name in type) ? name : base(name)
		if (family != expect) bad("not in its family")
		if ($1 ~ /\{/ && $1 !~ /\{([a-z_]+="([^"\\]|\\.)*",?)+\}$/) bad("labels")
		if ($2 !~ /^[0-9]+(\.[0-9]+)?$/ || NF != 2) bad("value")
		if ($1 in seen) bad("twice")
		seen[$1] = 1
		if (type[family] == "histogram") {
			series = $1
			sub(/,le="[^"]*"/, "", series)
			sub(/_(bucket|sum|count)/, "", series)
			if (name ~ /_bucket$/) {
				if ($2 < last[series]) bad("buckets go down")
				last[series] = $2
				if ($1 ~ /le="\+Inf"/) inf[series] = $2
			}
			if (name ~ /_count$/ && $2 != inf[series]) bad("count is not the last bucket")
		}
	}
	END { exit faults > 0 }' "$1"
}

body() {
	sample_tree "$T/tree"
	root=$(put "$T/tree")
	mount_start --max-size 1G --tier "file://$T/tier" --without push
	M=$MNT/.casbox/metrics
	sandbox=$(sandbox_new "$root" --id one --output out/)
	cat "$sandbox/many/file-7" > /dev/null
	ls -lR "$sandbox" > /dev/null
	casbox sandbox finish one > /dev/null
	cat "$M" > "$T/metrics"
	lint "$T/metrics" || fail "$(lint "$T/metrics")"
	# The lint itself: each of these is a fault.
	for fault in 's/_total /_sum_total /' 's/^# HELP.*//' 's/"lookup"/lookup/' \
		'/_fuse_request_seconds_count/s/ .*/ 1000000/'; do
		sed "$fault" "$T/metrics" > "$T/faulty"
		! lint "$T/faulty" > "$T/faults" || fail "nothing is found after $fault"
	done
	for name in casbox_fuse_requests_total casbox_fuse_request_seconds \
		casbox_fuse_upcalls_saved_total casbox_slot_adopted_directories_total \
		casbox_backing_descriptors casbox_store_disk_bytes casbox_store_watermark_bytes \
		casbox_put_blobs_total casbox_put_copy_skips_total casbox_spool_backlog_bytes \
		casbox_spool_backlog_blobs casbox_spool_oldest_seconds casbox_evict_blobs_total \
		casbox_fetch_single_flight_waits_total casbox_tier_requests_total \
		casbox_tier_errors_total casbox_sandbox_sandboxes casbox_node_table_bytes; do
		grep -q "^$name[_{ ]" "$T/metrics" || fail "$name is not told"
	done
	if command -v promtool > /dev/null; then
		promtool check metrics < "$T/metrics" > "$T/said" 2>&1 || fail "promtool: $(cat "$T/said")"
		eq "what promtool says" "" "$(cat "$T/said")"
	else
		echo "note: no promtool (Debian: prometheus): not looked at"
	fi
	mount_stop
}
body
