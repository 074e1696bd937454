#!/bin/sh
# tests/mount/trace-lines.sh - lists of names that hold a newline or a backslash
. "$(dirname "$0")/../lib/common.sh"
need root fuse

newline=$(printf 'a\nb')
mkdir tree
echo 1 > "tree/$newline"
echo 2 > 'tree/a\nb'
echo 3 > 'tree/back\slash'
echo 4 > plain
mv plain tree/plain
root=$(put tree)
casbox run --root "$root" --output out --trace exact --trace-dir td -- cat 'a\nb' > out
eq "what it read" 2 "$(cat out)"
grep -v '^# ' td/inputs-read > read || :
printf '%s\n' 'a\\nb' > want
cmp want read || fail "read: $(cat read)"
grep -v '^# ' td/inputs-unread > unread || :
printf '%s\n' 'a\nb' 'back\\slash' plain > want
cmp want unread || fail "unread: $(cat unread)"
# Bazel knows no escapes: what cannot be told in its list counts as used.
printf '%s\n' 'back\slash' plain > want
cmp want td/unused_inputs_list || fail "unused: $(cat td/unused_inputs_list)"
casbox umount > out 2>&1 || :
