#!/bin/sh
# tests/mount/names-deleted.sh - C06: what is deleted while it is listed hides nothing else
. "$(dirname "$0")/../lib/common.sh"
need fuse mount overlay

nr=$(full_or 250 5000)

on_engine() {
	"$FSSTRESS" list-delete "$3/one" "$nr" || fail "$1: deleting what was listed"
	"$FSSTRESS" list-threads "$3/three" "$nr" || fail "$1: threads delete while it is listed"
	eq "$1: left" "" "$(ls -A "$3")"
	# Inputs and new files in one directory: what goes is not shown again either.
	if at_root "$1"; then
		"$FSSTRESS" list-delete "$2/src/many" $((nr / 2)) || fail "$1: deleting inputs"
		"$FSCHECK" call ENOENT stat "$2/src/many"
		"$FSSTRESS" list-threads "$2/src/more" $((nr / 2)) || fail "$1: threads delete inputs"
		"$FSCHECK" call OK mkdir "$2/src/more"
		eq "$1: made again" "" "$(ls -A "$2/src/more")"
	fi
}

body() {
	mkdir -p "$T/tree/src/many" "$T/tree/src/more"
	for i in $(seq 0 2 99); do
		name=$(printf 'entry-%05d-aaaaaaaaaaaaaaaaaaaaaaaaaaaa' "$i")
		echo "$i" > "$T/tree/src/many/$name"
		echo "$i" > "$T/tree/src/more/$name"
	done
	mount_start
	each_engine "$T/tree" on_engine
	mount_stop
}
each_user body
