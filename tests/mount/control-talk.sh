#!/bin/sh
# The control file: answers in order on the open that asked, refusals by name, other opens
# at the same time, and nothing but the owner's commands.
. "$(dirname "$0")/../lib/common.sh"
. "$HERE/../lib/control.sh"
need fuse mount

body() {
	sample_tree "$T/tree"
	root=$(put "$T/tree")
	mount_start
	exec 9<> "$MNT/.casbox/control"

	eq "nothing asked, nothing said" "" "$(dd bs=100 count=1 <&9 2> /dev/null)"
	ask version
	has '"ok":true' "\"mountpoint\":\"$MNT\"" '"store_version":"casbox-store 1 sha256"'
	ask '{"command": "version"}'
	has '"ok":true' "\"pid\":$DAEMON"

	ask ''
	has '"ok":false' '"errno":"EINVAL"'
	ask 'frobnicate now'
	has '"ok":false' '"errno":"EINVAL"' frobnicate
	ask "create --id 'a"
	has '"errno":"EINVAL"' 'not closed'
	ask '{"command": "show"'
	has '"errno":"EINVAL"' JSON
	ask 'show nobody'
	has '"ok":false' '"errno":"ENOENT"' nobody
	ask 'create --root 123'
	has '"errno":"EINVAL"' digest

	# Three in one write, and one in pieces.
	printf 'version\nfrobnicate\nhelp\n' >&9
	IFS= read -r answer <&9 && has '"ok":true'
	IFS= read -r answer <&9 && has EINVAL
	IFS= read -r answer <&9 && has '"help":'
	printf 'ver' >&9
	ask sion
	has '"ok":true'

	# A line over the limit is refused, and the next one is understood.
	head -c 1100000 /dev/zero | tr '\0' x >&9
	ask ''
	has '"ok":false' '"errno":"E2BIG"'
	ask version
	has '"ok":true'

	# The sandbox lives as long as the conversation that asked for it so.
	ask "create --root $root --id kept"
	has '"ok":true' "\"path\":\"$MNT/sandboxes/kept\""
	(
		exec 9<> "$MNT/.casbox/control"
		ask "create --root $root --id bound --attach"
		has '"ok":true'
		[ -e "$MNT/sandboxes/bound/empty" ] || fail "the attached sandbox is not there"
	)
	await [ ! -e "$MNT/sandboxes/bound" ]
	[ -e "$MNT/sandboxes/kept/empty" ] || fail "the other one went too"
	eq "listing" kept "$(ls "$MNT/sandboxes")"

	ask 'stop --if-idle'
	has '"ok":false' '"errno":"EBUSY"'
	ask 'remove kept'
	has '"ok":true'
	[ ! -e "$MNT/sandboxes/kept" ] || fail "a removed sandbox can be seen"
	eq "listing" "" "$(ls "$MNT/sandboxes")"

	# Several commands in one write, and finish as the last word on a sandbox.
	printf 'create --root %s --id next\nlist\n' "$root" >&9
	IFS= read -r answer <&9 && has '"ok":true' next
	IFS= read -r answer <&9 && has '"id":"next"'
	eq "listing" next "$(ls "$MNT/sandboxes")"
	ask 'finish next --exit-code 3 --remove'
	has '"ok":true' '"exitCode":3'
	[ ! -e "$MNT/sandboxes/next" ] || fail "a finished and removed sandbox can be seen"
	eq "listing" "" "$(ls "$MNT/sandboxes")"
	ask 'stop --if-idle'
	has '"ok":true'
	exec 9>&-
	status=0
	wait "$DAEMON" || status=$?
	DAEMON=
	eq "status of the daemon" 0 "$status"
	eq "mounts left behind" "" "$(mounts_below "$MNT")"
	[ ! -e "$STORE/run/daemon" ] || fail "the daemon left its record"
}
each_user body
