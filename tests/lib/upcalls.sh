# tests/lib/upcalls.sh - what a mount counts, for cases that look at the kernel's caches
#
# After tests/lib/common.sh, with a mount.

# counter COMMAND NAME
counter() {
	casbox ctl "$1" | sed "s/.*\"$2\":\([0-9]*\).*/\1/"
}

# at_least NAME NR, of the counters of stats
at_least() {
	[ "$(counter stats "$1")" -ge "$2" ]
}

# Nothing is to be pushed any more.
settled() {
	[ "$(counter stats waiting)" -eq 0 ]
}

# Others on the machine may have the kernel drop its caches: it forgets all that nobody uses.
# known NR: it knows at least so many nodes, which it would not then.
known() {
	[ "$(counter config nodes_one)" -ge "$1" ]
}

# upcalls KIND: how many of them session one has had so far
upcalls() {
	casbox ctl stats | sed "s/.*\"one\":{[^}]*\"upcalls\":{\([^}]*\)}.*/\1/" | tr , '\n' |
		sed -n "s/\"$1\"://p" | grep . || echo 0
}

# all_upcalls KIND...: a line of each
all_upcalls() {
	for kind in "$@"; do echo "$kind $(upcalls "$kind")"; done
}
