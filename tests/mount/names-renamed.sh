#!/bin/sh
# tests/mount/names-renamed.sh - C07: what is renamed is all there under its new name, at once
. "$(dirname "$0")/../lib/common.sh"
need fuse mount overlay

left='b b/h full full/f full/g victim'

on_engine() {
	"$FSSTRESS" renamed "$3" || fail "$1: renames"
	eq "$1: what is left" "$left" "$(cd "$3" && find . -mindepth 1 -printf '%P\n' | sort | tr '\n' ' ' | sed 's/ $//')"
	at_root "$1" || return 0
	# Inputs in the way, and inputs that move.
	mkdir "$2/src/new"
	echo new > "$2/src/new/file"
	"$FSCHECK" call ENOTEMPTY rename "$2/src/new" "$2/src/dir"
	"$FSCHECK" call ENOTDIR rename "$2/src/new" "$2/src/input"
	"$FSCHECK" call EISDIR rename "$2/src/input" "$2/src/dir"
	"$FSCHECK" call EINVAL rename "$2/src/dir" "$2/src/dir/below"
	eq "nothing is lost" "input inner new" "$(cat "$2/src/input" "$2/src/dir/inner" "$2/src/new/file" | tr '\n' ' ' | sed 's/ $//')"
	ino=$(stat -c %i "$2/src/input")
	exec 5< "$2/src/input"
	"$FSCHECK" call OK rename "$2/src/input" "$2/src/dir/moved"
	eq "inode of a moved input" "$ino" "$(stat -c %i "$2/src/dir/moved")"
	eq "a moved input" input "$(cat "$2/src/dir/moved")"
	eq "by the old descriptor" input "$(cat <&5)"
	exec 5<&-
	"$FSCHECK" call ENOENT stat "$2/src/input"
	rm -r "$2/src/dir"
	"$FSCHECK" call OK rename "$2/src/new" "$2/src/dir"
	eq "what replaced a directory of inputs" file "$(ls "$2/src/dir")"
}

body() {
	mkdir -p "$T/tree/src/dir"
	echo input > "$T/tree/src/input"
	echo inner > "$T/tree/src/dir/inner"
	mount_start
	each_engine "$T/tree" on_engine
	mount_stop
	for engine in $ENGINES; do
		eq "$engine: captured" "$left" "$(cd "$T/captured-$engine" && find . -mindepth 1 -printf '%P\n' | sort | tr '\n' ' ' | sed 's/ $//')"
		eq "$engine: cut by the old descriptor" 90 "$(stat -c %s "$T/captured-$engine/full/f")"
	done
}
each_user body
