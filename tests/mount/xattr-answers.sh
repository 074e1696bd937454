#!/bin/sh
# tests/mount/xattr-answers.sh - extended attributes of inputs are absent and refused (C41)
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

body() {
	sample_tree "$T/tree"
	root=$(put "$T/tree")
	mount_start
	sandbox=$(sandbox_new "$root" --output out/)
	for f in many/file-1 bin/tool deep; do
		"$FSCHECK" call 'EOPNOTSUPP|ENODATA' getxattr "$sandbox/$f"
		"$FSCHECK" call 'EOPNOTSUPP|ENODATA' getcap "$sandbox/$f"
		"$FSCHECK" call 'OK|EOPNOTSUPP' listxattr "$sandbox/$f"
		"$FSCHECK" call EROFS setxattr "$sandbox/$f"
		"$FSCHECK" call EROFS removexattr "$sandbox/$f"
	done
	cp -a "$sandbox/deep" "$T/copied" 2> "$T/said"
	eq "cp -a out of the sandbox says" "" "$(cat "$T/said")"
	cp -a "$T/tree/many" "$sandbox/out/" 2> "$T/said"
	eq "cp -a into the sandbox says" "" "$(cat "$T/said")"
	install -m 755 "$sandbox/bin/tool" "$sandbox/out/tool" 2> "$T/said"
	eq "install says" "" "$(cat "$T/said")"
	"$FSCHECK" stat "$sandbox/out/tool" mode=0755
	mount_stop
}
each_user body
