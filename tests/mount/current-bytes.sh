#!/bin/sh
# tests/mount/current-bytes.sh - C28: no old bytes, no old answers, events for who watches
. "$(dirname "$0")/../lib/common.sh"
need fuse mount overlay

on_engine() {
	"$FSSTRESS" second-fd "$3" || fail "$1: a second descriptor"
	"$FSSTRESS" events "$3" || fail "$1: events"
	echo first > "$3/followed"
	tail -n +1 -s 0.1 -f "$3/followed" > "$T/followed-$1" 2>&1 &
	pid=$!
	echo second >> "$3/followed"
	await grep -q second "$T/followed-$1"
	kill "$pid"
	wait "$pid" 2> /dev/null || :
	eq "tail -f" "first
second" "$(cat "$T/followed-$1")"
	# An input first seen, then hidden by a new file of that name.
	at_root "$1" || return 0
	eq "an input" "input one" "$(cat "$2/src/input")"
	exec 5< "$2/src/input"
	rm "$2/src/input"
	echo new > "$2/src/input"
	eq "what replaced it" new "$(cat "$2/src/input")"
	eq "by a descriptor from before" "input one" "$(cat <&5)"
	exec 5<&-
}

body() {
	mkdir -p "$T/tree/src/dir" "$T/tree2/src/gone"
	echo "input one" > "$T/tree/src/input"
	echo same > "$T/tree/src/same"
	echo "only in one" > "$T/tree/src/dir/one"
	echo "input two" > "$T/tree2/src/input"
	echo same > "$T/tree2/src/same"
	echo "only in two" > "$T/tree2/src/new"
	mount_start
	each_engine "$T/tree" on_engine

	# The same path shows one tree, then another, again and again.
	one=$(put "$T/tree")
	two=$(put "$T/tree2")
	for round in 1 2 3 4 5; do
		s=$(sandbox_new "$one" --id switched --output out/)
		eq "$round: tree one" "input one" "$(cat "$s/src/input")"
		eq "$round: below" "only in one" "$(cat "$s/src/dir/one")"
		"$FSCHECK" call ENOENT stat "$s/src/new"
		"$FSCHECK" call ENOENT stat "$s/out/left"
		echo left > "$s/out/left"
		casbox sandbox remove switched
		"$FSCHECK" call ENOENT stat "$s"
		s=$(sandbox_new "$two" --id switched --output out/)
		eq "$round: tree two" "input two" "$(cat "$s/src/input")"
		eq "$round: new there" "only in two" "$(cat "$s/src/new")"
		eq "$round: listing" "gone input new same" "$(ls "$s/src" | tr '\n' ' ' | sed 's/ $//')"
		"$FSCHECK" call ENOENT stat "$s/src/dir"
		"$FSCHECK" call ENOENT stat "$s/out/left"
		casbox sandbox remove switched
	done
	mount_stop

	# And so does the same mount point after it was mounted again.
	mount_start
	s=$(sandbox_new "$two" --id switched)
	eq "mounted again" "input two" "$(cat "$s/src/input")"
	casbox sandbox remove switched
	mount_stop
}
each_user body
