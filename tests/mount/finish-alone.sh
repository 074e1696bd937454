#!/bin/sh
# tests/mount/finish-alone.sh - whoever says that nobody is inside gets the same answer, true or not
. "$(dirname "$0")/../lib/common.sh"
need root fuse python3

# Keeps one output open, adds to it when told to, and then lets go.
cat > writer.py << 'PY'
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
os.write(fd, b"held\n")
print("ready", flush=True)
sys.stdin.readline()
os.write(fd, b"late\n")
print("written", flush=True)
sys.stdin.readline()
PY

fill() {
	mkdir "$1/sub"
	echo one > "$1/one"
	head -c 300000 /dev/zero | tr '\0' x > "$1/sub/large"
	chmod 755 "$1/one"
	ln -s one "$1/link"
}

mkdir -p tree/src want/held
echo input > tree/src/in
fill want
cp -a want held
rmdir want/held held/held
echo held > held/held
root=$(put tree)
want=$(put want)
held=$(put held)
mount_start
mkfifo told said

for output in out/ src/gen; do
	dir=${output%/}
	for word in "" --alone; do
		box=$(sandbox_new "$root" --id "true$word" --output "$output")
		mkdir -p "$box/$dir"
		fill "$box/$dir"
		# shellcheck disable=SC2086
		casbox sandbox finish "true$word" $word --remove > finished || fail "finish"
		eq "captured from $output $word" "$want" "$(cut -f2 finished)"
		[ ! -e "$box" ] || fail "$box is there"
	done

	box=$(sandbox_new "$root" --id false --output "$output")
	mkdir -p "$box/$dir"
	fill "$box/$dir"
	python3 writer.py "$box/$dir/held" < told > said &
	exec 3> told 4< said
	read -r line <&4
	eq "writer of $output" ready "$line"
	casbox sandbox finish false --alone > finished || fail "finish"
	eq "captured from $output, held" "$held" "$(cut -f2 finished)"
	echo >&3
	read -r line <&4
	eq "writer of $output" written "$line"
	trees_equal held "$MNT/cas/directory/$(dashed "$held")"
	eq "asked again" "$(cat finished)" "$(casbox sandbox finish false --alone)"
	echo >&3
	exec 3>&- 4<&-
	wait $! || fail "the writer failed"
	casbox sandbox remove false

	box=$(sandbox_new "$root" --id next --output "$output")
	[ ! -e "$box/$dir/held" ] || fail "$box/$dir/held is there"
	casbox sandbox remove next
done
expect 0 casbox fsck
