#!/bin/sh
# tests/mount/ino-identity.sh - equal content in two places is two files (C10)
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

body() {
	sample_tree "$T/tree"
	echo same > "$T/tree/a"
	cp "$T/tree/a" "$T/tree/b"
	cp "$T/tree/a" "$T/tree/deep/a2"
	cp -r "$T/tree/deep" "$T/tree/deep-too"
	: > "$T/tree/e1"
	: > "$T/tree/e2"
	root=$(put "$T/tree")
	mount_start
	sandbox=$(sandbox_new "$root" --id one)
	"$FSCHECK" inos "$sandbox" | sort -k 2 > "$T/inos"
	[ ! "$sandbox/a" -ef "$sandbox/b" ] || fail "a and b are one file"

	# Numbers stay: in another sandbox, without caches, after a remount.
	"$FSCHECK" inos "$(sandbox_new "$root" --id two)" | sort -k 2 > "$T/inos-two"
	grep -v ' \.$' "$T/inos" > "$T/want"
	grep -v ' \.$' "$T/inos-two" | diff "$T/want" - || fail "other numbers in another sandbox"
	if [ "$(id -u)" -eq 0 ] && [ -z "${TEST_PLAIN:-}" ]; then
		echo 2 > /proc/sys/vm/drop_caches
		"$FSCHECK" inos "$sandbox" | sort -k 2 | diff "$T/inos" - || fail "changed without caches"
	fi
	mount_stop
	mount_start
	"$FSCHECK" inos "$sandbox" | sort -k 2 | diff "$T/inos" - || fail "changed by a remount"

	# Tools that look for hard links find none.
	mkdir "$T/copy"
	cp -r --preserve=links "$sandbox/a" "$sandbox/b" "$sandbox/e1" "$sandbox/e2" "$T/copy"
	tar -cf - -C "$sandbox" a b e1 e2 | tar -tvf - > "$T/members"
	eq "regular members" 4 "$(grep -c '^-' "$T/members")"
	echo more >> "$T/copy/a"
	eq "the other copy" same "$(cat "$T/copy/b")"
	mount_stop
}
each_user body
