#!/bin/sh
# tests/mount/gc-open.sh - C13: what is open or mapped goes on being read when gc takes the blob
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

body() {
	mkdir -p "$T/tree"
	head -c 3000000 /dev/urandom > "$T/tree/big"
	for i in $(seq 20); do
		echo "content $i" > "$T/tree/$i"
	done
	for how in with without; do
		root=$(put "$T/tree")
		blob=$(put "$T/tree/big")
		if [ "$how" = with ]; then mount_start; else mount_start --without passthrough; fi
		view=$MNT/cas/directory/$(dashed "$root")
		exec 5< "$MNT/cas/file/$(dashed "$blob")"
		exec 6< "$view/3"
		seen=$MNT/cas/file/$(dashed "$(put "$T/tree/5")")
		eq "looked up" 10 "$(stat -c %s "$seen")"
		casbox gc --max-size 0 > /dev/null
		[ ! -e "$(blob_path "$blob")" ] || fail "gc kept what nobody needs"
		cmp "$T/tree/big" - <&5 || fail "$how passthrough: an open blob"
		cmp "$T/tree/3" - <&6 || fail "$how passthrough: an open file of a tree"
		exec 5<&- 6<&-
		"$FSCHECK" call 'ENOENT|EIO' read "$view/7"
		# A blob that was looked up before is not there, whatever the kernel remembers.
		"$FSCHECK" call ENOENT read "$seen"
		# It is found as soon as it is there again.
		eq "put again" "$root" "$(put "$T/tree")"
		await cmp "$T/tree/7" "$view/7"
		cmp "$T/tree/big" "$MNT/cas/file/$(dashed "$blob")"

		# Trees that are mounted and not read yet lose nothing, whoever checks them out.
		s=$(sandbox_new "$root" --id one)
		casbox gc --max-size 0 > /dev/null
		for mode in copy hardlink; do
			casbox checkout --mode "$mode" "$root" "$T/co-$mode-$how" &
			pid=$!
			casbox gc --max-size 0 > /dev/null
			wait $pid || fail "$how: a check-out of a live tree"
			diff -r "$T/tree" "$T/co-$mode-$how"
		done
		diff -r "$T/tree" "$s"
		casbox sandbox remove one
		mount_stop
	done
}
each_user body
