#!/bin/sh
# tests/mount/gc-live.sh - gc never takes an input from a live sandbox (C13)
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

sample_tree "$T/tree"
root=$(put "$T/tree")
head -c 3000000 /dev/urandom > "$T/idle"
idle=$(put "$T/idle")
mount_start
sandbox=$(sandbox_new "$root" --id one --output out/)
echo output > "$sandbox/out/f"

casbox gc --max-size 0 > "$T/said"
[ ! -e "$(blob_path "$idle")" ] || fail "gc kept what nobody needs"
expect 1 casbox cat "$idle"
mkdir "$T/expected"
cp -a "$T/tree/." "$T/expected"
rm -r "$sandbox/out/f"
(cd "$T/expected" && mkdir out)
trees_equal "$T/expected" "$sandbox"
casbox checkout "$root" "$T/co"
trees_equal "$T/tree" "$T/co"

# Without the mount it is still live: the record says so.
mount_stop
casbox gc --max-size 0 > /dev/null
casbox checkout "$root" "$T/co2"
mount_start
casbox sandbox remove one
casbox gc --max-size 0 > /dev/null
[ ! -e "$(blob_path "$root")" ] || fail "gc kept the root of a removed sandbox"
mount_stop
expect 0 casbox fsck
