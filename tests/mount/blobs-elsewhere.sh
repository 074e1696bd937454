#!/bin/sh
# tests/mount/blobs-elsewhere.sh - --blobs DIR: put, read, daemon, drain, stat, two stores
. "$(dirname "$0")/../lib/common.sh"

export CASBOX_BLOBS="$T/blobs"
names() {
	find "$T/blobs/cas" -type f | wc -l
}
in_spool() {
	find "$STORE/spool" -type f -path '*/??/*' | wc -l
}

sample_tree "$T/tree"
# Without a daemon: acknowledged, then moved before put ends.
root=$(put "$T/tree")
eq "left in the spool" 0 "$(in_spool)"
[ -e "$T/blobs/cas/$(printf %.2s "$root")/${root%/*}" ] || fail "the root is not in the blob directory"
before=$(find "$T/blobs/cas" -printf '%p %C@\n' | sort)
eq "a second put" "$root" "$(put "$T/tree")"
eq "what a second put changed there" "$before" "$(find "$T/blobs/cas" -printf '%p %C@\n' | sort)"
casbox checkout "$root" "$T/co"
trees_equal "$T/tree" "$T/co"
expect 0 casbox fsck

# What waits there is told by number, size and age; what was damaged there, too.
spool_of() {
	casbox stat --json | sed "s/.*\"spool_$1\": *\([0-9.]*\).*/\1/"
}
shard=$STORE/spool/$(printf %.2s "$root")
mkdir -p "$shard"
head -c 1000 /dev/zero > "$shard/${root%/*}"
touch -d '90 seconds ago' "$shard/${root%/*}"
head -c 70 /dev/zero > "$shard/.bad-${root%/*}-0123456789abcdef"
eq "spool_blobs" 1 "$(spool_of blobs)"
eq "spool_bytes" 1000 "$(spool_of bytes)"
eq "spool_results" 0 "$(spool_of results)"
age=$(spool_of oldest_seconds)
[ "${age%.*}" -ge 90 ] && [ "${age%.*}" -lt 150 ] || fail "spool_oldest_seconds: $age"
eq "spool_damaged" 1 "$(spool_of damaged)"
eq "spool_damaged_bytes" 70 "$(spool_of damaged_bytes)"
casbox stat > "$T/out"
grep -q '^spool  *1000 (1.0 kB) in 1 blobs and 0 results, the oldest for [0-9]* s$' "$T/out" ||
	fail "stat: $(cat "$T/out")"
grep -q '^damaged  *1 of the spool (70 B)' "$T/out" || fail "stat: $(cat "$T/out")"
casbox fsck 2> "$T/err"
said "/.bad-${root%/*}-0123456789abcdef was damaged in the spool"
rm -r "$shard"

# With a daemon: put leaves the moving to it; gc --drain waits.
need mount fuse
mount_start
echo served > "$T/served"
digest=$(put "$T/served")
eq "read at once" served "$(casbox cat "$digest")"
eq "read at once through the mount" served "$(cat "$MNT/cas/file/$(dashed "$digest")")"
within 20 "$CASBOX" gc --drain
eq "left in the spool" 0 "$(in_spool)"
[ -e "$T/blobs/cas/$(printf %.2s "$digest")/${digest%/*}" ] || fail "not moved by the daemon"
eq "spool_bytes" 0 "$(spool_of bytes)"
eq "spool_oldest_seconds" 0.0 "$(spool_of oldest_seconds)"

# A killed daemon leaves its work to whoever comes next.
mount_kill
echo orphan > "$T/orphan"
digest=$(put "$T/orphan")
[ -e "$T/blobs/cas/$(printf %.2s "$digest")/${digest%/*}" ] || fail "not moved by put"
mount_start
mount_stop

# Another store on the same directory reads all, and may unlink nothing.
count=$(names)
export CASBOX_STORE="$T/second"
eq "read by another store" orphan "$(casbox cat "$digest")"
casbox gc --max-size 0 > /dev/null
eq "blobs after another store's gc" "$count" "$(names)"
