# tests/lib/common.sh - what every shell case starts from
#
# A case begins with
#
#	. "$(dirname "$0")/../lib/common.sh"
#
# and is run by meson with CASBOX (the program), FSCHECK and FSSTRESS (tests/lib/*.c) in its
# environment. TEST_LONG=1 there asks for the full number of rounds where the default is a
# shorter one. The first process only supervises: it makes the private directory $T, runs
# the case again below a time limit, and afterwards ends the processes that carry $T in
# their environment, detaches what is mounted below $T and removes $T, however the case
# ended. In the case the shell runs with -eu; $STORE and $MNT are the places to use, HOME
# and the XDG directories lie below $T, so no configuration of the machine is read except
# /etc/casbox.conf. Exit 0 passes, 77 skips, anything else fails.

: "${CASBOX:?is the program to test}" "${FSCHECK:?is the helper program}"
LC_ALL=C
# What it executes for nearly everything, beside it.
FULL_CASBOX=${CASBOX%/*}/casbox-full
export LC_ALL CASBOX FULL_CASBOX FSCHECK
[ -z "${FSSTRESS:-}" ] || export FSSTRESS
[ -z "${CTLTALK:-}" ] || export CTLTALK

# Mounts below $1, the newest first, one mount point a line.
mounts_below() {
	while read -r _ _ _ _ at _; do
		case $at in "$1" | "$1"/*) printf '%s\n' "$at" ;; esac
	done < /proc/self/mountinfo | tac
}

# End every process started for the case at $1, break its FUSE connections, detach.
sweep() {
	for tries in 1 2 3; do
		for env in $(grep -lasF -e "TEST_DIR=$1" -e "TMPDIR=$1/" /proc/[0-9]*/environ); do
			pid=${env%/environ}
			kill -9 "${pid#/proc/}" 2> /dev/null || :
		done
		while read -r _ _ dev _ at _ rest; do
			case "$at $rest" in
			"$1"*' - fuse'*)
				echo 1 2> /dev/null > "/sys/fs/fuse/connections/${dev#*:}/abort" || :
				;;
			esac
		done < /proc/self/mountinfo
		mounts_below "$1" | while read -r at; do
			umount -l "$at" 2> /dev/null || fusermount3 -uz "$at" 2> /dev/null || :
		done
		rm -rf --one-file-system "$1" 2> /dev/null && return
		chmod -R u+rwx "$1" 2> /dev/null || :
		sleep 0.2
	done
	echo "left behind: $1" >&2
}

# What is alive of the case at $1, and what each process waits for in the kernel.
alive() {
	for env in $(grep -lasF -e "TEST_DIR=$1" -e "TMPDIR=$1/" /proc/[0-9]*/environ); do
		pid=${env%/environ}
		for task in "$pid"/task/*; do
			printf '%s %s: %s\n' "${task#/proc/}" "$(cat "$task/wchan")" \
				"$(tr '\0' ' ' < "$pid/cmdline" | cut -c 1-200)"
		done 2> /dev/null
	done
}

[ -z "${TEST_LONG:-}" ] || : "${TEST_TIMEOUT:=3000}"

if [ -z "${TEST_DIR:-}" ]; then
	supervised=$(mktemp -d "${TMPDIR:-/tmp}/casbox-case-XXXXXX") || exit 1
	chmod 755 "$supervised"
	trap 'sweep "$supervised"' EXIT
	trap 'exit 130' HUP INT TERM
	TEST_DIR=$supervised timeout -k 5 "${TEST_TIMEOUT:-100}" sh "$0" "$@" < /dev/null &
	case=$!
	{
		TEST_DIR=$supervised sleep "$((${TEST_TIMEOUT:-100} - 1))" &&
			alive "$supervised" > "$supervised/alive"
	} > /dev/null 2>&1 < /dev/null &
	status=0
	wait "$case" || status=$?
	if [ "$status" -eq 124 ]; then
		echo "FAIL: over the time limit of ${TEST_TIMEOUT:-100} s; shortly before were alive"
		cat "$supervised/alive"
	fi
	cat "$supervised/verdict" 2> /dev/null
	case $status in
	0 | 77) ;;
	*)
		if [ -s "$supervised/daemon.log" ]; then
			echo "--- the daemon said:"
			tail -n 30 "$supervised/daemon.log"
		fi
		;;
	esac
	exit "$status"
fi

set -eu
T=$TEST_DIR
STORE=$T/store
MNT=$T/mnt
DAEMON=
HERE=$(cd "$(dirname "$0")" && pwd)
HOME=$T/home
XDG_CACHE_HOME=$T/cache
XDG_CONFIG_HOME=$T/etc
XDG_RUNTIME_DIR=$T/runtime
CASBOX_STORE=$STORE
export HOME XDG_CACHE_HOME XDG_CONFIG_HOME XDG_RUNTIME_DIR CASBOX_STORE
mkdir -p "$HOME" "$XDG_CACHE_HOME" "$XDG_CONFIG_HOME" "$XDG_RUNTIME_DIR" "$MNT"
chmod 700 "$XDG_RUNTIME_DIR"
cd "$T"

# --- verdicts ---

# The supervisor prints it, as standard output may be redirected where this is called.
fail() {
	echo "FAIL: $*" > "$T/verdict"
	exit 1
}

skip() {
	echo "skipped: $*"
	exit 77
}

# eq WHAT WANT GOT
eq() {
	[ "$2" = "$3" ] || fail "$1: want '$2', got '$3'"
}

# expect STATUS COMMAND...: the exit status is exactly this; output in $T/out and $T/err.
expect() {
	want=$1
	shift
	got=0
	"$@" > "$T/out" 2> "$T/err" || got=$?
	[ "$got" -eq "$want" ] || {
		sed 's/^/stderr: /' "$T/err"
		fail "status $got instead of $want: $*"
	}
}

# said TEXT...: each text stands in what the last `expect` caught on standard error.
said() {
	for text in "$@"; do
		grep -qF -e "$text" "$T/err" || fail "message lacks '$text': $(cat "$T/err")"
	done
}

# A process that must not go on for ever: within SECONDS COMMAND...
within() {
	within_secs=$1
	shift
	timeout -k 1 "$within_secs" "$@" || {
		got=$?
		[ "$got" -ne 124 ] && [ "$got" -ne 137 ] || fail "took over $within_secs s: $*"
		return "$got"
	}
}

# Wait up to ten seconds for a command to succeed.
await() {
	for _ in $(seq 200); do
		if "$@" > /dev/null 2>&1; then return; fi
		sleep 0.05
	done
	fail "waited in vain for: $*"
}

# --- features ---

# need FEATURE...: skip unless the machine has it; asks for the feature, not for a version.
need() {
	for feature in "$@"; do
		case $feature in
		root) [ "$(id -u)" -eq 0 ] || skip "not root" ;;
		mount) unshare -m true 2> /dev/null || skip "may not mount" ;;
		fuse) : 2> /dev/null < /dev/fuse || skip "/dev/fuse cannot be opened" ;;
		overlay) can_overlay || skip "the kernel cannot mount an overlay here" ;;
		fusermount3) can_fusermount || skip "fusermount3 mounts nothing here" ;;
		plain) can_plain || skip "no user namespaces for plain users" ;;
		*) command -v "$feature" > /dev/null || skip "no $feature" ;;
		esac
	done
}

can_overlay() {
	# shellcheck disable=SC2016
	unshare -m sh -c 'mkdir -p "$0/l" && mount -t tmpfs tmpfs "$0/l" &&
		mkdir "$0/l/1" "$0/l/2" "$0/l/3" "$0/l/4" &&
		mount -t overlay -o "lowerdir=$0/l/1,upperdir=$0/l/2,workdir=$0/l/3" overlay "$0/l/4"
		' "$T/probe" 2> /dev/null
}

# --- a plain user in a user namespace ---

PLAIN_UID=4242

# Run a command as a plain user, in a mount namespace with a /dev/fuse that he may open.
as_plain() {
	# shellcheck disable=SC2016
	unshare -m --propagation private sh -c '
		[ -e "$1/dev" ] || mkdir "$1/dev"
		mount -t tmpfs -o mode=755 tmpfs "$1/dev" && mknod -m 666 "$1/dev/fuse" c 10 229 &&
		mount --bind "$1/dev/fuse" /dev/fuse || exit 125
		uid=$2
		shift 2
		exec setpriv --reuid="$uid" --regid="$uid" --clear-groups "$@"
		' sh "$T" "$PLAIN_UID" "$@"
}

can_plain() {
	[ "$(id -u)" -eq 0 ] && as_plain unshare -Urm sh -c ': < /dev/fuse' 2> /dev/null
}

# The same as a user whom the machine knows, which fusermount3 wants, and outside of any
# user namespace.
as_user() (
	PLAIN_UID=$(getent passwd games news daemon | sed 's/:.*//;q')
	as_plain "$@"
)

can_fusermount() {
	[ "$(id -u)" -eq 0 ] && [ -u "$(command -v fusermount3)" ] && as_user sh -c ': < /dev/fuse'
} 2> /dev/null

# Run this case once more, as root of a plain user's namespace. Its $T is its own; in it
# $TEST_PLAIN is set.
again_as_plain() {
	can_plain || {
		echo "note: no user namespaces for plain users, that half is left out"
		return 0
	}
	echo "--- again, as a plain user in a user namespace"
	again_with TEST_PLAIN=1 as_plain unshare -Urm
}

# Make a btrfs at $T/b, and the store lie on it.
store_on_btrfs() {
	need mount mkfs.btrfs
	truncate -s 512M "$T/img"
	mkfs.btrfs -q "$T/img" > /dev/null 2>&1 || skip "no btrfs can be made"
	mkdir "$T/b"
	mount -o loop "$T/img" "$T/b" 2> /dev/null || skip "no btrfs can be mounted"
	STORE=$T/b/store
	CASBOX_STORE=$STORE
}

# Run this case once more, as a plain user and nothing else; in it $TEST_USER is set. With
# words, these before it.
again_as_user() {
	echo "--- again, as a plain user"
	again_with TEST_USER=1 as_user "$@"
}

# again_with VARIABLE=VALUE FUNCTION [WORD...]: the case below both words and function, with
# copies of all that it needs.
again_with() {
	again=$T/again
	mkdir -p "$again/mount" "$again/lib" "$again/bin" "$again/tmp"
	cp "$HERE/${0##*/}" "$again/mount/case.sh"
	cp "$HERE"/../lib/*.sh "$HERE/../lib/reapi.py" "$again/lib/"
	cp "$CASBOX" "$FULL_CASBOX" "$again/bin/"
	cp "$FSCHECK" "$again/bin/fscheck"
	cp "${FSSTRESS:-$FSCHECK}" "$again/bin/fsstress"
	cp "${CTLTALK:-$FSCHECK}" "$again/bin/ctltalk"
	chmod 755 "$T" "$again" "$again/bin/"*
	chmod 1777 "$again/tmp"
	set=$1
	as=$2
	shift 2
	"$as" env -u TEST_DIR "$set" TMPDIR="$again/tmp" CASBOX="$again/bin/casbox" \
		FSCHECK="$again/bin/fscheck" FSSTRESS="$again/bin/fsstress" \
		CTLTALK="$again/bin/ctltalk" \
		"$@" sh "$again/mount/case.sh"
}

# From here on in a mount namespace that no other process can walk into: for cases that
# count what is in use. Somebody's find or df that is passing by counts, too.
alone() {
	[ -n "${TEST_ALONE:-}" ] && return
	TEST_ALONE=1
	export TEST_ALONE
	exec unshare -m --propagation private sh "$HERE/${0##*/}"
}

# each_user FUNCTION: the body of a case, as root and as a plain user in a namespace.
each_user() {
	"$1"
	[ -n "${TEST_PLAIN:-}" ] || again_as_plain
}

# --- the product ---

casbox() {
	"$CASBOX" "$@"
}

# put PATH: its digest, HASH/SIZE.
put() {
	"$CASBOX" put "$@"
}

# Both forms of a digest: HASH/SIZE -> HASH-SIZE, safe in a file name.
dashed() {
	printf '%s\n' "${1%/*}-${1#*/}"
}

# Path of a blob's file in the store.
blob_path() {
	hash=${1%/*}
	printf '%s/cas/%.2s/%s\n' "$STORE" "$hash" "$hash"
}

# Start a daemon in the foreground of a background job and wait until it answers.
mount_start() {
	mkdir -p "$MNT" 2> /dev/null || :
	"$CASBOX" mount -f "$@" "$MNT" >> "$T/daemon.log" 2>&1 &
	DAEMON=$!
	for _ in $(seq 400); do
		# Commands wait until sandboxes are back; names resolve earlier.
		if [ -e "$MNT/.casbox/version" ] 2> /dev/null; then
			"$CASBOX" ctl --mount "$MNT" version > /dev/null && return
		fi
		kill -0 "$DAEMON" 2> /dev/null || fail "the daemon ended: $(tail -n 5 "$T/daemon.log")"
		sleep 0.05
	done
	fail "the mount did not answer within 20 s"
}

# Unmount in the documented way; the daemon must end with status 0.
mount_stop() {
	[ -n "$DAEMON" ] || return 0
	within 20 "$CASBOX" umount "$MNT" || fail "umount: status $?"
	status=0
	wait "$DAEMON" || status=$?
	DAEMON=
	eq "status of the daemon" 0 "$status"
	eq "mounts left behind" "" "$(mounts_below "$MNT")"
}

# SIGKILL.
mount_kill() {
	kill -9 "$DAEMON"
	wait "$DAEMON" 2> /dev/null || :
	DAEMON=
}

# sandbox_new ROOT [OPTION...]: its path.
sandbox_new() {
	root=$1
	shift
	"$CASBOX" sandbox create --root "$root" "$@" --mount "$MNT"
}

# --- engines ---

ENGINES=${ENGINES:-bind beside root served-bind served-beside served-root}

# May the inputs be changed on this engine?
at_root() {
	case $1 in *root) ;; *) return 1 ;; esac
}

# each_engine TREE FUNCTION: FUNCTION ENGINE SANDBOX DIR for every way in which a place can
# be writable: a bound directory (bind), one that an overlay lays over inputs (beside), an
# overlay at the root (root), and the same three where session one serves what is written
# (served-bind and so on), for which the mount is started anew. DIR is empty and a declared
# output; SANDBOX/src holds the inputs of TREE/src, changeable for root. Afterwards finish has
# to succeed; what it captured is checked out to $T/captured-ENGINE. SERVED_OPTIONS are more
# for the mount that serves.
each_engine() {
	tree=$1
	body=$2
	root=$(put "$tree")
	served=
	for engine in $ENGINES; do
		case $engine in
		served-*)
			[ -n "$served" ] || {
				mount_stop
				# shellcheck disable=SC2086
				mount_start --engine fuse ${SERVED_OPTIONS:-}
				served=yes
			}
			;;
		esac
		case $engine in
		*bind) sandbox=$(sandbox_new "$root" --id "at-$engine" --output src/out/) ;;
		*beside) sandbox=$(sandbox_new "$root" --id "at-$engine" --output src/out) ;;
		*root) sandbox=$(sandbox_new "$root" --id "at-$engine" --writable all --output src/out) ;;
		esac
		mkdir -p "$sandbox/src/out"
		"$body" "$engine" "$sandbox" "$sandbox/src/out"
		casbox sandbox finish "at-$engine" > "$T/finish-$engine" || fail "finish on $engine"
		digest=$(sed -n "s|^src/out/*\t||p" "$T/finish-$engine")
		casbox checkout "$digest" "$T/captured-$engine"
		casbox sandbox remove "at-$engine"
	done
	[ -z "$served" ] || {
		mount_stop
		mount_start
	}
}

# How much of something: full_or DEFAULT FULL.
full_or() {
	if [ -n "${TEST_LONG:-}" ]; then echo "$2"; else echo "$1"; fi
}

# --- sample trees ---

# A tree with one of everything an input tree may hold.
sample_tree() {
	mkdir -p "$1/many" "$1/deep/a/b/c/d/e" "$1/empty-dir" "$1/bin"
	for i in $(seq 300); do
		echo "content $i" > "$1/many/file-$i"
	done
	echo leaf > "$1/deep/a/b/c/d/e/leaf"
	printf '#!/bin/sh\necho ran "$@"\n' > "$1/bin/tool"
	chmod 755 "$1/bin/tool"
	: > "$1/empty"
	: > "$1/many/empty-too"
	ln -s missing "$1/dangling"
	ln -s loop "$1/loop"
	ln -s /nowhere/at/all "$1/absolute"
	ln -s deep/a "$1/to-dir"
	ln -s ../bin/tool "$1/deep/to-tool"
	echo umlaut > "$1/gr$(printf '\303\274')n"
	echo han > "$1/$(printf '\346\274\242\345\255\227')"
	echo space > "$1/with space"
	echo dots > "$1/..config"
	truncate -s 3000000 "$1/zeros"
}

# Everything about a tree that an input root keeps, one entry a line: compare two of these.
tree_list() {
	(cd "$1" && find . -type d -printf 'd %p\n' -o -type l -printf 'l %p -> %l\n' \
		-o -perm /111 -printf 'x %p %s\n' -o -printf 'f %p %s\n') | sort
}

# trees_equal A B
trees_equal() {
	diff -r --no-dereference "$1" "$2" || fail "contents of $1 and $2 differ"
	tree_list "$1" > "$T/list-a"
	tree_list "$2" > "$T/list-b"
	diff "$T/list-a" "$T/list-b" || fail "entries of $1 and $2 differ"
}
