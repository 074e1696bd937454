#!/bin/sh
# tests/mount/rootless-write.sh - what a plain user's actions write in a mount of fusermount3's
. "$(dirname "$0")/../lib/common.sh"

if [ -z "${TEST_USER:-}" ]; then
	need root fusermount3 cc make
	again_as_user
	exit
fi

sample_tree tree
mkdir tree/src
echo 'int main(void) { return 42; }' > tree/src/main.c
printf 'out/prog: src/main.c\n\tcc -o $@ $<\n' > tree/Makefile
root=$(put tree)
cp -r tree other
echo changed > other/many/file-7
next=$(put other)
mount_start
witness=$(sandbox_new "$root" --id witness)

# Everything that could change an input, as the user and as root of a namespace of his.
attack() {
	for how in "" "unshare -Ur"; do
		# shellcheck disable=SC2016,SC2086
		$how sh -c 'cd "$1" || exit
			for f in many/file-1 bin/tool empty; do "$2" attack "$f"; done
			echo bad > many/file-2; rm -rf many/file-3 deep; mv many/file-4 many/moved
			mv bin/tool many/file-5; ln many/file-6 linked; chmod 777 src; ln -sf x dangling
			mkdir -p bin; echo bad > bin/added' \
			sh "$1" "$FSCHECK" > /dev/null 2>&1 || :
	done
}

for policy in outputs dirs all; do
	# Twice each, so that the second may come to have the first one's root.
	for round in 1 2; do
		box=$(sandbox_new "$root" --id box --writable $policy --output out/ --output src/made)
		trees_equal tree "$witness"
		diff -r --no-dereference tree "$box" > difference && fail "no directory for outputs"
		eq "what a new sandbox has beyond its inputs" "Only in $box: out" "$(cat difference)"
		attack "$box"
		trees_equal tree "$witness"
		[ $policy = all ] || {
			eq "an input, attacked" "content 2" "$(cat "$box/many/file-2")"
			[ -e "$box/many/file-3" ] && [ ! -e "$box/many/moved" ] || fail "inputs were moved"
		}
		mkdir -p "$box/out/sub" "$box/src"
		echo "$policy $round" > "$box/out/sub/file"
		echo made > "$box/src/made"
		expect 0 casbox sandbox finish box --remove --alone
		got=$(sed -n 's/^out	//p' out)
		casbox checkout "$got" "back-$policy-$round"
		eq "captured" "$policy $round" "$(cat "back-$policy-$round/sub/file")"
		grep -q '^src/made	' out || fail "src/made was not captured: $(cat out)"

		# The next one, of another tree, has nothing of it.
		box=$(sandbox_new "$next" --id box)
		trees_equal other "$box"
		casbox sandbox remove --alone box
	done
done
casbox ctl --mount "$MNT" config > config
reused=$(sed 's/.*"reused":\([0-9]*\).*/\1/' config)
# Somebody may have the kernel drop its caches meanwhile.
[ "$reused" -ge 1 ] || fail "$reused roots were used again: $(cat config)"

# What was an input to the one before is a place to write for the next, in the same root.
for output in other/ src/made other/ src/made; do
	box=$(sandbox_new "$root" --id box --output "$output")
	eq "the inputs beside" "return" "$(sed 's/.* \(return\) .*/\1/' "$box/src/main.c")"
	case $output in
	other/) ! touch "$box/src/made" 2> /dev/null || fail "an input directory can be written to" ;;
	*) echo 1 > "$box/$output" || fail "$output cannot be made" ;;
	esac
	expect 0 casbox sandbox finish box --remove --alone
done

# A build, its program run from the cache; in the daemon that is there and in isolation.
casbox run --input tree --output out/prog -- make -s
status=0
tree/out/prog || status=$?
eq "the program" 42 $status
digest=$(put tree/out/prog)
status=0
"$MNT/cas/executable/$(dashed "$digest")" || status=$?
eq "the program in the cache" 42 $status
rm -r tree/out
if bwrap --unshare-all --ro-bind / / --proc /proc true 2> /dev/null; then
	expect 0 casbox run --isolate --input tree --output out/prog -- make -s
	cmp tree/out/prog "$(blob_path "$digest")" || fail "another program in isolation"
	rm -r tree/out
fi

expect 125 casbox run --input tree --trace exact --output out -- true
said "--trace reads works here"

# Killed, and back with what was written.
box=$(sandbox_new "$root" --id late --writable all --output out/)
echo kept > "$box/out/kept"
rm "$box/many/file-1"
mount_kill
mount_start
eq "written before the kill" kept "$(cat "$box/out/kept")"
[ ! -e "$box/many/file-1" ] || fail "a removed input is back"
trees_equal tree "$witness"
expect 0 casbox sandbox finish late
casbox sandbox remove late
casbox sandbox remove witness
mount_stop
