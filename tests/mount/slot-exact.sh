#!/bin/sh
# tests/mount/slot-exact.sh - a root that was another sandbox's shows exactly its own tree
. "$(dirname "$0")/../lib/common.sh"
need root fuse overlay
alone

counter() {
	casbox ctl config | sed "s/.*\"$1\":\([0-9]*\).*/\1/"
}

# Every name that any tree has had, in every tree: there or not there, as it should be.
probe() {
	while read -r name; do
		if [ -e "$1/$name" ] || [ -L "$1/$name" ]; then want=there; else want=missing; fi
		if [ -e "$2/$name" ] || [ -L "$2/$name" ]; then got=there; else got=missing; fi
		[ $want = $got ] || fail "$name is $got in $2, should be $want"
	done < "$T/names"
}

# Not of directories that are layers.
attributes() {
	(cd "$1" && find . ! -path . ! -path ./d ! -path ./out ! -type l -printf '%p %m %T@\n') | sort
}

# exact REF BOX
exact() {
	probe "$1" "$2"
	trees_equal "$1" "$2"
	probe "$1" "$2"
	attributes "$1" > "$T/attr-a"
	attributes "$2" > "$T/attr-b"
	diff "$T/attr-a" "$T/attr-b" || fail "attributes of $1 and $2 differ"
	find "$2" -type d -exec "$FSCHECK" dirents {} \; || fail "entries of $2 do not add up"
	"$FSCHECK" inos "$2/d/e" > "$T/inos" || fail "inode numbers of $2"
	# shellcheck disable=SC2012
	(cd "$2/d/e" && eq "working directory" "$2/d/e" "$(/bin/pwd -P)" && ls .. > /dev/null)
}

# Do to a sandbox what an action may, at each depth.
spoil() {
	(
		cd "$1"
		case $2 in
		outputs)
			echo out > out/f
			mkdir -p out/g/h
			echo made > d/made
			;;
		all)
			for dir in . d d/e d/e/f; do
				[ -d $dir ] || continue
				echo new > $dir/created
				rm -rf $dir/b
				mv $dir/a $dir/renamed 2> /dev/null || :
				echo replaced > $dir/c 2> /dev/null || :
				mkdir $dir/newdir
				ln -s nowhere $dir/newlink
				chmod 700 $dir
			done
			mv d/flip d/flop
			;;
		esac
	) || fail "the action in $1 failed"
}

edit() {
	case $1 in
	content) for dir in . d d/e d/e/f; do echo "other $1" > $dir/a; done ;;
	less) rm b d/b d/e/b d/e/f/b ;;
	more) for dir in . d d/e d/e/f; do echo more > $dir/more; done ;;
	flip1) rm -rf d/flip d/e/flip && echo file > d/flip && ln -s ../../a d/e/flip ;;
	flip2) rm -rf d/flip d/e/flip && ln -s e d/flip && mkdir -p d/e/flip/in && echo in > d/e/flip/in/x ;;
	flip3) rm -rf d/flip d/e/flip && mkdir d/flip && echo "not a link" > d/e/flip ;;
	exec) chmod 755 a d/a d/e/f/a && chmod 644 tool ;;
	props) touch -d 2001-02-03T04:05:06Z d/c d/e d/e/f && chmod 750 d/e && chmod 600 d/e/f/c ;;
	deep) mkdir -p d/e/n/1/2/3 n/1/2/3 && echo leaf > d/e/n/1/2/3/leaf && echo l > n/1/2/3/l ;;
	move) mv d/e/f d/moved && mkdir d/e/f && echo back > d/e/f/a ;;
	link) ln -sfn other d/link && ln -sfn b top-link ;;
	esac
}

make_base() {
	mkdir -p tree/d/e/f tree/d/flip/in tree/out
	for dir in . d d/e d/e/f; do
		for file in a b c; do echo "$dir $file" > tree/$dir/$file; done
	done
	echo x > tree/d/flip/in/x
	echo y > tree/d/e/flip
	ln -s a tree/d/link
	ln -s a tree/top-link
	echo '#!/bin/sh' > tree/tool
	chmod 755 tree/tool
}

make_base
digests=
for step in base content base less more base flip1 flip2 flip3 base exec props base deep move link \
	base; do
	if [ $step = base ]; then
		rm -rf now && cp -a tree now
	else
		(cd now && edit $step)
	fi
	digest=$(put --preserve now)
	dir=ref-${digest%/*}
	[ -d "$dir" ] || cp -a now "$dir"
	digests="$digests $digest"
done
for dir in ref-*; do (cd "$dir" && find . -mindepth 1); done | sort -u > names
mount_start

nr=0
for digest in $digests; do
	ref=$T/ref-${digest%/*}
	policy=all
	[ $((nr % 2)) = 0 ] && policy=outputs
	set -- --output out/ --output d/made
	[ $policy = all ] && set -- --writable all --output out
	box=$(sandbox_new "$digest" --id "s$nr" "$@")
	# Others on this machine may have the kernel forget a root: by memory, or drop_caches.
	eq "reused or forgotten at step $nr" $nr $(($(counter reused) + $(counter forgotten)))
	exact "$ref" "$box"
	spoil "$box" $policy
	[ $((nr % 3)) = 0 ] || casbox sandbox finish "s$nr" > /dev/null || :
	[ $((nr % 4)) != 1 ] || ls -R "$box" > /dev/null
	casbox sandbox remove "s$nr"
	[ ! -e "$box" ] || fail "$box is still there"
	nr=$((nr + 1))
done
eq "dropped" 0 "$(counter untold)"
[ "$(counter reused)" -ge $((nr / 2)) ] || fail "only $(counter reused) of $nr were reused"

# The same id again and again, and what happens to the caches in between.
for digest in $digests; do
	box=$(sandbox_new "$digest" --id lane --output out/)
	exact "$T/ref-${digest%/*}" "$box"
	echo x > "$box/out/x"
	casbox sandbox remove lane
	[ $((nr % 2)) = 0 ] || echo 2 > /proc/sys/vm/drop_caches
	nr=$((nr + 1))
done
mount_stop

# Two lanes: each takes over from the other, and nothing of a live one moves.
mount_start
base=${digests##* }
one=$(sandbox_new "$base" --id one)
# shellcheck disable=SC2086
set -- $digests
for digest; do
	two=$(sandbox_new "$digest" --id two --output out/)
	exact "$T/ref-${digest%/*}" "$two"
	exact "$T/ref-${base%/*}" "$one"
	casbox sandbox remove two
done
mount_stop

# Without: nothing is reused, nothing moves.
mount_start --without reuse,adopt
for id in x y; do
	box=$(sandbox_new "$1" --id $id --output out/)
	exact "$T/ref-${1%/*}" "$box"
	casbox sandbox remove $id
done
eq "reused" 0 "$(counter reused)"
eq "adopted" 0 "$(counter adopted_directories)"
mount_stop
