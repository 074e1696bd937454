#!/bin/sh
# tests/mount/run-status.sh - the exit status of run, signals, timeouts
. "$(dirname "$0")/../lib/common.sh"
need fuse

expect 0 casbox run -- true
expect 3 casbox run -- sh -c 'exit 3'
expect 137 casbox run -- sh -c 'kill -9 $$'
expect 127 casbox run -- no-such-command
said "cannot execute no-such-command"
: > plain
expect 126 casbox run -- "$T/plain"
said "Permission denied"
expect 125 casbox run --root 00000000000000000000000000000000000000000000000000000000000000aa/5 -- true
said 00000000000000000000000000000000000000000000000000000000000000aa
expect 2 casbox run --no-such-option -- true
expect 2 casbox run --output ../up -- true
expect 2 casbox run --root x --input y -- true
expect 124 casbox run --timeout 0.3 -- sleep 60
expect 124 casbox run --timeout 0.3 -- sh -c 'sleep 60 & sleep 60'

# A signal to us alone reaches the command.
"$CASBOX" run -- sh -c 'trap "exit 42" TERM; echo up; while :; do sleep 0.05; done' > out &
pid=$!
await grep -q up out
kill -TERM $pid
status=0
wait $pid || status=$?
eq "status after SIGTERM" 42 $status

# From a terminal, the whole group gets it, and the command only once.
cat > counts.py <<'END'
import os, signal, sys, time
got = []
signal.signal(signal.SIGINT, lambda *a: got.append(1))
print("up", flush=True)
end = time.time() + 1
while time.time() < end:
    time.sleep(0.02)
print("got", len(got), flush=True)
END
if command -v python3 > /dev/null; then
	python3 - "$CASBOX" > tty-out <<'END'
import os, pty, sys, time
pid, fd = pty.fork()
if pid == 0:
    os.execv(sys.argv[1], [sys.argv[1], "run", "--", "python3", os.getcwd() + "/counts.py"])
text = b""
while b"up" not in text:
    text += os.read(fd, 100)
os.write(fd, b"\x03")
while True:
    try:
        got = os.read(fd, 100)
    except OSError:
        break
    if not got:
        break
    text += got
os.waitpid(pid, 0)
print(text.decode())
END
	grep -q 'got 1' tty-out || fail "a terminal's SIGINT: $(cat tty-out)"
fi
eq "sandboxes left" "" "$(casbox sandbox list)"
casbox umount
[ -n "${TEST_PLAIN:-}" ] || again_as_plain
