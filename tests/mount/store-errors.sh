#!/bin/sh
# tests/mount/store-errors.sh - stores that cannot be used; a full disk loses nothing (C03, C42)
. "$(dirname "$0")/../lib/common.sh"
need root mount

echo text > "$T/file"

# From the future, of another hash, not a store at all.
for version in 'casbox-store 2 sha256' 'casbox-store 1 blake3' 'something else'; do
	mkdir "$T/s"
	echo "$version" > "$T/s/VERSION"
	expect 1 casbox --store "$T/s" put "$T/file"
	said "$T/s"
	expect 1 casbox --store "$T/s" mount "$MNT"
	eq "nothing added" VERSION "$(ls -A "$T/s")"
	rm -r "$T/s"
done
mkdir "$T/s"
: > "$T/s/precious"
expect 1 casbox --store "$T/s" put "$T/file"
said "$T/s"
eq "nothing added" precious "$(ls -A "$T/s")"

# Read-only: what is there can be read, a put says why not.
T=$T unshare -m --propagation private sh -euc '
	mkdir "$T/ro" && mount -t tmpfs tmpfs "$T/ro"
	digest=$("$CASBOX" --store "$T/ro/s" put "$T/file")
	mount -o remount,ro "$T/ro"
	[ "$("$CASBOX" --store "$T/ro/s" cat "$digest")" = text ]
	echo new > "$T/new"
	! "$CASBOX" --store "$T/ro/s" put "$T/new" 2> "$T/err"
' || fail "read-only store: $(cat "$T/err")"
said read-only

# Full of bytes, then full of names: an error, no file at its place, and it works afterwards.
for limit in size=24m nr_inodes=400; do
	T=$T limit=$limit unshare -m --propagation private sh -euc '
		mkdir -p "$T/full" && mount -t tmpfs -o "$limit" tmpfs "$T/full"
		CASBOX_STORE=$T/full/s
		export CASBOX_STORE
		echo first > "$T/full-first"
		"$CASBOX" put "$T/full-first" > /dev/null
		failed=
		for i in $(seq 500); do
			{ echo "$i"; head -c 100000 /dev/urandom; } > "$T/full-blob"
			if ! digest=$("$CASBOX" put "$T/full-blob" 2> "$T/err"); then
				failed=$i
				break
			fi
			ok=$digest
		done
		[ -n "$failed" ] || { echo "never full" >&2; exit 1; }
		grep -q "No space" "$T/err" || { echo "no reason: $(cat "$T/err")" >&2; exit 1; }
		hash=$(sha256sum < "$T/full-blob")
		hash=${hash%% *}
		[ ! -e "$CASBOX_STORE/cas/$(printf %.2s "$hash")/$hash" ] || { echo "a file at its place" >&2; exit 1; }
		"$CASBOX" cat "$ok" > /dev/null
		mount -o remount,size=64m,nr_inodes=0 "$T/full"
		[ "$("$CASBOX" put "$T/full-blob")" = "$hash/$(stat -c %s "$T/full-blob")" ]
		"$CASBOX" cat "$hash" | cmp - "$T/full-blob"
		"$CASBOX" fsck
	' > "$T/out" 2> "$T/said" || fail "full by $limit: $(cat "$T/out" "$T/said")"
done
