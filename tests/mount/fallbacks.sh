#!/bin/sh
# Everything that casbox can do without: forced off, it says so and works the same.
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

body() {
	sample_tree "$T/tree"
	root=$(put "$T/tree")
	view=$MNT/cas/directory/$(dashed "$root")
	for without in no_opens readdirplus reuse adopt push passthrough large readahead bind overlay cgroup \
		fanotify seat no_opens,readdirplus,reuse,adopt,passthrough,readahead; do
		mount_start --without "$without"
		for name in $(echo "$without" | tr , ' '); do
			grep -qx "$name = no (forced off)" "$MNT/.casbox/config" ||
				fail "config does not say that $name is off"
		done
		sandbox=$(sandbox_new "$root" --id one --output out/)
		trees_equal "$T/tree" "$view"
		mkdir "$T/tree/out"
		trees_equal "$T/tree" "$sandbox"
		rmdir "$T/tree/out"
		echo new > "$sandbox/out/file"
		casbox sandbox finish one > "$T/finished"
		grep -q '^out	' "$T/finished" || fail "finish without $without"
		casbox sandbox remove one
		"$FSCHECK" call ENOENT stat "$sandbox"
		# The same name, another tree: nothing of the first is left.
		other=$(put "$T/tree/deep")
		trees_equal "$T/tree/deep" "$(sandbox_new "$other" --id one)"
		casbox sandbox remove one
		# shellcheck disable=SC2016
		casbox run --root "$root" --output made --into "$T/out-$without" -- \
			sh -c 'cat many/file-7 > made && bin/tool >> made'
		eq "what run made without $without" "content 7 ran" \
			"$(paste -sd ' ' "$T/out-$without/made")"
		mount_stop
	done
	# In the background as well.
	casbox mount --without passthrough "$MNT"
	grep -qx "passthrough = no (forced off)" "$MNT/.casbox/config" || fail "lost on the way"
	casbox umount
	expect 1 "$CASBOX" mount -f --without nonsense "$MNT"
	said "no feature is called nonsense"
}
each_user body
