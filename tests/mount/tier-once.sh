#!/bin/sh
# 200 sandboxes that want the same 100 missing blobs cause 100 downloads
. "$(dirname "$0")/../lib/common.sh"
. "$HERE/../lib/tier.sh"
need root fuse
http_start
sandboxes=200

mkdir "$T/tree"
for i in $(seq 100); do
	echo "content $i" > "$T/tree/file-$i"
done
root=$(far_put "$T/tree")
(cd "$T/tree" && cat $(seq -f 'file-%g' 100)) > "$T/want"
mount_start --tier "$URL"
for n in $(seq "$sandboxes"); do
	sandbox_new "$root" --id "s$n" > /dev/null
done

# All at once, each in an order of its own.
fault delay 100
for n in $(seq "$sandboxes"); do
	(
		cd "$MNT/sandboxes/s$n"
		cat $(seq -f 'file-%g' "$((n % 100 + 1))" 100) > /dev/null &&
			cat $(seq -f 'file-%g' 100) | cmp - "$T/want" || echo "s$n"
	) >> "$T/wrong" 2>&1 &
	pids="${pids:-} $!"
done
for pid in $pids; do wait "$pid" || fail "a reader ended with status $?"; done
eq "wrong sandboxes" "" "$(cat "$T/wrong")"
eq "downloads of the root and of blobs" 101 "$(gets)"
casbox ctl --mount "$MNT" stats | tr -d ' ' > "$T/stats"
grep -q '"fetched":101,' "$T/stats" || fail "another count: $(cat "$T/stats")"
mount_stop
