#!/bin/sh
# A directory of 200,000 entries: listing and lookups cost ten times those of 20,000.
. "$(dirname "$0")/../lib/common.sh"
need fuse mount python3

FEW=20000
MANY=200000

# Requests OP that session one has had.
upcalls() {
	nr=$(casbox ctl --mount "$MNT" stats | sed 's/.*"one":{//; s/}.*//' |
		grep -o "\"$1\":[0-9]*" | sed 's/.*://')
	echo "${nr:-0}"
}

# Processor time of the daemon, in ticks.
ticks() {
	sed 's/.*) //' "/proc/$DAEMON/stat" | awk '{ print $12 + $13 }'
}

listings() {
	echo $(($(upcalls READDIR) + $(upcalls READDIRPLUS)))
}

# The Directory message of NR empty files, without making them.
directory() {
	python3 - "$1" <<- 'EOF'
		import hashlib, sys
		def field(number, data):
		    return bytes([number << 3 | 2, len(data)]) + data
		digest = field(2, field(1, hashlib.sha256(b"").hexdigest().encode()))
		for i in range(1, int(sys.argv[1]) + 1):
		    name = field(1, b"entry-%07d" % i)
		    sys.stdout.buffer.write(field(1, name + digest))
	EOF
}

# measure NR: list NR names, twice, and look every hundredth up by name in between.
measure() {
	nr=$1
	directory "$nr" > "$T/message"
	root=$(put "$T/message")
	sandbox=$(sandbox_new "$root" --id "n$nr")
	ticks_before=$(ticks)
	before=$(listings)
	python3 - "$sandbox" "$nr" <<- 'EOF'
		import os, sys
		top, nr = sys.argv[1], int(sys.argv[2])
		want = {"entry-%07d" % i for i in range(1, nr + 1)}
		names = os.listdir(top)
		assert len(names) == nr and set(names) == want
		for name in sorted(want)[::100]:
		    assert os.stat("%s/%s" % (top, name)).st_size == 0
		    try:
		        os.stat("%s/%s-" % (top, name))
		        assert False
		    except FileNotFoundError:
		        pass
		fd = os.open(top, os.O_RDONLY)
		assert len(os.listdir(fd)) == nr
	EOF
	after=$(listings)
	eval "requests_$nr=$((after - before)) ticks_$nr=$(($(ticks) - ticks_before))"
	echo "$nr entries: $((after - before)) requests, $(($(ticks) - ticks_before)) ticks"
}

mount_start
measure $FEW
measure $MANY
# shellcheck disable=SC2154
{
	# The kernel asks for 4 KiB or more at a time, which is at least 20 entries.
	[ "$requests_200000" -le $((MANY / 20)) ] || fail "$requests_200000 requests"
	# Twice ten times when the kernel did not keep the first listing for the second.
	[ "$requests_200000" -le $((requests_20000 * 22)) ] ||
		fail "requests: $requests_20000, and $requests_200000 for ten times as many"
	# Quadratic would be a hundred times; a tick more or less is much of the smaller one.
	[ "$ticks_200000" -le $(((ticks_20000 + 3) * 25)) ] ||
		fail "ticks: $ticks_20000, and $ticks_200000 for ten times as many"
}
mount_stop
