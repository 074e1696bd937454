#!/bin/sh
# tests/crash/storm.sh - puts, reads, sandboxes, eviction and kill -9 at once (C13, C24, C25)
#
# A default run takes STORM_SECONDS=12 for each of two layouts. By hand, for half an hour:
#
#   STORM_SECONDS=1800 STORM_SEED=7 STORM_LAYOUT=plain CASBOX=build/tools/casbox tests/crash/storm.sh
seconds=${STORM_SECONDS:-12}
TEST_TIMEOUT=$((2 * seconds + 300))
export TEST_TIMEOUT
. "$(dirname "$0")/../lib/common.sh"
need root fuse python3

for layout in ${STORM_LAYOUT:-plain spool}; do
	mkdir "$T/$layout"
	env -u CASBOX_STORE python3 "$HERE/storm.py" "$CASBOX" "$T/$layout" "$seconds" \
		"${STORM_SEED:-1}" "$layout" || {
		tail -n 30 "$T/$layout/daemon.log"
		fail "$layout, seed ${STORM_SEED:-1}"
	}
done
