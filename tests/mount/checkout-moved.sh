#!/bin/sh
# tests/mount/checkout-moved.sh - a kept tree is checked out by a snapshot and a move, and little else
. "$(dirname "$0")/../lib/common.sh"
need root mount strace
strace -o "$T/probe" true 2> /dev/null || skip "strace may not trace"

store_on_btrfs

tree=$T/tree
for d in $(seq 20); do
	mkdir -p "$tree/d$d"
	for f in $(seq 30); do
		echo "$d $f" > "$tree/d$d/f$f"
	done
done
mkdir "$T/b/to"
root=$(put "$tree")
casbox checkout "$root" "$T/b/to/first"

# is_moved: a snapshot it is, right, with nothing left in the store or beside it.
is_moved() {
	[ "$(stat -c %i "$1")" -eq 256 ] || fail "$1 is no snapshot"
	trees_equal "$tree" "$1"
	eq "kept" 1 "$(find "$STORE/trees" -mindepth 1 -maxdepth 1 | wc -l)"
	eq "left beside" "" "$(find "$(dirname "$1")" -maxdepth 1 -name '.casbox-*')"
}
calls() {
	grep -c "^[0-9 ]*$1(.*${2:-}" "$T/trace" || :
}

# No thread, no index, no ledger, no blob, no directory is made; the use is left for gc.
rm -f "$STORE/run/uses"
strace -f -qq -o "$T/trace" "$CASBOX" checkout "$root" "$T/b/to/moved"
is_moved "$T/b/to/moved"
eq "snapshots" 1 "$(calls ioctl SNAP_CREATE)"
eq "threads" 0 "$(calls 'clone3*')"
eq "files of index, ledger and blobs" 0 "$(calls openat '"[^"]*\(mdb\|ledger\|[0-9a-f]\{64\}\)"')"
eq "directories made" 0 "$(calls mkdirat)"
eq "uses left" "r,$root" "$(sed 's/[;!]*$//' "$STORE/run/uses" | tr - / | cut -c 1-$((2 + ${#root})))"
[ "$(wc -l < "$T/trace")" -le 200 ] || fail "$(wc -l < "$T/trace") system calls"

# It is a use: what was only checked out so is younger than what was put later.
head -c 300000 /dev/urandom > "$T/later"
later=$(put "$T/later")
sleep 1.1
casbox checkout "$root" "$T/b/to/used"
used=$(du -s --block-size=1 "$tree" | cut -f 1)
casbox gc --max-size $((used + 200000)) > /dev/null
expect 1 "$CASBOX" cat "$later"
casbox checkout --mode copy "$root" "$T/b/to/again"
trees_equal "$tree" "$T/b/to/again"
casbox checkout "$root" "$T/b/to/kept"
is_moved "$T/b/to/kept"

# Below another mount of the same filesystem nothing can be moved from the store.
mkdir "$T/other"
mount --bind "$T/b/to" "$T/other"
casbox checkout "$root" "$T/other/bound"
is_moved "$T/other/bound"
casbox checkout "$root" "$T/elsewhere"
trees_equal "$tree" "$T/elsewhere"
eq "left beside" "" "$(find "$T" -maxdepth 1 -name '.casbox-*')"

# What cannot be put in place leaves nothing, there or here.
mkdir "$T/b/to/full"
: > "$T/b/to/full/x"
expect 1 "$CASBOX" checkout "$root" "$T/b/to/full"
is_moved "$T/b/to/kept"

# What a killed one left in the store goes with the next tree that is made, or with gc.
if command -v btrfs > /dev/null; then
	btrfs -q subvolume snapshot "$STORE/trees/"*/tree "$STORE/trees/.tmp-dead"
	casbox gc --max-size 0 > /dev/null
	eq "kept after gc" "" "$(ls -A "$STORE/trees")"
	put "$tree" > "$T/again"
fi

# Many at once, while what vouches for the kept tree is taken away again and again.
for n in 1 2 3; do
	for m in 1 2 3 4; do
		casbox checkout "$root" "$T/b/to/many$n-$m" 2>> "$T/said" ||
			echo "$n-$m" >> "$T/failed"
	done &
	pids="${pids:-} $!"
done
for n in $(seq 20); do
	for stamp in "$STORE/trees/"*/stamp; do
		[ ! -e "$stamp" ] || : > "$stamp" || :
	done
	sleep 0.05
done 2> /dev/null
for pid in $pids; do wait "$pid"; done
[ ! -e "$T/failed" ] || fail "failed: $(cat "$T/failed")"
for n in 1 2 3; do
	for m in 1 2 3 4; do trees_equal "$tree" "$T/b/to/many$n-$m"; done
done
casbox fsck
