#!/bin/sh
# tests/mount/checkout-snapshot.sh - on btrfs a kept tree is one snapshot, if it is what it was
. "$(dirname "$0")/../lib/common.sh"
need root mount

store_on_btrfs

# Large enough for a snapshot; and one that is not.
tree=$T/tree
mkdir -p "$tree/bin"
for d in $(seq 20); do
	mkdir "$tree/d$d"
	for f in $(seq 30); do
		echo "$d $f" > "$tree/d$d/f$f"
	done
done
cp -p "$FULL_CASBOX" "$tree/bin/tool"
ln -s bin/tool "$tree/link"
root=$(put "$tree")
small=$(put "$tree/d1")

# A subvolume's top has inode 256.
is_snapshot() {
	[ "$(stat -c %i "$1")" -eq 256 ] || fail "$1 is no snapshot"
	trees_equal "$tree" "$1"
	"$FSCHECK" stat "$1" type=d mode=0755
	"$FSCHECK" stat "$1/bin/tool" type=f mode=0555
	"$FSCHECK" stat "$1/d1/f1" type=f mode=0444
}
kept() {
	find "$STORE/trees" -mindepth 1 -maxdepth 1 -printf '%P\n'
}
left() {
	find "$T/b" "$T/b/to" -maxdepth 1 -name '.casbox-*'
}
mkdir "$T/b/to"
for n in 1 2 3; do
	casbox checkout --json "$root" "$T/b/to/$n" > "$T/json"
	is_snapshot "$T/b/to/$n"
	grep -q '"files": *601' "$T/json" || fail "files of a snapshot: $(cat "$T/json")"
	eq "kept trees" 1 "$(kept | wc -l)"
done
eq "left beside" "" "$(left)"

# It is the caller's own: changing it changes neither the next one nor the kept one.
echo changed > "$T/b/to/1/d1/new"
rm "$T/b/to/1/d2/f1"
casbox checkout "$root" "$T/b/to/4"
is_snapshot "$T/b/to/4"
rm -rf "$T/b/to/1"
[ ! -e "$T/b/to/1" ] || fail "a snapshot cannot be removed by rm"

# Small trees, other modes, and other places are made file by file.
casbox checkout "$small" "$T/b/to/small"
[ "$(stat -c %i "$T/b/to/small")" -ne 256 ] || fail "a snapshot for a small tree"
casbox checkout --mode copy "$root" "$T/b/to/copy"
[ "$(stat -c %i "$T/b/to/copy")" -ne 256 ] || fail "a snapshot for a copy"
casbox checkout "$root" "$T/elsewhere"
trees_equal "$tree" "$T/elsewhere"

# What is there is not replaced; an empty directory is.
expect 1 "$CASBOX" checkout "$root" "$T/b/to/4"
said "exists and is no empty directory"
mkdir "$T/b/to/empty"
casbox checkout "$root" "$T/b/to/empty"
is_snapshot "$T/b/to/empty"
eq "left beside" "" "$(left)"

# A kept tree that somebody changed, or has made writable, or taken away, is made anew.
if command -v btrfs > /dev/null; then
	inside=$STORE/trees/$(kept)/tree
	btrfs property set "$inside" ro false
	echo evil > "$inside/d1/f1"
	btrfs property set "$inside" ro true
	casbox checkout "$root" "$T/b/to/after-change" 2> "$T/err"
	said "was changed"
	is_snapshot "$T/b/to/after-change"
	btrfs property set "$inside" ro false
	casbox checkout "$root" "$T/b/to/after-writable" 2> "$T/err"
	is_snapshot "$T/b/to/after-writable"
fi
: > "$STORE/trees/$(kept)/stamp"
casbox checkout "$root" "$T/b/to/after-stamp" 2> "$T/err"
is_snapshot "$T/b/to/after-stamp"

# Interrupted: nothing stays, here or in the store. What a killed one leaves goes next time.
mkdir "$STORE/trees/.tmp-dead" "$STORE/trees/somebodys"
! command -v btrfs > /dev/null || btrfs -q subvolume create "$STORE/trees/.tmp-dead/tree"
echo more > "$tree/more"
root=$(put "$tree")
casbox checkout "$root" "$T/b/to/more"
is_snapshot "$T/b/to/more"
[ ! -e "$STORE/trees/.tmp-dead" ] || fail "the tree of a killed checkout stays"
[ -d "$STORE/trees/somebodys" ] || fail "a foreign directory was removed"
rmdir "$STORE/trees/somebodys"
eq "kept trees" 2 "$(kept | wc -l)"

# A plain user's store, and his right to remove what he has.
mkdir "$T/b/plain"
chown 4242:4242 "$T/b/plain"
chmod 755 "$T"
plain() {
	setpriv --reuid=4242 --regid=4242 --clear-groups env HOME="$T/b/plain" "$@"
}
cp "$CASBOX" "$FULL_CASBOX" "$T/b/"
cp -r "$tree" "$T/b/tree"
plain "$T/b/casbox" --store "$T/b/plain/store" put "$T/b/tree" > "$T/digest"
for n in 1 2; do
	plain "$T/b/casbox" --store "$T/b/plain/store" checkout "$(cat "$T/digest")" "$T/b/plain/$n"
	is_snapshot "$T/b/plain/$n"
	[ "$(stat -c %u "$T/b/plain/$n/d1/f1")" -eq 4242 ] || fail "not the caller's"
done
plain "$T/b/casbox" --store "$T/b/plain/store" gc --max-size 0 > /dev/null
eq "kept trees after gc" "" "$(ls -A "$T/b/plain/store/trees")"
plain rm -rf "$T/b/plain/2"
[ ! -e "$T/b/plain/2" ] || fail "a plain user cannot remove his snapshot"

# Space: kept trees go before blobs do.
casbox gc --max-size 1k > /dev/null
eq "kept trees after gc" "" "$(kept)"
casbox fsck
