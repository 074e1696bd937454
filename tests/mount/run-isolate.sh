#!/bin/sh
# tests/mount/run-isolate.sh - run --isolate: what a hostile script tries, and does not reach
. "$(dirname "$0")/../lib/common.sh"
. "$(dirname "$0")/../lib/hostile.sh"
need fuse overlay bwrap python3
bwrap --unshare-all --ro-bind / / --proc /proc true 2> /dev/null ||
	skip "bubblewrap may not make namespaces"

body() {
	mkdir -p tree/src "$T/secret"
	echo input > tree/src/in
	root=$(put tree)
	mount_start
	other=$(sandbox_new "$root" --id other --output out/)
	sleep 1000 &
	sleeper=$!
	python3 -c 'import socket, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
a = socket.socket(socket.AF_UNIX); a.bind("\0casbox-test-%d" % s.getsockname()[1]); a.listen()
print(s.getsockname()[1], flush=True)
time.sleep(1000)' > port &
	server=$!
	await test -s port
	hostile > hostile.sh
	for writable in outputs all; do
		SECRET=1 casbox run --isolate --root "$root" --output out/ --into got \
			--writable $writable -- sh -c "$(cat hostile.sh)" sh "$MNT" "$STORE" \
			"$other" "$sleeper" "$(cat port)" "$T/secret" > reached 9< "$T"
		eq "reached with --writable $writable" "" "$(cat reached)"
		eq "the script came to its end" "done" "$(cat got/out/done)"
	done
	# The same outside: the script does notice what it reaches.
	casbox run --root "$root" --output out/ --into got -- sh -c "$(cat hostile.sh)" sh "$MNT" "$STORE" \
		"$other" "$sleeper" "$(cat port)" "$T/secret" > reached || :
	for what in "$STORE" "a process of the host" "a port of the host" "an abstract socket"; do
		grep -q "reached $what" reached || fail "without isolation not reached: $what"
	done
	kill -0 $sleeper $server || fail "a process of the host was ended"
	eq "the other sandbox" "input" "$(cat "$other/src/in")"

	# What it is to have: the sandbox, host tools, what was asked for; and its status.
	expect 0 casbox run --isolate --root "$root" --host-path "$T/secret" --env A=b \
		--workdir src -- sh -c 'pwd; cat in; ls -d "$0"; env | grep -v ^PATH= | grep -v ^PWD=' "$T/secret"
	eq "inside" "/build/src|input|$T/secret|A=b" "$(paste -sd '|' out)"
	expect 3 casbox run --isolate -- sh -c 'exit 3'
	expect 1 casbox run --isolate -- false
	expect 137 casbox run --isolate -- sh -c 'kill -9 $$'
	expect 127 casbox run --isolate -- no-such-command
	expect 126 casbox run --isolate --root "$root" -- ./src/in
	expect 124 casbox run --isolate --timeout 0.4 -- sleep 60
	expect 124 casbox run --isolate --timeout 0.4 -- sh -c 'trap "echo ended; exit 5" TERM; sleep 60 & wait'
	eq "SIGTERM came through" ended "$(cat out)"
	expect 0 casbox run --isolate --share-net -- python3 -c "import socket
socket.create_connection(('127.0.0.1', $(cat port)), 5)"
	expect 2 casbox run --share-net -- true

	# Refused: a profile that shows what is ours; no bubblewrap; what it cannot set up.
	for path in "$T" "$STORE" "$STORE/cas" "$MNT"; do
		expect 125 casbox run --isolate --host-path "$path" -- true
		said "would show the"
	done
	for path in relative /proc /proc/1 / /usr/../root; do
		expect 125 casbox run --isolate --host-path $path -- true
		said "--host-path wants"
	done
	expect 125 casbox run --isolate --host-path "$T/nowhere" -- true
	expect 125 casbox run --isolate --workdir nowhere -- true
	said "could not set the isolation up"
	mkdir bin
	PATH=$T/bin expect 125 "$CASBOX" run --isolate -- true
	said "install the package bubblewrap"
	kill $sleeper $server
	casbox sandbox remove other
	eq "sandboxes left" "" "$(casbox sandbox list)"
	mount_stop
}
each_user body
