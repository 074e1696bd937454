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
