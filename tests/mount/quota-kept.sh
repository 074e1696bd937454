#!/bin/sh
# tests/mount/quota-kept.sh - C23: a store stays as small as it was told to, or says by how much not
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

field() { casbox stat --json | sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p"; }
on_disk() { find "$STORE/cas" -type f -printf '%b\n' | awk '{ sum += $1 } END { print sum * 512 }'; }
noise() { head -c "$2" /dev/urandom > "$1"; }
counted() {
	[ "$(find "$STORE/cas" -type f | wc -l) $(on_disk)" = "$(field blobs) $(field disk_bytes)" ]
}
small_enough() { [ "$(on_disk)" -le $((4 << 20)) ]; }
in_excess() { [ "$(casbox ctl stats | sed 's/.*"excess_bytes": *\([0-9]*\).*/\1/')" -gt 0 ]; }
in_line() { ! in_excess; }

body() {
	mkdir -p "$STORE"
	printf 'max-size = 4M\nlow-size = 3M\n' > "$T/config"
	for i in 1 2 3; do
		noise "$T/part-$i" 1048576
		put "$T/part-$i" > "$T/digest-$i"
	done
	mv "$T/config" "$STORE/config"
	eq "nothing is too much yet" 3 "$(field blobs)"
	eq "excess" 0 "$(field excess_bytes)"

	# Without a daemon, put makes room: the oldest go, what was put stays.
	noise "$T/new" 1572864
	expect 0 casbox put "$T/new"
	await counted
	[ "$(on_disk)" -le $((3 << 20)) ] || fail "above the low mark: $(on_disk)"
	expect 1 casbox cat "$(cat "$T/digest-1")"
	expect 0 casbox cat "$(cat "$T/digest-3")"

	# No blob at all: what was put stays, and nothing else.
	casbox --store "$T/none" put "$T/part-1" "$T/part-2" > "$T/out"
	expect 0 casbox --store "$T/none" put --max-blobs 0 "$T/part-3"
	eq "blobs below a limit of 0" "$(sha256sum < "$T/part-3" | cut -d ' ' -f 1)" \
		"$(find "$T/none/cas" -type f -printf '%f\n')"
	casbox --store "$T/none" gc --max-size 0 > "$T/out"

	# More at once than there is room for: all of it stays, and that is said.
	mkdir "$T/large"
	for i in 1 2 3 4 5 6; do
		noise "$T/large/$i" 1048576
	done
	expect 0 casbox put "$T/large"
	said "above its max-size"
	large=$(tail -n 1 "$T/out")
	[ "$(field excess_bytes)" -gt 2000000 ] || fail "excess: $(field excess_bytes)"
	casbox stat | grep -q '^excess ' || fail "stat does not tell of the excess"
	casbox checkout "$large" "$T/co"
	diff -r "$T/large" "$T/co" || fail "put took what it had just stored"

	# A daemon does it beside its work; what a sandbox needs stays, in excess, until it ends.
	mount_start
	await small_enough
	casbox put "$T/large" > "$T/out"
	sandbox=$(sandbox_new "$large" --id large)
	noise "$T/other" 2097152
	other=$(put "$T/other")
	await in_excess
	diff -r "$T/large" "$sandbox" || fail "an input went"
	expect 1 casbox cat "$other"
	casbox sandbox remove large
	await small_enough
	await in_line
	await counted
	mount_stop

	# A number of blobs is a limit, too.
	mkdir "$T/many"
	for i in $(seq 40); do
		echo "$i" > "$T/many/$i"
	done
	for i in $(seq 40); do
		casbox put "$T/many/$i" > "$T/out"
	done
	expect 0 casbox --max-blobs 20 put "$T/many/1"
	[ "$(field blobs)" -le 20 ] || fail "blobs: $(field blobs)"
	expect 0 casbox fsck
}
each_user body
