#!/bin/sh
# tests/mount/blob-damaged.sh - a blob whose bytes were changed is never served (C04)
. "$(dirname "$0")/../lib/common.sh"
need fuse mount root

mkdir "$T/tree"
{ echo begin; head -c 200000 /dev/zero; echo end; } > "$T/tree/blob"
root=$(put "$T/tree")
digest=$(put "$T/tree/blob")
path=$(blob_path "$digest")
size=${digest#*/}

damage() {
	case $1 in
	empty) truncate -s 0 "$path" ;;
	half) truncate -s $((size / 2)) "$path" ;;
	longer) printf x >> "$path" ;;
	flip) printf X | dd of="$path" bs=1 seek=100 conv=notrunc status=none ;;
	gone) rm -f "$path" ;;
	directory) rm -f "$path" && mkdir "$path" ;;
	symlink) rm -f "$path" && ln -s "$T/tree/blob" "$path" ;;
	fifo) rm -f "$path" && mkfifo "$path" ;;
	esac
}

for how in empty half longer flip gone directory symlink fifo; do
	mount_start
	sandbox=$(sandbox_new "$root" --id "$how")
	damage "$how"
	for at in "$sandbox/blob" "$MNT/cas/file/$(dashed "$digest")"; do
		if within 10 cat "$at" > "$T/got" 2> "$T/said"; then
			cmp "$T/got" "$T/tree/blob" || fail "$how: wrong bytes from $at"
		else
			grep -qE 'Input/output error|No such file' "$T/said" || fail "$how: $(cat "$T/said")"
		fi
	done
	expect 1 within 10 "$CASBOX" cat "$digest"
	said "${digest%/*}"
	for mode in copy hardlink; do
		expect 1 within 10 "$CASBOX" checkout --mode "$mode" "$root" "$T/dest"
		[ ! -e "$T/dest" ] || fail "$how: a check-out of damaged bytes"
	done
	if [ "$how" != gone ]; then
		damage "$how"
		expect 1 within 10 "$CASBOX" fsck
		cat "$T/out" "$T/err" | grep -q "${digest%/*}" || fail "$how: fsck does not name it"
	fi

	# A put of the right bytes mends it.
	eq "$how: put" "$digest" "$(within 10 "$CASBOX" put "$T/tree/blob")"
	casbox cat "$digest" | cmp - "$T/tree/blob" || fail "$how: not mended"
	within 10 cmp "$T/tree/blob" "$MNT/cas/file/$(dashed "$digest")" || fail "$how: not mended in the mount"
	casbox sandbox remove "$how"
	mount_stop
	expect 0 casbox fsck
done
