#!/bin/sh
# tests/mount/run-limits.sh - run --max-memory and --max-procs: kept, named, never cached
. "$(dirname "$0")/../lib/common.sh"
need fuse overlay python3

# Fills 200 MiB; a child of the shell, so that the shell can go on.
EAT='python3 -c "b = bytearray(200 << 20); b[::4096] = b\"x\" * len(b[::4096])"'
MANY='import os, time
n = 0
try:
    for _ in range(40):
        if os.fork() == 0:
            time.sleep(5)
            os._exit(0)
        n += 1
except BlockingIOError:
    pass
print(n)'

# Groups of runs that are no more; others may be running now.
groups() {
	find /sys/fs/cgroup -name 'casbox-run-*' 2> /dev/null | while read -r group; do
		kill -0 "${group##*-}" 2> /dev/null || echo "$group"
	done
}

body() {
	expect 0 casbox run --max-memory 1G -- sh -c "$EAT; echo went on"
	! grep -q "ran into" err || fail "named without reason: $(cat err)"
	status=0
	casbox run --max-memory 64M --timeout 1m --result r.json --output out -- sh -c "$EAT; s=\$?; echo x > out; exit \$s" > out 2> err || status=$?
	[ $status -ne 0 ] || fail "200 MiB went into 64"
	if grep -q "no control group keeps it" err; then
		echo "note: no memory control group, only process limits"
	else
		eq "killed" 137 $status
		said "the command ran into --max-memory 67.1 MB (peak 67.1 MB, 1 killed)"
		# The result names limits in a form that any client of REAPI can read.
		eq "limits in the result" "memory-bytes 67108864 67108864 True, timeout-ms 60000 False" \
			"$(python3 -c 'import json
m = json.load(open("r.json"))["executionMetadata"]["auxiliaryMetadata"]
print("%(limit)s %(value)d %(peak)d %(reached)s, " % m[0]["value"] + "%(limit)s %(value)d %(reached)s" % m[1]["value"])')"
	fi
	if [ -z "${TEST_PLAIN:-}" ]; then
		expect 0 casbox run --max-procs 10 -- python3 -c "$MANY"
		if ! grep -q "no control group keeps it" err; then
			eq "processes beside the first" 9 "$(cat out)"
			said "the command ran into --max-procs 10 (peak 10, 1 times refused)"
		fi
		expect 0 casbox run --max-procs 100 -- python3 -c "$MANY"
		eq "processes" 40 "$(cat out)"
	fi
	# A child was killed, the command says that all is well: not to be relied on.
	if command -v bwrap > /dev/null && bwrap --unshare-all --ro-bind / / --proc /proc true 2> /dev/null; then
		for _ in 1 2; do
			expect 0 casbox run --cache --isolate --max-memory 64M --output id --into into -- \
				sh -c "$EAT; cat /proc/sys/kernel/random/uuid > id"
			grep -q "no control group keeps it" err || said "ran into --max-memory"
			[ "${last:-}" != "$(cat into/id)" ] || fail "was kept"
			last=$(cat into/id)
		done
	fi
	eq "groups left" "" "$(groups)"
	casbox umount
}
each_user body
