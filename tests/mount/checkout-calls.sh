#!/bin/sh
# tests/mount/checkout-calls.sh - each file is touched once: no second walk, modes at creation
. "$(dirname "$0")/../lib/common.sh"
need strace
strace -o "$T/probe" true 2> /dev/null || skip "strace may not trace"

NR=300
mkdir tree
for n in $(seq $NR); do
	d=tree/d$((n % 10))
	mkdir -p "$d"
	echo "$n" > "$d/f$n"
	[ $((n % 3)) -ne 0 ] || chmod 755 "$d/f$n"
done
root=$(put tree)
casbox checkout --mode hardlink "$root" warm

# calls NAME [PATTERN]: how often, in what was traced last.
calls() {
	grep -c "^[0-9 ]*$1(.*${2:-}" "$T/trace" || :
}
traced() {
	strace -f -qq -o "$T/trace" "$CASBOX" checkout --mode "$1" -j 2 "$root" "$T/to-$1"
	# A call that another thread interrupted is shown in two lines; the first one counts.
	for call in fchmod chmod fchmodat fchmodat2 fchown fchownat utimensat; do
		[ "$(calls "$call" 'f[0-9]*"')" -eq 0 ] || fail "$1: $call of a file"
	done
	eq "$1: fchmod" 0 "$(calls fchmod)"
	[ "$(calls mkdirat '"d[0-9]"')" -eq 10 ] || fail "$1: $(calls mkdirat) directories made"
	eq "$1: directories listed" 0 "$(calls getdents64 '.*f[0-9]')"
}
umask 022
traced hardlink
eq "links" $NR "$(calls linkat '"f[0-9]*"')"
eq "files opened" 0 "$(calls openat '"f[0-9]*"')"
looks=$(calls newfstatat '"[0-9a-f]*/[0-9a-f]*"')
[ "$looks" -le $((NR + 20)) ] || fail "hardlink: $looks looks at $NR variants"
traced copy
eq "files made" $NR "$(calls openat '"f[0-9]*", O_WRONLY|O_CREAT')"
eq "links" 0 "$(calls linkat)"
