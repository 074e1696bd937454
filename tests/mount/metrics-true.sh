#!/bin/sh
# .casbox/metrics: what happens is counted, once; an open sees one moment to its end.
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

# value SERIES: now.
value() {
	sed -n "s|^$1 ||p" "$MNT/.casbox/metrics"
}

sampled() {
	[ "$(value casbox_store_blobs)" = "$1" ]
}

body() {
	sample_tree "$T/tree"
	root=$(put "$T/tree")
	mount_start --without push
	for i in 1 2 3; do
		sandbox_new "$root" --id "box-$i" --output out/ > /dev/null
	done
	eq "live" 3 "$(value 'casbox_sandbox_sandboxes{state="live"}')"
	before=$(value casbox_put_blobs_total)
	skips=$(value casbox_put_copy_skips_total)
	echo made > "$MNT/sandboxes/box-1/out/one"
	echo made > "$MNT/sandboxes/box-2/out/one"
	casbox sandbox finish box-1 > /dev/null
	puts=$(value casbox_put_blobs_total)
	[ "$puts" -gt "$before" ] || fail "finish put nothing: $puts after $before"
	casbox sandbox finish box-2 > /dev/null
	eq "puts of what is there" "$puts" "$(value casbox_put_blobs_total)"
	now=$(value casbox_put_copy_skips_total)
	[ "$now" -gt "$skips" ] || fail "$now skips after $skips"
	eq "finished" 2 "$(value 'casbox_sandbox_sandboxes{state="finished"}')"

	lookups=$(value 'casbox_fuse_requests_total{session="one",operation="lookup"}')
	timed=$(value 'casbox_fuse_request_seconds_count{session="one",operation="lookup"}')
	eq "lookups that were timed" "$lookups" "$timed"
	for i in $(seq 50); do
		[ ! -e "$MNT/sandboxes/box-3/many/none-$i" ]
	done
	now=$(value 'casbox_fuse_requests_total{session="one",operation="lookup"}')
	[ "$((now - lookups))" -ge 50 ] || fail "$((now - lookups)) lookups more instead of 50"

	await sampled "$(casbox stat --json | sed 's/.*"blobs":\([0-9]*\).*/\1/')"
	for i in 1 2 3; do
		casbox sandbox remove "box-$i"
	done
	casbox ctl gc --max-size 0 > /dev/null
	await sampled 0
	eq "evictions" 1 "$(value 'casbox_evict_runs_total{reason="command"}')"
	[ "$(value 'casbox_evict_blobs_total{reason="command"}')" -gt 300 ] || fail "few were evicted"

	# A reader that takes its time sees the text of its open.
	exec 8< "$MNT/.casbox/metrics"
	head -c 100 <&8 > "$T/first"
	sandbox_new "$(put "$T/tree")" > /dev/null
	cat <&8 > "$T/rest"
	exec 8<&-
	eq "live in the open text" 0 "$(sed -n 's|^casbox_sandbox_sandboxes{state="live"} ||p' "$T/rest")"
	eq "live now" 1 "$(value 'casbox_sandbox_sandboxes{state="live"}')"
	"$CTLTALK" scrape "$MNT/.casbox/metrics" "$(full_or 1 20)" 50 > "$T/scrapes" || fail "$(cat "$T/scrapes")"
	mount_stop
}
each_user body
