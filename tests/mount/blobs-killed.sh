#!/bin/sh
# tests/mount/blobs-killed.sh - two stores put the same into a slow directory and are killed at it
. "$(dirname "$0")/../lib/common.sh"
need root fuse

mkdir "$T/back" "$T/slow" "$T/tree"
for n in $(seq 300); do
	echo "blob $n" > "$T/tree/$n"
done
root=$(casbox --store "$T/plain" put "$T/tree")
# As NFS, which cannot rename without replacing.
"$LATFS" --mutation-us 5000 --lookup-us 200 --no-flags "$T/back" "$T/slow" &
latfs=$!
await mountpoint "$T/slow"
export CASBOX_BLOBS="$T/slow"

for nap in 0.1 0.2 0.4 0.6; do
	"$CASBOX" --store "$T/one" put "$T/tree" > "$T/ignored" &
	one=$!
	"$CASBOX" --store "$T/two" put "$T/tree" > "$T/ignored" &
	two=$!
	sleep "$nap"
	kill -9 "$one" "$two" || :
	wait "$one" "$two" 2> "$T/ignored" || :
done
kill -0 "$latfs" || fail "the slow filesystem ended"
for store in one two; do
	eq "tree put by $store" "$root" "$(casbox --store "$T/$store" put "$T/tree")"
	expect 0 casbox --store "$T/$store" gc --drain
	eq "spool of $store" "" "$(find "$T/$store/spool" -path '*/??/*' -type f)"
	expect 0 casbox --store "$T/$store" fsck
done
eq "blobs" 301 "$(find "$T/back/cas" -type f -name '[0-9a-f]*' | wc -l)"
eq "temporaries" "" "$(find "$T/back" "$T/one/spool" "$T/two/spool" -name '.tmp-*')"
eq "one owner" 1 "$(cat "$T/one/id" "$T/two/id" | grep -cf - "$T/back/owner")"
# It ends with its last mount, of which another mount namespace may have a copy.
umount "$T/slow"
