#!/bin/sh
# tests/mount/run-outputs.sh - run with no mount, no server: outputs replaced, nothing else touched
. "$(dirname "$0")/../lib/common.sh"
need fuse overlay

groups=$(find /sys/fs/cgroup -maxdepth 2 -name 'casbox-*' 2> /dev/null) || :
mkdir -p proj/src proj/build
echo one > proj/src/a
echo stale > proj/build/old
echo stale > proj/report
echo mine > proj/notes
cat > make.sh <<'END'
set -e
test ! -e build/old -a ! -e report
cat src/a src/a > build/two
mkdir build/sub
cp build/two build/sub/copy
ln -s two build/link
echo "to stdout"
echo "to stderr" >&2
END
casbox run --input proj --output build/ --output report --result res.json --result res.pb -- \
	sh "$T/make.sh" > said-out 2> said-err
eq "standard output" "to stdout" "$(cat said-out)"
eq "standard error" "to stderr" "$(cat said-err)"
eq "build" "link sub two" "$(ls proj/build | paste -sd ' ')"
eq "copy" "one one" "$(paste -sd ' ' proj/build/sub/copy)"
eq "link" two "$(readlink proj/build/link)"
[ ! -e proj/report ] || fail "an output that was not made is still there"
eq "notes" mine "$(cat proj/notes)"
eq "top" "build notes src" "$(ls -A proj | paste -sd ' ')"
[ -s res.pb ] || fail "no binary result"
[ ! -e res.json ] || fail "the first --result was written, too"

# Into another place, from a stored root; outputs keep the executable bit.
root=$(put proj/src)
casbox run --root "$root" --output x --output deep/er/y --into elsewhere --result res.json -- \
	sh -c 'cp a x; chmod +x x; cp a deep/er/y'
eq "mode of x" 555 "$(stat -c %a elsewhere/x)"
eq "mode of y" 444 "$(stat -c %a elsewhere/deep/er/y)"
grep -q '"isExecutable": true' res.json || fail "$(cat res.json)"

# A failing command still brings what it made, and its status.
expect 7 casbox run --root "$root" --output log --into elsewhere -- sh -c 'echo why > log; exit 7'
eq "log" why "$(cat elsewhere/log)"
# What no output covers is refused; what replaces an input fails the run by name.
expect 2 casbox run --root "$root" -- sh -c 'echo x > new'
said Read-only
expect 125 casbox run --root "$root" --output b -- sh -c 'echo changed > a'
said "a"
eq "sandboxes left" "" "$(casbox sandbox list)"
eq "groups left" "$groups" "$(find /sys/fs/cgroup -maxdepth 2 -name 'casbox-*' 2> /dev/null)"
casbox fsck
casbox umount
[ -n "${TEST_PLAIN:-}" ] || again_as_plain
