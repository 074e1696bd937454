#!/bin/sh
# tests/mount/signals-often.sh - C35: a signal every millisecond interrupts nothing
. "$(dirname "$0")/../lib/common.sh"
need fuse mount overlay

secs=$(full_or 0.5 20)

on_engine() {
	"$FSSTRESS" signals "$3" "$2/src" "$secs" > "$T/signals" 2>&1 &
	pid=$!
	# The daemon stands still for a while, then the client.
	for victim in "$DAEMON" "$pid"; do
		sleep 0.1
		kill -STOP "$victim"
		sleep 0.1
		kill -CONT "$victim"
	done
	wait "$pid" || fail "$1: $(cat "$T/signals")"
	eq "$1: left" "" "$(ls -A "$3")"
}

stands_still() {
	[ -z "$(grep -L '^State:.T' "/proc/$DAEMON"/task/*/status)" ]
}

body() {
	mkdir -p "$T/tree/src"
	for i in $(seq 60); do
		head -c $((i * 1000)) /dev/urandom > "$T/tree/src/$i"
	done
	root=$(put "$T/tree")
	mount_start
	each_engine "$T/tree" on_engine
	mkdir "$T/work"
	"$FSSTRESS" signals "$T/work" "$MNT/cas/directory/$(dashed "$root")/src" "$secs"

	# A fatal signal ends the wait for a daemon that does not answer.
	# Of a tree that no sandbox before it had, or the kernel knows all there is to know.
	echo cold > "$T/tree/src/1"
	s=$(sandbox_new "$(put "$T/tree")" --id cold)
	kill -STOP "$DAEMON"
	# A thread that still takes the request would make cat wait for its answer, signal or not.
	await stands_still
	cat "$s/src/1" > /dev/null 2>&1 &
	pid=$!
	sleep 0.2
	kill -9 "$pid"
	status=0
	within 5 tail -s 0.05 --pid="$pid" -f /dev/null
	wait "$pid" 2> /dev/null || status=$?
	kill -CONT "$DAEMON"
	eq "status of the killed" 137 "$status"
	cmp "$T/tree/src/1" "$s/src/1"
	casbox sandbox remove cold
	mount_stop
}
each_user body
