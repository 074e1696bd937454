#!/bin/sh
# tests/mount/store-places.sh - a store by a link, with spaces, relative, with a foreign TMPDIR (C43)
. "$(dirname "$0")/../lib/common.sh"
need mount

echo text > "$T/file"
mkdir "$T/with space" "$T/real"
ln -s real "$T/link"
umask 077
for store in "$T/with space/store" "$T/link/" "relative" "$T/trailing///"; do
	digest=$(casbox --store "$store" put "$T/file")
	eq "from $store" text "$(casbox --store "$store" cat "$digest")"
	mode=$(stat -c %a "$store"/cas/*/"${digest%/*}")
	eq "mode of a blob whatever the umask" 444 "$mode"
done
umask 022

# Nothing passes through TMPDIR, and no rename crosses filesystems.
T=$T STORE=$STORE unshare -m --propagation private sh -euc '
	mkdir "$T/tmp" "$T/shard"
	mount -t tmpfs -o size=4k tmpfs "$T/tmp"
	TMPDIR=$T/tmp
	export TMPDIR
	head -c 1000000 /dev/urandom > "$T/big"
	digest=$("$CASBOX" put "$T/big")
	"$CASBOX" cat "$digest" | cmp - "$T/big"
	[ -z "$(ls -A "$T/tmp")" ]
	# One shard on another filesystem.
	echo sharded > "$T/sharded"
	hash=$(sha256sum < "$T/sharded")
	shard=$STORE/cas/$(printf %.2s "$hash")
	mkdir -p "$shard"
	mount -t tmpfs tmpfs "$shard"
	[ "$("$CASBOX" cat "$("$CASBOX" put "$T/sharded")")" = sharded ]
' || fail "see above"

# Two users. Root at work in somebody's store leaves nothing that shuts its owner out; in
# root's store another user reads, and is told why he cannot put.
can_plain || exit 0
cp "$CASBOX" "$FULL_CASBOX" "$T/"
chmod 755 "$T" "$T/casbox" "$T/casbox-full"
mkdir "$T/theirs" "$T/theirs/at" "$T/theirs/rt"
chmod 700 "$T/theirs/rt"
chown -R "$PLAIN_UID:$PLAIN_UID" "$T/theirs"
they() {
	as_plain env HOME="$T/theirs" XDG_RUNTIME_DIR="$T/theirs/rt" "$@"
}
digest=$(they "$T/casbox" --store "$T/theirs/s" put "$T/file")
casbox --store "$T/theirs/s" mount "$MNT"
casbox --store "$T/theirs/s" umount "$MNT"
expect 0 casbox --store "$T/theirs/s" run -- true
expect 0 casbox --store "$T/theirs/s" umount
expect 0 env XDG_RUNTIME_DIR="$T/none" "$CASBOX" --store "$T/theirs/s" run -- true
expect 0 casbox --store "$T/theirs/s" umount
expect 0 casbox --store "$T/theirs/s" gc --max-size 0
eq "left as root's" "" "$(find "$T/theirs/s" \( -uid 0 -o -gid 0 \))"
expect 0 they unshare -Urm sh -euc '"$1" --store "$2/s" mount "$2/at"; "$1" --store "$2/s" umount' \
	sh "$T/casbox" "$T/theirs"
expect 0 they unshare -Urm sh -euc '"$1" --store "$2/s" run -- true; "$1" --store "$2/s" umount' \
	sh "$T/casbox" "$T/theirs"

they "$T/casbox" --store "$T/theirs/s" put "$T/file" > "$T/digest"
expect 0 they "$T/casbox" --store "$T/theirs/s" gc --max-size 0
chmod 0400 "$T/theirs/s/run/evicted"
they "$T/casbox" --store "$T/theirs/s" put "$T/file" > "$T/digest"
expect 1 they "$T/casbox" --store "$T/theirs/s" gc --max-size 0
said "cannot evict from $T/theirs/s: cannot write $T/theirs/s/run/evicted: Permission denied"

digest=$(casbox --store "$T/mine" put "$T/file")
expect 0 they "$T/casbox" --store "$T/mine" cat "$digest"
eq "read" text "$(cat "$T/out")"
mkdir "$T/tree"
echo other > "$T/tree/other"
expect 1 they "$T/casbox" --store "$T/mine" put "$T/tree"
said "$T/mine" read-only
