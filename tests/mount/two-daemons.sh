#!/bin/sh
# tests/mount/two-daemons.sh - one daemon a store; the second says who serves it
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

echo text > "$T/file"
digest=$(put "$T/file")
mount_start
mkdir "$T/second"
expect 1 within 20 "$CASBOX" mount -f "$T/second"
said "$MNT"
expect 1 within 20 "$CASBOX" mount -f "$MNT"
eq "mounts at the second place" "" "$(mounts_below "$T/second")"
eq "the first goes on" text "$(cat "$MNT/cas/file/$(dashed "$digest")")"
mount_stop
MNT=$T/second
mount_start
eq "the second place, alone" text "$(cat "$MNT/cas/file/$(dashed "$digest")")"
mount_stop
