#!/bin/sh
# tests/mount/output-flagged.sh - outputs that an action made immutable are captured, and go
. "$(dirname "$0")/../lib/common.sh"
need root fuse chattr

mkdir -p probe tree
echo input > tree/i
touch probe/f
chattr +i probe/f 2> /dev/null || skip "no immutable files here"
chattr -i probe/f
root=$(put tree)
mount_start
for policy in outputs all; do
	sb=$(sandbox_new "$root" --id x --writable $policy --output out/)
	mkdir -p "$sb/out/d/e" "$sb/out/a"
	for file in out/f out/d/f out/d/e/f out/a/f out/log; do echo "$file" > "$sb/$file"; done
	chmod 500 "$sb/out/a"
	chattr +a "$sb/out/log" "$sb/out/a"
	chattr +i "$sb/out/f" "$sb/out/d/e/f" "$sb/out/d/e" "$sb/out/d"
	[ $policy = all ] || chattr +i "$sb/out"
	casbox sandbox finish x > said
	digest=$(sed -n 's/^out\t//p' said)
	rm -rf res
	casbox checkout "$digest" res
	(cd res && find . -type f | sort | paste -sd ' ') > names
	eq "files" "./a/f ./d/e/f ./d/f ./f ./log" "$(cat names)"
	eq "content" out/d/e/f "$(cat res/d/e/f)"
	casbox sandbox remove x
	gone() { ! ls -d "$STORE"/sandboxes/.gone-* 2> /dev/null; }
	await gone
done
mount_stop
gone || fail "left behind: $(ls -d "$STORE"/sandboxes/.gone-*)"
! grep -q "cannot remove" daemon.log || fail "$(grep 'cannot remove' daemon.log)"
