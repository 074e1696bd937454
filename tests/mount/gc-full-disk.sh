#!/bin/sh
# tests/mount/gc-full-disk.sh - a full disk can be made emptier, with and without a daemon (C03)
. "$(dirname "$0")/../lib/common.sh"
need root fuse mount

mkdir "$T/small"
mount -t tmpfs -o size=24m tmpfs "$T/small"
STORE=$T/small/store
CASBOX_STORE=$STORE
for i in 1 2 3 4; do
	head -c 3000000 /dev/urandom > "$T/blob-$i"
done
echo kept > "$T/kept"

fill() {
	kept=$(put "$T/kept")
	[ -z "${DAEMON:-}" ] || sandbox_new "$(put "$T/tree")" --id live > "$T/out"
	put "$T/blob-1" "$T/blob-2" "$T/blob-3" "$T/blob-4" > "$T/digests"
	dd if=/dev/zero of="$T/small/fill" bs=4k 2> "$T/ignored" && fail "never full"
	expect 1 casbox put "$T/fresh"
	said "No space"
}
freed() {
	eq "blobs of 3 MB left" 0 "$(find "$STORE/cas" -size +1M | wc -l)"
	eq "by the ledger" "$(find "$STORE/cas" -type f | wc -l)" \
		"$(casbox stat --json | sed 's/.*"blobs":\([0-9]*\),.*/\1/')"
	expect 0 casbox put "$T/fresh"
	rm "$T/small/fill"
	expect 0 casbox fsck
}
echo fresh > "$T/fresh"
mkdir "$T/tree"
echo input > "$T/tree/input"

fill
expect 0 casbox gc --max-size 0
freed
echo fresher > "$T/fresh"

mount_start
fill
expect 0 casbox gc --max-size 0
freed
eq "a live input" input "$(cat "$MNT/sandboxes/live/input")"
casbox sandbox remove live
mount_stop
umount "$T/small"
