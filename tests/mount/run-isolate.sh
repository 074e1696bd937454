#!/bin/sh
# tests/mount/run-isolate.sh - run --isolate: what a hostile script tries, and does not reach
. "$(dirname "$0")/../lib/common.sh"
need fuse overlay bwrap python3
bwrap --unshare-all --ro-bind / / --proc /proc true 2> /dev/null ||
	skip "bubblewrap may not make namespaces"

# Each line of output is something reached. Its words: MNT STORE SANDBOX PID PORT SECRET.
hostile() {
	cat << 'HOSTILE'
mnt=$1 store=$2 sandbox=$3 pid=$4 port=$5 secret=$6
exec 2> /dev/null
reached() { echo "reached $*"; }
# Places, by name, through links, through whatever /proc leads to.
for p in "$mnt" "$store" "$mnt/.casbox/control" "$mnt/cas" "$sandbox" "$secret" /root /home \
	/var/lib /run /sys /etc/shadow /etc/ssl/private; do
	[ ! -e "$p" ] || reached "$p"
	ln -sfn "$p" out/link
	[ ! -e out/link ] || reached "$p by a link"
	for root in /proc/1/root /proc/self/root /proc/1/cwd/.. /proc/$$/root/..; do
		[ ! -e "$root$p" ] || reached "$p by $root"
	done
done
rm -f out/link
[ -d ../build/src ] && [ ! -e ../sandboxes ] && [ ! -e ../../.casbox ] || reached "above the sandbox"
[ "$(tr '\0' '\n' < /proc/1/environ | grep -c SECRET)" = 0 ] || reached "the environment of bwrap"
[ -z "${SECRET:-}" ] || reached "our environment"
[ ! -e /proc/self/fd/9 ] || reached "a descriptor"
# Processes, memory, tracing.
kill -0 "$pid" && reached "a process of the host"
grep -q sleep "/proc/$pid/status" && reached "/proc of the host"
[ "$(ls /proc | grep -c '^[0-9]')" -lt 15 ] || reached "many processes"
python3 - "$pid" << 'PY' && reached "ptrace"
import ctypes, sys
libc = ctypes.CDLL(None)
sys.exit(0 if libc.ptrace(16, int(sys.argv[1]), 0, 0) == 0 else 1)
PY
# The network, abstract sockets, names.
python3 - "$port" << 'PY' && reached "a port of the host"
import socket, sys
socket.create_connection(("127.0.0.1", int(sys.argv[1])), 2)
PY
python3 - "$port" << 'PY' && reached "an abstract socket"
import socket, sys
socket.socket(socket.AF_UNIX).connect("\0casbox-test-" + sys.argv[1])
PY
[ "$(tail -n +3 /proc/net/dev | grep -vc '^ *lo:')" = 0 ] || reached "an interface"
[ "$(uname -n)" = casbox ] || reached "the host's name"
# Privileges, mounts, the kernel's switches, devices, limits.
for f in /usr/bin/env /etc/passwd /usr/casbox-was-here /bin/new /new; do
	(: >> $f) && reached "write $f"
done
(cat /proc/sys/vm/swappiness > /proc/sys/vm/swappiness) && reached "/proc/sys"
[ -z "$(find /proc/sys /proc/sysrq-trigger /proc/irq -type f -writable | head -n 1)" ] || reached "a switch"
mount -t tmpfs none /tmp && reached mount
mount -o remount,rw / && reached remount
umount /build && reached umount
umount -l /usr && reached "umount -l"
unshare -Urm sh -c 'umount /usr || mount -o remount,rw,bind /usr || umount /proc/sys' && reached "unshare and umount"
nsenter -t 1 -m test -e "$store" && reached "another mount namespace"
mknod out/disk b 8 0 && head -c 1 out/disk && reached "a device"
cp /usr/bin/id out/id && chmod 4755 out/id && [ "$(out/id -u)" != "$(id -u)" ] && reached setuid
rm -f out/id out/disk
grep -q '^CapEff:.*[1-9a-f]' /proc/self/status && reached capabilities
grep -q '^NoNewPrivs:.*1' /proc/self/status || reached "new privileges"
(ulimit -n 64 && ulimit -n 128) && reached "its limits"
[ ! -e /sys/fs/cgroup ] || reached "control groups"
echo done > out/done
HOSTILE
}

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
