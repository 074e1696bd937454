#!/bin/sh
# a server that fails once, or is away for a while: the next who comes gets the blob
. "$(dirname "$0")/../lib/common.sh"
. "$HERE/../lib/tier.sh"
need root fuse
http_start

mkdir "$T/tree"
for i in $(seq 8); do seq "$i" 3000 > "$T/tree/file-$i"; done
root=$(far_put "$T/tree")
mount_start --tier "$URL?deadline=2s&tries=3"
box=$(sandbox_new "$root" --id one)
same() { cmp -s "$box/$1" "$T/tree/$1"; }
ls "$box" > "$T/names"

# A no is a no, but only for him who asked: nothing is remembered. (The kernel asks a second
# time by itself before it tells a reader, so first without it.)
first=$(far_put "$T/tree/file-1")
fault absent 1
expect 1 "$CASBOX" --store "$T/two" --tier "$URL" cat "$first"
said "in no tier"
expect 0 "$CASBOX" --store "$T/two" --tier "$URL" cat "$first"
fault absent 1
same file-1 || same file-1 || fail "absent once is absent for ever"

# What another try mends nobody notices.
for kind in error busy reset half; do
	fault "$kind" 1
	n=$((${n:-1} + 1))
	same "file-$n" || fail "a single $kind reached the reader"
done
# Nor that it cannot go on in the middle (over HTTP): it is begun anew.
fault range 2
expect 0 "$CASBOX" --store "$T/two" --tier "$URL" cat "$(far_put "$T/tree/file-8")"
cmp "$T/out" "$T/tree/file-8"
fault none

# Away: who reads meanwhile gets an error in time, and nothing else.
port=${URL#*://*:}
port=${port%%/*}
kill -KILL "$HTTP_PID"
wait "$HTTP_PID" 2> /dev/null || :
exec 9>&-
status=0
within 30 cat "$box/file-6" > "$T/got" 2> "$T/err" || status=$?
eq "status while it is away" 1 "$status"
said "Input/output error"
sleep "$(full_or 1 60)"
rm "$T/http/port" "$T/http/stdin"
mkfifo "$T/http/stdin"
"$HTTPD" "$T/http" "$port" < "$T/http/stdin" > "$T/http/out" 2>&1 &
exec 9> "$T/http/stdin"
await test -s "$T/http/port"
await same file-6
for i in 7 8; do same "file-$i" || fail "file-$i is not right"; done
casbox fsck > "$T/fsck" || fail "fsck: $(cat "$T/fsck")"
mount_stop
