#!/bin/sh
# tests/mount/placement.sh - store and mount inside of each other are refused by name (C33)
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

mkdir -p "$T/tree/sub" "$T/outer/mnt"
echo text > "$T/tree/sub/file"
root=$(put "$T/tree")

# The mount point inside the store, also by way of a link.
mkdir "$STORE/sandboxes/mnt"
ln -s "$STORE/sandboxes" "$T/link"
for at in "$STORE/sandboxes/mnt" "$T/link/mnt" "$STORE"; do
	expect 1 within 20 "$CASBOX" mount -f "$at"
	said "$STORE"
done
# The store inside the mount point.
mkdir "$T/above"
expect 1 within 20 "$CASBOX" --store "$T/above/store" mount -f "$T/above"
said "$T/above"
eq "mounts left" "" "$(mounts_below "$STORE")$(mounts_below "$T/above")"

# Started with everything pointing into the mount: harmless.
mount_start
sandbox=$(sandbox_new "$root" --id one --output out/)
(cd "$sandbox" && TMPDIR=$sandbox/out within 20 "$CASBOX" put sub) > "$T/got"
eq "put from inside" "$(put "$T/tree/sub")" "$(cat "$T/got")"
expect 0 within 20 "$CASBOX" fsck

# A put of a directory that holds the mount ends, and does not swallow the mount.
mkdir "$T/holder"
echo beside > "$T/holder/beside"
mkdir "$T/holder/mnt"
mount_stop
MNT=$T/holder/mnt
mount_start
within 30 "$CASBOX" put "$T/holder" > "$T/got" 2> "$T/said" || grep -q "$MNT" "$T/said" ||
	fail "the put says: $(cat "$T/said")"
mount_stop
