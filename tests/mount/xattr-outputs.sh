#!/bin/sh
# tests/mount/xattr-outputs.sh - C41: extended attributes of outputs are as on the disk below
. "$(dirname "$0")/../lib/common.sh"
need fuse mount overlay

# Requests for attributes that either session has had.
asked() {
	casbox ctl --mount "$MNT" stats | grep -o '"[A-Z]*XATTR":[0-9]*' | sed 's/.*://' |
		awk '{ sum += $1 } END { print sum + 0 }'
}

on_engine() {
	"$FSSTRESS" xattrs "$3" || fail "$1: extended attributes"
	before=$(asked)
	: > "$3/written"
	for i in $(seq 300); do
		echo "$i" >> "$3/written"
	done
	after=$(asked)
	[ $((after - before)) -le 1 ] || fail "$1: $((after - before)) requests for 300 writes"
	cp -a "$2/src/tool" "$3/tool" 2> "$T/said"
	cp -a "$3/tool" "$T/tool-$1" 2>> "$T/said"
	tar -C "$3" --xattrs -cf "$T/$1.tar" tool 2>> "$T/said"
	mkdir "$3/untarred"
	tar -C "$3/untarred" --xattrs -xf "$T/$1.tar" 2>> "$T/said"
	eq "$1: cp -a and tar say" "" "$(cat "$T/said")"
	cmp "$2/src/tool" "$3/untarred/tool"
}

body() {
	mkdir -p "$T/tree/src" "$T/plain"
	printf '#!/bin/sh\necho ran\n' > "$T/tree/src/tool"
	chmod 755 "$T/tree/src/tool"
	"$FSSTRESS" xattrs "$T/plain" > "$T/said" || skip "the disk has no such attributes: $(cat "$T/said")"
	mount_start
	SERVED_OPTIONS='-o xattr'
	each_engine "$T/tree" on_engine
	mount_stop
}
each_user body
