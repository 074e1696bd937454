#!/bin/sh
# The control file and those that use it in odd ways: who never reads, writes a MiB, garbage,
# half a line, nothing; O_NONBLOCK and poll; a reader that is killed. The daemon lives.
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

alive() {
	within 10 "$CASBOX" ctl --mount "$MNT" version > "$T/version" || fail "it died: $1"
	grep -q '"ok":true' "$T/version" || fail "it answers oddly after: $1"
}

rss_kb() {
	sed -n 's/^VmRSS:[ \t]*\([0-9]*\) kB/\1/p' "/proc/$DAEMON/status"
}

body() {
	mkdir -p "$T/tree"
	head -c 10000000 /dev/urandom > "$T/tree/large"
	put "$T/tree" > /dev/null
	mount_start
	C=$MNT/.casbox/control

	# Who never reads is told, and others are answered.
	exec 9<> "$C"
	refused=
	for i in $(seq 3000); do
		echo help | dd bs=64 >&9 2> "$T/refused" || {
			refused=$i
			break
		}
	done
	[ -n "$refused" ] || fail "3000 answers were kept for nobody"
	grep -q 'No buffer space' "$T/refused" || fail "$(cat "$T/refused")"
	alive "who never reads"
	# Once it reads, it goes on: an answer for each that was taken.
	eq "answers" "$((refused - 1))" "$(head -n "$((refused - 1))" <&9 | grep -c '^{"ok":true,"help"')"
	echo version >&9
	IFS= read -r answer <&9
	case $answer in '{"ok":true,"version"'*) ;; *) fail "mixed: $answer" ;; esac
	# What was wrong is told, whatever bytes it has.
	printf 'show x\351\n' >&9
	IFS= read -r answer <&9
	eq "odd bytes" '{"ok":false,"errno":"ENOENT","error":"no sandbox x\\xe9"}' "$answer"

	# A hundred thousand bytes of commands in one write: they are run as their answers are read.
	exec 8<> "$C"
	before=$(rss_kb)
	yes help | head -n 20000 | dd bs=100000 iflag=fullblock 2> /dev/null >&8
	alive "20000 commands in a write"
	sleep 1
	grown=$(($(rss_kb) - before))
	[ "$grown" -lt 40000 ] || fail "20000 commands that nobody reads took $grown kB"
	eq "answers to 20000" 20000 "$(head -n 20000 <&8 | grep -c '^{"ok":true,"help"')"
	echo version >&8
	IFS= read -r answer <&8
	case $answer in '{"ok":true,"version"'*) ;; *) fail "after 20000: $answer" ;; esac
	exec 8>&-

	# Half a line: reading it says so, the other half makes it whole.
	printf 'ver' >&9
	status=0
	head -c 10 <&9 > "$T/out" 2> "$T/err" || status=$?
	[ "$status" -ne 0 ] || fail "half a line reads as '$(cat "$T/out")'"
	grep -q 'Protocol error' "$T/err" || fail "$(cat "$T/err")"
	echo sion >&9
	IFS= read -r answer <&9
	case $answer in '{"ok":true,"version"'*) ;; *) fail "cut in two: $answer" ;; esac
	exec 9>&-
	printf 'stop --force' > "$C"
	alive "a line without an end"
	await grep -q 'within a line: 12 bytes' "$T/daemon.log"

	# A MiB fits, more does not.
	{
		printf 'show '
		head -c 1048571 /dev/zero | tr '\0' x
		echo
	} > "$T/mib"
	for extra in '' y; do
		exec 9<> "$C"
		{
			printf %s "$extra"
			cat "$T/mib"
		} | dd bs=1M iflag=fullblock 2> /dev/null >&9
		IFS= read -r answer <&9
		case $extra$answer in
		'{"ok":false,"errno":"EINVAL"'* | '{"ok":false,"errno":"ENOENT"'*) ;;
		'y{"ok":false,"errno":"E2BIG"'*) ;;
		*) fail "a MiB and '$extra': $(printf %.200s "$answer")" ;;
		esac
		exec 9>&-
	done
	alive "a MiB"

	# Garbage: an answer for each newline in it.
	head -c 200000 /dev/urandom > "$T/garbage"
	echo >> "$T/garbage"
	nr=$(wc -l < "$T/garbage")
	exec 9<> "$C"
	cat "$T/garbage" >&9
	eq "refusals" "$nr" "$(head -n "$nr" <&9 | grep -c '^{"ok":false,"errno":"EINVAL",.*}$')"
	exec 9>&-
	alive garbage
	: > "$C"
	alive nothing

	# O_NONBLOCK, poll: hashing 10 MB takes a while.
	"$CTLTALK" wait "$C" > "$T/polled" 2>&1 || fail "$(cat "$T/polled")"
	alive polling

	# A level with a NUL in it, or behind it, is none.
	for word in 'debug\0' 'de\0bug' '\0'; do
		got=0
		printf "$word" 2> "$T/err" > "$MNT/.casbox/log-level" || got=$?
		[ "$got" -ne 0 ] || fail "log-level takes $word"
	done
	eq "the level" warn "$(cat "$MNT/.casbox/log-level")"

	# Who waits can be killed, and the daemon has its answer for nobody.
	exec 9<> "$C"
	yes fsck | head -n 100 >&9
	head -n 100 <&9 > /dev/null 2>&1 &
	reader=$!
	exec 9>&-
	sleep 0.1
	kill -9 "$reader"
	await gone "$reader"
	alive "a killed reader"
	mount_stop
}

gone() {
	! grep -q '^State:.*[SRD] (' "/proc/$1/status" 2> /dev/null
}
each_user body
