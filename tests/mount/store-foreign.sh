#!/bin/sh
# tests/mount/store-foreign.sh - names in the store that are no blobs are left alone (C42)
. "$(dirname "$0")/../lib/common.sh"

mkdir "$T/tree"
echo text > "$T/tree/file"
root=$(put "$T/tree")
digest=$(put "$T/tree/file")
hash=${digest%/*}
mkdir -p "$STORE/cas/ab"
mkdir -m 700 "$STORE/cas/lost+found"
: > "$STORE/cas/.DS_Store"
: > "$STORE/cas/README-a"
: > "$STORE/cas/ab/notahash"
: > "$STORE/cas/ab/$(printf %s "$hash" | tr a-f A-F)"
: > "$STORE/cas/ab/$(printf %.63s "$hash")"
: > "$STORE/cas/ab/${hash}0"
mkdir "$STORE/cas/ab/subdir"
(cd "$STORE/cas" && find . \! -type d -o -name subdir -o -name 'lost+found' | sort) > "$T/before"

casbox stat --json > "$T/stat"
expect 0 casbox fsck
casbox gc --max-size 1G > /dev/null
(cd "$STORE/cas" && find . \! -type d -o -name subdir -o -name 'lost+found' | sort) | diff "$T/before" - ||
	fail "something was removed"
casbox checkout "$root" "$T/dest"
trees_equal "$T/tree" "$T/dest"
eq "put again" "$root" "$(put "$T/tree")"

casbox gc --max-size 0 > /dev/null
for name in .DS_Store README-a ab/notahash ab/subdir lost+found "ab/${hash}0"; do
	[ -e "$STORE/cas/$name" ] || fail "gc removed $name"
done
expect 1 casbox cat "$digest"
