#!/bin/sh
# tests/mount/copy-cancelled.sh - a signal ends a put in the middle of one large file
. "$(dirname "$0")/../lib/common.sh"

# A hole that takes a while to hash: some 10 s, less than the time limit all the same.
truncate -s 16G "$T/large"
casbox put "$CASBOX" > /dev/null
before=$(find "$STORE/cas" "$STORE/run" | sort)
for signal in INT TERM; do
	# A shell has what it starts in the background ignore SIGINT.
	env --default-signal=INT "$CASBOX" put "$T/large" > "$T/out" 2> "$T/err" &
	pid=$!
	# shellcheck disable=SC2016
	await sh -c 'ls -l "/proc/$0/fd" | grep -q large' "$pid"
	kill -s "$signal" "$pid"
	status=0
	wait "$pid" || status=$?
	case $signal in
	INT) eq "status" 130 "$status" ;;
	TERM) eq "status" 143 "$status" ;;
	esac
	eq "digests printed" "" "$(cat "$T/out")"
	eq "files in the store" "$before" "$(find "$STORE/cas" "$STORE/run" | sort)"
done
casbox fsck > /dev/null
