#!/bin/sh
# tests/mount/output-odd.sh - what cannot be captured is named, the rest is captured (C21, C22)
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

mkdir "$T/tree"
echo input > "$T/tree/input"
root=$(put "$T/tree")
mount_start

# A pipe among the outputs: named, nothing waits for it, the others are there.
sandbox=$(sandbox_new "$root" --id odd --output out --output pipe)
mkdir "$sandbox/out"
echo good > "$sandbox/out/good"
mkfifo "$sandbox/out/inner" "$sandbox/pipe"
within 20 "$CASBOX" sandbox finish odd > "$T/finish" 2> "$T/said" || :
grep -q pipe "$T/said" || fail "the pipe is not named: $(cat "$T/said")"
casbox sandbox remove odd

# Declared twice, inside of each other, spelled oddly: once each, equal digests.
sandbox=$(sandbox_new "$root" --id nest --output d --output d/f --output d/sub --output d)
mkdir -p "$sandbox/d/sub"
echo f > "$sandbox/d/f"
echo g > "$sandbox/d/sub/g"
casbox sandbox finish nest > "$T/finish"
eq "paths" "d d/f d/sub" "$(cut -f 1 "$T/finish" | tr '\n' ' ' | sed 's/ $//')"
eq "d" "$(put "$sandbox/d")" "$(sed -n 's|^d\t||p' "$T/finish")"
eq "d/sub" "$(put "$sandbox/d/sub")" "$(sed -n 's|^d/sub\t||p' "$T/finish")"
casbox sandbox remove nest

# Paths that leave the sandbox.
for bad in ../x /etc/x a/../../x; do
	expect 1 casbox sandbox create --root "$root" --id bad --output "$bad" --mount "$MNT"
	said "$bad"
done
"$FSCHECK" call ENOENT stat "$MNT/sandboxes/bad"
mount_stop
