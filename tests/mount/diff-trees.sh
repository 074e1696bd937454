#!/bin/sh
# tests/mount/diff-trees.sh - `diff` tells what a comparison of all files finds, in as many words
. "$(dirname "$0")/../lib/common.sh"

# As a comparison file by file finds it: "LETTER PATH", a directory with a slash.
by_walk() {
	(cd "$1" && find . -mindepth 1 -printf '%P\t%y\n') | sort > "$T/walk-a"
	(cd "$2" && find . -mindepth 1 -printf '%P\t%y\n') | sort > "$T/walk-b"
	join -t "$(printf '\t')" -a 1 -a 2 -e - -o 0,1.2,2.2 "$T/walk-a" "$T/walk-b" |
		while IFS="$(printf '\t')" read -r path old new; do
			slash=
			case $old$new in
			*d | d-) slash=/ ;;
			esac
			case $old$new in
			-?) echo "A $path$slash" ;;
			?-) echo "D $path$slash" ;;
			dd) ;;
			ff) cmp -s "$1/$path" "$2/$path" && [ -x "$1/$path" -a -x "$2/$path" \
				-o ! -x "$1/$path" -a ! -x "$2/$path" ] || echo "M $path" ;;
			ll) [ "$(readlink "$1/$path")" = "$(readlink "$2/$path")" ] || echo "M $path" ;;
			*) echo "T $path$slash" ;;
			esac
		done | sort -k 2
}

sample_tree a
sample_tree b
root_a=$(put a)
expect 0 casbox diff "$root_a" "$root_a"
eq "two equal trees" "" "$(cat "$T/out")"

# One of everything.
echo other > b/many/file-7
chmod 755 b/many/file-8
rm b/many/file-9 b/loop
echo new > "b/many/new name"
ln -sfn elsewhere b/dangling
rm -r b/deep/a/b
echo flat > b/deep/a/b
mkdir -p b/added/dir
echo x > b/added/dir/x
rm b/absolute
mkdir b/absolute
rmdir b/empty-dir
root_b=$(put b)
expect 1 casbox diff -R "$root_a" "$root_b"
cut -f 1 "$T/out" | LC_ALL=C sort -k 2 > "$T/got"
by_walk a b > "$T/want"
diff "$T/want" "$T/got" || fail "diff and a walk differ"
[ "$(wc -l < "$T/got")" -gt 15 ] || fail "too little was compared"
grep -q "^M dangling	target missing -> elsewhere$" "$T/out" || fail "targets: $(cat "$T/out")"
grep -q "^M many/file-8	mode 0444 -> 0555$" "$T/out" || fail "modes: $(cat "$T/out")"
grep -q "^T deep/a/b	directory -> file$" "$T/out" || fail "types: $(cat "$T/out")"
LC_ALL=C sort -c -k 2 "$T/got" || fail "not sorted"
# The other way round.
expect 1 casbox diff -R "$root_b" "$root_a"
cut -f 1 "$T/out" | LC_ALL=C sort -k 2 > "$T/got"
by_walk b a > "$T/want"
diff "$T/want" "$T/got" || fail "diff and a walk differ, the other way round"
# Without -R a directory that one tree alone has is one line.
expect 1 casbox diff "$root_a" "$root_b"
grep -q '^A added/$' "$T/out" || fail "an added directory: $(cat "$T/out")"
! grep -q '^A added/dir' "$T/out" || fail "what is in an added directory"

# Places in trees, of files and links too, and every spelling of a digest.
expect 1 casbox diff "$root_a/many" "$(dashed "$root_b")/many/"
cut -f 1 "$T/out" > "$T/got"
eq "below a path" "M file-7 M file-8 D file-9 A new name" "$(paste -s -d ' ' "$T/got")"
expect 1 casbox diff "$root_a/many/file-7" "$root_b/many/file-7"
eq "two files" ".	content" "$(sed 's/^M //' "$T/out")"
expect 0 casbox diff "$root_a/many/file-1" "$root_b/many/file-1"
expect 1 casbox diff "${root_a%/*}" "$root_b"

# JSON says the same.
expect 1 casbox diff --json -R "$root_a" "$root_b"
python3 - "$T/out" <<'PY' || fail "JSON"
import json, sys
changes = [json.loads(line) for line in open(sys.argv[1])]
by = {c["path"]: c for c in changes}
assert by["dangling"]["old"]["target"] == "missing", by["dangling"]
assert by["many/file-8"]["new"]["executable"] is True
assert by["deep/a/b"]["change"] == "type" and by["deep/a/b"]["old"]["kind"] == "directory"
assert by["many/new name"]["change"] == "added" and "old" not in by["many/new name"]
assert [c["path"].encode() for c in changes] == sorted(c["path"].encode() for c in changes)
PY

# Recorded times and modes.
touch -d 2001-02-03 b/empty
recorded=$(put --preserve b)
touch -d 2001-02-04 b/empty
chmod 600 b/empty
changed=$(put --preserve b)
expect 1 casbox diff "$recorded" "$changed"
grep -q "^M empty	mode 0644 -> 0600, time 981158400.000000000 -> 981244800.000000000$" "$T/out" ||
	fail "recorded: $(cat "$T/out")"

# Wrong and missing things.
expect 2 casbox diff "$root_a"
expect 2 casbox diff "$root_a" no/such
said "there is no sandbox no"
expect 2 casbox diff "$root_a" "$root_b/nowhere"
said "there is no 'nowhere'"
expect 2 casbox diff "$root_a/empty/below" "$root_b"
said "is a file"
leaf=$(put a/many/file-1)
expect 2 casbox diff "$root_a" "$leaf"
said "is no Directory"
expect 2 casbox diff "$root_a" "${root_a}9x"
