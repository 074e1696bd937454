#!/bin/sh
# tests/mount/checkout-careful.sh - a check-out touches its destination only (C12, C22, C34)
. "$(dirname "$0")/../lib/common.sh"

mkdir -p "$T/outside" "$T/tree/sub"
echo secret > "$T/outside/file"
chmod 700 "$T/outside/file"
ln -s "$T/outside" "$T/tree/out"
ln -s "$T/outside/file" "$T/tree/file"
ln -s dangling "$T/tree/sub/dangling"
ln -s self "$T/tree/self"
ln -s two "$T/tree/one"
ln -s one "$T/tree/two"
sample_tree "$T/tree/sample"
root=$(put "$T/tree")
stat -c '%a %Y %Z' "$T/outside" "$T/outside/file" > "$T/before"

for mode in copy hardlink; do
	casbox checkout --mode "$mode" "$root" "$T/dest"
	trees_equal "$T/tree" "$T/dest"
	"$FSCHECK" stat "$T/dest/sub" mode=0755
	: > "$T/dest/sub/new"

	# There already: refused, nothing changed.
	expect 1 casbox checkout --mode "$mode" "$root" "$T/dest"
	said "$T/dest"
	rm "$T/dest/sub/new"
	trees_equal "$T/tree" "$T/dest"
	chmod -R u+w "$T/dest"
	rm -r "$T/dest"
done
stat -c '%a %Y %Z' "$T/outside" "$T/outside/file" | diff "$T/before" - || fail "something outside changed"

# An empty directory becomes the tree's top, with the mode that is the tree's, as with cp -aT.
mkdir -m 700 "$T/private" "$T/tree/sub/closed"
mkdir -m 755 "$T/open"
casbox checkout "$root" "$T/private"
"$FSCHECK" stat "$T/private" mode=0755
casbox checkout "$(casbox put --preserve "$T/tree/sub/closed")" "$T/open"
"$FSCHECK" stat "$T/open" mode=0700
rmdir "$T/tree/sub/closed"

# Destinations in the way.
: > "$T/a-file"
for bad in "$T/a-file" "$T/a-file/below" "$T/missing/parent"; do
	expect 1 casbox checkout "$root" "$bad"
	said "${bad%/*}"
done
eq "the file in the way" 0 "$(stat -c %s "$T/a-file")"
ln -s "$T/outside" "$T/link"
expect 1 casbox checkout "$root" "$T/link"
eq "through a link" file "$(ls -A "$T/outside")"
expect 1 casbox checkout "$(put "$T/outside/file")" "$T/from-a-file"
[ ! -e "$T/from-a-file" ] || fail "made something from a file's digest"

# Killed anywhere: the destination is absent or whole, and the next one succeeds.
mkdir "$T/k"
for delay in 0.001 0.003 0.005 0.01 0.02 0.04 0.08; do
	"$CASBOX" checkout --mode copy "$root" "$T/k/dest" > /dev/null 2>&1 &
	pid=$!
	sleep "$delay"
	kill -9 "$pid" 2> /dev/null || :
	wait "$pid" 2> /dev/null || :
	if [ -e "$T/k/dest" ]; then trees_equal "$T/tree" "$T/k/dest"; fi
	rm -rf "$T/k/dest"
	casbox checkout --mode copy "$root" "$T/k/dest"
	trees_equal "$T/tree" "$T/k/dest"
	rm -rf "$T/k/dest"
done

# Two to one place at once: one wins, whole.
for _ in 1 2 3; do
	"$CASBOX" checkout "$root" "$T/k/race" > /dev/null 2>&1 &
	one=$!
	"$CASBOX" checkout "$root" "$T/k/race" > /dev/null 2>&1 &
	two=$!
	won=0
	wait "$one" && won=$((won + 1))
	wait "$two" && won=$((won + 1))
	[ "$won" -ge 1 ] || fail "both failed"
	trees_equal "$T/tree" "$T/k/race"
	rm -rf "$T/k/race"
done
