#!/bin/sh
# tests/mount/slot-pushed.sh - what changed in a reused root is in the kernel's caches
# before anybody asks, it is right, and nobody has to wait for it
. "$(dirname "$0")/../lib/common.sh"
. "$HERE/../lib/upcalls.sh"
need root fuse

mkdir -p tree/p/sub tree/q tree/r tree/out
for i in $(seq 20); do echo "p $i" > "tree/p/$i"; done
echo z > tree/q/z
echo old > tree/r/old
one=$(put tree)
for i in $(seq 5); do echo "p $i, other" > "tree/p/$i"; done
echo new > tree/p/new
rm tree/p/20 tree/r/old
echo 'z, other' > tree/q/z
head -c 100000 /dev/zero > tree/p/large
: > tree/p/empty
two=$(put tree)

mount_start
grep -qx 'push = yes' "$MNT/.casbox/config" || fail "push is off: $(casbox ctl config)"
box=$(sandbox_new "$one" --id one --output out/)
cat "$box"/p/* "$box/q/z" "$box/r/old" > before 2> /dev/null || :
ls "$box/r" > before
[ ! -e "$box/p/new" ] || fail "too early"
await settled
casbox sandbox remove one
eq "names without a reuse" 0 "$(counter stats names)"
blobs=$(counter stats blobs)
box=$(sandbox_new "$two" --id two --output out/)
await at_least names 9
await settled
eq "names that are there" 9 "$(counter stats names)"
eq "blobs" $((blobs + 7)) "$(counter stats blobs)"
all_upcalls LOOKUP GETATTR READ READDIRPLUS > upcalls-before
for name in p/1 p/2 p/3 p/4 p/5 p/new q/z; do
	cmp "tree/$name" "$box/$name" || fail "$name is another"
done
[ ! -e "$box/p/20" ] && [ ! -e "$box/r/old" ] || fail "what is gone is there still"
[ -s "$box/p/large" ] && [ ! -s "$box/p/empty" ] || fail "sizes are wrong"
# The list of sandboxes changed: the root of them is asked for once, by whoever passes.
all_upcalls LOOKUP GETATTR READ READDIRPLUS | grep -v GETATTR > got
grep -v GETATTR upcalls-before | cmp -s - got || ! known 25 ||
	fail "asked for what was pushed: $(cat upcalls-before got)"
rmdir tree/out "$box/out" 2> err || :
mkdir -p tree/out
trees_equal tree "$box"
casbox sandbox remove two

# Ends right behind beginnings: each finds its root idle, a push under way or not, and the
# result of a finished one is not made for its sake.
fresh=$(counter config fresh)
for i in $(seq 25); do
	for root in "$one" "$two"; do
		sandbox_new "$root" --id quick --output out/ > box
		casbox sandbox finish quick > finished
		casbox sandbox remove quick
	done
done
eq "busy ones" 0 "$(counter config busy)"
eq "untold ones" 0 "$(counter config untold)"
# The kernel may forget one, when somebody drops its caches.
eq "fresh ones" $((fresh + $(counter config forgotten))) "$(counter config fresh)"
box=$(sandbox_new "$two" --id last --output out/)
trees_equal tree "$box"
casbox sandbox remove last
mount_stop

mount_start --without push
grep -qx 'push = no (forced off)' "$MNT/.casbox/config" || fail "push is not off"
box=$(sandbox_new "$one" --id one --output out/)
cat "$box"/p/* > before 2> /dev/null || :
casbox sandbox remove one
box=$(sandbox_new "$two" --id two --output out/)
trees_equal tree "$box"
casbox sandbox remove two
case $(casbox ctl stats) in *'"push"'*) fail "pushes are counted" ;; esac
mount_stop
