#!/bin/sh
# tests/mount/open-life.sh - C26: what is written after the first of several closes is captured
. "$(dirname "$0")/../lib/common.sh"
need fuse mount overlay

on_engine() {
	"$FSSTRESS" open-life "$3" || fail "$1: open files"
}

body() {
	mkdir -p "$T/tree/src" "$T/want"
	echo input > "$T/tree/src/input"
	"$FSSTRESS" open-life "$T/want"
	mount_start
	each_engine "$T/tree" on_engine
	mount_stop
	for engine in $ENGINES; do
		diff -r "$T/want" "$T/captured-$engine" || fail "$engine: other bytes were captured"
	done
	# Captured at once after the action's end, mappings and all.
	casbox run --input "$T/tree" --output src/out/ --into "$T/into" -- "$FSSTRESS" open-life src/out
	diff -r "$T/want" "$T/into/src/out" || fail "run captured other bytes"
}
each_user body
