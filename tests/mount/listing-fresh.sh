#!/bin/sh
# tests/mount/listing-fresh.sh - sandboxes/ lists what there is, whoever else lists it meanwhile
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

mkdir "$T/tree"
echo text > "$T/tree/file"
root=$(put "$T/tree")
mount_start

(while [ ! -e "$T/enough" ]; do ls "$MNT/sandboxes" > /dev/null; done) &
lister=$!
i=0
while [ $i -lt 100 ]; do
	i=$((i + 1))
	sandbox_new "$root" --id "box$i" > /dev/null
	eq "sandboxes with box$i" "box$i" "$(ls "$MNT/sandboxes")"
	casbox sandbox remove "box$i"
	eq "sandboxes without box$i" "" "$(ls "$MNT/sandboxes")"
done
touch "$T/enough"
wait "$lister"
mount_stop
