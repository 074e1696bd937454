#!/bin/sh
# tests/mount/put-unchanged.sh - a second put of an unchanged tree opens no regular file
. "$(dirname "$0")/../lib/common.sh"
need strace

sample_tree "$T/tree"
root=$(put "$T/tree")
# Files whose times are not older than the clock's grain may be hashed once more.
sleep 1.1
put "$T/tree" > /dev/null

# opened: what the next put of the tree opens below it, directories left out.
opened() {
	strace -f -y -qq -e trace=open,openat,openat2 -o "$T/trace" "$CASBOX" put "$T/tree" > "$T/got"
	sed -n "s|.* = [0-9]*<\($T/tree/.*\)>\$|\1|p" "$T/trace" | while read -r path; do
		if [ -f "$path" ]; then printf '%s\n' "$path"; fi
	done | sort -u
}

eq "files opened" "" "$(opened)"
eq "digest" "$root" "$(cat "$T/got")"
grep -q "<$T/tree" "$T/trace" || fail "the trace shows no directory either: it proves nothing"

# One changed file, and it alone.
echo changed > "$T/tree/many/file-7"
eq "files opened" "$T/tree/many/file-7" "$(opened)"
[ "$(cat "$T/got")" != "$root" ] || fail "the change was missed"
casbox checkout "$(cat "$T/got")" "$T/co"
trees_equal "$T/tree" "$T/co"

# Changed within the clock's grain, size and mtime as before: seen.
for i in 1 2 3 4 5 6 7 8 9; do
	echo "$i" > "$T/tree/quick"
	touch -d @1500000000 "$T/tree/quick"
	digest=$(put "$T/tree/quick")
	eq "quick change $i" "$i" "$(casbox cat "$digest")"
done
