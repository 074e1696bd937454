#!/bin/sh
# tests/mount/landing.sh - many outputs land instead of being moved: all there at once, whatever dies
. "$(dirname "$0")/../lib/common.sh"
need root fuse python3
cgroup2=$(sed -n 's/^[^ ]* \([^ ]*\) cgroup2 .*/\1/p' /proc/mounts | head -n 1)
[ -n "$cgroup2" ] || skip "no control groups of version 2"
group=$cgroup2/casbox-test-$$
mkdir "$group" 2> /dev/null || skip "no control group can be made"
rmdir "$group"

mkdir in
echo input > in/input
root=$(put in)

# fill DIR SEED: files of all kinds, most of them in a directory that is large.
fill() {
	python3 - "$1" "$2" <<- 'EOF'
		import os, random, sys
		top, seed = sys.argv[1], sys.argv[2]
		rnd = random.Random(seed)
		os.makedirs(top + "/many"); os.makedirs(top + "/a/b c/\u00e9")
		for i in range(1500):
		    with open(f"{top}/many/f{i}", "w") as f: f.write(f"{seed} {i}\n" * rnd.randint(1, 300))
		for i in range(50):
		    with open(f"{top}/a/b c/\u00e9/g{i}", "w") as f: f.write(f"{seed} {i % 7}\n")
		os.chmod(top + "/many/f3", 0o755); os.chmod(top + "/many/f4", 0o000)
		os.link(top + "/many/f5", top + "/many/f5-linked")
		open(top + "/many/empty", "w").close()
		os.symlink("many/f6", top + "/link")
		with open(top + "/many/holes", "wb") as f: f.truncate(8 << 20); f.seek(3 << 20); f.write(b"x")
		with open(top + "/many/large", "wb") as f: f.write(rnd.randbytes(3 << 20))
	EOF
}
# box ID SEED: a sandbox with these outputs, all of whose processes have ended.
box() {
	at=$(sandbox_new "$root" --id "$1" --output out/)
	mkdir "$group"
	casbox ctl cgroup "$1" "$group" > /dev/null
	fill "$at/out" "$2"
}
stat_of() { casbox ctl stats | sed "s/.*\"$1\":\([0-9]*\).*/\1/"; }
nothing_left() { [ ! -e "$STORE/landing" ]; }
check_tree() { # DIGEST SEED
	rm -rf got want
	fill want "$2"
	casbox checkout "$1" got
	(cd want && find . ! -type l -printf '%P %y %s\n' | sort) > want.list
	(cd got && find . ! -type l -printf '%P %y %s\n' | sort) > got.list
	# Directories have a size of their own.
	sed 's/ d .*/ d/' want.list > w && sed 's/ d .*/ d/' got.list > g
	cmp w g || fail "other files"
	(cd want && find . -type f -exec sha256sum {} + | sort) > w
	(cd got && find . -type f -exec sha256sum {} + | sort) > g
	cmp w g || fail "other bytes"
	eq "link" many/f6 "$(readlink got/link)"
	[ -x got/many/f3 ] && [ ! -x got/many/f5 ] || fail "modes"
}

mount_start
# As it would be by moving: what a put of the same files says.
fill same 0
want=$(put same)
box zero 0
eq "a finish" "$want" "$(casbox sandbox finish zero | cut -f 2)"
# All but what is empty, has two names, holes, or was put by hand: that was put already.
eq "landed" 0 "$(stat_of landed)"
[ -n "$(casbox sandbox show zero | grep finished)" ] || fail "not finished"
check_tree "$want" 0
casbox sandbox remove zero

# Readers in other processes, and through the mount, while it is being moved.
for seed in 1 2 3; do
	box box$seed $seed
	tree=$(casbox sandbox finish box$seed --remove | cut -f 2)
	case $seed in
	1) check_tree "$tree" 1 ;;
	2)
		next=$(sandbox_new "$tree" --id next)
		fill want2 2
		(cd want2/many && sha256sum f* large) > sums
		(cd "$next/many" && sha256sum -c --quiet ../../../../sums 2> /dev/null) ||
			(cd "$next/many" && sha256sum -c --quiet "$T/sums") || fail "read through the mount"
		casbox sandbox remove next
		;;
	3) casbox fsck ;;
	esac
done
await nothing_left
# Most of the 1500 of each; what was put early because it is small was known.
[ "$(stat_of landed)" -ge 2000 ] || fail "only $(stat_of landed) landed"
eq "waiting" "0 0" "$(stat_of landing_blobs) $(stat_of landing_bytes)"

# The daemon dies at any time after the answer: nothing that was answered is lost.
for seed in 4 5 6 7; do
	box box$seed $seed
	tree=$(casbox sandbox finish box$seed | cut -f 2)
	mount_kill
	if [ $((seed % 2)) = 0 ]; then
		check_tree "$tree" $seed
		nothing_left || fail "left for nobody"
		casbox fsck
		mount_start
	else
		mount_start
		check_tree "$tree" $seed
	fi
	eq "asked again" "$tree" "$(casbox sandbox finish box$seed | cut -f 2)"
	casbox sandbox remove box$seed
done

# And before it: all of it is there, or the sandbox is as it was and can be finished.
[ -z "${TEST_LONG:-}" ] && rounds=6 || rounds=60
for seed in $(seq 10 $((9 + rounds))); do
	box box$seed "$seed"
	"$CASBOX" sandbox finish box"$seed" > said 2> /dev/null &
	client=$!
	sleep "0.0$((seed * 7 % 10))$((seed * 3 % 10))"
	mount_kill
	wait $client && tree=$(cut -f 2 said) || tree=
	mount_start
	again=$(casbox sandbox finish box"$seed" | cut -f 2)
	[ -z "$tree" ] || eq "asked again" "$tree" "$again"
	check_tree "$again" "$seed"
	casbox sandbox remove box"$seed"
done
await nothing_left
mount_stop
casbox fsck
nothing_left || fail "left behind"
eq "temporaries" "" "$(find "$STORE/cas" -name '.*' ! -name '.' -type f)"
eq "counters" "$(find "$STORE/cas" -type f | wc -l)" "$(casbox stat --json | sed 's/.*"blobs": *{*"*[a-z]*"*:* *\([0-9]*\).*/\1/')"
