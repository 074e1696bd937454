#!/bin/sh
# tests/mount/full-disk.sh - C03: no room for a put, a move, a check-out, a capture: said, whole, mended
. "$(dirname "$0")/../lib/common.sh"
need root fuse mount

small() {
	mkdir -p "$1"
	mount -t tmpfs -o "size=$2" tmpfs "$1"
}
fill() { dd if=/dev/zero of="$1/fill" bs=4k 2> "$T/ignored" && fail "$1 was never full"; :; }
nothing_half() {
	half=$(find "$1" \( -name '.tmp-*' -o -name '.bad-*' \) -print)
	eq "left in $1" "" "$half"
}
blobs_in() { find "$1/cas" -type f | wc -l; }

head -c 3000000 /dev/urandom > "$T/large"
head -c 20000 /dev/urandom > "$T/little"
mkdir "$T/tree"
cp "$T/large" "$T/little" "$T/tree"

# A limit of the process: an error, not a signal.
expect 1 sh -c 'ulimit -f 1000; "$0" put "$1"' "$CASBOX" "$T/large"
said "File too large"
eq "blobs" 0 "$(blobs_in "$STORE")"
nothing_half "$STORE"
root=$(put "$T/tree")

# Check-outs: nothing is at the destination, and nothing beside it.
small "$T/dest" 1m
for mode in auto copy; do
	expect 1 casbox checkout --mode "$mode" "$root" "$T/dest/co"
	said "No space"
	eq "after a failed check-out" "" "$(ls -A "$T/dest")"
done
mount -o remount,size=8m "$T/dest"
casbox checkout "$root" "$T/dest/co"
trees_equal "$T/tree" "$T/dest/co"
umount "$T/dest"

# A blob directory that is full: what was acknowledged waits in the spool, and moves later.
small "$T/dir" 1m
expect 0 casbox --store "$T/s2" --blobs "$T/dir" put "$T/large"
said "not moved" "No space"
digest=$(cat "$T/out")
eq "blobs in the full directory" 0 "$(blobs_in "$T/dir")"
nothing_half "$T/dir"
casbox --store "$T/s2" --blobs "$T/dir" cat "$digest" | cmp - "$T/large" || fail "out of the spool"
mount -o remount,size=8m "$T/dir"
expect 0 casbox --store "$T/s2" --blobs "$T/dir" gc --drain
eq "blobs moved" 1 "$(blobs_in "$T/dir")"
casbox --store "$T/s2" --blobs "$T/dir" cat "$digest" | cmp - "$T/large" || fail "after the move"
expect 0 casbox --store "$T/s2" --blobs "$T/dir" fsck

# No room in the spool: blobs go to the directory themselves, and fail by name when that is full, too.
small "$T/s3" 8m
casbox --store "$T/s3" --blobs "$T/dir" put "$T/little" > "$T/out"
fill "$T/s3"
head -c 3000000 /dev/urandom > "$T/large-2"
expect 0 casbox --store "$T/s3" --blobs "$T/dir" put "$T/large-2"
casbox --store "$T/s3" --blobs "$T/dir" cat "$(cat "$T/out")" | cmp - "$T/large-2" || fail "large, past the spool"
head -c 3000000 /dev/urandom > "$T/large-3"
expect 1 casbox --store "$T/s3" --blobs "$T/dir" put "$T/large-3"
said "large-3" "No space"
nothing_half "$T/dir"
mount -o remount,size=16m "$T/dir"
head -c 40000 /dev/urandom > "$T/other"
expect 0 casbox --store "$T/s3" --blobs "$T/dir" put "$T/other"
casbox --store "$T/s3" --blobs "$T/dir" cat "$(cat "$T/out")" | cmp - "$T/other" || fail "put past the spool"
rm "$T/s3/fill"
expect 0 casbox --store "$T/s3" --blobs "$T/dir" put "$T/large-3"
casbox --store "$T/s3" --blobs "$T/dir" cat "$(cat "$T/out")" | cmp - "$T/large-3" || fail "put again"
expect 0 casbox --store "$T/s3" --blobs "$T/dir" fsck
umount "$T/s3" "$T/dir"

# A capture: finish says so, names nothing, and does it once there is room.
small "$T/s4" 16m
STORE=$T/s4/store
CASBOX_STORE=$STORE
put "$T/little" > "$T/out"
mkdir "$T/empty"
mount_start
sandbox=$(sandbox_new "$(put "$T/empty")" --id full --output out/)
cp "$T/large" "$sandbox/out/large"
fill "$T/s4"
got=0
casbox sandbox finish full > "$T/fin" 2> "$T/err" || got=$?
if [ "$got" -ne 0 ]; then
	grep -q "No space" "$T/err" || fail "finish: $(cat "$T/err")"
	eq "said of outputs" "" "$(cat "$T/fin")"
fi
rm "$T/s4/fill"
casbox sandbox finish full > "$T/fin"
casbox checkout "$(cut -f 2 "$T/fin")" "$T/co4"
cmp "$T/co4/large" "$T/large" || fail "the captured output"
casbox sandbox remove full
mount_stop
nothing_half "$T/s4"
expect 0 casbox fsck
umount "$T/s4"

# A daemon that is started on a full disk says so; when it serves already, what it cannot do has a reason.
small "$T/s6" 8m
STORE=$T/s6/store
CASBOX_STORE=$STORE
root=$(put "$T/tree")
fill "$T/s6"
mkdir -p "$MNT"
expect 1 casbox mount "$MNT"
said "No space"
expect 125 casbox run --root "$root" -- true
said "No space"
rm "$T/s6/fill"
mount_start
fill "$T/s6"
expect 1 casbox sandbox create --root "$root" --id none --output out
said "No space"
casbox checkout "$root" "$T/co6"
trees_equal "$T/tree" "$T/co6"
rm "$T/s6/fill"
sandbox_new "$root" --id one --output out > "$T/out"
cmp "$T/tree/little" "$MNT/sandboxes/one/little" || fail "an input"
casbox sandbox remove one
mount_stop
expect 0 casbox fsck
umount "$T/s6"
