#!/bin/sh
# tests/mount/walk-calls.sh - walks look at names by the directory's descriptor only
. "$(dirname "$0")/../lib/common.sh"
need strace
strace -o "$T/probe" true 2> /dev/null || skip "strace may not trace"

mkdir -p tree/a/b
for n in $(seq 50); do
	echo "$n" > "tree/a/f$n"
	echo "$n $n" > "tree/a/b/g$n"
done

# traced COMMAND...: none of its calls has a path that leads through the directories walked.
traced() {
	strace -f -qq -e trace=file -o "$T/trace" "$CASBOX" "$@" > "$T/out"
	! grep -E "\"$T/tree/a|\"(tree/)?a/|\"b/|\"$STORE/(cas|links|ac)/|\"cas/[0-9a-f]" "$T/trace" ||
		fail "$1 resolves paths"
}
looks() {
	grep -cE "(newfstatat|statx)\([0-9]+, \"$1\"" "$T/trace" || :
}
traced put tree
[ "$(looks '[fg][0-9]*')" -ge 100 ] || fail "put: no looks seen"
traced put tree
[ "$(looks '[fg][0-9]*')" -ge 100 ] || fail "put again: no looks seen"
traced fsck
rm -rf "$STORE/meta"
traced gc --max-size 1M
[ "$(looks '[0-9a-f]{64}')" -ge 100 ] || fail "gc: no looks seen"
