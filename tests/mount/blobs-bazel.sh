#!/bin/sh
# tests/mount/blobs-bazel.sh - a Bazel disk cache as --blobs: read at once, cleaned up by its rules
. "$(dirname "$0")/../lib/common.sh"
need python3 fuse mount root

# The layout as Bazel leaves it: modes of all kinds, no owner, tmp/ and gc/.
C=$T/bazel
mkdir -p "$C/cas" "$C/ac" "$C/tmp" "$C/gc"
: > "$C/gc/lock"
age() { touch -d "@$(($(date +%s) - $1))" "$2"; }
at() { printf '%s/%s/%.2s/%s' "$C" "$1" "$2" "$2"; }
# entry KIND MODE FILE [HASH]: what `sha256sum FILE` says, unless HASH names it.
entry() {
	hash=${4:-$(sha256sum "$3" | cut -d ' ' -f 1)}
	install -D -m "$2" "$3" "$(at "$1" "$hash")"
	age 86400 "$(at "$1" "$hash")"
	printf '%s\n' "$hash"
}
is_new() { [ "$(stat -c %Y "$1")" -gt $(($(date +%s) - 600)) ]; }
on_disk() { find "$C/cas" -type f -printf '%b\n' | awk '{ sum += $1 } END { print sum * 512 }'; }

mkdir tree
echo source > tree/main.c
head -c 300000 /dev/urandom > tree/lib.a
echo tool > tree/tool
chmod 755 tree/tool
root=$(casbox --store "$T/other" put tree)
for f in tree/*; do entry cas 644 "$f" > "$T/hash"; done
chmod 755 "$(at cas "$(sha256sum tree/tool | cut -d ' ' -f 1)")"
casbox --store "$T/other" cat "$root" > root.bin
entry cas 444 root.bin > "$T/hash"
for i in 1 2 3 4; do
	head -c 200000 /dev/urandom > "old-$i"
	entry cas 600 "old-$i" > "hash-$i"
done
# ActionResult{output_files{path "out", digest{old-1}}}
PYTHONPATH=$HERE/../lib python3 -B - "$(cat hash-1)/200000" > result.bin << 'END'
import sys
from reapi import data, digest
sys.stdout.buffer.write(data(2, data(1, "out") + digest(2, sys.argv[1])))
END
action=$(entry ac 644 result.bin "$(echo action | sha256sum | cut -d ' ' -f 1)")
find "$C" -type f -printf '%P %m %i %s\n' | sort > before
touch -d '2001-01-01' stamp

# At once, by a hash alone, and as a tree; modes, owners and names stay.
CASBOX_BLOBS=$C
export CASBOX_BLOBS
main=$(sha256sum tree/main.c | cut -d ' ' -f 1)
eq "by hash alone" source "$(casbox cat "$main")"
casbox checkout "$root" co
trees_equal tree co
mount_start
diff -r tree "$MNT/cas/directory/$(echo "$root" | tr / -)" || fail "the tree in the mount"
mount_stop
find "$C" -type f -printf '%P %m %i %s\n' | sort > after
diff before after || fail "reading changed more than times"
[ ! -e "$C/owner" ] || fail "took the place for its own"

# A hit moves the time, which Bazel's collector goes by, and costs no second look at the bytes.
is_new "$(at cas "$main")" || fail "a hit left the time as it was"
! is_new "$(at cas "$(cat hash-1)")" || fail "a time moved without a hit"
expect 0 casbox fsck
eq "counted" "$(find "$C/cas" -type f | wc -l)" "$(casbox stat --json | sed 's/.*"blobs":\([0-9]*\),.*/\1/')"

# Bazel uses one of the old ones, and puts another: both are younger than what nobody used.
touch "$(at cas "$(cat hash-4)")"
head -c 100000 /dev/urandom > fresh
fresh=$(entry cas 644 fresh)
touch "$(at cas "$fresh")"

# Its collector is at work: nothing goes, and that is said.
python3 -c 'import fcntl, sys, time
f = open(sys.argv[1], "r+")
fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
open(sys.argv[2], "w").close()
time.sleep(600)' "$C/gc/lock" "$T/locked" &
holder=$!
await [ -e "$T/locked" ]
expect 1 casbox gc --max-size 0
said "gc/lock" "$C"
expect 0 casbox gc --max-size 0 --dry-run
eq "blobs while it is locked" 9 "$(find "$C/cas" -type f | wc -l)"
kill "$holder"
wait "$holder" 2> "$T/ignored" || :

# Then the oldest, and the result that names one of them first.
casbox gc --max-size "$(($(on_disk) - 550000))" --json > gc.json
for i in 1 2 3; do
	[ ! -e "$(at cas "$(cat "hash-$i")")" ] || fail "old-$i stays: $(cat gc.json)"
done
[ ! -e "$(at ac "$action")" ] || fail "a result that names nothing that is there"
[ -e "$(at cas "$(cat hash-4)")" ] || fail "what Bazel used went"
[ -e "$(at cas "$fresh")" ] || fail "what Bazel put went"
[ -e "$(at cas "$main")" ] || fail "what was read went"
[ -e "$C/gc/lock" ] && [ -d "$C/tmp" ] || fail "its own files went"

# A put of ours is there for Bazel; one that Bazel's collector takes is a miss, and no more.
echo ours > ours
ours=$(put ours)
eq "for Bazel" ours "$(cat "$(at cas "${ours%/*}")")"
rm "$(at cas "$main")"
expect 1 casbox cat "$main/7"
expect 0 casbox put tree
eq "again" source "$(casbox cat "$main")"
expect 0 casbox fsck
