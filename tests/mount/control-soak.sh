#!/bin/sh
# Many talk, follow and scrape while eight sandboxes build, for long: what the daemon takes in
# memory, and what it costs those that build.
#
# SOAK_SECONDS (default 4; the full one is 600) is how long, after SOAK_PAIRS (default 1; 10)
# pairs of windows of SOAK_WINDOW seconds (default 1; 15), one without the talk and one with it,
# in which finished builds are counted.
. "$(dirname "$0")/../lib/common.sh"
need fuse mount make cc

secs=${SOAK_SECONDS:-4}
pairs=${SOAK_PAIRS:-1}
window=${SOAK_WINDOW:-1}

# talk SECONDS: everybody at once; their verdicts in $T/said-*.
talk() {
	talkers=
	for i in 1 2 3 4 5 6 7 8; do
		"$CTLTALK" follow "$MNT/.casbox/events" "$1" > "$T/said-follow-$i" 2>&1 &
		talkers="$talkers $!"
	done
	"$CTLTALK" scrape "$MNT/.casbox/metrics" "$1" 10 > "$T/said-scrape" 2>&1 &
	talkers="$talkers $!"
	"$CTLTALK" chat "$MNT/.casbox/control" 64 "$1" 1 > "$T/said-chat" 2>&1 &
	talkers="$talkers $!"
}

talked() {
	for pid in $talkers; do
		wait "$pid" || fail "$(cat "$T"/said-*)"
	done
	cat "$T/said-chat" "$T/said-scrape" "$T/said-follow-1"
}

# One of eight: a line in $T/built for each build.
build() {
	while [ ! -e "$T/enough" ]; do
		box=$(sandbox_new "$root" --id "build-$1" --output out/) || return 1
		make -s -C "$box" || return 1
		casbox sandbox finish "build-$1" --remove > "$T/finished-$1" || return 1
		grep -q '^out	' "$T/finished-$1" || return 1
		date +%s%N >> "$T/built"
	done
}

built() {
	wc -l < "$T/built"
}

# count SECONDS: builds finished meanwhile, in a thousand seconds.
count() {
	from=$(date +%s%N)
	before=$(built)
	sleep "$1"
	after=$(built)
	echo "$(((after - before) * 1000000 / (($(date +%s%N) - from) / 1000000)))"
}

rss_kb() {
	sed -n 's/^VmRSS:[ \t]*\([0-9]*\) kB/\1/p' "/proc/$DAEMON/status"
}

mkdir -p "$T/tree"
for i in 1 2 3 4; do
	printf '#include <stdio.h>\nint f%d(int x) { return printf("%%d", x) + %d; }\n' "$i" "$i" > "$T/tree/f$i.c"
done
printf 'out/all.a: out/f1.o out/f2.o out/f3.o out/f4.o\n\tar rc $@ $^\nout/%%.o: %%.c\n\tcc -O1 -c -o $@ $<\n' \
	> "$T/tree/Makefile"
root=$(put "$T/tree")
mount_start
: > "$T/built"
builders=
for b in 1 2 3 4 5 6 7 8; do
	build "$b" &
	builders="$builders $!"
done

for pair in $(seq "$pairs"); do
	alone=$(count "$window")
	talk "$window"
	beside=$(count "$window")
	talked > /dev/null
	echo "pair $pair: $alone builds in 1000 s without the talk, $beside with it"
	[ "$alone" -eq 0 ] || echo "$((beside * 1000 / alone))" >> "$T/ratios"
done
[ "$pairs" -lt 5 ] || {
	median=$(sort -n "$T/ratios" | sed -n "$(((pairs + 1) / 2))p")
	echo "builds with the talk: $median thousandths of those without (median of $pairs)"
}

# Memory in thirds: what was taken once at the beginning does not count.
talk "$secs"
step=$((secs / 60 + 1))
nr=0
while [ "$((nr * step))" -lt "$secs" ]; do
	rss_kb >> "$T/memory"
	sleep "$step"
	nr=$((nr + 1))
done
talked
touch "$T/enough"
for pid in $builders; do
	wait "$pid" || fail "a build failed"
done
third=$((nr / 3))
mean() { sed -n "$1,$2p" "$T/memory" | awk '{ s += $1 } END { printf "%d\n", s / NR }'; }
middle=$(mean $((third + 1)) $((2 * third)))
last=$(mean $((2 * third + 1)) "$nr")
echo "$(built) builds; memory of the daemon: $middle kB in the middle third, $last kB in the last"
if [ "$secs" -ge 300 ]; then
	[ "$last" -le $((middle * 105 / 100)) ] || fail "memory grew from $middle to $last kB"
	[ "${median:-1000}" -ge 900 ] || fail "builds slowed down to $median thousandths"
fi
if grep -q 'WARNING: ThreadSanitizer' "$T/daemon.log"; then
	cp "$T/daemon.log" "${SOAK_LOG:-/dev/null}"
	fail "$(grep -A 30 -m 1 'WARNING: ThreadSanitizer' "$T/daemon.log")"
fi
mount_stop
