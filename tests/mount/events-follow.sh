#!/bin/sh
# .casbox/events: a line per event, followed by the system's tail and by poll, by many at a
# time; the size only grows, and what is not kept any more is one line as long as it was.
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

events() {
	grep -c "\"event\":\"$1\"" "$2" || :
}

# heard FILE TEXT
heard() {
	grep -qF -e "$2" "$1"
}

body() {
	sample_tree "$T/tree"
	root=$(put "$T/tree")
	mount_start
	E=$MNT/.casbox/events
	tail -n +1 -f "$E" > "$T/tail" 2>&1 &
	tail=$!
	for i in 1 2 3 4 5 6 7 8; do
		"$CTLTALK" follow "$E" 60 '"event":"fsck"' > "$T/follow-$i" &
		followers="${followers:-} $!"
	done
	eq "how it is shown" 400 "$(stat -c %a "$E")"
	await heard "$T/tail" '"event":"mount"'

	size=$(stat -c %s "$E")
	for i in $(seq 8); do
		sandbox_new "$root" --id "box-$i" --output out/ > /dev/null
		now=$(stat -c %s "$E")
		[ "$now" -gt "$size" ] || fail "the size is $now after $size, with an event more"
		size=$now
		casbox sandbox finish "box-$i" > /dev/null
		casbox sandbox remove "box-$i"
	done
	casbox ctl log-level info > /dev/null
	casbox ctl gc --max-size 0 > /dev/null
	casbox ctl fsck > /dev/null
	for pid in $followers; do
		wait "$pid" || fail "a follower failed"
	done
	await heard "$T/tail" '"event":"fsck"'
	eq "created" 8 "$(events sandbox-created "$T/tail")"
	eq "finished" 8 "$(events sandbox-finished "$T/tail")"
	eq "removed" 8 "$(events sandbox-removed "$T/tail")"
	eq "levels" 1 "$(events log-level "$T/tail")"
	eq "evictions" 1 "$(events eviction "$T/tail")"
	eq "what cat sees" "$(cat "$T/tail")" "$(cat "$E")"
	eq "lines that are no object" "" "$(grep -v '^{"time":"20[^"]*Z","event":"[a-z-]*".*}$' "$E")"
	lines=$(wc -l < "$E")
	for i in 1 2 3 4 5 6 7 8; do
		eq "follower $i" "lines $lines missed 0" "$(cut -d' ' -f1-4 "$T/follow-$i")"
	done

	# More than is kept: 1 MiB. Each has its level told, back and forth.
	for i in $(seq 250); do
		printf 'log-level debug\nlog-level warn\n'
	done > "$T/lines"
	exec 9<> "$MNT/.casbox/control"
	for i in $(seq 28); do
		cat "$T/lines" >&9
		answer=$(head -n 500 <&9 | tail -n 1)
	done
	exec 9>&-
	case $answer in *'"level":"warn"'*) ;; *) fail "the last answer is $answer" ;; esac
	size=$(stat -c %s "$E")
	[ "$size" -gt 1200000 ] || fail "only $size bytes of events"
	cat "$E" > "$T/all"
	eq "bytes that cat reads" "$size" "$(wc -c < "$T/all")"
	first=$(head -n 1 "$T/all" | tr -d ' ')
	eq "the first line" "{\"missed\":$(head -n 1 "$T/all" | wc -c)}" "$first"
	kept=$(tail -n +2 "$T/all" | wc -c)
	[ "$kept" -le 1048576 ] || fail "$kept bytes are kept"
	[ "$kept" -gt 1000000 ] || fail "only $kept bytes are kept"
	eq "lines after it that are no object" "" \
		"$(tail -n +2 "$T/all" | grep -v '^{"time":"20[^"]*Z","event":"[a-z-]*".*}$')"
	# From within what is gone, too.
	dd if="$E" bs=1000 skip=1 2> /dev/null > "$T/part"
	eq "bytes from a position" "$((size - 1000))" "$(wc -c < "$T/part")"
	case $(head -n 1 "$T/part") in '{"missed":'*) ;; *) fail "$(head -c 200 "$T/part")" ;; esac
	# tail saw each line once, in order, as it was there all the time.
	await heard "$T/tail" "$(tail -n 1 "$E")"
	tail -n 100 "$E" > "$T/last"
	tail -n 100 "$T/tail" > "$T/last-tail"
	cmp "$T/last" "$T/last-tail" || fail "tail -f ends otherwise"
	kill "$tail"
	mount_stop
}
each_user body
