#!/bin/sh
# tier-fault KIND - a server that fails: never a wrong byte, a stuck process, or a no for ever
#
# The reader gets the right bytes or EIO within the deadline, by each way to a blob; nothing
# wrong is left in the store; and as soon as the server works again, so does the next read.
. "$(dirname "$0")/../lib/common.sh"
. "$HERE/../lib/tier.sh"
need root fuse
http_start
kind=$1

# Faults that say "no" or "wrong" leave nothing to wait for; these may cost the deadline.
mkdir -p "$T/tree/sub"
for i in 1 2 3 4 5; do
	seq "$i" "$((i * 3000))" > "$T/tree/file-$i"
	echo "below $i" > "$T/tree/sub/file-$i"
done
root=$(far_put "$T/tree")
blob_1=$(far_put "$T/tree/file-1")
blob_2=$(far_put "$T/tree/file-2")
mount_start --tier "$URL?deadline=600ms&tries=2"

# Twice: the answer is right or an error, and not too late.
reads() {
	status=0
	timeout -k 1 20 "$@" > "$T/got" 2> "$T/err" || status=$?
	[ "$status" -lt 124 ] || fail "$kind: stuck for 20 s: $*"
	[ "$status" -ne 0 ] || cmp -s "$T/got" "$T/want" || fail "$kind: wrong bytes: $*"
}

fault "$kind"
cp "$T/tree/file-1" "$T/want"
reads cat "$MNT/cas/file/$(dashed "$blob_1")"
reads "$CASBOX" --tier "$URL?deadline=600ms&tries=2" cat "$blob_1"
reads cat "$MNT/cas/directory/$(dashed "$root")/file-1"
# Neither a whole tree nor a part of it is laid out.
status=0
timeout -k 1 30 "$CASBOX" --tier "$URL?deadline=600ms&tries=1" checkout "$root" "$T/laid" \
	2> "$T/err" || status=$?
[ "$status" -lt 124 ] || fail "$kind: checkout is stuck"
if [ "$status" -eq 0 ]; then
	diff -r "$T/tree" "$T/laid" > "$T/diff" || fail "$kind: a wrong tree: $(cat "$T/diff")"
	rm -r "$T/laid"
else
	[ ! -e "$T/laid" ] || fail "$kind: half a tree"
fi
casbox fsck > "$T/fsck" 2>&1 || fail "$kind: something wrong was stored: $(cat "$T/fsck")"

# The breaker may be open for a moment; then all is well again.
fault none
cp "$T/tree/file-2" "$T/want"
right() {
	timeout -k 1 20 cat "$MNT/cas/file/$(dashed "$blob_2")" > "$T/got" 2> "$T/err" &&
		cmp -s "$T/got" "$T/want"
}
await right
sandbox=$(sandbox_new "$root" --id after)
diff -r "$T/tree" "$sandbox" > "$T/diff" || fail "$kind: not well again: $(cat "$T/diff")"
casbox fsck > "$T/fsck" 2>&1 || fail "$kind: not whole: $(cat "$T/fsck")"
casbox sandbox remove after
mount_stop
