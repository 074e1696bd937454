#!/bin/sh
# C18: a silent server stops nobody but those that want its blobs, and these can be killed
. "$(dirname "$0")/../lib/common.sh"
. "$HERE/../lib/tier.sh"
need root fuse
http_start

mkdir "$T/tree"
echo here > "$T/tree/here"
for i in $(seq 70); do
	seq "$i" 2000 > "$T/tree/far-$i"
done
root=$(far_put "$T/tree")
mount_start --tier "$URL?deadline=1h&tries=1"
sandbox=$(sandbox_new "$root" --id one)
eq "what came before" here "$(cat "$sandbox/here")"
far_1=$MNT/cas/file/$(dashed "$(far_put "$T/tree/far-1")")

fault hang
# As many readers as threads, and more: of different blobs, and 64 of one.
for i in $(seq 2 70); do
	cat "$sandbox/far-$i" > /dev/null 2>&1 &
	stuck="${stuck:-} $!"
done
for i in $(seq 64); do
	cat "$far_1" > "$T/got-$i" 2>&1 &
	same="${same:-} $!"
done
waiting() { [ "$(gets)" -ge 30 ]; }
await waiting

# Everything else goes on.
eq "a local file" here "$(within 5 cat "$sandbox/here")"
within 5 ls -l "$sandbox" > /dev/null
within 5 stat "$sandbox/far-3" > /dev/null
within 5 "$CASBOX" sandbox list > /dev/null
echo new > "$T/tree/new"
within 10 "$CASBOX" put "$T/tree/new" > /dev/null

# The killed leave at once, half of those of one blob too, and the others do not suffer.
gone() { ! kill -0 "$1" 2> /dev/null; }
n=0
for pid in $same; do
	n=$((n + 1))
	case $((n % 4)) in
	0) kill -KILL "$pid" ;;
	1) kill -TERM "$pid" ;;
	esac
done
n=0
for pid in $same; do
	n=$((n + 1))
	[ $((n % 4)) -gt 1 ] || {
		wait "$pid" 2> /dev/null && fail "reader $pid was not killed"
	}
done
for pid in $stuck; do kill -INT "$pid" 2> /dev/null || :; kill -KILL "$pid"; done
for pid in $stuck; do wait "$pid" 2> /dev/null || :; done

# The server comes back: the connection that hangs ends, and the next try is good. Readers
# that are left may see an error, never other bytes.
fault none
n=0
for pid in $same; do
	n=$((n + 1))
	[ $((n % 4)) -gt 1 ] || continue
	if wait "$pid"; then
		cmp "$T/got-$n" "$T/tree/far-1" || fail "reader $n got other bytes"
	fi
done
again() { timeout -k 1 10 cat "$far_1" > "$T/got" 2> /dev/null && cmp -s "$T/got" "$T/tree/far-1"; }
await again
within 30 diff -r "$T/tree" "$sandbox" > "$T/diff" 2>&1 || grep -q "new" "$T/diff" || fail "$(cat "$T/diff")"

# Unmounting does not wait for a server either.
seq 7000 > "$T/late"
late=$MNT/cas/file/$(dashed "$(far_put "$T/late")")
fault hang
before=$(gets)
cat "$late" > /dev/null 2>&1 &
pid=$!
asked() { [ "$(gets)" -gt "$before" ]; }
await asked
within 40 "$CASBOX" umount --force "$MNT" || fail "umount: status $?"
wait "$pid" && fail "a reader of an unmounted tree succeeded"
wait "$DAEMON" || fail "the daemon ended with status $?"
DAEMON=
