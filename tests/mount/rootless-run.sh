#!/bin/sh
# tests/mount/rootless-run.sh - `run` of a plain user, who may do nothing but make namespaces
. "$(dirname "$0")/../lib/common.sh"
. "$(dirname "$0")/../lib/hostile.sh"

# As root, where the user's own half begins.
if [ -z "${TEST_USER:-}" ]; then
	need root fuse plain
	as_plain unshare -Urm true || skip "no user namespaces"
	again_as_user
	exit
fi

mkdir -p in/src
echo one > in/src/input
printf '#!/bin/sh\necho tool\n' > in/tool
chmod 755 in/tool

# The command is who we are, without a capability, and sees its inputs.
expect 0 casbox run --input in --output out -- sh -c \
	'id -u; ./tool; grep CapEff /proc/self/status; cat src/input > out'
eq "what it said" "$(id -u)
tool
CapEff:	0000000000000000" "$(cat out)"
eq "the output" one "$(cat in/out)"
casbox ctl config > config
grep -q '"mounting":"own namespace"' config || fail "mounted otherwise: $(cat config)"
eq "mounts for all to see" "" "$(mounts_below "$T")"

# Each policy, by binds and overlays; what may not be changed is not, whoever tries.
expect 0 casbox run --input in --output dir/ -- sh -c 'mkdir dir/a; echo 1 > dir/a/b'
eq "in a directory" 1 "$(cat in/dir/a/b)"
expect 0 casbox run --input in --writable all --output src/new -- sh -c \
	'rm tool; mv src/input src/new; test ! -e tool'
eq "moved" one "$(cat in/src/new)"
expect 0 casbox run --input in --writable dirs --output x -- sh -c 'mkdir -p any; echo 2 > any/y; cp any/y x'
eq "made anywhere" 2 "$(cat in/x)"
for how in "" "unshare -Ur"; do
	# shellcheck disable=SC2086
	casbox run --input in --output out/ -- $how sh -c 'echo bad > src/input; echo bad >> tool
		chmod 777 tool; rm -f tool; mv src else; :' 2> /dev/null || :
	expect 0 casbox run --input in -- sh -c 'cat src/input; ./tool'
	eq "inputs after${how:+ from $how}" "one
tool" "$(cat out)"
done
eq "and outside" one "$(cat in/src/input)"

# Sandboxes live there too, seen through the process that has them.
root=$(put in)
path=$(casbox sandbox create --root "$root" --id mine --output made/)
eq "an input" one "$(cat "$path/src/input")"
echo 3 > "$path/made/file"
casbox sandbox finish mine > finished
casbox checkout "$(sed -n 's/^made	//p' finished)" back
eq "captured" 3 "$(cat back/file)"

# A mount for all to see takes over the idle one, when fusermount3 makes it.
casbox sandbox remove mine
casbox umount
expect 1 casbox umount
said "no mount serves the store"

# Killed, it leaves nothing behind.
casbox run --input in -- true
pid=$(casbox ctl version | sed 's/.*"pid":\([0-9]*\).*/\1/')
kill -9 "$pid"
expect 0 casbox run --input in --output out -- sh -c 'echo 4 > out'
eq "after a kill" 4 "$(cat in/out)"

# In isolation a script reaches nothing, though the mount is in the command's own namespace.
if bwrap --unshare-all --ro-bind / / --proc /proc true 2> /dev/null; then
	casbox ctl version > version
	mnt=$(sed 's/.*"mountpoint":"\([^"]*\)".*/\1/' version)
	pid=$(sed 's/.*"pid":\([0-9]*\).*/\1/' version)
	other=$(casbox sandbox create --root "$root" --id other --output made/)
	python3 -c 'import socket, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()
a = socket.socket(socket.AF_UNIX); a.bind("\0casbox-test-%d" % s.getsockname()[1]); a.listen()
print(s.getsockname()[1], flush=True)
time.sleep(1000)' > port &
	server=$!
	await test -s port
	hostile > hostile.sh
	mkdir secret
	mkdir -p tree/src
	SECRET=1 casbox run --isolate --input tree --output out/ --into got -- sh -c "$(cat hostile.sh)" \
		sh "$mnt" "$STORE" "$other" "$pid" "$(cat port)" "$T/secret" > reached 9< "$T"
	eq "reached" "" "$(cat reached)"
	eq "the script came to its end" "done" "$(cat got/out/done)"
	kill "$server"
	casbox sandbox remove other
fi
casbox umount
