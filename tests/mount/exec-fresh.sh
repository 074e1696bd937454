#!/bin/sh
# tests/mount/exec-fresh.sh - C19: what was just written can be executed, what runs cannot be changed
. "$(dirname "$0")/../lib/common.sh"
need fuse mount overlay

workers=$(full_or 6 32)
rounds=$(full_or 3 63)

on_engine() {
	"$FSSTRESS" busy-text /bin/sleep "$3" || fail "$1: a running program"
	"$2/src/sleep" 20 &
	pid=$!
	await grep -q sleep "/proc/$pid/comm"
	case $1 in
	*root) want=ETXTBSY ;;
	*) want='EROFS|ETXTBSY' ;;
	esac
	for call in write rdwr trunc-open truncate; do
		"$FSCHECK" call "$want" "$call" "$2/src/sleep"
	done
	if at_root "$1"; then
		echo replaced > "$2/src/next"
		"$FSCHECK" call OK rename "$2/src/next" "$2/src/sleep"
		eq "what replaced a running input" replaced "$(cat "$2/src/sleep")"
	fi
	kill -0 "$pid" || fail "$1: the program ended"
	kill "$pid"
	wait "$pid" 2> /dev/null || :
}

# One action after the other: copy a tool, run it; check it out in every mode, run it.
# shellcheck disable=SC2016
worker() {
	for round in $(seq "$rounds"); do
		said=$(casbox run --root "$tools" --output out/ -- sh -c '
			cp script out/s && out/s && cp true out/t && out/t &&
				install -m 755 script out/i && out/i') || return 1
		[ "$said" = "ran
ran" ] || return 1
		for mode in copy hardlink; do
			casbox checkout --mode "$mode" "$tools" "$T/co-$1-$round-$mode" || return 1
			"$T/co-$1-$round-$mode/true" || return 1
			[ "$("$T/co-$1-$round-$mode/script")" = ran ] || return 1
		done
	done
}

body() {
	mkdir -p "$T/tree/src" "$T/tools"
	cp /bin/sleep "$T/tree/src/sleep"
	cp /bin/true "$T/tools/true"
	printf '#!/bin/sh\necho ran\n' > "$T/tools/script"
	chmod 755 "$T/tools/script"
	mount_start
	each_engine "$T/tree" on_engine
	tools=$(put "$T/tools")
	"$FSSTRESS" fork-storm 60 &
	storm=$!
	pids=
	for i in $(seq "$workers"); do
		worker "$i" > "$T/worker-$i" 2>&1 &
		pids="$pids $!"
	done
	for pid in $pids; do
		wait "$pid" || fail "a worker failed: $(cat "$T"/worker-*)"
	done
	kill "$storm"
	mount_stop
}
each_user body
