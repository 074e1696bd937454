#!/bin/sh
# tests/mount/slot-soak.sh - random trees in several lanes for a while, each byte verified
#
# Not part of a default run: SOAK_SECONDS says how long, SOAK_SEED which trees, SOAK_LANES
# how many at once, SOAK_DROP=1 drops the machine's caches now and then. With a build of
# -Db_sanitize=thread a report of it fails, and nothing is suppressed.
[ -n "${SOAK_SECONDS:-}" ] || exit 77
TEST_TIMEOUT=$((SOAK_SECONDS + 120))
export TEST_TIMEOUT
. "$(dirname "$0")/../lib/common.sh"
need root fuse python3

mount_start
python3 "$HERE/soak.py" "$CASBOX" "$STORE" "$MNT" "$SOAK_SECONDS" "${SOAK_LANES:-4}" \
	"${SOAK_SEED:-1}" || fail "wrong bytes, or a lane ended; seed ${SOAK_SEED:-1}"
eq "sandboxes left" "" "$(casbox sandbox list)"
! grep -i "error:" "$T/daemon.log" || fail "the daemon reports errors"
mount_stop
