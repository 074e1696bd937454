#!/bin/sh
# tests/mount/dirents.sh - what a listing says is what lstat says (C38)
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

body() {
	sample_tree "$T/tree"
	mkdir "$T/tree/long"
	for i in $(seq 400); do
		: > "$T/tree/long/a-name-of-some-length-so-that-buffers-fill-early-$i"
	done
	root=$(put "$T/tree")
	mount_start
	sandbox=$(sandbox_new "$root" --output out/)

	for view in "$MNT/cas/directory/$(dashed "$root")" "$sandbox"; do
		for dir in . many deep deep/a/b/c/d/e empty-dir long bin; do
			[ "$view/$dir" != "$sandbox/." ] || continue
			"$FSCHECK" dirents "$view/$dir"
		done
		eq "directories" "$(cd "$T/tree" && find . -type d | sort)" \
			"$(cd "$view" && find . -type d \! -name out | sort)"
		eq "without the leaf trick" "$(cd "$view" && find . -noleaf -type d | wc -l)" \
			"$(cd "$view" && find . -type d | wc -l)"
	done
	"$FSCHECK" dirents "$MNT"
	"$FSCHECK" dirents "$MNT/.casbox"
	eq "names at the mount" "ac cas sandboxes traced" "$(cd "$MNT" && echo *)"
	# The cache view resolves names and lists none.
	eq "names in cas/file" "" "$(ls -A "$MNT/cas/file" 2> /dev/null)"
	mount_stop
}
each_user body
