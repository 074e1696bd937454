#!/bin/sh
# gc with trees of which only a part is here: it neither fetches nor fails, and keeps that part
. "$(dirname "$0")/../lib/common.sh"
. "$HERE/../lib/tier.sh"
need root fuse
http_start

mkdir -p "$T/tree/a/b" "$T/tree/c/d" "$T/one" "$T/two"
for i in 1 2 3; do
	seq "$i" 900 > "$T/tree/a/b/file-$i"
	seq "$i" 800 > "$T/tree/c/d/file-$i"
done
echo one > "$T/one/file"
root=$(far_put "$T/tree")
unused=$(far_put "$T/one")
casbox --tier "$URL" cat "$unused" > /dev/null
mount_start --tier "$URL"
sandbox=$(sandbox_new "$root" --id one)
cat "$sandbox/a/b/file-1" > /dev/null
fault absent
asked=$(gets)
expect 0 casbox gc --max-size 0
eq "questions by gc" "$asked" "$(gets)"
cmp "$T/tree/a/b/file-1" "$sandbox/a/b/file-1" || fail "gc took an input"
fault none
diff -r "$T/tree" "$sandbox" || fail "another tree"
mount_stop

# Without a daemon, too.
fault absent
asked=$(gets)
expect 0 casbox --tier "$URL" gc --max-size 0
eq "questions by gc" "$asked" "$(gets)"
expect 0 casbox --tier "$URL" fsck
eq "questions by fsck" "$asked" "$(gets)"
