#!/bin/sh
# tests/mount/output-replaced.sh - outputs are what lies at their path at the end (C05, C20)
. "$(dirname "$0")/../lib/common.sh"
need fuse mount

# round NAME SCRIPT: run it in a sandbox with the output `out`; the digest or link of `out`.
round() {
	sandbox=$(sandbox_new "$root" --id "$1" --output out --output other)
	(cd "$sandbox" && eval "$2") || fail "$1: the action failed"
	casbox sandbox finish "$1" > "$T/finish"
	casbox sandbox remove "$1"
	sed -n 's|^out\t||p' "$T/finish"
}

body() {
	mkdir "$T/tree"
	echo input > "$T/tree/input"
	root=$(put "$T/tree")
	mkdir "$T/want"
	echo result > "$T/want/f"
	want=$(put "$T/want")
	mount_start
	eq "made again" "$want" "$(round a 'mkdir out; echo x > out/g; rm -r out; mkdir out; echo result > out/f')"
	eq "moved over" "$want" "$(round b 'mkdir out tmp.1; echo result > tmp.1/f; rmdir out; mv tmp.1 out')"
	eq "moved away" "$want" "$(round c 'mkdir out; echo x > out/x; mv out old; mkdir out; echo result > out/f')"
	eq "a link instead" "-> other" "$(round d 'mkdir out other; rm -rf out; ln -s other out')"
	eq "dangling" "-> /no/where" "$(round e 'ln -s /no/where out')"
	eq "missing" "" "$(round f 'echo x > other')"
	eq "a file" "$(put "$T/want/f")" "$(round g 'echo result > out')"

	mkdir "$T/links" && ln -s missing "$T/links/l1" && ln -s /abs "$T/links/l2" &&
		ln -s l3 "$T/links/l3" && mkdir "$T/links/d" && ln -s d "$T/links/l4" &&
		ln -s "$(printf '%04000d' 1)" "$T/links/long"
	got=$(round h "cp -a '$T/links' out")
	eq "links inside" "$(put "$T/links")" "$got"
	casbox checkout "$got" "$T/links-out"
	trees_equal "$T/links" "$T/links-out"
	mount_stop
}
each_user body
