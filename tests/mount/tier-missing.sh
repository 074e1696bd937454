#!/bin/sh
# an input that stays missing: EIO to who reads it, named in the log and in the result
. "$(dirname "$0")/../lib/common.sh"
. "$HERE/../lib/tier.sh"
need root fuse
http_start

mkdir "$T/tree"
echo here > "$T/tree/here"
echo there > "$T/tree/there"
root=$(far_put "$T/tree")
gone=$("$CASBOX" --store "$FAR" put "$T/tree/there")
mv "$T/http/data/cache/cas/${gone%/*}" "$T/gone"
mount_start --tier "$URL"
sandbox=$(sandbox_new "$root" --id one --output out)
other=$(sandbox_new "$root" --id two)
eq "what is there" here "$(cat "$sandbox/here")"
expect 1 cat "$sandbox/there"
said "Input/output error"
grep -q "${gone%/*}" "$T/daemon.log" || fail "the log does not name it"
echo made > "$sandbox/out"
expect 0 casbox ctl --mount "$MNT" finish one
tr -d ' ' < "$T/out" > "$T/answer"
grep -q "\"missing\":\[{\"type\":\"MISSING\",\"subject\":\"blobs/$gone\"}\]" "$T/answer" ||
	fail "the result does not name it: $(cat "$T/answer")"
expect 0 casbox sandbox finish one
said "MISSING blobs/$gone"

# Without any tier it is told as well, and of no other sandbox.
mkdir "$T/local"
echo lost > "$T/local/lost"
echo kept > "$T/local/kept"
alone() { "$CASBOX" --store "$T/alone" "$@"; }
tree=$(alone put "$T/local")
lost=$(alone put "$T/local/lost")
mkdir "$T/mnt2"
alone mount "$T/mnt2"
lost_one=$(alone sandbox create --mount "$T/mnt2" --root "$tree" --id one)
fine=$(alone sandbox create --mount "$T/mnt2" --root "$(alone put "$T/tree")" --id fine)
# As a disk loses it.
rm "$T/alone/cas/$(echo "$lost" | cut -c1-2)/${lost%/*}"
expect 1 cat "$lost_one/lost"
said "Input/output error"
eq "what is there" kept "$(cat "$lost_one/kept")"
eq "what is there" here "$(cat "$fine/here")"
expect 0 alone sandbox finish --mount "$T/mnt2" one
said "MISSING blobs/$lost"
expect 0 alone sandbox finish --mount "$T/mnt2" fine
eq "notes" "" "$(cat "$T/err")"
expect 1 alone cat "$lost"
said "not in the store"
alone umount "$T/mnt2"

# It is asked for again each time, so when it is back all is well; later ones know nothing.
mv "$T/gone" "$T/http/data/cache/cas/${gone%/*}"
eq "what is back" there "$(cat "$other/there")"
late=$(sandbox_new "$root" --id three)
eq "what is back" there "$(cat "$late/there")"
expect 0 casbox sandbox finish three
eq "notes" "" "$(cat "$T/err")"
mount_stop
