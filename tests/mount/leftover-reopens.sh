#!/bin/sh
# tests/mount/leftover-reopens.sh - no process that reads an output can change the blob it became
. "$(dirname "$0")/../lib/common.sh"
need mount fuse

mkdir tree
echo i > tree/i
root=$(put tree)
mount_start
sb=$(sandbox_new "$root" --id x --output out/)
echo original > "$sb/out/f"
# In a mount namespace of its own: it keeps no mount of ours busy.
unshare -m sh -c '
	exec 3< "$1/out/f"
	: > ready
	while [ ! -e go ]; do sleep 0.05; done
	echo CHANGED- > /proc/self/fd/3
	: > done' reader "$sb" &
reader=$!
await test -e ready
casbox sandbox finish x > /dev/null
: > go
await test -e done
wait "$reader"
for blob in $(find "$STORE/cas" -type f ! -name '.*'); do
	eq "hash of $blob" "${blob##*/}" "$(sha256sum < "$blob" | cut -c 1-64)"
done
casbox fsck
