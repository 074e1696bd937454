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
eq "spool_bytes" 0 "$(casbox stat --json | sed 's/.*"spool_bytes": *\([0-9]*\).*/\1/')"

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
