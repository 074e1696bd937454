#!/bin/sh
# tests/mount/checkout-filesystems.sh - C30: every mode on every filesystem, right or refused
. "$(dirname "$0")/../lib/common.sh"
need root mount

mkdir tree
for size in 0 1 4095 4096 4097 1048577; do
	head -c "$size" /dev/urandom > "tree/f-$size"
done
cp tree/f-4097 tree/x-4097
chmod 755 tree/x-4097
truncate -s 5000000 tree/hole

# fs_new KIND DIR: status 1 when the machine lacks it.
fs_new() {
	mkdir -p "$2"
	case $1 in
	disk) ;;
	tmpfs) mount -t tmpfs tmpfs "$2" ;;
	overlay)
		can_overlay || return 1
		mkdir -p "$2-low" "$2-up"
		mount -t tmpfs tmpfs "$2-up"
		mkdir "$2-up/u" "$2-up/w"
		mount -t overlay -o "lowerdir=$2-low,upperdir=$2-up/u,workdir=$2-up/w" overlay "$2"
		;;
	*)
		command -v "mkfs.$1" > /dev/null || return 1
		truncate -s 320M "$2.img"
		"mkfs.$1" -q "$2.img" > /dev/null 2>&1 && mount -o loop "$2.img" "$2" 2> /dev/null
		;;
	esac
}

# check_mode MODE DEST WANT-STATUS
check_mode() {
	expect "$3" "$CASBOX" checkout --mode "$1" "$root" "$2"
	if [ "$3" -ne 0 ]; then
		[ ! -e "$2" ] || fail "$1 to $2 was refused and left something"
		eq "left beside" "" "$(ls -A "${2%/*}")"
		said reflink
		return
	fi
	eq "$1 to $2 says" "" "$(cat err)"
	trees_equal "$T/tree" "$2"
	"$FSCHECK" stat "$2/x-4097" mode=0555 size=4097
	"$FSCHECK" stat "$2/f-0" mode=0444 size=0
	rm -rf "$2"
	eq "left beside" "" "$(ls -A "${2%/*}")"
}

mkdir elsewhere
for kind in disk tmpfs overlay btrfs xfs; do
	fs_new "$kind" "$T/$kind" || {
		echo "note: no $kind here"
		continue
	}
	STORE=$T/$kind/store
	CASBOX_STORE=$STORE
	mkdir "$T/$kind/to"
	root=$(put tree)
	reflink=1
	cp --reflink=always "$(blob_path "$(put tree/f-4097)")" "$T/$kind/try" 2> /dev/null && reflink=0
	case $kind in btrfs | xfs) eq "$kind clones" 0 $reflink ;; esac
	for mode in auto copy hardlink; do
		check_mode "$mode" "$T/$kind/to/d" 0
		check_mode "$mode" "$T/elsewhere/d" 0
	done
	check_mode reflink "$T/$kind/to/d" "$reflink"
	[ "$kind" = disk ] || check_mode reflink "$T/elsewhere/d" 1
	expect 0 casbox fsck
done
