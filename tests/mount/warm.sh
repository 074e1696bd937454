#!/bin/sh
# tests/mount/warm.sh - lanes that are warmed before their first sandbox
. "$(dirname "$0")/../lib/common.sh"
. "$HERE/../lib/upcalls.sh"
need root fuse

# Each name and each byte, and no name that is missing.
go_through() {
	(cd "$1" && for f in a/x a/y a/b/z a/b/run top; do cat $f && stat -c '%n %s' $f; done
	stat -c '%n %F' a a/b c c/link)
}

mkdir -p tree/a/b tree/c tree/out
for name in a/x a/y a/b/z a/b/run top; do echo "content of $name" > tree/$name; done
chmod +x tree/a/b/run
ln -s ../a/x tree/c/link
head -c 200000 /dev/urandom > tree/large
one=$(put tree)
echo other > tree/a/b/z
two=$(put tree)
go_through tree > want

hash=${one%/*}
mount_start --lanes 2 --warm "$hash"
await at_least blobs 5
await settled
eq "idle ones" 2 "$(counter config retired)"
eq "blobs" 5 "$(counter stats blobs)"
for lane in 1 2; do
	box=$(sandbox_new "$two" --id lane$lane --output out/)
	ls "$box" > list
	# Looking at it may have more pushed, and that is counted, too.
	await settled
	all_upcalls LOOKUP READ > before
	go_through "$box" > got
	cmp want got || fail "lane $lane shows something else"
	all_upcalls LOOKUP READ > after
	cmp before after || ! known 16 ||
		fail "lane $lane asked: $(cat before after)"
	trees_equal tree "$box"
done
eq "reused ones" 2 "$(counter config reused)"
eq "new ones" 0 "$(counter config fresh)"
box=$(sandbox_new "$two" --id lane3 --output out/)
go_through "$box" > got
cmp want got || fail "the lane that is too many shows something else"
eq "new ones" 1 "$(counter config fresh)"
for lane in 1 2 3; do casbox sandbox remove lane$lane; done
mount_stop

expect 2 casbox mount --lanes 2 "$MNT"
expect 2 casbox mount --lanes 65 --warm "$one" "$MNT"
expect 2 casbox mount --warm nothing "$MNT"
said nothing
absent=$(printf '%064d' 7)/9
expect 1 casbox mount --warm "$absent" "$MNT"
said "$absent"
expect 1 casbox mount --warm "$(put tree/large)" "$MNT"
[ -z "$(mounts_below "$MNT")" ] || fail "it is mounted"

# Without what it takes, it is mounted all the same.
mount_start --without push,reuse --lanes 2 --warm "$one"
box=$(sandbox_new "$two" --id cold --output out/)
go_through "$box" > got
cmp want got || fail "the cold lane shows something else"
casbox sandbox remove cold
mount_stop
