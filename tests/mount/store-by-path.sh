#!/bin/sh
# tests/mount/store-by-path.sh - a store on a FUSE filesystem that goes by paths, without O_TMPFILE
. "$(dirname "$0")/../lib/common.sh"
need root fuse

mkdir back slow tree
echo small > tree/small
head -c 3000000 /dev/urandom > tree/big
# Nor can it rename without replacing: a blob is linked, and its first name removed.
"$LATFS" --mutation-us 0 --lookup-us 0 --no-flags "$T/back" "$T/slow" &
await mountpoint "$T/slow"
export CASBOX_STORE="$T/slow/store"

root=$(put tree)
eq "a second put" "$root" "$(put tree)"
eq "a known file" small "$(casbox cat "$(put tree/small)")"
for mode in copy hardlink; do
	casbox checkout --mode "$mode" "$root" "slow/$mode"
	trees_equal tree "slow/$mode"
done
expect 0 casbox fsck
casbox gc --max-size 0 > out
eq "blobs left" "" "$(find back/store/cas -type f)"
eq "put again" "$root" "$(put tree)"
expect 0 casbox fsck
eq "temporaries" "" "$(find back/store -name '.tmp-*')"
umount "$T/slow"
