#!/bin/sh
# tests/mount/append-whole.sh - C27: lines that many processes append stay whole, all of them
. "$(dirname "$0")/../lib/common.sh"
need fuse mount overlay

lines=$(full_or 1000 10000)

on_engine() {
	"$FSSTRESS" append "$3/log" 16 "$lines" || fail "$1: appended lines"
	echo input > "$3/odd"
	"$FSSTRESS" append-odd "$3/odd" || fail "$1: offsets and O_APPEND"
	echo one > "$3/shell"
	echo two >> "$3/shell"
	eq "$1: in the same second" "one two" "$(tr '\n' ' ' < "$3/shell" | sed 's/ $//')"
	at_root "$1" || return 0
	"$FSSTRESS" append-odd "$2/src/input" || fail "an input appended to"
	"$FSSTRESS" append "$2/src/log" 16 200 || fail "an input that 16 append to"
}

body() {
	mkdir -p "$T/tree/src"
	echo input > "$T/tree/src/input"
	: > "$T/tree/src/log"
	mount_start
	each_engine "$T/tree" on_engine
	mount_stop
	for engine in $ENGINES; do
		eq "$engine: captured size" $((16 * lines * 37)) "$(stat -c %s "$T/captured-$engine/log")"
		eq "$engine: captured" "XYput
ABC" "$(cat "$T/captured-$engine/odd")"
	done
	eq "the input in the store" input "$(casbox cat "$(put "$T/tree/src/input")")"
}
each_user body
