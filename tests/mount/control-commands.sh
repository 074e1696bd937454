#!/bin/sh
# Each command of the control file does what the table says, long ones beside short ones, and
# help names all of them with their arguments.
. "$(dirname "$0")/../lib/common.sh"
. "$HERE/../lib/control.sh"
need fuse mount

body() {
	sample_tree "$T/tree"
	root=$(put "$T/tree")
	echo alone > "$T/alone"
	alone=$(put "$T/alone")
	mount_start
	exec 9<> "$MNT/.casbox/control"

	# From one table: the file, the command and the parser.
	for name in create finish remove list show trace pin unpin prefetch gc fsck log-level config \
		stats version stop help sync; do
		grep -q "^$name\\( \\|\$\\)" "$MNT/.casbox/help" || fail "help lacks $name"
		ask "help $name"
		has '"ok":true' "\"name\":\"$name\"" "\"usage\":\"$name"
	done
	ask help
	has '"name":"create"' '"name":"version"' 'create --root DIGEST [--id ID] [--output PATH]...'
	ask 'help nothing'
	has '"errno":"ENOENT"' nothing
	ask "create --root $root --writable some"
	has '"errno":"EINVAL"' 'writable is one of outputs|dirs|all, not \"some\"'

	ask "create --root $root --id traced --trace names"
	has '"ok":true'
	[ ! -e "$MNT/sandboxes/traced/bin/nothing" ] || fail "there is something"
	ask 'trace traced'
	has '"ok":true' '"trace":"names"' '"failed":["bin/nothing"]'
	ask 'trace nobody'
	has '"errno":"ENOENT"' nobody
	ask 'remove traced'
	has '"ok":true'

	# Pins: by digest or hash, and gc leaves them alone.
	ask "pin ${alone%/*} $root"
	has '"ok":true'
	eq "pins" "$(printf '%s\n' "$(dashed "$alone")" "$(dashed "$root")" | sort)" \
		"$(ls "$STORE/pins")"
	ask "pin $(printf '%064d' 1)"
	has '"errno":"ENOENT"'
	ask "pin $(printf '%064d' 1)/12"
	has '"errno":"ENOENT"' 'no blob'
	ask "pin 12"
	has '"errno":"EINVAL"' 'not a digest'
	ask gc
	has '"errno":"EINVAL"' 'max-size'
	ask 'gc --max-size 0'
	has '"ok":true' '"freed_blobs":0'
	eq "the pinned blob" alone "$(cat "$MNT/cas/file/$(dashed "$alone")")"
	ask "unpin $alone"
	has '"ok":true'
	ask "unpin $alone"
	has '"errno":"ENOENT"' 'not pinned'
	ask '{"command":"gc","max-size":0,"dry-run":true}'
	has '"ok":true' '"freed_blobs":1'
	ask 'gc --max-size 0'
	has '"freed_blobs":1'
	[ ! -e "$(blob_path "$alone")" ] || fail "gc left what is not pinned any more"

	# What is wrong is named, and moved aside on request.
	ask fsck
	has '"ok":true' '"faults":0' '"fault_lines":[]'
	echo leaf > "$T/leaf"
	leaf=$(put "$T/leaf")
	chmod u+w "$(blob_path "$leaf")"
	echo feal > "$(blob_path "$leaf")"
	ask fsck
	has '"ok":true' "${leaf%/*}"
	ask 'fsck --repair --threads 2'
	has "\"lost\":[\"$leaf\"]"
	ask fsck
	has '"faults":0'
	ask 'fsck --threads 0'
	has '"errno":"EINVAL"' 'from 1 to 64'

	ask "prefetch $root"
	has '"errno":"ENODEV"' 'no tier'

	# From now on, without a restart.
	ask log-level
	has '"level":"warn"'
	ask 'log-level debug'
	has '"level":"debug"'
	eq "the answer of ctl" '{"ok":true,"level":"debug"}' "$(casbox ctl log-level)"
	ask 'log-level loud'
	has '"errno":"EINVAL"' 'error|warn|info|debug'
	ask 'log-level warn'
	has '"level":"warn"'
	mount_stop
}
each_user body
