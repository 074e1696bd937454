#!/bin/sh
# tests/mount/run-survivors.sh - C36: what the action leaves behind is gone before capture
. "$(dirname "$0")/../lib/common.sh"
need fuse

mark=casbox-survivor-$$
alive() {
	for f in /proc/[0-9]*/environ; do
		tr '\0' '\n' 2> /dev/null < "$f" | grep -qx "MARK=$mark" && echo "${f#/proc/}"
	done
	return 0
}
cat > action.sh <<'END'
sleep 300 > out/held &
setsid sh -c 'trap "" TERM HUP INT; while :; do echo more >> out/grows; sleep 0.01; done' &
(setsid sh -c 'sleep 300 & sleep 300' &)
sh -c 'trap "" TERM; sleep 300 & wait' &
sleep 0.2
echo done
END
# Its standard output is ours (a file), a pipe of ours, and kept: none is waited for.
within 10 "$CASBOX" run --output out/ --into res --env MARK=$mark -- sh "$T/action.sh" > said
eq "said" done "$(cat said)"
eq "survivors" "" "$(alive)"
size=$(stat -c %s res/out/grows)
[ "$size" -gt 0 ] || fail "nothing was captured"
[ -e res/out/held ] || fail "an open output was not captured"
eq "said" done "$(within 10 "$CASBOX" run --output out/ --env MARK=$mark -- sh "$T/action.sh" | cat)"
within 10 "$CASBOX" run --result r --output out/ --env MARK=$mark -- sh "$T/action.sh" > said
eq "said" done "$(cat said)"
eq "survivors" "" "$(alive)"

# Killed itself, run takes everything along: by signal; and without a chance where there
# are control groups, which a plain user's namespace has none of.
signals='TERM KILL'
[ -z "${TEST_PLAIN:-}" ] || signals=TERM
for signal in $signals; do
	"$CASBOX" run --output out/ --env MARK=$mark -- sh -c "sh $T/action.sh; sleep 300" > up &
	pid=$!
	await grep -q done up
	kill -$signal $pid
	status=0
	wait $pid 2> /dev/null || status=$?
	[ "$status" -ne 0 ] || fail "status 0 after SIG$signal"
	gone() { [ -z "$(alive)" ] && [ -z "$("$CASBOX" sandbox list)" ]; }
	await gone
done
within 10 "$CASBOX" umount
[ -n "${TEST_PLAIN:-}" ] || again_as_plain
