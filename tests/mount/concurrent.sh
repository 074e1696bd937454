#!/bin/sh
# tests/mount/concurrent.sh - eight sandboxes, four puts and a check-out at once, all right
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

worker() {
	for round in 1 2 3; do
		id=w$1-$round
		sandbox=$(sandbox_new "$root" --id "$id" --output out/)
		sum=$(cat "$sandbox"/many/file-* | sha256sum)
		[ "$sum" = "$inputs" ] || { echo "$id: other inputs"; return 1; }
		"$sandbox/bin/tool" "$id" > "$sandbox/out/log"
		echo "$id" > "$sandbox/out/id"
		casbox sandbox finish "$id" > "$T/finish-$id" || return 1
		casbox checkout "$(sed -n 's|^out/*\t||p' "$T/finish-$id")" "$T/co-$id" || return 1
		[ "$(cat "$T/co-$id/id" "$T/co-$id/log")" = "$id
ran $id" ] || { echo "$id: other outputs"; return 1; }
		casbox sandbox remove "$id" || return 1
	done
}

putter() {
	for round in 1 2 3; do
		[ "$(put "$T/tree")" = "$root" ] || { echo "put $1: another digest"; return 1; }
		head -c 200000 /dev/urandom > "$T/blob-$1"
		digest=$(put "$T/blob-$1") || return 1
		cmp "$T/blob-$1" "$MNT/cas/file/$(dashed "$digest")" || return 1
	done
}

body() {
	sample_tree "$T/tree"
	root=$(put "$T/tree")
	inputs=$(cat "$T/tree"/many/file-* | sha256sum)
	mount_start
	pids=
	for i in 1 2 3 4 5 6 7 8; do
		worker $i > "$T/said-w$i" 2>&1 &
		pids="$pids $!"
	done
	for i in 1 2 3 4; do
		putter $i > "$T/said-p$i" 2>&1 &
		pids="$pids $!"
	done
	casbox checkout "$root" "$T/co" > "$T/said-c" 2>&1 &
	pids="$pids $!"
	for pid in $pids; do
		wait "$pid" || fail "one of them: $(tail -n 3 "$T"/said-*)"
	done
	trees_equal "$T/tree" "$T/co"
	eq "sandboxes left" "" "$(casbox sandbox list)"
	mount_stop
	expect 0 casbox fsck
}
each_user body
