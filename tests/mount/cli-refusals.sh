#!/bin/sh
# tests/mount/cli-refusals.sh - bad stores, bad mount points, bad digests: said clearly, nothing made
. "$(dirname "$0")/../lib/common.sh"
need root fuse

mkdir full future place
: > full/file
echo 'casbox-store 99 sha256' > future/VERSION
expect 1 casbox --store "$T/full" put /etc/passwd
said "$T/full"
expect 1 casbox --store "$T/future" put /etc/passwd
said "$T/future"
eq "in full" file "$(ls -A full)"
eq "in future" VERSION "$(ls -A future)"

expect 1 casbox mount "$T/missing"
said "$T/missing"
: > file
expect 1 casbox mount "$T/file"
said "$T/file"
: > place/x
expect 1 casbox mount "$T/place"
said "$T/place" "not empty"
mkdir "$STORE/inside"
expect 1 casbox mount "$STORE/inside"
said "$STORE"
eq "mounts" "" "$(mounts_below "$T")"
[ ! -e "$STORE/run/daemon" ] || fail "a record without a daemon"

hash=$(put /etc/passwd | cut -d / -f 1)
expect 0 casbox cat "$hash"
cmp out /etc/passwd || fail "cat by hash alone"
# No digest at all is wrong usage.
bad=$(echo "$hash" | tr a-f A-F)x
for command in cat ls pin unpin "run --root"; do
	# shellcheck disable=SC2086
	case $command in
	run*) expect 2 casbox $command "$bad" -- true ;;
	*) expect 2 casbox $command "$bad" ;;
	esac
	said "'$bad' is no digest" --help
done
expect 2 casbox checkout "$bad" dest
said "'$bad' is no digest" --help
expect 2 casbox gc --max-blobs -5
said "--max-blobs wants a number such as 500 or 2M, not '-5'"
expect 2 casbox gc --max-size -5
said "--max-size wants a size such as 500M or 10G, not '-5'"
expect 1 casbox cat "$hash/1"
expect 1 casbox ls "$hash"
expect 1 casbox checkout "$hash" dest
[ ! -e dest ] || fail "a destination was made"
ln -s /etc/passwd link
expect 1 casbox put link
said link
expect 0 casbox put -L link
mkfifo pipe
expect 1 within 5 "$CASBOX" put pipe
said pipe

# What could be put is put, in order; the failure is told.
expect 1 casbox put /etc/passwd "$T/missing" "$T/full/file"
eq "digests" 2 "$(wc -l < out)"
said "$T/missing"

echo 'durabilty = full' > "$STORE/config"
expect 1 casbox stat
said "$STORE/config:1: unknown key durabilty"
