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
eq "standard error" "to stderr" "$(head -n 1 said-err)"
grep -q "did not make the output report" said-err || fail "$(cat said-err)"
eq "build" "link sub two" "$(ls proj/build | paste -sd ' ')"
eq "copy" "one one" "$(paste -sd ' ' proj/build/sub/copy)"
eq "link" two "$(readlink proj/build/link)"
eq "an output that was not made" stale "$(cat proj/report)"
eq "notes" mine "$(cat proj/notes)"
eq "top" "build notes report src" "$(ls -A proj | paste -sd ' ')"
[ -s res.pb ] || fail "no binary result"
[ ! -e res.json ] || fail "the first --result was written, too"

# Into another place, from a stored root; outputs keep the executable bit.
root=$(put proj/src)
odd=$(printf 'two\nlines é')
casbox run --root "$root" --output "$odd" --into elsewhere -- sh -c 'cp a "$1"' sh "$odd"
eq "an output of two lines" one "$(cat "elsewhere/$odd")"
rm -f "elsewhere/$odd"
casbox run --root "$root" --output x --output deep/er/y --into elsewhere --result res.json -- \
	sh -c 'cp a x; chmod +x x; cp a deep/er/y'
eq "mode of x" 555 "$(stat -c %a elsewhere/x)"
eq "mode of y" 444 "$(stat -c %a elsewhere/deep/er/y)"
grep -q '"isExecutable": true' res.json || fail "$(cat res.json)"

# A failing command still brings what it made, and its status.
expect 7 casbox run --root "$root" --output log --into elsewhere -- sh -c 'echo why > log; exit 7'
eq "log" why "$(cat elsewhere/log)"
# One that makes nothing costs nothing; without a place for outputs their digests are told.
expect 1 casbox run --input proj --output notes -- false
eq "notes" mine "$(cat proj/notes)"
casbox run --root "$root" --output b -- cp a b 2> said-err
grep -q "captured b: $(sha256sum proj/src/a | cut -c 1-64)/4" said-err || fail "$(cat said-err)"
# Many names beside outputs are told in short.
casbox run --root "$root" --output b -- sh -c 'cp a b; for i in $(seq 20); do touch n$i; done' 2> said-err
eq "lines about names" 9 "$(grep -c dropped said-err)"
grep -q "dropped as well: 12 more names" said-err || fail "$(cat said-err)"
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
