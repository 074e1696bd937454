#!/bin/sh
# tests/mount/finish-left.sh - a finish whose client is killed ends, and can be done again
. "$(dirname "$0")/../lib/common.sh"
need mount

mkdir "$T/in"
echo input > "$T/in/input"
root=$(put "$T/in")
mount_start
events=$MNT/.casbox/events

# Seconds of hashing, and no room on the disk.
NR=60
# In one process: what is closed early is hashed while the rest is made.
fill() { # DIR NR
	(cd "$1/out" && truncate -s 64M $(seq -f f%g "$2"))
}
is_finishing() {
	casbox sandbox list | grep -q "^$1	finishing"
}
# Who is killed before he asks for the answer gets it done, as one who does not wait for it.
is_waiting() { # PID
	grep -q request_wait_answer "/proc/$1"/task/*/wchan
}

# leave ID WORD...: kill who waits for that finish.
leave() {
	"$CASBOX" sandbox finish "$@" > "$T/said" 2>&1 &
	client=$!
	await is_finishing "$1"
	await is_waiting "$client"
	kill -9 "$client"
	wait "$client" || :
	await grep -q "\"sandbox-failed\".*\"$1\"" "$events"
	grep "\"sandbox-failed\".*\"$1\"" "$events" | grep -q ECANCELED || fail "not told why"
	! grep -q "\"sandbox-finished\".*\"$1\"" "$events" || fail "$1 was finished for nobody"
}

box=$(sandbox_new "$root" --id one --output out/)
fill "$box" $NR
leave one
casbox sandbox finish one > "$T/said"
tree=$(cut -f 2 "$T/said")
eq "files captured" $NR "$(casbox ls "$tree" | wc -l)"
eq "again" "$(cat "$T/said")" "$(casbox sandbox finish one)"
casbox sandbox remove one

# It need not be finished; and what should have been removed is still there.
box=$(sandbox_new "$root" --id two --output out/)
fill "$box" $NR
leave two --remove
casbox sandbox show two > "$T/shown"
casbox sandbox remove two
expect 1 "$CASBOX" sandbox show two

# Who asks and does not wait for the answer gets it done.
box=$(sandbox_new "$root" --id three --output out/)
fill "$box" 5
echo "finish three" > "$MNT/.casbox/control"
await grep -q '"sandbox-finished".*"three"' "$events"
mount_stop
casbox fsck
