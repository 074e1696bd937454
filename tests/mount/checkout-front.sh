#!/bin/sh
# tests/mount/checkout-front.sh - what `casbox` does without executing casbox-full, and what not
. "$(dirname "$0")/../lib/common.sh"
need root mount strace

store_on_btrfs
tree=$T/tree
mkdir -p "$tree"
for d in $(seq 20); do
	mkdir "$tree/d$d"
	for f in $(seq 30); do
		echo "$d $f" > "$tree/d$d/f$f"
	done
done
root=$(put "$tree")
casbox checkout "$root" "$T/b/first"

# ran PROGRAMS WORD...: how many programs that takes, strace's own child included.
ran() {
	want=$1
	shift
	rm -rf "$T/b/to"
	strace -f -qq -e trace=execve -o "$T/trace" "$@" > "$T/out" 2> "$T/err" < /dev/null ||
		fail "$*: status $?: $(cat "$T/err")"
	eq "programs for $*" "$want" "$(grep -c 'execve(.* = 0$' "$T/trace")"
}
made() {
	trees_equal "$tree" "$T/b/to"
	rm -rf "$T/b/to"
}

# By the front alone, whatever says nothing new.
for words in "checkout $root $T/b/to" "checkout --mode auto $root $T/b/to" \
	"checkout $root --mode=auto $T/b/to" "--store=$STORE checkout $root $T/b/to" \
	"checkout $root $T/b/to --store $STORE"; do
	ran 1 "$CASBOX" $words
	[ "$(stat -c %i "$T/b/to")" -eq 256 ] || fail "no snapshot"
	eq "said" "" "$(cat "$T/out" "$T/err")"
	made
done
CASBOX_DURABILITY=none ran 1 "$CASBOX" checkout "$root" "$T/b/to"
CASBOX_MAX_SIZE=10G ran 1 "$CASBOX" checkout "$root" "$T/b/to"
echo 'mode = auto' > "$STORE/config"
ran 1 "$CASBOX" checkout "$root" "$T/b/to"
rm "$STORE/config"
mkdir "$T/b/empty"
ran 1 "$CASBOX" checkout "$root" "$T/b/empty"
trees_equal "$tree" "$T/b/empty"

# Its use is told as the whole program tells it.
rm -f "$STORE/run/uses"
ran 1 "$CASBOX" checkout "$root" "$T/b/to"
one=$(sed 's/[;!]*$//' "$STORE/run/uses")
rm -f "$STORE/run/uses"
ran 1 "$FULL_CASBOX" checkout "$root" "$T/b/to"
eq "use" "$(sed 's/[;!]*$//' "$STORE/run/uses")" "$one"

# All else is executed, with the same words.
for words in "--version" "checkout --help" "checkout --json $root $T/b/to" \
	"checkout -j 2 $root $T/b/to" "checkout --mode copy $root $T/b/to" "checkout -m auto $root $T/b/to" \
	"checkout -- $root $T/b/to" "checkout ${root%/*} $T/b/to" "checkout $root $T/elsewhere" \
	"--log-level warn checkout $root $T/b/to" "stat"; do
	ran 2 "$CASBOX" $words
done
trees_equal "$tree" "$T/elsewhere"
CASBOX_THREADS=1 ran 2 "$CASBOX" checkout "$root" "$T/b/to"
CASBOX_MODE=copy ran 2 "$CASBOX" checkout "$root" "$T/b/to"
rm -rf "$T/b/to"
"$CASBOX" checkout "$root" "$T/b/to" <&- >&- 2>&-
made

# What is wrong is told in the same words, with the same status.
same() {
	rm -rf "$T/b/bad"
	a=0
	b=0
	"$CASBOX" "$@" > "$T/a" 2>&1 || a=$?
	"$FULL_CASBOX" "$@" > "$T/b.txt" 2>&1 || b=$?
	[ "$a" -ne 0 ] || fail "$*: no failure"
	eq "status of $*" "$b" "$a"
	eq "words of $*" "$(cat "$T/b.txt")" "$(cat "$T/a")"
}
same
same checkout
same checkout "$root"
same checkout "$root" "$T/b/bad" more
same checkout --nonsense "$root" "$T/b/bad"
same checkout --mode sideways "$root" "$T/b/bad"
same checkout "$root" "$T/b/first"
same checkout "$root" "$T/b/none/bad"
same checkout "$root" "$T/b/first/d1/f1"
same checkout "$root" /
same checkout nonsense "$T/b/bad"
same checkout "$(echo "${root%/*}" | tr 0-9a-f 1-9a-f0)/77" "$T/b/bad"
same --store "$T/elsewhere" checkout "$root" "$T/b/bad"
same --store
CASBOX_MODE=sideways same checkout "$root" "$T/b/bad"
CASBOX_MAX_SIZE=lots same checkout "$root" "$T/b/bad"
CASBOX_NONSENSE=1 same checkout "$root" "$T/b/bad"

# A kept tree that was changed is not used, and made again.
kept=$(echo "$STORE"/trees/*/tree)
btrfs property set "$kept" ro false 2> /dev/null || rm "${kept%/tree}/stamp"
ran 2 "$CASBOX" checkout "$root" "$T/b/to"
grep -q 'was changed; removing it' "$T/err" || fail "not told: $(cat "$T/err")"
made
ran 1 "$CASBOX" checkout "$root" "$T/b/to"
made

# One that eviction takes while it is looked at was not changed: nothing is said.
strace -qq -o "$T/trace" -P "$STORE/trees" -e trace=openat -e inject=openat:delay_exit=1500000:when=1 \
	"$CASBOX" checkout "$root" "$T/b/to" > "$T/out" 2> "$T/err" &
slow=$!
await grep -q openat "$T/trace"
"$FULL_CASBOX" pin "$root"
"$FULL_CASBOX" gc --max-size 0
eq "trees kept" "" "$(ls -A "$STORE/trees")"
wait "$slow"
eq "said" "" "$(cat "$T/err")"
grep -q ENOENT "$T/trace" || fail "it was not taken in between: $(cat "$T/trace")"
made
ran 1 "$CASBOX" checkout "$root" "$T/b/to"
made

# A daemon is told of the use, and a file of uses that is full is emptied.
truncate -s 1M "$STORE/run/uses"
ran 2 "$CASBOX" checkout "$root" "$T/b/to"
[ ! -s "$STORE/run/uses" ] || fail "uses were not taken"
ran 1 "$CASBOX" checkout "$root" "$T/b/to"
mount_start
ran 2 "$CASBOX" checkout "$root" "$T/b/to"
mount_stop
ran 1 "$CASBOX" checkout "$root" "$T/b/to"

# Copied away without the rest it says what is missing.
cp "$CASBOX" "$T/alone"
expect 1 "$T/alone" stat
expect 125 "$T/alone" run -- true
casbox fsck
