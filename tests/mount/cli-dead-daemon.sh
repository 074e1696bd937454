#!/bin/sh
# tests/mount/cli-dead-daemon.sh - C14: killed or stopped, a daemon costs an error, never a hang
. "$(dirname "$0")/../lib/common.sh"
need root fuse

daemon_pid() { sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' "$STORE/run/daemon"; }
mkdir in
echo text > in/f
casbox mount "$MNT"
root=$(put in)
path=$(casbox sandbox create --root "$root" --id keep --output out/)
echo finished > "$path/out/f"
before=$(put "$CASBOX")
kill -9 "$(daemon_pid)"
sleep 0.1
expect 1 within 10 "$CASBOX" sandbox list
expect 0 within 10 "$CASBOX" put in
expect 0 within 10 "$CASBOX" fsck
within 2 "$CASBOX" mount "$MNT" || fail "mount after the kill: $?"
eq "mounts at the place" 1 "$(mounts_below "$MNT" | grep -cx "$MNT")"
eq "output" finished "$(cat "$path/out/f")"
eq "state" live "$(casbox sandbox list | cut -f 2)"
casbox cat "$before" | cmp - "$CASBOX" || fail "a put was lost"
casbox sandbox remove keep

# umount of a dead one cleans up; a second has nothing to do.
kill -9 "$(daemon_pid)"
sleep 0.1
expect 0 within 10 "$CASBOX" umount "$MNT"
eq "mounts" "" "$(mounts_below "$T")"
expect 1 within 10 "$CASBOX" umount "$MNT"

# Stopped: commands that need it give up, those that do not go on.
casbox mount "$MNT"
pid=$(daemon_pid)
kill -STOP "$pid"
expect 0 within 10 "$CASBOX" cat "$root"
expect 1 within 30 "$CASBOX" sandbox list
said "$MNT"
kill -CONT "$pid"
expect 0 within 10 "$CASBOX" sandbox list
kill -STOP "$pid"
expect 0 within 60 "$CASBOX" umount --force "$MNT"
eq "mounts" "" "$(mounts_below "$T")"
