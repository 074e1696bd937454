#!/bin/sh
# tests/mount/run-start-once.sh - eight at once start one mount; mount takes it over; it idles out
. "$(dirname "$0")/../lib/common.sh"
need root fuse

daemons() {
	ls -d "$XDG_RUNTIME_DIR"/casbox/* 2> /dev/null | while read -r at; do
		mounts_below "$at" | grep -x "$at"
	done | wc -l
}
pids=
for i in 1 2 3 4 5 6 7 8; do
	"$CASBOX" run --output o --into "res$i" -- sh -c "echo $i > o; sleep 0.3" &
	pids="$pids $!"
done
for pid in $pids; do
	wait "$pid" || fail "one of eight: status $?"
done
for i in 1 2 3 4 5 6 7 8; do
	eq "result $i" "$i" "$(cat "res$i/o")"
done
eq "mounts" 1 "$(daemons)"
grep -q '"automatic": *true' "$STORE/run/daemon" || fail "$(cat "$STORE/run/daemon")"

# An idle one makes room; one with a sandbox does not.
"$CASBOX" run -- sleep 2 &
busy=$!
await sh -c '"$CASBOX" ctl list | grep -q live'
expect 1 casbox mount "$MNT"
wait $busy
expect 0 casbox mount "$MNT"
eq "mounts" 0 "$(daemons)"
expect 0 casbox run -- true
eq "mounts" 0 "$(daemons)"
expect 1 casbox mount "$MNT"
said "already mounted at $MNT"
mkdir other
expect 1 casbox mount other
said "$MNT"
casbox umount

expect 0 casbox run --idle 1 -- true
ended() { ! "$CASBOX" sandbox list && [ -z "$(mounts_below "$T")" ]; }
await ended
