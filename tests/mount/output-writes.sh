#!/bin/sh
# tests/mount/output-writes.sh - captured bytes are the bytes written, however (C26, C27, C28)
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

append() {
	i=0
	while [ $i -lt 200 ]; do
		printf 'writer %02d line %05d of some length....\n' "$1" $i >> "$2"
		i=$((i + 1))
	done
}

body() {
	mkdir -p "$T/tree/src"
	echo input > "$T/tree/src/input"
	root=$(put "$T/tree")
	mount_start
	# One area that is bound, one that is laid over inputs.
	sandbox=$(sandbox_new "$root" --id one --output out/ --output src/res)
	mkdir "$sandbox/src/res"
	for dir in "$sandbox/out" "$sandbox/src/res"; do
		{ echo first; sh -c 'echo second'; } > "$dir/two"
		eq "read back at once" "first
second" "$(cat "$dir/two")"
		pids=
		for i in 1 2 3 4 5 6; do
			append $i "$dir/log" &
			pids="$pids $!"
		done
		for pid in $pids; do
			wait "$pid"
		done
		eq "whole lines" 1200 "$(grep -c '^writer 0[1-6] line 00[01][0-9][0-9] of some length\.\.\.\.$' "$dir/log")"
		eq "size" $((1200 * 40)) "$(stat -c %s "$dir/log")"
		printf '0123456789abcdef' > "$dir/grown"
		truncate -s 10 "$dir/grown"
		truncate -s 8192 "$dir/grown"
		eq "zeros where it grew" 0 "$(tail -c 8182 "$dir/grown" | tr -d '\0' | wc -c)"
		[ ! -e "$dir/late" ] || fail "late exists"
		echo late > "$dir/late"
		eq "made after it was missed" late "$(cat "$dir/late")"
		truncate -s 1G "$dir/sparse"
		[ "$(stat -c %b "$dir/sparse")" -lt 100 ] || fail "a hole takes blocks"
		chmod 755 "$dir/two"
		truncate -s 4M "$dir/sparse"
	done
	cp -a "$sandbox/out" "$T/want"
	casbox sandbox finish one > "$T/finish"
	for path in out src/res; do
		digest=$(sed -n "s|^$path/*\t||p" "$T/finish")
		casbox checkout "$digest" "$T/co-${path%/*}"
		(cd "$T/co-${path%/*}" && find . -type f -exec sha256sum {} + | sort -k 2) > "$T/sums-${path%/*}"
		"$FSCHECK" stat "$T/co-${path%/*}/two" mode=0555
		"$FSCHECK" stat "$T/co-${path%/*}/late" mode=0444
	done
	grep -v /log "$T/sums-out" > "$T/a"
	grep -v /log "$T/sums-src" | diff "$T/a" - || fail "two areas, two results"
	(cd "$T/want" && find . -type f -exec sha256sum {} + | sort -k 2) | diff "$T/sums-out" - ||
		fail "captured other bytes than were written"
	casbox sandbox remove one
	mount_stop
}
each_user body
