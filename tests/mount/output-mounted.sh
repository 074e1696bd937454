#!/bin/sh
# tests/mount/output-mounted.sh - what an action mounts over its outputs is named, not captured
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

# finish names these paths as not captured, and captures these outputs: answered ID PATHS OUTPUTS
answered() {
	casbox sandbox finish "$1" --mount "$MNT" > "$T/said" 2> "$T/err" ||
		fail "finish $1: $(cat "$T/err")"
	eq "$1: failed" "$2" "$(sed -n 's/.*cannot capture \([^:]*\):.*/\1/p' "$T/err" | paste -sd ' ')"
	eq "$1: outputs" "$3" "$(cut -f 1 "$T/said" | paste -sd ' ')"
	[ -z "$2" ] || said "another file system (" "is mounted here"
	eq "$1: mounts left" "" "$(mounts_below "$MNT/sandboxes/$1")"
	casbox sandbox remove "$1" --mount "$MNT"
}

# A file of a captured output: captured OUTPUT NAME.
captured() {
	casbox ls "$(sed -n "s|^$1\t||p" "$T/said")" "$2" > "$T/out" 2> "$T/err" || return 1
}

body() {
	mkdir -p tree/src
	echo input > tree/src/i
	root=$(put tree)
	mount_start
	for policy in outputs all; do
		# On a directory below an output, and on a file of it.
		sb=$(sandbox_new "$root" --id "below-$policy" --writable $policy --output out/)
		mkdir "$sb/out/x" "$sb/out/y"
		echo kept > "$sb/out/y/kept"
		: > "$sb/out/file"
		mount -t tmpfs none "$sb/out/x"
		echo lost > "$sb/out/x/lost"
		mount --bind "$T/tree/src/i" "$sb/out/file"
		answered "below-$policy" "out/file out/x" out

		# Over the output itself, over the sandbox, and on a directory above an output.
		sb=$(sandbox_new "$root" --id "over-$policy" --writable $policy --output out/)
		mount -t tmpfs none "$sb/out"
		echo lost > "$sb/out/lost"
		answered "over-$policy" out ""
		sb=$(sandbox_new "$root" --id "all-$policy" --writable $policy --output out/ --output o2)
		mount -t tmpfs none "$sb"
		mkdir "$sb/out"
		echo lost > "$sb/out/lost"
		answered "all-$policy" "" ""
	done
	sb=$(sandbox_new "$root" --id above --writable all --output a/b/out --output a/b/o)
	mount -t tmpfs none "$sb/a"
	mkdir -p "$sb/a/b/out"
	answered above a ""

	# Taken off: what was written before is captured.
	for policy in outputs all; do
		sb=$(sandbox_new "$root" --id gone --writable $policy --output out/)
		echo early > "$sb/out/early"
		if [ $policy = all ]; then umount -l "$sb"; else umount -l "$sb/out"; fi
		casbox sandbox finish gone > "$T/said" 2> "$T/err" || fail "finish: $(cat "$T/err")"
		captured out early || fail "$policy: what was in a layer taken off is lost"
		casbox sandbox remove gone
		# And something else put there, which may have its number.
		sb=$(sandbox_new "$root" --id swapped --writable $policy --output out/)
		umount -l "$sb/out" 2> /dev/null || umount -l "$sb"
		mount -t tmpfs none "$sb/out" 2> /dev/null || mount -t tmpfs none "$sb"
		[ -d "$sb/out" ] || mkdir "$sb/out"
		echo lost > "$sb/out/lost"
		casbox sandbox finish swapped > "$T/said" 2> "$T/err" || fail "$(cat "$T/err")"
		said "is mounted here"
		eq "swapped: outputs" "" "$(cat "$T/said")"
		casbox sandbox remove swapped
	done
	# Elsewhere it is the action's own business.
	sb=$(sandbox_new "$root" --id other --output out/)
	mount -t tmpfs none "$sb/src"
	echo kept > "$sb/out/kept"
	answered other "" out
	mount_stop
}

# In the mount namespace that run makes.
ran() {
	status=0
	"$CASBOX" run --input "$T/tree" --into "$T/res" "$@" 2> "$T/err" || status=$?
	eq "status of run" 0 "$status"
}
in_run() {
	ran --output out/ -- sh -c 'mkdir out/x && mount -t tmpfs none out/x && echo > out/x/l && echo k > out/k'
	said "out/x: another file system (tmpfs) is mounted here"
	[ -e res/out/k ] || fail "what lies beside the mount was not captured"
	[ ! -e res/out/x ] || fail "what lies under the mount was captured"
	rm -rf res
	ran --output out/ -- sh -c 'mount -t tmpfs none out && echo > out/l'
	said "out: another file system (tmpfs) is mounted here"
	[ ! -e res/out ] || fail "what lies under the mount was captured"
	ran --output out/ -- sh -c 'mkdir "out/a
b" && mount -t tmpfs none "out/a
b"'
	said "out: another file system (tmpfs) is mounted here"
	[ ! -e res/out ] || fail "what lies under the mount was captured"
	ran --output out/ -- sh -c 'umount -l out; mount -t tmpfs none out && echo > out/l'
	said "out: another file system (tmpfs) is mounted here"
	ran --output out/ -- sh -c 'mount -t tmpfs none out && umount out && echo > out/k'
	[ ! -s err ] || fail "a mount that was taken off is named: $(cat err)"
	[ -e res/out/k ] || fail "the output was not captured"
	within 10 "$CASBOX" umount
}

both() {
	body
	in_run
}
each_user both
