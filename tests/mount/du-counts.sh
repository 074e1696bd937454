#!/bin/sh
# tests/mount/du-counts.sh - `du` tells what a walk of the store's files finds, each blob once
. "$(dirname "$0")/../lib/common.sh"

# files DIGEST...: "BYTES DISK BLOBS" of these blobs' files.
files() {
	for digest in "$@"; do
		stat -c '%s %b' "$(blob_path "$digest")"
	done | awk '{ bytes += $1; disk += $2 * 512; nr++ } END { print bytes + 0, disk + 0, nr + 0 }'
}

# row NAME: the figures of that line.
row() { awk -v name="$1" '$NF == name { print $1, $2, $3, (NF > 4 ? $4 : "") }' "$T/out" | sed 's/ $//'; }

# all DIGEST: what a tree is made of, each blob once.
all() { { echo "$1"; casbox ls -lR "$1" | awk '$3 ~ /\// { print $3 }'; } | sort -u; }

mkdir -p a/sub a/same b/sub
head -c 300000 /dev/urandom > a/large
echo small > a/sub/small
cp a/sub/small a/same/small
ln -s sub/small a/link
: > a/empty
cp a/large b/large
echo other > b/sub/other
a=$(put a)
b=$(put b)
large=$(put a/large)

# The empty blob has no file; the two equal directories are one blob.
expect 0 casbox du "$a"
eq "a tree" "$(files $(all "$a" | grep -v '/0$') | awk '{ print $1, $2, $3 + 1, 0 }')" "$(row "$a")"
eq "its blobs" 5 "$(row "$a" | cut -d ' ' -f 3)"
eq "no total of one" "" "$(row total)"

# What the first has is not counted for the second, and once in the total.
expect 0 casbox du "$a" "$b" "${large%/*}"
eq "what the second adds" "$(files $(all "$b" | grep -v "$large")) 0" "$(row "$b")"
eq "nothing new" "0 0 0 0" "$(row "$large")"
eq "the total" "$(files $(all "$a" "$b" | grep -v '/0$') $(all "$b" | grep -v "$large"))" \
	"$(row total | awk '{ print $1, $2, $3 - 1 }')"
expect 0 casbox du --json "$large" "$a"
eq "JSON, a line each and the total" "$large $a true" "$(python3 -c '
import json, sys
rows = [json.loads(line) for line in sys.stdin]
assert sum(r["disk_bytes"] for r in rows[:2]) == rows[2]["disk_bytes"]
assert rows[0]["bytes"] == 300000 and rows[0]["blobs"] == 1 and rows[0]["missing"] == 0
print(rows[0]["digest"], rows[1]["digest"], "true" if rows[2]["total"] else "")' < "$T/out")"

# Blobs and directories that went, and what is no digest.
rm -f "$(blob_path "$large")"
expect 0 casbox du "$a"
eq "a missing blob" "4 1" "$(row "$a" | cut -d ' ' -f 3-)"
expect 1 casbox du "$large"
said "is not in the store"
expect 2 casbox du nothing

# The whole store by kind; with a writable layer and what check-outs link to.
put a > /dev/null
casbox checkout --mode hardlink "$a" linked > /dev/null
expect 0 casbox du
for kind in "cas blobs" "ac results" "links hardlinks" "sandboxes sandboxes" "spool spool"; do
	eq "$kind" "$(find "$STORE/${kind% *}" -type f -printf '%s %b\n' 2> /dev/null |
		awk '{ bytes += $1; disk += $2 * 512; nr++ } END { print bytes + 0, disk + 0, nr + 0 }')" \
		"$(row "${kind#* }")"
done
[ "$(row hardlinks | cut -d ' ' -f 3)" -ge 2 ] || fail "hardlinks: $(cat "$T/out")"
eq "the total of kinds" "$(awk 'NR > 1 && $NF != "total" { a += $1; b += $2; c += $3 } END { print a, b, c }' \
	"$T/out")" "$(row total)"
expect 0 casbox du --json
python3 -c 'import json, sys
kinds = json.load(sys.stdin)
assert list(kinds)[-1] == "total" and kinds["blobs"]["files"] == 7, kinds' < "$T/out" || fail "JSON by kind"
