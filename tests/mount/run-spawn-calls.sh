#!/bin/sh
# tests/mount/run-spawn-calls.sh - only spawns that copy no page tables; memory makes no difference
. "$(dirname "$0")/../lib/common.sh"
need root fuse strace

strace -o /dev/null true 2> /dev/null || skip "strace may not trace"

# The spawns of what was traced; a traced command forks nothing by itself.
check_trace() {
	if grep -E '(^|[^v])fork\(' trace; then fail "a fork"; fi
	grep -E 'clone3?\(' trace | grep -v CLONE_THREAD > spawns || fail "no spawn was seen"
	if grep -v 'CLONE_VM.*CLONE_VFORK' spawns; then
		fail "a spawn without CLONE_VM and CLONE_VFORK"
	fi
}

# The daemon is traced, too, so strace ends when the mount does. It may be unmounted once the
# first process, which is the run, has ended.
strace -f -o trace -e trace=process "$CASBOX" run -- /bin/true > /dev/null 2>&1 &
tracer=$!
ran() { grep -q "^$(sed -n '1s/ .*//p' trace) *+++ exited with 0" trace; }
await ran
grep -q 'execve("/bin/true"' trace || fail "the command's start was not seen"
within 20 "$CASBOX" umount
wait $tracer || fail "run below strace: $?"
check_trace
grep 'execve.*internal-helper' trace > helpers || fail "the helper's start was not seen"

casbox mount "$MNT"
strace -f -o trace -e trace=process "$CASBOX" run -- /bin/true || fail "run below strace: $?"
check_trace
eq "spawns of run" 1 "$(wc -l < spawns)"
casbox umount
