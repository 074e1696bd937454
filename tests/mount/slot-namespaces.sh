#!/bin/sh
# tests/mount/slot-namespaces.sh - who kept a copy of a sandbox's mounts gets nothing of the next one's outputs
. "$(dirname "$0")/../lib/common.sh"
need root fuse
alone

mkdir -p one/d one/out
echo first > one/d/f
cp -a one two
echo second > two/d/f
echo new > two/d/new
one=$(put one)
two=$(put two)
echo mine > mine
echo theirs > theirs
mine=$(put mine)
theirs=$(put theirs)
mount_start

count() {
	casbox ctl config | sed "s/.*\"$1\":\([0-9]*\).*/\1/"
}

# look SCRIPT: what the one that stayed behind gets to see, in his own copies of the mounts.
look() {
	nsenter -t "$holder" -m --wd="/proc/$holder/cwd" sh -c "$1" 2>&1
}

# captured FILE: the digest of the layer's output that holds it.
captured() {
	if [ "$layer" = out/ ]; then
		mkdir -p as-output
		cp "$1" as-output/o
		put as-output
	elif [ "$1" = mine ]; then
		echo "$mine"
	else
		echo "$theirs"
	fi
}

for layer in out/ d/o; do
	dir=${layer%/*}
	box=$(sandbox_new "$one" --id first --output "$layer")
	echo mine > "$box/$dir/o"
	# His mounts are his alone: what is unmounted here is not there.
	unshare -m --propagation private sh -c 'cd "$1" && echo "$$" > "$2" && exec sleep 1000' \
		sh "$box" "$T/pid" &
	job=$!
	until [ -s pid ]; do sleep 0.02; done
	holder=$(cat pid)
	rm pid
	eq "$layer: his" mine "$(look "cat $dir/o")"

	casbox sandbox finish first --remove > out
	grep -q "$(captured mine)" out || fail "$layer: captured: $(cat out)"
	# Nobody of our namespace was inside: the root is the next one's.
	reused=$(($(count reused) + $(count forgotten)))
	box=$(sandbox_new "$two" --id second --output "$layer")
	[ $(($(count reused) + $(count forgotten))) -gt "$reused" ] || fail "$layer: not reused"
	echo theirs > "$box/$dir/o"
	echo secret > "$box/$dir/secret" 2> /dev/null || true
	eq "$layer: content" "second new" "$(cat "$box/d/f" "$box/d/new" | paste -sd ' ')"

	# He sees no output of the second, and what he writes is not in it, nor a blob.
	eq "$layer: theirs" no "$(look "grep -qs theirs $dir/o && echo yes || echo no")"
	eq "$layer: secret" no "$(look "[ -e $dir/secret ] && echo yes || echo no")"
	look "echo forged > $dir/o; echo forged > $dir/forged; echo forged > d/f" > /dev/null || true
	eq "$layer: written over" theirs "$(cat "$box/$dir/o")"
	[ ! -e "$box/$dir/forged" ] || fail "$layer: he made a name in the second"
	eq "$layer: an input" second "$(cat "$box/d/f")"
	rm -f "$box/$dir/secret"
	casbox sandbox finish second --remove > out
	grep -q "$(captured theirs)" out || fail "$layer: captured: $(cat out)"
	eq "$layer: in the store" "mine theirs" \
		"$({ casbox cat "$mine" && casbox cat "$theirs"; } | paste -sd ' ')"
	kill "$holder"
	wait "$job" 2> /dev/null || true
done
mount_stop
expect 0 "$CASBOX" fsck
