#!/bin/sh
# tests/mount/pin-meanwhile.sh - C13: a pin that was acknowledged keeps what it found, gc or not
. "$(dirname "$0")/../lib/common.sh"

# Many blobs, so that an eviction takes a while, and pins come in the midst of it.
mkdir many
for i in $(seq 1500); do
	echo "$i $$" > "many/$i"
done
for i in $(seq 20); do
	head -c 3000 /dev/urandom > "pin-$i"
	put "pin-$i" > "digest-$i"
done
put many > root
casbox gc --max-size 0 > gc-said &
gc=$!
kept=
for i in $(seq 20); do
	if casbox pin "$(cat "digest-$i")" 2> err; then
		kept="$kept $i"
	fi
done
wait "$gc" || fail "gc: status $?"
for i in $kept; do
	casbox cat "$(cat "digest-$i")" | cmp - "pin-$i" || fail "pinned, and gone: $i"
done
# Each that came too late was told so, and left no pin.
eq "pins" "$(echo "$kept" | wc -w)" "$(find "$STORE/pins" -type f | wc -l)"
casbox gc --max-size 0 > gc-said
eq "blobs left" "$(echo "$kept" | wc -w)" "$(find "$STORE/cas" -type f | wc -l)"
expect 0 casbox fsck
