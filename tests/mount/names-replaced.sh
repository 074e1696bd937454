#!/bin/sh
# tests/mount/names-replaced.sh - C08: a name that is replaced by rename is never missing
. "$(dirname "$0")/../lib/common.sh"
need fuse mount overlay

secs=$(full_or 0.4 60)

on_engine() {
	case $1 in
	*root) "$FSSTRESS" replace "$2/src/versions" 8 "$secs" || fail "root: an input replaced" ;;
	*) "$FSSTRESS" replace "$3/versions" 8 "$secs" || fail "$1: a file replaced" ;;
	esac
}

body() {
	mkdir -p "$T/tree/src"
	head -c 16384 /dev/zero > "$T/tree/src/versions"
	mount_start
	each_engine "$T/tree" on_engine
	mount_stop
}
each_user body
