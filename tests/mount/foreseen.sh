#!/bin/sh
# tests/mount/foreseen.sh - what somebody who goes through a directory will ask for next, and
# what sandboxes before looked for in vain
. "$(dirname "$0")/../lib/common.sh"
. "$HERE/../lib/upcalls.sh"
need root fuse

# So many directories were, or one was not, as the machine is busy.
listed() {
	at_least directories "$1" || at_least skipped 1
}

mkdir -p tree/a/b tree/c tree/out
for name in a/x a/y a/b/z top; do echo "content of $name" > tree/$name; done
one=$(put tree)

# What is looked for in vain is known the next time, unless it is there by then.
in_vain() {
	for name in nowhere a/nowhere.h a/b/nowhere.h c/y none/x; do
		[ ! -e "$1/$name" ] || fail "$name is in $1"
	done
}
mount_start
in_vain "$(sandbox_new "$one" --id one --output out/)"
casbox sandbox remove one
mount_stop
[ -s "$STORE/run/missed" ] || fail "the missed names are not kept"
mount_start --warm "$one"
await settled
box=$(sandbox_new "$one" --id one --output out/)
ls "$box" > list
await settled
all_upcalls LOOKUP READ > before
in_vain "$box"
all_upcalls LOOKUP READ > after
cmp before after || ! known 10 || fail "asked: $(cat before after)"
casbox sandbox remove one
mount_stop
# Without being warmed, where somebody goes through a directory; unless all processors of
# the machine are in use.
mount_start
box=$(sandbox_new "$one" --id one --output out/)
stat "$box/a/x" "$box/a/y" > got
await listed 2
await settled
if at_least directories 2 && known 10; then
	all_upcalls LOOKUP READ > before
	[ ! -e "$box/nowhere" ] && [ ! -e "$box/a/nowhere.h" ] || fail "a missing name is there"
	all_upcalls LOOKUP READ > after
	cmp before after || fail "asked: $(cat before after)"
fi
casbox sandbox remove one
mkdir tree/none
echo "x in none" > tree/none/x
echo "y in c" > tree/c/y
found=$(put tree)
box=$(sandbox_new "$found" --id found --output out/)
trees_equal tree "$box"
casbox sandbox remove found
mount_stop
mount_start --warm "$found"
await settled
box=$(sandbox_new "$found" --id found --output out/)
trees_equal tree "$box"
casbox sandbox remove found
mount_stop
rm -r tree/none tree/c/y

# The second name in a directory has the others come: of c, and of the top, where out and
# c were asked for.
for i in $(seq 40); do echo "$i" > tree/c/$i; done
three=$(put tree)
mount_start
box=$(sandbox_new "$three" --id three --output out/)
stat "$box/c/1" "$box/c/2" > got
await listed 2
await settled
if at_least directories 2; then
	eq "blobs" 41 "$(counter stats blobs)"
	known 45 && known=yes || known=no
	all_upcalls LOOKUP READ > before
	for i in $(seq 40); do cat "$box/c/$i"; done > got
	seq 40 | cmp - got || fail "c shows something else"
	all_upcalls LOOKUP READ > after
	cmp before after || [ $known = no ] || fail "asked: $(cat before after)"
fi
casbox sandbox remove three
mount_stop
