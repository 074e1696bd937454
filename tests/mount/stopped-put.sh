#!/bin/sh
# tests/mount/stopped-put.sh - a put that is stopped does not stop the mount
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

sample_tree "$T/tree"
root=$(put "$T/tree")
mount_start
sandbox=$(sandbox_new "$root" --id one)

for delay in 0.00 0.01 0.02 0.04 0.08 0.16; do
	mkdir "$T/more"
	for i in $(seq 1000); do
		echo "more $i $delay" > "$T/more/$i"
	done
	"$CASBOX" put "$T/more" > "$T/put" 2>&1 &
	pid=$!
	sleep "$delay"
	kill -STOP "$pid" 2> /dev/null || :
	within 10 cat "$sandbox/many/file-3" > "$T/got" || fail "a read waits ($delay s)"
	within 10 ls -l "$sandbox/deep" > /dev/null || fail "a listing waits ($delay s)"
	within 10 "$CASBOX" sandbox create --root "$root" --id "d$delay" --mount "$MNT" > /dev/null ||
		fail "a new sandbox waits ($delay s)"
	within 10 "$CASBOX" put "$T/tree/..config" > /dev/null || fail "another put waits ($delay s)"
	within 10 "$CASBOX" sandbox remove "d$delay" || fail "a removal waits ($delay s)"
	kill -CONT "$pid" 2> /dev/null || :
	wait "$pid" || fail "the put itself: $(cat "$T/put")"
	rm -r "$T/more"
done
mount_stop
