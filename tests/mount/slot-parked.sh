#!/bin/sh
# tests/mount/slot-parked.sh - a retired root keeps its bind for the next sandbox, and no other
. "$(dirname "$0")/../lib/common.sh"
need root fuse
alone

count() {
	casbox ctl config | sed "s/.*\"$1\":\([0-9]*\).*/\1/"
}

parked() {
	mounts_below "$MNT" | grep '/\.slot-' || :
}

mkdir -p one/d one/out
echo first > one/d/f
cp -a one two
echo second > two/d/f
one=$(put one)
two=$(put two)
mount_start

# One bind, whatever comes and goes; without outputs there is nothing else to mount.
for outputs in "--output out/" "--output d/made" "--output out/ --output d/x/y" ""; do
	for root in $one $two $one; do
		# shellcheck disable=SC2086
		box=$(sandbox_new "$root" --id box $outputs)
		eq "content" "$([ "$root" = "$one" ] && echo first || echo second)" "$(cat "$box/d/f")"
		eq "binds of the sandbox" "$box" "$(mounts_below "$MNT" | grep "^$box$")"
		eq "parked while it lives" "" "$(parked)"
		casbox sandbox remove box
		[ ! -e "$box" ] || fail "it is still there"
		eq "parked" 1 "$(parked | wc -l)"
	done
done
eq "never looked up" "" "$(sandbox_new "$one" --id unseen > /dev/null && casbox sandbox remove unseen)"
eq "parked" 1 "$(parked | wc -l)"
[ "$(count reused)" -ge 10 ] || fail "only $(count reused) reused"

# Whoever looks for it before it has its layers is not in the way, nor are they.
touch look
while [ -e look ]; do
	[ ! -d "$MNT/sandboxes/box" ] || ls "$MNT/sandboxes/box/out"
done > looked.txt 2>&1 &
looker=$!
reused=$(count reused)
for root in $one $two $one $two $one $two $one $two $one $two; do
	box=$(sandbox_new "$root" --id box --output out/ --output d/x/y)
	echo o > "$box/out/o"
	mkdir "$box/d/x/y"
	eq "layers" "$box $box/d/x $box/out" \
		"$(mounts_below "$MNT" | grep "^$box" | sort | paste -sd ' ')"
	casbox sandbox finish box --remove > finished.txt
	eq "outputs" "d/x/y out" "$(cut -f1 finished.txt | paste -sd ' ')"
done
rm look
wait $looker || : # what it saw last was gone
[ "$(count reused)" -ge $((reused + 5)) ] || fail "only $(($(count reused) - reused)) reused"

# Finished, it is parked before it shows its result.
box=$(sandbox_new "$two" --id box --output out/)
echo o > "$box/out/o"
casbox sandbox finish box > /dev/null
eq "parked" 1 "$(parked | wc -l)"
eq "result" "o second" "$(cat "$box/out/o" "$box/d/f" | paste -sd ' ')"
casbox sandbox remove box

# Who finds his way into a parked root sees the next sandbox, keeps it from being reused,
# and what he is in goes with it.
sh -c 'cd "$1" && echo in && exec sleep 1000' sh "$(parked)/d" > in.txt &
holder=$!
await grep -q in in.txt
reused=$(count reused)
busy=$(count busy)
box=$(sandbox_new "$one" --id next --output out/)
eq "reused" $((reused + 1)) "$(count reused)"
eq "content" first "$(cat "$box/d/f")"
casbox sandbox finish next --remove > /dev/null
eq "busy" $((busy + 1)) "$(count busy)"
nothing_parked() { [ -z "$(parked)" ]; }
await nothing_parked
kill $holder
wait $holder 2> /dev/null || :

# Those that are too many go with their binds, and all of them when the mount ends.
for i in $(seq 70); do
	sandbox_new "$one" --id "many-$i" > /dev/null
done
for i in $(seq 70); do
	casbox sandbox remove "many-$i"
done
few_parked() { [ "$(parked | wc -l)" -le 64 ]; }
await few_parked
mount_stop
