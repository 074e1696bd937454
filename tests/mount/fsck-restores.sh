#!/bin/sh
# tests/mount/fsck-restores.sh - C04: what is damaged is named, set aside, and brought back
. "$(dirname "$0")/../lib/common.sh"

field() { sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$T/out" | tail -n 1; }
blob_of() { blob_path "$(sha256sum < "$1" | cut -d ' ' -f 1)/0"; }
spoil() {
	chmod 644 "$1"
	printf X | dd of="$1" bs=1 conv=notrunc 2> "$T/ignored"
	chmod 444 "$1"
}

sample_tree "$T/tree"
head -c 300000 /dev/urandom > "$T/tree/large"
head -c 5000 /dev/urandom > "$T/tree/small"
head -c 5000 /dev/urandom > "$T/gone"
root=$(put "$T/tree")
gone=$(put "$T/gone")
rm "$T/gone"

# The Directory of the root, a byte of a file, half of another, and one that nobody has.
spoil "$(blob_path "$root")"
spoil "$(blob_of "$T/tree/small")"
truncate -s 100000 "$(blob_of "$T/tree/large")"
spoil "$(blob_path "$gone")"
chmod 644 "$(blob_of "$T/tree/large")" "$(blob_path "$gone")"
expect 1 casbox fsck
eq "faults named" 4 "$(wc -l < "$T/out")"
expect 2 casbox fsck --from "$T/tree"
expect 1 casbox fsck --repair --from "$T/tree" --json
eq "faults" 4 "$(field faults)"
eq "restored" 3 "$(field restored)"
eq "lost" 1 "$(field lost)"
said "$gone is lost"
casbox checkout "$root" "$T/co"
trees_equal "$T/tree" "$T/co"
expect 0 casbox fsck
expect 1 casbox cat "$gone"

# A FIFO in the place of a blob: the first look drops its row, and so nobody knows the size.
rm "$(blob_of "$T/tree/large")"
mkfifo "$(blob_of "$T/tree/large")"
expect 1 casbox fsck
expect 1 casbox fsck --repair --from "$T/tree" --json
eq "a FIFO" "1 1 0" "$(field faults) $(field restored) $(field lost)"
! grep -e 'is lost' -e 'not recorded' "$T/err" || fail "it is back"
expect 0 casbox fsck
casbox cat "$(sha256sum < "$T/tree/large" | cut -d ' ' -f 1)" | cmp "$T/tree/large" -

# The counts are those of a walk, whatever was changed by hand.
rm "$(blob_of "$T/tree/small")"
printf 'by hand' > "$T/hand"
install -D -m 444 "$T/hand" "$(blob_of "$T/hand")"
truncate -s 7 "$T/hand"
expect 0 casbox fsck
casbox stat --json > "$T/out"
eq "by stat" "$(find "$STORE/cas" -type f ! -name '.*' -printf '%s %b\n' |
	awk '{ nr++; sum += $1; disk += $2 * 512 } END { print nr, sum, disk }')" \
	"$(field blobs) $(field bytes) $(field disk_bytes)"
