#!/bin/sh
# tests/mount/commands-parallel.sh - many commands on one store, with and without a daemon (C15, C25)
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

hammer() {
	for round in 1 2 3 4 5; do
		echo "own $1 $round" > "$T/own-$1"
		digest=$(put "$T/own-$1") || return 1
		[ "$(casbox cat "$digest")" = "own $1 $round" ] || return 1
		[ "$(put "$T/common")" = "$common" ] || return 1
		casbox stat --json > "$T/stat-$1" || return 1
		casbox gc --max-size 1G > /dev/null || return 1
		casbox fsck > "$T/fsck-$1" || { cat "$T/fsck-$1"; return 1; }
	done
}

all_at_once() {
	pids=
	for i in 1 2 3 4 5 6 7 8; do
		hammer $i > "$T/said-$i" 2>&1 &
		pids="$pids $!"
	done
	for pid in $pids; do
		wait "$pid" || fail "$1: $(tail -n 3 "$T"/said-*)"
	done
	walk=$(find "$STORE/cas" -type f -name '????????*' | wc -l)
	eq "$1: blobs counted" "$walk" "$(casbox stat --json | tr -d ' \n' | sed 's/.*"blobs":\([0-9]*\).*/\1/')"
	walk=$(find "$STORE/cas" -type f -name '????????*' -printf '%s\n' | awk '{ n += $1 } END { print n }')
	eq "$1: bytes counted" "$walk" "$(casbox stat --json | tr -d ' \n' | sed 's/.*"bytes":\([0-9]*\).*/\1/')"
	eq "$1: temporary names" "" "$(find "$STORE/cas" -type f \! -perm 444)"
}

head -c 1000000 /dev/urandom > "$T/common"
common=$(put "$T/common")
all_at_once "without a daemon"
mount_start
all_at_once "with a daemon"
mount_stop
