#!/bin/sh
# C16: what a tier sends is hashed; the next tier is asked when it is wrong
. "$(dirname "$0")/../lib/common.sh"
. "$HERE/../lib/tier.sh"
need root fuse
http_start

mkdir -p "$T/tree/sub"
for i in 1 2 3; do
	seq "$i" 3000 > "$T/tree/sub/file-$i"
done
root=$(far_put "$T/tree")
blob=$(far_put "$T/tree/sub/file-1")
fault wrong

# Alone it gives nothing, says why, and the blob is not there afterwards.
expect 1 casbox --tier "$URL" cat "$blob"
said "sent other bytes as blob" "${blob%/*}"
expect 1 casbox --tier "$URL" checkout "$root" "$T/laid"
[ ! -e "$T/laid" ] || fail "something was laid out"
eq "blobs" 0 "$(casbox stat --json | sed 's/.*"blobs": *\([0-9]*\).*/\1/')"

# With a good one behind it, all is well: a directory of ours serves as one.
casbox --tier "$URL" --tier "file://$FAR" cat "$blob" | cmp - "$T/tree/sub/file-1" ||
	fail "other bytes"
casbox --tier "$URL" --tier "file://$FAR" checkout "$root" "$T/laid"
diff -r "$T/tree" "$T/laid" || fail "another tree"

# In a mount, too; in STORE/config a tier may repeat.
rm -rf "$STORE"
casbox stat > /dev/null
printf 'tier = %s\ntier = file://%s\n' "$URL" "$FAR" > "$STORE/config"
mount_start
sandbox=$(sandbox_new "$root" --id one)
diff -r "$T/tree" "$sandbox" || fail "another tree in the sandbox"
casbox fsck || fail "something wrong was stored"
# In no tier: as a name that is not there.
nobody=$(printf %064d 7)-9
expect 1 cat "$MNT/cas/file/$nobody"
said "No such file"
expect 2 ls "$MNT/cas/directory/$nobody"
said "No such file"
mount_stop

# The hash of one blob with the size of another, and the empty blob: nobody is asked.
fault none
asked=$(gets)
expect 1 casbox cat "${blob%/*}/17"
: > "$T/empty"
casbox cat "$(put "$T/empty")" | cmp - "$T/empty" || fail "the empty blob"
eq "questions about the empty blob" 0 "$(gets e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855)"
