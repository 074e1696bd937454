#!/bin/sh
# tests/mount/gc-order.sh - what a put found to be known is as young as what it stored
. "$(dirname "$0")/../lib/common.sh"
need strace

for t in a b; do
	mkdir "$t" "$t/sub"
	for i in $(seq 30); do head -c 20000 /dev/urandom > "$t/sub/$i"; done
done
head -c 20000 /dev/urandom > one
head -c 20000 /dev/urandom > two
sleep 1.1
first=$(put a)
one=$(put one)
second=$(put b)
two=$(put two)

# The older ones are put again, which reads nothing.
strace -f -y -qq -e trace=openat -o trace "$CASBOX" put a one > again
eq "digests" "$first $one" "$(tr '\n' ' ' < again | sed 's/ $//')"
if grep -E "<$T/(a/sub/[0-9]+|one)>\$" trace | grep -v O_PATH; then fail "a known file was read"; fi

# check_order: half of the store goes, and that is the second half.
check_order() {
	casbox gc --max-size 650000 > freed
	casbox checkout "$first" "co-$1"
	diff -r a "co-$1"
	casbox cat "$one" | cmp - one
	expect 1 "$CASBOX" cat "$two"
	said "$two"
	expect 1 "$CASBOX" checkout "$second" never
}
check_order alone

# The same where a daemon does both.
put b two > again
mount_start
put a one > again
check_order daemon
mount_stop
casbox fsck
