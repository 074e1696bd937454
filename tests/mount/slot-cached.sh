#!/bin/sh
# tests/mount/slot-cached.sh - each kind of thing that the kernel caches, alone, after a reuse
. "$(dirname "$0")/../lib/common.sh"
need root fuse
alone

# after NAME LOOK EDIT WANT: what LOOK prints in a sandbox of the tree that EDIT made, when
# LOOK was all that was done in the one before it.
after() {
	rm -rf work && cp -a tree work
	one=$(put --preserve work)
	(cd work && eval "$3")
	two=$(put --preserve work)
	mount_start
	box=$(sandbox_new "$one" --id one --output out/)
	(cd "$box" && eval "$2") > before 2>&1 || :
	casbox sandbox remove one
	box=$(sandbox_new "$two" --id two --output out/)
	(cd "$box" && eval "$2") > after 2>&1 || :
	# Or others on this machine had the kernel forget it.
	casbox ctl config | grep -q '"reused":1\|"forgotten":1' || fail "$1: not reused"
	casbox ctl config | grep -q '"untold":0' || fail "$1: the kernel was not told"
	casbox sandbox remove two
	mount_stop
	! cmp -s before after || fail "$1: the edit changes nothing"
	eq "$1" "$4" "$(cat after)"
}

mkdir -p tree/p/sub tree/q/r tree/out
echo x > tree/p/x
echo s > tree/p/sub/s
echo z > tree/q/z
ln -s x tree/p/l
chmod 755 tree/q tree/q/r

after "added to a listing" 'ls p' 'echo y > p/y' "l
sub
x
y"
after "gone from a listing" 'ls p' 'rm p/x' "l
sub"
after "kind in a listing" 'ls -F p | cat' 'rm -r p/sub; echo f > p/sub' "l@
sub
x"
after "missing name" 'cat p/y' 'echo y > p/y' y
after "present name" '[ -e p/x ]; echo $?' 'rm p/x' 1
after "content" 'cat p/x' 'echo other > p/x' other
after "a file in a directory's place" 'cat p/sub/s; cat p/sub' 'rm -r p/sub; echo f > p/sub' \
	"cat: p/sub/s: Not a directory
f"
after "a directory in a file's place" 'ls p/x' 'rm p/x; mkdir p/x; echo n > p/x/n' n
after "a link in a file's place" 'readlink p/x; cat p/x' 'rm p/x; ln -s sub/s p/x' "sub/s
s"
after "a link's target" 'readlink p/l' 'ln -sfn sub p/l' sub
after "mode of a file" 'stat -c %a p/x' 'chmod 755 p/x' 755
after "mode of a directory alone" 'stat -c %a q/r' 'chmod 700 q/r' 700
after "time of a directory alone" 'stat -c %Y q' 'touch -d @1000000000 q' 1000000000
after "mode of a directory with changes" 'ls q; stat -c %a q' 'chmod 711 q; echo 2 > q/z2' "r
z
z2
711"
after "top of the tree" 'ls; cat top' 'echo top > top' "out
p
q
top
top"
after "directory gone and another of its name" 'cat p/sub/s; ls p/sub' \
	'rm -r p/sub; mkdir p/sub; echo o > p/sub/o' "cat: p/sub/s: No such file or directory
o"
