#!/bin/sh
# What the kernel asks for, counted: a small file is read once, and nothing is asked twice.
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

# The counts of session one, a word each.
count() {
	casbox ctl --mount "$MNT" stats | sed 's/.*"one":{//; s/}.*//' > "$T/stats"
	for op in LOOKUP GETATTR READ READDIR READDIRPLUS OPEN OPENDIR RELEASE GETXATTR ACCESS; do
		nr=$(grep -o "\"$op\":[0-9]*" "$T/stats" | sed 's/.*://')
		eval "new=${nr:-0} old=\${was_$op:-0}"
		eval "was_$op=$new d_$op=$((new - old))"
	done
}

body() {
	mkdir -p "$T/tree/dir"
	for i in $(seq 100); do
		head -c $((i * 300)) /dev/zero | tr '\0' "$((i % 10))" > "$T/tree/dir/file-$i"
	done
	: > "$T/tree/dir/empty"
	root=$(put "$T/tree")
	# Nothing is given before it is asked for: tests/mount/warm.sh and slot-pushed.sh.
	mount_start --without push
	sandbox=$(sandbox_new "$root" --id one)
	count

	for i in $(seq 100); do
		cat "$sandbox/dir/file-$i" > /dev/null
	done
	cat "$sandbox/dir/empty" > /dev/null
	count
	# The directory and 101 files; the sandbox, too, unless binding it has asked already.
	[ "$d_LOOKUP" -eq 102 ] || eq "lookups of a first pass" 103 "$d_LOOKUP"
	eq "reads, one a file" 100 "$d_READ"
	# The first open ever is refused.
	[ "$d_OPEN" -le 1 ] || fail "$d_OPEN opens"
	# The list of sandboxes changed, and with it its directory.
	[ "$d_GETATTR" -le 1 ] || fail "$d_GETATTR times attributes"

	for i in $(seq 100); do
		stat "$sandbox/dir/file-$i" > /dev/null
		cat "$sandbox/dir/file-$i" > /dev/null
		[ ! -e "$sandbox/dir/missing-$i" ]
	done
	count
	eq "lookups of a second pass, all missing" 100 "$d_LOOKUP"
	for op in GETATTR READ OPEN RELEASE GETXATTR ACCESS; do
		eval "nr=\$d_$op"
		eq "$op in a second pass" 0 "$nr"
	done

	for i in $(seq 100); do
		[ ! -e "$sandbox/dir/missing-$i" ]
	done
	ls -l "$sandbox/dir" > /dev/null
	count
	eq "missing names that were missing before" 0 "$d_LOOKUP"
	ls -l "$sandbox/dir" > /dev/null
	count
	eq "a second listing" "0 0" "$d_READDIR $d_READDIRPLUS"
	mount_stop
}
each_user body
