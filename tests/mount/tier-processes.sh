#!/bin/sh
# several processes that share a store and want one missing blob download it once
. "$(dirname "$0")/../lib/common.sh"
. "$HERE/../lib/tier.sh"
http_start

seq 100000 > "$T/file"
blob=$(far_put "$T/file")
fault delay
for n in 1 2 3 4 5 6 7 8; do
	casbox --tier "$URL" cat "$blob" > "$T/got-$n" &
	pids="${pids:-} $!"
done
for pid in $pids; do wait "$pid" || fail "a reader failed"; done
for n in 1 2 3 4 5 6 7 8; do
	cmp "$T/file" "$T/got-$n" || fail "reader $n got other bytes"
done
eq "downloads" 1 "$(gets "$blob")"
