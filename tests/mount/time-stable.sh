#!/bin/sh
# tests/mount/time-stable.sh - times of inputs stand still, those of outputs are kept (C39)
. "$(dirname "$0")/../lib/common.sh"
need fuse mount make

stamps() {
	(cd "$1" && find . \! -path './out*' \! -name . -printf '%p %T@ %C@ %s\n' | sort)
}

body() {
	sample_tree "$T/tree"
	printf 'out/result: many/file-1\n\tcp $< $@\n' > "$T/tree/Makefile"
	root=$(put "$T/tree")
	mount_start
	sandbox=$(sandbox_new "$root" --id one --output out/)
	stamps "$sandbox" > "$T/times"
	make -s -C "$sandbox"
	eq "up to date at once" 0 "$(make -q -C "$sandbox" && echo 0 || echo 1)"
	touch -d '@1700000000.987654321' "$sandbox/out/result"
	"$FSCHECK" stat "$sandbox/out/result" mtime=1700000000 mtime-ns=987654321
	"$FSCHECK" call EROFS times "$sandbox/many/file-1"
	sleep 1.1
	stamps "$sandbox" | diff "$T/times" - || fail "times moved by themselves"
	mount_stop

	mount_start
	stamps "$sandbox" | diff "$T/times" - || fail "times moved by a remount"
	"$FSCHECK" stat "$sandbox/out/result" mtime=1700000000 mtime-ns=987654321
	eq "up to date after a remount" 0 "$(make -q -C "$sandbox" && echo 0 || echo 1)"
	tar -cf /dev/null -C "$sandbox" . 2> "$T/said" || fail "tar: $(cat "$T/said")"
	eq "tar says" "" "$(cat "$T/said")"
	(cd "$sandbox" && python3 -m zipfile -c "$T/zip" many empty-dir bin) || fail "zip refuses"
	mount_stop
}
each_user body
