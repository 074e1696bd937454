#!/bin/sh
# tests/mount/locks-exclude.sh - C37: locks exclude, end with their holder, belong to one file
. "$(dirname "$0")/../lib/common.sh"
need fuse mount overlay

rounds=$(full_or 40 200)

on_engine() {
	"$FSSTRESS" locks "$3/lock" 8 "$rounds" || fail "$1: locks on an output"
	"$FSSTRESS" locks-apart "$2/src/a" "$2/src/b" || fail "$1: locks on inputs of equal content"
	if command -v sqlite3 > /dev/null; then
		sqlite3 "$3/db" 'create table t (n integer)'
		pids=
		for i in 1 2 3 4; do
			(for n in $(seq 10); do
				sqlite3 -cmd '.timeout 20000' "$3/db" "insert into t values ($n)" || exit 1
			done) &
			pids="$pids $!"
		done
		for pid in $pids; do
			wait "$pid" || fail "$1: sqlite3"
		done
		eq "$1: rows" "40 ok" "$(sqlite3 "$3/db" 'select count(*) from t; pragma integrity_check' | tr '\n' ' ' | sed 's/ $//')"
	fi
	at_root "$1" || return 0
	"$FSSTRESS" locks "$2/src/a" 8 "$rounds" || fail "locks on an input that may be written to"
}

body() {
	mkdir -p "$T/tree/src"
	echo equal > "$T/tree/src/a"
	echo equal > "$T/tree/src/b"
	root=$(put "$T/tree")
	mount_start
	each_engine "$T/tree" on_engine
	view=$MNT/cas/directory/$(dashed "$root")/src
	"$FSSTRESS" locks-apart "$view/a" "$view/b"
	mount_stop
}
each_user body
