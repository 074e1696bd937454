#!/bin/sh
# tests/mount/tree-equal.sh - a tree of everything reads back the same through every view
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

body() {
	sample_tree "$T/tree"
	root=$(put "$T/tree")
	eq "digest of a second put" "$root" "$(put "$T/tree")"
	mount_start
	sandbox=$(sandbox_new "$root" --id one)
	eq "path of the sandbox" "$MNT/sandboxes/one" "$sandbox"

	for view in "$sandbox" "$MNT/cas/directory/$(dashed "$root")"; do
		trees_equal "$T/tree" "$view"
		"$FSCHECK" readlink "$view/dangling" missing
		"$FSCHECK" readlink "$view/loop" loop
		"$FSCHECK" readlink "$view/absolute" /nowhere/at/all
		eq "what the executable says" "ran a b" "$("$view/bin/tool" a b)"
		"$FSCHECK" call EACCES exec-access "$view/..config"
		"$FSCHECK" call ELOOP read "$view/loop"
		"$FSCHECK" call ENOENT read "$view/dangling"
		"$FSCHECK" mmap-last "$view/zeros" 0
		"$FSCHECK" mmap-last "$view/many/file-7" 10
		"$FSCHECK" call ENOENT stat "$view/.casbox"
		# A digest taken through the mount is the one that went in.
		eq "put of the view" "$root" "$(put "$view")"
	done

	casbox checkout "$root" "$T/out-tree"
	trees_equal "$T/tree" "$T/out-tree"
	casbox sandbox remove one
	"$FSCHECK" call ENOENT stat "$sandbox"
	mount_stop
}
each_user body
