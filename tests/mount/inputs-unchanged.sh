#!/bin/sh
# tests/mount/inputs-unchanged.sh - nothing done to an input in a sandbox shows anywhere else
. "$(dirname "$0")/../lib/common.sh"
need fuse mount overlay

# Name, mode, times, size and hash of everything below.
state() {
	(cd "$1" && find . -printf '%p %m %U %G %s %T@\n' | sort && find . -type f -exec sha256sum {} + | sort)
}

body() {
	mkdir -p "$T/tree/src/sub" "$T/tree/tools"
	echo first > "$T/tree/src/input"
	echo second > "$T/tree/src/sub/input"
	install -m 755 /bin/true "$T/tree/tools/cc"
	root=$(put "$T/tree")
	mount_start
	witness=$(sandbox_new "$root" --id witness)
	state "$witness" > "$T/witness"
	state "$STORE/cas" > "$T/cas"

	for policy in outputs dirs all; do
		victim=$(sandbox_new "$root" --id "victim-$policy" --writable "$policy" --output src/out.o --output build/)
		for f in src/input src/sub/input tools/cc; do
			if [ "$policy" = outputs ] && [ "$f" = tools/cc ]; then
				"$FSCHECK" refuses "$victim/$f" EROFS
			else
				"$FSCHECK" attack "$victim/$f" > "$T/attack-$policy"
			fi
		done
		rm -rf "$victim/src/sub" 2> /dev/null || :
		echo new > "$victim/tools/new" 2> /dev/null || :
		echo new > "$victim/src/input" 2> /dev/null || :
		if [ "$policy" = all ]; then
			eq "replaced under all" new "$(cat "$victim/src/input")"
		fi
		state "$witness" | diff "$T/witness" - || fail "$policy: another sandbox changed"
		state "$(sandbox_new "$root" --id "later-$policy")" | diff "$T/witness" - ||
			fail "$policy: a later sandbox differs"
		state "$STORE/cas" | diff "$T/cas" - || fail "$policy: a blob changed"
		eq "cache view" first "$(cat "$MNT/cas/directory/$(dashed "$root")/src/input")"
	done
	for f in src/input tools/cc; do
		"$FSCHECK" refuses "$MNT/cas/directory/$(dashed "$root")/$f"
	done
	"$FSCHECK" refuses "$MNT/cas/file/$(dashed "$(put "$T/tree/src/input")")"
	state "$witness" | diff "$T/witness" - || fail "the cache view changed a sandbox"
	state "$STORE/cas" | diff "$T/cas" - || fail "the cache view changed a blob"

	for id in $(casbox sandbox list | cut -f 1); do
		casbox sandbox remove "$id"
	done
	mount_stop
	expect 0 casbox fsck
}
each_user body
