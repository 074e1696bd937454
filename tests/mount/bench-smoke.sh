#!/bin/sh
# casbox-bench runs every sub-benchmark, compares contents, and leaves nothing behind
. "$(dirname "$0")/../lib/common.sh"
need root fuse overlay cc

# In memory: the numbers do not matter here, and disks differ.
mkdir -p "$T/work" "$T/project/sub"
mount -t tmpfs tmpfs "$T/work"
for i in 1 2 3; do
	echo "#include \"n.h\"
int f$i(void); int f$i(void) { return N + $i; }" > "$T/project/sub/f$i.c"
done
echo '#define N 7' > "$T/project/sub/n.h"
echo 'this does not compile' > "$T/project/broken.c"

# As words, so that the program itself can be waited for and told to stop.
bench="$BENCH --casbox $CASBOX --work $T/work"

expect 2 $bench --no-such-option
expect 2 $bench no-such-benchmark
expect 2 $bench --actions 0
expect 0 $bench --help

expect 0 within 80 $bench --actions 2 --lanes 1 --rounds 1 --few --scale 2 \
	--project "$T/project" --latfs "$LATFS" --compiles 4 --json "$T/result.json"
for word in 'native floor' 'hardlink farm' casbox 'beside inputs' 'second-root' \
	'4 of 4 outputs byte-equal' 'first mapping' 'known blobs: 0 changes' 'gates'; do
	grep -qF "$word" "$T/out" || fail "the report lacks '$word'"
done
for key in host tables gates notes times_floor capture_ms; do
	grep -q "\"$key\":" "$T/result.json" || fail "the JSON lacks '$key'"
done
eq "files left" "" "$(ls -A "$T/work")"
eq "mounts left" "$T/work" "$(mounts_below "$T/work")"

# Told to stop in the middle, it still cleans up, and says so by its status.
$bench --actions 400 action > "$T/out" 2> "$T/err" &
pid=$!
await sh -c "test -e '$T/work'/casbox-bench-*/action/source"
kill -TERM "$pid"
status=0
wait "$pid" || status=$?
eq "status when stopped" 130 "$status"
eq "files left when stopped" "" "$(ls -A "$T/work")"
eq "mounts left when stopped" "$T/work" "$(mounts_below "$T/work")"
