#!/bin/sh
# tests/mount/rows-rebuilt.sh - what index and ledger lack is found again (C24)
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

# "BLOBS BYTES" by the ledger, and by the files.
told() {
	casbox stat --json | sed 's/.*"blobs":\([0-9]*\),"bytes":\([0-9]*\),.*/\1 \2/'
}
there() {
	find "$STORE/cas" -type f -printf '%s\n' | awk '{n++; s += $1} END {print n + 0, s + 0}'
}
agree() { [ "$(told)" = "$(there)" ]; }

for i in $(seq 50); do echo "blob $i"; done > "$T/lines"
mkdir "$T/tree"
(cd "$T/tree" && split -l 1 "$T/lines")
root=$(put "$T/tree")
eq "after a put" "$(there)" "$(told)"

# What a run stores, standard output included, and what a daemon captured when it ends.
casbox run --root "$root" --output out --result "$T/result" --into "$T/into" -- \
	sh -c 'echo said; echo made > out' > "$T/out"
casbox umount
eq "after a run" "$(there)" "$(told)"
mount_start
echo output > "$(sandbox_new "$root" --id one --output o/)/o/f"
casbox sandbox finish one > "$T/out"
casbox sandbox remove one
mount_stop
eq "after a capture" "$(there)" "$(told)"

# Both lost: a daemon finds out at its start, a put when it records.
rm -r "$STORE/meta"
mount_start
await agree
mount_stop
rm -r "$STORE/meta"
echo new > "$T/new"
put "$T/new" > "$T/out"
eq "lost, then a put" "$(there)" "$(told)"

# Changed by hand: fsck says by how much, and it is right afterwards.
by_hand() {
	rm "$(blob_path "$(put "$T/tree/xaa")")"
	echo "by hand $1" > "$T/hand"
	hash=$(sha256sum < "$T/hand")
	mkdir -p "$STORE/cas/$(printf %.2s "$hash")"
	install -m 444 "$T/hand" "$(blob_path "${hash%% *}/0")"
	! agree || fail "nothing is wrong"
	expect 0 casbox fsck
	said "1 blobs were not recorded, 1 recorded ones are gone, 0 had another size"
	eq "after fsck, $1" "$(there)" "$(told)"
	expect 0 casbox fsck --json
	grep -q '"adopted":0,"dropped":0,"resized":0' "$T/out" || fail "again: $(cat "$T/out")"
	put "$T/tree/xaa" > "$T/out"
	eq "after a put, $1" "$(there)" "$(told)"
}
by_hand "without a daemon"
mount_start
by_hand "with a daemon"

# A daemon that is killed with rows in its memory.
for i in 1 2 3; do
	for j in $(seq 20); do
		echo "round $i $j" > "$T/f"
		put "$T/f" > "$T/out"
	done
	(while put "$T/lines" "$T/tree" > "$T/ignored" 2>&1; do :; done) &
	putter=$!
	mount_kill
	mount_start
	kill "$putter" 2> /dev/null || :
	wait "$putter" 2> /dev/null || :
	await agree
done
eq "the tree" "$root" "$(put "$T/tree")"
mount_stop
eq "in the end" "$(there)" "$(told)"
expect 0 casbox fsck
