#!/bin/sh
# tests/mount/finish-full.sh - C03: what a finish moved before the disk was full comes back, and stays
. "$(dirname "$0")/../lib/common.sh"
need root fuse mount

NR=60
mkdir "$T/disk" "$T/want" "$T/empty"
mount -t tmpfs -o size=48m tmpfs "$T/disk"
STORE=$T/disk/store
CASBOX_STORE=$STORE
head -c 3000000 /dev/urandom > "$T/want/first"
for i in $(seq $NR); do
	head -c 200000 /dev/urandom > "$T/want/f$i"
	mkdir "$T/want/d$i"
	echo "$i" > "$T/want/d$i/small"
done
root=$(put "$T/empty")

# The large one first, so that it goes back first: none may take the last block of a daemon that starts.
make_outputs() { # DIR
	cp "$T/want/first" "$1/"
	cp -r "$T/want/." "$1/"
}
leave_room() { # KIB
	dd if=/dev/zero of="$T/disk/fill" bs=4k 2> "$T/ignored" || :
	truncate -s "-$1k" "$T/disk/fill"
}
# Enough for some names, too little for all, and far too little to copy anything back.
finish_without_room() {
	leave_room 100
	expect 1 "$CASBOX" sandbox finish "$1"
	said "No space"
	[ "$(find "$STORE/cas" -type f -size +100k | wc -l)" -gt 1 ] || fail "nothing has moved"
}
finish_with_room() {
	casbox sandbox finish "$1" > "$T/fin"
	casbox checkout "$(cut -f 2 "$T/fin")" "$T/co-$1"
	trees_equal "$T/want" "$T/co-$1"
	casbox sandbox remove "$1"
	casbox gc --max-size 0
}

# What casbox itself serves moves, as what a control group wrote that has ended.
mount_start --engine fuse
box=$(sandbox_new "$root" --id same --output out/)
make_outputs "$box/out"
finish_without_room same
# Not captured without them.
expect 1 "$CASBOX" sandbox finish same
said "same" "give back" "No space"
rm "$T/disk/fill"
casbox gc --max-size 0
finish_with_room same

# The daemon is killed, and the store made smaller, before there is room.
box=$(sandbox_new "$root" --id killed --output out/)
make_outputs "$box/out"
finish_without_room killed
mount_kill
rm "$T/disk/fill"
casbox gc --max-size 0
leave_room 2000
mount_start --engine fuse
expect 1 "$CASBOX" sandbox finish killed
said "killed"
grep -q "sandbox killed: lost until the daemon is started again: .*No space" "$T/daemon.log" ||
	fail "not told why"
rm "$T/disk/fill"
mount_stop
mount_start --engine fuse
finish_with_room killed
mount_stop

# A limit of the daemon's is no fault of the file's, either: another one captures all.
CASBOX_STORE=$T/other
put "$T/empty" > "$T/out"
ulimit -S -f 5000
mount_start
ulimit -S -f unlimited
box=$(sandbox_new "$root" --id limited --output out/)
make_outputs "$box/out"
expect 1 "$CASBOX" sandbox finish limited
said "out/first" "File too large"
mount_stop
mount_start
finish_with_room limited
mount_stop
casbox fsck
