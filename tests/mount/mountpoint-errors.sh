#!/bin/sh
# tests/mount/mountpoint-errors.sh - mount points that cannot be used are named with the reason
. "$(dirname "$0")/../lib/common.sh"
need fuse root mount

refused() {
	expect 1 within 20 "$CASBOX" mount "$1"
	said "$1"
	expect 1 within 20 "$CASBOX" mount -f "$1"
	said "$1"
}

refused "$T/missing"
: > "$T/file"
refused "$T/file"
mkdir "$T/full"
: > "$T/full/entry"
refused "$T/full"
eq "the entry" entry "$(ls "$T/full")"

# Something else is mounted there.
mkdir "$T/busy"
mount -t tmpfs tmpfs "$T/busy"
: > "$T/busy/other"
refused "$T/busy"
eq "the other mount" "$T/busy" "$(mounts_below "$T/busy")"
rm "$T/busy/other"

# An empty one is fine, and stays when ours goes: in peace, and by force.
expect 0 within 20 "$CASBOX" mount "$T/busy"
expect 0 within 20 "$CASBOX" umount "$T/busy"
eq "the other mount" "$T/busy" "$(mounts_below "$T/busy")"
expect 1 within 20 "$CASBOX" umount "$T/busy"
said "nothing is mounted at $T/busy"
expect 0 within 20 "$CASBOX" mount "$T/busy"
pid=$(casbox ctl version | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p')
kill -STOP "$pid"
expect 0 within 40 "$CASBOX" umount --force "$T/busy"
eq "the other mount" "$T/busy" "$(mounts_below "$T/busy")"
umount "$T/busy"

# Nothing to unmount.
mkdir "$T/idle"
expect 1 casbox umount "$T/idle"
said "$T/idle"

# The device is missing.
unshare -m sh -c 'mount -t tmpfs tmpfs /dev && mknod /dev/null c 1 3 && exec "$@"' sh \
	"$CASBOX" mount -f "$T/idle" > "$T/out" 2> "$T/err" && fail "mounted without /dev/fuse"
said /dev/fuse
eq "mounts left" "" "$(mounts_below "$T/idle")"

# In the background the command returns when the mount answers, and it holds no descriptor.
exec 8> "$T/held"
out=$(casbox mount "$T/idle" 2>&1)
eq "what mount prints" "" "$out"
[ -s "$T/idle/.casbox/version" ] || fail "not usable on return"
holders() { find /proc/[0-9]*/fd -lname "$T/held" 2> /dev/null || :; }
[ -n "$(holders)" ] || fail "not seen that this shell holds it"
exec 8>&-
eq "who still holds what the caller left open" "" "$(holders)"
casbox umount "$T/idle"
eq "mounts left" "" "$(mounts_below "$T/idle")"
