#!/bin/sh
# tests/mount/run-descriptors.sh - none of our descriptors in the command, make's jobserver is
. "$(dirname "$0")/../lib/common.sh"
need root fuse

list='for f in /proc/$$/fd/*; do echo "${f##*/} $(readlink $f)"; done'
sh -c "$list" < /dev/null > plain 2> errors
casbox run -- sh -c "$list" < /dev/null > inside 2> errors
eq "descriptors" "$(cut -d ' ' -f 1 plain | paste -sd ' ')" "$(cut -d ' ' -f 1 inside | paste -sd ' ')"
same='stat -Lc "%d:%i" /proc/$$/fd/9'
sh -c "$same" 9< /dev/null > plain
casbox run -- sh -c "$same" 9< /dev/null > inside
eq "an inherited one" "$(cat plain)" "$(cat inside)"

# The daemon and its helper keep nothing of whoever started them.
pid=$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' "$STORE/run/daemon")
if ls -l "/proc/$pid/fd" | grep -E "$T/(inside|errors|plain)"; then
	fail "the daemon holds a descriptor of its starter"
fi
need make
mkdir proj
printf 'all: a b\na b:\n\t@echo $@\n' > proj/Makefile
printf 'all:\n\t+@%s run --input proj -- $(MAKE) 2>&1\n' "$CASBOX" > Makefile
make -j2 > made 2>&1 || fail "$(cat made)"
if grep -i jobserver made; then
	fail "the jobserver did not reach the command"
fi
eq "made" "a b" "$(grep -x '[ab]' made | sort | paste -sd ' ')"
casbox umount
