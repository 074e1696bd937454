#!/bin/sh
# 3,000 files with 256 descriptors: open one after the other, all at once, through both views.
. "$(dirname "$0")/../lib/common.sh"
need fuse mount python3 prlimit

NR=3000

limit_of() {
	awk '/^Max open files/ { print $4, $5 }' "/proc/$1/limits"
}

open_blobs() {
	casbox ctl --mount "$MNT" stats | sed 's/.*"open_blobs":\([0-9]*\).*/\1/'
}

# All files below $1 open at the same time, then read, each against its name.
open_all() {
	python3 - "$1" "$NR" <<- 'EOF'
		import os, resource, sys
		hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
		resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
		nr = int(sys.argv[2])
		fds = [os.open("%s/%d" % (sys.argv[1], i), os.O_RDONLY) for i in range(nr)]
		for i, fd in enumerate(fds):
		    assert os.pread(fd, 100, 0) == b"content %d\n" % i, i
		again = [os.open("%s/%d" % (sys.argv[1], i), os.O_RDONLY) for i in range(100)]
		for i, fd in enumerate(again):
		    assert os.pread(fd, 100, 0) == b"content %d\n" % i, i
	EOF
}

hard=$(limit_of $$)
[ "${hard#* }" -ge 4096 ] || skip "may not open $NR files"
mkdir "$T/tree"
for i in $(seq 0 $((NR - 1))); do
	echo "content $i" > "$T/tree/$i"
done
root=$(put "$T/tree")
view=$MNT/cas/directory/$(dashed "$root")

# mount_limited SOFT:HARD [OPTION...]
mount_limited() {
	limits=$1
	shift
	prlimit --nofile="$limits" "$CASBOX" mount -f "$@" "$MNT" >> "$T/daemon.log" 2>&1 &
	DAEMON=$!
	await test -e "$MNT/.casbox/version"
}

# The soft limit is nothing to go by.
mount_limited 256:4096
eq "limits of the daemon" "4096 4096" "$(limit_of "$DAEMON")"
mount_stop

for without in '' passthrough; do
	mount_limited 256:256 --without "$without"
	eq "limits of the daemon" "256 256" "$(limit_of "$DAEMON")"
	sandbox=$(sandbox_new "$root" --id "few$without")
	open_all "$sandbox"
	[ "$(open_blobs)" -le 128 ] || fail "$(open_blobs) descriptors kept for a sandbox"
	open_all "$view"
	[ "$(open_blobs)" -le 128 ] || fail "$(open_blobs) descriptors kept for the view"
	trees_equal "$T/tree" "$sandbox"
	trees_equal "$T/tree" "$view"
	mount_stop
done
