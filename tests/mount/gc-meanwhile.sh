#!/bin/sh
# tests/mount/gc-meanwhile.sh - C13: gc all the time while trees are stored, used and captured
. "$(dirname "$0")/../lib/common.sh"
need fuse

mkdir tree
for i in $(seq 100); do head -c 5000 /dev/urandom > "tree/$i"; done
cat tree/* | sha256sum > want
mount_start
(while [ ! -e enough ]; do "$CASBOX" gc --max-size 0 > /dev/null || exit; done) &
gc=$!

# What run stores is whole when the command starts, and what it captured when it is told.
for i in $(seq 12); do
	casbox run --input tree --mount "$MNT" --output sum --output many/ --into "got-$i" -- \
		sh -c 'cat [0-9]* | sha256sum > sum; for n in 1 2 3 4 5 6 7 8 9; do echo $$ $n > many/$n; done'
	eq "what run $i read" "$(cat want)" "$(cat "got-$i/sum")"
	eq "outputs of run $i" 9 "$(ls "got-$i/many" | wc -l)"
done

# The same by hand, below a sandbox that keeps the inputs.
: > enough
wait "$gc" || fail "gc failed"
rm enough
root=$(put tree)
sandbox_new "$root" --id keep > /dev/null
(while [ ! -e enough ]; do "$CASBOX" gc --max-size 0 > /dev/null || exit; done) &
gc=$!
for i in $(seq 8); do
	sb=$(sandbox_new "$root" --id "s$i" --output out/)
	for n in $(seq 30); do echo "$i $n" > "$sb/out/$n"; done
	casbox sandbox finish "s$i" > fin
	casbox checkout "$(cut -f 2 fin)" "co-$i"
	eq "files of $i" 30 "$(ls "co-$i" | wc -l)"
	casbox sandbox remove "s$i"
done
: > enough
wait "$gc" || fail "gc failed"
casbox fsck
