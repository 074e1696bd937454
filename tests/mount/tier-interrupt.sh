#!/bin/sh
# a command that waits for a silent server ends when it is told to, whatever it waits for
. "$(dirname "$0")/../lib/common.sh"
. "$HERE/../lib/tier.sh"
http_start

mkdir "$T/tree"
echo far > "$T/tree/far"
root=$(far_put "$T/tree")
file=$(far_put "$T/tree/far")
tier="$URL?deadline=1h&tries=1"

# ended WHAT COMMAND [WORD...]: it dies of SIGTERM as soon as the server was asked.
ended() {
	what=$1
	shift
	: > "$T/http/log"
	"$CASBOX" --tier "$tier" "$@" > "$T/out" 2> "$T/err" &
	pid=$!
	asked() { [ "$(gets)" -ge 1 ]; }
	await asked
	kill -TERM "$pid"
	gone() { ! grep -q '^State:.[^Z]' "/proc/$pid/status"; }
	await gone
	status=0
	wait "$pid" || status=$?
	eq "$what" 143 "$status"
}

fault hang
ended "pull: a Directory" pull "$root"
ended "checkout: a Directory" checkout "$root" "$T/laid"
ended "cat" cat "$file"
fault none
expect 0 casbox --tier "$tier" ls "$root"
fault hang
ended "pull: a file" pull "$root"
ended "checkout: a file" checkout "$root" "$T/laid"
[ ! -e "$T/laid" ] || fail "something was laid out"
fault none
expect 0 casbox --tier "$tier" checkout "$root" "$T/laid"
diff -r "$T/tree" "$T/laid" || fail "another tree"
