#!/bin/sh
# tests/mount/rootless-cached.sh - what a served layer leaves in the kernel for the next one: the inputs, and nothing else
. "$(dirname "$0")/../lib/common.sh"
. "$HERE/../lib/upcalls.sh"

if [ -z "${TEST_USER:-}" ]; then
	need root fusermount3
	again_as_user
	exit
fi

mkdir -p tree/src/sub tree/lib/deep
for i in $(seq 40); do echo "input $i" > "tree/src/in$i"; done
echo below > tree/src/sub/input
echo far > tree/lib/deep/input
ln -s in1 tree/src/link
root=$(put tree)

# Warmed, the first sandbox asks for nothing.
mount_start --lanes 1 --warm "$root"
await at_least blobs 42
await settled
box=$(sandbox_new "$root" --id box --output out/)
ls "$box" > list
await settled
all_upcalls LOOKUP READ > before
cat "$box"/src/in* "$box"/src/sub/input "$box"/lib/deep/input > /dev/null
all_upcalls LOOKUP READ > after
cmp before after || ! known 40 || fail "a warmed sandbox asked: $(cat before after)"
casbox sandbox remove box
mount_stop

mount_start --without push
like_new() {
	diff -r --no-dereference tree "$1" || fail "$2: not the inputs alone"
	eq "$2: times" "$(date -d '2000-01-01 UTC' +%s)" "$(stat -c %Y "$1/src")"
	eq "$2: modes" "755 755" "$(stat -c %a "$1/src" "$1/lib" | tr '\n' ' ' | sed 's/ $//')"
}

# all SANDBOX: everything is looked at, also what is missing.
all() {
	cat "$1"/src/in* "$1"/src/sub/input > /dev/null
	for i in $(seq 40); do [ ! -e "$1/src/missing$i" ]; done
}

# box OPTION...: the next sandbox
box() {
	box=$(sandbox_new "$root" --id box "$@")
}

gone() {
	casbox sandbox finish box --remove --alone > out || fail "finish"
}

# The second time nothing is asked but what the first one made.
box --output src/made --output src/dir --output lib/deep/x
all "$box"
gone
for round in 1 2; do
	box --output src/made --output src/dir --output lib/deep/x
	nodes=$(counter config nodes_one)
	was=$(upcalls LOOKUP)
	all "$box"
	is=$(upcalls LOOKUP)
	# Somebody may have the kernel drop its caches meanwhile.
	[ $((is - was)) -le 4 ] || [ "$nodes" -lt 40 ] || fail "round $round: $((is - was)) lookups"
	echo "$round" > "$box/src/made"
	mkdir "$box/src/dir"
	echo "$round" > "$box/src/dir/file"
	mv "$box/src/dir" "$box/lib/deep/x"
	echo again > "$box/src/dir"
	ln "$box/src/made" "$box/src/made2"
	chmod 700 "$box/src"
	ls -la "$box/src" "$box/lib/deep" > /dev/null
	gone
	eq "captured" "lib/deep/x src/dir src/made" "$(cut -f1 out | tr '\n' ' ' | sed 's/ $//')"
done
reused=$(counter config reused)
[ "$reused" -ge 1 ] || fail "$reused roots were used again"
box --output src/made
like_new "$box" "after new names"
gone

# Inputs that are outputs: they may go, and be back; a directory of them; a symlink.
for how in 'rm -f' 'chmod u+w src/in1; echo changed >' 'ln -sf /etc/passwd' 'chmod 600' 'mv -t lib/deep' 'stat'; do
	box --output src/in1 --output src/sub --output src/link --output lib/deep/
	eq "an input that is an output" "input 1" "$(cat "$box/src/in1")"
	(cd "$box" && eval "$how src/in1" && rm src/link && echo file > src/link) > /dev/null ||
		fail "$how cannot be done"
	(cd "$box" && rm -r src/sub && echo file > src/sub && chmod u+w lib/deep/input &&
		echo more >> lib/deep/input) ||
		fail "$how: outputs cannot be changed"
	gone
	box --output src/made
	like_new "$box" "after $how"
	gone
done

# A directory made beforehand that has inputs; its files are nobody's but the sandbox's.
box --output lib/
all "$box"
chmod u+w "$box/lib/deep/input"
echo changed > "$box/lib/deep/input"
rm -r "$box/lib/deep"
mkdir "$box/lib/deep"
echo other > "$box/lib/deep/input"
gone
box --output src/made
like_new "$box" "after an output with inputs"
gone

# More names than are worth being told one by one.
box --output src/made
mkdir "$box/src/made"
gone
box $(seq -f '--output src/many%g' 600)
for i in $(seq 600); do : > "$box/src/many$i"; done
gone
eq "outputs" 600 "$(wc -l < out)"
box --output src/made
like_new "$box" "after many names"
: > "$box/src/made"
gone

# Killed: what was written is there, what was removed is not, and then neither.
box --output src/made --output src/in2
echo kept > "$box/src/made"
rm "$box/src/in2"
all "$(sandbox_new "$root" --id other)"
casbox sandbox remove --alone other
mount_kill
mount_start --without push
other=$(sandbox_new "$root" --id other)
all "$other"
casbox sandbox remove --alone other
eq "written before the kill" kept "$(cat "$box/src/made")"
[ ! -e "$box/src/in2" ] || fail "a removed input is back"
gone
box --output src/made --output src/in2
like_new "$box" "after a kill"
gone
mount_stop
