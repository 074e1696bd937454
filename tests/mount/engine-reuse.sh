#!/bin/sh
# tests/mount/engine-reuse.sh - roots and directories that move between sandboxes, with served layers
. "$(dirname "$0")/../lib/common.sh"
need root fuse mount

mkdir -p tree/src/deep/er tree/lib
echo a > tree/src/deep/er/a
echo b > tree/src/deep/b
echo l > tree/lib/l
root=$(put tree)
# Shared as between sandboxes of a plain user, whom nothing lets write to what root owns.
mount_start --engine fuse-shared

s=$(sandbox_new "$root" --id first --output out/)
trees_equal tree/src "$s/src"
casbox sandbox remove first
for i in 1 2 3; do
	s=$(sandbox_new "$root" --id one --output src/deep/er/o)
	t=$(sandbox_new "$root" --id two --output src/deep/n/o)
	eq "an input beside" b "$(cat "$s/src/deep/b")"
	echo "x $i" > "$s/src/deep/er/o"
	echo "y $i" > "$t/src/deep/n/o"
	eq "one" "a o" "$(ls -m "$s/src/deep/er" | tr -d ,)"
	eq "two" "b er n" "$(ls -m "$t/src/deep" | tr -d ,)"
	"$FSCHECK" call ENOENT stat "$t/src/deep/er/o"
	"$FSCHECK" call ENOENT stat "$s/src/deep/n"
	"$FSCHECK" call EROFS mkdir "$s/src/deep/new"
	casbox sandbox finish one > one
	casbox sandbox finish two > two
	eq "captured" "x $i" "$(casbox cat "$(cut -f2 one)")"
	eq "captured" "y $i" "$(casbox cat "$(cut -f2 two)")"
	casbox sandbox remove one
	casbox sandbox remove two
	s=$(sandbox_new "$root" --id three --output out/)
	trees_equal tree/src "$s/src"
	eq "nothing is left in out" "" "$(ls "$s/out")"
	echo left > "$s/out/left"
	casbox sandbox remove three
done
casbox ctl --mount "$MNT" config | grep -q '"reused":[1-9]' || fail "no root was reused"
mount_stop
