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
printf X | dd of="$(blob_path "$root")" bs=1 conv=notrunc status=none
expect 1 casbox pin "$root"
[ -z "$(ls "$STORE/pins")" ] || fail "a damaged Directory was pinned"
