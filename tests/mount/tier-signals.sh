#!/bin/sh
# C35: a signal every millisecond does not interrupt who waits for a slow server
. "$(dirname "$0")/../lib/common.sh"
. "$HERE/../lib/tier.sh"
need root fuse
http_start

mkdir -p "$T/tree/src" "$T/work"
for i in $(seq 30); do
	head -c $((i * 1000)) /dev/urandom > "$T/tree/src/$i"
done
root=$(far_put "$T/tree")
fault delay
mount_start --tier "$URL"
sandbox=$(sandbox_new "$root" --id one)
"$FSSTRESS" signals "$T/work" "$sandbox/src" "$(full_or 2 20)" || fail "interrupted"
diff -r "$T/tree" "$sandbox" || fail "other bytes"
"$FSSTRESS" signals "$T/work" "$MNT/cas/directory/$(dashed "$root")/src" 1 || fail "interrupted"
mount_stop
