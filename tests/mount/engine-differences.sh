#!/bin/sh
# tests/mount/engine-differences.sh - where writable places differ from a disk; may only shrink
. "$(dirname "$0")/../lib/common.sh"
need fuse mount overlay

# What is the same in each: links, renames, shared mappings below DIR.
like_a_disk() {
	echo text > "$1/a"
	"$FSCHECK" call OK link "$1/a" "$1/b"
	[ "$1/a" -ef "$1/b" ] || fail "two files after a link in $1"
	"$FSCHECK" call OK rename "$1/a" "$1/c"
	"$FSCHECK" call OK mkdir "$1/sub"
	"$FSCHECK" call OK rename "$1/c" "$1/sub/c"
	"$FSCHECK" call OK rename "$1/sub" "$1/sub2"
	"$FSCHECK" call ENOTEMPTY rmdir "$1/sub2"
	"$FSCHECK" call OK mkfifo "$1/fifo"
	"$FSCHECK" call OK map-shared "$1/sub2/c"
}

body() {
	mkdir -p "$T/tree/src/dir" "$T/tree/other"
	echo input > "$T/tree/src/input"
	echo input > "$T/tree/src/dir/input"
	echo input > "$T/tree/other/mapped"
	root=$(put "$T/tree")
	mount_start

	# A bound directory and one laid over inputs: each alone is like a disk.
	s=$(sandbox_new "$root" --id one --output out/ --output src/res)
	for d in "$s/out" "$s/src"; do
		like_a_disk "$d"
		"$FSCHECK" call OK tmpfile "$d" "$d/nameless"
		"$FSCHECK" call OK exchange "$d/nameless" "$d/sub2/c"
		"$FSCHECK" call OK setxattr "$d/b"
		"$FSCHECK" call OK removexattr "$d/b"
		echo text > "$d/mapped"
		eq "a file that is written to for the first time" "descriptor new
mapping new" "$("$FSSTRESS" first-write "$d/mapped")"
	done
	# Between them lies a mount.
	"$FSCHECK" call EXDEV link "$s/out/b" "$s/src/b2"
	"$FSCHECK" call EXDEV rename "$s/out/b" "$s/src/b2"
	mv "$s/out/b" "$s/src/b2"
	"$FSCHECK" call "EBUSY|EROFS" rmdir "$s/out"
	"$FSCHECK" call "EBUSY|EROFS" rename "$s/out" "$s/out2"
	casbox sandbox remove one

	# A directory of inputs is renamed where the overlay may record where it came from.
	s=$(sandbox_new "$root" --id two --writable all)
	if [ -n "${TEST_PLAIN:-}" ]; then
		"$FSCHECK" call EXDEV rename "$s/src/dir" "$s/other/dir"
	else
		"$FSCHECK" call OK rename "$s/src/dir" "$s/other/dir"
	fi
	[ -d "$s/other/dir" ] || mv "$s/src/dir" "$s/other/dir"
	eq "moved" input "$(cat "$s/other/dir/input")"
	"$FSCHECK" call ENOENT stat "$s/src/dir"
	"$FSCHECK" call OK rename "$s/src/input" "$s/other/input"
	# An input becomes another file below when it is first written to.
	eq "an input that is written to for the first time" "descriptor new
mapping old" "$("$FSSTRESS" first-write "$s/other/mapped")"
	casbox sandbox remove two
	mount_stop

	# Where session one serves it: one layer without a mount in between.
	mount_start --engine fuse
	s=$(sandbox_new "$root" --id three --output out/ --output src/res)
	for d in "$s/out" "$s/src"; do
		like_a_disk "$d"
		"$FSCHECK" call EOPNOTSUPP tmpfile "$d" "$d/nameless"
		echo named > "$d/named"
		"$FSCHECK" call OK exchange "$d/named" "$d/sub2/c"
		"$FSCHECK" call EOPNOTSUPP setxattr "$d/b"
		echo text > "$d/mapped"
		eq "served: a file that is written to for the first time" "descriptor new
mapping new" "$("$FSSTRESS" first-write "$d/mapped")"
	done
	"$FSCHECK" call OK link "$s/out/b" "$s/src/b2"
	"$FSCHECK" call OK rename "$s/out/named" "$s/src/named2"
	"$FSCHECK" call EXDEV link "$s/src/input" "$s/src/input2"
	"$FSCHECK" call EROFS rename "$s/src/input" "$s/src/input2"
	"$FSCHECK" call EBUSY rmdir "$s/out"
	casbox sandbox remove three
	s=$(sandbox_new "$root" --id four --writable all)
	"$FSCHECK" call OK rename "$s/src/dir" "$s/other/dir"
	eq "served: moved" input "$(cat "$s/other/dir/input")"
	"$FSCHECK" call ENOENT stat "$s/src/dir"
	"$FSCHECK" call OK link "$s/src/input" "$s/other/input"
	[ "$s/src/input" -ef "$s/other/input" ] || fail "two files after a link of an input"
	eq "served: an input that is written to for the first time" "descriptor new
mapping new" "$("$FSSTRESS" first-write "$s/other/mapped")"
	casbox sandbox remove four
	mount_stop
}
each_user body
