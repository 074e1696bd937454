#!/bin/sh
# What lies at MNT: names, modes, the cache by digest in each spelling, texts of .casbox.
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

body() {
	mkdir -p "$T/tree/sub"
	printf 'hello\n' > "$T/tree/a"
	cp "$T/tree/a" "$T/tree/sub/b"
	root=$(put "$T/tree")
	file=$(put "$T/tree/a")
	mount_start

	eq "names at MNT" "ac cas sandboxes traced" "$(ls -A "$MNT" | paste -sd ' ')"
	eq "names in cas" "command directory executable file tree" "$(ls "$MNT/cas" | paste -sd ' ')"
	"$FSCHECK" stat "$MNT/.casbox" mode=0700
	"$FSCHECK" stat "$MNT/.casbox/control" mode=0600
	"$FSCHECK" stat "$MNT/cas/file" mode=0111
	eq "not enumerable" "" "$(ls "$MNT/cas/file")"
	for name in control version config help sandboxes; do
		[ -e "$MNT/.casbox/$name" ] || fail "no .casbox/$name"
	done
	grep -q "^mountpoint = $MNT\$" "$MNT/.casbox/config" || fail "config does not tell"
	for name in libfuse fuse_protocol_minor no_opens readdirplus reuse adopt passthrough; do
		grep -q "^$name = ." "$MNT/.casbox/config" || fail "config does not tell $name"
	done
	grep -q '^create ' "$MNT/.casbox/help" || fail "help does not tell"

	hash=${file%/*}
	for name in "$hash-6" "$hash:6" "$hash"; do
		"$FSCHECK" stat "$MNT/cas/file/$name" mode=0444 size=6 nlink=1 blocks=1
		"$FSCHECK" stat "$MNT/cas/executable/$name" mode=0555 size=6
		eq "content by $name" hello "$(cat "$MNT/cas/file/$name")"
	done
	for name in "$hash-7" "$hash-06" x "$(echo "$hash" | tr a-f A-F)-6" "${hash%?}-6"; do
		[ ! -e "$MNT/cas/file/$name" ] || fail "cas/file/$name exists"
	done
	trees_equal "$T/tree" "$MNT/cas/directory/$(dashed "$root")"
	"$FSCHECK" dirents "$MNT/cas/directory/$(dashed "$root")"
	"$FSCHECK" dirents "$MNT"
	"$FSCHECK" call EIO stat "$MNT/cas/directory/$hash-6"

	# What is missing today may come tomorrow: no answer "no" is kept.
	printf 'later\n' > "$T/later"
	later=$(sha256sum < "$T/later")
	later=${later%% *}
	[ ! -e "$MNT/cas/file/$later-6" ] || fail "a blob before it was put"
	put "$T/later" > "$T/out"
	eq "after its put" later "$(cat "$MNT/cas/file/$later-6")"

	for f in "$MNT/cas/file/$hash-6" "$MNT/cas/directory/$(dashed "$root")/a"; do
		"$FSCHECK" refuses "$f" EROFS
	done
	mount_stop
}
each_user body
