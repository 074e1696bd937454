#!/bin/sh
# tests/mount/kill-remount.sh - kill -9 of the daemon: mounted again, nothing lost (C14)
. "$(dirname "$0")/../lib/common.sh"
need fuse mount overlay

body() {
	sample_tree "$T/tree"
	root=$(put "$T/tree")
	mount_start
	sandbox=$(sandbox_new "$root" --id one --output out/ --output many/new.o)
	echo finished > "$sandbox/out/done"
	echo object > "$sandbox/many/new.o"
	echo acknowledged > "$T/late"
	late=$(put "$T/late")
	(cd "$sandbox/out" && exec sleep 60) &
	sleeper=$!
	mount_kill
	# What the kernel has cached it still answers; anything else fails at once.
	within 5 "$FSCHECK" call ENOTCONN read "$MNT/.casbox/version"
	within 5 "$FSCHECK" call ENOTCONN stat "$MNT/cas/file/$(dashed "$late")"

	began=$(date +%s%N)
	mount_start
	took=$((($(date +%s%N) - began) / 1000000))
	[ "$took" -lt 2000 ] || fail "mounting again took $took ms"
	kill "$sleeper" 2> /dev/null || :
	eq "mounts of ours at the mount point" 1 "$(mounts_below "$MNT" | grep -cx "$MNT")"
	eq "finished output" finished "$(cat "$sandbox/out/done")"
	eq "output beside inputs" object "$(cat "$sandbox/many/new.o")"
	eq "inputs" "content 5" "$(cat "$sandbox/many/file-5")"
	eq "acknowledged put" acknowledged "$(casbox cat "$late")"
	casbox sandbox finish one > "$T/finish"
	eq "captured" object "$(casbox cat "$(sed -n 's|^many/new.o\t||p' "$T/finish")")"

	# Twice in a row, and an unmount of a dead one.
	mount_kill
	mount_start
	mount_kill
	within 20 "$CASBOX" umount "$MNT" || fail "a dead mount cannot be unmounted"
	eq "left at the mount point" "" "$(mounts_below "$MNT")"
	expect 0 casbox fsck

	# Its locks and mounts go some time after the signal: whoever mounts at once waits for that.
	casbox mount "$MNT"
	for _ in 1 2 3 4 5; do
		kill -9 "$(casbox ctl version | sed 's/.*"pid":\([0-9]*\).*/\1/')"
		expect 0 casbox mount "$MNT"
		eq "mounts of ours at the mount point" 1 "$(mounts_below "$MNT" | grep -cx "$MNT")"
	done

	# What a run made is nobody's without the daemon that it talked to.
	"$CASBOX" run --root "$root" --output out/ -- sh -c 'touch out/there
		while [ ! -e "$0" ]; do sleep 0.05; done' "$T/dead" 2> "$T/err" &
	run=$!
	await sh -c "ls '$STORE'/sandboxes/*/upper/0/u/there"
	kill -9 "$(casbox ctl version | sed 's/.*"pid":\([0-9]*\).*/\1/')"
	touch "$T/dead"
	status=0
	wait "$run" || status=$?
	eq "status of the run" 125 "$status"
	casbox mount "$MNT"
	eq "sandboxes" one "$(casbox sandbox list | cut -f 1)"
	await sh -c "! ls '$STORE'/sandboxes | grep -q '^[0-9a-f]'"
	casbox umount "$MNT"
}
each_user body
