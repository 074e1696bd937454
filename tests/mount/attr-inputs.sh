#!/bin/sh
# tests/mount/attr-inputs.sh - modes, links, blocks, times and statfs of inputs (C31, C39)
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

body() {
	sample_tree "$T/tree"
	chmod 600 "$T/tree/..config"
	chmod 700 "$T/tree/deep"
	touch -d '2020-02-02 02:02:02' "$T/tree/..config"
	head -c 10485760 /dev/urandom > "$T/tree/random"
	head -c 513 /dev/urandom > "$T/tree/two-blocks"
	printf x > "$T/tree/one-byte"
	root=$(put "$T/tree")
	mount_start
	sandbox=$(sandbox_new "$root")

	for view in "$sandbox" "$MNT/cas/directory/$(dashed "$root")"; do
		file="type=f mode=0444 nlink=1 mtime=946684800 mtime-ns=0 ctime=946684800"
		# shellcheck disable=SC2086
		{
			"$FSCHECK" stat "$view/..config" $file size=5 blocks=1
			"$FSCHECK" stat "$view/one-byte" $file size=1 blocks=1
			"$FSCHECK" stat "$view/two-blocks" $file size=513 blocks=2
			"$FSCHECK" stat "$view/random" $file size=10485760 blocks=20480
			# Nothing but a hole, yet not 0.
			"$FSCHECK" stat "$view/zeros" $file size=3000000 blocks=1
			"$FSCHECK" stat "$view/empty" $file size=0 blocks=0
		}
		"$FSCHECK" stat "$view/bin/tool" type=f mode=0555 nlink=1 mtime=946684800
		for dir in deep many empty-dir deep/a/b/c; do
			"$FSCHECK" stat "$view/$dir" type=d mode=0755 mtime=946684800 nlink=1
		done
		"$FSCHECK" stat "$view/dangling" type=l size=7 mtime=946684800 nlink=1

		# Archivers that trust st_blocks keep the data.
		mkdir "$T/x"
		tar -cSf - -C "$view" random one-byte zeros two-blocks | tar -xf - -C "$T/x"
		for f in random one-byte zeros two-blocks; do
			cmp "$T/x/$f" "$T/tree/$f"
		done
		cp --sparse=auto "$view/random" "$T/x/copy"
		cmp "$T/x/copy" "$T/tree/random"
		rm -rf "$T/x"
		eq "longest name" 255 "$(stat -f -c %l "$view")"
		[ "$(stat -f -c %b "$view")" -gt 0 ] || fail "statfs has no blocks"
	done
	mount_stop
}
each_user body
