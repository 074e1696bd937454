#!/bin/sh
# tests/mount/leftovers-left-out.sh - what a killed checkout or run left beside is not stored
. "$(dirname "$0")/../lib/common.sh"
need fuse strace

mkdir tree work
echo input > tree/in
echo mine > work/.casbox-mine
mkdir work/src
echo source > work/src/a
digest=$(put tree)
before=$(put work)

# killed COMMAND...: by SIGKILL when it is about to give something its final name.
killed() {
	status=0
	strace -qq -o trace -e trace=renameat,renameat2 \
		-e inject=renameat,renameat2:signal=SIGKILL:error=EINTR:when=1 "$@" > out 2> err || status=$?
	[ "$status" -eq 137 ] || fail "status $status instead of 137: $*: $(cat err)"
}

mount_start
killed "$CASBOX" checkout "$digest" work/co
eq "left by checkout" 2 "$(ls -A work | grep -c '^.casbox')"
eq "digest after a killed checkout" "$before" "$(put work)"
killed "$CASBOX" run --mount "$MNT" --root "$digest" --output out --into work -- cp in out
eq "left by run" 3 "$(ls -A work | grep -c '^.casbox')"
eq "digest after a killed run" "$before" "$(put work)"

# A file of the user's that only looks like it is stored, and stays.
echo more >> work/.casbox-mine
[ "$(put work)" != "$before" ] || fail "a file of the user's was left out"
eq "mine" 2 "$(wc -l < work/.casbox-mine)"
# The next checkout to the same place sweeps what the killed one left.
casbox checkout "$digest" work/co
eq "left in the end" 2 "$(ls -A work | grep -c '^.casbox')"
