#!/bin/sh
# Only the owner of a mount commands it and changes its log level: not another user, nor root
# with his file descriptors, in a mount that all may see.
. "$(dirname "$0")/../lib/common.sh"
need root fuse mount setpriv

as() {
	uid=$1
	shift
	setpriv --reuid="$uid" --regid="$uid" --clear-groups "$@"
}

sample_tree "$T/tree"
root=$(put "$T/tree")
mount_start --allow-other
C=$MNT/.casbox
chmod 711 "$T"

# Another user: .casbox is closed to him, also by name.
for file in control events metrics log-level config help version; do
	got=0
	as 4242 cat "$C/$file" > "$T/out" 2> "$T/err" || got=$?
	eq "status of reading $file as another" 1 "$got"
	grep -q 'Permission denied' "$T/err" || fail "$file: $(cat "$T/err")"
done
got=0
as 4242 sh -c 'echo "stop --force" > "$1"' sh "$C/control" 2> "$T/err" || got=$?
[ "$got" -ne 0 ] || fail "another user stopped the mount"
# He sees the sandboxes: that is what allow_other is for.
sandbox_new "$root" --id one > /dev/null
eq "an input" leaf "$(as 4242 cat "$MNT/sandboxes/one/deep/a/b/c/d/e/leaf")"

# With the capability that opens everything, and another uid: modes let him pass, the daemon does not.
for file in control log-level; do
	got=0
	setpriv --reuid=4242 --regid=4242 --clear-groups --inh-caps=+dac_override --ambient-caps=+dac_override \
		sh -c 'echo debug > "$1"' sh "$C/$file" 2> "$T/err" || got=$?
	[ "$got" -ne 0 ] || fail "somebody with CAP_DAC_OVERRIDE wrote to $file"
	grep -q 'Permission denied' "$T/err" || fail "$file: $(cat "$T/err")"
done
eq "the level" warn "$(cat "$C/log-level")"
# The owner does.
echo info > "$C/log-level"
eq "the level" info "$(cat "$C/log-level")"
mount_stop

# A plain user's mount in his namespace, and root outside.
can_plain || exit 0
mkdir -p "$T/theirs"
chmod 777 "$T/theirs"
cp "$CASBOX" "$FULL_CASBOX" "$T/theirs/"
chmod 755 "$T/theirs/casbox"
export T
as_plain unshare -Urm sh -eu -c '
	cd "$T/theirs"
	mkdir mnt
	CASBOX_STORE=$T/theirs/store ./casbox mount mnt
	CASBOX_STORE=$T/theirs/store ./casbox ctl version > version
	cat mnt/.casbox/version > text
	echo $$ > pid
	while [ ! -e done ]; do sleep 0.1; done
	CASBOX_STORE=$T/theirs/store ./casbox umount mnt
' &
theirs=$!
await test -s "$T/theirs/pid"
grep -q '"ok":true' "$T/theirs/version" || fail "its owner may not: $(cat "$T/theirs/version")"
got=0
# By the way that /proc gives root into that namespace.
cat "/proc/$(cat "$T/theirs/pid")/cwd/mnt/.casbox/version" > "$T/out" 2>&1 || got=$?
[ "$got" -ne 0 ] || fail "root reads in a mount that is not his"
got=0
echo version > "/proc/$(cat "$T/theirs/pid")/cwd/mnt/.casbox/control" 2> "$T/err" || got=$?
[ "$got" -ne 0 ] || fail "root writes to a control file that is not his"
: > "$T/theirs/done"
wait "$theirs" || fail "the plain user's part: status $?"
