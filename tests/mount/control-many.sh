#!/bin/sh
# 64 conversations, 8 followers and scrapes while sandboxes are built in: no answer is lost,
# mixed or late. TEST_LONG=1 goes on for minutes.
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

body() {
	secs=${CONTROL_SECONDS:-$(full_or 2 120)}
	sample_tree "$T/tree"
	root=$(put "$T/tree")
	mount_start
	C=$MNT/.casbox
	for i in 1 2 3 4 5 6 7 8; do
		"$CTLTALK" follow "$C/events" "$secs" > "$T/follow-$i" &
		pids="${pids:-} $!"
	done
	"$CTLTALK" scrape "$C/metrics" "$secs" 10 > "$T/scrapes" &
	pids="$pids $!"
	"$CTLTALK" chat "$C/control" 64 "$secs" 4 > "$T/chat" &
	pids="$pids $!"
	end=$(($(date +%s) + secs))
	for b in 1 2 3 4 5 6 7 8; do
		while [ "$(date +%s)" -lt "$end" ]; do
			box=$(sandbox_new "$root" --id "build-$b" --output out/)
			for i in 1 2 3 4 5; do
				cat "$box/many/file-$i" > "$box/out/$i"
			done
			casbox sandbox finish "build-$b" --remove > "$T/finished-$b"
			grep -q '^out	' "$T/finished-$b" || exit 1
		done &
		pids="$pids $!"
	done
	for pid in $pids; do
		wait "$pid" || fail "one of those at work failed"
	done
	set -- $(cat "$T/chat")
	[ "$2" -ge $((secs * 64)) ] || fail "only $2 answers in $secs s"
	set -- $(cat "$T/scrapes")
	[ "$2" -ge "$secs" ] || fail "only $2 scrapes"
	cat "$T/chat" "$T/scrapes" "$T/follow-1"
	eq "sandboxes left" "" "$(casbox sandbox list)"
	mount_stop
}
each_user body
