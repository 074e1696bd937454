#!/bin/sh
# tests/mount/empty-files.sh - the empty blob is always there (C29)
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

empty=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855/0
mkdir -p "$T/tree/none"
for i in $(seq 1000); do
	: > "$T/tree/empty-$i"
done
root=$(put "$T/tree")
rm -f "$(blob_path "$empty")"

mount_start
sandbox=$(sandbox_new "$root" --id one --output out/)
eq "bytes" 0 "$(cat "$sandbox"/empty-* | wc -c)"
"$FSCHECK" call EINVAL map-read "$sandbox/empty-7"
"$FSCHECK" stat "$sandbox/empty-7" size=0 blocks=0
eq "blob" "" "$(cat "$MNT/cas/file/$(dashed "$empty")")"
eq "cat" "" "$(casbox cat "$empty")"
"$FSCHECK" call OK opendir "$sandbox/none"

# Empty outputs are captured and independent of each other.
: > "$sandbox/out/a"
: > "$sandbox/out/b"
echo text > "$sandbox/out/b"
captured=$(casbox sandbox finish one | sed -n 's|^out/*\t||p')
casbox checkout "$captured" "$T/captured"
eq "a" "" "$(cat "$T/captured/a")"
eq "b" text "$(cat "$T/captured/b")"
casbox sandbox remove one
mount_stop

for how in copy hardlink; do
	casbox checkout --mode "$how" "$root" "$T/$how"
	eq "files by $how" 1000 "$(find "$T/$how" -type f -size 0 | wc -l)"
done
casbox gc --max-size 0 > /dev/null
eq "cat after gc" "" "$(casbox cat "$empty")"
expect 0 casbox fsck

# A size that the hash cannot have is refused.
expect 2 casbox cat "${empty%/0}/103"
expect 2 casbox cat "$(printf 'ab%.0s' $(seq 32))/0"
