#!/bin/sh
# tests/mount/served-killed.sh - the daemon dies while a served layer is changed: what comes back is whole, and so is the capture
. "$(dirname "$0")/../lib/common.sh"
need fuse

# Everything in which more than one step is done on disk; what any of it leaves is one of these.
# shellcheck disable=SC2016
change='
	cd "$1" || exit
	i=0
	while i=$((i + 1)); do
		for n in 1 2 3; do
			chmod u+w in/$n; echo "changed $i" > in/tmp; mv in/tmp in/$n; echo more >> in/$n
			mv in/$n in/moved$n; mv in/moved$n in/$n; rm in/$n; cp keep/$n in/tmp; mv in/tmp in/$n
			mv dirs/d$n dirs/e$n; mkdir dirs/d$n; mv -T dirs/e$n dirs/d$n
			ln in/$n dirs/link$n; mv dirs/link$n dirs/link
		done
	done
'

body() {
	mkdir -p tree/in tree/dirs tree/keep
	for n in 1 2 3; do
		echo "input $n" > tree/in/$n
		echo "kept $n" > tree/keep/$n
		mkdir tree/dirs/d$n
		echo "deep $n" > tree/dirs/d$n/file
	done
	root=$(put tree)
	# shellcheck disable=SC2086
	mount_start $forced
	[ -z "${TEST_LONG:-}" ] && rounds=3 || rounds=30
	for round in $(seq $rounds); do
		s=$(sandbox_new "$root" --id "box$round" --writable all --output in --output dirs)
		sh -c "$change" sh "$s" > /dev/null 2>&1 &
		pid=$!
		sleep 0.$((round % 5 + 1))
		mount_kill
		kill $pid 2> /dev/null || :
		wait $pid || :
		# shellcheck disable=SC2086
		mount_start $forced
		# Nothing that nobody made, and none of it in part: no name twice, no empty file but tmp.
		(cd "$s" && find in dirs -type f ! -name tmp ! -name link -size 0) > empty
		eq "empty files" "" "$(cat empty)"
		(cd "$s" && find in dirs | sed 's/[0-9]*$//' | sort -u) > names
		for name in $(cat names); do
			case $name in
			in | in/ | in/tmp | in/moved | dirs | dirs/[de] | dirs/[de][123]/file | dirs/link) ;;
			*) fail "a name that nobody made: $name" ;;
			esac
		done
		for n in 1 2 3; do
			for d in dirs/d$n dirs/e$n; do
				! [ -e "$s/$d/file" ] || eq "$d/file" "deep $n" "$(cat "$s/$d/file")"
			done
			[ -e "$s/dirs/d$n/file" ] || [ -e "$s/dirs/e$n/file" ] || fail "d$n is lost"
			! { [ -e "$s/dirs/d$n/file" ] && [ -e "$s/dirs/e$n/file" ]; } || fail "d$n is there twice"
		done
		eq "what nobody touched" "$(cat tree/keep/*)" "$(cat "$s"/keep/*)"
		rm -rf shown got
		mkdir shown got
		cp -a "$s/in" "$s/dirs" shown/
		casbox sandbox finish "box$round" > finished
		for part in in dirs; do
			casbox checkout "$(sed -n "s/^$part\t//p" finished)" got/$part
		done
		diff -r --no-dereference shown got || fail "captured something else than was shown"
		casbox sandbox remove "box$round"
	done
	casbox fsck > fsck || fail "the store: $(cat fsck)"
	mount_stop
	rm -rf tree shown got
}

if [ -n "${TEST_USER:-}" ]; then
	forced=
	body
	exit
fi
need root
forced='--engine fuse'
body
need fusermount3
again_as_user
