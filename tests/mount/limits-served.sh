#!/bin/sh
# tests/mount/limits-served.sh - --max-output where casbox itself serves what is written: exact, and told
. "$(dirname "$0")/../lib/common.sh"
need fuse python3

limits() { # FIELD of each limit in the result at $T/r.json
	python3 - "$T/r.json" "$1" <<-'END'
		import json, sys
		more = json.load(open(sys.argv[1]))["executionMetadata"].get("auxiliaryMetadata", [])
		print(*[int(m["value"].get(sys.argv[2])) for m in more])
	END
}

# limited POLICY LIMIT SCRIPT: runs it among the inputs, with outputs out/, made, and lib/big.
limited() {
	rm -rf into
	status=0
	casbox run --root "$root" --into into --writable "$1" --output out/ --output made --output lib/big \
		--result r.json --max-output "$2" -- sh -c "$3" > out 2> err || status=$?
}

body() {
	mkdir -p in/lib
	echo input > in/input
	head -c 1M /dev/zero | tr '\0' x > in/lib/big
	# shellcheck disable=SC2086
	mount_start $forced
	root=$(put in)
	for policy in $policies; do
		# To the block: what fits, and one byte more; overwriting and holes take nothing.
		limited $policy 1M,20 'head -c 1M /dev/zero > out/a'
		eq "what fits: status, peaks, reached" "0, 1048576 1, 0 0" "$status, $(limits peak), $(limits reached)"
		limited $policy 1M,20 'head -c 1M /dev/zero > out/a; dd if=input of=out/b'
		eq "one more: status, peaks, reached" "1, 1048576 2, 1 0" "$status, $(limits peak), $(limits reached)"
		grep -q "Disk quota exceeded" err || fail "what dd got: $(cat err)"
		said "the command came to --max-output: 1.0 MB of 1.0 MB"
		limited $policy 1M,20 'head -c 1M /dev/zero > out/a
			dd if=/dev/urandom of=out/a bs=64k count=16 conv=notrunc 2> /dev/null && truncate -s 1G out/hole'
		eq "over it: status, peaks, reached" "0, 1048576 2, 0 0" "$status, $(limits peak), $(limits reached)"

		# What goes makes room: removed, cut, replaced, a hole; but not while somebody has it open.
		limited $policy 1M,3 'set -e; for i in $(seq 20); do head -c 1M /dev/zero > out/a; rm out/a; done
			head -c 1M /dev/zero > out/a; : > out/a; head -c 1M /dev/zero > out/b; rm out/a
			echo x > out/c 2> /dev/null && exit 9; rm -f out/c
			mkdir out/d; mv out/b out/d/b; fallocate -p -o 0 -l 512K out/d/b
			head -c 512K /dev/zero > out/c; mv out/c out/d/b
			head -c 512K /dev/zero > out/c; rm out/d/b out/c; rmdir out/d'
		eq "room: status, reached" "0, 1 0" "$status, $(limits reached)"
		limited $policy 1M,10 'exec 5> out/open; head -c 1M /dev/zero >&5; rm out/open
			head -c 64K /dev/zero > out/a && exit 9; exec 5>&-; sleep 0.1; head -c 1M /dev/zero > out/a'
		eq "unlinked and open: status" 0 $status

		# Files, directories, links; a second name is none, and two names are gone with the second.
		limited $policy 1M,4 'set -e; mkdir out/d; ln -s x out/l; echo > out/f; ln out/f out/g; mkfifo out/p
			mkdir out/e 2> /dev/null && exit 9; rm out/f; mkdir out/e 2> /dev/null && exit 9; rm out/g
			sleep 0.1; mkdir out/e; rm out/p; rmdir out/e'
		eq "files: status, peak, reached" "0, 4, 0 1" "$status, $(limits peak | sed 's/.* //'), $(limits reached)"

		# An input is copied at its first change: so it counts, or is not.
		limited $policy 1M,10 'chmod u+w lib/big && printf y | dd of=lib/big conv=notrunc 2> /dev/null'
		eq "copied: status, peaks" "0, 1048576 1" "$status, $(limits peak)"
		limited $policy 512K,10 'chmod u+w lib/big 2> /dev/null && exit 9; cat lib/big > /dev/null; echo > made'
		eq "not copied: status, reached" "0, 1 0" "$status, $(limits reached)"
		# Space that is asked for beforehand, and what comes by a mapping.
		limited $policy 1M,10 'fallocate -l 2M out/a 2> /dev/null && exit 9; fallocate -l 512K out/a'
		eq "asked for: status, peak" "0, 524288" "$status, $(limits peak | sed 's/ .*//')"
		limited $policy 64K,10 'python3 -c "
import errno, mmap, os
f = os.open(\"out/m\", os.O_RDWR | os.O_CREAT); os.ftruncate(f, 1 << 20); m = mmap.mmap(f, 1 << 20)
for i in range(0, 1 << 20, 4096): m[i] = 1
try: m.flush()
except OSError as e: exit(e.errno == errno.EDQUOT)"'
		eq "mapped: status, reached" "1, 1 0" "$status, $(limits reached)"
	done

	# A worker's, over the death of the daemon.
	box=$(sandbox_new "$root" --id limited --output out/ --output lib/big --max-output 1M,5)
	head -c 512K /dev/zero > "$box/out/a"
	ln "$box/out/a" "$box/out/b"
	mkdir "$box/out/d"
	rm "$box/lib/big"
	mount_kill
	# shellcheck disable=SC2086
	mount_start $forced
	! head -c 600K /dev/zero > "$box/out/d/c" 2> /dev/null || fail "no limit after the daemon's death"
	head -c 512K /dev/zero > "$box/out/d/c" || fail "less than the limit after the daemon's death"
	mkdir "$box/out/e" "$box/out/f"
	! mkdir "$box/out/g" 2> /dev/null || fail "more files than the limit after the daemon's death"
	expect 0 casbox sandbox finish limited --json
	eq "told" 2 "$(grep -o '"reached": *true' out | wc -l)"
	cp out first
	expect 0 casbox sandbox finish limited --json
	eq "twice" "$(cat first)" "$(cat out)"
	casbox sandbox remove limited
	mount_stop
	rm -rf in into first
}

if [ -n "${TEST_USER:-}" ]; then
	forced=
	policies="outputs ${TEST_LONG:+all}"
	body
	exit
fi
need root
forced='--engine fuse'
policies="all ${TEST_LONG:+outputs}"
body
need fusermount3
again_as_user
