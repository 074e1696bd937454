#!/bin/sh
# tests/mount/limits-output.sh - --max-output: kept by a quota or a filesystem of that size, told
. "$(dirname "$0")/../lib/common.sh"
need fuse overlay

limits() { # FIELD of each limit in the result at $T/r.json
	python3 - "$T/r.json" "$1" <<-'END'
		import json, sys
		more = json.load(open(sys.argv[1]))["executionMetadata"].get("auxiliaryMetadata", [])
		print(*[m["value"]["limit"] + "=" + str(m["value"].get(sys.argv[2])) for m in more])
	END
}

body() {
	need python3
	mkdir -p in
	echo input > in/input
	expect 2 casbox run --max-output 0 -- true
	expect 2 casbox run --max-output 1M, -- true
	expect 2 casbox run --max-output 1M,x -- true
	for policy in outputs dirs all; do
		# What fits is as without a limit, and nothing is said.
		expect 0 casbox run --input in --writable $policy --output out/ --output beside --result r.json \
			--max-output 4M,40 -- sh -c 'head -c 2M /dev/zero > out/a; cat input > beside; mkdir out/d'
		! grep -q max-output err || fail "named without reason: $(cat err)"
		eq "what fits, under $policy" "2097152 input" "$(stat -c %s in/out/a) $(cat in/beside)"
		eq "not reached" "output-bytes=False output-files=False" "$(limits reached)"
		eq "the limits" "output-bytes=4194304 output-files=40" "$(limits value)"
		peak=$(limits peak | sed 's/output-bytes=\([0-9]*\).*/\1/')
		[ "$peak" -ge 2097152 ] && [ "$peak" -lt 2600000 ] || fail "peak of 2 MiB: $peak"
		rm -rf in/out in/beside

		# What does not is refused, and what was written before is captured.
		expect 3 casbox run --input in --writable $policy --output out/ --result r.json \
			--max-output 4M -- sh -c 'dd if=/dev/zero of=out/a bs=64k count=100 || exit 3'
		grep -qE "No space left on device|Disk quota exceeded" err || fail "what dd got: $(cat err)"
		said "the command came to --max-output: 4."
		size=$(stat -c %s in/out/a)
		[ "$size" -gt 4000000 ] && [ "$size" -le 4194304 ] || fail "kept $size bytes"
		eq "reached" "output-bytes=True" "$(limits reached)"
		rm -rf in/out

		expect 3 casbox run --input in --writable $policy --output out --result r.json \
			--max-output 4M,10 -- sh -c 'mkdir -p out; for i in 1 2 3 4 5 6 7 8 9 10 11; do touch out/$i || exit 3; done'
		said "the command came to --max-output: 10 of 10 files"
		eq "reached" "output-bytes=False output-files=True" "$(limits reached)"
		rm -rf in/out
	done

	# What is gone at the end counts if it was there for a while.
	expect 0 casbox run --input in --output out/ --result r.json --max-output 4M -- \
		sh -c 'head -c 3M /dev/zero > out/a; sleep 0.1; rm out/a'
	peak=$(limits peak | sed 's/output-bytes=\([0-9]*\).*/\1/')
	[ "$peak" -ge 3145728 ] || fail "peak of 3 MiB: $peak"

	# Reached, and yet a success: not to be relied on.
	if command -v bwrap > /dev/null && bwrap --unshare-all --ro-bind / / --proc /proc true 2> /dev/null; then
		for _ in 1 2; do
			expect 0 casbox run --cache --isolate --input in --output out/ --into into --max-output 1M -- \
				sh -c 'cat /proc/sys/kernel/random/uuid > out/id; head -c 2M /dev/zero > out/a; :'
			[ "${last:-}" != "$(cat into/out/id)" ] || fail "was kept"
			last=$(cat into/out/id)
		done
	fi
	casbox umount

	# A sandbox of a worker's: the same twice, and over the death of the daemon.
	root=$(put in)
	mount_start
	box=$(sandbox_new "$root" --id limited --output out/ --max-output 2M ${QUOTA:+--under-quota})
	head -c 1M /dev/zero > "$box/out/a"
	mount_kill
	mount_start
	${QUOTA:+setpriv --bounding-set -sys_resource --inh-caps -sys_resource} \
		head -c 2M /dev/zero > "$box/out/b" 2> /dev/null && fail "no limit after the daemon's death"
	expect 0 casbox sandbox finish limited --json
	grep -q '"reached": *true' out || fail "finish does not tell: $(cat out)"
	cp out first
	expect 0 casbox sandbox finish limited --json
	eq "twice" "$(cat first)" "$(cat out)"
	digest=$(casbox sandbox finish limited 2> /dev/null | sed -n 's/^out	//p')
	casbox checkout "$digest" back
	eq "captured" 1048576 "$(stat -c %s back/a)"
	casbox sandbox remove limited
	mount_stop
	eq "mounts left" "" "$(mounts_below "$STORE")"
	rm -rf back first into in
	mkdir -p "$MNT"
}

# The same on a filesystem that counts by project, where there is one.
on_quota() {
	truncate -s 300M "$T/image"
	mkdir "$T/quota"
	mkfs.ext4 -q -F -O quota,project "$T/image" 2> /dev/null &&
		mount -o loop,prjquota "$T/image" "$T/quota" 2> /dev/null || {
		echo "note: no project quota here: not looked at"
		return 0
	}
	QUOTA=yes
	STORE=$T/quota/store
	CASBOX_STORE=$STORE
	body
	umount "$T/quota"
}

each_user body
[ -n "${TEST_PLAIN:-}" ] || on_quota
