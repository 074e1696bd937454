#!/bin/sh
# tests/mount/quota-small.sh - C23: live inputs larger than what gc is told to come down to
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

quota=10485760
field() { sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$T/gc"; }
collect() {
	within 20 "$CASBOX" gc --max-size "$quota" --json > "$T/gc" || fail "gc: status $?"
}

# make_tree DIR MIB
make_tree() {
	mkdir "$1"
	for i in $(seq "$2"); do
		head -c 1048576 /dev/urandom > "$1/$i"
	done
}

body() {
	make_tree "$T/large" 20
	make_tree "$T/one" 8
	make_tree "$T/two" 8
	head -c 11534336 /dev/urandom > "$T/blob"
	large=$(put "$T/large")
	mount_start
	sandbox=$(sandbox_new "$large" --id large --output out/)
	collect
	[ "$(field kept_live_bytes)" -ge 20971520 ] || fail "needed and kept: $(cat "$T/gc")"
	[ "$(field after_bytes)" -ge 20971520 ] || fail "left: $(cat "$T/gc")"
	diff -r "$T/large" "$sandbox" -x out || fail "gc took an input"
	# What is not needed goes, large or not.
	blob=$(put "$T/blob")
	collect
	[ "$(field freed_bytes)" -ge 11534336 ] || fail "freed: $(cat "$T/gc")"
	expect 1 casbox cat "$blob"

	# Two runs that do not fit side by side, gc again and again while both work.
	cat > "$T/action" <<END
touch $T/started-\$1
while [ ! -e $T/enough ]; do cat [0-9] > /dev/null || exit 1; done
cat [0-9] | sha256sum > sum
END
	for who in one two; do
		within 60 "$CASBOX" run --input "$T/$who" --output sum --into "$T/res-$who" -- \
			sh "$T/action" "$who" > "$T/said-$who" 2>&1 &
		eval "$who=$!"
	done
	await [ -e "$T/started-one" ]
	await [ -e "$T/started-two" ]
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		collect
		[ "$(field kept_live_bytes)" -ge $((36 * 1048576)) ] || fail "kept: $(cat "$T/gc")"
	done
	: > "$T/enough"
	wait "$one" || fail "the first run: $(cat "$T/said-one")"
	wait "$two" || fail "the second run: $(cat "$T/said-two")"
	for who in one two; do
		eq "$who" "$(cat "$T/$who"/[0-9] | sha256sum)" "$(cat "$T/res-$who/sum")"
	done

	diff -r "$T/large" "$sandbox" -x out || fail "gc took an input"
	casbox sandbox remove large
	collect
	[ "$(field after_bytes)" -le "$quota" ] || fail "above the quota: $(cat "$T/gc")"
	mount_stop
	expect 0 casbox fsck
}
each_user body
