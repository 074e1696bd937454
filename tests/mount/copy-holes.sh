#!/bin/sh
# tests/mount/copy-holes.sh - blocks of zeros take no space, wherever a file comes from
. "$(dirname "$0")/../lib/common.sh"
need root fuse

# 64 MiB, of which the 1 MiB blocks 3, 10, 20 to 22 and 63 hold something, and 30 to 39
# zeros that were written.
MIB=1048576
NONZERO=6
mkdir "$T/in"
f=$T/in/f
noise() {
	dd if=/dev/urandom of="$f" bs=1000 count="$1" seek="$2" oflag=seek_bytes conv=notrunc \
		status=none
}
truncate -s $((64 * MIB)) "$f"
noise 1 $((3 * MIB + 500))
noise 1049 $((10 * MIB))
truncate -s $((11 * MIB)) "$f"
truncate -s $((64 * MIB)) "$f"
noise 1800 $((20 * MIB + 600000))
noise 1 $((64 * MIB - 1000))
dd if=/dev/zero of="$f" bs=$MIB count=10 seek=30 conv=notrunc status=none

# at_most WHAT FILE: no more than the blocks that hold something, and some for extents.
at_most() {
	cmp "$f" "$2" || fail "$1: other bytes"
	took=$(stat -c %b "$2")
	[ "$took" -le $((NONZERO * MIB / 512 + 64)) ] || fail "$1: takes $((took / 2048)) MiB"
}
slow_start() {
	mkdir -p "$1" "$2"
	"$LATFS" "$1" "$2" &
	LATFS_PID=$!
	await mountpoint "$2"
}
slow_stop() {
	umount "$1"
	wait "$LATFS_PID" || :
}

# Put, from a filesystem that knows its holes and from one that does not.
digest=$(put "$f")
root=$(put "$T/in")
at_most "put" "$(blob_path "$digest")"
slow_start "$T/in" "$T/slow"
eq "the same through FUSE" "$digest" "$(put --store "$T/other" "$T/slow/f")"
hash=${digest%/*}
at_most "put through FUSE" "$(find "$T/other/cas" -name "$hash")"
slow_stop "$T/slow"

# Checkout, by each way that copies; to a FUSE filesystem; from blobs in one.
for mode in auto copy hardlink; do
	casbox checkout --mode "$mode" "$root" "$T/out-$mode"
	at_most "checkout --mode $mode" "$T/out-$mode/f"
done
slow_start "$T/back" "$T/slow"
casbox checkout "$root" "$T/slow/out"
at_most "checkout to FUSE" "$T/back/out/f"
eq "put into FUSE" "$root" "$(put --store "$T/third" --blobs "$T/slow" "$T/in")"
at_most "blob in FUSE" "$(find "$T/back/cas" -name "$hash")"
casbox --store "$T/third" checkout --blobs "$T/slow" "$root" "$T/out-blobs"
at_most "checkout from FUSE" "$T/out-blobs/f"
slow_stop "$T/slow"

# Capture: an output that has its zeros written, by a mount's finish and by run.
cat > "$T/in/make" <<-MAKE
	set -e
	cp --sparse=never f out/f
	printf "\$1" | dd of=out/f seek=3 bs=$MIB conv=notrunc status=none
	[ "\$(stat -c %b out/f)" -ge $((64 * MIB / 512)) ]
MAKE
tree=$(put "$T/in")
captured() {
	printf "$2" | dd of="$f" seek=3 bs=$MIB conv=notrunc status=none
	at_most "$1" "$(blob_path "$(sha256sum "$f" | cut -d ' ' -f 1)/")"
}
mount_start
box=$(sandbox_new "$tree" --id one --output out/)
(cd "$box" && sh make one)
casbox sandbox finish one > "$T/finished"
cp --sparse=always "$f" "$T/original"
captured "finish" one
casbox sandbox remove one
cp --sparse=always "$T/original" "$f"

# Others' tools on our mount: it answers where holes are.
view=$MNT/cas/file/$(dashed "$digest")
at_most "cas/file" "$view"
box=$(sandbox_new "$root" --id two)
at_most "input" "$box/f"
for from in "$view" "$box/f"; do
	cp --sparse=auto "$from" "$T/copied"
	at_most "cp --sparse=auto $from" "$T/copied"
	rm "$T/copied"
done
tar -C "$box" -cSf "$T/tar" f
[ "$(stat -c %s "$T/tar")" -le $((NONZERO * MIB + 65536)) ] || fail "tar -S: $(stat -c %s "$T/tar")"
mkdir "$T/untar"
tar -C "$T/untar" -xf "$T/tar"
at_most "tar -S" "$T/untar/f"
casbox sandbox remove two
mount_stop

casbox run --root "$tree" --output out/ -- sh make two
captured "run" two
casbox umount
