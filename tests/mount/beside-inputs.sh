#!/bin/sh
# tests/mount/beside-inputs.sh - outputs that lie among inputs: exactly the declared ones
. "$(dirname "$0")/../lib/common.sh"
need fuse mount overlay

body() {
	mkdir -p "$T/tree/pkg/sub" "$T/tree/tools"
	echo 'int main(void) { return 0; }' > "$T/tree/pkg/main.c"
	echo header > "$T/tree/pkg/main.h"
	echo other > "$T/tree/pkg/sub/other"
	root=$(put "$T/tree")
	mount_start
	sandbox=$(sandbox_new "$root" --id one --output pkg/main.o --output pkg/sub/main.d --output pkg/gen)
	"$FSCHECK" call EROFS create "$sandbox/tools/new"
	"$FSCHECK" call EROFS mkdir "$sandbox/new"

	echo object > "$sandbox/pkg/main.o"
	echo depends > "$sandbox/pkg/sub/main.d"
	echo scratch > "$sandbox/pkg/main.s"
	mkdir "$sandbox/pkg/gen" "$sandbox/pkg/tmp"
	echo generated > "$sandbox/pkg/gen/g.c"
	echo left > "$sandbox/pkg/tmp/left"
	mv "$sandbox/pkg/main.o" "$sandbox/pkg/main.o.tmp"
	mv "$sandbox/pkg/main.o.tmp" "$sandbox/pkg/main.o"

	casbox sandbox finish one > "$T/finish"
	eq "outputs" "pkg/gen pkg/main.o pkg/sub/main.d" "$(cut -f 1 "$T/finish" | sort | tr '\n' ' ' | sed 's/ $//')"
	eq "main.o" object "$(casbox cat "$(sed -n 's|^pkg/main.o\t||p' "$T/finish")")"
	eq "main.d" depends "$(casbox cat "$(sed -n 's|^pkg/sub/main.d\t||p' "$T/finish")")"
	casbox checkout "$(sed -n 's|^pkg/gen\t||p' "$T/finish")" "$T/gen"
	eq "gen" g.c "$(ls "$T/gen")"
	casbox sandbox finish one | diff "$T/finish" - || fail "finish twice gives two answers"
	casbox sandbox remove one
	mount_stop
}
each_user body
