#!/bin/sh
# tests/mount/rootless-mount.sh - a mount that fusermount3 makes for a plain user
. "$(dirname "$0")/../lib/common.sh"

if [ -z "${TEST_USER:-}" ]; then
	need root fusermount3
	again_as_user
	exit
fi

beside() {
	set -- "$XDG_RUNTIME_DIR"/casbox/*.sandboxes
	echo "$1"
}

sample_tree tree
mkdir tree/modes
echo secret > tree/modes/file
chmod 600 tree/modes/file
root=$(put --preserve tree)
mount_start
casbox ctl --mount "$MNT" config > config
grep -q '"mounting":"fusermount3"' config || fail "mounted otherwise: $(cat config)"
eq "where sandboxes are" "$(beside)" "$(readlink "$MNT/sandboxes")"
eq "seen from the mount" "ac cas sandboxes traced" "$(ls -m "$MNT" | tr -d ,)"
eq "mounts" 2 "$(mounts_below "$T" | wc -l)"

# A sandbox is the tree. Its files are root's, so that no namespace makes them ours.
path=$(sandbox_new "$root" --id one)
eq "its path" "$(beside)/one" "$path"
trees_equal tree "$MNT/sandboxes/one"
eq "owner of files" "0 0" "$(stat -c '%u %g' "$path/many/file-1")"
eq "owner of directories" "$(id -u) $(id -g)" "$(stat -c '%u %g' "$path/many")"
eq "a file that its owner alone may read" secret "$(cat "$path/modes/file")"
sandbox_new "$root" --id two > /dev/null
for how in "" "unshare -Ur"; do
	# shellcheck disable=SC2086
	for file in many/file-1 bin/tool modes/file; do
		$how "$FSCHECK" refuses "$path/$file" || fail "an input${how:+, from $how}"
	done
	# shellcheck disable=SC2016,SC2086
	$how sh -c 'cd "$1" || exit
		rm -f many/file-5; mv many other; ln many/file-6 many/x; rm -rf deep' \
		sh "$path" 2> /dev/null || :
	trees_equal tree "$(beside)/two"
done

# The cache is there as for anybody.
digest=$(put tree/bin/tool)
eq "a program of the cache" "ran it" "$("$MNT/cas/executable/$(dashed "$digest")" it)"

# Killed, it is mounted again at both places.
mount_kill
expect 2 ls "$MNT"
mount_start
trees_equal tree "$(beside)/one"
casbox sandbox remove one
casbox sandbox remove two
mount_stop
eq "mounts left" "" "$(mounts_below "$T")"
eq "places left" "$XDG_RUNTIME_DIR/casbox/*.sandboxes" "$(beside)"

# Killed, `umount` clears both.
mount_start
mount_kill
expect 0 casbox umount "$MNT"
eq "mounts left after a kill" "" "$(mounts_below "$T")"

# In the background; an idle mount that `run` started makes way.
expect 0 casbox run --root "$root" -- cat many/file-9
eq "by run" "content 9" "$(cat out)"
expect 0 casbox mount "$MNT"
expect 0 casbox run --root "$root" -- cat many/file-9
eq "by run, in the mount" "content 9" "$(cat out)"
expect 0 casbox umount "$MNT"
eq "mounts left in the end" "" "$(mounts_below "$T")"
