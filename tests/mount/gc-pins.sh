#!/bin/sh
# tests/mount/gc-pins.sh - a pin keeps all that it needs; what cannot be told keeps everything
. "$(dirname "$0")/../lib/common.sh"
need fuse mount root

sample_tree "$T/tree"
root=$(put "$T/tree")
casbox pin "$root"
casbox gc --max-size 0 > /dev/null
mount_start
casbox gc --max-size 0 > /dev/null
casbox checkout "$root" "$T/co"
trees_equal "$T/tree" "$T/co"

# A record that cannot be read: what that sandbox needs is unknown, so nothing may go.
head -c 100000 /dev/urandom > "$T/idle"
idle=$(put "$T/idle")
mkdir "$STORE/sandboxes/broken"
echo '{' > "$STORE/sandboxes/broken/record"
expect 1 casbox gc --max-size 0
said sandboxes/broken/record
mount_stop
expect 1 casbox gc --max-size 0
said sandboxes/broken/record
[ -e "$(blob_path "$idle")" ] || fail "gc did not stop at a broken record"
rm -r "$STORE/sandboxes/broken"

casbox unpin "$root"
expect 1 casbox unpin "$root"
mv "$(blob_path "$root")" "$T/kept"
expect 1 casbox pin "$root"
[ -z "$(ls "$STORE/pins")" ] || fail "a pin of what is not there"
mv "$T/kept" "$(blob_path "$root")"
# A Directory that cannot be read just now is not a blob: its files would go.
cp "$(blob_path "$root")" "$T/kept-root"
printf X | dd of="$(blob_path "$root")" bs=1 conv=notrunc status=none
expect 1 casbox pin "$root"
[ -z "$(ls "$STORE/pins")" ] || fail "a damaged Directory was pinned"
cp "$T/tree/$(cd "$T/tree" && find . -type f -size +0 | head -n 1)" "$T/one"
dd if="$T/kept-root" of="$(blob_path "$root")" conv=notrunc status=none

# A pin of a tree that is not all here is made, and says what lacks.
one=$(put "$T/one")
mv "$(blob_path "$one")" "$T/aside"
expect 0 casbox pin "$root"
said "not here" "$one"
mv "$T/aside" "$(blob_path "$one")"
expect 0 casbox pin "$root"
eq "said of a whole tree" "" "$(cat "$T/err")"
casbox unpin "$root"

# By number, alone and by the daemon.
blobs() { casbox stat | sed -n "s/^blobs *//p"; }
[ "$(blobs)" -gt 4 ] || fail "too few blobs to tell"
casbox gc --max-blobs 4 > /dev/null
eq "blobs left" 4 "$(blobs)"
mount_start
casbox gc --max-blobs 2 > /dev/null
eq "blobs left by the daemon" 2 "$(blobs)"
mount_stop
casbox gc --max-blobs 0 > /dev/null
eq "blobs left of none" 0 "$(blobs)"
