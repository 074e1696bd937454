#!/bin/sh
# tests/mount/nodes-forgotten.sh - C32: what the kernel forgets, the daemon forgets
. "$(dirname "$0")/../lib/common.sh"
need root fuse mount
[ -w /proc/sys/vm/drop_caches ] || skip "caches cannot be dropped"

rounds=$(full_or 4 100)
files=$(full_or 1000 10000)

nodes() { casbox ctl --mount "$MNT" stats | grep -o '"nodes":[0-9]*' | sed 's/.*://' | paste -s -d ' '; }
rss() { sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$DAEMON/status"; }

# near WHAT BASE NOW: both sessions have at most 30 more nodes than at first.
near() {
	one=$((${3% *} - ${2% *}))
	two=$((${3#* } - ${2#* }))
	[ "$one" -le 30 ] && [ "$two" -le 30 ] || fail "$1: nodes were '$2', are '$3'"
}

for dir in $(seq 10); do
	mkdir -p "tree/$dir/sub"
	for i in $(seq $((files / 10))); do
		echo "$dir $i" > "tree/$dir/sub/$i"
	done
done
root=$(put tree)
mount_start
sandbox=$(sandbox_new "$root" --id one --output out/)
view=$MNT/cas/directory/$(dashed "$root")
sync
echo 2 > /proc/sys/vm/drop_caches
base=$(nodes)
for round in $(seq "$rounds"); do
	for place in "$sandbox" "$view"; do
		ls -lR "$place" > /dev/null
		ls -Ua "$place"/* > /dev/null
		for i in $(seq 15); do
			! true 2> /dev/null < "$place/1/missing-$round-$i"
			! true 2> /dev/null < "$place/1/sub/1/below-$i"
		done
	done
	if [ "$round" -eq 1 ]; then
		all=$(nodes)
		[ "${all% *}" -gt "$files" ] || fail "nodes of session one: $all"
		[ "${all#* }" -gt "$files" ] || fail "nodes of session two: $all"
	fi
	# Clients that go while they are answered.
	for place in "$sandbox" "$view"; do
		ls -lR "$place" > /dev/null &
		pid=$!
		sleep 0.01
		kill -9 $pid 2> /dev/null || :
		wait $pid 2> /dev/null || :
	done
	[ $((round % 2)) -eq 0 ] || echo 2 > /proc/sys/vm/drop_caches
	[ "$round" -ne 2 ] || first=$(rss)
done

# Threads that look while caches are dropped.
for i in 1 2 3 4 5 6; do
	(for n in 1 2 3; do find "$sandbox" "$view" -size 1 > /dev/null; done) &
	pids="${pids:-} $!"
done
for i in 1 2 3; do
	sleep 0.2
	echo 2 > /proc/sys/vm/drop_caches
done
for pid in $pids; do
	wait "$pid" || fail "find while caches were dropped"
done
echo 2 > /proc/sys/vm/drop_caches
settled() { (near "after everything" "$base" "$(nodes)") > /dev/null 2>&1; }
for _ in 1 2 3 4 5; do
	settled && break
	sleep 0.2
	echo 2 > /proc/sys/vm/drop_caches
done
rm -f "$T/verdict"
near "after everything" "$base" "$(nodes)"
now=$(rss)
[ $((now - first)) -lt 8192 ] || fail "the daemon grew from $first to $now kB"
casbox sandbox remove one
mount_stop
