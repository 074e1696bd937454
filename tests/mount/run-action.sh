#!/bin/sh
# tests/mount/run-action.sh - run --action: a stored Action's command, and what is kept of it
. "$(dirname "$0")/../lib/common.sh"
need fuse overlay python3

sum_of() {
	printf '%s/%s\n' "$(printf "$1" | sha256sum | cut -c 1-64)" "$(printf "$1" | wc -c)"
}

# action_of WORDS [OPTION...]: the digest of an Action on $root; WORDS in $words, one a line.
action_of() {
	# shellcheck disable=SC2086
	IFS='
' && python3 "$LIB/reapi.py" command cmd $words && unset IFS
	python3 "$LIB/reapi.py" action act "$(put cmd)" "$root" "$@"
	put act
}

ac_path() {
	printf '%s/ac/%.2s/%s\n' "$STORE" "$1" "${1%/*}"
}

not_kept() {
	[ ! -e "$(ac_path "$2")" ] || fail "$1 was kept"
}

body() {
	mkdir -p tree/sub/deep
	echo input > tree/sub/in
	root=$(put tree)

	# Directory, environment (that and nothing else), outputs of every kind, told from there.
	words='arg=sh
arg=-c
arg=env | sort; echo bad >&2; cp in out; chmod +x out; mkdir dir; cp in dir/f; ln -s in link; cp in ../up
env=B=2 3
env=A=1
env=PATH=/usr/bin:/bin
cwd=sub
out=dir
out=link
out=out
out=../up'
	act=$(action_of)
	HOME=x expect 0 casbox run --action "$act" --into got --result res.pb
	eq "standard output" "A=1|B=2 3|PATH=/usr/bin:/bin|PWD" "$(sed 's/^PWD=.*/PWD/' out | paste -sd '|')"
	pwd_line=$(sed -n 's/^PWD=//p' out)
	cmp res.pb "$(ac_path "$act")" || fail "what is kept is not the result"
	in=$(sum_of 'input\n')
	python3 "$LIB/reapi.py" show res.pb > shown
	eq "files" "file ../up $in -|file out $in x" "$(grep ^file shown | sort | paste -sd '|')"
	eq "links" "link link in" "$(grep ^link shown)"
	eq "stdout" "stdout $(sum_of "A=1\nB=2 3\nPATH=/usr/bin:/bin\nPWD=$pwd_line\n")" "$(grep stdout shown)"
	eq "stderr" "stderr $(sum_of 'bad\n')" "$(grep stderr shown)"
	# TREE_ONLY is the default: the Tree and no root.
	eq "directory" "dir dir -" "$(sed -n 's/^\(dir dir\) [^ ]* /\1 /p' shown)"
	eq "in place" input "$(cat got/sub/dir/f)"
	expect 0 casbox run --action "$act" --result res.json
	grep -q '"path": "dir"' res.json || fail "$(cat res.json)"
	! grep -q rootDirectoryDigest res.json || fail "a root that was not asked for"

	# What came before output_paths; directories told by their roots alone.
	words='arg=/bin/sh
arg=-c
arg=mkdir d && cp sub/in d/x && cp sub/in f
file=f
dir=d
format=1'
	act=$(action_of)
	expect 0 casbox run --action "$act" --result res.pb
	python3 "$LIB/reapi.py" show res.pb > shown
	mkdir made
	cp tree/sub/in made/x
	eq "old directory" "dir d - $(put made)" "$(grep ^dir shown)"
	eq "old file" "file f $in -" "$(grep ^file shown)"
	[ -s "$(ac_path "$act")" ] || fail "not kept"

	# Failures, what is missing, what was timed out and what may not be kept.
	words='arg=sh
arg=-c
arg=cp sub/in f; exit 3
out=f'
	act=$(action_of)
	expect 3 casbox run --action "$act" --result res.pb
	eq "exit" "exit 3" "$(python3 "$LIB/reapi.py" show res.pb | grep exit)"
	not_kept "a failure" "$act"
	words='arg=true
out=f'
	act=$(action_of)
	expect 0 casbox run --action "$act"
	said "did not make the output f"
	not_kept "a success without its output" "$act"
	words='arg=cp
arg=sub/in
arg=f
out=f'
	act=$(action_of nocache)
	expect 0 casbox run --action "$act"
	not_kept "what must not be" "$act"
	words='arg=sleep
arg=60'
	act=$(action_of timeout=0.3)
	expect 124 casbox run --action "$act"
	not_kept "what was ended" "$act"
	act=$(action_of timeout=600)
	expect 124 casbox run --action "$act" --timeout 0.2

	# What nobody can run.
	expect 2 casbox run --action "${act}x"
	expect 2 casbox run --action "$act" -- true
	expect 2 casbox run --action "$act" --output x
	expect 125 casbox run --action "$(put tree/sub/in)"
	said "not an Action"
	words='arg=true
out=../../up'
	act=$(action_of)
	expect 125 casbox run --action "$act"
	said "leads out of the root"
	words='arg=true
cwd=nowhere'
	expect 125 casbox run --action "$(action_of)"
	said "nowhere"
	eq "sandboxes left" "" "$(casbox sandbox list)"
	casbox umount
}
LIB=$HERE/../lib
each_user body
