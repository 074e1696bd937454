#!/bin/sh
# tests/mount/counts-true.sh - C24: what stat and gc count is what a walk finds
. "$(dirname "$0")/../lib/common.sh"

procs=$(full_or 4 16)
field() { sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$2"; }

walk() { find "$STORE/cas" -type f "$@" | awk '{ nr++; sum += $1 } END { print nr + 0, sum + 0 }'; }

# counted WHAT: blobs and bytes by stat are those of a walk.
counted() {
	casbox stat --json > "$T/stat"
	eq "$1" "$(walk -printf '%s\n')" "$(field blobs "$T/stat") $(field bytes "$T/stat")"
	casbox gc --max-size 1T --dry-run --json > "$T/gc"
	eq "$1: on disk" "$(find "$STORE/cas" "$STORE/ac" "$STORE/links" -type f -printf '%b\n' |
		awk '{ sum += $1 } END { print sum * 512 }')" "$(field before_bytes "$T/gc")"
}

mkdir small
echo same > same
for i in $(seq 300); do
	printf '%d' "$i" > "small/$i"
done

# The same blob again and again, one by one and side by side.
for i in $(seq 20); do
	put same > /dev/null
done
counted "the same blob 20 times"
eq "the same blob 20 times" 1 "$(field blobs stat)"
pids=
for i in $(seq "$procs"); do
	(for n in 1 2 3 4 5; do put same small > /dev/null || exit 1; done) &
	pids="$pids $!"
done
for pid in $pids; do
	wait "$pid" || fail "a put beside others"
done
counted "the same blobs side by side"
eq "blobs" 302 "$(field blobs stat)"

# Puts that are killed.
for i in $(seq "$(full_or 10 1000)"); do
	mkdir aborted
	head -c 400000 /dev/urandom | split -b 4000 - aborted/part-
	"$CASBOX" put aborted > /dev/null 2>&1 &
	pid=$!
	sleep "0.0$((i * 7 % 40 / 10))$((i % 10))"
	kill -9 "$pid" 2> /dev/null || :
	wait "$pid" 2> /dev/null || :
	rm -rf aborted
done
# A put that ends well comes after them, and an fsck that tells what it found.
casbox fsck --repair > fsck-said 2>&1 || cat fsck-said
counted "after killed puts"

casbox gc --max-size 200k --json > gc
[ "$(field after_bytes gc)" -le 204800 ] || fail "gc is above its target: $(cat gc)"
counted "after gc"
eq "what gc says it left" "$(field before_bytes gc)" "$(casbox gc --max-size 1T --dry-run --json > gc2; field after_bytes gc2)"

# A blob that goes by hand, and one that comes by hand.
put small > /dev/null
victim=$(put same)
rm -f "$(blob_path "$victim")"
expect 1 casbox cat "$victim"
printf 'by hand' > hand
hash=$(sha256sum hand | cut -d ' ' -f 1)
install -D -m 444 hand "$(blob_path "$hash/7")"
eq "a blob that came by hand" "by hand" "$(casbox cat "$hash/7")"
casbox fsck --repair > fsck-said 2>&1 || :
counted "after changes by hand"
casbox gc --max-size 0 > /dev/null
counted "after gc to nothing"
eq "nothing" "0 0" "$(walk -printf '%s\n')"
